package cli

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/carreltest"
)

// TestLoginAndLogout logs in to a server that confirms at once, uses the token, and logs out.
func TestLoginAndLogout(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	for _, name := range []string{"CARREL_URL", "CARREL_API_KEY", "CARREL_DATA_DIR", "CARREL_PROJECT"} {
		t.Setenv(name, "")
	}
	const token = "e2b_0123456789012345678901234567890123456789"
	asked, revoked := 0, ""
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, status int, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(v)
	}
	mux.HandleFunc("POST /carrel/v1/login/device", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, 200, map[string]any{"device_code": "d", "user_code": "BCDF-GHJK",
			"verification_uri": "https://example.com/device\x1b[2J", "expires_in": 60, "interval": 1})
	})
	mux.HandleFunc("POST /carrel/v1/login/token", func(w http.ResponseWriter, _ *http.Request) {
		if asked++; asked == 1 {
			answer(w, 400, map[string]any{"error": "authorization_pending"})
			return
		}
		answer(w, 200, map[string]any{"access_token": token, "token_type": "Bearer", "expires_in": 3600})
	})
	mux.HandleFunc("POST /carrel/v1/login/revoke", func(w http.ResponseWriter, r *http.Request) {
		revoked = r.PostFormValue("token")
		answer(w, 200, struct{}{})
	})
	mux.HandleFunc("GET /carrel/v1/whoami", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Api-Key") != token {
			answer(w, 401, map[string]any{"code": 401, "message": "no"})
			return
		}
		answer(w, 200, map[string]any{"name": "zoe", "role": "member", "project": "web"})
	})
	srv := httptest.NewServer(mux)
	defer srv.Close()
	carrelCLI := func(args ...string) (string, int) {
		t.Helper()
		var out, errw strings.Builder
		code := Main(args, os.Stdin, &out, &errw)
		return out.String() + errw.String(), code
	}
	if text, code := carrelCLI("login", "http://192.0.2.1:1"); code == 0 || !strings.Contains(text, "not encrypted") {
		t.Errorf("a login in clear text: %d %s", code, text)
	}
	text, code := carrelCLI("login", srv.URL+"/")
	if code != 0 || !strings.Contains(text, "BCDF-GHJK") || strings.Contains(text, token) || strings.Contains(text, "\x1b") {
		t.Fatalf("%d %s", code, text)
	}
	info, err := os.Stat(loginsFile())
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	if text, code := carrelCLI("whoami"); code != 0 || !strings.Contains(text, "zoe") {
		t.Errorf("%d %s", code, text)
	}
	// The token goes nowhere else.
	stranger := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.Header.Get("X-Api-Key")+r.Header.Get("Authorization"), token) {
			t.Error("another daemon gets the token")
		}
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, "{}")
	}))
	defer stranger.Close()
	if _, code := carrelCLI("--data-dir", t.TempDir(), "--url", stranger.URL, "whoami"); code == 0 {
		t.Error("another daemon knows the person")
	}
	all, err := readLogins()
	if err != nil || len(all.All) != 1 {
		t.Fatalf("%+v %v", all, err)
	}
	all.All[0].Expires = time.Now().Add(-time.Minute)
	if err := all.write(); err != nil {
		t.Fatal(err)
	}
	if text, code := carrelCLI("whoami"); code == 0 || !strings.Contains(text, "hint: carrel login "+srv.URL) {
		t.Errorf("%d %s", code, text)
	}
	if text, code := carrelCLI("logout"); code != 0 || revoked != token {
		t.Errorf("%d %s, revoked %q", code, text, revoked)
	}
	if text, code := carrelCLI("logout"); code == 0 {
		t.Errorf("a second logout: %s", text)
	}
}

// TestLoginAtDaemon logs in to a real daemon. The test plays the person's browser.
func TestLoginAtDaemon(t *testing.T) {
	srv := carreltest.New(t)
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("CARREL_DATA_DIR", "")
	env := func(url, key string) { t.Setenv("CARREL_URL", url); t.Setenv("CARREL_API_KEY", key) }
	run := func(args ...string) string {
		t.Helper()
		var out, errw strings.Builder
		if code := Main(args, os.Stdin, &out, &errw); code != 0 {
			t.Fatalf("%v: %d %s", args, code, errw.String())
		}
		return strings.TrimSpace(out.String())
	}
	env(srv.URL, srv.APIKey)
	run("project", "create", "web")
	password := run("person", "add", "zoe")
	run("member", "add", "zoe", "--of", "web", "--role", "admin")
	env("", "")
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{Jar: jar}
	post := func(path string, form url.Values) string {
		t.Helper()
		resp, err := browser.PostForm(srv.URL+path, form)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		page, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %d %s %v", path, resp.StatusCode, page, err)
		}
		return string(page)
	}
	page := post("/login", url.Values{"name": {"zoe"}, "password": {password}, "next": {"/device"}})
	_, token, _ := strings.Cut(page, `name="token" value="`)
	token, _, _ = strings.Cut(token, `"`)
	reader, writer := io.Pipe()
	done := make(chan int, 1)
	go func() { done <- Main([]string{"--json", "login", srv.URL}, os.Stdin, writer, io.Discard) }()
	var waits struct{ Code string }
	if err := json.NewDecoder(reader).Decode(&waits); err != nil {
		t.Fatal(err)
	}
	post("/device/confirm", url.Values{"token": {token}, "code": {waits.Code}, "answer": {"yes"}})
	if code := <-done; code != 0 {
		t.Fatalf("the login ends with %d", code)
	}
	var self carrel.Self
	if err := json.Unmarshal([]byte(run("--json", "whoami")), &self); err != nil || self.Name != "zoe" ||
		self.Project != "web" || self.Role != carrel.RoleOwner || self.Expires.IsZero() {
		t.Errorf("%+v %v", self, err)
	}
	if id := run("create"); !strings.Contains(run("ls"), id) {
		t.Errorf("the person's sandbox %s is not listed", id)
	}
	run("key", "create", "bot", "--quota", "sandboxes=1", "--egress", "")
	run("logout", srv.URL)
	all, err := readLogins()
	if err != nil || len(all.All) != 0 {
		t.Errorf("%+v %v", all, err)
	}
}
