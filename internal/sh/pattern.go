package sh

import (
	"regexp"
	"strings"
	"unicode/utf8"

	"mvdan.cc/sh/v3/syntax"
)

// Shell patterns are turned into regular expressions of package regexp, which
// take linear time whatever the pattern: a hostile one can't blow up. Only
// !(…) has no counterpart and is matched by hand.

// magicChars are the characters that can make a text a pattern.
const magicChars = "*?[\\+@!("

// match reports whether a pattern matches all of s.
func (r *runner) match(pat, s string) bool {
	fold := r.opts.nocasematch
	if !strings.ContainsAny(pat, magicChars) && !fold {
		return pat == s
	}
	if head, alts, tail, ok := cutNegated(pat); ok {
		return r.matchNegated(head, alts, tail, s)
	}
	if !utf8.ValidString(s) {
		s = latin1(s)
		pat = latin1(pat)
	}
	re := r.compile("^(?:"+patternExpr(pat, "*")+")$", fold)
	return re != nil && re.MatchString(s)
}

// latin1 makes each byte a character, so that bytes that are no text can match.
func latin1(s string) string {
	out := make([]rune, len(s))
	for i := range len(s) {
		out[i] = rune(s[i])
	}
	return string(out)
}

// longest marks an expression that is to find the longest match; it matches the
// empty text and is in no other.
const longest = "(?:(?:(?:)))"

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
	} else if strings.Contains(expr, longest) {
		re.Longest()
	}
	const most = 64
	if r.patterns == nil || len(r.patterns) >= most {
		r.patterns = make(map[string]*regexp.Regexp)
	}
	r.patterns[expr] = re
	return re
}

// patternExpr translates a pattern. star is what follows a dot for '*': "*" is
// greedy, "*?" is not.
func patternExpr(pat, star string) string {
	var b strings.Builder
	for i := 0; i < len(pat); {
		c := pat[i]
		if i+1 < len(pat) && pat[i+1] == '(' && strings.IndexByte("?*+@", c) >= 0 {
			if body, end, ok := group(pat, i+1); ok {
				b.WriteString("(?:")
				for j, alt := range alternatives(body) {
					if j > 0 {
						b.WriteByte('|')
					}
					b.WriteString(patternExpr(alt, star))
				}
				b.WriteByte(')')
				if c != '@' {
					b.WriteByte(c)
				}
				i = end
				continue
			}
		}
		switch c {
		case '*':
			b.WriteString("." + star)
			for i+1 < len(pat) && pat[i+1] == '*' {
				i++
			}
		case '?':
			b.WriteByte('.')
		case '[':
			if set, end, ok := bracket(pat, i); ok {
				b.WriteString(set)
				i = end
				continue
			}
			b.WriteString(`\[`)
		case '\\':
			if i+1 < len(pat) {
				i++
			}
			_, n := utf8.DecodeRuneInString(pat[i:])
			b.WriteString(regexp.QuoteMeta(pat[i : i+n]))
			i += n
			continue
		default:
			_, n := utf8.DecodeRuneInString(pat[i:])
			b.WriteString(regexp.QuoteMeta(pat[i : i+n]))
			i += n
			continue
		}
		i++
	}
	return b.String()
}

// group returns what is inside the parentheses that open at i.
func group(pat string, i int) (body string, end int, ok bool) {
	depth := 0
	for j := i; j < len(pat); j++ {
		switch pat[j] {
		case '\\':
			j++
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return pat[i+1 : j], j + 1, true
			}
		}
	}
	return "", 0, false
}

