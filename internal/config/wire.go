package config

import (
	"net/url"
)

// Wire is what the daemon is told of sandboxes' way out.
type Wire struct {
	// DefaultPolicy is for sandboxes that are created without a word on the network: a policy
	// file or the name of a preset, "deny", or "allow". "" is what each door means by
	// silence: the internet through E2B's, nothing through ours.
	DefaultPolicy string
	// Presets is a file of presets of one's own; "" for none.
	Presets string
	// SecretKeyFile holds the key that secrets are sealed with; "" is a file that is made
	// in the data directory.
	SecretKeyFile string
	// Issuer is the URL by which verifiers of sandboxes' identity tokens reach this daemon;
	// "" is the address it listens on.
	Issuer string
	// AuditSize bounds the audit log, in bytes.
	AuditSize int64
	// HostServices says whose sandboxes may reach services on this machine's loopback, where their
	// policy opens one: one of the HostServices constants. "" is HostServicesOwn for a daemon that
	// listens on loopback, and HostServicesNone for any other.
	HostServices string
	// Table is a file that stands for the whole world outside (see wire.Table): names
	// and addresses that are not in it do not exist. For tests and closed set-ups.
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
