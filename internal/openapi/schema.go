package openapi

import (
	"encoding"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Types holds facts about types that reflection can't find.
type Types struct {
	// Name returns the name of a struct type in the document. For "" the schema is written where
	// the type is used. Two types must not have one name.
	Name func(reflect.Type) string
	// Known are types that write their own JSON, with their schemas.
	Known map[reflect.Type]Schema
	// Values are all the values of a text type with a fixed set.
	Values map[reflect.Type][]string
	// Filled says that an answer's lists and maps of this struct type are never null.
	Filled func(reflect.Type) bool
}

// reflector makes schemas of Go types and remembers those that have a name.
type reflector struct {
	types      Types
	components map[string]any
	named      map[string]reflect.Type
}

// direction says whether a schema belongs to a request or an answer. In a request no field is
// needed, and every field may be null. In an answer, every field is there that encoding/json always
// writes.
type direction struct{ in, strict bool }

var (
	timeType     = reflect.TypeFor[time.Time]()
	durationType = reflect.TypeFor[time.Duration]()
	rawType      = reflect.TypeFor[json.RawMessage]()
	bytesType    = reflect.TypeFor[[]byte]()
	writesItself = []reflect.Type{
		reflect.TypeFor[json.Marshaler](), reflect.TypeFor[json.Unmarshaler](),
		reflect.TypeFor[encoding.TextMarshaler](), reflect.TypeFor[encoding.TextUnmarshaler](),
	}
)

// schema describes a type.
func (r *reflector) schema(t reflect.Type, d direction) (Schema, error) {
	if known, ok := r.types.Known[t]; ok {
		return maps.Clone(known), nil
	}
	switch t {
	case timeType:
		return Schema{"type": "string", "format": "date-time"}, nil
	case durationType:
		return Schema{"type": "integer", "description": "nanoseconds"}, nil
	case rawType:
		return Schema{}, nil
	case bytesType:
		return Schema{"type": "string", "contentEncoding": "base64"}, nil
	}
	for _, iface := range writesItself {
		if t.Kind() != reflect.Pointer && (t.Implements(iface) || reflect.PointerTo(t).Implements(iface)) {
			return nil, fmt.Errorf("%v writes itself as JSON, and nobody says how", t)
		}
	}
	switch t.Kind() {
	case reflect.Bool:
		return Schema{"type": "boolean"}, nil
	case reflect.Float32, reflect.Float64:
		return Schema{"type": "number"}, nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return Schema{"type": "integer"}, nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return Schema{"type": "integer", "minimum": 0}, nil
	case reflect.String:
		if values := r.types.Values[t]; values != nil {
			return Schema{"type": "string", "enum": values}, nil
		}
		return Schema{"type": "string"}, nil
	case reflect.Pointer:
		return r.schema(t.Elem(), d)
	case reflect.Slice, reflect.Array:
		items, err := r.schema(t.Elem(), d)
		return Schema{"type": "array", "items": items}, err
	case reflect.Map:
		values, err := r.schema(t.Elem(), d)
		return Schema{"type": "object", "additionalProperties": values}, err
	case reflect.Interface: // anything at all
		return Schema{}, nil
	case reflect.Struct:
		return r.structure(t, d)
	}
	return nil, fmt.Errorf("%v can't be described", t)
}

// structure describes a struct, by reference if it has a name. A type has another schema and
// another name in requests than in answers.
func (r *reflector) structure(t reflect.Type, d direction) (Schema, error) {
	name := r.types.Name(t)
	if name == "" {
		return r.object(t, d)
	}
	if d.in {
		name += "Input"
	}
	if d.in && !d.strict {
		name += "Loose"
	}
	ref := Schema{"$ref": "#/components/schemas/" + name}
	if other, ok := r.named[name]; ok {
		if other != t {
			return nil, fmt.Errorf("%v and %v are both called %s", t, other, name)
		}
		return ref, nil
	}
	r.named[name] = t // before its fields, since a field may have this very type
	s, err := r.object(t, d)
	r.components[name] = s
	return ref, err
}

// object writes a struct's fields out.
func (r *reflector) object(t reflect.Type, d direction) (Schema, error) {
	if t.Kind() != reflect.Struct {
		return nil, fmt.Errorf("%v has no fields", t)
	}
	properties, required := map[string]any{}, []string{}
	for _, f := range fieldsOf(t) {
		s, err := r.schema(f.of, d)
		if err != nil {
			return nil, fmt.Errorf("%v.%s: %w", t, f.name, err)
		}
		if r.maybeNull(f, t, d) {
			s = orNull(s)
		}
		properties[f.name] = s
		if !f.omitted {
			required = append(required, f.name)
		}
	}
	s := Schema{"type": "object", "properties": properties}
	if !d.in && len(required) > 0 {
		slices.Sort(required)
		s["required"] = required
	}
	if d.strict {
		s["additionalProperties"] = false
	}
	return s, nil
}

// maybeNull reports whether a field can be null. encoding/json reads null into every type as "not
// given". It writes null for a nil that it does not leave out.
func (r *reflector) maybeNull(f field, owner reflect.Type, d direction) bool {
	if d.in {
		return true
	}
	if f.omitted {
		return false
	}
	switch f.of.Kind() {
	case reflect.Pointer:
		return true
	case reflect.Slice, reflect.Map:
		return !r.types.Filled(owner)
	}
	return false
}

// orNull returns a schema that admits null too.
func orNull(s Schema) Schema {
	if len(s) == 0 {
		return s // anything at all
	}
	kind, simple := s["type"].(string)
	if !simple || s["enum"] != nil {
		return Schema{"anyOf": []any{s, Schema{"type": "null"}}}
	}
	s["type"] = []string{kind, "null"}
	return s
}

// field is one field as encoding/json sees it.
type field struct {
	name    string
	of      reflect.Type
	omitted bool // when it is empty
}

// fieldsOf lists a struct's fields by the rules of encoding/json. The fields of an embedded struct
// count as fields of the outer one, unless the outer one has a field of that name.
func fieldsOf(t reflect.Type) []field {
	var own, embedded []field
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-":
			continue
		case f.Anonymous && name == "" && f.Type.Kind() == reflect.Struct:
			embedded = append(embedded, fieldsOf(f.Type)...)
			continue
		case !f.IsExported():
			continue
		case name == "":
			name = f.Name
		}
		own = append(own, field{name, f.Type, strings.Contains(options, "omitempty") || strings.Contains(options, "omitzero")})
	}
	for _, e := range embedded {
		if !slices.ContainsFunc(own, func(f field) bool { return f.name == e.name }) {
			own = append(own, e)
		}
	}
	return own
}
