package config

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/carrel-dev/carrel"
)

func TestDefaultIsValid(t *testing.T) {
	if err := Default().Validate(); err != nil {
		t.Error(err)
	}
}

// TestValidate makes one field at a time invalid. The error must name the field.
func TestValidate(t *testing.T) {
	for _, c := range []struct {
		field string
		spoil func(*Config)
	}{
		{"listen", func(c *Config) { c.Listen = "7070" }},
		{"listen", func(c *Config) { c.Listen = "127.0.0.1:http" }},
		{"listen", func(c *Config) { c.Listen = "127.0.0.1:70000" }},
		{"domain", func(c *Config) { c.Domain = "a..b" }},
		{"domain", func(c *Config) { c.Domain = "-a.example.com" }},
		{"domain", func(c *Config) { c.Domain = "example.com:0" }},
		{"domain", func(c *Config) { c.Domain = "https://example.com" }},
		{"tls-key", func(c *Config) { c.TLSCert = "c.pem" }},
		{"tls-cert", func(c *Config) { c.TLSKey = "k.pem" }},
		{"data-dir", func(c *Config) { c.DataDir = "" }},
		{"data-dir", func(c *Config) { c.DataDir = "//" }},
		{"cache-dir", func(c *Config) { c.CacheDir = "a\x00b" }},
		{"default-tier", func(c *Config) { c.DefaultTier = "docker" }},
		{"base", func(c *Config) { c.Base = "ubuntu" }},
		{"default-template", func(c *Config) { c.DefaultTemplate = "" }},
		{"max-sandboxes", func(c *Config) { c.MaxSandboxes = 0 }},
		{"max-connections", func(c *Config) { c.MaxConnections = -1 }},
		{"max-sandbox-connections", func(c *Config) { c.MaxSandboxConnections = 0 }},
		{"default-cpus", func(c *Config) { c.Limits.CPUs = math.NaN() }},
		{"default-cpus", func(c *Config) { c.Limits.CPUs = -1 }},
		{"default-memory", func(c *Config) { c.Limits.MemoryMB = 1 << 30 }},
		{"default-disk", func(c *Config) { c.Limits.DiskMB = 0 }},
		{"default-pids", func(c *Config) { c.Limits.Pids = 1 }},
		{"default-timeout", func(c *Config) { c.DefaultTimeout = 0 }},
		{"max-timeout", func(c *Config) { c.MaxTimeout = time.Second }},
		{"snapshot-store", func(c *Config) { c.SnapshotStore = "/" }},
		{"snapshot-store", func(c *Config) { c.SnapshotStore = "a\x00b" }},
		{"snapshot-store", func(c *Config) { c.SnapshotStore = "gs://bucket" }},
		{"snapshot-store", func(c *Config) { c.SnapshotStore = "s3://bucket" }}, // no credentials
		{"snapshot-store", func(c *Config) { withKeys(c); c.SnapshotStore = "s3://" }},
		{"snapshot-store", func(c *Config) { withKeys(c); c.SnapshotStore = "s3://Bucket" }},
		{"snapshot-store", func(c *Config) { withKeys(c); c.SnapshotStore = "s3://-bucket" }},
		{"snapshot-store", func(c *Config) { withKeys(c); c.SnapshotStore = "s3://bucket/a/../b" }},
		{"snapshot-store", func(c *Config) { withKeys(c); c.SnapshotStore = "s3://bucket/a b" }},
		{"snapshot-store", func(c *Config) { withKeys(c); c.SnapshotStore = "s3://" + canary + "@bucket" }},
		{"AWS_ENDPOINT_URL", func(c *Config) { withKeys(c); c.SnapshotStore = "s3://bucket"; c.S3.Endpoint = "127.0.0.1:9000" }},
		{"AWS_ENDPOINT_URL", func(c *Config) {
			withKeys(c)
			c.SnapshotStore, c.S3.Endpoint = "s3://bucket", "http://u:"+canary+"@127.0.0.1:9000"
		}},
		{"snapshot-quota", func(c *Config) { c.SnapshotQuota = -1 }},
		{"snapshot-cache", func(c *Config) { c.SnapshotCache = -1 }},
		{"max-paused", func(c *Config) { c.MaxPaused = -1 }},
		{"log-format", func(c *Config) { c.LogFormat = "xml" }},
		{"log-level", func(c *Config) { c.LogLevel = "loud" }},
	} {
		cfg := Default()
		c.spoil(&cfg)
		err := cfg.Validate()
		ce, ok := errors.AsType[*carrel.Error](err)
		if !ok || ce.Kind != carrel.Invalid || ce.Field != c.field {
			t.Errorf("%s: %v", c.field, err)
		}
		if err != nil && strings.Contains(err.Error()+carrel.HintOf(err), canary) {
			t.Errorf("%s: the error shows a secret: %v", c.field, err)
		}
	}
	for _, domain := range []string{"", "localhost", "e2b.localhost:8443", "A-b.example.com"} {
		cfg := Default()
		cfg.Domain = domain
		if err := cfg.Validate(); err != nil {
			t.Errorf("%q: %v", domain, err)
		}
	}
}

// applyEnv reads settings from an environment alone.
func applyEnv(c *Config, getenv func(string) string) error {
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	c.Flags(flags)
	_, err := c.Load(flags, "", false, getenv)
	return err
}

func TestEnv(t *testing.T) {
	env := map[string]string{
		"CARREL_LISTEN": "0.0.0.0:1", "CARREL_DOMAIN": "example.com", "CARREL_MAX_SANDBOXES": "7",
		"CARREL_MAX_TIMEOUT": "2h", "CARREL_DEFAULT_TIER": "sim", "CARREL_LOG_LEVEL": "",
	}
	cfg := Default()
	if err := applyEnv(&cfg, func(k string) string { return env[k] }); err != nil {
		t.Fatal(err)
	}
	if cfg.Listen != "0.0.0.0:1" || cfg.Domain != "example.com" || cfg.MaxSandboxes != 7 || cfg.MaxTimeout != 2*time.Hour || cfg.DefaultTier != carrel.Sim || cfg.LogLevel != "info" {
		t.Errorf("%+v", cfg)
	}
	for name, value := range map[string]string{"CARREL_MAX_SANDBOXES": "many", "CARREL_MAX_PAUSED": "1.5", "CARREL_SNAPSHOT_QUOTA": "big", "CARREL_MAX_TIMEOUT": "5"} {
		err := applyEnv(&cfg, func(k string) string { return map[string]string{name: value}[k] })
		if ce, ok := errors.AsType[*carrel.Error](err); !ok || ce.Field != name {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDirs(t *testing.T) {
	env := func(m map[string]string) func(string) string { return func(k string) string { return m[k] } }
	for _, c := range []struct {
		uid  int
		env  map[string]string
		data string
	}{
		{0, map[string]string{"HOME": "/root"}, "/var/lib/carrel"},
		{1, map[string]string{"HOME": "/home/a"}, "/home/a/.local/share/carrel"},
		{1, map[string]string{"HOME": "/home/a", "XDG_DATA_HOME": "/x"}, "/x/carrel"},
		{1, map[string]string{"HOME": "/home/a", "XDG_DATA_HOME": "relative"}, "/home/a/.local/share/carrel"},
	} {
		if got := dataDir(c.uid, env(c.env)); got != c.data {
			t.Errorf("%+v: %s", c, got)
		}
	}
	if got := cacheDir(1, env(map[string]string{"HOME": "/home/a"})); got != "/home/a/.cache/carrel" {
		t.Error(got)
	}
}
