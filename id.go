package carrel

import (
	"crypto/rand"
	"fmt"
)

// ID names one sandbox for its whole life: the letter i and twenty lower-case letters or digits. It
// never contains a hyphen, because host names of the form <port>-<id>.<domain> are split at one.
type ID string

const (
	idLen      = 20
	idAlphabet = "abcdefghijklmnopqrstuvwxyz0123456789"
)

// NewID returns a fresh random ID (about 103 bits of randomness).
func NewID() ID { return ID("i" + randomText(idLen)) }

// ParseID checks that s has the form of an ID. The error's Kind is [Invalid].
func ParseID(s string) (ID, error) {
	if len(s) != idLen+1 || s[0] != 'i' {
		return "", badID(s)
	}
	for i := 1; i < len(s); i++ {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return "", badID(s)
		}
	}
	return ID(s), nil
}

func badID(s string) error {
	const most = 64
	if len(s) > most {
		s = s[:most] + "…"
	}
	return &Error{Op: "parse id", Kind: Invalid, Field: "sandboxID",
		Err:  fmt.Errorf("%q is not a sandbox ID", s),
		Hint: "a sandbox ID is the letter i and 20 lower-case letters or digits"}
}

// randomText returns n characters drawn evenly from idAlphabet.
func randomText(n int) string {
	out := make([]byte, 0, n)
	var buf [64]byte
	for len(out) < n {
		_, _ = rand.Read(buf[:]) // never fails: crypto/rand aborts the process instead
		for _, b := range buf {
			// 252 is the largest multiple of 36 below 256: rejecting above it keeps the draw even.
			if b < 252 && len(out) < n {
				out = append(out, idAlphabet[int(b)%len(idAlphabet)])
			}
		}
	}
	return string(out)
}
