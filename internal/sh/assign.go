package sh

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// assign performs one assignment. With local it goes to the innermost scope,
// where the caller has put the variable.
func (r *runner) assign(a *syntax.Assign, local bool) bool {
	name := a.Name.Value
	if a.Array != nil {
		return r.assignArray(name, a.Array, a.Append)
	}
	value := ""
	if a.Value != nil {
		value = r.text(a.Value)
	}
	if r.flow != flowNone {
		return false
	}
	if a.Index != nil {
		return r.setElem(name, r.index(name, a.Index), value, a.Append)
	}
	if a.Append {
		v := r.target(name)
		if local && !v.set {
			// FOO+=x cmd adds to what the outer FOO is
			r.scopes = r.scopes[:len(r.scopes)-1]
			old := r.str(name)
			r.scopes = r.scopes[:len(r.scopes)+1]
			value = old + value
			return r.set(name, value)
		}
		old, _ := v.scalar()
		if v.integer {
			n, _ := r.arithText(value)
			m, _ := r.arithText(old)
			return r.set(name, itoa64(m+n))
		}
		return r.set(name, old+value)
	}
	return r.set(name, value)
}

// index returns the subscript of an element: text for an associative array, an
// expression for any other.
func (r *runner) index(name string, x syntax.ArithmExpr) string {
	if v := r.lookup(name); v != nil && v.assoc != nil {
		return r.indexText(x)
	}
	n, ok := r.arith(x)
	if !ok {
		return ""
	}
	return itoa64(n)
}

// indexText is a subscript as text.
func (r *runner) indexText(x syntax.ArithmExpr) string {
	if w, ok := x.(*syntax.Word); ok {
		return r.text(w)
	}
	var b strings.Builder
	if err := syntax.NewPrinter().Print(&b, x); err != nil {
		return ""
	}
	return b.String()
}

// assignArray performs name=(…) and name+=(…).
func (r *runner) assignArray(name string, ax *syntax.ArrayExpr, add bool) bool {
	type elem struct {
		index  syntax.ArithmExpr
		values []string
	}
	elems := make([]elem, 0, len(ax.Elems))
	for _, e := range ax.Elems {
		switch {
		case e.Index != nil:
			value := ""
			if e.Value != nil {
				value = r.text(e.Value)
			}
			elems = append(elems, elem{e.Index, []string{value}})
		case e.Value != nil:
			elems = append(elems, elem{nil, r.fields([]*syntax.Word{e.Value})})
		}
	}
	v := r.target(name)
	if v.readonly {
		r.errorf("%s: readonly variable", name)
		return false
	}
	v.own()
	switch {
	case v.assoc != nil && !add:
		v.assoc = map[string]string{}
	case v.assoc == nil && !add:
		v.arr = &array{}
	case v.assoc == nil && v.arr == nil:
		v.arr = &array{}
		if v.set {
			v.arr.put(0, v.str)
		}
	}
	v.set = true
	for _, e := range elems {
		for _, value := range e.values {
			switch {
			case e.index != nil:
				if !r.setElem(name, r.index(name, e.index), value, false) {
					return false
				}
			case v.assoc != nil:
				v.assoc[value] = ""
			default:
				r.pay(len(value) + 24)
				v.arr.put(v.arr.next(), r.coerce(v, value))
			}
		}
		if r.flow != flowNone {
			return false
		}
	}
	return true
}

// declared is what declare and its relatives do to a variable.
type declared struct {
	local, global, print                  bool
	export, readonly, integer             *bool
	indexed, assoc, nameref, upper, lower bool
	funcs                                 bool
}

// decl runs declare, local, export, readonly, typeset and nameref.
func (r *runner) decl(c *syntax.DeclClause) {
	yes, no := true, false
	d := declared{local: r.inFunc()}
	switch c.Variant.Value {
	case "export":
		d.export, d.local = &yes, false
	case "readonly":
		d.readonly, d.local = &yes, false
	case "nameref":
		d.nameref = true
	case "local":
		if !r.inFunc() {
			r.errorf("local: can only be used in a function")
			r.status = 1
			return
		}
	}
	r.status, r.substStatus = 0, 0
	named := false
	for _, a := range c.Args {
		if a.Name == nil { // an option, or a word that expands to assignments
			for _, word := range r.fields([]*syntax.Word{a.Value}) {
				switch {
				case word == "--":
				case len(word) > 1 && (word[0] == '-' || word[0] == '+'):
					on := &yes
					if word[0] == '+' {
						on = &no
					}
					d.option(word[1:], on)
				default:
					named = true
					r.declareText(d, word, c.Variant.Value)
				}
			}
			continue
		}
		named = true
		r.declare(d, a)
	}
	if !named || d.print {
		r.printDecls(d, c)
	}
}

