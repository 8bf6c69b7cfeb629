package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/vault"
)

// canary is the value of all secrets here. No answer may contain it.
const canary = "sk-canary-5b1e77aa"

// secretsServer serves the secrets of a real vault.
func secretsServer(t *testing.T) func(method, path, body string) (*http.Response, string) {
	t.Helper()
	v, err := vault.Open(t.TempDir(), vault.Options{})
	if err != nil {
		t.Fatal(err)
	}
	srv := start(t, newFake(), func(o *Options) {
		o.Service = struct {
			*fake
			carrel.Secrets
		}{o.Service.(*fake), v.For(carrel.DefaultProject)}
		o.Rekey = v.Rekey
	})
	return func(method, path, body string) (*http.Response, string) {
		resp, text := call(t, srv, method, path, body)
		if strings.Contains(text, canary) || strings.Contains(fmt.Sprint(resp.Header), canary) {
			t.Errorf("%s %s answers with the value: %s", method, path, text)
		}
		return resp, text
	}
}

// TestSecretsE2B checks E2B's routes, statuses and bodies.
func TestSecretsE2B(t *testing.T) {
	do := secretsServer(t)
	resp, text := do("POST", "/secrets", `{"name":"OpenAI","value":"`+canary+`","metadata":{"team":"a"},"someday":1}`)
	var made secretBody
	if err := json.Unmarshal([]byte(text), &made); err != nil || resp.StatusCode != 201 || made.Name != "openai" || made.CurrentVersion != 1 ||
		made.Metadata["team"] != "a" || !strings.HasPrefix(made.SecretID, "sec_") || made.CreatedAt.IsZero() || made.UpdatedAt.IsZero() {
		t.Fatal(resp.Status, text, err)
	}
	for _, ref := range []string{made.SecretID, "openai", "OpenAI"} {
		if resp, text := do("GET", "/secrets/"+ref, ""); resp.StatusCode != 200 || !strings.Contains(text, made.SecretID) {
			t.Error(resp.Status, text)
		}
	}
	resp, text = do("POST", "/secrets/openai", `{"value":"`+canary+`2"}`)
	if resp.StatusCode != 200 || !strings.Contains(text, `"currentVersion":2`) || !strings.Contains(text, `"team":"a"`) {
		t.Error(resp.Status, text)
	}
	resp, text = do("POST", "/secrets/"+made.SecretID, `{"value":"`+canary+`3","metadata":{}}`)
	if resp.StatusCode != 200 || !strings.Contains(text, `"currentVersion":3`) || !strings.Contains(text, `"metadata":{}`) {
		t.Error(resp.Status, text)
	}
	if resp, text := do("DELETE", "/secrets/openai", ""); resp.StatusCode != 204 || text != "" {
		t.Error(resp.Status, text)
	}
	for _, c := range []struct {
		method, path, body string
		want               int
	}{
		{"DELETE", "/secrets/openai", "", 404},
		{"GET", "/secrets/openai", "", 404},
		{"POST", "/secrets/openai", `{"value":"` + canary + `"}`, 404},
		{"POST", "/secrets", `{"name":"` + canary + `/","value":"x"}`, 400},
		{"POST", "/secrets", `{"name":"sec_x","value":"` + canary + `"}`, 400},
		{"POST", "/secrets", `{"name":"a"}`, 400},
		{"POST", "/secrets", `{"name":"a","value":["` + canary + `"]}`, 400},
		{"POST", "/secrets", `{"name":"a","value":{"` + canary + `":1}}`, 400},
		{"POST", "/secrets", `{"name":"a","value":"` + canary, 400},
		{"POST", "/secrets", `{"name":"a","value":"` + canary + `"}{`, 400},
		{"POST", "/secrets", `{"name":"a","value":"` + canary + strings.Repeat("x", 70<<10) + `"}`, 400},
		{"POST", "/secrets", ``, 400},
		{"PUT", "/secrets/a", `{"value":"` + canary + `"}`, 405},
		{"GET", "/secrets?limit=0", "", 400},
		{"GET", "/secrets?limit=x", "", 400},
		{"GET", "/secrets?nextToken=%2F%2F", "", 400},
		{"GET", "/secrets/..%2fsecrets", "", 404},
	} {
		resp, text := do(c.method, c.path, c.body)
		var e errorBody
		if err := json.Unmarshal([]byte(text), &e); err != nil || resp.StatusCode != c.want || e.Code != c.want || e.Message == "" {
			t.Errorf("%s %s %.60s: %s %s", c.method, c.path, c.body, resp.Status, text)
		}
	}
	do("POST", "/secrets", `{"name":"twice","value":"`+canary+`"}`)
	if resp, text := do("POST", "/secrets", `{"name":"TWICE","value":"`+canary+`"}`); resp.StatusCode != 409 {
		t.Error(resp.Status, text)
	}
}

