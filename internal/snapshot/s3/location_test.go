package s3_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/snapshot/s3"
)

func TestParseLocation(t *testing.T) {
	for text, want := range map[string]s3.Location{
		"s3://bucket":              {Bucket: "bucket", Region: "us-east-1", Endpoint: "https://s3.us-east-1.amazonaws.com"},
		"s3://bucket/":             {Bucket: "bucket", Region: "us-east-1", Endpoint: "https://s3.us-east-1.amazonaws.com"},
		"s3://my.bucket/a/b/":      {Bucket: "my.bucket", Prefix: "a/b", Region: "us-east-1", Endpoint: "https://s3.us-east-1.amazonaws.com"},
		"s3://bucket?region=eu-1":  {Bucket: "bucket", Region: "eu-1", Endpoint: "https://s3.eu-1.amazonaws.com"},
		"s3://bucket?path-style=1": {Bucket: "bucket", Region: "us-east-1", Endpoint: "https://s3.us-east-1.amazonaws.com", PathStyle: true},
		"s3://bucket/p?endpoint=https://s3.example.com:9000&region=r": {Bucket: "bucket", Prefix: "p", Region: "r",
			Endpoint: "https://s3.example.com:9000", PathStyle: true},
		"s3://bucket?endpoint=https://s3.example.com/&path-style=false":    {Bucket: "bucket", Region: "us-east-1", Endpoint: "https://s3.example.com"},
		"s3://bucket?endpoint=http%3A%2F%2F127.0.0.1:9000":                 {Bucket: "bucket", Region: "us-east-1", Endpoint: "http://127.0.0.1:9000", PathStyle: true},
		"s3://bucket?endpoint=http://[::1]:9000":                           {Bucket: "bucket", Region: "us-east-1", Endpoint: "http://[::1]:9000", PathStyle: true},
		"s3://bucket?endpoint=http://localhost:9000":                       {Bucket: "bucket", Region: "us-east-1", Endpoint: "http://localhost:9000", PathStyle: true},
		"s3://bucket?endpoint=http://minio.example.com:9000&insecure=true": {Bucket: "bucket", Region: "us-east-1", Endpoint: "http://minio.example.com:9000", PathStyle: true},
	} {
		got, err := s3.ParseLocation(text)
		if err != nil || got != want {
			t.Errorf("ParseLocation(%q) = %+v, %v, want %+v", text, got, err, want)
			continue
		}
		if !strings.Contains(text, "insecure") {
			if again, err := s3.ParseLocation(got.String()); err != nil || again != got {
				t.Errorf("ParseLocation(%q) = %+v, %v, want %+v", got, again, err, got)
			}
		}
	}
}

func TestParseLocationMistakes(t *testing.T) {
	for text, field := range map[string]string{
		"":                                "url",
		"bucket":                          "url",
		"https://bucket":                  "url",
		"s3:bucket":                       "url",
		"s3://bucket#x":                   "url",
		"s3://bucket?%zz":                 "url",
		"s3://key:HIDDEN@bucket":          "url",
		"s3://HIDDEN@bucket":              "url",
		"s3://":                           "bucket",
		"s3:///prefix":                    "bucket",
		"s3://ab":                         "bucket",
		"s3://Bucket":                     "bucket",
		"s3://bucket:80":                  "bucket",
		"s3://-bucket":                    "bucket",
		"s3://bucket/a//b":                "prefix",
		"s3://bucket/../x":                "prefix",
		"s3://bucket/a%20b":               "prefix",
		"s3://bucket?endpiont=x":          "endpiont",
		"s3://bucket?secret-key=HIDDEN":   "secret-key",
		"s3://bucket?region=a&region=b":   "region",
		"s3://bucket?region=a.b/":         "region",
		"s3://bucket?region=HIDDEN@x":     "region",
		"s3://bucket?path-style=maybe":    "path-style",
		"s3://bucket?endpoint=x":          "endpoint",
		"s3://bucket?endpoint=ftp://x":    "endpoint",
		"s3://bucket?endpoint=https://":   "endpoint",
		"s3://bucket?endpoint=https://:9": "endpoint",
		"s3://bucket?endpoint=https://key:HIDDEN@example.com":  "endpoint",
		"s3://bucket?endpoint=https://example.com/path":        "endpoint",
		"s3://bucket?endpoint=https://example.com?x=HIDDEN":    "endpoint",
		"s3://bucket?endpoint=http://example.com":              "endpoint",
		"s3://bucket?endpoint=http://10.0.0.1:9000":            "endpoint",
		"s3://bucket?endpoint=http://127.0.0.1.example.com":    "endpoint",
		"s3://bucket?endpoint=http://localhost.example.com":    "endpoint",
		"s3://bucket?endpoint=http://example.com&insecure=no!": "insecure",
	} {
		_, err := s3.ParseLocation(text)
		var ce *carrel.Error
		if !errors.As(err, &ce) || ce.Kind != carrel.Invalid || ce.Field != field {
			t.Errorf("ParseLocation(%q): %v, want Invalid with the field %q", text, err, field)
		}
		if strings.Contains(fmt.Sprint(err)+carrel.HintOf(err), "HIDDEN") {
			t.Errorf("ParseLocation(%q) tells the secret: %v", text, err)
		}
	}
}

func FuzzParseLocation(f *testing.F) {
	f.Add("s3://bucket/a/b?endpoint=https://s3.example.com&region=r&path-style=true")
	f.Fuzz(func(t *testing.T, text string) {
		loc, err := s3.ParseLocation(text)
		if err != nil {
			if !errors.Is(err, carrel.Invalid) {
				t.Errorf("%v is not Invalid", err)
			}
			return
		}
		again, err := s3.ParseLocation(loc.String() + "&insecure=true")
		if err != nil || again != loc {
			t.Errorf("%q is read as %+v, that as %+v, %v", text, loc, again, err)
		}
	})
}
