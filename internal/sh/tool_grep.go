package sh

import (
	"errors"
	"path"
	"regexp"
	"strings"
)

// basicRegex turns a POSIX basic expression into one of package regexp.
func basicRegex(s string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c == '\\' && i+1 < len(s):
			i++
			switch d := s[i]; {
			case strings.IndexByte("(){}|+?", d) >= 0:
				b.WriteByte(d)
			case d >= '1' && d <= '9':
				return "", errors.New("back-references are not supported in the simulated tier")
			case d == '<' || d == '>':
				b.WriteString(`\b`)
			case strings.IndexByte("wWsSbB", d) >= 0:
				b.WriteString(`\` + string(d))
			case d == 'n':
				b.WriteByte('\n')
			case d == 't':
				b.WriteByte('\t')
			default:
				b.WriteString(regexp.QuoteMeta(string(d)))
			}
		case c == '[':
			set, end, ok := bracket(s, i)
			if !ok {
				return "", errors.New("unmatched [, [^, [:, [., or [=")
			}
			if strings.HasPrefix(s[i:], "[!") {
				set = `[\!` + strings.TrimPrefix(set, "[^")
			}
			b.WriteString(set)
			i = end - 1
		case strings.IndexByte("(){}|+?", c) >= 0:
			b.WriteString(`\` + string(c))
		case c == '*' && (i == 0 || s[i-1] == '^' && i == 1 || strings.HasSuffix(s[:i], `\(`)):
			b.WriteString(`\*`)
		case c == '^' && i > 0 && !strings.HasSuffix(s[:i], `\(`) && !strings.HasSuffix(s[:i], `\|`):
			b.WriteString(`\^`)
		case c == '$' && i+1 < len(s) && !strings.HasPrefix(s[i+1:], `\)`) && !strings.HasPrefix(s[i+1:], `\|`):
			b.WriteString(`\$`)
		default:
			b.WriteByte(c)
		}
	}
	return b.String(), nil
}

func toolBasename(c *call) int {
	f, ok := c.flags("as:", "multiple=a", "suffix=s")
	if !ok || len(f.args) == 0 {
		return c.complain(1, "missing operand")
	}
	names, suffix := f.args, f.val['s']
	if !f.has('a') && !f.has('s') {
		if len(names) > 1 {
			suffix = names[1]
		}
		names = names[:1]
	}
	for _, n := range names {
		if n != "" {
			n = path.Base(n)
		}
		if n != suffix {
			n = strings.TrimSuffix(n, suffix)
		}
		c.print(n + "\n")
	}
	return 0
}

func toolDirname(c *call) int {
	if len(c.args) == 0 {
		return c.complain(1, "missing operand")
	}
	for _, n := range c.args {
		c.print(path.Dir(strings.TrimRight(n, "/")+strings.Repeat("/", boolStatus(strings.Trim(n, "/") != ""))) + "\n")
	}
	return 0
}
