package config

import (
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
)

// Validate checks every field. The error names the first bad one; its Kind is Invalid.
func (c Config) Validate() error {
	for _, check := range []func() error{c.checkNetwork, c.checkDirs, c.checkSandboxes, c.checkTimes,
		c.checkSnapshots, c.checkWarm, c.checkWire, c.checkTrail, c.checkSignIn, c.checkFleet, c.checkRegistries, c.checkIngress, c.checkLog} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (c Config) checkNetwork() error {
	_, port, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return bad("listen", "%q is not host:port", c.Listen)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return bad("listen", "%q is not a port between 0 and 65535", port)
	}
	if err := checkDomain(c.Domain); err != nil {
		return err
	}
	if (c.TLSCert == "") != (c.TLSKey == "") {
		missing := "tls-key"
		if c.TLSCert == "" {
			missing = "tls-cert"
		}
		return bad(missing, "a certificate and its key are given together")
	}
	return nil
}

// checkDomain checks a DNS name with an optional port.
func checkDomain(domain string) error {
	if domain == "" {
		return nil
	}
	host, port, hasPort := strings.Cut(domain, ":")
	if hasPort {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return bad("domain", "%q is not a port between 1 and 65535", port)
		}
	}
	if len(host) > 200 {
		return bad("domain", "longer than 200 characters")
	}
	for label := range strings.SplitSeq(host, ".") {
		if label == "" || len(label) > 63 || strings.Trim(label, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-") != "" ||
			strings.HasPrefix(label, "-") || strings.HasSuffix(label, "-") {
			return bad("domain", "%q is not a DNS name", host)
		}
	}
	return nil
}

func (c Config) checkDirs() error {
	for _, d := range []struct{ field, dir string }{{"data-dir", c.DataDir}, {"cache-dir", c.CacheDir}} {
		switch {
		case d.dir == "":
			return bad(d.field, "must not be empty")
		case strings.ContainsRune(d.dir, 0):
			return bad(d.field, "contains a NUL byte")
		case filepath.Clean(d.dir) == "/":
			return bad(d.field, "must not be the root directory")
		}
	}
	return nil
}

func (c Config) checkSandboxes() error {
	if t := c.DefaultTier; t != "" && !slices.Contains([]carrel.Tier{carrel.Sim, carrel.NS, carrel.GVisor, carrel.MicroVM}, t) {
		return bad("default-tier", "%q is none of sim, ns, gvisor, microvm", t)
	}
	if k := c.MicroVMKernel; k != "" && !filepath.IsAbs(k) {
		return bad("microvm-kernel", "%q is not an absolute path", k)
	}
	if e := c.MicroVMEngine; e != "" && e != "qemu" && e != "firecracker" {
		return bad("microvm-engine", "%q is none of qemu, firecracker", e)
	}
	if c.DefaultTemplate == "" {
		return bad("default-template", "must not be empty")
	}
	if b := c.Base; b != "" && b != BaseAuto && b != BaseDebian && b != BaseHost {
		return bad("base", "%q is none of auto, debian, host", b)
	}
	if m := c.DebianMirror; m != "" {
		if u, err := url.Parse(m); err != nil || u.Scheme != "http" && u.Scheme != "https" ||
			u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
			return bad("debian-mirror", "%q is no address of an archive: give http://HOST/debian", m)
		}
	}
	if c.MaxSandboxes < 1 {
		return bad("max-sandboxes", "%d is less than 1", c.MaxSandboxes)
	}
	if err := c.checkStarts(); err != nil {
		return err
	}
	if c.MaxConnections < 0 {
		return bad("max-connections", "%d is negative", c.MaxConnections)
	}
	if c.MaxSandboxConnections < 1 {
		return bad("max-sandbox-connections", "%d is less than 1", c.MaxSandboxConnections)
	}
	for _, l := range []struct {
		field      string
		value, top float64
		least      float64
	}{
		{"default-cpus", c.Limits.CPUs, c.MaxLimits.CPUs, minCPUs},
		{"default-memory", float64(c.Limits.MemoryMB), float64(c.MaxLimits.MemoryMB), minMemoryMB},
		{"default-disk", float64(c.Limits.DiskMB), float64(c.MaxLimits.DiskMB), 1},
		{"default-pids", float64(c.Limits.Pids), float64(c.MaxLimits.Pids), 8},
	} {
		if !(l.value >= l.least) { // also refuses NaN
			return bad(l.field, "%s is less than %s", number(l.value), number(l.least))
		}
		if l.top > 0 && l.value > l.top {
			return bad(l.field, "%s is more than the most a request may ask for, %s", number(l.value), number(l.top))
		}
	}
	return nil
}

func (c Config) checkStarts() error {
	switch {
	case c.MaxStarting < 0:
		return bad("max-starting", "%d is negative", c.MaxStarting)
	case c.BlankSentries < 0 || c.BlankSentries > mostWarm:
		return bad("blank-sentries", "%d is not between 0 and %d", c.BlankSentries, mostWarm)
	case c.MaxQueued < 0:
		return bad("max-queued", "%d is negative", c.MaxQueued)
	case c.MaxWait < 0:
		return bad("max-wait", "%v is negative", c.MaxWait)
	case c.MemoryReserve < 0:
		return bad("memory-reserve", "%d is negative", c.MemoryReserve)
	case !(c.MemoryOvercommit >= 0): // also refuses NaN
		return bad("memory-overcommit", "%v is negative", c.MemoryOvercommit)
	}
	return nil
}

func (c Config) checkTimes() error {
	switch {
	case c.DefaultTimeout < time.Second:
		return bad("default-timeout", "%v is less than a second", c.DefaultTimeout)
	case c.MaxTimeout < c.DefaultTimeout:
		return bad("max-timeout", "%v is less than the default timeout %v", c.MaxTimeout, c.DefaultTimeout)
	}
	return nil
}

func (c Config) checkLog() error {
	if !slices.Contains([]string{"text", "json"}, c.LogFormat) {
		return bad("log-format", "%q is neither text nor json", c.LogFormat)
	}
	if !slices.Contains([]string{"debug", "info", "warn", "error"}, c.LogLevel) {
		return bad("log-level", "%q is none of debug, info, warn, error", c.LogLevel)
	}
	return nil
}

// number writes a number as people do: without an exponent.
func number(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }

// The smallest limits with which a sandbox works.
const (
	minCPUs     = 0.01
	minMemoryMB = 16
)
