package quickjs

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// String returns a value as a string. It may run the script's toString.
func (v *VM) String(x Value) string {
	b := v.text(x)
	return strings.ToValidUTF8(string(b), "\uFFFD")
}

// text returns a value as a string in UTF-8. A lone surrogate becomes a replacement character.
func (v *VM) text(x Value) []byte {
	size := v.call(fnMalloc, 4)
	if size == 0 {
		return nil
	}
	defer v.call(fnFree, size)
	var at Value
	var err error
	if v.call(fnIsString, uint64(x)) != 0 {
		at = Value(v.call(fnString, uint64(x), size))
	} else if at, err = v.run(fnString, uint64(x), size); err != nil {
		return nil
	}
	if at == 0 {
		v.call(fnFreeValue, v.call(fnException)) // toString threw
		return nil
	}
	defer v.call(fnFreeCString, uint64(at))
	b, _ := v.mem.Read(uint32(at), v.u32(uint32(size)))
	return slices.Clone(b)
}

// Bytes returns a copy of the contents of an ArrayBuffer, or of a string's UTF-8.
func (v *VM) Bytes(x Value) []byte {
	if v.call(fnIsArrayBuffer, uint64(x)) == 0 {
		return []byte(v.String(x))
	}
	size := v.call(fnMalloc, 4)
	if size == 0 {
		return nil
	}
	defer v.call(fnFree, size)
	at := v.call(fnBuffer, uint64(x), size)
	b, _ := v.mem.Read(uint32(at), v.u32(uint32(size)))
	return slices.Clone(b)
}

// Float returns a number, or NaN for a value that is not a number.
func (v *VM) Float(x Value) float64 {
	if v.call(fnIsNumber, uint64(x)) == 0 {
		return math.NaN()
	}
	return math.Float64frombits(v.call(fnFloat, uint64(x)))
}

// Int returns a number as an integer, or 0 for a value that is not a number.
func (v *VM) Int(x Value) int64 {
	f := v.Float(x)
	if math.IsNaN(f) || math.Abs(f) > 1<<53 {
		return 0
	}
	return int64(f)
}

// Bool reports whether a value is the boolean true.
func (v *VM) Bool(x Value) bool {
	return v.call(fnIsBool, uint64(x)) != 0 && v.call(fnBool, uint64(x)) != 0
}

// Nil reports whether a value is undefined or null.
func (v *VM) Nil(x Value) bool {
	return v.call(fnIsUndefined, uint64(x)) != 0 || v.call(fnIsNull, uint64(x)) != 0
}

// IsString reports whether a value is a string.
func (v *VM) IsString(x Value) bool { return v.call(fnIsString, uint64(x)) != 0 }

// Global returns a property of the global object.
func (v *VM) Global(name string) Value { return v.Get(Value(v.call(fnGlobal)), name) }

// Get returns a property, or 0 when getting it failed.
func (v *VM) Get(x Value, name string) Value {
	at, ok := v.put(name)
	if !ok {
		return 0
	}
	defer v.call(fnFree, at)
	r, err := v.run(fnGet, uint64(x), at)
	if err != nil {
		return 0
	}
	if v.call(fnIsException, uint64(r)) != 0 {
		v.call(fnFreeValue, v.call(fnException))
		return 0
	}
	return r
}

// At returns an element of an array, or 0 when getting it failed.
func (v *VM) At(x Value, i int) Value {
	r, err := v.run(fnGetIndex, uint64(x), uint64(i))
	if err != nil {
		return 0
	}
	if v.call(fnIsException, uint64(r)) != 0 {
		v.call(fnFreeValue, v.call(fnException))
		return 0
	}
	return r
}

// Promise returns the state of a promise (0 pending, 1 fulfilled, 2 rejected, -1 not a promise) and
// its result.
func (v *VM) Promise(x Value) (state int, result Value) {
	if v.call(fnIsPromise, uint64(x)) == 0 {
		return -1, x
	}
	state = int(int32(v.call(fnPromiseState, uint64(x))))
	if state > 0 {
		result = Value(v.call(fnPromiseResult, uint64(x)))
	}
	return state, result
}

// ProxyTarget returns the target of a proxy.
func (v *VM) ProxyTarget(x Value) (Value, bool) {
	if v.call(fnIsProxy, uint64(x)) == 0 {
		return 0, false
	}
	return Value(v.call(fnProxyTarget, uint64(x))), true
}

// Free gives a value back.
func (v *VM) Free(x Value) { v.call(fnFreeValue, uint64(x)) }

// New makes a value from a Go value; see [Func] for the types.
func (v *VM) New(x any) (Value, error) {
	switch x := x.(type) {
	case nil:
		return v.owned(v.call(fnNull))
	case Value:
		return v.owned(v.call(fnDup, uint64(x)))
	case bool:
		if x {
			return v.owned(v.call(fnTrue))
		}
		return v.owned(v.call(fnFalse))
	case int:
		return v.owned(v.call(fnNewNumber, math.Float64bits(float64(x))))
	case int64:
		return v.owned(v.call(fnNewNumber, math.Float64bits(float64(x))))
	case float64:
		return v.owned(v.call(fnNewNumber, math.Float64bits(x)))
	case string:
		return v.newBytes(fnNewString, x)
	case []byte:
		return v.newBytes(fnNewBuffer, string(x))
	case []any:
		return v.newArray(x)
	case map[string]any:
		return v.newObject(x)
	}
	return 0, fmt.Errorf("no value of a script: %T", x)
}

func (v *VM) owned(x uint64) (Value, error) {
	if x == 0 || v.ended {
		return 0, errMemory
	}
	return Value(x), nil
}

func (v *VM) newBytes(fn int, s string) (Value, error) {
	if fn == fnNewString {
		s = strings.ToValidUTF8(s, "\uFFFD")
	}
	at, ok := v.put(s)
	if !ok {
		return 0, errMemory
	}
	defer v.call(fnFree, at)
	x := v.call(fn, at, uint64(len(s)))
	if x != 0 && v.call(fnIsException, x) != 0 {
		v.call(fnFreeValue, v.call(fnException))
		return 0, errMemory
	}
	return v.owned(x)
}

func (v *VM) newArray(list []any) (Value, error) {
	a, err := v.owned(v.call(fnNewArray))
	for i := 0; i < len(list) && err == nil; i++ {
		var e Value
		if e, err = v.New(list[i]); err == nil {
			v.call(fnSetIndex, uint64(a), uint64(i), uint64(e))
			v.Free(e)
		}
	}
	return a, err
}

func (v *VM) newObject(fields map[string]any) (Value, error) {
	o, err := v.owned(v.call(fnNewObject))
	for name, field := range fields {
		if err != nil {
			break
		}
		var e Value
		if e, err = v.New(field); err == nil {
			err = v.Set(o, name, e)
			v.Free(e)
		}
	}
	return o, err
}

// Set sets a property.
func (v *VM) Set(x Value, name string, to Value) error {
	at, ok := v.put(name)
	if !ok {
		return errMemory
	}
	v.call(fnSet, uint64(x), at, uint64(to))
	v.call(fnFree, at)
	return nil
}
