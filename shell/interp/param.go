package interp

import (
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"mvdan.cc/sh/v3/syntax"
)

// value is the value of a parameter.
type value struct {
	s        string
	set      bool
	list     []string // of $@, $*, ${a[@]} and ${a[*]}
	many     bool     // it is such a list
	star     bool     // of the * kind
	name     string   // its name after references and indirection
	v        *variable
	pos      bool // the positional parameters
	indirect bool // ${!name} has led to it
	refElem  bool // a name reference to an element was followed
}

// paramPieces expands a parameter.
func (r *runner) paramPieces(out []piece, pe *syntax.ParamExp, inDbl, plain bool) []piece {
	if s, ok := r.simpleParam(pe); ok {
		return append(out, piece{valueKind(inDbl), s})
	}
	v, ps, done := r.param(pe, inDbl, plain)
	if done {
		return append(out, ps...)
	}
	return r.valuePieces(out, v, inDbl, plain)
}

func (r *runner) valuePieces(out []piece, v value, inDbl, plain bool) []piece {
	k := valueKind(inDbl)
	if !v.many {
		return append(out, piece{k, v.s})
	}
	if v.star && (inDbl || plain) {
		return append(out, piece{k, strings.Join(v.list, r.ifsFirst())})
	}
	if len(v.list) == 0 && inDbl {
		r.noElements = true
	}
	between := ""
	if inDbl {
		between = "q"
	}
	for i, s := range v.list {
		if i > 0 {
			out = append(out, piece{boundary, between})
		}
		out = append(out, piece{k, s})
	}
	return out
}

// isElementRef reports whether a name is a reference to an element of an array.
func (r *runner) isElementRef(name string) bool {
	v, _ := r.find(name)
	if v == nil || !v.nameref {
		return false
	}
	_, sub, elem := cutSubscript(v.str)
	return elem && sub != "@" && sub != "*"
}

// nullIFS reports whether IFS is set to nothing.
func (r *runner) nullIFS() bool {
	ifs, ok := r.get("IFS")
	return ok && ifs == ""
}

// ifsFirst returns the separator between the elements of "$*".
func (r *runner) ifsFirst() string {
	ifs, ok := r.get("IFS")
	switch {
	case !ok:
		return " "
	case ifs == "":
		return ""
	}
	_, n := utf8.DecodeRuneInString(ifs)
	return ifs[:n]
}

// badName begins the name of a parameter that stands for an expansion that the parser rejects. The
// rest of the name is the text of the expansion in hexadecimal. See repair.
const badName = "__bad_substitution_"

func (r *runner) badSubstitution(text string) {
	r.errorf("%s: bad substitution", text)
	r.discard()
}

// param evaluates a parameter expansion. When done is true, the result is ps (the pieces of a
// default word), otherwise it is v.
func (r *runner) param(pe *syntax.ParamExp, inDbl, plain bool) (v value, ps []piece, done bool) {
	if pe.Param == nil || pe.NestedParam != nil || pe.Flags != nil || pe.Width || len(pe.Modifiers) > 0 {
		r.badSubstitution(wordText(&syntax.Word{Parts: []syntax.WordPart{pe}}))
		return value{}, nil, true
	}
	name := pe.Param.Value
	if strings.HasPrefix(name, badName) {
		text := unhex(name[len(badName):])
		if again := r.looseParam(text); again != nil {
			return r.param(again, inDbl, plain)
		}
		if of, _, ok := strings.Cut(strings.Trim(text, "${}"), "@"); ok && isName(of) && !r.isSet(of) {
			return value{}, nil, false // bash reads the operator only if the parameter is set
		}
		r.badSubstitution(text)
		return value{}, nil, true
	}
	if pe.Excl {
		if names, ok := r.paramNames(pe, name); ok {
			return names, nil, false
		}
		target, ok := r.indirect(name, pe)
		if !ok {
			return value{}, nil, true
		}
		v = target
		v.indirect = true
	} else {
		v = r.paramValue(name, pe.Index)
	}
	if r.flow != flowNone {
		return value{}, nil, true
	}
	if pe.Length {
		n, ok := r.paramLength(pe, v)
		return n, nil, !ok
	}
	if pe.Exp != nil && pe.Exp.Op <= syntax.AssignUnsetOrNull {
		if ps, done = r.defaults(pe, v, inDbl, plain); done {
			return v, ps, true
		}
		return v, nil, false
	}
	if !r.checkSet(pe, v) {
		return value{}, nil, true
	}
	if !v.set && !v.many && (pe.Exp == nil || pe.Exp.Op != syntax.OtherParamOps) {
		return value{}, nil, false // an unset parameter isn't changed
	}
	switch {
	case pe.Slice != nil:
		v = r.slice(pe, v)
	case pe.Repl != nil:
		v = r.replace(pe.Repl, v)
	case pe.Exp != nil:
		v = r.modify(pe, v)
	}
	if r.flow != flowNone {
		return value{}, nil, true
	}
	return v, nil, false
}

