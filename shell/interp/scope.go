package interp

import (
	"maps"
	"slices"
	"sort"
	"strings"
	"sync/atomic"
)

// Scopes hold the variables. The first scope is the shell's. Each other scope belongs to a function
// call, or to the assignments before a command.
//
// A fork sees its parent's scopes and copies the parts that it changes. A scope belongs to one
// runner. Another runner first puts its own scope over it. While forks are alive, their parent
// doesn't change the scopes that they see: it leaves those to them and works on copies. In the
// usual case the parent waits for its fork, and nothing is copied.

// scope is one level of variables.
type scope struct {
	vars  map[string]*variable // nil: removed here, even if base has it
	base  *scope               // what this one is laid over
	owner *runner
	fn    bool     // of a function call
	chain int      // how many scopes are below
	saved *options // what local - puts back
}

func (s *scope) get(name string) *variable {
	for t := s; t != nil; t = t.base {
		if v, ok := t.vars[name]; ok {
			return v
		}
	}
	return nil
}

// each calls fn for every variable.
func (s *scope) each(fn func(name string, v *variable)) {
	if s.base == nil {
		for name, v := range s.vars {
			if v != nil {
				fn(name, v)
			}
		}
		return
	}
	seen := map[string]bool{}
	for t := s; t != nil; t = t.base {
		for name, v := range t.vars {
			if !seen[name] {
				seen[name] = true
				if v != nil {
					fn(name, v)
				}
			}
		}
	}
}

// flat returns a copy of a scope that needs no base.
func (s *scope) flat(owner *runner) *scope {
	c := &scope{vars: make(map[string]*variable, len(s.vars)+8), owner: owner, fn: s.fn, saved: s.saved}
	s.each(func(name string, v *variable) { c.vars[name] = v.copy() })
	return c
}

// lend prepares the scopes of the fork s from those of its parent.
func (r *runner) lend(s *runner) {
	if r.lent == nil {
		r.lent = new(atomic.Int32)
	}
	r.lent.Add(1)
	s.borrowed = r.lent
	s.lent = nil
	s.scopes = slices.Clone(r.scopes)
	// A chain grows with forks inside forks, and nothing limits those. Each lookup pays for a long
	// chain.
	const longest = 8
	for i, sc := range s.scopes {
		if sc.chain >= longest {
			s.scopes[i] = sc.flat(s)
		}
	}
}

// giveBack ends a fork's use of its parent's scopes.
func (r *runner) giveBack() {
	if r.borrowed != nil {
		r.borrowed.Add(-1)
		r.borrowed = nil
	}
}

// own returns scope i in a form that this runner may change.
func (r *runner) own(i int) *scope {
	if r.lent != nil && r.lent.Load() > 0 {
		for j, sc := range r.scopes {
			r.scopes[j] = sc.flat(r)
		}
		r.lent = nil
	}
	sc := r.scopes[i]
	if sc.owner != r {
		sc = &scope{vars: map[string]*variable{}, base: sc, owner: r, fn: sc.fn, saved: sc.saved, chain: sc.chain + 1}
		r.scopes[i] = sc
	}
	return sc
}

// mutable returns a variable of scope i in a form that may be changed, or nil when there is none.
func (r *runner) mutable(name string, i int) *variable {
	sc := r.own(i)
	v, ok := sc.vars[name]
	if ok || sc.base == nil {
		return v
	}
	if v = sc.base.get(name); v != nil {
		v = v.copy()
		sc.vars[name] = v
	}
	return v
}

// place puts a variable into scope i.
func (r *runner) place(i int, name string, v *variable) *variable {
	sc := r.own(i)
	if old := sc.vars[name]; old != nil {
		r.refund(old)
	}
	if sc.vars == nil {
		sc.vars = map[string]*variable{}
	}
	sc.vars[name] = v
	r.payVar(v, len(name)+64)
	return v
}

// drop removes a variable from scope i.
func (r *runner) drop(i int, name string) {
	sc := r.own(i)
	if old := sc.vars[name]; old != nil {
		r.refund(old)
	}
	if sc.base == nil {
		delete(sc.vars, name)
	} else {
		sc.vars[name] = nil
	}
}

func (r *runner) payVar(v *variable, n int) {
	if n != 0 {
		v.paid += n
		r.pay(n)
	}
}

func (r *runner) refund(v *variable) {
	if v.paid != 0 {
		r.pay(-v.paid)
		v.paid = 0
	}
}

// pushScope begins a level of variables.
func (r *runner) pushScope(fn bool) {
	r.scopes = append(r.scopes, &scope{owner: r, fn: fn})
}