// TestSecretsPages shows that every secret is on exactly one page, even if others come and go
// between the pages.
func TestSecretsPages(t *testing.T) {
	do := secretsServer(t)
	if resp, text := do("GET", "/secrets", ""); resp.StatusCode != 200 || text != "[]" || resp.Header.Get("X-Next-Token") != "" {
		t.Error(resp.Status, text)
	}
	for i := range 7 {
		do("POST", "/secrets", fmt.Sprintf(`{"name":"n%d","value":"%s"}`, i, canary))
	}
	var names []string
	for path := "/secrets?limit=3"; ; {
		resp, text := do("GET", path, "")
		var page []secretBody
		if err := json.Unmarshal([]byte(text), &page); err != nil || resp.StatusCode != 200 || len(page) > 3 {
			t.Fatal(resp.Status, text, err)
		}
		for _, s := range page {
			names = append(names, s.Name)
		}
		next := resp.Header.Get("X-Next-Token")
		if next == "" {
			break
		}
		if len(names) == 3 {
			do("DELETE", "/secrets/n2", "") // where the page ended
			do("POST", "/secrets", `{"name":"a","value":"`+canary+`"}`)
		}
		path = "/secrets?limit=3&nextToken=" + next
	}
	if got := strings.Join(names, " "); got != "n0 n1 n2 n3 n4 n5 n6" {
		t.Error(got)
	}
}

// TestSecretsOurs checks our routes, with hosts.
func TestSecretsOurs(t *testing.T) {
	do := secretsServer(t)
	resp, text := do("POST", "/carrel/v1/secrets", `{"name":"a","value":"`+canary+`","hosts":["API.example.com"]}`)
	var made carrel.Secret
	if err := json.Unmarshal([]byte(text), &made); err != nil || resp.StatusCode != 201 || made.Name != "a" || len(made.Hosts) != 1 || made.Hosts[0] != "api.example.com" {
		t.Fatal(resp.Status, text, err)
	}
	if resp, text := do("PUT", "/carrel/v1/secrets/a", `{"value":"`+canary+`2","metadata":{"k":"v"}}`); resp.StatusCode != 200 || !strings.Contains(text, `"version":2`) || !strings.Contains(text, "api.example.com") {
		t.Error(resp.Status, text)
	}
	if resp, text := do("GET", "/carrel/v1/secrets", ""); resp.StatusCode != 200 || !strings.HasPrefix(text, `[{"id":"sec_`) {
		t.Error(resp.Status, text)
	}
	for _, c := range []struct {
		method, path, body string
		want               int
	}{
		{"POST", "/carrel/v1/secrets", `{"name":"b","value":"` + canary + `","host":["x"]}`, 400}, // an unknown field may be a misspelt bound
		{"POST", "/carrel/v1/secrets", `{"name":"b","value":"` + canary + `","hosts":["*"]}`, 400},
		{"PUT", "/carrel/v1/secrets/a", `{"value":"` + canary + `","hosts":["evil.example.com"]}`, 400},
		{"PUT", "/carrel/v1/secrets/none", `{"value":"` + canary + `"}`, 404},
		{"GET", "/carrel/v1/secrets/none", "", 404},
		{"DELETE", "/carrel/v1/secrets/a", "", 204},
		{"DELETE", "/carrel/v1/secrets/a", "", 404},
	} {
		if resp, text := do(c.method, c.path, c.body); resp.StatusCode != c.want {
			t.Errorf("%s %s: %s %s", c.method, c.path, resp.Status, text)
		}
	}
}

// TestNoSecrets shows the error of a service without secrets.
func TestNoSecrets(t *testing.T) {
	srv := start(t, newFake())
	for _, path := range []string{"/secrets", "/secrets/a", "/carrel/v1/secrets", "/carrel/v1/secrets/a"} {
		if resp, text := call(t, srv, "GET", path, ""); resp.StatusCode != 501 || !strings.Contains(text, "has no store of secrets") {
			t.Error(path, resp.Status, text)
		}
	}
}
