package interp

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"mvdan.cc/sh/v3/syntax"
)

// kind says how a piece of an expanded word is treated.
type kind uint8

const (
	literal  kind = iota // unquoted source text: may be a pattern, is not split
	quoted               // neither split nor a pattern
	expanded             // result of an expansion: is split, may be a pattern
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
		if s, ok := r.simplePart(w.Parts[0]); ok {
			return s
		}
	}
	buf := r.takePieces()
	ps := r.pieces(buf, w.Parts, false, true)
	s := joinPieces(ps)
	r.givePieces(ps)
	return s
}

// simplePart expands a word that has only one part of a simple kind. Use it only where nothing is
// split.
func (r *runner) simplePart(p syntax.WordPart) (string, bool) {
	switch p := p.(type) {
	case *syntax.SglQuoted:
		return sglQuoted(p), true
	case *syntax.Lit:
		if strings.IndexByte(p.Value, '\\') < 0 && strings.IndexByte(p.Value, '~') < 0 {
			return p.Value, true
		}
	case *syntax.ParamExp:
		return r.simpleParam(p)
	case *syntax.DblQuoted:
		if len(p.Parts) == 1 {
			switch q := p.Parts[0].(type) {
			case *syntax.Lit:
				if strings.IndexByte(q.Value, '\\') < 0 {
					return q.Value, true
				}
			case *syntax.ParamExp:
				return r.simpleParam(q)
			}
		}
	}
	return "", false
}

// simpleParam returns the value of $name when it is a set scalar.
func (r *runner) simpleParam(p *syntax.ParamExp) (string, bool) {
	if !plainParam(p) {
		return "", false
	}
	name := p.Param.Value
	if !isIdentStart(name[0]) {
		if c := name[0] - '1'; c < 9 && len(name) == 1 && int(c) < len(r.params) {
			return r.params[c], true
		}
		return "", false
	}
	v, _ := r.find(name)
	if v == nil || v.nameref || v.arr != nil || v.assoc != nil || !v.set {
		return "", false
	}
	return v.str, true
}

// plainParam reports whether an expansion is just $name or ${name}.
func plainParam(p *syntax.ParamExp) bool {
	return p.Index == nil && p.Exp == nil && !p.Excl && !p.Length && p.Slice == nil && p.Repl == nil && p.Names == 0 &&
		p.Param != nil && p.Param.Value != "" && p.NestedParam == nil && p.Flags == nil && !p.Width && len(p.Modifiers) == 0
}

// takePieces and givePieces reuse one buffer. takePieces makes a new one while the buffer is in
// use.
func (r *runner) takePieces() []piece {
	b := r.pieceBuf
	r.pieceBuf = nil
	return b
}

