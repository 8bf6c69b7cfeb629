package sh

import (
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"mvdan.cc/sh/v3/syntax"
)

// value is what a parameter stands for.
type value struct {
	s    string
	set  bool
	list []string // of $@, $*, ${a[@]} and ${a[*]}
	many bool     // it is such a list
	star bool     // of the * kind
}

// paramPieces expands a parameter.
func (r *runner) paramPieces(out []piece, pe *syntax.ParamExp, inDbl, plain bool) []piece {
	v, ps, done := r.param(pe, inDbl, plain)
	if done {
		return append(out, ps...)
	}
	k := valueKind(inDbl)
	if !v.many {
		if v.s == "" && !inDbl {
			return append(out, piece{k, ""})
		}
		return append(out, piece{k, v.s})
	}
	if v.star && inDbl || plain && v.star {
		return append(out, piece{k, strings.Join(v.list, r.ifsFirst())})
	}
	for i, s := range v.list {
		if i > 0 {
			out = append(out, piece{kind: boundary})
		}
		out = append(out, piece{k, s})
	}
	return out
}

// ifsFirst is what joins the elements of "$*".
func (r *runner) ifsFirst() string {
	ifs, ok := r.get("IFS")
	switch {
	case !ok:
		return " "
	case ifs == "":
		return ""
	}
	return ifs[:1]
}

// param evaluates a parameter expansion. With done the result is ps (the pieces
// of a default word), otherwise v.
func (r *runner) param(pe *syntax.ParamExp, inDbl, plain bool) (v value, ps []piece, done bool) {
	if pe.Param == nil || pe.NestedParam != nil || pe.Flags != nil || pe.Width || len(pe.Modifiers) > 0 {
		r.errorf("bad substitution")
		r.abort(1)
		return value{}, nil, true
	}
	name := pe.Param.Value
	if pe.Excl {
		switch {
		case pe.Names != 0:
			return value{list: r.names(name), many: true, star: pe.Names == syntax.NamesPrefix, set: true}, nil, false
		case isListIndex(pe.Index):
			vr := r.lookup(name)
			return value{list: vr.keys(), many: true, star: indexLit(pe.Index) == "*", set: true}, nil, false
		}
		target, ok := r.indirect(name, pe.Index)
		if !ok {
			return value{}, nil, true
		}
		v = target
	} else {
		v = r.paramValue(name, pe.Index)
	}
	if pe.Length {
		if v.many {
			return value{s: strconv.Itoa(len(v.list)), set: true}, nil, false
		}
		r.checkSet(pe, v)
		return value{s: strconv.Itoa(utf8.RuneCountInString(v.s)), set: true}, nil, false
	}
	if pe.Exp != nil {
		if ps, done = r.defaults(pe, v, inDbl, plain); done {
			return v, ps, true
		}
	}
	if !r.checkSet(pe, v) {
		return value{}, nil, true
	}
	switch {
	case pe.Slice != nil:
		v = r.slice(pe, v)
	case pe.Repl != nil:
		v = r.replace(pe.Repl, v)
	case pe.Exp != nil:
		v = r.modify(pe, v)
	}
	return v, nil, false
}

// checkSet enforces set -u.
func (r *runner) checkSet(pe *syntax.ParamExp, v value) bool {
	if !r.opts.nounset || v.set || v.many || pe.Exp != nil && pe.Exp.Op <= syntax.AssignUnsetOrNull {
		return true
	}
	r.errorf("%s: unbound variable", pe.Param.Value)
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
		v := r.lookup(name)
		if isListIndex(index) {
			l := v.list()
			if v == nil {
				if s, ok := r.dynamic(name); ok {
					l = []string{s}
				}
			}
			return value{list: l, many: true, star: indexLit(index) == "*", set: len(l) > 0}
		}
		return r.element(name, v, r.index(name, index))
	}
	switch name {
	case "@", "*":
		return value{list: r.params, many: true, star: name == "*", set: len(r.params) > 0}
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
	case "0":
		return value{s: r.name, set: true}
	case "_":
		return value{s: r.str("_"), set: true}
	}
	if c := name[0]; c >= '1' && c <= '9' {
		n, err := strconv.Atoi(name)
		if err != nil || n > len(r.params) {
			return value{}
		}
		return value{s: r.params[n-1], set: true}
	}
	s, ok := r.get(name)
	return value{s: s, set: ok}
}