// option applies a bundle of option letters.
func (d *declared) option(letters string, on *bool) {
	for _, l := range letters {
		switch l {
		case 'x':
			d.export = on
		case 'n':
			if d.export != nil {
				no := false
				d.export = &no
			} else {
				d.nameref = *on
			}
		case 'r':
			d.readonly = on
		case 'i':
			d.integer = on
		case 'a':
			d.indexed = true
		case 'A':
			d.assoc = true
		case 'u':
			d.upper = *on
		case 'l':
			d.lower = *on
		case 'g':
			d.global, d.local = true, false
		case 'p':
			d.print = true
		case 'f', 'F':
			d.funcs = true
		}
	}
}

// declareText declares a name, or name=value, that came out of an expansion.
func (r *runner) declareText(d declared, word, variant string) {
	name, value, has := strings.Cut(word, "=")
	add := has && strings.HasSuffix(name, "+")
	name = strings.TrimSuffix(name, "+")
	if d.funcs {
		if r.funcs[name] == nil {
			r.status = 1
		}
		return
	}
	if !isName(name) {
		r.errorf("%s: `%s': not a valid identifier", variant, word)
		r.status = 1
		return
	}
	a := &syntax.Assign{Name: &syntax.Lit{Value: name}, Naked: !has, Append: add}
	if has {
		a.Value = &syntax.Word{Parts: []syntax.WordPart{&syntax.SglQuoted{Value: value}}}
	}
	r.declare(d, a)
}

// declare applies attributes and an assignment to one variable.
func (r *runner) declare(d declared, a *syntax.Assign) {
	name := a.Name.Value
	if d.print && a.Naked {
		if v := r.lookup(name); v == nil {
			r.errorf("declare: %s: not found", name)
			r.status = 1
		}
		return
	}
	if d.funcs {
		return
	}
	if d.local {
		top := r.scopes[len(r.scopes)-1]
		if top[name] == nil {
			top[name] = &variable{}
			r.pay(len(name) + 64)
		}
	}
	v := r.target(name)
	if d.nameref {
		v = r.lookupRaw(name)
		if v == nil {
			v = r.target(name)
		}
		if a.Value != nil {
			v.str, v.set = r.text(a.Value), true
		}
		v.nameref = true
		return
	}
	if d.integer != nil && !v.readonly {
		v.integer = *d.integer
	}
	v.upper, v.lower = v.upper || d.upper, v.lower || d.lower
	if d.assoc && v.assoc == nil {
		v.assoc, v.arr = map[string]string{}, nil
	}
	if d.indexed && v.arr == nil && v.assoc == nil {
		v.arr = &array{}
		if v.set {
			v.arr.put(0, v.str)
		}
	}
	if !a.Naked && !r.assign(a, false) {
		r.status = 1
		return
	}
	v = r.target(name)
	if d.export != nil {
		v.exported = *d.export
	}
	if d.readonly != nil && *d.readonly {
		v.readonly = true
	}
}

// printDecls prints variables in a form that can be read back.
func (r *runner) printDecls(d declared, c *syntax.DeclClause) {
	var names []string
	for _, a := range c.Args {
		if a.Name != nil {
			names = append(names, a.Name.Value)
		}
	}
	if len(names) == 0 {
		names = r.names("")
	}
	for _, n := range names {
		v := r.lookup(n)
		if v == nil || d.export != nil && !v.exported || d.readonly != nil && !v.readonly {
			continue
		}
		r.writeFD(1, []byte("declare "+v.flags()+" "+n+v.literal()+"\n"))
	}
}

func (v *variable) flags() string {
	f := "-"
	for _, x := range []struct {
		on bool
		c  string
	}{{v.arr != nil, "a"}, {v.assoc != nil, "A"}, {v.integer, "i"}, {v.lower, "l"}, {v.readonly, "r"}, {v.upper, "u"}, {v.exported, "x"}} {
		if x.on {
			f += x.c
		}
	}
	if f == "-" {
		return "--"
	}
	return f
}

// literal is a variable's value as an assignment.
func (v *variable) literal() string {
	quote := func(s string) string {
		return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, `$`, `\$`, "`", "\\`").Replace(s) + `"`
	}
	if v.arr == nil && v.assoc == nil {
		if !v.set {
			return ""
		}
		return "=" + quote(v.str)
	}
	keys, vals := v.keys(), v.list()
	parts := make([]string, len(keys))
	for i, k := range keys {
		parts[i] = "[" + k + "]=" + quote(vals[i])
	}
	out := "=(" + strings.Join(parts, " ")
	if v.assoc != nil && len(parts) > 0 {
		out += " "
	}
	return out + ")"
}
