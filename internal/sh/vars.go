package sh

import (
	"maps"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// variable is one shell variable. Its arrays are shared between copies and
// copied by who changes them.
type variable struct {
	set      bool
	exported bool
	readonly bool
	integer  bool
	nameref  bool
	upper    bool
	lower    bool
	str      string
	arr      *array            // of an indexed array
	assoc    map[string]string // of an associative array
	shared   bool              // arr or assoc belongs to another copy as well
}

// array is an indexed array: sorted indexes and their values.
type array struct {
	keys []int
	vals []string
}

func newArray(vals []string) *array {
	a := &array{keys: make([]int, len(vals)), vals: slices.Clone(vals)}
	for i := range vals {
		a.keys[i] = i
	}
	return a
}

func (a *array) get(i int) (string, bool) {
	if at, ok := slices.BinarySearch(a.keys, i); ok {
		return a.vals[at], true
	}
	return "", false
}

func (a *array) put(i int, v string) {
	at, ok := slices.BinarySearch(a.keys, i)
	if ok {
		a.vals[at] = v
		return
	}
	a.keys = slices.Insert(a.keys, at, i)
	a.vals = slices.Insert(a.vals, at, v)
}

func (a *array) remove(i int) {
	if at, ok := slices.BinarySearch(a.keys, i); ok {
		a.keys = slices.Delete(a.keys, at, at+1)
		a.vals = slices.Delete(a.vals, at, at+1)
	}
}

// next is the index after the last.
func (a *array) next() int {
	if len(a.keys) == 0 {
		return 0
	}
	return a.keys[len(a.keys)-1] + 1
}

// own makes the variable's arrays its own before a change.
func (v *variable) own() {
	if !v.shared {
		return
	}
	v.shared = false
	if v.arr != nil {
		v.arr = &array{slices.Clone(v.arr.keys), slices.Clone(v.arr.vals)}
	}
	v.assoc = maps.Clone(v.assoc)
}

// scalar is what $name means: for an array its element 0.
func (v *variable) scalar() (string, bool) {
	switch {
	case v == nil:
		return "", false
	case v.arr != nil:
		return v.arr.get(0)
	case v.assoc != nil:
		s, ok := v.assoc["0"]
		return s, ok
	}
	return v.str, v.set
}

// list is what ${name[@]} means.
func (v *variable) list() []string {
	switch {
	case v == nil:
		return nil
	case v.arr != nil:
		return v.arr.vals
	case v.assoc != nil:
		out := make([]string, 0, len(v.assoc))
		for _, k := range slices.Sorted(maps.Keys(v.assoc)) {
			out = append(out, v.assoc[k])
		}
		return out
	case v.set:
		return []string{v.str}
	}
	return nil
}

// keys is what ${!name[@]} means.
func (v *variable) keys() []string {
	switch {
	case v == nil:
		return nil
	case v.arr != nil:
		out := make([]string, len(v.arr.keys))
		for i, k := range v.arr.keys {
			out[i] = strconv.Itoa(k)
		}
		return out
	case v.assoc != nil:
		return slices.Sorted(maps.Keys(v.assoc))
	case v.set:
		return []string{"0"}
	}
	return nil
}

// scope is the variables of the shell or of one function call.
type scope map[string]*variable

// lookup finds a variable, following name references.
func (r *runner) lookup(name string) *variable {
	for range 8 {
		v := r.lookupRaw(name)
		if v == nil || !v.nameref || v.str == "" {
			return v
		}
		name = v.str
	}
	return nil
}

func (r *runner) lookupRaw(name string) *variable {
	for i := len(r.scopes) - 1; i >= 0; i-- {
		if v, ok := r.scopes[i][name]; ok {
			return v
		}
	}
	if name == "PIPESTATUS" {
		codes := make([]string, len(r.pipeStatus))
		for i, c := range r.pipeStatus {
			codes[i] = codeText[c]
		}
		return &variable{set: true, arr: newArray(codes)}
	}
	return nil
}

// get returns a variable's value, or that of a variable the shell computes.
func (r *runner) get(name string) (string, bool) {
	if v := r.lookup(name); v != nil {
		return v.scalar()
	}
	return r.dynamic(name)
}

// dynamic computes the variables that the shell keeps itself.
func (r *runner) dynamic(name string) (string, bool) {
	switch name {
	case "RANDOM":
		r.random = r.random*1103515245 + 12345
		return strconv.Itoa(int(r.random>>16) & 0x7fff), true
	case "SECONDS":
		return strconv.Itoa(int(r.m.now().Sub(r.p.started).Seconds())), true
	case "EPOCHSECONDS":
		return strconv.FormatInt(r.m.now().Unix(), 10), true
	case "EPOCHREALTIME":
		us := r.m.now().UnixMicro()
		return strconv.FormatInt(us/1e6, 10) + "." + strconv.FormatInt(us%1e6+1e6, 10)[1:], true
	case "LINENO":
		return strconv.Itoa(int(r.line)), true
	case "BASHPID":
		return strconv.Itoa(r.p.pid), true
	case "PPID":
		return strconv.Itoa(r.ppid), true
	case "UID", "EUID":
		return strconv.Itoa(int(r.cred().UID)), true
	case "HOSTNAME":
		return r.m.Hostname(), true
	case "BASH_COMMAND":
		return r.commandText(), r.current != nil
	case "SHELLOPTS":
		return r.opts.list(setTable), true
	case "BASHOPTS":
		return r.opts.list(shoptTable), true
	case "BASH_SUBSHELL":
		return strconv.Itoa(r.subshells), true
	case "FUNCNAME":
		if len(r.calls) == 0 {
			return "", false
		}
		return r.calls[len(r.calls)-1].name, true
	}
	return "", false
}

// str returns a variable's value, "" when unset.
func (r *runner) str(name string) string {
	s, _ := r.get(name)
	return s
}

// target finds the variable that an assignment changes, making it in the global
// scope when there is none.
func (r *runner) target(name string) *variable {
	for range 8 {
		v := r.lookupRaw(name)
		if v == nil {
			v = &variable{}
			r.scopes[0][name] = v
			r.pay(len(name) + 64)
			return v
		}
		if !v.nameref || v.str == "" {
			return v
		}
		name = v.str
	}
	return &variable{}
}

// set assigns a scalar. It reports false, with a message, for a read-only one.
func (r *runner) set(name, value string) bool {
	v := r.target(name)
	if v.readonly {
		r.errorf("%s: readonly variable", name)
		return false
	}
	value = r.coerce(v, value)
	switch {
	case v.arr != nil:
		v.own()
		v.arr.put(0, value)
		r.pay(len(value))
	case v.assoc != nil:
		v.own()
		v.assoc["0"] = value
		r.pay(len(value))
	default:
		r.pay(len(value) - len(v.str))
		v.str = value
	}
	v.set = true
	if r.opts.allexport {
		v.exported = true
	}
	return true
}

// coerce applies a variable's attributes to a value.
func (r *runner) coerce(v *variable, value string) string {
	switch {
	case v.integer:
		n, _ := r.arithText(value)
		return strconv.FormatInt(n, 10)
	case v.upper:
		return strings.ToUpper(value)
	case v.lower:
		return strings.ToLower(value)
	}
	return value
}

// setElem assigns one element of an array. The index is text for an associative
// array and an arithmetic expression otherwise.
func (r *runner) setElem(name, index, value string, add bool) bool {
	v := r.target(name)
	if v.readonly {
		r.errorf("%s: readonly variable", name)
		return false
	}
	v.own()
	r.pay(len(value) + 24)
	value = r.coerce(v, value)
	if v.assoc != nil {
		if add {
			value = v.assoc[index] + value
		}
		v.assoc[index] = value
		v.set = true
		return true
	}
	n, ok := r.arithText(index)
	if !ok {
		return false
	}
	if v.arr == nil {
		v.arr = &array{}
		if v.set {
			v.arr.put(0, v.str)
		}
	}
	if n < 0 {
		n += int64(v.arr.next())
	}
	if n < 0 || n > 1<<40 {
		r.errorf("%s[%s]: bad array subscript", name, index)
		return false
	}
	if add {
		old, _ := v.arr.get(int(n))
		value = old + value
	}
	v.arr.put(int(n), value)
	v.set = true
	return true
}

// unset removes a variable or, with an index, one element.
func (r *runner) unset(name string) bool {
	base, index, isElem := strings.Cut(name, "[")
	v := r.lookup(base)
	if v == nil {
		return true
	}
	if v.readonly {
		r.errorf("unset: %s: cannot unset: readonly variable", base)
		return false
	}
	if isElem {
		index = strings.TrimSuffix(index, "]")
		v.own()
		if v.assoc != nil {
			delete(v.assoc, index)
		} else if n, ok := r.arithText(index); ok && v.arr != nil {
			if n < 0 {
				n += int64(v.arr.next())
			}
			v.arr.remove(int(n))
		}
		return true
	}
	for i := len(r.scopes) - 1; i >= 0; i-- {
		if _, ok := r.scopes[i][base]; ok {
			if i > 0 {
				r.scopes[i][base] = &variable{} // a local stays local, unset
			} else {
				delete(r.scopes[i], base)
			}
			r.pay(-len(v.str))
			return true
		}
	}
	return true
}

// environ returns the exported variables as NAME=value, sorted.
func (r *runner) environ() []string {
	seen := map[string]bool{}
	var out []string
	for i := len(r.scopes) - 1; i >= 0; i-- {
		for name, v := range r.scopes[i] {
			if seen[name] {
				continue
			}
			seen[name] = true
			if s, ok := v.scalar(); ok && v.exported && !v.nameref {
				out = append(out, name+"="+s)
			}
		}
	}
	sort.Strings(out)
	return out
}

// names lists the variables that are set and whose name has a prefix.
func (r *runner) names(prefix string) []string {
	seen := map[string]bool{}
	for _, s := range r.scopes {
		for name := range s {
			if v := r.lookupRaw(name); strings.HasPrefix(name, prefix) && (v.set || v.arr != nil || v.assoc != nil) {
				seen[name] = true
			}
		}
	}
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
