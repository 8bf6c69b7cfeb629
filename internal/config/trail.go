package config

import (
	"net/url"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// Trail has the settings for the audit trail of what callers did.
type Trail struct {
	// Size bounds the trail, in bytes.
	Size int64
	// Age is how long records are kept; 0 is until there are too many.
	Age time.Duration
	// Syslog is the URL of a syslog server that gets each record; "" is none.
	Syslog string
	// OTLP also sends each record to the collector in the environment.
	OTLP bool
}

// defaultTrail is the default.
var defaultTrail = Trail{Size: 1 << 30}

// Flags adds the flags for the audit trail.
func (t *Trail) Flags(f *pflag.FlagSet) {
	f.Var((*Size)(&t.Size), "trail-size", "how much of the audit trail (what callers did) is kept")
	f.DurationVar(&t.Age, "trail-age", t.Age, "how long its records are kept, such as 2160h (0: until there are too many)")
	f.StringVar(&t.Syslog, "trail-syslog", t.Syslog, "syslog server that gets its records too: udp://HOST:PORT, tcp://HOST:PORT or unix:///PATH (default: none)")
	f.BoolVar(&t.OTLP, "trail-otlp", t.OTLP, "send its records to the OpenTelemetry collector in the environment too")
}

// checkTrail checks the fields.
func (c Config) checkTrail() error { return c.Trail.Check() }

// Check checks the fields. Error: Invalid.
func (t Trail) Check() error {
	if t.Size < 1<<20 {
		return bad("trail-size", "%d bytes are less than 1 MiB", t.Size)
	}
	if t.Age < 0 || t.Age > 0 && t.Age < time.Hour {
		return bad("trail-age", "%v is less than an hour", t.Age)
	}
	if t.Syslog == "" {
		return nil
	}
	u, err := url.Parse(t.Syslog)
	network := err == nil && (u.Scheme == "udp" || u.Scheme == "tcp") && u.Hostname() != "" && strings.Trim(u.Path, "/") == ""
	local := err == nil && u.Scheme == "unix" && u.Host == "" && strings.HasPrefix(u.Path, "/")
	if !network && !local || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return bad("trail-syslog", "%q is none of udp://HOST:PORT, tcp://HOST:PORT and unix:///PATH", t.Syslog)
	}
	return nil
}
