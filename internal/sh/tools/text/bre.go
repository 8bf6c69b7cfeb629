package text

import (
	"github.com/carrel-dev/carrel/internal/sh/regex"
	"github.com/carrel-dev/carrel/internal/sh/tool"
)

// bre is a basic regular expression.
type bre struct{ re *regex.Regexp }

func compileBRE(s string) (*bre, error) {
	re, err := regex.Compile(s, 0)
	if err != nil {
		return nil, err
	}
	return &bre{re}, nil
}

// match reports whether there is a match anywhere.
func (b *bre) match(s []byte) bool { return b.re.Match(s) }

// groups is how many groups the expression has.
func (b *bre) groups() int { return b.re.NumSubexp() }

// findAnchored returns where the match at the beginning of s is, with its groups, nil for none.
func (b *bre) findAnchored(c *tool.Call, s []byte) []int {
	b.re.Budget(c.Step)
	m := b.re.FindSubmatchIndex(s, 0)
	if m == nil || m[0] != 0 {
		return nil
	}
	return m
}

// all returns where the matches are that aren't empty.
func (b *bre) all(c *tool.Call, d []byte) (out [][2]int) {
	b.re.Budget(c.Step)
	for at := 0; at <= len(d); {
		from, to := b.re.FindIndex(d, at)
		if from < 0 {
			break
		}
		if to > from {
			out = append(out, [2]int{from, to})
			at = to
		} else {
			at = to + 1
		}
	}
	return out
}