func (r *runner) givePieces(ps []piece) {
	const most = 256
	if cap(ps) <= most {
		clear(ps)
		r.pieceBuf = ps[:0]
	}
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

// pattern expands a word to a pattern, with quoted characters escaped.
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

// patternChars are the characters that can be special in a pattern.
const patternChars = `*?[]\!+@()|-^#%&:.=`

// escapePattern makes every character stand for itself.
func escapePattern(s string) string {
	if !strings.ContainsAny(s, patternChars) {
		return s
	}
	b := make([]byte, 0, len(s)+8)
	for i := range len(s) {
		if strings.IndexByte(patternChars, s[i]) >= 0 {
			b = append(b, '\\')
		}
		b = append(b, s[i])
	}
	return string(b)
}

// fields expands words to arguments: braces, expansions, splitting, file names.
func (r *runner) fields(words []*syntax.Word) []string {
	out := make([]string, 0, len(words))
	for _, w := range words {
		if out = r.field(out, w); r.flow != flowNone {
			return nil
		}
	}
	return out
}

// field appends the fields of one expanded word.
func (r *runner) field(out []string, w *syntax.Word) []string {
	if len(w.Parts) == 1 {
		switch p := w.Parts[0].(type) {
		case *syntax.Lit:
			if p.Value == "[" || !strings.ContainsAny(p.Value, "\\~{*?[=") {
				return append(out, p.Value)
			}
		case *syntax.SglQuoted, *syntax.DblQuoted:
			if s, ok := r.simplePart(p); ok {
				return append(out, s)
			}
		case *syntax.ParamExp:
			if s, ok := r.simpleParam(p); ok && s != "" && !r.needsSplit(s) {
				return append(out, s)
			}
		}
	}
	for _, parts := range r.braces(w) {
		ps := r.pieces(r.takePieces(), parts, false, false)
		out = r.split(out, ps)
		r.givePieces(ps)
		if r.flow != flowNone {
			return nil
		}
	}
	return out
}

// needsSplit reports whether a value may need splitting or be a pattern.
func (r *runner) needsSplit(s string) bool {
	t := r.separators()
	for i := range len(s) {
		if c := s[i]; t.class[c] != 0 || c == '*' || c == '?' || c == '[' || c == '\\' || c == '(' {
			return true
		}
	}
	return false
}

// sglQuoted returns the text of '…' or $'…'.
func sglQuoted(q *syntax.SglQuoted) string {
	if !q.Dollar {
		return q.Value
	}
	s, _ := unescape(q.Value, escDollar)
	return s
}

// pieces expands the parts of a word. inDbl says that they are inside double quotes. plain says
// that no splitting will follow (assignments, patterns).
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
			n, saved := len(out), r.noElements
			r.noElements = false
			out = r.pieces(out, p.Parts, true, plain)
			// "$@" without elements makes no field, "" makes an empty one.
			if len(out) == n && !r.noElements {
				out = append(out, piece{quoted, ""})
			}
			r.noElements = saved
		case *syntax.ParamExp:
			out = r.paramPieces(out, p, inDbl, plain)
		case *syntax.CmdSubst:
			out = append(out, piece{valueKind(inDbl), r.cmdSubst(p)})
		case *syntax.ArithmExp:
			n, ok := r.arith(p.X)
			if !ok && r.flow == flowNone {
				r.discard()
			}
			out = append(out, piece{valueKind(inDbl), strconv.FormatInt(n, 10)})
		case *syntax.ProcSubst:
			out = append(out, piece{quoted, r.procSubst(p)})
		case *syntax.ExtGlob:
			out = r.extGlobPieces(out, p)
		case *syntax.BraceExp: // an unexpanded one: braces were expanded earlier
		}
	}
	return out
}

// extGlobPieces expands ?(…) and the other groups. For bash the inside of a group is a word; for
// the parser it is plain text.
func (r *runner) extGlobPieces(out []piece, g *syntax.ExtGlob) []piece {
	out = append(out, piece{literal, g.Op.String()})
	if g.Pattern.Value == emptyMark {
		return append(out, piece{literal, ")"})
	}
	if !strings.ContainsAny(g.Pattern.Value, "$`\"'\\~") {
		return append(out, piece{literal, g.Pattern.Value + ")"})
	}
	ps := r.pieces(nil, r.parsedWord(hideSyntax(g.Pattern.Value)), false, true)
	for _, p := range ps {
		if p.kind == literal {
			p.s = showSyntax(p.s)
		}
		out = append(out, p)
	}
	return append(out, piece{literal, ")"})
}

// hiddenSyntax are characters that end a word. They are replaced while the inside of an extended
// pattern is parsed as one word.
const hiddenSyntax = "|()<>;& \t\n#{}"

const hiddenBase = 0xE100 // private characters

// hideSyntax replaces the characters of hiddenSyntax that are unquoted and outside of expansions.
func hideSyntax(s string) string {
	var b strings.Builder
	depth := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c == '\\' && i+1 < len(s):
			b.WriteByte(c)
			i++
			b.WriteByte(s[i])
			continue
		case depth == 0 && (c == '\'' || c == '"'):
			if end := strings.IndexByte(s[i+1:], c); end >= 0 {
				b.WriteString(s[i : i+end+2])
				i += end + 1
				continue
			}
		case c == '$' && i+1 < len(s) && (s[i+1] == '{' || s[i+1] == '('):
			depth++
			b.WriteString(s[i : i+2])
			i++
			continue
		case depth > 0 && (c == '{' || c == '('):
			depth++
		case depth > 0 && (c == '}' || c == ')'):
			depth--
		case depth == 0:
			if at := strings.IndexByte(hiddenSyntax, c); at >= 0 {
				b.WriteRune(rune(hiddenBase + at))
				continue
			}
		}
		b.WriteByte(c)
	}
	return b.String()
}

