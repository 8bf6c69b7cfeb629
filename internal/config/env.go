package config

import (
	"fmt"
	"strconv"
	"time"

	"github.com/carrel-dev/carrel"
)

// ApplyEnv overrides c with the environment variables that are set. An empty
// variable counts as not set. Errors are Invalid and name the variable.
func (c *Config) ApplyEnv(getenv func(string) string) error {
	for name, field := range map[string]*string{
		"CARREL_LISTEN":           &c.Listen,
		"CARREL_DATA_DIR":         &c.DataDir,
		"CARREL_CACHE_DIR":        &c.CacheDir,
		"CARREL_DOMAIN":           &c.Domain,
		"CARREL_TLS_CERT":         &c.TLSCert,
		"CARREL_TLS_KEY":          &c.TLSKey,
		"CARREL_DEFAULT_TEMPLATE": &c.DefaultTemplate,
		"CARREL_DEFAULT_TIER":     (*string)(&c.DefaultTier),
		"CARREL_SNAPSHOT_STORE":   &c.SnapshotStore,
		"CARREL_LOG_FORMAT":       &c.LogFormat,
		"CARREL_LOG_LEVEL":        &c.LogLevel,
	} {
		if v := getenv(name); v != "" {
			*field = v
		}
	}
	for _, vars := range []map[string]*string{c.Wire.vars(), c.Ingress.vars()} {
		for name, field := range vars {
			if v := getenv(name); v != "" {
				*field = v
			}
		}
	}
	c.Ingress.applyEnv(getenv)
	for name, field := range map[string]*int{
		"CARREL_MAX_SANDBOXES":           &c.MaxSandboxes,
		"CARREL_MAX_CONNECTIONS":         &c.MaxConnections,
		"CARREL_MAX_SANDBOX_CONNECTIONS": &c.MaxSandboxConnections,
		"CARREL_MAX_PAUSED":              &c.MaxPaused,
		"CARREL_MAX_STARTING":            &c.MaxStarting,
		"CARREL_MAX_QUEUED":              &c.MaxQueued,
		"CARREL_BLANK_SENTRIES":          &c.BlankSentries,
	} {
		if v := getenv(name); v != "" {
			n, err := strconv.Atoi(v)
			if err != nil {
				return bad(name, "%q is not a whole number", v)
			}
			*field = n
		}
	}
	for name, field := range map[string]*int64{
		"CARREL_SNAPSHOT_QUOTA": &c.SnapshotQuota,
		"CARREL_SNAPSHOT_CACHE": &c.SnapshotCache,
		"CARREL_AUDIT_SIZE":     &c.Wire.AuditSize,
		"CARREL_MEMORY_RESERVE": &c.MemoryReserve,
	} {
		if v := getenv(name); v != "" {
			if err := (*Size)(field).Set(v); err != nil {
				return bad(name, "%q is not a size such as 512M or 20GiB", v)
			}
		}
	}
	if err := c.Warm.applyEnv(getenv); err != nil {
		return err
	}
	if v := getenv("CARREL_MEMORY_OVERCOMMIT"); v != "" {
		n, err := strconv.ParseFloat(v, 64)
		if err != nil {
			return bad("CARREL_MEMORY_OVERCOMMIT", "%q is not a number", v)
		}
		c.MemoryOvercommit = n
	}
	c.S3.applyEnv(getenv)
	for name, field := range map[string]*time.Duration{
		"CARREL_DEFAULT_TIMEOUT": &c.DefaultTimeout,
		"CARREL_MAX_TIMEOUT":     &c.MaxTimeout,
		"CARREL_MAX_WAIT":        &c.MaxWait,
	} {
		if v := getenv(name); v != "" {
			d, err := time.ParseDuration(v)
			if err != nil {
				return bad(name, "%q is not a duration such as 90s or 2h", v)
			}
			*field = d
		}
	}
	return nil
}

// bad is an Invalid error about one setting.
func bad(field, format string, args ...any) error {
	return &carrel.Error{Op: "configure", Kind: carrel.Invalid, Field: field, Err: fmt.Errorf(format, args...)}
}
