//go:build linux

package box

import (
	"encoding/binary"
	"errors"
	"math"
	"reflect"
)

// The two processes of a box send each other structs, field by field, in the order of the fields.
// This works because both are of one build. Package encoding/json would first analyse each type, in
// each process, which takes longer than the mounts.

// errMessage means that encode has not written the data.
var errMessage = errors.New("the message can't be read")

// encode appends the content of v, a struct of the kinds below.
func encode(b []byte, v any) []byte { return appendValue(b, reflect.ValueOf(v)) }

func appendValue(b []byte, v reflect.Value) []byte {
	switch v.Kind() {
	case reflect.Bool:
		if v.Bool() {
			return append(b, 1)
		}
		return append(b, 0)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return binary.AppendVarint(b, v.Int())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return binary.AppendUvarint(b, v.Uint())
	case reflect.Float64:
		return binary.LittleEndian.AppendUint64(b, math.Float64bits(v.Float()))
	case reflect.String:
		b = binary.AppendUvarint(b, uint64(v.Len()))
		return append(b, v.String()...)
	case reflect.Slice: // nil and empty are different: seccomp.Filter.Sockets
		if v.IsNil() {
			return append(b, 0)
		}
		b = binary.AppendUvarint(b, uint64(v.Len())+1)
		return appendEach(b, v)
	case reflect.Array:
		return appendEach(b, v)
	case reflect.Struct:
		for i := range v.NumField() {
			b = appendValue(b, v.Field(i))
		}
		return b
	case reflect.Pointer:
		if v.IsNil() {
			return append(b, 0)
		}
		return appendValue(append(b, 1), v.Elem())
	}
	panic("box: a message has a field of kind " + v.Kind().String())
}

func appendEach(b []byte, v reflect.Value) []byte {
	for i := range v.Len() {
		b = appendValue(b, v.Index(i))
	}
	return b
}

// decode reads data that encode wrote from the same type. v is a pointer.
func decode(b []byte, v any) error {
	d := decoder{b}
	if !d.value(reflect.ValueOf(v).Elem()) || len(d.rest) > 0 {
		return errMessage
	}
	return nil
}

// decoder holds the unread data. Its methods report whether enough data was left.
type decoder struct{ rest []byte }

func (d *decoder) value(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Bool:
		n, ok := d.number()
		v.SetBool(n == 1)
		return ok && n <= 1
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		n, size := binary.Varint(d.rest)
		if size <= 0 || v.OverflowInt(n) {
			return false
		}
		v.SetInt(n)
		d.rest = d.rest[size:]
		return true
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		n, ok := d.number()
		if !ok || v.OverflowUint(n) {
			return false
		}
		v.SetUint(n)
		return true
	case reflect.Float64:
		if len(d.rest) < 8 {
			return false
		}
		v.SetFloat(math.Float64frombits(binary.LittleEndian.Uint64(d.rest)))
		d.rest = d.rest[8:]
		return true
	case reflect.String:
		n, ok := d.number()
		if !ok || n > uint64(len(d.rest)) {
			return false
		}
		v.SetString(string(d.rest[:n]))
		d.rest = d.rest[n:]
		return true
	}
	return d.compound(v)
}

func (d *decoder) compound(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Slice:
		n, ok := d.number()
		if !ok || n == 0 {
			return ok
		}
		if n--; n > uint64(len(d.rest)) { // each takes a byte at least
			return false
		}
		v.Set(reflect.MakeSlice(v.Type(), int(n), int(n)))
		return d.each(v)
	case reflect.Array:
		return d.each(v)
	case reflect.Struct:
		for i := range v.NumField() {
			if !d.value(v.Field(i)) {
				return false
			}
		}
		return true
	case reflect.Pointer:
		n, ok := d.number()
		if !ok || n == 0 {
			return ok
		}
		v.Set(reflect.New(v.Type().Elem()))
		return d.value(v.Elem())
	}
	return false
}

func (d *decoder) each(v reflect.Value) bool {
	for i := range v.Len() {
		if !d.value(v.Index(i)) {
			return false
		}
	}
	return true
}

func (d *decoder) number() (uint64, bool) {
	n, size := binary.Uvarint(d.rest)
	if size <= 0 {
		return 0, false
	}
	d.rest = d.rest[size:]
	return n, true
}