// element returns one element of an array.
func (r *runner) element(name string, v *variable, index string) value {
	if v == nil {
		if name == "FUNCNAME" || name == "BASH_SOURCE" || name == "BASH_LINENO" {
			n, _ := strconv.Atoi(index)
			if at := len(r.calls) - 1 - n; name == "FUNCNAME" && at >= 0 && at < len(r.calls) {
				return value{s: r.calls[at].name, set: true}
			}
			if name == "BASH_SOURCE" && n == 0 {
				return value{s: r.name, set: true}
			}
		}
		return value{}
	}
	if v.assoc != nil {
		s, ok := v.assoc[index]
		return value{s: s, set: ok}
	}
	n, err := strconv.Atoi(index)
	if err != nil {
		return value{}
	}
	if v.arr == nil {
		if s, ok := v.scalar(); ok && (n == 0 || n == -1) {
			return value{s: s, set: true}
		}
		return value{}
	}
	if n < 0 {
		n += v.arr.next()
	}
	s, ok := v.arr.get(n)
	return value{s: s, set: ok}
}

// indirect evaluates ${!name}.
func (r *runner) indirect(name string, index syntax.ArithmExpr) (value, bool) {
	if raw := r.lookupRaw(name); raw != nil && raw.nameref {
		return value{s: raw.str, set: true}, true
	}
	v := r.paramValue(name, index)
	if !v.set || v.s == "" {
		r.errorf("%s: invalid indirect expansion", name)
		r.abort(1)
		return value{}, false
	}
	base, sub, isElem := strings.Cut(v.s, "[")
	if !isElem {
		if !isName(v.s) && !isSpecial(v.s) {
			r.errorf("%s: invalid variable name", v.s)
			r.abort(1)
			return value{}, false
		}
		return r.paramValue(v.s, nil), true
	}
	sub = strings.TrimSuffix(sub, "]")
	target := r.lookup(base)
	if sub == "@" || sub == "*" {
		return value{list: target.list(), many: true, star: sub == "*", set: true}, true
	}
	if target == nil || target.assoc == nil {
		n, _ := r.arithText(sub)
		sub = itoa64(n)
	}
	return r.element(base, target, sub), true
}

func isSpecial(s string) bool {
	if len(s) == 1 && strings.Contains("@*#?-$!0", s) {
		return true
	}
	_, err := strconv.Atoi(s)
	return err == nil
}

// defaults evaluates ${x:-w}, ${x:=w}, ${x:?w} and ${x:+w}.
func (r *runner) defaults(pe *syntax.ParamExp, v value, inDbl, plain bool) ([]piece, bool) {
	unset, null := !v.set, v.s == ""
	if v.many {
		null = len(v.list) == 0 || len(v.list) == 1 && v.list[0] == ""
	}
	word := func() []piece {
		if pe.Exp.Word == nil {
			return []piece{{valueKind(inDbl), ""}}
		}
		ps := r.pieces(nil, pe.Exp.Word.Parts, inDbl, plain)
		for i := range ps {
			if ps[i].kind == literal { // unquoted text of a default is split like a value
				ps[i].kind = valueKind(inDbl)
			}
		}
		return ps
	}
	switch pe.Exp.Op {
	case syntax.AlternateUnset, syntax.AlternateUnsetOrNull:
		if unset || pe.Exp.Op == syntax.AlternateUnsetOrNull && null {
			return nil, true
		}
		return word(), true
	case syntax.DefaultUnset, syntax.DefaultUnsetOrNull:
		if unset || pe.Exp.Op == syntax.DefaultUnsetOrNull && null {
			return word(), true
		}
	case syntax.ErrorUnset, syntax.ErrorUnsetOrNull:
		if unset || pe.Exp.Op == syntax.ErrorUnsetOrNull && null {
			msg := r.text(pe.Exp.Word)
			if msg == "" {
				msg = "parameter null or not set"
				if pe.Exp.Op == syntax.ErrorUnset {
					msg = "parameter not set"
				}
			}
			r.errorf("%s: %s", pe.Param.Value, msg)
			r.abortExpansion()
			return nil, true
		}
	case syntax.AssignUnset, syntax.AssignUnsetOrNull:
		if unset || pe.Exp.Op == syntax.AssignUnsetOrNull && null {
			s := r.text(pe.Exp.Word)
			if pe.Index != nil {
				r.setElem(pe.Param.Value, r.index(pe.Param.Value, pe.Index), s, false)
			} else {
				r.set(pe.Param.Value, s)
			}
			return []piece{{valueKind(inDbl), s}}, true
		}
	}
	return nil, false
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
	if pe.Slice.Offset != nil {
		off, _ = r.arith(pe.Slice.Offset)
	}
	if hasLen {
		length, _ = r.arith(pe.Slice.Length)
	}
	cut := func(n int64, negLen bool) (from, to int64, ok bool) {
		from = off
		if from < 0 {
			if from += n; from < 0 {
				return 0, 0, true
			}
		}
		from = min(from, n)
		to = n
		if hasLen {
			if length < 0 {
				if !negLen || n+length < from {
					r.errorf("%d: substring expression < 0", length)
					r.abort(1)
					return 0, 0, false
				}
				to = n + length
			} else {
				to = min(n, from+length)
			}
		}
		return from, to, true
	}
	if v.many {
		list := v.list
		if pe.Param.Value == "@" || pe.Param.Value == "*" {
			list = append([]string{r.name}, r.params...)
			if off == 0 && pe.Slice.Offset == nil {
				list = list[1:]
			}
		}
		from, to, ok := cut(int64(len(list)), false)
		if !ok {
			return value{}
		}
		v.list = list[from:to]
		return v
	}
	runes := []rune(v.s)
	from, to, ok := cut(int64(len(runes)), true)
	if !ok {
		return value{}
	}
	v.s = string(runes[from:to])
	return v
}

