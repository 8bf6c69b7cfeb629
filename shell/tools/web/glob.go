package web

import (
	"strconv"
	"strings"
)

const maxGlob = 100_000 // URLs that one pattern makes

// part is a piece of a URL with braces and brackets. It has the possible texts of the piece.
type part struct {
	texts []string
	set   bool // counts for #1, #2, …
}

// expanded is a URL, with the values that its sets have in it.
type expanded struct {
	url  string
	vals []string
}

// glob expands {a,b} and [1-3].
func glob(s string) ([]expanded, error) {
	parts, err := globParts(s)
	if err != nil {
		return nil, err
	}
	total, bytes := 1, 0
	for _, p := range parts {
		if total *= len(p.texts); total > maxGlob {
			return nil, fail(errURL, "too many URLs in one pattern: %s", s)
		}
		bytes += len(p.texts[0])
	}
	if total*(bytes+32) > 64<<20 {
		return nil, fail(errURL, "too many URLs in one pattern")
	}
	out := make([]expanded, 0, total)
	at := make([]int, len(parts))
	for range total {
		var b strings.Builder
		var vals []string
		for i, p := range parts {
			b.WriteString(p.texts[at[i]])
			if p.set {
				vals = append(vals, p.texts[at[i]])
			}
		}
		out = append(out, expanded{b.String(), vals})
		for i := len(parts) - 1; i >= 0; i-- { // the last one runs fastest
			if at[i]++; at[i] < len(parts[i].texts) {
				break
			}
			at[i] = 0
		}
	}
	return out, nil
}

func globParts(s string) (parts []part, err error) {
	var text strings.Builder
	flush := func() {
		if text.Len() > 0 {
			parts = append(parts, part{texts: []string{text.String()}})
			text.Reset()
		}
	}
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '\\' && i+1 < len(s) && strings.IndexByte("{}[]", s[i+1]) >= 0:
			i++
			text.WriteByte(s[i])
		case c == '{':
			end := strings.IndexByte(s[i:], '}')
			if end < 0 {
				return nil, fail(errURL, "unmatched brace in URL position %d:\n%s", i+1, s)
			}
			flush()
			parts = append(parts, part{strings.Split(s[i+1:i+end], ","), true})
			i += end
		case c == '[':
			end := strings.IndexByte(s[i:], ']')
			if end < 0 {
				return nil, fail(errURL, "bad range in URL position %d:\n%s", i+1, s)
			}
			inner := s[i+1 : i+end]
			if strings.Contains(inner, ":") && strings.Trim(inner, "0123456789abcdefABCDEF:.%") == "" && strings.Count(inner, ":") > 1 {
				text.WriteString(s[i : i+end+1]) // an address
				i += end
				continue
			}
			texts, ok := span(inner)
			if !ok {
				return nil, fail(errURL, "bad range in URL position %d:\n%s", i+2, s)
			}
			flush()
			parts = append(parts, part{texts, true})
			i += end
		case c == '}' || c == ']':
			return nil, fail(errURL, "unmatched close brace/bracket in URL position %d:\n%s", i+1, s)
		default:
			text.WriteByte(c)
		}
	}
	flush()
	if len(parts) == 0 {
		parts = []part{{texts: []string{""}}}
	}
	return parts, nil
}

// span expands the inside of brackets: 1-10, 001-100, a-z, each with an optional :step.
func span(s string) (out []string, ok bool) {
	step := 1
	if a, b, has := strings.Cut(s, ":"); has {
		n, err := strconv.Atoi(b)
		if err != nil || n < 1 {
			return nil, false
		}
		s, step = a, n
	}
	from, to, has := strings.Cut(s, "-")
	if !has || from == "" || to == "" {
		return nil, false
	}
	if len(from) == 1 && len(to) == 1 && letter(from[0]) && letter(to[0]) && to[0] >= from[0] {
		for c := int(from[0]); c <= int(to[0]); c += step {
			out = append(out, string(rune(c)))
		}
		return out, true
	}
	a, err1 := strconv.Atoi(from)
	b, err2 := strconv.Atoi(to)
	if err1 != nil || err2 != nil || a < 0 || b < a || (b-a)/step >= maxGlob {
		return nil, false
	}
	width := 0
	if from[0] == '0' {
		width = len(from)
	}
	if width > 32 {
		return nil, false
	}
	for n := a; n <= b; n += step {
		t := strconv.Itoa(n)
		out = append(out, strings.Repeat("0", max(width-len(t), 0))+t)
		if n > b-step {
			break
		}
	}
	return out, true
}

func letter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }
