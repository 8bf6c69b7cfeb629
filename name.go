package carrel

import (
	"fmt"
	"strings"
)

const (
	// MinPrefix is the least number of letters of an ID that can find a sandbox.
	MinPrefix = 4
	// maxName is the greatest length of a sandbox's name. It leaves room for a port in the same DNS
	// label.
	maxName = 40
)

// CheckName says what is wrong with a sandbox's name, with an Error of kind Invalid. A name is
// letters, digits and hyphens, as a DNS label, and never has the form of an ID. "" is no name.
func CheckName(name string) error {
	if name == "" {
		return nil
	}
	wrong := &Error{Op: "name sandbox", Kind: Invalid, Field: "name"}
	switch _, err := ParseID(name); {
	case err == nil:
		wrong.Err = fmt.Errorf("%s has the form of a sandbox's ID", name)
	case len(name) > maxName:
		wrong.Err = fmt.Errorf("%.40q… is longer than %d characters", name, maxName)
	case !isLabel(name):
		wrong.Err = fmt.Errorf("%q is not lower-case letters, digits and hyphens, with a letter or digit at both ends", name)
	default:
		return nil
	}
	return wrong
}

// isLabel reports whether a text is lower-case letters, digits and, in between, hyphens.
func isLabel(name string) bool {
	return strings.Trim(name, "-") == name && !strings.ContainsFunc(name, func(c rune) bool { return c != '-' && !strings.ContainsRune(idAlphabet, c) })
}

// Means reports whether text may mean this sandbox: it is the name, the ID or the beginning of the
// ID.
func (s Sandbox) Means(text string) bool {
	return text != "" && (text == s.Name || len(text) >= MinPrefix && strings.HasPrefix(string(s.ID), text))
}
