package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
)

const (
	maxBody  = 1 << 20
	maxDepth = 64
	bodyTime = 30 * time.Second
)

// decode reads a JSON object from the request into v. It ignores unknown fields, as E2B does. An
// error about a wrong type names the field. An empty body is an error unless optional.
func decode(w http.ResponseWriter, r *http.Request, v any, optional bool) error {
	raw, err := document(w, r, optional)
	if err != nil || raw == nil {
		return err
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return describe(err)
	}
	return nil
}

// document reads a JSON document, bounded in size and depth. It returns nil for an empty body, if
// optional allows one.
func document(w http.ResponseWriter, r *http.Request, optional bool) ([]byte, error) {
	raw, err := readBody(w, r)
	if err != nil {
		return nil, err
	}
	if len(strings.TrimSpace(string(raw))) == 0 {
		if optional {
			return nil, nil
		}
		return nil, tell(carrel.Invalid, "Error when parsing request: the body is empty, a JSON object is needed")
	}
	if err := checkDepth(raw); err != nil {
		return nil, tell(carrel.Invalid, "Error when parsing request: %s", err)
	}
	return raw, nil
}

// readBody reads a bounded body in bounded time.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Now().Add(bodyTime)) // not every test recorder can
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err == nil {
		_ = rc.SetReadDeadline(time.Time{}) // otherwise it bounds later reads of the server
	}
	if _, big := errors.AsType[*http.MaxBytesError](err); big {
		p := tell(carrel.Invalid, "request body is larger than %d bytes", maxBody)
		p.status, p.body.Code = http.StatusRequestEntityTooLarge, http.StatusRequestEntityTooLarge
		return nil, p
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		p := tell(carrel.TimedOut, "request body did not arrive within %v", bodyTime)
		p.status, p.body.Code = http.StatusRequestTimeout, http.StatusRequestTimeout
		return nil, p
	}
	if err != nil {
		return nil, tell(carrel.Invalid, "Error when parsing request: the body broke off: %s", err)
	}
	return raw, nil
}

// checkDepth refuses JSON nested deeper than maxDepth, before a decoder recurses into it.
func checkDepth(raw []byte) error {
	depth, inString, escaped := 0, false, false
	for _, c := range raw {
		switch {
		case escaped:
			escaped = false
		case inString:
			inString, escaped = c != '"', c == '\\'
		case c == '"':
			inString = true
		case c == '{' || c == '[':
			if depth++; depth > maxDepth {
				return fmt.Errorf("nested deeper than %d levels", maxDepth)
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return nil
}

// describe says what is wrong with a JSON document, and in which field.
func describe(err error) error {
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		field := e.Field
		if goName, rest, ok := strings.Cut(field, "."); ok && strings.HasSuffix(goName, "Options") {
			field = rest // an embedded struct's Go name is not the caller's
		}
		if field == "" {
			field = "body"
		}
		p := tell(carrel.Invalid, "Error when parsing request: %s: %s given, %s needed", field, e.Value, typeName(e.Type))
		p.body.Field = field
		return p
	}
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		return tell(carrel.Invalid, "Error when parsing request: not JSON: %s (at byte %d)", e, e.Offset)
	}
	if p, ok := errors.AsType[*problem](err); ok {
		return p
	}
	return tell(carrel.Invalid, "Error when parsing request: %s", err)
}

// typeName names a Go type in the terms of JSON.
func typeName(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[carrel.Milli]():
		return "a decimal number with at most three digits after the point"
	case reflect.TypeFor[carrel.Micro]():
		return "a decimal number with at most six digits after the point"
	}
	switch t.Kind() {
	case reflect.Int, reflect.Int32, reflect.Int64:
		return "a whole number in range"
	case reflect.Float64, reflect.Float32:
		return "a number"
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a text"
	case reflect.Slice:
		return "a list"
	case reflect.Map, reflect.Struct:
		return "an object"
	}
	return t.String()
}
