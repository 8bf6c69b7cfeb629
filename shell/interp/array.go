package interp

import (
	"cmp"
	"slices"
	"strconv"
	"sync/atomic"
)

// array is an indexed array: sorted indexes and their values. Several variables may share one: code
// that changes an array copies it first.
type array struct {
	keys   []int
	vals   []string
	shared atomic.Bool
}

func newArray(vals []string) *array {
	a := &array{keys: make([]int, len(vals)), vals: slices.Clone(vals)}
	for i := range vals {
		a.keys[i] = i
	}
	return a
}

func (a *array) clone() *array {
	return &array{keys: slices.Clone(a.keys), vals: slices.Clone(a.vals)}
}

// find returns the position of an index, or the position where it must be inserted.
func (a *array) find(i int) (int, bool) {
	n := len(a.keys)
	switch {
	case n == 0 || a.keys[n-1] < i:
		return n, false
	case i < n && i >= 0 && a.keys[i] == i: // without holes
		return i, true
	}
	return slices.BinarySearch(a.keys, i)
}

func (a *array) get(i int) (string, bool) {
	if at, ok := a.find(i); ok {
		return a.vals[at], true
	}
	return "", false
}

func (a *array) put(i int, v string) {
	at, ok := a.find(i)
	switch {
	case ok:
		a.vals[at] = v
	case at == len(a.keys):
		a.keys = append(a.keys, i)
		a.vals = append(a.vals, v)
	default:
		a.keys = slices.Insert(a.keys, at, i)
		a.vals = slices.Insert(a.vals, at, v)
	}
}

func (a *array) remove(i int) {
	if at, ok := a.find(i); ok {
		a.keys = slices.Delete(a.keys, at, at+1)
		a.vals = slices.Delete(a.vals, at, at+1)
	}
}

// next returns the index after the last one.
func (a *array) next() int {
	if len(a.keys) == 0 {
		return 0
	}
	return a.keys[len(a.keys)-1] + 1
}

// assoc is an associative array. Its order is the order of bash's own hash table, because scripts
// can see it: buckets by hash, the newest key first in each bucket.
type assoc struct {
	m       map[string]assocVal
	seq     int
	buckets uint32
	order   atomic.Pointer[[]string] // nil when it must be computed
	shared  atomic.Bool
}

type assocVal struct {
	v   string
	seq int
}

const assocBuckets = 1024

func newAssoc() *assoc { return &assoc{m: map[string]assocVal{}, buckets: assocBuckets} }

func (a *assoc) clone() *assoc {
	c := &assoc{m: make(map[string]assocVal, len(a.m)), seq: a.seq, buckets: a.buckets}
	for k, v := range a.m {
		c.m[k] = v
	}
	return c
}

func (a *assoc) get(k string) (string, bool) {
	v, ok := a.m[k]
	return v.v, ok
}

func (a *assoc) put(k, v string) {
	if old, ok := a.m[k]; ok {
		a.m[k] = assocVal{v, old.seq}
		return
	}
	if len(a.m) >= int(a.buckets)*2 {
		a.buckets *= 4
	}
	a.seq++
	a.m[k] = assocVal{v, a.seq}
	a.order.Store(nil)
}

func (a *assoc) remove(k string) {
	if _, ok := a.m[k]; ok {
		delete(a.m, k)
		a.order.Store(nil)
	}
}

// hashString is bash's hash of a key.
func hashString(s string) uint32 {
	h := uint32(2166136261)
	for i := range len(s) {
		h *= 16777619
		h ^= uint32(int32(int8(s[i]))) // as C's char, which has a sign
	}
	return h
}

// keys lists the keys in bash's order. Other shells may read the array at the same time.
func (a *assoc) keys() []string {
	if o := a.order.Load(); o != nil {
		return *o
	}
	type entry struct {
		k      string
		bucket uint32
		seq    int
	}
	es := make([]entry, 0, len(a.m))
	for k, v := range a.m {
		es = append(es, entry{k, hashString(k) & (a.buckets - 1), v.seq})
	}
	slices.SortFunc(es, func(x, y entry) int {
		if c := cmp.Compare(x.bucket, y.bucket); c != 0 {
			return c
		}
		return cmp.Compare(y.seq, x.seq)
	})
	out := make([]string, len(es))
	for i, e := range es {
		out[i] = e.k
	}
	a.order.Store(&out)
	return out
}

