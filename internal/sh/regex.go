package sh

import (
	"regexp"
	"strings"
)

// compile compiles an expression and remembers it.
func (r *runner) compile(expr string, fold bool) *regexp.Regexp {
	if fold {
		expr = "(?i)" + expr
	}
	if re, ok := r.patterns[expr]; ok {
		return re
	}
	re, err := regexp.Compile("(?s)" + expr)
	if err != nil {
		re = nil
	} else {
		re.Longest()
	}
	const most = 64
	if r.patterns == nil || len(r.patterns) >= most {
		r.patterns = make(map[string]*regexp.Regexp)
	}
	r.patterns[expr] = re
	return re
}

// bracket translates a bracket expression that opens at i.
func bracket(pat string, i int) (set string, end int, ok bool) {
	var b strings.Builder
	b.WriteByte('[')
	j := i + 1
	if j < len(pat) && (pat[j] == '!' || pat[j] == '^') {
		b.WriteByte('^')
		j++
	}
	for first := true; j < len(pat); first = false {
		c := pat[j]
		switch {
		case c == ']' && !first:
			return b.String() + "]", j + 1, true
		case c == '[' && strings.HasPrefix(pat[j:], "[:"):
			e := strings.Index(pat[j:], ":]")
			if e < 0 {
				return "", 0, false
			}
			b.WriteString(pat[j : j+e+2])
			j += e + 2
		case c == '\\' && j+1 < len(pat):
			b.WriteString(`\` + pat[j+1:j+2])
			j += 2
		case strings.IndexByte(`[]^\&~`, c) >= 0:
			b.WriteString(`\` + string(c))
			j++
		default:
			b.WriteByte(c)
			j++
		}
	}
	return "", 0, false
}
