package carrel

import (
	"cmp"
	"errors"
	"strings"
	"time"
)

// Kind is the class of an error. Callers may branch on it. A Kind is itself an error, so
// errors.Is(err, carrel.NotFound) works on every error that this API returns.
type Kind string

// The kinds. Doors translate them once: package internal/api to HTTP statuses,
// package internal/cli to exit codes.
const (
	// Internal is a fault of ours; the message says what broke.
	Internal Kind = "internal"
	// Invalid is bad input; Field names what is wrong.
	Invalid Kind = "invalid"
	// Unauthenticated means no or wrong credentials.
	Unauthenticated Kind = "unauthenticated"
	// Forbidden means the credentials are good but do not allow this.
	Forbidden Kind = "forbidden"
	// NotFound means no such sandbox, template, process or file.
	NotFound Kind = "not found"
	// AlreadyExists means the name or ID is taken.
	AlreadyExists Kind = "already exists"
	// Conflict means the thing is in a state in which this cannot be done now.
	Conflict Kind = "conflict"
	// Exhausted means a limit or quota is reached: memory, disk, processes, sandboxes.
	Exhausted Kind = "exhausted"
	// Unavailable means try again later: starting, stopping or overloaded.
	Unavailable Kind = "unavailable"
	// Unsupported means this host or driver can't do it; Hint says what is missing.
	Unsupported Kind = "unsupported"
	// TimedOut means a deadline passed.
	TimedOut Kind = "timed out"
	// Denied means a policy refused it.
	Denied Kind = "denied"
)

// Error implements error, so that a Kind can be the target of errors.Is.
func (k Kind) Error() string { return string(k) }

// Error is the one error type of this API.
type Error struct {
	Op    string // the operation, lower case: "create sandbox"
	Kind  Kind   // what to branch on
	ID    ID     // the sandbox concerned, if one is
	Field string // for Invalid: the request field, as the caller spelled it
	Err   error  // the cause
	Hint  string // what a person can do about it; may be empty
	// RetryAfter is how long to wait before trying again, for Exhausted and Unavailable; 0 means
	// unknown.
	RetryAfter time.Duration
	// Limit is the limit of a quota that refused the request; nil for other reasons.
	Limit *LimitHit
}

// Error returns "op: id: field: cause" without the empty parts. It leaves out the hint: doors print
// that on a line of its own.
func (e *Error) Error() string { return e.text(&Error{}) }

// text is Error without the parts that an outer error, said, has already printed. Two layers often
// know the same operation, sandbox or field.
func (e *Error) text(said *Error) string {
	parts := make([]string, 0, 4)
	for _, p := range [...][2]string{{e.Op, said.Op}, {string(e.ID), string(said.ID)}, {e.Field, said.Field}} {
		if p[0] != "" && p[0] != p[1] {
			parts = append(parts, p[0])
		}
	}
	said = &Error{Op: cmp.Or(e.Op, said.Op), ID: cmp.Or(e.ID, said.ID), Field: cmp.Or(e.Field, said.Field)}
	switch inner, ok := e.Err.(*Error); {
	case ok && inner != nil:
		parts = append(parts, inner.text(said))
	case e.Err != nil:
		parts = append(parts, e.Err.Error())
	default:
		parts = append(parts, string(e.Kind))
	}
	return strings.Join(parts, ": ")
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether target is this error's Kind.
func (e *Error) Is(target error) bool {
	k, ok := target.(Kind)
	return ok && k == e.Kind
}

// KindOf returns the Kind of the outermost [*Error] in err's chain that has one,
// [Internal] for any other error, and "" for nil.
func KindOf(err error) Kind {
	if err == nil {
		return ""
	}
	for e := err; e != nil; {
		var ce *Error
		if !errors.As(e, &ce) {
			break
		}
		if ce.Kind != "" {
			return ce.Kind
		}
		e = ce.Err
	}
	return Internal
}

// HintOf returns the first non-empty hint in err's chain, or "".
func HintOf(err error) string {
	for e := err; e != nil; {
		var ce *Error
		if !errors.As(e, &ce) {
			return ""
		}
		if ce.Hint != "" {
			return ce.Hint
		}
		e = ce.Err
	}
	return ""
}

// RetryAfterOf returns the first RetryAfter in err's chain that is not 0, or 0.
func RetryAfterOf(err error) time.Duration {
	for e := err; e != nil; {
		var ce *Error
		if !errors.As(e, &ce) {
			return 0
		}
		if ce.RetryAfter > 0 {
			return ce.RetryAfter
		}
		e = ce.Err
	}
	return 0
}

// LimitOf returns the first Limit in err's chain, or nil.
func LimitOf(err error) *LimitHit {
	for e := err; e != nil; {
		var ce *Error
		if !errors.As(e, &ce) {
			return nil
		}
		if ce.Limit != nil {
			return ce.Limit
		}
		e = ce.Err
	}
	return nil
}