func showSyntax(s string) string {
	return strings.Map(func(c rune) rune {
		if at := c - hiddenBase; at >= 0 && int(at) < len(hiddenSyntax) {
			return rune(hiddenSyntax[at])
		}
		return c
	}, s)
}

// parsedWord parses text as one word and caches it.
func (r *runner) parsedWord(s string) []syntax.WordPart {
	if ps, ok := r.words[s]; ok {
		return ps
	}
	var parts []syntax.WordPart
	if stmts, err := parse("_ " + s); err == nil && len(stmts) == 1 {
		if c, ok := stmts[0].Cmd.(*syntax.CallExpr); ok && len(c.Args) == 2 && len(stmts[0].Redirs) == 0 {
			parts = c.Args[1].Parts
		}
	}
	if parts == nil {
		parts = []syntax.WordPart{&syntax.SglQuoted{Value: s}}
	}
	const most = 64
	if r.words == nil || len(r.words) >= most {
		r.words = make(map[string][]syntax.WordPart)
	}
	r.words[s] = parts
	return parts
}

// expandString expands text as inside double quotes, and removes the text's own quotes. It is for
// subscripts that are given as text.
func (r *runner) expandString(s string) string {
	return showSyntax(joinPieces(r.pieces(nil, r.parsedWord(hideSyntax(s)), false, true)))
}

func valueKind(inDbl bool) kind {
	if inDbl {
		return quoted
	}
	return expanded
}

// litPieces processes the backslashes and tildes of literal text.
func (r *runner) litPieces(out []piece, s string, inDbl, plain, first, last bool) []piece {
	if inDbl {
		if strings.IndexByte(s, '\\') < 0 {
			if s != "" {
				out = append(out, piece{quoted, s})
			}
			return out
		}
		return append(out, piece{quoted, dblUnescape(s)})
	}
	if first && s != "" && s[0] == '~' {
		if home, rest, ok := r.tilde(s, last, r.inAssign); ok {
			out = append(out, piece{quoted, home})
			s = rest
			if s == "" {
				return out
			}
		}
	}
	esc := strings.IndexByte(s, '\\') >= 0
	if r.inAssign || !plain && first && strings.IndexByte(s, '~') >= 0 && assignLike(s) {
		return r.assignTildes(out, s, last, first)
	}
	if !esc {
		if s != "" {
			out = append(out, piece{literal, s})
		}
		return out
	}
	return escapedPieces(out, s)
}

// dblUnescape removes the backslashes of text in double quotes.
func dblUnescape(s string) string {
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) && strings.IndexByte("$`\"\\\n", s[i+1]) >= 0 {
			i++
			if s[i] == '\n' {
				continue
			}
		}
		b = append(b, s[i])
	}
	return string(b)
}

// escapedPieces removes the backslashes of unquoted text.
func escapedPieces(out []piece, s string) []piece {
	start := 0
	flush := func(end int) {
		if end > start {
			out = append(out, piece{literal, s[start:end]})
		}
	}
	for i := 0; i+1 < len(s); i++ {
		if s[i] != '\\' {
			continue
		}
		flush(i)
		_, n := utf8.DecodeRuneInString(s[i+1:])
		if s[i+1] != '\n' {
			out = append(out, piece{quoted, s[i+1 : i+1+n]})
		}
		i += n
		start = i + 1
	}
	flush(len(s))
	return out
}

// assignLike reports whether a word begins like an assignment. In its value, tildes are expanded
// after = and :.
func assignLike(s string) bool {
	name, _, ok := strings.Cut(s, "=")
	return ok && isName(strings.TrimSuffix(name, "+"))
}

