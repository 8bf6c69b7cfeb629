package daemon

import (
	"errors"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/config"
)

// TestStoreOptions opens object stores as a daemon's start does, with options in their names. An
// endpoint without TLS that is not on this machine must be asked for, wherever it was given.
func TestStoreOptions(t *testing.T) {
	const plain = "http://minio.example.com:9000"
	for _, tt := range []struct{ store, env, field string }{
		{"s3://bucket/p", "https://s3.example.com", ""},
		{"s3://bucket/p?insecure=true", plain, ""},
		{"s3://bucket/p?insecure=true&endpoint=" + plain, "", ""},
		{"s3://bucket/p?endpoint=https://s3.example.com", plain, ""},
		{"s3://bucket/p", plain, "endpoint"},
		{"s3://bucket/p?insecure=false", plain, "endpoint"},
		{"s3://bucket/p?endpoint=" + plain, "https://s3.example.com", "endpoint"},
		{"s3://bucket/p?insecure=perhaps", plain, "insecure"},
		{"s3://bucket/p?secure=false", plain, "secure"},
	} {
		cfg := config.Default()
		cfg.SnapshotStore = tt.store
		cfg.S3 = config.S3{Endpoint: tt.env, AccessKeyID: "AKIDEXAMPLE", SecretAccessKey: "s"}
		if err := cfg.Validate(); err != nil {
			t.Errorf("%s is not a configuration: %v", tt.store, err)
		}
		_, err := locateS3(tt.store, cfg.S3)
		var e *carrel.Error
		switch {
		case tt.field == "" && err != nil:
			t.Errorf("%s with %s: %v", tt.store, tt.env, err)
		case tt.field != "" && (!errors.As(err, &e) || e.Kind != carrel.Invalid || e.Field != tt.field || e.Hint == ""):
			t.Errorf("%s with %s: %v, want Invalid %s with a hint", tt.store, tt.env, err, tt.field)
		case tt.field == "endpoint" && !strings.Contains(e.Hint, "?insecure=true"):
			t.Errorf("%s: the hint is %q", tt.store, e.Hint)
		}
	}
}
