package signin

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/state"
)

// TestNextPath tries to lead a person elsewhere after the sign-in.
func TestNextPath(t *testing.T) {
	for _, good := range []string{"/", "/device?code=BCDF-GHJK", "/console/x#y", LoginPath} {
		if got := nextPath(good); got != good {
			t.Errorf("%q became %q", good, got)
		}
	}
	for _, bad := range []string{"", "x", "//evil.example.com", "https://evil.example.com", "/\\evil.example.com",
		"\\\\evil.example.com", "/\t/evil.example.com", "/%2F/evil.example.com/%", "javascript:alert(1)",
		" //evil.example.com", "///evil.example.com", "/x\r\nSet-Cookie: a=b", "http:evil.example.com",
		"//u@evil.example.com", "/\u2028", "/%2fevil.example.com"} {
		if got := nextPath(bad); got != LoginPath {
			t.Errorf("%q leads to %q", bad, got)
		}
	}
}

// TestCodes looks at user codes, and at how people type them.
func TestCodes(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		c := newCode()
		if seen[c] || plainCode(dashed(c)) != c {
			t.Fatalf("%q", c)
		}
		seen[c] = true
	}
	for text, want := range map[string]string{"bcdf-ghjk": "BCDFGHJK", " BCDF GHJK ": "BCDFGHJK",
		"": "", "BCDF-GHJ": "", "BCDF-GHJA": "", "BCDFGHJKL": "", "<script>": ""} {
		if got := plainCode(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	for text, want := range map[string]string{"a\nb\x1b[31m": "ab[31m", "carrel on x": "carrel on x", "\u202e": ""} {
		if got := clean(text); got != want {
			t.Errorf("%q: %q", text, got)
		}
	}
}

// crowd is a People in which everybody has the session "s".
type crowd struct{ begun int }

func (c *crowd) Password(context.Context, string, string) (string, error) { return "kim", nil }

func (c *crowd) Provided(context.Context, string, string, string, []string) (string, error) {
	return "kim", nil
}

func (c *crowd) Begin(context.Context, string, state.SessionKind, string) (string, time.Time, error) {
	c.begun++
	return "secret", time.Now().Add(time.Hour), nil
}

func (c *crowd) End(context.Context, string) error { return nil }

func (c *crowd) Who(string) (carrel.Person, string, bool) {
	return carrel.Person{ID: "1", Name: "kim"}, "session", true
}

func (c *crowd) FormToken(string) string { return "token" }

func (c *crowd) SessionOf(*http.Request) string { return "s" }

func (c *crowd) SessionCookie(secret string, _ *http.Request) *http.Cookie {
	return &http.Cookie{Name: "c", Value: secret}
}

// TestCodesEnd lets a user code and a device code get old, and fills the place for those who wait.
func TestCodesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		people := &crowd{}
		d := New(Options{People: people, Cookies: people,
			PublicURL: func() string { return "http://127.0.0.1" }})
		h := d.Wrap(http.NotFoundHandler())
		post := func(path, from string, form url.Values) (int, string) {
			t.Helper()
			r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(form.Encode()))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			r.RemoteAddr = from
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			return w.Code, w.Body.String()
		}
		begin := func(from string) (code, user string, status int) {
			t.Helper()
			var made struct {
				Device string `json:"device_code"`
				User   string `json:"user_code"`
			}
			status, text := post(DeviceAuthPath, from, url.Values{"client_id": {"x"}})
			_ = json.Unmarshal([]byte(text), &made)
			return made.Device, made.User, status
		}
		ask := func(code string) string {
			t.Helper()
			_, text := post(TokenPath, "192.0.2.1:1", url.Values{"grant_type": {grantDevice}, "device_code": {code}})
			return text
		}
		confirm := func(user string) int {
			t.Helper()
			status, _ := post(confirmPath, "192.0.2.1:1",
				url.Values{"token": {"token"}, "code": {user}, "answer": {"yes"}})
			return status
		}
		code, user, _ := begin("192.0.2.1:1")
		time.Sleep(deviceTime + time.Second)
		if status := confirm(user); status != http.StatusBadRequest {
			t.Errorf("an old user code: %d", status)
		}
		if got := ask(code); !strings.Contains(got, "expired_token") {
			t.Errorf("an old device code: %s", got)
		}
		code, user, _ = begin("192.0.2.1:1")
		if status := confirm(user); status != http.StatusOK {
			t.Errorf("a new user code: %d", status)
		}
		if status := confirm(user); status != http.StatusBadRequest {
			t.Errorf("a user code that was confirmed: %d", status)
		}
		if got := ask(code); !strings.Contains(got, "secret") || people.begun != 1 {
			t.Errorf("%s", got)
		}
		full := 0
		for i := range maxDevices + 100 {
			if _, _, status := begin(fmt.Sprintf("198.51.%d.%d:1", i/200, i%200)); status == http.StatusServiceUnavailable {
				full++
			}
		}
		if full != 100 {
			t.Errorf("%d of 100 too many are refused", full)
		}
		time.Sleep(deviceTime + time.Second)
		if _, _, status := begin("192.0.2.1:1"); status != http.StatusOK {
			t.Errorf("old ones keep their places: %d", status)
		}
	})
}