// assignTildes expands the tildes after ':'. At the start of an argument that looks like an
// assignment, it also expands the tilde after '='.
func (r *runner) assignTildes(out []piece, s string, last, first bool) []piece {
	start := 0
	eq := r.inAssign
	for i := 0; i+1 < len(s); i++ {
		c := s[i]
		if c == '\\' {
			i++
			continue
		}
		if c != ':' && (c != '=' || eq) || s[i+1] != '~' {
			if c == '=' {
				eq = true
			}
			continue
		}
		eq = true
		if home, rest, ok := r.tilde(s[i+1:], last, true); ok {
			out = escapedPieces(out, s[start:i+1])
			out = append(out, piece{quoted, home})
			i = len(s) - len(rest) - 1
			start = i + 1
		}
	}
	return escapedPieces(out, s[start:])
}

// tilde expands ~, ~+, ~- and ~name at the start of a text. whole says that the word ends with the
// text. colon says that a ':' ends the name too.
func (r *runner) tilde(s string, whole, colon bool) (home, rest string, ok bool) {
	stop := "/"
	if colon {
		stop = "/:"
	}
	end := strings.IndexAny(s, stop)
	if end < 0 {
		if !whole {
			return "", "", false
		}
		end = len(s)
	}
	name, rest := s[1:end], s[end:]
	switch name {
	case "":
		h, ok := r.get("HOME")
		if !ok {
			name = r.m.UserName(r.cred().UID)
			break
		}
		if h == "/" && strings.HasPrefix(rest, "/") {
			h = ""
		}
		return h, rest, ok
	case "+":
		h, ok := r.get("PWD")
		return h, rest, ok
	case "-":
		h, ok := r.get("OLDPWD")
		return h, rest, ok
	}
	if n, err := strconv.Atoi(strings.TrimPrefix(name, "+")); err == nil {
		stack := r.stack()
		if n < 0 {
			n += len(stack)
		}
		if n >= 0 && n < len(stack) {
			return stack[n], rest, true
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
	if c.TempFile || c.ReplyVar { // those of bash 5.3
		r.badSubstitution(wordText(&syntax.Word{Parts: []syntax.WordPart{c}}))
		return ""
	}
	if len(c.Stmts) == 1 && c.Stmts[0].Cmd == nil && len(c.Stmts[0].Redirs) == 1 && c.Stmts[0].Redirs[0].Op == syntax.RdrIn {
		var text string
		r.redirected(c.Stmts[0].Redirs, func() { text, r.status = r.readAll(0), 0 })
		r.substStatus = r.status
		return strings.TrimRight(text, "\n")
	}
	if len(c.Stmts) == 0 {
		r.status = 0
	}
	if text, ok := r.quickSubst(c); ok {
		r.substStatus = r.status
		return text
	}
	text := r.substitute(c.Stmts)
	r.substStatus = r.status
	return text
}

// discard ends the running top-level command with status 1, as a failed expansion does. The script
// continues with its next line.
func (r *runner) discard() {
	r.status, r.flow = 1, flowDiscard
}

// discardHard is discard for failures that end a script of -c.
func (r *runner) discardHard() {
	if r.flow != flowNone {
		return
	}
	r.discard()
	if r.fromArg && r.p.pid == r.self {
		r.flow = flowExit
	}
}

// abort ends the shell with an error. An interactive shell returns to its prompt.
func (r *runner) abort(status int) {
	r.status, r.flow = status, flowExit
}

// abortExpansion ends the shell as bash does for an unset variable. The status is 127 when the
// script came from -c and this is not a subshell.
func (r *runner) abortExpansion() {
	if r.interactive {
		r.discard()
		return
	}
	if r.fromArg && r.p.pid == r.self && !r.opts.errexit {
		r.abort(127)
		return
	}
	r.abort(1)
}

// separators is IFS, ready for use.
type separators struct {
	ifs   string
	set   bool
	class [256]byte // sepWhite, sepOther, or sepLead: the byte may begin a longer separator
}

const (
	sepWhite = 1 + iota
	sepOther
	sepLead
)

// separators returns the characters that words are split at.
func (r *runner) separators() *separators {
	ifs, ok := " \t\n", false
	if v, _ := r.find("IFS"); v != nil {
		if s, set := r.get("IFS"); set {
			ifs, ok = s, true
		}
	}
	if t := r.seps; t != nil && t.ifs == ifs {
		return t
	}
	t := &separators{ifs: ifs, set: ok}
	for i := range len(ifs) {
		switch c := ifs[i]; {
		case c == ' ' || c == '\t' || c == '\n':
			t.class[c] = sepWhite
		case c < utf8.RuneSelf:
			t.class[c] = sepOther
		case utf8.RuneStart(c):
			t.class[c] = sepLead
		}
	}
	r.seps = t
	return t
}

// splitter is the state of word splitting.
type splitter struct {
	r         *runner
	t         *separators
	text, pat []byte
	has       bool // a field has begun
	magic     bool // it has an unquoted pattern character
	white     bool // IFS white space ended the previous field
	out       []string
}

// split splits expanded text at boundaries and by IFS. It appends the fields, or the names of the
// files that they match.
func (r *runner) split(out []string, ps []piece) []string {
	if len(ps) == 1 && ps[0].kind == quoted {
		return append(out, ps[0].s)
	}
	if len(ps) == 1 && ps[0].kind == literal && !strings.ContainsAny(ps[0].s, "*?[(") {
		return append(out, ps[0].s)
	}
	s := splitter{r: r, t: r.separators(), out: out}
	for i, p := range ps {
		if r.flow != flowNone {
			return nil
		}
		switch p.kind {
		case quoted:
			s.add(p.s, true)
			s.has, s.white = true, false
		case literal:
			s.add(p.s, false)
			s.has, s.white = true, false
		case boundary:
			// A field ends between quoted elements. Other elements are split as if the first
			// separator joined them.
			if i > 0 && ps[i-1].kind == quoted && p.s == "q" || s.t.ifs == "" {
				s.flush()
				s.white = false
			} else {
				c, n := utf8.DecodeRuneInString(s.t.ifs)
				s.separate(c == ' ' || c == '\t' || c == '\n')
				_ = n
			}
		case expanded:
			s.expand(p.s)
		}
	}
	s.flush()
	return s.out
}

func (s *splitter) add(text string, isQuoted bool) {
	s.text = append(s.text, text...)
	switch {
	case isQuoted:
		if strings.ContainsAny(text, patternChars) {
			s.pat = append(s.pat, escapePattern(text)...)
		} else {
			s.pat = append(s.pat, text...)
		}
	default:
		if strings.ContainsAny(text, "*?[(") {
			s.magic = true
		}
		s.pat = append(s.pat, text...)
	}
}

func (s *splitter) flush() {
	if !s.has {
		return
	}
	if s.magic {
		s.out = s.r.fileNames(s.out, string(s.text), string(s.pat))
	} else {
		s.out = append(s.out, string(s.text))
	}
	s.text, s.pat = s.text[:0], s.pat[:0]
	s.has, s.magic = false, false
}

// separate ends a field at a separator.
func (s *splitter) separate(white bool) {
	if white {
		if s.has {
			s.flush()
			s.white = true
		}
		return
	}
	switch {
	case s.has:
		s.flush()
	case !s.white:
		s.has = true
		s.flush()
	}
	s.white = false
}

// expand adds the result of an expansion, splitting it.
func (s *splitter) expand(text string) {
	start := 0
	push := func(end int) {
		if end > start {
			part := text[start:end]
			s.text = append(s.text, part...)
			if strings.ContainsAny(part, "*?[(") {
				s.magic = true
			}
			s.pat = append(s.pat, part...)
			s.has, s.white = true, false
		}
	}
	for i := 0; i < len(text); i++ {
		switch s.t.class[text[i]] {
		case 0:
			continue
		case sepWhite:
			push(i)
			s.separate(true)
		case sepOther:
			push(i)
			s.separate(false)
		case sepLead:
			c, n := utf8.DecodeRuneInString(text[i:])
			if n == 1 || !strings.ContainsRune(s.t.ifs, c) {
				continue
			}
			push(i)
			s.separate(false)
			i += n - 1
		}
		start = i + 1
	}
	push(len(text))
}