// popScope ends it.
func (r *runner) popScope() {
	last := len(r.scopes) - 1
	sc := r.scopes[last]
	r.scopes[last] = nil
	r.scopes = r.scopes[:last]
	if sc.saved != nil {
		r.opts = *sc.saved
	}
	if sc.owner == r {
		for _, v := range sc.vars {
			if v != nil {
				r.refund(v)
			}
		}
	}
}

// localScope returns the scope of the innermost function call, or 0 outside of functions.
func (r *runner) localScope() int {
	for i := len(r.scopes) - 1; i > 0; i-- {
		if r.scopes[i].fn {
			return i
		}
	}
	return 0
}

// find looks up a variable without following references, and returns its scope.
func (r *runner) find(name string) (*variable, int) {
	for i := len(r.scopes) - 1; i >= 0; i-- {
		if v := r.scopes[i].get(name); v != nil {
			return v, i
		}
	}
	return nil, -1
}

func (r *runner) lookupRaw(name string) *variable {
	v, _ := r.find(name)
	return v
}

// place is the variable or element that a name means after following name references.
type place struct {
	name string
	sub  string // the subscript, when a reference names an element
	elem bool
	v    *variable // nil when there is none
	at   int       // its scope
	bad  bool      // references go in a circle
	ref  bool      // a reference was followed
}

// maxRefs is the longest chain of references to a variable, as in bash.
const maxRefs = 8

// resolve follows name references.
func (r *runner) resolve(name string) place {
	v, at := r.find(name)
	if v == nil || !v.nameref || v.str == "" {
		return place{name: name, v: v, at: at}
	}
	first := name
	for range maxRefs {
		to := v.str
		if base, sub, ok := cutSubscript(to); ok {
			p := r.resolve1(base)
			p.sub, p.elem, p.ref = sub, true, true
			return p
		}
		if to == name { // a local that refers to its own name means the global variable
			if at == 0 {
				break
			}
			g := r.scopes[0].get(to)
			if g == nil || !g.nameref {
				r.errorf("warning: %s: circular name reference", first)
				return place{name: to, v: g, at: atOf(g), ref: true}
			}
			v, at = g, 0
			continue
		}
		name = to
		if v, at = r.find(name); v == nil || !v.nameref || v.str == "" {
			return place{name: name, v: v, at: at, ref: true}
		}
		if name == first {
			break
		}
	}
	r.errorf("warning: %s: circular name reference", first)
	return place{name: first, at: -1, bad: true, ref: true}
}

func atOf(v *variable) int {
	if v == nil {
		return -1
	}
	return 0
}

// resolve1 is resolve for the array of an element. It does not follow a reference to an element.
func (r *runner) resolve1(name string) place {
	for range maxRefs {
		v, at := r.find(name)
		if v == nil || !v.nameref || v.str == "" || strings.IndexByte(v.str, '[') >= 0 || v.str == name {
			return place{name: name, v: v, at: at}
		}
		name = v.str
	}
	return place{name: name, at: -1}
}

// cutSubscript splits name[sub].
func cutSubscript(s string) (name, sub string, ok bool) {
	if s == "" || s[len(s)-1] != ']' {
		return s, "", false
	}
	at := strings.IndexByte(s, '[')
	if at <= 0 || !isName(s[:at]) {
		return s, "", false
	}
	return s[:at], s[at+1 : len(s)-1], true
}

// lookup finds a variable and follows name references. It returns nil when there is none. Use the
// result only for reading.
func (r *runner) lookup(name string) *variable {
	v, _ := r.find(name)
	if v != nil && !v.nameref {
		return v
	}
	if v == nil {
		return r.dynamic(name)
	}
	p := r.resolve(name)
	switch {
	case p.bad:
		return nil
	case p.elem:
		if p.v == nil {
			p.v = r.dynamic(p.name)
		}
		if p.sub == "@" || p.sub == "*" {
			return p.v
		}
		s, ok := r.elementOf(p.name, p.v, p.sub)
		return &variable{str: s, set: ok}
	case p.v == nil:
		return r.dynamic(p.name)
	}
	return p.v
}

// get returns a variable's value. It includes variables that the shell computes.
func (r *runner) get(name string) (string, bool) {
	v := r.lookup(name)
	if v == nil {
		return "", false
	}
	if v.arr == nil && v.assoc == nil {
		return v.str, v.set
	}
	return v.scalar()
}

// str returns a variable's value, "" when unset.
func (r *runner) str(name string) string {
	s, _ := r.get(name)
	return s
}

// target finds the variable that an assignment changes. If there is none, it makes one in the
// global scope.
func (r *runner) target(name string) *variable {
	p := r.resolve(name)
	return r.targetOf(p)
}

func (r *runner) targetOf(p place) *variable {
	if p.bad {
		return &variable{}
	}
	if p.v != nil {
		if v := r.mutable(p.name, p.at); v != nil {
			return v
		}
	}
	v := &variable{}
	if d := r.dynamic(p.name); d != nil && d.isArray() { // it stays an array
		v.arr, v.assoc, v.set = d.arr, d.assoc, d.set
	}
	return r.place(0, p.name, v)
}

