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

// trailFlags adds the flags for the audit trail.
func (c *Config) trailFlags(f *pflag.FlagSet) {
	f.Var((*Size)(&c.Trail.Size), "trail-size", "how much of the audit trail (what callers did) is kept")
	f.DurationVar(&c.Trail.Age, "trail-age", c.Trail.Age, "how long its records are kept, such as 2160h (0: until there are too many)")
	f.StringVar(&c.Trail.Syslog, "trail-syslog", c.Trail.Syslog, "syslog server that gets its records too: udp://HOST:PORT, tcp://HOST:PORT or unix:///PATH (default: none)")
	f.BoolVar(&c.Trail.OTLP, "trail-otlp", c.Trail.OTLP, "send its records to the OpenTelemetry collector in the environment too")
}

// checkTrail checks the fields.
func (c Config) checkTrail() error {
	if c.Trail.Size < 1<<20 {
		return bad("trail-size", "%d bytes are less than 1 MiB", c.Trail.Size)
	}
	if c.Trail.Age < 0 || c.Trail.Age > 0 && c.Trail.Age < time.Hour {
		return bad("trail-age", "%v is less than an hour", c.Trail.Age)
	}
	if c.Trail.Syslog == "" {
		return nil
	}
	u, err := url.Parse(c.Trail.Syslog)
	network := err == nil && (u.Scheme == "udp" || u.Scheme == "tcp") && u.Hostname() != "" && strings.Trim(u.Path, "/") == ""
	local := err == nil && u.Scheme == "unix" && u.Host == "" && strings.HasPrefix(u.Path, "/")
	if !network && !local || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return bad("trail-syslog", "%q is none of udp://HOST:PORT, tcp://HOST:PORT and unix:///PATH", c.Trail.Syslog)
	}
	return nil
}
