package api

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestProfiles asks for profiles as a client on this machine, and as others, who get none.
func TestProfiles(t *testing.T) {
	srv := New(Options{Service: newFake(), Callers: adminKey("k")})
	for _, c := range []struct {
		name, path, from string
		header           http.Header
		status           int
		body             string
	}{
		{"heap", "heap", "127.0.0.1:5", http.Header{"X-Api-Key": {"k"}}, 200, "\x1f\x8b"},
		{"goroutines as text", "goroutine?debug=1", "[::1]:5", http.Header{"X-Api-Key": {"k"}}, 200, "goroutine profile:"},
		{"processor time", "profile?seconds=1", "127.0.0.1:5", http.Header{"X-Api-Key": {"k"}}, 200, "\x1f\x8b"},
		{"no key", "heap", "127.0.0.1:5", nil, 401, ""},
		{"from another machine", "heap", "192.0.2.7:5", http.Header{"X-Api-Key": {"k"}}, 403, "this machine only"},
		{"through a proxy here", "heap", "127.0.0.1:5", http.Header{"X-Api-Key": {"k"}, "X-Forwarded-For": {"192.0.2.7"}}, 403, ""},
		{"unknown", "secrets", "127.0.0.1:5", http.Header{"X-Api-Key": {"k"}}, 404, ""},
		{"too long", "profile?seconds=100000", "127.0.0.1:5", http.Header{"X-Api-Key": {"k"}}, 400, "seconds"},
		{"no number", "profile?seconds=x", "127.0.0.1:5", http.Header{"X-Api-Key": {"k"}}, 400, "seconds"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := httptest.NewRequest("GET", "/carrel/v1/debug/pprof/"+c.path, nil)
			r.RemoteAddr = c.from
			if c.header != nil {
				r.Header = c.header
			}
			w := httptest.NewRecorder()
			srv.ServeHTTP(w, r)
			if w.Code != c.status || !strings.Contains(w.Body.String(), c.body) {
				t.Errorf("status %d, want %d: %.200s", w.Code, c.status, w.Body)
			}
		})
	}
}
