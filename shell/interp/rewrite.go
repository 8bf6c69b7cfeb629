package interp

import (
	"encoding/hex"
	"strings"
)

// rewriter copies source text and changes the parts that bash reads differently from the parser:
// line continuations inside operators, and delimiters of here-documents that are more than a name.
// Line numbers stay the same.
type rewriter struct {
	src   string
	out   strings.Builder
	stack []byte // the closing characters of open quotes, substitutions and expressions
	docs  []hereDelim
}

// hereDelim is the delimiter of a here-document whose body has not come yet.
type hereDelim struct {
	word   string // as the body has it
	as     string // the form written for the parser
	quoted bool
	tabs   bool
}

// herePrefix begins a delimiter that replaces one with other characters.
const herePrefix = "__here_"

// arithmetic marks an expression on the rewriter's stack. It closes with two parentheses.
const arithmetic = 'A'

// subshellEnd marks a parenthesis on the stack that is not part of a command substitution.
const subshellEnd = 'S'

// rewritten returns src, changed for the parser.
func rewritten(src string) string {
	w := rewriter{src: src}
	for i := 0; i < len(src); {
		i = w.next(i)
	}
	return w.out.String()
}

// splitOperator reports whether a line continuation may stand inside an operator.
func splitOperator(src string) bool {
	for i := 0; ; {
		at := strings.Index(src[i:], "\\\n")
		if at < 0 {
			return false
		}
		if i += at; i > 0 && strings.IndexByte("$&|<>;()", src[i-1]) >= 0 {
			return true
		}
		i += 2
	}
}

func (w *rewriter) top() byte {
	if n := len(w.stack); n > 0 {
		return w.stack[n-1]
	}
	return 0
}

// continuations returns how many line continuations begin at i.
func (w *rewriter) continuations(i int) int {
	n := 0
	for strings.HasPrefix(w.src[i+2*n:], "\\\n") {
		n++
	}
	return n
}

func (w *rewriter) copy(from, to int) int {
	to = min(to, len(w.src))
	w.out.WriteString(w.src[from:to])
	return to
}

// next copies the piece of text at i and returns its end.
func (w *rewriter) next(i int) int {
	c, top := w.src[i], w.top()
	plain := top == 0 || top == ')' || top == '`' || top == subshellEnd
	switch {
	case c == '\\':
		return w.copy(i, i+2)
	case c == '$':
		return w.dollar(i)
	case c == top && c != 0 && c != arithmetic && c != subshellEnd:
		w.stack = w.stack[:len(w.stack)-1]
		return w.copy(i, i+1)
	case top == arithmetic && c == ')':
		if n := w.continuations(i + 1); strings.HasPrefix(w.src[i+1+2*n:], ")") {
			w.stack = w.stack[:len(w.stack)-1]
			w.out.WriteString(strings.Repeat("\\\n", n) + "))")
			return i + 2 + 2*n
		}
		return w.copy(i, i+1)
	case c == '`' || c == '"':
		w.stack = append(w.stack, c)
		return w.copy(i, i+1)
	case c == '\'' && top != '"':
		end := strings.IndexByte(w.src[i+1:], '\'')
		if end < 0 {
			return w.copy(i, len(w.src))
		}
		return w.copy(i, i+end+2)
	case top == '"':
		return w.copy(i, i+1)
	case c == '(':
		w.stack = append(w.stack, subshellEnd)
		return w.copy(i, i+1)
	case top == subshellEnd && c == ')':
		w.stack = w.stack[:len(w.stack)-1]
		return w.copy(i, i+1)
	case !plain:
		return w.copy(i, i+1)
	case c == '#' && (i == 0 || strings.IndexByte(" \t\n;&|(", w.src[i-1]) >= 0):
		if end := strings.IndexByte(w.src[i:], '\n'); end >= 0 {
			return w.copy(i, i+end)
		}
		return w.copy(i, len(w.src))
	case c == '\n':
		i = w.copy(i, i+1)
		docs := w.docs
		w.docs = nil
		for _, d := range docs {
			i = w.body(i, d)
		}
		return i
	case strings.IndexByte("&|<>;", c) >= 0:
		return w.operator(i)
	}
	return w.copy(i, i+1)
}

// dollar copies a piece that begins with a dollar sign.
func (w *rewriter) dollar(i int) int {
	n := w.continuations(i + 1)
	j := i + 1 + 2*n
	if j >= len(w.src) {
		return w.copy(i, j)
	}
	lines := strings.Repeat("\\\n", n)
	switch c := w.src[j]; {
	case c == '(':
		if m := w.continuations(j + 1); strings.HasPrefix(w.src[j+1+2*m:], "(") {
			w.stack = append(w.stack, arithmetic)
			w.out.WriteString(lines + strings.Repeat("\\\n", m) + "$((")
			return j + 2 + 2*m
		}
		w.stack = append(w.stack, ')')
		w.out.WriteString(lines + "$(")
		return j + 1
	case c == '{':
		w.stack = append(w.stack, '}')
		w.out.WriteString(lines + "${")
		return j + 1
	case c == '\'' && w.top() != '"':
		w.out.WriteString(lines + "$'")
		for j++; j < len(w.src) && w.src[j] != '\''; j++ {
			if w.src[j] == '\\' && j+1 < len(w.src) {
				w.out.WriteByte('\\')
				j++
			}
			w.out.WriteByte(w.src[j])
		}
		return w.copy(j, j+1)
	case n > 0 && (isIdentStart(c) || isDigit(c) || strings.IndexByte("?#!@*$-", c) >= 0):
		w.out.WriteString(lines + "$")
		return j
	}
	return w.copy(i, i+1)
}

