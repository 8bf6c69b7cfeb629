package cli

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"
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
