package audit

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
)

// Bounds on a query.
const (
	defaultLimit = 1000
	maxFilter    = 512
)

// matcher says which decisions match a query.
type matcher struct {
	opts carrel.AuditOptions
	host hostMatcher
	// needles are texts that every matching line contains. No text from a sandbox can contain one,
	// because its quotes are escaped.
	needles [][]byte
}

// newMatcher checks a query. Error: Invalid, with the field.
func newMatcher(opts carrel.AuditOptions) (*matcher, error) {
	m := &matcher{opts: opts}
	if opts.ID != "" {
		if _, err := carrel.ParseID(string(opts.ID)); err != nil {
			return nil, invalid("id", "%q is not a sandbox ID", clip(string(opts.ID), maxWord))
		}
		m.needles = append(m.needles, fmt.Appendf(nil, `"id":%q`, string(opts.ID)))
	}
	if opts.Project != "" {
		if err := carrel.CheckProject(opts.Project); err != nil {
			return nil, invalid("project", "%q is not a project", clip(opts.Project, maxWord))
		}
		m.needles = append(m.needles, fmt.Appendf(nil, `"project":%q`, opts.Project))
	}
	if opts.Allowed != nil {
		m.needles = append(m.needles, fmt.Appendf(nil, `"allowed":%v`, *opts.Allowed))
	}
	switch {
	case opts.Limit < 0:
		return nil, invalid("limit", "%d is less than nothing", opts.Limit)
	case opts.After < 0:
		return nil, invalid("after", "%d is no number of a decision", opts.After)
	case !opts.Since.IsZero() && !opts.Until.IsZero() && !opts.Since.Before(opts.Until):
		return nil, invalid("until", "it is not later than since")
	case len(opts.Rule) > maxFilter:
		return nil, invalid("rule", "longer than %d bytes", maxFilter)
	case len(opts.Secret) > maxFilter:
		return nil, invalid("secret", "longer than %d bytes", maxFilter)
	}
	var err error
	m.host, err = newHostMatcher(opts.Host)
	return m, err
}

func invalid(field, format string, args ...any) error {
	return &carrel.Error{Op: "read audit log", Kind: carrel.Invalid, Field: field, Err: fmt.Errorf(format, args...)}
}

// all reports whether every decision matches, Seq aside.
func (m *matcher) all() bool {
	o := m.opts
	return o.ID == "" && o.Project == "" && o.Since.IsZero() && o.Until.IsZero() && o.Allowed == nil && o.Host == "" && o.Rule == "" && o.Secret == ""
}

// overlaps reports whether a decision between two times can match.
func (m *matcher) overlaps(since, until time.Time) bool {
	return (m.opts.Since.IsZero() || !until.Before(m.opts.Since)) && (m.opts.Until.IsZero() || since.Before(m.opts.Until))
}

// line decodes a line. ok is false when its decision does not match.
func (m *matcher) line(line []byte, at time.Time) (carrel.Decision, bool) {
	if !m.overlaps(at, at) {
		return carrel.Decision{}, false
	}
	for _, n := range m.needles {
		if !bytes.Contains(line, n) {
			return carrel.Decision{}, false
		}
	}
	d, ok := parseLine(line)
	return d, ok && m.decision(d)
}

// decision reports whether a decision matches.
func (m *matcher) decision(d carrel.Decision) bool {
	o := m.opts
	return (o.ID == "" || d.ID == o.ID) && (o.Project == "" || d.Project == o.Project) && (o.Allowed == nil || d.Allowed == *o.Allowed) && m.overlaps(d.Time, d.Time) &&
		(o.Rule == "" || strings.Contains(d.Rule, o.Rule)) && (o.Secret == "" || slices.Contains(d.Secrets, o.Secret)) && m.host.match(d)
}

// hostMatcher says which hosts match.
type hostMatcher struct {
	name   string // exactly
	suffix string // ".example.com"
	prefix netip.Prefix
}

// newHostMatcher reads a name, "*.name", an address or a CIDR.
func newHostMatcher(text string) (hostMatcher, error) {
	var h hostMatcher
	if text == "" {
		return h, nil
	}
	if len(text) > maxFilter {
		return h, invalid("host", "longer than %d bytes", maxFilter)
	}
	if p, err := netip.ParsePrefix(text); err == nil {
		h.prefix = p.Masked()
		return h, nil
	}
	if a, err := netip.ParseAddr(strings.Trim(text, "[]")); err == nil {
		a = a.Unmap().WithZone("")
		h.prefix = netip.PrefixFrom(a, a.BitLen())
		return h, nil
	}
	name := hostName(text)
	if rest, ok := strings.CutPrefix(name, "*."); ok {
		name, h.suffix = rest, "."+rest
	}
	if name == "" || strings.ContainsAny(name, "*/ :@?#\"\\") || strings.Contains(name, "..") || strings.HasPrefix(name, ".") {
		return hostMatcher{}, invalid("host", "%q is no name, *.name, address or CIDR", clip(text, maxName))
	}
	if h.suffix == "" {
		h.name = name
	}
	return h, nil
}

// hostName writes equal names in the same way.
func hostName(s string) string { return strings.ToLower(strings.TrimSuffix(s, ".")) }

func (h hostMatcher) match(d carrel.Decision) bool {
	switch {
	case h.name != "":
		return hostName(d.Name) == h.name
	case h.suffix != "":
		return strings.HasSuffix(hostName(d.Name), h.suffix)
	case h.prefix.IsValid():
		return h.contains(d.Address) || h.contains(strings.Trim(d.Name, "[]"))
	}
	return true
}

func (h hostMatcher) contains(text string) bool {
	a, err := netip.ParseAddr(text)
	return err == nil && h.prefix.Contains(a.Unmap().WithZone(""))
}
