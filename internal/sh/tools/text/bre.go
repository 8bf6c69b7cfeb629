package text

import (
	"regexp"
	"strings"
)

// bre is a basic regular expression.
type bre struct{ re *regexp.Regexp }

// compileBRE compiles a basic regular expression with GNU's additions.
func compileBRE(s string) (*bre, error) {
	re, err := regexp.Compile("(?s:" + translateBRE(s) + ")")
	if err != nil {
		return nil, err
	}
	re.Longest()
	return &bre{re}, nil
}

// find returns where the leftmost longest match is, with its groups, nil for none.
func (b *bre) find(s []byte) []int { return b.re.FindSubmatchIndex(s) }

// match reports whether there is a match anywhere.
func (b *bre) match(s []byte) bool { return b.re.Match(s) }

// groups is how many groups the expression has.
func (b *bre) groups() int { return b.re.NumSubexp() }

// last returns the last match, or -1.
func (b *bre) last(d []byte) (int, int) {
	all := b.re.FindAllIndex(d, -1)
	for i := len(all) - 1; i >= 0; i-- {
		if all[i][0] < all[i][1] {
			return all[i][0], all[i][1]
		}
	}
	return -1, -1
}

// translateBRE turns the notation of basic expressions into that of package regexp.
func translateBRE(s string) string {
	var b strings.Builder
	start := true // an asterisk here is a character
	for i := 0; i < len(s); i++ {
		c := s[i]
		was := start
		start = false
		switch {
		case c == '\\' && i+1 < len(s):
			i++
			switch e := s[i]; e {
			case '(', '|':
				b.WriteByte(e)
				start = true
			case ')', '{', '}', '+', '?':
				b.WriteByte(e)
			case '<', '>':
				b.WriteString(`\b`)
			case '`':
				b.WriteString(`\A`)
			case '\'':
				b.WriteString(`\z`)
			case 'w', 'W', 's', 'S', 'b', 'B':
				b.WriteString(`\` + string(e))
			case 'n':
				b.WriteString(`\n`)
			default:
				b.WriteString(regexp.QuoteMeta(string(rune(e))))
			}
		case c == '*' && was:
			b.WriteString(`\*`)
		case c == '^':
			if was {
				b.WriteByte('^')
				start = true
			} else {
				b.WriteString(`\^`)
			}
		case c == '$':
			if rest := s[i+1:]; rest == "" || strings.HasPrefix(rest, `\)`) || strings.HasPrefix(rest, `\|`) {
				b.WriteByte('$')
			} else {
				b.WriteString(`\$`)
			}
		case c == '[':
			n := bracket(s[i:])
			b.WriteString(strings.ReplaceAll(escapeBracket(s[i:i+n]), "\x00", ""))
			i += n - 1
		case strings.IndexByte("+?(){}|", c) >= 0:
			b.WriteString(`\` + string(c))
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// bracket is the length of a bracket expression.
func bracket(s string) int {
	i := 1
	if i < len(s) && s[i] == '^' {
		i++
	}
	if i < len(s) && s[i] == ']' {
		i++
	}
	for ; i < len(s); i++ {
		if s[i] == '[' && i+1 < len(s) && strings.IndexByte(":.=", s[i+1]) >= 0 {
			if end := strings.Index(s[i+2:], string(s[i+1])+"]"); end >= 0 {
				i += end + 3
				continue
			}
		}
		if s[i] == ']' {
			return i + 1
		}
	}
	return len(s)
}

// escapeBracket writes a bracket expression, in which backslashes are characters, for package regexp.
func escapeBracket(s string) string {
	body := strings.TrimSuffix(s[1:], "]")
	if len(s) > 1 && len(body) == len(s)-1 {
		return regexp.QuoteMeta(s[:1]) + "\x00)" // no end: an error
	}
	neg := strings.HasPrefix(body, "^")
	body = strings.TrimPrefix(body, "^")
	var b strings.Builder
	b.WriteByte('[')
	if neg {
		b.WriteByte('^')
	}
	for i := 0; i < len(body); i++ {
		if body[i] == '[' && i+1 < len(body) && body[i+1] == ':' {
			if end := strings.Index(body[i:], ":]"); end > 0 {
				b.WriteString(body[i : i+end+2])
				i += end + 1
				continue
			}
		}
		if strings.IndexByte(`\[]&~`, body[i]) >= 0 {
			b.WriteByte('\\')
		}
		b.WriteByte(body[i])
	}
	b.WriteByte(']')
	return b.String()
}
