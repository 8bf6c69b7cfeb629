// Package openapi writes the description of an HTTP API as an OpenAPI 3.1 document.
//
// A door has one table from its routes to [Operation] values. [Document] makes the document of
// it. The schemas come from the Go types that the door decodes requests into and encodes
// answers from, so a field that is added there is in the document at once. The package knows
// no route and no type of its own.
//
// A document is deterministic: the same table gives the same bytes.
package openapi

import (
	"fmt"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Version is the version of the OpenAPI specification that documents follow.
const Version = "3.1.0"

// API is what a document describes.
type API struct {
	Title, Version, Description string
	// Tags are the groups of operations, in the order in which they are shown.
	Tags []Tag
	// Operations are by pattern, in the form of [http.ServeMux]: "GET /sandboxes/{id}".
	Operations map[string]Operation
	// Failure is a value of the type of all errors' answers.
	Failure any
	// Types gives the names of the types, and the values of those with a fixed set.
	Types Types
}

// Tag is a group of operations.
type Tag struct{ Name, Description string }

// Operation describes one route.
type Operation struct {
	Tag string
	// Summary is one sentence that says what the operation does.
	Summary string
	// Query are the parameters of the query.
	Query []Parameter
	// Body describes the request's body; nil is none.
	Body *Body
	// Answers are by status: a value of the encoded type, or nil for no content.
	Answers map[int]any
	// Media is the answers' content type; "" is JSON. [Lines] is one JSON value a line.
	Media string
	// Open needs no key.
	Open bool
	// Deprecated says that a better operation exists.
	Deprecated bool
}

// Content types other than JSON.
const (
	Lines = "application/x-ndjson"
	Bytes = "application/octet-stream"
	Text  = "text/plain"
	Form  = "application/x-www-form-urlencoded"
)

// Body describes the body of a request.
type Body struct {
	// Of is a value of the type into which the body is decoded.
	Of any
	// Needed are fields that must be there.
	Needed []string
	// Optional means the request may have no body.
	Optional bool
	// Strict says that unknown fields are refused.
	Strict bool
	// Media is the content type; "" is JSON.
	Media string
}

// Parameter is one parameter of a query.
type Parameter struct {
	Name   string
	Schema Schema
	Needed bool
}

// Schema is a JSON Schema.
type Schema = map[string]any

// String is a parameter that is any text.
func String(name string) Parameter { return Parameter{Name: name, Schema: Schema{"type": "string"}} }

// Integer is a parameter that is a whole number.
func Integer(name string) Parameter {
	return Parameter{Name: name, Schema: Schema{"type": "integer", "minimum": 0}}
}

// Boolean is a parameter that is true or false.
func Boolean(name string) Parameter { return Parameter{Name: name, Schema: Schema{"type": "boolean"}} }

// Time is a parameter that is a time as RFC 3339 has it.
func Time(name string) Parameter {
	return Parameter{Name: name, Schema: Schema{"type": "string", "format": "date-time"}}
}

// OneOf is a parameter that is one of the values.
func OneOf(name string, values ...string) Parameter {
	return Parameter{Name: name, Schema: Schema{"type": "string", "enum": values}}
}

// Require returns the parameter as one that must be given.
func Require(p Parameter) Parameter {
	p.Needed = true
	return p
}

// methods are those that a pattern without a method answers.
var methods = []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}

// wildcard is a part of a pattern that stands for anything.
var wildcard = regexp.MustCompile(`\{([^}]+)\}`)

// Routes returns the path and the methods of a pattern of [http.ServeMux], as the document has
// them. A pattern without a method has every method that the API uses. A pattern for a whole
// subtree has a last parameter for the rest.
func Routes(pattern string) (path string, verbs []string) {
	verbs, path = methods, pattern
	if method, rest, ok := strings.Cut(pattern, " "); ok {
		verbs, path = []string{method}, rest
	}
	path = strings.ReplaceAll(path, "...}", "}")
	if strings.HasSuffix(path, "/") {
		path += "{rest}"
	}
	return path, verbs
}

// Document returns the document that describes an API. It fails on a type that it cannot
// describe, and on two patterns that are one route.
func Document(a API) (map[string]any, error) {
	r := &reflector{types: a.Types, components: map[string]any{}, named: map[string]reflect.Type{}}
	paths := map[string]any{}
	for pattern, op := range a.Operations {
		path, verbs := Routes(pattern)
		item, _ := paths[path].(map[string]any)
		if item == nil {
			item = map[string]any{}
			paths[path] = item
		}
		for _, verb := range verbs {
			key := strings.ToLower(verb)
			if item[key] != nil {
				return nil, fmt.Errorf("describe %s: there are two of %s %s", pattern, verb, path)
			}
			described, err := r.operation(op, verb, path, a.Failure)
			if err != nil {
				return nil, fmt.Errorf("describe %s: %w", pattern, err)
			}
			item[key] = described
		}
	}
	tags := []any{}
	for _, t := range a.Tags {
		tags = append(tags, map[string]any{"name": t.Name, "description": t.Description})
	}
	return map[string]any{
		"openapi": Version,
		"info":    map[string]any{"title": a.Title, "version": a.Version, "description": a.Description},
		"tags":    tags,
		"paths":   paths,
		"components": map[string]any{
			"schemas": r.components,
			"securitySchemes": map[string]any{
				"key":    map[string]any{"type": "apiKey", "in": "header", "name": "X-API-KEY"},
				"bearer": map[string]any{"type": "http", "scheme": "bearer"},
			},
		},
		"security": []any{map[string]any{"key": []any{}}, map[string]any{"bearer": []any{}}},
	}, nil
}