// paramNames evaluates ${!prefix*}, ${!prefix@} and ${!name[@]}: names of variables, or keys of an
// array. ok is false for another form.
func (r *runner) paramNames(pe *syntax.ParamExp, name string) (v value, ok bool) {
	switch {
	case pe.Names == syntax.NamesPrefix && r.nullIFS():
		return value{s: strings.Join(r.names(name), ""), set: true}, true
	case pe.Names != 0:
		return value{list: r.names(name), many: true, star: pe.Names == syntax.NamesPrefix, set: true}, true
	case !isListIndex(pe.Index) || pe.Exp != nil || pe.Repl != nil || pe.Slice != nil:
		return value{}, false
	case r.isElementRef(name):
		return value{many: true, set: true}, true
	case r.nullIFS() && indexLit(pe.Index) == "*":
		return value{s: strings.Join(r.lookup(name).keys(), " "), set: true}, true
	}
	return value{list: r.lookup(name).keys(), many: true, star: indexLit(pe.Index) == "*", set: true}, true
}

// paramLength evaluates ${#name}. ok is false when the parameter is not set but must be.
func (r *runner) paramLength(pe *syntax.ParamExp, v value) (n value, ok bool) {
	switch {
	case v.refElem:
		return value{s: "0", set: true}, true // bash looks for a variable with that name
	case v.many:
		return value{s: strconv.Itoa(len(v.list)), set: true}, true
	case !r.checkSet(pe, v):
		return value{}, false
	}
	return value{s: strconv.Itoa(utf8.RuneCountInString(v.s)), set: true}, true
}

// paramText returns the name of a parameter for messages.
func paramText(pe *syntax.ParamExp) string {
	name := pe.Param.Value
	if pe.Index != nil {
		return name + "[" + arithString(pe.Index) + "]"
	}
	return name
}

// arithString returns the source text of an expression.
func arithString(x syntax.ArithmExpr) string {
	if w, ok := x.(*syntax.Word); ok {
		return wordText(w)
	}
	var b strings.Builder
	if err := syntax.NewPrinter().Print(&b, x); err != nil {
		return "?"
	}
	return b.String()
}

// checkSet enforces set -u.
func (r *runner) checkSet(pe *syntax.ParamExp, v value) bool {
	if !r.opts.nounset || v.set || v.many || v.refElem {
		return true
	}
	if pe.Exp != nil && pe.Exp.Op == syntax.OtherParamOps && (pe.Exp.Word.Lit() == "A" || pe.Exp.Word.Lit() == "a") && v.v != nil {
		return true
	}
	name := paramText(pe)
	if c := name[0]; c >= '0' && c <= '9' || c == '!' {
		name = "$" + name
	}
	r.errorf("%s: unbound variable", name)
	r.abortExpansion()
	return false
}

func indexLit(x syntax.ArithmExpr) string {
	if w, ok := x.(*syntax.Word); ok {
		return w.Lit()
	}
	return ""
}

func isListIndex(x syntax.ArithmExpr) bool {
	l := indexLit(x)
	return l == "@" || l == "*"
}

