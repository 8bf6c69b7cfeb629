package vault

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/carrel-dev/carrel"
)

// Bounds on secrets. Those of metadata are E2B's.
const (
	maxName      = 128
	maxValue     = 64 << 10
	maxEntries   = 32
	maxEntryKey  = 128
	maxEntry     = 1024
	maxMetadata  = 8192
	maxHosts     = 64
	maxHost      = 253
	maxPerOwner  = 10_000
	idPrefix     = "sec_"
	idRandomPart = 20
)

func newID() string { return idPrefix + string(carrel.NewID()[1:]) }

// isID reports whether a text has the form of a secret's ID.
func isID(s string) bool {
	rest, ok := strings.CutPrefix(s, idPrefix)
	return ok && len(rest) == idRandomPart && strings.Trim(rest, "abcdefghijklmnopqrstuvwxyz0123456789") == ""
}

func invalid(field, format string, args ...any) error {
	return &carrel.Error{Kind: carrel.Invalid, Field: field, Err: fmt.Errorf(format, args...)}
}

// ownerOf is a project's name in files. The default project is "", as it was when there were no
// others.
func ownerOf(project string) string {
	if project == carrel.DefaultProject {
		return ""
	}
	return project
}

func checkOwner(owner string) error {
	if owner != "" && carrel.CheckProject(owner) != nil {
		return invalid("owner", "%q is not an owner", clip(owner))
	}
	return nil
}

// checkName checks a name in lower case. A wrong name may be the value, typed in the wrong place,
// so the error does not repeat it.
func checkName(name string) error {
	switch {
	case name == "":
		return invalid("name", "a secret needs a name")
	case len(name) > maxName:
		return invalid("name", "longer than %d characters", maxName)
	case strings.HasPrefix(name, idPrefix):
		return invalid("name", "the prefix %s is reserved for IDs", idPrefix)
	case strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789._-") != "" || strings.Contains("._-", name[:1]):
		e := invalid("name", "a name has letters, digits, '.', '_' and '-' alone, and begins with a letter or a digit")
		e.(*carrel.Error).Hint = "such as openai-api-key"
		return e
	}
	return nil
}

func checkValue(value string) error {
	switch {
	case value == "":
		return invalid("value", "a secret can't be empty")
	case len(value) > maxValue:
		return invalid("value", "longer than %d bytes", maxValue)
	case strings.Contains(value, "\x00"):
		return invalid("value", "has a NUL character")
	case !utf8.ValidString(value):
		return invalid("value", "is not UTF-8")
	}
	return nil
}

func checkMetadata(metadata map[string]string) error {
	if len(metadata) > maxEntries {
		return invalid("metadata", "more than %d entries", maxEntries)
	}
	total := 0
	for k, v := range metadata {
		total += len(k) + len(v)
		switch {
		case k == "" || len(k) > maxEntryKey:
			return invalid("metadata", "a key is empty or longer than %d bytes", maxEntryKey)
		case len(v) > maxEntry:
			return invalid("metadata", "%q: longer than %d bytes", k, maxEntry)
		case !utf8.ValidString(k) || !utf8.ValidString(v) || strings.ContainsFunc(k+v, unicode.IsControl):
			return invalid("metadata", "%q: has a control character or is not UTF-8", k)
		}
	}
	if total > maxMetadata {
		return invalid("metadata", "more than %d bytes in all", maxMetadata)
	}
	return nil
}

// checkHosts checks hosts in lower case: names, "*.name" and addresses.
func checkHosts(hosts []string) error {
	if len(hosts) > maxHosts {
		return invalid("hosts", "more than %d", maxHosts)
	}
	for _, host := range hosts {
		if err := checkHost(host); err != nil {
			return invalid("hosts", "%q: %w", clip(host), err)
		}
	}
	return nil
}

func checkHost(host string) error {
	if a, err := netip.ParseAddr(host); err == nil {
		if a.Zone() != "" || a.String() != host {
			return errors.New("not how this address is written")
		}
		return nil
	}
	name := strings.TrimPrefix(host, "*.")
	if name == "" || len(name) > maxHost {
		return errors.New("not a host's name, nor *. and a name")
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' ||
			strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return errors.New("not a host's name, nor *. and a name")
		}
	}
	if strings.Trim(name, "0123456789.") == "" {
		return errors.New("neither a name nor an address")
	}
	return nil
}

// hostForm converts a host to the one form that is stored and compared.
func hostForm(host string) string {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if a, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")); err == nil {
		return a.Unmap().String()
	}
	return host
}

// covers reports whether a secret with these hosts may be sent to host.
func covers(hosts []string, host string) bool {
	if len(hosts) == 0 {
		return true
	}
	host = hostForm(host)
	_, isAddress := netip.ParseAddr(host)
	for _, h := range hosts {
		if h == host {
			return true
		}
		if below, ok := strings.CutPrefix(h, "*"); ok && isAddress != nil && len(host) > len(below) && strings.HasSuffix(host, below) {
			return true
		}
	}
	return false
}

// clip shortens a text for an error.
func clip(s string) string {
	const most = 64
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
