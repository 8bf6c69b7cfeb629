package config

import (
	"net/url"
)

// Wire has the settings for traffic out of sandboxes.
type Wire struct {
	// DefaultPolicy is for sandboxes that are created without network rules: a policy file or the
	// name of a preset, "deny", or "allow". With "" each API decides: E2B's opens the internet,
	// ours opens nothing.
	DefaultPolicy string
	// Presets is a file of the operator's own presets; "" for none.
	Presets string
	// SecretKeyFile holds the key that seals secrets; "" is a file that the daemon makes in the
	// data directory.
	SecretKeyFile string
	// Issuer is the daemon's URL for verifiers of sandboxes' identity tokens; "" is the address it
	// listens on.
	Issuer string
	// AuditSize bounds the audit log, in bytes.
	AuditSize int64
	// HostServices says whose sandboxes may reach services on this machine's loopback, where their
	// policy opens one: one of the HostServices constants. "" is HostServicesOwn for a daemon that
	// listens on loopback, and HostServicesNone for any other.
	HostServices string
	// Table is a file that replaces the whole outside world (see wire.Table): other names and
	// addresses do not exist. For tests and closed set-ups.
	Table string
}

// The values of Wire.HostServices.
const (
	HostServicesNone = "none"
	HostServicesOwn  = "own" // those made with the daemon's own API key, for no other project
	HostServicesAll  = "all"
)

// defaultWire is the default.
var defaultWire = Wire{AuditSize: 640 << 20}

// checkWire checks the fields.
func (c Config) checkWire() error {
	if u := c.Wire.Issuer; u != "" {
		parsed, err := url.Parse(u)
		if err != nil || parsed.Scheme != "http" && parsed.Scheme != "https" || parsed.Host == "" || parsed.RawQuery != "" || parsed.Fragment != "" {
			return bad("issuer", "%q is not the URL of a server", u)
		}
	}
	switch c.Wire.HostServices {
	case "", HostServicesNone, HostServicesOwn, HostServicesAll:
	default:
		return bad("allow-host-services", "%q is none of none, own and all", c.Wire.HostServices)
	}
	if c.Wire.AuditSize < 1<<20 {
		return bad("audit-size", "%d bytes are less than 1 MiB", c.Wire.AuditSize)
	}
	return nil
}
