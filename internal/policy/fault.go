package policy

import (
	"errors"
	"fmt"
	"strings"

	"github.com/carrel-dev/carrel"
)

// fault is an error in a policy, with its place.
type fault struct {
	at     string // "rules[2].ports[0]": the place, as exactly as possible
	reason string
	hint   string
}

func faultf(at, hint, format string, args ...any) *fault {
	return &fault{at: at, reason: fmt.Sprintf(format, args...), hint: hint}
}

// field is the request field in the caller's error: "policy.rules[2].ports".
func (f *fault) field(under string) string {
	at := f.at
	// The error names the whole field of a rule. Its reason quotes the entry.
	if i := strings.LastIndexByte(at, '['); i >= 0 && at[len(at)-1] == ']' && strings.Contains(at[:i], ".") {
		at = at[:i]
	}
	switch {
	case under == "":
		return at
	case at == "":
		return under
	}
	return under + "." + at
}

// public makes the error for callers.
func (f *fault) public(under string) error {
	return &carrel.Error{Op: "check policy", Kind: carrel.Invalid, Field: f.field(under), Err: errors.New(f.reason), Hint: f.hint}
}

// Error implements error, for parsers.
func (f *fault) Error() string { return f.reason }

// first returns the first fault that is not nil.
func first(faults ...*fault) *fault {
	for _, f := range faults {
		if f != nil {
			return f
		}
	}
	return nil
}