// variable is one shell variable.
type variable struct {
	set      bool
	exported bool
	readonly bool
	integer  bool
	nameref  bool
	upper    bool
	lower    bool
	capital  bool
	trace    bool
	paid     int // memory charged for it
	str      string
	arr      *array // of an indexed array
	assoc    *assoc // of an associative array
}

// copy copies the variable. The two share their arrays until one of them changes.
func (v *variable) copy() *variable {
	c := *v
	c.paid = 0
	if c.arr != nil {
		c.arr.shared.Store(true)
	}
	if c.assoc != nil {
		c.assoc.shared.Store(true)
	}
	return &c
}

// own copies shared arrays of the variable. Call it before changing an array.
func (v *variable) own() {
	if v.arr != nil && v.arr.shared.Load() {
		v.arr = v.arr.clone()
	}
	if v.assoc != nil && v.assoc.shared.Load() {
		v.assoc = v.assoc.clone()
	}
}

// setArray makes the variable an indexed array of vals.
func (v *variable) setArray(vals []string) {
	v.arr, v.assoc, v.set, v.str = newArray(vals), nil, true, ""
}

// toArray turns a scalar into an array whose element 0 is its value.
func (v *variable) toArray() {
	if v.arr != nil || v.assoc != nil {
		return
	}
	v.arr = &array{}
	if v.set {
		v.arr.put(0, v.str)
	}
	v.str = ""
}

// isArray reports whether the variable is an array of either kind.
func (v *variable) isArray() bool { return v.arr != nil || v.assoc != nil }

// scalar returns the value of $name. For an array this is element 0.
func (v *variable) scalar() (string, bool) {
	switch {
	case v == nil:
		return "", false
	case v.arr != nil:
		return v.arr.get(0)
	case v.assoc != nil:
		return v.assoc.get("0")
	}
	return v.str, v.set
}

// list returns the values of ${name[@]}.
func (v *variable) list() []string {
	switch {
	case v == nil:
		return nil
	case v.arr != nil:
		return slices.Clip(v.arr.vals)
	case v.assoc != nil:
		keys := v.assoc.keys()
		out := make([]string, len(keys))
		for i, k := range keys {
			out[i] = v.assoc.m[k].v
		}
		return out
	case v.set:
		return []string{v.str}
	}
	return nil
}

// keys returns the values of ${!name[@]}.
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
		return slices.Clone(v.assoc.keys())
	case v.set:
		return []string{"0"}
	}
	return nil
}

// flags returns the letters of the variable's attributes in bash's order; "-" for none.
func (v *variable) flags() string {
	f := "-"
	for _, x := range [...]struct {
		on bool
		c  string
	}{{v.arr != nil, "a"}, {v.assoc != nil, "A"}, {v.integer, "i"}, {v.nameref, "n"}, {v.readonly, "r"}, {v.trace, "t"},
		{v.exported, "x"}, {v.capital, "c"}, {v.lower, "l"}, {v.upper, "u"}} {
		if x.on {
			f += x.c
		}
	}
	if f == "-" {
		return "--"
	}
	return f
}

// literal returns the value in the form of an assignment: =value, or nothing when unset.
func (v *variable) literal() string {
	if !v.set {
		return ""
	}
	if !v.isArray() {
		return "=" + quoteDecl(v.str)
	}
	return "=" + v.compound()
}

// compound returns an array in the form of an assignment.
func (v *variable) compound() string {
	b := []byte{'('}
	if v.arr != nil {
		for i, k := range v.arr.keys {
			if i > 0 {
				b = append(b, ' ')
			}
			b = append(b, '[')
			b = strconv.AppendInt(b, int64(k), 10)
			b = append(b, "]="...)
			b = append(b, quoteDecl(v.arr.vals[i])...)
		}
		return string(append(b, ')'))
	}
	for _, k := range v.assoc.keys() {
		b = append(b, '[')
		b = append(b, quoteKey(k)...)
		b = append(b, "]="...)
		b = append(b, quoteDecl(v.assoc.m[k].v)...)
		b = append(b, ' ')
	}
	return string(append(b, ')'))
}