// set assigns a scalar. For a read-only variable it writes a message and returns false.
func (r *runner) set(name, value string) bool {
	return r.assignText(name, value, false)
}

// assignText performs name=value or name+=value, and follows references.
func (r *runner) assignText(name, value string, add bool) bool {
	p := r.resolve(name)
	switch {
	case p.bad:
		r.status = 1
		return false
	case p.elem:
		return r.setElem(p.name, p.sub, value, add)
	case p.ref && !isName(p.name):
		r.errorf("`%s': not a valid identifier", p.name)
		return false
	}
	if p.v == nil {
		if handled, ok := r.special(p.name, value); handled {
			return ok
		}
	}
	v := r.targetOf(p)
	if v.nameref { // a reference to nothing yet
		if !isName(value) {
			if _, _, ok := cutSubscript(value); !ok && value != "" {
				r.errorf("`%s': not a valid identifier", value)
				return false
			}
		}
	}
	if !r.store(p.name, v, value, add) {
		return false
	}
	if r.opts.allexport {
		v.exported = true
	}
	r.assigned(p.name)
	return true
}

// store puts a value into a variable that the caller has checked: it may be changed.
func (r *runner) store(name string, v *variable, value string, add bool) bool {
	if v.readonly {
		r.errorf("%s: readonly variable", name)
		return false
	}
	old, _ := v.scalar()
	value, ok := r.coerce(v, old, value, add)
	if !ok {
		return false
	}
	switch {
	case v.arr != nil:
		v.own()
		v.arr.put(0, value)
		r.payVar(v, len(value)-len(old))
	case v.assoc != nil:
		v.own()
		v.assoc.put("0", value)
		r.payVar(v, len(value)-len(old))
	default:
		r.payVar(v, len(value)-len(v.str))
		v.str = value
	}
	v.set = true
	return true
}

// coerce applies a variable's attributes to a new value. The value replaces old, or with add is
// added to it. When it returns false, it has written a message.
func (r *runner) coerce(v *variable, old, value string, add bool) (string, bool) {
	switch {
	case v.integer:
		n, ok := r.arithText(value)
		if !ok {
			r.discardHard()
			return "", false
		}
		if add {
			m, ok := r.arithText(old)
			if !ok {
				return "", false
			}
			n += m
		}
		return itoa64(n), true
	case add:
		value = old + value
	}
	switch {
	case v.upper:
		value = toUpper(value)
	case v.lower:
		value = toLower(value)
	case v.capital:
		value = capitalize(value)
	}
	return value, true
}

// setElem assigns one element of an array. The index is text for an associative
// array and an arithmetic expression otherwise.
func (r *runner) setElem(name, index, value string, add bool) bool {
	p := r.resolve(name)
	if p.bad {
		return false
	}
	if p.elem { // an element has no elements
		r.errorf("`%s[%s]': not a valid identifier", p.name, p.sub)
		return false
	}
	v := r.targetOf(p)
	if !r.storeElem(p.name, v, index, value, add) {
		return false
	}
	if r.opts.allexport {
		v.exported = true
	}
	return true
}

// maxIndex is the largest index of an array.
const maxIndex = 1<<62 - 1

// storeElem is setElem for a variable that the caller has checked: it may be changed.
func (r *runner) storeElem(name string, v *variable, index, value string, add bool) bool {
	if v.readonly {
		r.errorf("%s: readonly variable", name)
		return false
	}
	if v.assoc != nil {
		if index == "" {
			r.errorf("%s[%s]: bad array subscript", name, index)
			return false
		}
		v.own()
		old, has := v.assoc.get(index)
		value, ok := r.coerce(v, old, value, add)
		if !ok {
			return false
		}
		if !has {
			r.payVar(v, len(index)+64)
		}
		r.payVar(v, len(value)-len(old))
		v.assoc.put(index, value)
		v.set = true
		return true
	}
	n, ok := r.indexNumber(name, v, index)
	if !ok {
		return false
	}
	v.toArray()
	v.own()
	old, has := v.arr.get(n)
	if value, ok = r.coerce(v, old, value, add); !ok {
		return false
	}
	if !has {
		r.payVar(v, 24)
	}
	r.payVar(v, len(value)-len(old))
	if r.flow != flowNone {
		return false
	}
	v.arr.put(n, value)
	v.set = true
	return true
}

