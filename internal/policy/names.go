package policy

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/net/idna"
)

const maxNameLen = 253 // of DNS, without the last dot

// canonical returns a name in the form of the rules: lower case, without the last dot. plain is
// false for a name that no rule can name, because it has bytes that no host name has. Do not split
// such a name at its dots: they may not be separators.
func canonical(s string) (name string, plain bool) {
	if len(s) > 1 {
		s = strings.TrimSuffix(s, ".")
	}
	lower := true
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '-', c == '.', c == '_':
		case c >= 'A' && c <= 'Z':
			lower = false
		default:
			return s, false
		}
	}
	if !lower {
		s = strings.ToLower(s)
	}
	return s, s != "" && len(s) <= maxNameLen
}

// parseName checks a rule's name and returns its canonical form in ASCII.
func parseName(s string) (string, error) {
	name := strings.TrimSuffix(s, ".")
	if !isASCII(name) {
		ascii, err := idna.Lookup.ToASCII(name)
		if err != nil {
			return "", fmt.Errorf("%s is no name: %s", clip(s), strings.TrimPrefix(err.Error(), "idna: "))
		}
		name = ascii
	}
	name = strings.ToLower(name)
	if name == "" || len(name) > maxNameLen {
		return "", fmt.Errorf("%s is no name: it has 1 to %d characters", clip(s), maxNameLen)
	}
	last := ""
	for label := range strings.SplitSeq(name, ".") {
		if err := checkLabel(label); err != nil {
			return "", fmt.Errorf("%s is no name: %w", clip(s), err)
		}
		last = label
	}
	if looksNumeric(last) {
		return "", fmt.Errorf("%s is neither a name nor an address", clip(s))
	}
	return name, nil
}

func checkLabel(label string) error {
	switch {
	case label == "":
		return errors.New("two dots follow each other, or one is first")
	case len(label) > 63:
		return errors.New("a part is longer than 63 characters")
	case label[0] == '-' || label[len(label)-1] == '-':
		return errors.New("a part begins or ends with -")
	}
	for i := range len(label) {
		if c := label[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return fmt.Errorf("it has the character %q", c)
		}
	}
	return nil
}

// looksNumeric reports whether programs would take a name with this last label for an address:
// "127.1", "0x7f000001".
func looksNumeric(label string) bool {
	if hex, ok := strings.CutPrefix(label, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}

// destination is one entry of a rule's Allow, Deny or Ask. Exactly one field is set.
type destination struct {
	any    bool
	name   string // exact
	suffix string // "example.com" of "*.example.com"
	prefix netip.Prefix
}

// parseDestination reads one entry. The hint is the probable intention.
func parseDestination(s string) (d destination, hint string, err error) {
	if s == "*" {
		return destination{any: true}, "", nil
	}
	if s == "" || s != strings.TrimSpace(s) {
		return d, "", fmt.Errorf("%s is no destination", clip(s))
	}
	if a, err := netip.ParseAddr(s); err == nil {
		if a.Zone() != "" {
			return d, "leave out %" + a.Zone(), fmt.Errorf("%s has a zone", clip(s))
		}
		a = plainAddr(a)
		return destination{prefix: netip.PrefixFrom(a, a.BitLen())}, "", nil
	}
	if strings.Contains(s, "/") {
		return parseBlock(s)
	}
	if host, port, ok := strings.Cut(s, ":"); ok && !strings.Contains(port, ":") {
		return d, fmt.Sprintf("write %s, and ports: [%q]", host, port), fmt.Errorf("%s has a port", clip(s))
	}
	if rest, ok := strings.CutPrefix(s, "*."); ok {
		d.suffix, err = parseName(rest)
		return d, "", err
	}
	if strings.Contains(s, "*") {
		return d, `"*.example.com" means every name below example.com, "*" everything`, fmt.Errorf(`%s: "*" stands for all the beginning of a name, before the first dot`, clip(s))
	}
	d.name, err = parseName(s)
	return d, "", err
}

// parseBlock reads a CIDR.
func parseBlock(s string) (d destination, hint string, err error) {
	p, err := netip.ParsePrefix(s)
	if err != nil {
		if _, rest, ok := strings.Cut(s, "://"); ok {
			host, _, _ := strings.Cut(rest, "/")
			return d, "write " + host + ": a rule names hosts", fmt.Errorf("%s is a URL", clip(s))
		}
		if host, path, _ := strings.Cut(s, "/"); strings.Trim(host, "0123456789.:abcdefABCDEF") != "" {
			return d, fmt.Sprintf("write %s, and paths: [%q]", host, "/"+path), fmt.Errorf("%s has a path", clip(s))
		}
		return d, "", fmt.Errorf("%s is no CIDR", clip(s))
	}
	if p.Addr().Is4In6() {
		return d, "write the IPv4 block itself", fmt.Errorf("%s is IPv4 in the form of IPv6", clip(s))
	}
	if p != p.Masked() {
		return d, "write " + p.Masked().String(), fmt.Errorf("%s has bits beyond its length", clip(s))
	}
	return destination{prefix: p}, "", nil
}

// clip shortens a caller's text for a message.
func clip(s string) string {
	const most = 80
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return fmt.Sprintf("%q", s)
}

// bare is clip without quotes. E2B's texts have none.
func bare(s string) string {
	if s == "" {
		return `""`
	}
	q := clip(s)
	return q[1 : len(q)-1]
}