// alternatives splits a group at its own bars.
func alternatives(body string) []string {
	var out []string
	depth, start := 0, 0
	for i := 0; i < len(body); i++ {
		switch body[i] {
		case '\\':
			i++
		case '(':
			depth++
		case ')':
			depth--
		case '|':
			if depth == 0 {
				out = append(out, body[start:i])
				start = i + 1
			}
		}
	}
	return append(out, body[start:])
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

// cutNegated finds a !(…) in a pattern.
func cutNegated(pat string) (head string, alts string, tail string, ok bool) {
	for i := 0; i+1 < len(pat); i++ {
		switch {
		case pat[i] == '\\':
			i++
		case pat[i] == '!' && pat[i+1] == '(':
			if body, end, ok := group(pat, i+1); ok {
				return pat[:i], body, pat[end:], true
			}
		}
	}
	return "", "", "", false
}

// matchNegated matches head!(alts)tail by trying every split of s; it is meant for
// names and gives up on texts that are too long for that.
func (r *runner) matchNegated(head, alts, tail, s string) bool {
	const most = 1024
	if len(s) > most || !r.enter() {
		return false
	}
	defer func() { r.depth-- }()
	for i := 0; i <= len(s); i++ {
		if !r.match(head, s[:i]) {
			continue
		}
		for j := i; j <= len(s); j++ {
			if r.match(tail, s[j:]) && !r.match("@("+alts+")", s[i:j]) {
				return true
			}
			if !r.step() {
				return false
			}
		}
	}
	return false
}

// trimPattern removes a matching prefix or suffix.
func (r *runner) trimPattern(s, pat string, op syntax.ParExpOperator) string {
	if !strings.ContainsAny(pat, magicChars) && !r.opts.nocasematch {
		if op == syntax.RemSmallPrefix || op == syntax.RemLargePrefix {
			return strings.TrimPrefix(s, pat)
		}
		return strings.TrimSuffix(s, pat)
	}
	if _, _, _, ok := cutNegated(pat); ok {
		return r.trimNegated(s, pat, op)
	}
	var expr string
	switch op {
	case syntax.RemSmallPrefix:
		expr = "^(?:" + patternExpr(pat, "*?") + ")"
	case syntax.RemLargePrefix:
		expr = "^(?:" + patternExpr(pat, "*") + ")"
	case syntax.RemSmallSuffix:
		expr = "^.*((?:" + patternExpr(pat, "*") + "))$"
	case syntax.RemLargeSuffix:
		expr = "^.*?((?:" + patternExpr(pat, "*") + "))$"
	}
	re := r.compile(expr, false)
	if re == nil {
		return s
	}
	m := re.FindStringSubmatchIndex(s)
	switch {
	case m == nil:
		return s
	case op == syntax.RemSmallPrefix || op == syntax.RemLargePrefix:
		return s[m[1]:]
	}
	return s[:m[2]]
}

// trimNegated is trimPattern for patterns with !(…), by trial.
func (r *runner) trimNegated(s, pat string, op syntax.ParExpOperator) string {
	n := len(s)
	for i := 0; i <= n; i++ {
		switch op {
		case syntax.RemSmallPrefix:
			if r.match(pat, s[:i]) {
				return s[i:]
			}
		case syntax.RemLargePrefix:
			if r.match(pat, s[:n-i]) {
				return s[n-i:]
			}
		case syntax.RemSmallSuffix:
			if r.match(pat, s[n-i:]) {
				return s[:n-i]
			}
		default:
			if r.match(pat, s[i:]) {
				return s[:i]
			}
		}
		if !r.step() {
			break
		}
	}
	return s
}

// The places where replacePattern replaces.
const (
	replaceFirst = iota
	replaceAll
	replaceFront
	replaceBack
)

// replacePattern replaces the longest match of a pattern.
func (r *runner) replacePattern(s, pat, with string, mode int) string {
	if !strings.ContainsAny(pat, magicChars) && !r.opts.nocasematch {
		switch {
		case mode == replaceFirst:
			return strings.Replace(s, pat, with, 1)
		case mode == replaceAll:
			r.pay(strings.Count(s, pat) * len(with)) // before it is made
			if r.flow != flowNone {
				return ""
			}
			return strings.ReplaceAll(s, pat, with)
		case mode == replaceFront && strings.HasPrefix(s, pat):
			return with + s[len(pat):]
		case mode == replaceBack && strings.HasSuffix(s, pat):
			return s[:len(s)-len(pat)] + with
		}
		return s
	}
	expr := "(?:" + patternExpr(pat, "*") + ")"
	switch mode {
	case replaceFront:
		expr = "^" + expr
	case replaceBack:
		expr = expr + "$"
	}
	re := r.compile(longest+expr, r.opts.nocasematch)
	if re == nil {
		return s
	}
	if mode == replaceAll {
		var b strings.Builder
		at := 0
		for _, m := range re.FindAllStringIndex(s, -1) {
			if m[0] == m[1] {
				continue
			}
			b.WriteString(s[at:m[0]])
			b.WriteString(with)
			at = m[1]
			if b.Len() > 1<<20 {
				r.pay(len(with) + m[1] - m[0])
			}
			if r.flow != flowNone {
				return ""
			}
		}
		return b.String() + s[at:]
	}
	m := re.FindStringIndex(s)
	if m == nil {
		return s
	}
	return s[:m[0]] + with + s[m[1]:]
}