// operator copies an operator, which line continuations may split, and a here-document's delimiter
// after it.
func (w *rewriter) operator(i int) int {
	op, n := "", 0
	j := i
	for j < len(w.src) {
		if m := w.continuations(j); m > 0 && j+2*m < len(w.src) && strings.IndexByte("&|<>;-", w.src[j+2*m]) >= 0 && (w.src[j+2*m] != '-' || op == "<<") {
			n, j = n+m, j+2*m
		}
		if strings.IndexByte("&|<>;", w.src[j]) < 0 && (w.src[j] != '-' || op != "<<") {
			break
		}
		op += w.src[j : j+1]
		j++
	}
	lines := strings.Repeat("\\\n", n)
	if op != "<<" && op != "<<-" {
		w.out.WriteString(lines + op)
		return j
	}
	for j < len(w.src) && (w.src[j] == ' ' || w.src[j] == '\t' || strings.HasPrefix(w.src[j:], "\\\n")) {
		if w.src[j] == '\\' {
			lines += "\\\n"
			j++
		}
		j++
	}
	d, end := w.delimiter(j)
	if end == j {
		w.out.WriteString(lines + op)
		return j
	}
	d.tabs = op == "<<-"
	lines += strings.Repeat("\\\n", strings.Count(w.src[j:end], "\\\n"))
	w.docs = append(w.docs, d)
	written := d.as
	if d.quoted {
		written = "'" + written + "'"
	}
	w.out.WriteString(lines + op + written)
	return end
}

// delimiter reads a here-document's delimiter.
func (w *rewriter) delimiter(i int) (d hereDelim, end int) {
	var b strings.Builder
	s := w.src
	for i < len(s) && strings.IndexByte(" \t\n;&|()<>", s[i]) < 0 {
		switch c := s[i]; {
		case strings.HasPrefix(s[i:], "\\\n"):
			i += 2
		case c == '\\' && i+1 < len(s):
			d.quoted = true
			b.WriteByte(s[i+1])
			i += 2
		case c == '\'' || strings.HasPrefix(s[i:], "$'"):
			d.quoted = true
			dollar := c == '$'
			if dollar {
				i++
			}
			n := strings.IndexByte(s[i+1:], '\'')
			if n < 0 {
				n = len(s) - i - 1
			}
			text := s[i+1 : i+1+n]
			if dollar {
				text, _ = unescape(text, escDollar)
			}
			b.WriteString(text)
			i = min(i+n+2, len(s))
		case c == '"':
			d.quoted = true
			for i++; i < len(s) && s[i] != '"'; i++ {
				if s[i] == '\\' && i+1 < len(s) && strings.IndexByte("$`\"\\", s[i+1]) >= 0 {
					i++
				}
				b.WriteByte(s[i])
			}
			i++
		case c == '$' && i+1 < len(s) && (s[i+1] == '(' || s[i+1] == '{'):
			to, _ := wordEnd(s, i)
			b.WriteString(s[i:to])
			i = to
		default:
			b.WriteByte(c)
			i++
		}
	}
	i = min(i, len(s))
	d.word, d.as = b.String(), b.String()
	if d.word == "" || strings.Trim(d.word, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-+@%") != "" {
		d.as = herePrefix + hex.EncodeToString([]byte(d.word))
	}
	return d, i
}

// body copies a here-document from i on, including the line that ends it.
func (w *rewriter) body(i int, d hereDelim) int {
	for i < len(w.src) {
		line, extra := "", 0
		j := i
		for {
			part, _, more := strings.Cut(w.src[j:], "\n")
			j += len(part)
			if more {
				j++
			}
			if !d.quoted && more && (len(part)-len(strings.TrimRight(part, `\`)))%2 == 1 {
				line, extra = line+part[:len(part)-1], extra+1
				continue
			}
			line += part
			break
		}
		if d.tabs {
			line = strings.TrimLeft(line, "\t")
		}
		rest, begins := strings.CutPrefix(line, d.word)
		switch {
		case line == d.word:
			w.out.WriteString(d.as + "\n" + strings.Repeat("\n", extra))
			return j
		case begins && d.word != "" && w.top() == ')' && strings.Contains(rest, ")") && extra == 0:
			w.out.WriteString(d.as + "\n")
			return i + len(strings.TrimSuffix(w.src[i:j], "\n")) - len(rest)
		}
		i = w.copy(i, j)
	}
	return i
}