// operation describes one method of one path.
func (r *reflector) operation(op Operation, verb, path string, failure any) (map[string]any, error) {
	out := map[string]any{"summary": op.Summary, "operationId": operationID(verb, path), "tags": []any{op.Tag}}
	if op.Open {
		out["security"] = []any{}
	}
	if op.Deprecated {
		out["deprecated"] = true
	}
	if parameters := parametersOf(op, path); len(parameters) > 0 {
		out["parameters"] = parameters
	}
	if op.Body != nil {
		body, err := r.body(*op.Body)
		if err != nil {
			return nil, err
		}
		out["requestBody"] = body
	}
	answers := map[string]any{}
	for status, of := range op.Answers {
		answer, err := r.answer(status, of, op.Media)
		if err != nil {
			return nil, err
		}
		answers[strconv.Itoa(status)] = answer
	}
	if !op.Open {
		failed, err := r.answer(0, failure, "")
		if err != nil {
			return nil, err
		}
		answers["default"] = failed
	}
	out["responses"] = answers
	return out, nil
}

// operationID makes a name for a client's method out of a route: getCarrelV1SandboxesById.
func operationID(verb, path string) string { return OperationID(verb + " " + path) }

// OperationID is the name of an operation, from a route's pattern in the form of [http.ServeMux].
func OperationID(pattern string) string {
	verb, path, ok := strings.Cut(pattern, " ")
	if !ok {
		verb, path = "any", pattern
	}
	var b strings.Builder
	b.WriteString(strings.ToLower(verb))
	for part := range strings.FieldsFuncSeq(path, func(c rune) bool { return c == '/' || c == '-' || c == '.' }) {
		if name, ok := strings.CutPrefix(part, "{"); ok {
			part = "By" + capital(strings.TrimSuffix(name, "}"))
		}
		b.WriteString(capital(part))
	}
	return b.String()
}

// capital returns a name with its first letter in upper case.
func capital(name string) string {
	if name == "" {
		return ""
	}
	return strings.ToUpper(name[:1]) + name[1:]
}

// parametersOf lists the parameters of the path and of the query.
func parametersOf(op Operation, path string) []any {
	var out []any
	for _, m := range wildcard.FindAllStringSubmatch(path, -1) {
		out = append(out, map[string]any{"name": m[1], "in": "path", "required": true, "schema": Schema{"type": "string"}})
	}
	for _, q := range op.Query {
		p := map[string]any{"name": q.Name, "in": "query", "schema": q.Schema}
		if q.Needed {
			p["required"] = true
		}
		out = append(out, p)
	}
	return out
}

// body describes a request's body.
func (r *reflector) body(b Body) (map[string]any, error) {
	media, schema := b.Media, Schema{}
	if media == "" {
		media = "application/json"
	}
	if b.Of != nil {
		in := direction{in: true, strict: b.Strict}
		var err error
		if len(b.Needed) > 0 { // belongs to this request only, so it is no component
			schema, err = r.object(reflect.TypeOf(b.Of), in)
		} else {
			schema, err = r.schema(reflect.TypeOf(b.Of), in)
		}
		if err != nil {
			return nil, err
		}
	}
	if len(b.Needed) > 0 {
		fields, _ := schema["properties"].(map[string]any)
		for _, name := range b.Needed {
			if fields[name] == nil {
				return nil, fmt.Errorf("the body has no field %q that could be needed", name)
			}
		}
		schema["required"] = slices.Sorted(slices.Values(b.Needed))
	}
	out := map[string]any{"content": map[string]any{media: map[string]any{"schema": schema}}}
	if !b.Optional {
		out["required"] = true
	}
	return out, nil
}

// answer describes the answer with a status. 0 is every status that is not listed.
func (r *reflector) answer(status int, of any, media string) (map[string]any, error) {
	text := http.StatusText(status)
	if status == 0 {
		text = "What went wrong, and what can be done about it."
	}
	out := map[string]any{"description": text}
	if of == nil && (media == "" || media == Lines) {
		return out, nil
	}
	if media == "" {
		media = "application/json"
	}
	schema := Schema{}
	if of != nil {
		var err error
		if schema, err = r.schema(reflect.TypeOf(of), direction{}); err != nil {
			return nil, err
		}
	}
	out["content"] = map[string]any{media: map[string]any{"schema": schema}}
	return out, nil
}
