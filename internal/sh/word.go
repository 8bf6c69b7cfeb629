package sh

import (
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// kind is how a piece of an expanded word is treated from here on.
type kind uint8

const (
	literal  kind = iota // unquoted in the source: may be a pattern, is not split
	quoted               // neither split nor a pattern
	expanded             // the result of an expansion: split, and may be a pattern
	boundary             // between two elements of "$@"
)

// piece is a part of an expanded word.
type piece struct {
	kind kind
	s    string
}

// text expands a word to one string: no splitting, no file names.
func (r *runner) text(w *syntax.Word) string {
	if w == nil {
		return ""
	}
	if len(w.Parts) == 1 {
		switch p := w.Parts[0].(type) {
		case *syntax.SglQuoted:
			return sglQuoted(p)
		case *syntax.Lit:
			if !strings.ContainsAny(p.Value, "\\~") {
				return p.Value
			}
		}
	}
	return joinPieces(r.pieces(nil, w.Parts, false, true))
}

func joinPieces(ps []piece) string {
	if len(ps) == 1 {
		return ps[0].s
	}
	var b strings.Builder
	for _, p := range ps {
		if p.kind == boundary {
			b.WriteByte(' ')
			continue
		}
		b.WriteString(p.s)
	}
	return b.String()
}

// pattern expands a word to a pattern: what was quoted is escaped.
func (r *runner) pattern(w *syntax.Word) string {
	if w == nil {
		return ""
	}
	return patternOf(r.pieces(nil, w.Parts, false, true))
}

func patternOf(ps []piece) string {
	var b strings.Builder
	for _, p := range ps {
		switch p.kind {
		case quoted:
			b.WriteString(escapePattern(p.s))
		case boundary:
			b.WriteByte(' ')
		default:
			b.WriteString(p.s)
		}
	}
	return b.String()
}

// escapePattern makes every character stand for itself.
func escapePattern(s string) string {
	if !strings.ContainsAny(s, `*?[]\!+@()|-^`) {
		return s
	}
	var b strings.Builder
	for i := range len(s) {
		if strings.IndexByte(`*?[]\!+@()|-^`, s[i]) >= 0 {
			b.WriteByte('\\')
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// fields expands words to arguments: braces, expansions, splitting, file names.
func (r *runner) fields(words []*syntax.Word) []string {
	out := make([]string, 0, len(words))
	for _, w := range words {
		if len(w.Parts) == 1 {
			switch p := w.Parts[0].(type) {
			case *syntax.Lit:
				if !strings.ContainsAny(p.Value, "\\~{*?[") {
					out = append(out, p.Value)
					continue
				}
			case *syntax.SglQuoted:
				out = append(out, sglQuoted(p))
				continue
			}
		}
		for _, b := range r.braces(w) {
			for _, f := range r.split(r.pieces(nil, b.Parts, false, false)) {
				out = r.fileNames(out, f)
			}
			if r.flow != flowNone {
				return nil
			}
		}
	}
	return out
}

// sglQuoted returns the text of '…' or $'…'.
func sglQuoted(q *syntax.SglQuoted) string {
	if !q.Dollar {
		return q.Value
	}
	s, _ := unescape(q.Value, escDollar)
	return s
}

// pieces expands the parts of a word. inDbl is inside double quotes; plain is
// where no splitting will follow (assignments, patterns).
func (r *runner) pieces(out []piece, parts []syntax.WordPart, inDbl, plain bool) []piece {
	for i, p := range parts {
		if r.flow != flowNone {
			return out
		}
		switch p := p.(type) {
		case *syntax.Lit:
			out = r.litPieces(out, p.Value, inDbl, plain, i == 0, i == len(parts)-1)
		case *syntax.SglQuoted:
			out = append(out, piece{quoted, sglQuoted(p)})
		case *syntax.DblQuoted:
			n := len(out)
			out = r.pieces(out, p.Parts, true, plain)
			if len(out) == n && !onlyLists(p.Parts) {
				out = append(out, piece{quoted, ""})
			}
		case *syntax.ParamExp:
			out = r.paramPieces(out, p, inDbl, plain)
		case *syntax.CmdSubst:
			out = append(out, piece{valueKind(inDbl), r.cmdSubst(p)})
		case *syntax.ArithmExp:
			n, ok := r.arith(p.X)
			if !ok && r.flow == flowNone {
				r.abort(1)
			}
			out = append(out, piece{valueKind(inDbl), strconv.FormatInt(n, 10)})
		case *syntax.ProcSubst:
			out = append(out, piece{quoted, r.procSubst(p)})
		case *syntax.ExtGlob:
			out = append(out, piece{literal, p.Op.String() + p.Pattern.Value + ")"})
		case *syntax.BraceExp: // an unexpanded one: braces are expanded before
		}
	}
	return out
}

func valueKind(inDbl bool) kind {
	if inDbl {
		return quoted
	}
	return expanded
}

// onlyLists reports whether a quoted word is nothing but "$@" and the like, which
// vanishes when there are no elements.
func onlyLists(parts []syntax.WordPart) bool {
	for _, p := range parts {
		pe, ok := p.(*syntax.ParamExp)
		if !ok {
			return false
		}
		at := pe.Param != nil && pe.Param.Value == "@"
		if w, ok := pe.Index.(*syntax.Word); ok && w.Lit() == "@" {
			at = true
		}
		if !at {
			return false
		}
	}
	return len(parts) > 0
}

// litPieces takes the backslashes and the tilde out of literal text.
func (r *runner) litPieces(out []piece, s string, inDbl, plain, first, last bool) []piece {
	if first && !inDbl && strings.HasPrefix(s, "~") {
		home, rest, ok := r.tilde(s, last)
		if ok {
			out = append(out, piece{quoted, home})
			s = rest
		}
	}
	if strings.IndexByte(s, '\\') < 0 {
		if s != "" {
			k := literal
			if inDbl {
				k = quoted
			}
			out = append(out, piece{k, s})
		}
		return out
	}
	start := 0
	flush := func(end int) {
		if end > start {
			k := literal
			if inDbl {
				k = quoted
			}
			out = append(out, piece{k, s[start:end]})
		}
	}
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 >= len(s) {
			continue
		}
		c := s[i+1]
		if inDbl && strings.IndexByte("$`\"\\\n", c) < 0 {
			i++
			continue
		}
		flush(i)
		if c != '\n' {
			out = append(out, piece{quoted, s[i+1 : i+2]})
		}
		i++
		start = i + 1
	}
	flush(len(s))
	return out
}

// tilde expands ~, ~+, ~- and ~name at the front of a word.
func (r *runner) tilde(s string, whole bool) (home, rest string, ok bool) {
	name, after, slash := strings.Cut(s[1:], "/")
	if !slash && !whole {
		return "", "", false
	}
	if slash {
		rest = "/" + after
	}
	switch name {
	case "":
		if h, ok := r.get("HOME"); ok {
			return h, rest, true
		}
		name = r.m.UserName(r.cred().UID)
	case "+":
		return r.str("PWD"), rest, true
	case "-":
		if old, ok := r.get("OLDPWD"); ok {
			return old, rest, true
		}
		return "", "", false
	}
	for _, a := range r.m.Accounts() {
		if a.Name == name {
			return a.Home, rest, true
		}
	}
	return "", "", false
}

// cmdSubst runs $(…), or reads a file for $(<file).
func (r *runner) cmdSubst(c *syntax.CmdSubst) string {
	if len(c.Stmts) == 1 && c.Stmts[0].Cmd == nil && len(c.Stmts[0].Redirs) == 1 && c.Stmts[0].Redirs[0].Op == syntax.RdrIn {
		var text string
		r.redirected(c.Stmts[0].Redirs, func() { text = r.readAll(0) })
		return strings.TrimRight(text, "\n")
	}
	status := r.status
	text := r.substitute(c.Stmts)
	r.substStatus = r.status
	if len(c.Stmts) == 0 {
		r.substStatus = 0
	}
	r.status = status
	return text
}

// abort ends the running command with an error, as a failed expansion does: a
// script ends, an interactive shell returns to its prompt.
func (r *runner) abort(status int) {
	r.status, r.flow = status, flowExit
}

// abortExpansion ends the shell as bash does for an unset variable: with 127 when
// the script came from -c and this is not a subshell.
func (r *runner) abortExpansion() {
	if r.fromArg && r.p.pid == r.self {
		r.abort(127)
		return
	}
	r.abort(1)
}

// field is a word under way from expansion to file names.
type field struct {
	text string
	pat  string // the pattern, when it has one
}

// split splits what was expanded by IFS and cuts at boundaries.
func (r *runner) split(ps []piece) []field {
	if len(ps) == 1 && ps[0].kind == quoted {
		return []field{{text: ps[0].s}}
	}
	ifs, ok := r.get("IFS")
	if !ok {
		ifs = " \t\n"
	}
	s := splitter{ifs: ifs}
	for _, p := range ps {
		switch p.kind {
		case quoted:
			s.add(p.s, true)
			s.has = true
		case literal:
			s.add(p.s, false)
			s.has = true
		case boundary:
			s.flush()
			s.afterSpace = false
		case expanded:
			s.expand(p.s)
		}
	}
	s.flush()
	return s.out
}

// splitter is word splitting under way.
type splitter struct {
	ifs        string
	text, pat  strings.Builder
	has        bool // a field has begun
	magic      bool // it has an unquoted pattern character
	afterSpace bool // IFS white space ended the field before
	out        []field
}

func (s *splitter) add(text string, isQuoted bool) {
	s.text.WriteString(text)
	if isQuoted {
		s.pat.WriteString(escapePattern(text))
		return
	}
	if strings.ContainsAny(text, "*?[(") {
		s.magic = true
	}
	s.pat.WriteString(text)
}

func (s *splitter) flush() {
	if !s.has {
		return
	}
	f := field{text: s.text.String()}
	if s.magic {
		f.pat = s.pat.String()
	}
	s.out = append(s.out, f)
	s.text.Reset()
	s.pat.Reset()
	s.has, s.magic = false, false
}

// expand adds the result of an expansion, splitting it.
func (s *splitter) expand(text string) {
	start := 0
	push := func(end int) {
		if end > start {
			// A backslash that comes out of an expansion is no escape.
			part := text[start:end]
			s.text.WriteString(part)
			if strings.ContainsAny(part, "*?[") {
				s.magic = true
			}
			s.pat.WriteString(strings.ReplaceAll(part, `\`, `\\`))
			s.has, s.afterSpace = true, false
		}
	}
	for i := range len(text) {
		c := text[i]
		if strings.IndexByte(s.ifs, c) < 0 {
			continue
		}
		push(i)
		start = i + 1
		if c == ' ' || c == '\t' || c == '\n' {
			if s.has {
				s.flush()
				s.afterSpace = true
			}
			continue
		}
		switch {
		case s.has:
			s.flush()
		case !s.afterSpace:
			s.has = true
			s.flush()
		}
		s.afterSpace = false
	}
	push(len(text))
}
