package text

import (
	"github.com/carrel-dev/carrel/shell/regex"
	"github.com/carrel-dev/carrel/shell/tool"
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

// groups returns the number of groups in the expression.
func (b *bre) groups() int { return b.re.NumSubexp() }

// findAnchored returns the position of the match at the beginning of s, with its groups. It returns
// nil for none.
func (b *bre) findAnchored(c *tool.Call, s []byte) []int {
	b.re.Budget(c.Step)
	m := b.re.FindSubmatchIndex(s, 0)
	if m == nil || m[0] != 0 {
		return nil
	}
	return m
}

// last returns the non-empty match with the greatest start, or -1.
func (b *bre) last(c *tool.Call, d []byte) (int, int) {
	b.re.Budget(c.Step)
	for at := len(d) - 1; at >= 0; at-- {
		if at&63 == 0 && !c.Step(64) {
			break
		}
		if from, to := b.re.FindIndex(d[:min(len(d), at+tool.MaxLine)], at); from == at && to > from {
			return from, to
		}
	}
	return -1, -1
}
