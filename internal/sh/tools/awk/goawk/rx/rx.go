// Package rx has the part of package regexp that goawk uses, on the expressions of the simulated machine: extended ones as
// awk has them, leftmost-longest, which pay for what they do.
package rx

import (
	"strings"
	"unicode/utf8"

	"github.com/carrel-dev/carrel/internal/sh/regex"
)

// Regexp is a compiled expression.
type Regexp struct {
	re  *regex.Regexp // nil until it is compiled
	src string
}

// Host pays for expressions: nil, or what package tool's Host has.
type Host interface {
	Step(n int) bool
	Pay(n int64) error
}

// Compile compiles an expression, which h pays for.
func Compile(h Host, s string, fold bool) (*Regexp, error) {
	r := &Regexp{src: s}
	return r, r.Compile(h, fold)
}

// Lazy returns an expression that is compiled when it is first needed: see [Regexp.Ready].
func Lazy(s string) *Regexp { return &Regexp{src: s} }

// Ready reports whether the expression has been compiled.
func (r *Regexp) Ready() bool { return r.re != nil }

// String returns the expression as it was written.
func (r *Regexp) String() string { return r.src }

// Compile compiles the expression.
func (r *Regexp) Compile(h Host, fold bool) error {
	flags := regex.Extended | regex.Awk | regex.LooseBrace
	if fold {
		flags |= regex.IgnoreCase
	}
	var budget func(int) bool
	if h != nil {
		budget = h.Step
	}
	re, err := regex.CompileFor(budget, []string{r.src}, flags)
	if err != nil {
		return err
	}
	if h != nil {
		if err := h.Pay(int64(re.Size())); err != nil {
			return err
		}
		_ = h.Pay(-int64(re.Size())) // Memory pays for it
		re.Memory(h.Pay)
	}
	r.re = re
	return nil
}

// Forget gives back what is kept for the expression.
func (r *Regexp) Forget() {
	if r.re != nil {
		r.re.Memory(nil)
	}
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
