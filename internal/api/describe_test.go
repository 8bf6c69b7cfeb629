package api

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel/internal/openapi"
)

// described returns the document as a client reads it.
func described(t *testing.T) map[string]any {
	t.Helper()
	s := New(Options{Callers: adminKey("k"), Version: "1.2.3"})
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, DocumentPath, nil)) // without a key
	if w.Code != http.StatusOK {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	var doc map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	return doc
}

// TestDocumentIsComplete shows that the document describes each route, and nothing else.
func TestDocumentIsComplete(t *testing.T) {
	served := map[string]bool{}
	for _, pattern := range New(Options{Callers: adminKey("k")}).Patterns() {
		served[pattern] = true
	}
	for pattern := range openOperations {
		served[pattern] = true
	}
	want := map[string]bool{}
	for pattern := range served {
		path, verbs := openapi.Routes(pattern)
		for _, verb := range verbs {
			want[verb+" "+path] = true
		}
		if _, ok := operations()[pattern]; !ok {
			t.Errorf("%s is not described: add a line to describe_ours.go", pattern)
		}
	}
	doc := described(t)
	got := map[string]bool{}
	ids := map[string]bool{}
	for path, item := range doc["paths"].(map[string]any) {
		for verb, op := range item.(map[string]any) {
			route := strings.ToUpper(verb) + " " + path
			got[route] = true
			op := op.(map[string]any)
			if text, _ := op["summary"].(string); !strings.HasSuffix(text, ".") || len(text) < 10 {
				t.Errorf("%s: the summary %q is no sentence", route, text)
			}
			id := op["operationId"].(string)
			if ids[id] {
				t.Errorf("%s: %s is the name of another operation, too", route, id)
			}
			ids[id] = true
		}
	}
	if !maps.Equal(got, want) {
		for _, route := range slices.Sorted(maps.Keys(got)) {
			if !want[route] {
				t.Errorf("%s is described and not served", route)
			}
		}
		for _, route := range slices.Sorted(maps.Keys(want)) {
			if !got[route] {
				t.Errorf("%s is served and not described", route)
			}
		}
	}
}

// TestDocumentIsTheSame shows that the same program always makes the same document.
func TestDocumentIsTheSame(t *testing.T) {
	a, err := Document("x")
	if err != nil {
		t.Fatal(err)
	}
	b, err := Document("x")
	if err != nil || string(a) != string(b) {
		t.Errorf("two documents differ: %v", err)
	}
}

// wrong returns a value that a property of the schema does not admit, or nil if it admits all.
func wrong(s map[string]any) any {
	kinds := []string{}
	switch k := s["type"].(type) {
	case string:
		kinds = append(kinds, k)
	case []any:
		for _, one := range k {
			kinds = append(kinds, one.(string))
		}
	}
	if s["$ref"] != nil || s["properties"] != nil {
		kinds = append(kinds, "object")
	}
	if choices, ok := s["anyOf"].([]any); ok {
		for _, one := range choices {
			one := one.(map[string]any)
			if k, ok := one["type"].(string); ok {
				kinds = append(kinds, k)
			}
			if one["$ref"] != nil {
				kinds = append(kinds, "object")
			}
		}
	}
	switch {
	case len(kinds) == 0:
		return nil
	case !slices.Contains(kinds, "boolean"):
		return true
	}
	return "neither"
}

// TestDocumentBodies shows that the routes hold a request's body to the document: they refuse a
// field of another type, and our own routes refuse an unknown field.
func TestDocumentBodies(t *testing.T) {
	s := New(Options{Callers: adminKey("k"), Service: newFake(), Rekey: func([]byte) error { return nil }})
	post := func(route, path, body string) (int, string) {
		verb, _, _ := strings.Cut(route, " ")
		r := httptest.NewRequest(verb, path, strings.NewReader(body))
		r.Header.Set("X-API-KEY", "k")
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	tried := 0
	doc := described(t)
	for pattern, op := range operations() {
		if op.Body == nil || op.Body.Media != "" {
			continue
		}
		path, verbs := openapi.Routes(pattern)
		schema := bodySchema(t, doc, path, strings.ToLower(verbs[0]))
		path = strings.NewReplacer("{id}", boxID, "{secretID}", "s", "{secret}", "s", "{name}", "n").Replace(path)
		for name, property := range schema["properties"].(map[string]any) {
			if raw, err := json.Marshal(map[string]any{name: wrong(property.(map[string]any))}); err != nil {
				t.Error(err)
			} else if v := wrong(property.(map[string]any)); v != nil {
				tried++
				if status, answer := post(pattern, path, string(raw)); status != http.StatusBadRequest || !strings.Contains(answer, name) {
					t.Errorf("%s with %s: %d %s", pattern, raw, status, answer)
				}
			}
		}
		status, answer := post(pattern, path, `{"notAField":1}`)
		if refused := status == http.StatusBadRequest && strings.Contains(answer, "notAField"); refused != op.Body.Strict {
			t.Errorf("%s with an unknown field: %d %s", pattern, status, answer)
		}
		if closed := schema["additionalProperties"] == false; closed != op.Body.Strict {
			t.Errorf("%s: does the document refuse unknown fields? %v", pattern, closed)
		}
		for _, q := range op.Query {
			t.Errorf("%s has a parameter %s beside its body, which nobody checks", pattern, q.Name)
		}
	}
	if tried < 60 {
		t.Errorf("only %d fields were tried", tried)
	}
}

// bodySchema returns the schema of a request's body. It follows a reference to the schema itself.
func bodySchema(t *testing.T, doc map[string]any, path, verb string) map[string]any {
	t.Helper()
	op := doc["paths"].(map[string]any)[path].(map[string]any)[verb].(map[string]any)
	schema := op["requestBody"].(map[string]any)["content"].(map[string]any)["application/json"].(map[string]any)["schema"].(map[string]any)
	if ref, ok := schema["$ref"].(string); ok {
		name := strings.TrimPrefix(ref, "#/components/schemas/")
		schema = doc["components"].(map[string]any)["schemas"].(map[string]any)[name].(map[string]any)
	}
	return schema
}

// TestDocumentQueries shows that a route refuses a parameter with a value of another type than the
// document gives.
func TestDocumentQueries(t *testing.T) {
	s := New(Options{Callers: adminKey("k"), Service: newFake()})
	tried := 0
	for pattern, op := range operations() {
		verb, path, _ := strings.Cut(pattern, " ")
		path = strings.NewReplacer("{id}", boxID, "{name}", "n", "{profile}", "profile").Replace(path)
		for _, q := range op.Query {
			if q.Schema["type"] == "string" && q.Schema["format"] == nil && q.Schema["enum"] == nil && !q.Needed {
				continue
			}
			query := "?" + q.Name + "=no-such-value"
			if q.Needed {
				query = ""
			}
			tried++
			r := httptest.NewRequest(verb, path+query, nil)
			r.RemoteAddr = "127.0.0.1:1"
			r.Header.Set("X-API-KEY", "k")
			w := httptest.NewRecorder()
			s.ServeHTTP(w, r)
			if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), q.Name) {
				t.Errorf("%s%s: %d %s", pattern, query, w.Code, w.Body)
			}
		}
	}
	if tried < 25 {
		t.Errorf("only %d parameters were tried", tried)
	}
}
