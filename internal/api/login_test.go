package api

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// TestLogin goes through the page of "e2b auth login", and tries to lead the key elsewhere.
func TestLogin(t *testing.T) {
	srv := httptest.NewServer(New(Options{Service: &fake{}, Callers: adminKey("e2b_01")}))
	defer srv.Close()
	stay := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	ask := func(method, path, origin string, form url.Values) (*http.Response, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, srv.URL+path,
			strings.NewReader(form.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		if origin != "" {
			req.Header.Set("Origin", origin)
		}
		resp, err := stay.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp, string(body)
	}
	const good = "http://localhost:4321"
	resp, page := ask("GET", LoginPath+"?next="+url.QueryEscape(good), "", nil)
	if resp.StatusCode != 200 || !strings.Contains(page, "http://localhost:4321/") ||
		resp.Header.Get("X-Frame-Options") != "DENY" ||
		!strings.Contains(resp.Header.Get("Content-Security-Policy"), "frame-ancestors 'none'") {
		t.Fatalf("%d %v\n%s", resp.StatusCode, resp.Header, page)
	}
	for _, next := range []string{"", "https://localhost:1", "http://localhost",
		"http://localhost:0", "http://localhost:99999",
		"http://example.com:80", "http://localhost:80@example.com",
		"http://localhost.example.com:80", "http://10.0.0.1:80",
		"//example.com:80", "javascript:alert(1)", "http://localhost:80/path",
		"http://u:p@localhost:80", "http://localhost:80#x",
		"http://localhost:80\n.example.com", "http:localhost:80"} {
		for method, form := range map[string]url.Values{"GET": nil,
			"POST": {"next": {next}, "key": {"e2b_01"}}} {
			resp, body := ask(method, LoginPath+"?next="+url.QueryEscape(next), "", form)
			if resp.StatusCode != 400 || resp.Header.Get("Location") != "" ||
				!strings.Contains(body, `"field":"next"`) {
				t.Errorf("%s %q: %d %s", method, next, resp.StatusCode, body)
			}
		}
	}
	form := url.Values{"next": {good}, "key": {" e2b_01 "}}
	if resp, body := ask("POST", LoginPath, "https://evil.example.com",
		form); resp.StatusCode != 403 || resp.Header.Get("Location") != "" {
		t.Errorf("another site's form: %d %s", resp.StatusCode, body)
	}
	if resp, body := ask("POST", LoginPath, "",
		url.Values{"next": {good}, "key": {"e2b_02"}}); resp.StatusCode != 401 ||
		strings.Contains(body, "e2b_02") {
		t.Errorf("a wrong key: %d %s", resp.StatusCode, body)
	}
	resp, _ = ask("POST", LoginPath, srv.URL, form)
	to, err := resp.Location()
	if err != nil || resp.StatusCode != 303 || to.Host != "localhost:4321" ||
		to.Query().Get("accessToken") != "e2b_01" ||
		to.Query().Get("tokenEndpoint") != srv.URL+loginTokenPath {
		t.Fatalf("%d %v %v", resp.StatusCode, to, err)
	}
	for key, want := range map[string]string{"e2b_01": `"access_token":"e2b_01"`,
		"e2b_02": "invalid_grant", "": "invalid_grant"} {
		if _, body := ask("POST", loginTokenPath, "",
			url.Values{"grant_type": {"refresh_token"},
				"refresh_token": {key}}); !strings.Contains(body, want) {
			t.Errorf("renew %q: %s", key, body)
		}
	}
	if _, body := ask("GET", LoginPath+"?state=error&error="+url.QueryEscape("<script>x"), "",
		nil); strings.Contains(body, "<script>") {
		t.Errorf("an error is not escaped: %s", body)
	}
	if resp, _ := ask("POST", LoginPath, "", url.Values{"key": {strings.Repeat("x",
		maxLoginForm)}}); resp.StatusCode != 400 {
		t.Errorf("a long form: %d", resp.StatusCode)
	}
	if resp, _ := ask("DELETE", LoginPath, "", nil); resp.StatusCode != 405 {
		t.Errorf("another method: %d", resp.StatusCode)
	}
}
