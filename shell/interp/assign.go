package interp

import (
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// assignValue expands the value of an assignment.
func (r *runner) assignValue(w *syntax.Word) string {
	if w == nil {
		return ""
	}
	if len(w.Parts) == 1 {
		if s, ok := r.simplePart(w.Parts[0]); ok {
			return s
		}
	}
	was := r.inAssign
	r.inAssign = true
	ps := r.pieces(r.takePieces(), w.Parts, false, true)
	r.inAssign = was
	s := joinPieces(ps)
	r.givePieces(ps)
	return s
}

// assign performs one assignment.
func (r *runner) assign(a *syntax.Assign) bool {
	if strings.HasPrefix(a.Name.Value, badList) {
		r.errorf("%s: cannot assign list to array member", unhex(a.Name.Value[len(badList):]))
		return false
	}
	if a.Array != nil && a.Index != nil {
		r.errorf("%s[%s]: cannot assign list to array member", a.Name.Value, arithString(a.Index))
		return false
	}
	if a.Array != nil {
		return r.assignArray(a.Name.Value, r.arrayElems(a.Array), a.Append)
	}
	value := r.assignValue(a.Value)
	if r.flow != flowNone {
		return false
	}
	if a.Index == nil {
		return r.assignText(a.Name.Value, value, a.Append)
	}
	return r.assignElem(a, value)
}

// assignElem performs name[sub]=value.
func (r *runner) assignElem(a *syntax.Assign, value string) bool {
	name := a.Name.Value
	p := r.resolve(name)
	if p.bad {
		return false
	}
	var sub string
	if p.v != nil && p.v.assoc != nil {
		sub = r.indexText(a.Index)
	} else {
		s, ok := r.arithSource(a.Index, false)
		if !ok {
			return false
		}
		sub = s
	}
	if r.flow != flowNone {
		return false
	}
	return r.setElem(name, sub, value, a.Append)
}

// assignTemp stores the assignments before a command in the innermost scope.
func (r *runner) assignTemp(as []*syntax.Assign) {
	for _, a := range as {
		if a.Array != nil || a.Index != nil {
			if !r.assign(a) && r.flow == flowNone {
				r.status = 1
			}
			continue
		}
		value := r.assignValue(a.Value)
		if r.flow != flowNone {
			return
		}
		name := a.Name.Value
		if strings.HasPrefix(name, badAssign) {
			r.errorf("`%s': not a valid identifier", unhex(name[len(badAssign):]))
			continue
		}
		p := r.resolve(name)
		if p.v != nil && p.v.readonly {
			r.errorf("%s: readonly variable", name)
			continue
		}
		if !p.bad && !p.elem {
			name = p.name
		}
		v := &variable{set: true, exported: true}
		if p.v != nil {
			v.integer, v.upper, v.lower, v.capital = p.v.integer, p.v.upper, p.v.lower, p.v.capital
		}
		old, _ := p.v.scalar()
		value, ok := r.coerce(v, old, value, a.Append)
		if !ok {
			continue
		}
		v.str = value
		r.place(len(r.scopes)-1, name, v)
		r.payVar(v, len(value))
		r.assigned(name)
	}
}

// arrayElem is an expanded element of name=(…).
type arrayElem struct {
	index  syntax.ArithmExpr // nil for none
	values []string
	add    bool // [k]+=v
}

// arrayElems expands the elements in the parentheses of an assignment.
func (r *runner) arrayElems(ax *syntax.ArrayExpr) []arrayElem {
	elems := make([]arrayElem, 0, len(ax.Elems))
	for _, e := range ax.Elems {
		switch {
		case e.Index != nil:
			w, add := cutMark(e.Value)
			elems = append(elems, arrayElem{e.Index, []string{r.assignValue(w)}, add})
		case e.Value != nil:
			elems = append(elems, arrayElem{nil, r.fields([]*syntax.Word{e.Value}), false})
		}
		if r.flow != flowNone {
			return nil
		}
	}
	return elems
}

// assignArray performs name=(…) and name+=(…).
func (r *runner) assignArray(name string, elems []arrayElem, add bool) bool {
	if r.flow != flowNone {
		return false
	}
	p := r.resolve(name)
	if p.elem {
		r.errorf("%s[%s]: cannot assign list to array member", p.name, p.sub)
		return false
	}
	if p.v == nil {
		if handled, ok := r.special(p.name, ""); handled {
			return ok
		}
	}
	return r.fillArray(p.name, r.targetOf(p), elems, add)
}

// fillArray is assignArray for a variable that the caller has checked: it may be changed.
func (r *runner) fillArray(name string, v *variable, elems []arrayElem, add bool) bool {
	if v.readonly {
		r.errorf("%s: readonly variable", name)
		return false
	}
	if v.nameref {
		v.nameref = false
	}
	// Evaluate the indexes first, while the old elements are still there.
	v.own()
	switch {
	case v.assoc != nil && !add:
		fresh := *v
		fresh.assoc = newAssoc()
		ok := r.fillAssoc(name, &fresh, v.assoc, elems)
		v.assoc, v.set = fresh.assoc, true
		v.paid = fresh.paid
		return ok
	case v.assoc != nil:
		v.set = true
		return r.fillAssoc(name, v, v.assoc, elems)
	case add:
		v.toArray()
	default:
		r.refund(v)
		v.arr, v.str = &array{}, ""
	}
	v.set = true
	next := v.arr.next()
	for _, e := range elems {
		for _, value := range e.values {
			if e.index != nil {
				s, ok := r.arithSource(e.index, false)
				if !ok {
					return false
				}
				if next, ok = r.indexNumber(name, v, s); !ok {
					if r.flow != flowNone {
						return false
					}
					continue
				}
			}
			old := ""
			if e.add {
				old, _ = v.arr.get(next)
			}
			value, ok := r.coerce(v, old, value, e.add)
			if !ok {
				return false
			}
			r.payVar(v, len(value)+24)
			if r.flow != flowNone {
				return false
			}
			v.arr.put(next, value)
			next++
		}
	}
	return true
}

// fillAssoc puts elements into an associative array: [key]=value, or keys and values in turn.
// [key]+=value adds to the value in before, even when the new array begins empty.
func (r *runner) fillAssoc(name string, v *variable, before *assoc, elems []arrayElem) bool {
	put := func(k, value string, add bool) bool {
		if k == "" {
			r.errorf("%s[%s]: bad array subscript", name, k)
			return true
		}
		old, has := v.assoc.get(k)
		sum := old
		if add {
			sum, _ = before.get(k)
		}
		value, ok := r.coerce(v, sum, value, add)
		if !ok {
			return false
		}
		if !has {
			r.payVar(v, len(k)+64)
		}
		r.payVar(v, len(value)-len(old))
		v.assoc.put(k, value)
		return r.flow == flowNone
	}
	if len(elems) > 0 && elems[0].index == nil {
		var all []string
		for _, e := range elems {
			all = append(all, e.values...)
		}
		for i := 0; i < len(all); i += 2 {
			value := ""
			if i+1 < len(all) {
				value = all[i+1]
			}
			if !put(all[i], value, false) {
				return false
			}
		}
		return true
	}
	for _, e := range elems {
		if e.index == nil {
			for _, value := range e.values {
				r.errorf("%s: %s: must use subscript when assigning associative array", name, value)
			}
			continue
		}
		if !put(r.indexText(e.index), e.values[0], e.add) {
			return false
		}
	}
	return true
}

// textElems parses the text "(…)" as the elements of an array.
func (r *runner) textElems(text string) ([]arrayElem, bool) {
	if !strings.HasPrefix(text, "(") || !strings.HasSuffix(text, ")") {
		return nil, false
	}
	stmts, err := parse("_=" + text)
	if err != nil || len(stmts) != 1 {
		return nil, false
	}
	c, ok := stmts[0].Cmd.(*syntax.CallExpr)
	if !ok || len(c.Assigns) != 1 || c.Assigns[0].Array == nil {
		return nil, false
	}
	return r.arrayElems(c.Assigns[0].Array), true
}

// cutMark removes the mark of [k]+=v from a value.
func cutMark(w *syntax.Word) (*syntax.Word, bool) {
	if w == nil || len(w.Parts) == 0 {
		return w, false
	}
	l, ok := w.Parts[0].(*syntax.Lit)
	if !ok || !strings.HasPrefix(l.Value, appendMark) {
		return w, false
	}
	parts := slices.Clone(w.Parts)
	if rest := l.Value[len(appendMark):]; rest == "" {
		parts = parts[1:]
	} else {
		parts[0] = &syntax.Lit{ValuePos: l.ValuePos, ValueEnd: l.ValueEnd, Value: rest}
	}
	return &syntax.Word{Parts: parts}, true
}
