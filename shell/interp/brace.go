package interp

import (
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// maxBraces is the most words that one brace expansion may make.
const maxBraces = 1 << 20

// braces expands the braces of a word. It does not change the word, because all runners of this
// code share it.
func (r *runner) braces(w *syntax.Word) [][]syntax.WordPart {
	found := false
	for _, p := range w.Parts {
		if l, ok := p.(*syntax.Lit); ok && strings.IndexByte(l.Value, '{') >= 0 {
			found = true
		}
	}
	if p := r.opts.named("braceexpand"); !found || p != nil && !*p {
		return [][]syntax.WordPart{w.Parts}
	}
	c := &syntax.Word{Parts: append([]syntax.WordPart(nil), w.Parts...)}
	if !syntax.SplitBraces(c) {
		return [][]syntax.WordPart{w.Parts}
	}
	left := maxBraces
	out := r.expandBraces(c.Parts, &left, 0)
	if left < 0 {
		r.errorf("brace expansion makes more than %d words", maxBraces)
		r.abort(1)
		return nil
	}
	for i := range out {
		out[i] = joinLits(out[i])
	}
	return out
}

// joinLits joins texts that became neighbours by brace expansion. Together they may form a
// variable's name or a tilde prefix.
func joinLits(parts []syntax.WordPart) []syntax.WordPart {
	out := parts[:0:0]
	for _, p := range parts {
		l, ok := p.(*syntax.Lit)
		if q, isText := p.(*syntax.SglQuoted); isText && q.Left == (syntax.Pos{}) && !q.Dollar && !strings.ContainsAny(q.Value, "\\*?[]{}$`\"'~") {
			l, ok = &syntax.Lit{Value: q.Value}, true // of a sequence
		}
		if !ok || len(out) == 0 {
			if ok {
				p = l
			}
			out = append(out, p)
			continue
		}
		switch last := out[len(out)-1].(type) {
		case *syntax.Lit:
			c := *last
			c.Value += l.Value
			out[len(out)-1] = &c
		case *syntax.ParamExp:
			n := 0
			for last.Short && isIdentStart(last.Param.Value[0]) && n < len(l.Value) && (isIdentStart(l.Value[n]) || isDigit(l.Value[n])) {
				n++
			}
			if n > 0 {
				c, name := *last, *last.Param
				name.Value += l.Value[:n]
				c.Param = &name
				out[len(out)-1] = &c
			}
			if n < len(l.Value) {
				rest := *l
				rest.Value = l.Value[n:]
				out = append(out, &rest)
			}
		default:
			out = append(out, l)
		}
	}
	return out
}

// expandBraces returns every combination of a list of parts.
func (r *runner) expandBraces(parts []syntax.WordPart, left *int, depth int) [][]syntax.WordPart {
	for i, p := range parts {
		b, ok := p.(*syntax.BraceExp)
		if !ok {
			continue
		}
		var heads [][]syntax.WordPart
		if depth > 100 {
			*left = -1
			return nil
		}
		if b.Sequence {
			heads = sequence(b, left)
		} else {
			for _, e := range b.Elems {
				heads = append(heads, r.expandBraces(e.Parts, left, depth+1)...)
			}
		}
		tails := r.expandBraces(parts[i+1:], left, depth+1)
		var out [][]syntax.WordPart
		for _, h := range heads {
			for _, t := range tails {
				if *left--; *left < 0 || !r.step() {
					*left = -1
					return nil
				}
				full := make([]syntax.WordPart, 0, i+len(h)+len(t))
				out = append(out, append(append(append(full, parts[:i]...), h...), t...))
			}
		}
		return out
	}
	return [][]syntax.WordPart{parts}
}

// sequence expands {a..b} and {a..b..step}.
func sequence(b *syntax.BraceExp, left *int) [][]syntax.WordPart {
	from, to := b.Elems[0].Lit(), b.Elems[1].Lit()
	step := 1
	if len(b.Elems) > 2 {
		if n, err := strconv.Atoi(b.Elems[2].Lit()); err == nil && n != 0 {
			step = max(n, -n)
		}
	}
	x, errX := strconv.Atoi(from)
	y, errY := strconv.Atoi(to)
	char := errX != nil || errY != nil
	if char {
		x, y = int(from[0]), int(to[0])
	}
	width := 0
	if zeroPadded(from) || zeroPadded(to) {
		width = max(len(from), len(to))
	}
	if y < x {
		step = -step
	}
	var out [][]syntax.WordPart
	for n := x; (step > 0 && n <= y) || (step < 0 && n >= y); n += step {
		if *left--; *left < 0 {
			return nil
		}
		s := string(rune(n))
		if !char {
			s = strconv.Itoa(n)
			if width > 0 {
				s = pad(n, width)
			}
		}
		out = append(out, []syntax.WordPart{&syntax.SglQuoted{Value: s}})
	}
	return out
}

func zeroPadded(s string) bool {
	s = strings.TrimPrefix(s, "-")
	return len(s) > 1 && s[0] == '0'
}

// pad writes n with leading zeros. width includes the sign.
func pad(n, width int) string {
	s := strconv.Itoa(max(n, -n))
	if n < 0 {
		width--
	}
	if len(s) < width {
		s = strings.Repeat("0", width-len(s)) + s
	}
	if n < 0 {
		s = "-" + s
	}
	return s
}