// replace evaluates ${x/pat/with} and its relatives.
func (r *runner) replace(rp *syntax.Replace, v value) value {
	pat, with := r.pattern(rp.Orig), ""
	if rp.With != nil {
		with = r.text(rp.With)
	}
	if pat == "" {
		return v
	}
	mode := replaceFirst
	switch {
	case rp.All:
		mode = replaceAll
	case pat[0] == '#' && !rp.All:
		mode, pat = replaceFront, pat[1:]
	case pat[0] == '%':
		mode, pat = replaceBack, pat[1:]
	}
	return v.each(func(s string) string { return r.replacePattern(s, pat, with, mode) })
}

// modify evaluates prefix and suffix removal, case changes and @ operators.
func (r *runner) modify(pe *syntax.ParamExp, v value) value {
	op := pe.Exp.Op
	switch op {
	case syntax.RemSmallPrefix, syntax.RemLargePrefix, syntax.RemSmallSuffix, syntax.RemLargeSuffix:
		pat := r.pattern(pe.Exp.Word)
		return v.each(func(s string) string { return r.trimPattern(s, pat, op) })
	case syntax.UpperFirst, syntax.UpperAll, syntax.LowerFirst, syntax.LowerAll:
		pat := r.pattern(pe.Exp.Word)
		conv := unicode.ToUpper
		if op == syntax.LowerFirst || op == syntax.LowerAll {
			conv = unicode.ToLower
		}
		all := op == syntax.UpperAll || op == syntax.LowerAll
		return v.each(func(s string) string {
			runes := []rune(s)
			for i, c := range runes {
				if i > 0 && !all {
					break
				}
				if pat == "" || r.match(pat, string(c)) {
					runes[i] = conv(c)
				}
			}
			return string(runes)
		})
	case syntax.OtherParamOps:
		return r.atOperator(pe, v)
	}
	return v
}

// atOperator evaluates ${x@Q} and its relatives.
func (r *runner) atOperator(pe *syntax.ParamExp, v value) value {
	switch o := pe.Exp.Word.Lit(); o {
	case "Q":
		if !v.set && !v.many {
			return v
		}
		return v.each(quoteSingle)
	case "U":
		return v.each(strings.ToUpper)
	case "L":
		return v.each(strings.ToLower)
	case "u":
		return v.each(func(s string) string {
			c, n := utf8.DecodeRuneInString(s)
			if n == 0 {
				return s
			}
			return string(unicode.ToUpper(c)) + s[n:]
		})
	case "E":
		return v.each(func(s string) string { s, _ = unescape(s, escDollar); return s })
	case "a":
		if vr := r.lookup(pe.Param.Value); vr != nil {
			return value{s: strings.Trim(vr.flags(), "-"), set: true}
		}
	default:
		r.errorf("${%s@%s}: bad substitution", pe.Param.Value, o)
		r.abort(1)
	}
	return value{}
}