// paramValue looks a parameter up.
func (r *runner) paramValue(name string, index syntax.ArithmExpr) value {
	if index != nil {
		if r.isElementRef(name) { // an element has no elements
			return value{many: isListIndex(index), star: indexLit(index) == "*", name: name}
		}
		v := r.lookup(name)
		if isListIndex(index) {
			l := v.list()
			return value{list: l, many: true, star: indexLit(index) == "*", set: len(l) > 0, name: name, v: v}
		}
		sub, ok := r.index(v, index)
		if !ok {
			r.discardHard()
			return value{}
		}
		s, set := r.elementOf(name, v, sub)
		return value{s: s, set: set, name: name, v: v}
	}
	if !isIdentStart(name[0]) {
		return r.specialValue(name)
	}
	if name == "_" {
		return value{s: r.lastArg, set: true, name: name}
	}
	p := r.resolve(name)
	if p.elem {
		v := r.refElement(p)
		v.refElem = true
		return v
	}
	if p.bad {
		return value{name: name}
	}
	if p.v == nil {
		p.v = r.dynamic(p.name)
	}
	s, ok := p.v.scalar()
	return value{s: s, set: ok, name: p.name, v: p.v}
}

// refElement returns the value of a name reference to an element.
func (r *runner) refElement(p place) value {
	if p.v == nil {
		p.v = r.dynamic(p.name)
	}
	if p.sub == "@" || p.sub == "*" {
		l := p.v.list()
		return value{list: l, many: true, star: p.sub == "*", set: len(l) > 0, name: p.name, v: p.v}
	}
	if p.v != nil && p.v.assoc != nil {
		p.sub = r.expandSubscript(p.sub)
	}
	s, set := r.elementOf(p.name, p.v, p.sub)
	return value{s: s, set: set, name: p.name, v: p.v}
}

// specialValue looks up parameters that are not variables.
func (r *runner) specialValue(name string) value {
	switch name {
	case "@", "*":
		return value{list: r.params, many: true, star: name == "*", set: len(r.params) > 0, pos: true}
	case "#":
		return value{s: strconv.Itoa(len(r.params)), set: true}
	case "?":
		return value{s: strconv.Itoa(r.status), set: true}
	case "$":
		return value{s: strconv.Itoa(r.self), set: true}
	case "!":
		if r.lastBg == 0 {
			return value{}
		}
		return value{s: strconv.Itoa(r.lastBg), set: true}
	case "-":
		return value{s: r.flagLetters(), set: true}
	}
	n, err := strconv.Atoi(name)
	switch {
	case err == nil && n == 0:
		return value{s: r.name, set: true}
	case err != nil || n > len(r.params):
		return value{name: name}
	}
	return value{s: r.params[n-1], set: true, name: name}
}

// index evaluates a subscript for reading. It is text for an associative array, and an expression
// for any other variable. A nil variable is treated as an indexed array.
func (r *runner) index(v *variable, x syntax.ArithmExpr) (string, bool) {
	if v != nil && v.assoc != nil {
		return r.indexText(x), r.flow == flowNone
	}
	s, ok := r.arithSource(x, false)
	if !ok {
		return "", false
	}
	n, ok := r.arithText(s)
	return itoa64(n), ok
}

// indexText returns a subscript as the key of an associative array.
func (r *runner) indexText(x syntax.ArithmExpr) string {
	if w, ok := x.(*syntax.Word); ok {
		if raw, ok := rawText(w.Lit()); ok {
			return r.expandString(raw)
		}
		return r.text(w)
	}
	s, _ := r.arithSource(x, false)
	if strings.ContainsAny(s, "'\"") {
		s = r.expandString(s)
	}
	return s
}

// elementOf returns one element of an array. A scalar is its own element 0.
func (r *runner) elementOf(name string, v *variable, index string) (string, bool) {
	if v == nil {
		if !r.checkIndex(name, index) {
			return "", false
		}
		return "", false
	}
	if v.assoc != nil {
		return v.assoc.get(index)
	}
	n, ok := plainNumber(index)
	if !ok {
		if strings.ContainsAny(index, "$`") {
			index = r.expandString(index)
		}
		if n, ok = r.arithText(index); !ok {
			r.discardHard()
			return "", false
		}
	}
	if v.arr == nil {
		if n == 0 || n == -1 {
			return v.str, v.set
		}
		if n < 0 {
			r.errorf("%s: bad array subscript", name)
		}
		return "", false
	}
	if n < 0 {
		if n += int64(v.arr.next()); n < 0 {
			r.errorf("%s: bad array subscript", name)
			return "", false
		}
	}
	if n > maxIndex {
		return "", false
	}
	return v.arr.get(int(n))
}

// checkIndex evaluates the subscript of a variable that does not exist. Only its errors matter.
func (r *runner) checkIndex(_, index string) bool {
	if _, ok := plainNumber(index); ok {
		return true
	}
	_, ok := r.arithText(index)
	if !ok {
		r.discardHard()
	}
	return ok
}

