package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

// canary is a secret in tests. It must never appear in any output.
const canary = "wJalrXUtnFEMI"

func withKeys(c *Config) { c.S3.AccessKeyID, c.S3.SecretAccessKey = "AKIDEXAMPLE", canary }

func TestSize(t *testing.T) {
	for text, want := range map[string]Size{
		"0": 0, "1": 1, "512": 512, "1k": 1 << 10, "1K": 1 << 10, "1kB": 1 << 10, "1KiB": 1 << 10, "10B": 10,
		"512M": 512 << 20, "20GiB": 20 << 30, "1.5G": 3 << 29, " 2 T ": 2 << 40, "7P": 7 << 50, "0.5KiB": 512,
	} {
		var got Size
		if err := got.Set(text); err != nil || got != want {
			t.Errorf("%q: %d, %v; want %d", text, got, err, want)
		}
		var again Size
		if err := again.Set(got.String()); err != nil || again != got {
			t.Errorf("%q is written %q, which reads %d, %v", text, got, again, err)
		}
	}
	for _, text := range []string{"", "G", "B", "iB", "5iB", "-1", "+1", "-1G", "1e9", "0x10", "inf", "NaN", "1_000", "8192P", "9223372036854775808",
		"1.2.3", "1 2", "10X", "99999999999999999999P", strings.Repeat("9", 5000)} {
		var got Size
		if err := got.Set(text); err == nil {
			t.Errorf("%q reads as %d", text, got)
		} else if len(err.Error()) > 300 {
			t.Errorf("an error of %d bytes", len(err.Error()))
		}
	}
}

// TestS3Env shows that credentials come from the environment, under the names every S3 client
// reads, and are never shown.
func TestS3Env(t *testing.T) {
	env := map[string]string{
		"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": canary, "AWS_SESSION_TOKEN": canary + "2",
		"AWS_DEFAULT_REGION": "eu-central-1", "AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9000",
		"CARREL_SNAPSHOT_STORE": "s3://bucket/some/prefix/", "CARREL_SNAPSHOT_QUOTA": "20GiB", "CARREL_SNAPSHOT_CACHE": "1G", "CARREL_MAX_PAUSED": "3",
	}
	cfg := Default()
	if err := applyEnv(&cfg, func(k string) string { return env[k] }); err != nil {
		t.Fatal(err)
	}
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	want := S3{Endpoint: "http://127.0.0.1:9000", Region: "eu-central-1", AccessKeyID: "AKIDEXAMPLE", SecretAccessKey: canary, SessionToken: canary + "2"}
	if cfg.S3 != want || cfg.SnapshotQuota != 20<<30 || cfg.SnapshotCache != 1<<30 || cfg.MaxPaused != 3 {
		t.Errorf("%+v", cfg)
	}
	if bucket, prefix, ok := cfg.SnapshotBucket(); !ok || bucket != "bucket" || prefix != "some/prefix" {
		t.Errorf("%q %q %v", bucket, prefix, ok)
	}
	var log bytes.Buffer
	for _, h := range []slog.Handler{slog.NewTextHandler(&log, nil), slog.NewJSONHandler(&log, nil)} {
		slog.New(h).Info("configured", "cfg", cfg, "ptr", &cfg, "s3", cfg.S3, "key", cfg.S3.SecretAccessKey)
	}
	raw, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	hex := fmt.Sprintf("%x", canary)
	for _, text := range []string{log.String(), string(raw), fmt.Sprintf("%v %+v %#v %s %q %x %X", cfg, cfg, cfg, cfg.S3, cfg.S3, cfg.S3, cfg.S3.SecretAccessKey)} {
		if strings.Contains(text, canary) || strings.Contains(strings.ToLower(text), strings.ToLower(hex)) {
			t.Errorf("the secret is shown: %s", text)
		}
	}
	if string(cfg.S3.SecretAccessKey) != canary {
		t.Error("the secret itself is gone")
	}
}

// TestSnapshotStoreOptions has options behind the store's name. They are no part of the prefix.
func TestSnapshotStoreOptions(t *testing.T) {
	for _, store := range []string{"s3://bucket?insecure=true", "s3://bucket/p?insecure=true&endpoint=http://minio.example.com:9000", "s3://bucket/p?"} {
		cfg := Default()
		withKeys(&cfg)
		cfg.SnapshotStore = store
		if err := cfg.Validate(); err != nil {
			t.Errorf("%s: %v", store, err)
		}
		if bucket, prefix, ok := cfg.SnapshotBucket(); !ok || bucket != "bucket" || prefix != "" && prefix != "p" {
			t.Errorf("%s: %q %q %v", store, bucket, prefix, ok)
		}
	}
}

func TestSnapshotStoreDirectory(t *testing.T) {
	for _, dir := range []string{"", "/srv/snapshots", "relative/dir", "s3", "./s3:odd"} {
		cfg := Default()
		cfg.SnapshotStore = dir
		if err := cfg.Validate(); err != nil {
			t.Errorf("%q: %v", dir, err)
		}
		if _, _, ok := cfg.SnapshotBucket(); ok {
			t.Errorf("%q is a bucket", dir)
		}
	}
}
