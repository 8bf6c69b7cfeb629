package config

import (
	"net"
	"net/url"
	"strings"

	"github.com/spf13/pflag"
)

// Fleet makes the daemon a node of a fleet.
type Fleet struct {
	// Join are the addresses of fronts for nodes, https://host:port; none is a daemon by itself.
	Join []string
	// TokenFile holds the fleet's join token.
	TokenFile string
	// Name is the node's lasting name; "" is the machine's host name.
	Name string
	// Listen is the address where fronts reach the daemon, host:port. URL is how they call it; "" is
	// that address, on the machine's own IP address.
	Listen, URL string
	// Taints keep the sandboxes of projects away that don't tolerate them.
	Taints []string
}

// defaultFleet is the default.
var defaultFleet = Fleet{Listen: "0.0.0.0:7072"}

// fleetFlags adds the flags of a node.
func (c *Config) fleetFlags(f *pflag.FlagSet) {
	f.StringSliceVar(&c.Fleet.Join, "join", c.Fleet.Join, "be a node of the fleet whose front serves nodes at this https://HOST:PORT (repeat for more fronts)")
	f.StringVar(&c.Fleet.TokenFile, "join-token-file", c.Fleet.TokenFile, "file with the fleet's join token")
	f.StringVar(&c.Fleet.Name, "node-name", c.Fleet.Name, "this node's lasting name in the fleet (default: the host name)")
	f.StringVar(&c.Fleet.Listen, "fleet-listen", c.Fleet.Listen, "address where the fleet's fronts reach this node, with TLS of the fleet's own")
	f.StringVar(&c.Fleet.URL, "fleet-url", c.Fleet.URL, "how they call it, such as https://10.0.0.5:7072 (default: that address, on this machine's own IP address)")
	f.StringSliceVar(&c.Fleet.Taints, "taint", c.Fleet.Taints, "keep sandboxes away of projects that don't tolerate this word (repeat)")
}

// maxTaints bounds the taints of a node.
const maxTaints = 16

// checkFleet checks the fields.
func (c Config) checkFleet() error {
	fl := c.Fleet
	if len(fl.Join) == 0 {
		return nil
	}
	for _, front := range fl.Join {
		if !plainHTTPS(front) {
			return bad("join", "%q is not https://HOST:PORT", front)
		}
	}
	if fl.TokenFile == "" {
		return bad("join-token-file", "a node needs the fleet's join token")
	}
	if _, _, err := net.SplitHostPort(fl.Listen); err != nil {
		return bad("fleet-listen", "%q is not host:port", fl.Listen)
	}
	if fl.URL != "" && !plainHTTPS(fl.URL) {
		return bad("fleet-url", "%q is not https://HOST:PORT", fl.URL)
	}
	if len(fl.Taints) > maxTaints {
		return bad("taint", "more than %d", maxTaints)
	}
	for _, t := range fl.Taints {
		if t == "" || len(t) > 63 || strings.Trim(t, "abcdefghijklmnopqrstuvwxyz0123456789.-") != "" {
			return bad("taint", "%.80q is not 1 to 63 lower-case letters, digits, dots and hyphens", t)
		}
	}
	return nil
}

// plainHTTPS reports whether a text is https://host[:port] and nothing more.
func plainHTTPS(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Scheme == "https" && u.Hostname() != "" && (u.Path == "" || u.Path == "/") &&
		u.RawQuery == "" && u.Fragment == "" && u.User == nil
}
