package store

import (
	"crypto/rand"
	"fmt"
	"strings"

	"github.com/carrel-dev/carrel"
)

const (
	idLen      = 20
	idAlphabet = "abcdefghijklmnopqrstuvwxyz0123456789"
	maxName    = 63
)

// newID returns a template ID: twenty lower-case letters or digits, as E2B's are.
func newID() string {
	id := make([]byte, 0, idLen)
	for len(id) < idLen {
		var b [32]byte
		_, _ = rand.Read(b[:]) // never fails: crypto/rand aborts the process instead
		for _, c := range b {
			// 252 is the largest multiple of 36 in a byte. So all characters are equally likely.
			if c < 252 && len(id) < idLen {
				id = append(id, idAlphabet[c%36])
			}
		}
	}
	return string(id)
}

func isID(s string) bool {
	return len(s) == idLen && strings.Trim(s, idAlphabet) == ""
}

// untag removes the tags that change nothing about a name.
func untag(name string) string {
	for _, tag := range []string{":latest", ":default"} {
		if rest, ok := strings.CutSuffix(name, tag); ok {
			return rest
		}
	}
	return name
}

// checkName checks a name for a new template and returns it without its tag.
func checkName(op, name string) (string, error) {
	plain := untag(name)
	bad := func(why string) (string, error) {
		const most = 100
		if len(name) > most {
			name = name[:most] + "…"
		}
		return "", &carrel.Error{Op: op, Kind: carrel.Invalid, Field: "name", Err: fmt.Errorf("%q %s", name, why),
			Hint: "a template's name is 1–63 of a–z, 0–9, '-', '_', '.', '/' and begins with a letter or digit"}
	}
	switch {
	case plain == "":
		return bad("is empty")
	case len(plain) > maxName:
		return bad(fmt.Sprintf("has %d characters", len(plain)))
	case strings.Trim(plain, idAlphabet+"-_./") != "" || strings.ContainsFunc(plain, func(r rune) bool { return !strings.ContainsRune(idAlphabet+"-_./", r) }):
		return bad("has other characters")
	case !strings.ContainsRune(idAlphabet, rune(plain[0])):
		return bad("begins with something else")
	case isBuiltIn(plain):
		return "", &carrel.Error{Op: op, Kind: carrel.Forbidden, Field: "name", Err: fmt.Errorf("%q is built in", plain),
			Hint: "choose another name"}
	}
	return plain, nil
}
