//go:build linux

package box

import (
	"reflect"
	"testing"
)

// fill gives every field a value of its own.
func fill(v reflect.Value, next *int64) {
	*next++
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(-*next % 100)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		v.SetUint(uint64(*next % 200))
	case reflect.Float64:
		v.SetFloat(float64(*next) / 3)
	case reflect.String:
		v.SetString(string([]byte{'x', byte(*next), 0xff, 0}))
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fallthrough
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i), next)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), next)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), next)
	}
}

func TestEveryFieldReachesTheOtherProcess(t *testing.T) {
	for _, typ := range []reflect.Type{reflect.TypeFor[order](), reflect.TypeFor[message]()} {
		for _, filled := range []bool{false, true} {
			v := reflect.New(typ)
			if n := int64(0); filled {
				fill(v.Elem(), &n)
			}
			data := encode(nil, v.Elem().Interface())
			got := reflect.New(typ)
			if err := decode(data, got.Interface()); err != nil {
				t.Fatalf("%s: %v", typ, err)
			}
			if !reflect.DeepEqual(got.Interface(), v.Interface()) {
				t.Errorf("%s: got %+v, want %+v", typ, got.Elem(), v.Elem())
			}
			for n := range data { // a part of a message is an error, and never panics
				if decode(data[:n], reflect.New(typ).Interface()) == nil {
					t.Fatalf("%s: the first %d of %d bytes are a message", typ, n, len(data))
				}
			}
		}
	}
	var o order
	if o.Spec.Seccomp.Sockets = []int{}; decode(encode(nil, o), &o) != nil || o.Spec.Seccomp.Sockets == nil {
		t.Error("an empty list became none: none allows all families")
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(encode(nil, message{Word: started, Handed: []string{"root"}, Failure: &failure{Op: "x"}}))
	f.Fuzz(func(t *testing.T, data []byte) {
		var m message
		if decode(data, &m) == nil && !reflect.DeepEqual(m, again(t, m)) {
			t.Errorf("%+v changes when it is sent", m)
		}
	})
}

func again(t *testing.T, m message) (out message) {
	if err := decode(encode(nil, m), &out); err != nil {
		t.Fatal(err)
	}
	return out
}