// indexNumber evaluates the subscript of an indexed array for writing.
func (r *runner) indexNumber(name string, v *variable, index string) (int, bool) {
	if strings.TrimSpace(index) == "" || index == "@" || index == "*" {
		r.errorf("%s[%s]: bad array subscript", name, index)
		return 0, false
	}
	if strings.ContainsAny(index, "$`") {
		index = r.expandString(index)
	}
	n, ok := r.arithText(index)
	if !ok {
		r.discardHard()
		return 0, false
	}
	if n < 0 {
		switch {
		case v != nil && v.arr != nil:
			n += int64(v.arr.next())
		case v != nil && v.set:
			n++
		}
	}
	if n < 0 || n > maxIndex {
		r.errorf("%s[%s]: bad array subscript", name, index)
		return 0, false
	}
	return int(n), true
}

// unset removes a variable or, with an index, one element.
func (r *runner) unset(name string) bool {
	p := r.resolve(name)
	if p.elem {
		return r.unsetElem(p.name, p.sub)
	}
	return r.unsetPlace(p)
}

// unsetPlace removes a variable.
func (r *runner) unsetPlace(p place) bool {
	if p.v == nil {
		if d := r.dynamic(p.name); d != nil {
			if d.readonly {
				r.errorf("unset: %s: cannot unset: readonly variable", p.name)
				return false
			}
			r.hide(p.name)
		}
		return true
	}
	if p.v.readonly {
		r.errorf("unset: %s: cannot unset: readonly variable", p.name)
		return false
	}
	if local := r.localScope(); local > 0 && p.at == local && r.scopes[p.at].fn {
		r.place(p.at, p.name, &variable{}) // a local variable of this function stays local
	} else {
		r.drop(p.at, p.name)
	}
	r.assigned(p.name)
	return true
}

// unsetElem removes an element.
func (r *runner) unsetElem(name, sub string) bool {
	p := r.resolve1(name)
	if p.v == nil {
		return true
	}
	if p.v.readonly {
		r.errorf("unset: %s: cannot unset: readonly variable", name)
		return false
	}
	v := r.mutable(p.name, p.at)
	v.own()
	switch {
	case v.assoc != nil:
		v.assoc.remove(sub)
		return true
	case sub == "@" || sub == "*":
		return r.unsetPlace(p)
	case v.arr == nil:
		n, ok := r.arithText(sub)
		if !ok {
			return false
		}
		if n == 0 || n == -1 {
			return r.unsetPlace(p)
		}
		r.errorf("unset: %s: not an array variable", name)
		return false
	}
	if sub = r.expandString(sub); strings.TrimSpace(sub) == "" {
		r.errorf("unset: [%s]: bad array subscript", sub)
		return false
	}
	n, ok := r.arithText(sub)
	if !ok {
		return false
	}
	if n < 0 {
		if n += int64(v.arr.next()); n < 0 {
			r.errorf("unset: [%s]: bad array subscript", sub)
			return false
		}
	}
	v.arr.remove(int(min(n, maxIndex)))
	return true
}

// environ returns the exported variables as NAME=value, sorted.
func (r *runner) environ() []string {
	seen := map[string]bool{}
	var out []string
	for i := len(r.scopes) - 1; i >= 0; i-- {
		r.scopes[i].each(func(name string, v *variable) {
			if seen[name] {
				return
			}
			seen[name] = true
			if v.exported && v.set && !v.isArray() {
				switch name {
				case "SHELLOPTS":
					out = append(out, name+"="+r.opts.list(setTable))
					return
				case "BASHOPTS":
					out = append(out, name+"="+r.opts.list(shoptTable))
					return
				}
				out = append(out, name+"="+v.str)
			}
		})
	}
	for name, f := range r.funcs {
		if f.exported {
			out = append(out, "BASH_FUNC_"+name+"%%=() "+nodeText(f.body))
		}
	}
	sort.Strings(out)
	return out
}

// names lists the variables that are set and whose name has a prefix.
func (r *runner) names(prefix string) []string {
	return r.namesWhere(prefix, func(v *variable) bool { return v.set })
}

func (r *runner) namesWhere(prefix string, want func(*variable) bool) []string {
	seen := map[string]bool{}
	for i := len(r.scopes) - 1; i >= 0; i-- {
		r.scopes[i].each(func(name string, v *variable) {
			if _, ok := seen[name]; !ok && strings.HasPrefix(name, prefix) {
				seen[name] = want(v)
			}
		})
	}
	for _, name := range dynamicNames {
		if _, ok := seen[name]; !ok && strings.HasPrefix(name, prefix) {
			if v := r.dynamic(name); v != nil {
				seen[name] = want(v)
			}
		}
	}
	maps.DeleteFunc(seen, func(_ string, ok bool) bool { return !ok })
	return slices.Sorted(maps.Keys(seen))
}

// isName reports whether s can be a variable's name.
func isName(s string) bool {
	for i := range len(s) {
		c := s[i]
		if c != '_' && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}
