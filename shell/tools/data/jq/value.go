package jq

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
)

// A value is nil, bool, float64, Number, string, []any or *Object. A value must not change after
// other code has seen it.

// Number is an integer that a float64 would change. It is a number like any other, and becomes a
// float64 in arithmetic.
type Number string

func (n Number) float() float64 {
	f, _ := strconv.ParseFloat(string(n), 64) // out of range gives infinity, which is correct
	return f
}

// Object is a JSON object that keeps the order in which keys were added.
type Object struct {
	keys  []string
	vals  []any
	index map[string]int // of objects with many keys
}

// many is the least number of keys for which an object has an index.
const many = 9

// NewObject returns an empty object with room for n keys.
func NewObject(n int) *Object {
	return &Object{keys: make([]string, 0, n), vals: make([]any, 0, n)}
}

// Len returns the number of keys.
func (o *Object) Len() int { return len(o.keys) }

// At returns the i-th key and its value.
func (o *Object) At(i int) (string, any) { return o.keys[i], o.vals[i] }

func (o *Object) find(key string) int {
	if o.index != nil {
		if i, ok := o.index[key]; ok {
			return i
		}
		return -1
	}
	return slices.Index(o.keys, key)
}

// Get returns a key's value, and whether there is one.
func (o *Object) Get(key string) (any, bool) {
	if i := o.find(key); i >= 0 {
		return o.vals[i], true
	}
	return nil, false
}

// Set adds or replaces a key. No other code may have seen the object yet.
func (o *Object) Set(key string, v any) {
	if i := o.find(key); i >= 0 {
		o.vals[i] = v
		return
	}
	o.keys, o.vals = append(o.keys, key), append(o.vals, v)
	switch {
	case o.index != nil:
		o.index[key] = len(o.keys) - 1
	case len(o.keys) == many:
		o.reindex()
	}
}

func (o *Object) reindex() {
	o.index = nil
	if len(o.keys) >= many {
		o.index = make(map[string]int, len(o.keys))
		for i, k := range o.keys {
			o.index[k] = i
		}
	}
}

// clone returns a copy that may be changed.
func (o *Object) clone() *Object {
	c := &Object{keys: append(make([]string, 0, len(o.keys)+1), o.keys...), vals: append(make([]any, 0, len(o.vals)+1), o.vals...)}
	c.reindex()
	return c
}

// without returns a copy without some keys.
func (o *Object) without(gone map[string]bool) *Object {
	c := NewObject(len(o.keys))
	for i, k := range o.keys {
		if !gone[k] {
			c.Set(k, o.vals[i])
		}
	}
	return c
}

// sorted returns the keys in order.
func (o *Object) sorted() []string { return slices.Sorted(slices.Values(o.keys)) }

// TypeName returns the name of a value's type.
func TypeName(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case float64, Number:
		return "number"
	case string:
		return "string"
	case []any:
		return "array"
	}
	return "object"
}

// Truthy reports whether a value counts as true.
func Truthy(v any) bool { return v != nil && v != false }

// number converts a number to float64.
func number(v any) (float64, bool) {
	switch v := v.(type) {
	case float64:
		return v, true
	case Number:
		return v.float(), true
	}
	return 0, false
}

// order returns the rank of a value's type.
func order(v any) int {
	switch v := v.(type) {
	case nil:
		return 0
	case bool:
		if v {
			return 2
		}
		return 1
	case float64, Number:
		return 3
	case string:
		return 4
	case []any:
		return 5
	}
	return 6
}

// maxDepth is the deepest nesting of values for reading, writing and comparing.
const maxDepth = 10000

// Compare orders any two values as sort does.
func Compare(a, b any) int { return (*purse)(nil).compare(a, b, 0) }

// cmp is Compare, paid for.
func (p *purse) cmp(a, b any) int { return p.compare(a, b, 0) }

func (p *purse) compare(a, b any, depth int) int {
	if c := cmp.Compare(order(a), order(b)); c != 0 || depth > maxDepth || p.spend() {
		return c
	}
	switch a := a.(type) {
	case float64, Number:
		x, _ := number(a)
		y, _ := number(b)
		if na, ok := a.(Number); ok {
			if nb, ok := b.(Number); ok && x == y {
				return compareBig(string(na), string(nb))
			}
		}
		switch {
		case math.IsNaN(x), x < y:
			return -1
		case x == y:
			return 0
		}
		return 1
	case string:
		return strings.Compare(a, b.(string))
	case []any:
		b := b.([]any)
		for i := range min(len(a), len(b)) {
			if c := p.compare(a[i], b[i], depth+1); c != 0 {
				return c
			}
		}
		return cmp.Compare(len(a), len(b))
	case *Object:
		return p.compareObjects(a, b.(*Object), depth)
	}
	return 0
}

func (p *purse) compareObjects(a, b *Object, depth int) int {
	keys := a.sorted()
	if c := slices.Compare(keys, b.sorted()); c != 0 {
		return c
	}
	for _, k := range keys {
		x, _ := a.Get(k)
		y, _ := b.Get(k)
		if c := p.compare(x, y, depth+1); c != 0 {
			return c
		}
	}
	return 0
}

// compareBig compares two integers in decimal.
func compareBig(a, b string) int {
	na, nb := strings.HasPrefix(a, "-"), strings.HasPrefix(b, "-")
	switch {
	case na && nb:
		return compareBig(b[1:], a[1:])
	case na:
		return -1
	case nb:
		return 1
	case len(a) != len(b):
		return cmp.Compare(len(a), len(b))
	}
	return strings.Compare(a, b)
}
