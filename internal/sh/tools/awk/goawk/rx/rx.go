// Package rx has the part of package regexp that goawk uses, on the expressions of the simulated machine: extended ones as
// awk has them, leftmost-longest, which pay for what they do.
package rx

import (
	"strings"
	"unicode/utf8"

	"github.com/carrel-dev/carrel/internal/sh/regex"
)

// Regexp is a compiled expression.
type Regexp struct{ re *regex.Regexp }

// Compile compiles an expression.
func Compile(s string) (*Regexp, error) {
	re, err := regex.Compile(s, regex.Extended|regex.Awk|regex.LooseBrace)
	if err != nil {
		return nil, err
	}
	return &Regexp{re: re}, nil
}

// MustCompile compiles an expression that is known to be right.
func MustCompile(s string) *Regexp {
	re, err := Compile(s)
	if err != nil {
		re, _ = Compile("^$")
	}
	return re
}

// QuoteMeta makes an expression of a text.
func QuoteMeta(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if strings.IndexByte(`\.+*?()|[]{}^$`, s[i]) >= 0 {
			b.WriteByte('\\')
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// Budget sets who pays for searches.
func (r *Regexp) Budget(f func(int) bool) { r.re.Budget(f) }

// MatchString reports whether there is a match.
func (r *Regexp) MatchString(s string) bool { return r.re.Match([]byte(s)) }

// FindIndex returns the place of the first match.
func (r *Regexp) FindIndex(b []byte) []int {
	s, e := r.re.FindIndex(b, 0)
	if s < 0 {
		return nil
	}
	return []int{s, e}
}

// FindStringIndex is FindIndex for a string.
func (r *Regexp) FindStringIndex(s string) []int { return r.FindIndex([]byte(s)) }

// FindStringSubmatchIndex returns the places of the first match and its submatches.
func (r *Regexp) FindStringSubmatchIndex(s string) []int {
	return r.re.FindSubmatchIndex([]byte(s), 0)
}

// All calls fn with every match in turn: its place and, with subs, those of the submatches. An empty match right behind
// another is none. It stops when fn returns false.
func (r *Regexp) All(b []byte, subs bool, fn func(loc []int) bool) {
	prev := -1
	var pair [2]int
	for at := 0; at <= len(b); {
		var loc []int
		if subs {
			if loc = r.re.FindSubmatchIndex(b, at); loc == nil {
				return
			}
		} else {
			if pair[0], pair[1] = r.re.FindIndex(b, at); pair[0] < 0 {
				return
			}
			loc = pair[:]
		}
		s, e := loc[0], loc[1]
		if s != e || s != prev {
			if !fn(loc) {
				return
			}
		}
		prev = e
		if at = e; s == e {
			if e >= len(b) {
				return
			}
			_, n := utf8.DecodeRune(b[e:])
			at = e + n
		}
	}
}