// indirect evaluates ${!name}.
func (r *runner) indirect(name string, pe *syntax.ParamExp) (value, bool) {
	if raw := r.lookupRaw(name); raw != nil && raw.nameref && pe.Index == nil {
		p := r.resolve(name)
		if p.elem {
			return value{s: p.name + "[" + p.sub + "]", set: true, name: name}, true
		}
		return value{s: p.name, set: true, name: name}, true
	}
	v := r.paramValue(name, pe.Index)
	if r.flow != flowNone {
		return value{}, false
	}
	to := v.s
	if v.many {
		to = strings.Join(v.list, " ")
	}
	if !v.set && !v.many {
		if r.opts.nounset && !isIdentStart(name[0]) {
			return value{}, true
		}
		r.errorf("%s: invalid indirect expansion", name)
		r.discard()
		return value{}, false
	}
	if base, sub, ok := cutSubscript(to); ok {
		p := r.resolve1(base)
		p.sub = sub
		return r.refElement(p), r.flow == flowNone
	}
	if !isName(to) && !isSpecial(to) {
		r.errorf("%s: invalid variable name", to)
		r.discard()
		return value{}, false
	}
	return r.paramValue(to, nil), true
}

func isSpecial(s string) bool {
	if len(s) == 1 && strings.Contains("@*#?-$!0", s) {
		return true
	}
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// defaults evaluates ${x:-w}, ${x:=w}, ${x:?w} and ${x:+w}.
func (r *runner) defaults(pe *syntax.ParamExp, v value, inDbl, plain bool) ([]piece, bool) {
	unset, null := !v.set, v.s == ""
	if v.many {
		null = len(v.list) == 0 || len(v.list) == 1 && v.list[0] == ""
		if v.indirect {
			null = len(v.list) == 0
		} else if v.star && len(v.list) > 1 && inDbl {
			null = strings.Join(v.list, r.ifsFirst()) == ""
		}
	}
	word := func() []piece { return r.defaultWord(pe.Exp.Word, inDbl, plain) }
	switch op := pe.Exp.Op; op {
	case syntax.AlternateUnset, syntax.AlternateUnsetOrNull:
		if unset || op == syntax.AlternateUnsetOrNull && null {
			if inDbl {
				if v.many && !v.star {
					r.noElements = true
					return nil, true
				}
				return []piece{{quoted, ""}}, true
			}
			return nil, true
		}
		return word(), true
	case syntax.DefaultUnset, syntax.DefaultUnsetOrNull:
		if unset || op == syntax.DefaultUnsetOrNull && null {
			return word(), true
		}
	case syntax.ErrorUnset, syntax.ErrorUnsetOrNull:
		if unset || op == syntax.ErrorUnsetOrNull && null {
			msg := joinPieces(word())
			if r.flow != flowNone {
				return nil, true
			}
			if pe.Exp.Word == nil || len(pe.Exp.Word.Parts) == 0 {
				msg = "parameter null or not set"
				if op == syntax.ErrorUnset {
					msg = "parameter not set"
				}
			}
			r.errorf("%s: %s", paramText(pe), msg)
			r.abortExpansion()
			return nil, true
		}
	case syntax.AssignUnset, syntax.AssignUnsetOrNull:
		if unset || op == syntax.AssignUnsetOrNull && null {
			return r.assignDefault(pe, v, inDbl, plain), true
		}
	}
	return nil, false
}

// defaultWord expands the word of ${x-word}. Its unquoted text is split in the same way as a value.
func (r *runner) defaultWord(w *syntax.Word, inDbl, plain bool) []piece {
	if w == nil || len(w.Parts) == 0 {
		if inDbl {
			return []piece{{quoted, ""}}
		}
		return nil
	}
	parts := w.Parts
	if inDbl {
		parts = slices.Clone(parts)
		for i, p := range parts {
			switch p := p.(type) {
			case *syntax.Lit:
				if strings.Contains(p.Value, `\}`) {
					c := *p
					c.Value = strings.ReplaceAll(c.Value, `\}`, "}")
					parts[i] = &c
				}
			case *syntax.SglQuoted: // no quotes here
				if !p.Dollar {
					parts[i] = &syntax.DblQuoted{Parts: r.parsedWord("\"'" + strings.ReplaceAll(p.Value, `"`, `\"`) + "'\"")}
				}
			}
		}
	}
	ps := r.pieces(nil, parts, inDbl, plain)
	for i := range ps {
		if ps[i].kind == literal {
			ps[i].kind = valueKind(inDbl)
		}
	}
	return ps
}

// assignDefault evaluates ${x:=word}.
func (r *runner) assignDefault(pe *syntax.ParamExp, v value, inDbl, plain bool) []piece {
	name := pe.Param.Value
	if pe.Excl {
		name = v.name
	}
	if !isName(name) || isListIndex(pe.Index) {
		if isListIndex(pe.Index) {
			r.errorf("%s: bad array subscript", paramText(pe))
		} else {
			r.errorf("$%s: cannot assign in this way", name)
		}
		r.discard()
		return nil
	}
	s := joinPieces(r.defaultWord(pe.Exp.Word, inDbl, true))
	if r.flow != flowNone {
		return nil
	}
	ok := false
	if pe.Index != nil && !pe.Excl {
		sub, good := r.index(r.lookup(name), pe.Index)
		ok = good && r.setElem(name, sub, s, false)
	} else {
		ok = r.set(name, s)
	}
	if !ok {
		if r.flow == flowNone {
			r.discard()
		}
		return nil
	}
	got, _ := r.get(name)
	if pe.Index != nil {
		got = s
	}
	return []piece{{valueKind(inDbl), got}}
}

// each applies fn to a value or to every element of a list.
func (v value) each(fn func(string) string) value {
	if !v.many {
		v.s = fn(v.s)
		return v
	}
	v.list = slices.Clone(v.list)
	for i, s := range v.list {
		v.list[i] = fn(s)
	}
	return v
}

// slice evaluates ${x:off:len}.
func (r *runner) slice(pe *syntax.ParamExp, v value) value {
	off, length, hasLen := int64(0), int64(0), pe.Slice.Length != nil
	ok := true
	if pe.Slice.Offset != nil {
		if off, ok = r.arith(pe.Slice.Offset); !ok {
			r.discard()
			return value{}
		}
	}
	if hasLen {
		if length, ok = r.arith(pe.Slice.Length); !ok {
			r.discard()
			return value{}
		}
	}
	if v.many {
		return r.sliceList(pe, v, off, length, hasLen)
	}
	n := int64(utf8.RuneCountInString(v.s))
	if off < 0 {
		if off += n; off < 0 {
			v.s = ""
			return v
		}
	}
	if off > n {
		v.s = ""
		return v
	}
	to := n
	switch {
	case hasLen && length < 0:
		if to = n + length; to < off {
			r.errorf("%s: substring expression < 0", arithString(pe.Slice.Length))
			r.discard()
			return value{}
		}
	case hasLen:
		to = min(n, off+length)
	}
	if int64(len(v.s)) == n {
		v.s = v.s[off:to]
		return v
	}
	runes := 0
	start, end := len(v.s), len(v.s)
	for i := 0; i < len(v.s); runes++ {
		if int64(runes) == off {
			start = i
		}
		if int64(runes) == to {
			end = i
			break
		}
		_, w := decode(v.s, i)
		i += w
	}
	v.s = v.s[min(start, end):end]
	return v
}

// sliceList is slice for a list.
func (r *runner) sliceList(pe *syntax.ParamExp, v value, off, length int64, hasLen bool) value {
	if hasLen && length < 0 {
		r.errorf("%s: substring expression < 0", arithString(pe.Slice.Length))
		r.discard()
		return value{}
	}
	list := v.list
	switch {
	case v.pos:
		if off == 0 {
			list = append([]string{r.name}, r.params...)
		} else if off < 0 {
			if off += int64(len(r.params)) + 1; off < 0 {
				list = nil
			} else {
				list = append([]string{r.name}, r.params...)
			}
		} else {
			off--
		}
	case v.v != nil && v.v.arr != nil: // the offset is an index
		if off < 0 {
			off += int64(v.v.arr.next())
		}
		if off < 0 {
			list, off = nil, 0
		} else {
			at, _ := slices.BinarySearch(v.v.arr.keys, int(min(off, maxIndex)))
			off = int64(at)
		}
	case off < 0:
		if off += int64(len(list)); off < 0 {
			list = nil
		}
	}
	off = min(max(off, 0), int64(len(list)))
	list = list[off:]
	if hasLen {
		list = list[:min(length, int64(len(list)))]
	}
	v.list = list
	return v
}

// replace evaluates ${x/pat/with} and its relatives.
func (r *runner) replace(rp *syntax.Replace, v value) value {
	rp = slashPattern(rp)
	pat := r.pattern(rp.Orig)
	var rep replacement
	if rp.With != nil {
		rep = r.replacementOf(r.pieces(nil, rp.With.Parts, false, true))
	} else {
		rep = replacement{""}
	}
	if r.flow != flowNone {
		return value{}
	}
	mode := replaceFirst
	switch {
	case rp.All:
		mode = replaceAll
	case pat == "":
		return v
	case pat[0] == '#':
		mode, pat = replaceFront, pat[1:]
	case pat[0] == '%':
		mode, pat = replaceBack, pat[1:]
	}
	if pat == "" && mode == replaceAll {
		return v
	}
	return v.each(func(s string) string { return r.replacePattern(s, pat, rep, mode) })
}

// replacementOf finds the places in an expanded replacement where the match is inserted: every
// unquoted '&'.
func (r *runner) replacementOf(ps []piece) replacement {
	rep := replacement{""}
	add := func(s string) { rep[len(rep)-1] += s }
	for _, p := range ps {
		if p.kind == boundary {
			add(" ")
			continue
		}
		if p.kind == quoted || !r.opts.patsubReplacement || !strings.ContainsAny(p.s, `&\`) {
			add(p.s)
			continue
		}
		start := 0
		for i := 0; i < len(p.s); i++ {
			switch c := p.s[i]; {
			case c == '\\' && i+1 < len(p.s) && (p.s[i+1] == '&' || p.s[i+1] == '\\'):
				add(p.s[start:i])
				start = i + 1
				i++
			case c == '&':
				add(p.s[start:i])
				rep = append(rep, "")
				start = i + 1
			}
		}
		add(p.s[start:])
	}
	return rep
}

// modify evaluates prefix and suffix removal, case changes and @ operators.
func (r *runner) modify(pe *syntax.ParamExp, v value) value {
	op := pe.Exp.Op
	switch op {
	case syntax.RemSmallPrefix, syntax.RemLargePrefix, syntax.RemSmallSuffix, syntax.RemLargeSuffix:
		pat := r.pattern(pe.Exp.Word)
		if pat == "" {
			return v
		}
		return v.each(func(s string) string { return r.trimPattern(s, pat, op) })
	case syntax.UpperFirst, syntax.UpperAll, syntax.LowerFirst, syntax.LowerAll:
		pat := r.pattern(pe.Exp.Word)
		conv := upper
		if op == syntax.LowerFirst || op == syntax.LowerAll {
			conv = lower
		}
		all := op == syntax.UpperAll || op == syntax.LowerAll
		return v.each(func(s string) string { return r.caseChange(s, pat, conv, all) })
	case syntax.OtherParamOps:
		return r.atOperator(pe, v)
	}
	return v
}

// caseChange changes the case of the characters that match: only the first one, or all.
func (r *runner) caseChange(s, pat string, conv func(rune) rune, all bool) string {
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); {
		c, n := decode(s, i)
		if c >= 0 && (all || i == 0) && (pat == "" || r.matchFold(pat, s[i:i+n], false)) {
			b = utf8.AppendRune(b, conv(c))
		} else {
			b = append(b, s[i:i+n]...)
		}
		i += n
	}
	return string(b)
}

// atOperator evaluates ${x@Q} and its relatives.
func (r *runner) atOperator(pe *syntax.ParamExp, v value) value {
	op := pe.Exp.Word.Lit()
	if op != "A" && op != "a" && !v.set && !v.many {
		return value{}
	}
	switch op {
	case "Q":
		return v.each(quoteReusable)
	case "U":
		return v.each(toUpper)
	case "L":
		return v.each(toLower)
	case "u":
		return v.each(func(s string) string {
			if s == "" {
				return s
			}
			c, n := decode(s, 0)
			if c < 0 {
				return s
			}
			return string(unicode.ToUpper(c)) + s[n:]
		})
	case "E":
		return v.each(func(s string) string { s, _ = unescape(s, escDollar); return s })
	case "P":
		return v.each(func(s string) string { return r.prompt(s, false) })
	case "a":
		return r.attributes(v)
	case "A":
		return r.declaration(v)
	case "K", "k":
		return r.keysAndValues(v, op == "k")
	}
	r.badSubstitution("${" + paramText(pe) + "@" + op + "}")
	return value{}
}

func quoteReusable(s string) string {
	if s == "" {
		return "''"
	}
	return quoteSingle(s)
}

func (r *runner) attributes(v value) value {
	if v.pos || v.v == nil {
		return value{many: v.many, star: v.star, list: make([]string, len(v.list))}
	}
	a := strings.Trim(v.v.flags(), "-")
	if !v.many {
		return value{s: a, set: true}
	}
	list := make([]string, len(v.list))
	for i := range list {
		list[i] = a
	}
	return value{many: true, star: v.star, list: list, set: true}
}

// declaration evaluates @A: a command that declares the variable again.
func (r *runner) declaration(v value) value {
	list := func(words ...string) value {
		if !v.many {
			return value{s: strings.Join(words, " "), set: true}
		}
		return value{many: true, star: v.star, list: words, set: true}
	}
	switch {
	case v.pos:
		words := []string{"set", "--"}
		for _, s := range v.list {
			words = append(words, quoteReusable(s))
		}
		return list(words...)
	case v.v == nil:
		if v.set && v.name != "" {
			return list(v.name + "=" + quoteReusable(v.s))
		}
		return value{many: v.many, star: v.star}
	}
	flags := v.v.flags()
	if v.many && v.v.isArray() {
		return list("declare", flags, v.name+v.v.literal())
	}
	if v.many {
		v.s, v.set = v.v.scalar()
	}
	switch {
	case flags == "--" && !v.set:
		return value{}
	case flags == "--":
		return list(v.name + "=" + quoteReusable(v.s))
	case !v.set:
		return list("declare " + flags + " " + v.name)
	}
	return list("declare " + flags + " " + v.name + "=" + quoteReusable(v.s))
}

// keysAndValues evaluates @K and @k.
func (r *runner) keysAndValues(v value, words bool) value {
	if !v.many || v.pos || v.v == nil || !v.v.isArray() {
		return v.each(quoteReusable)
	}
	keys, vals := v.v.keys(), v.v.list()
	if words {
		var list []string
		for i, k := range keys {
			list = append(list, k, vals[i])
		}
		return value{many: true, star: v.star, list: list, set: true}
	}
	var b strings.Builder
	for i, k := range keys {
		if v.v.assoc != nil {
			b.WriteString(quoteKey(k) + " " + quoteDecl(vals[i]) + " ")
			continue
		}
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(k + " " + quoteDecl(vals[i]))
	}
	return value{many: true, star: v.star, list: []string{b.String()}, set: true}
}

// unhex decodes the output of hexName.
func unhex(s string) string {
	b := make([]byte, 0, len(s)/2)
	for i := 0; i+1 < len(s); i += 2 {
		n, _ := strconv.ParseUint(s[i:i+2], 16, 8) // two digits of our own
		b = append(b, byte(n))
	}
	return string(b)
}

// slashPattern changes a replacement to bash's reading: the pattern of ${x//…} has at least one
// character, and that may be a slash.
func slashPattern(rp *syntax.Replace) *syntax.Replace {
	if !rp.All || rp.Orig != nil && len(rp.Orig.Parts) > 0 || rp.With == nil {
		return rp
	}
	orig, with := []syntax.WordPart{&syntax.Lit{Value: "/"}}, []syntax.WordPart(nil)
	for i, p := range rp.With.Parts {
		if l, ok := p.(*syntax.Lit); ok {
			if at := unescapedSlash(l.Value); at >= 0 {
				orig = append(orig, &syntax.Lit{Value: l.Value[:at]})
				with = append(with, &syntax.Lit{Value: l.Value[at+1:]})
				with = append(with, rp.With.Parts[i+1:]...)
				break
			}
		}
		orig = append(orig, p)
	}
	return &syntax.Replace{All: true, Orig: &syntax.Word{Parts: orig}, With: &syntax.Word{Parts: with}}
}

func unescapedSlash(s string) int {
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '/':
			return i
		}
	}
	return -1
}
