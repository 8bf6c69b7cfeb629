package agent_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel/internal/guest/agent"
	"github.com/carrel-dev/carrel/internal/guest/oshost"
)

// FuzzRange checks that a ranged download is a part of the file, or is refused.
func FuzzRange(f *testing.F) {
	for _, s := range []string{"bytes=0-3", "bytes=-1", "bytes=5-", "bytes=0-0,2-3", "bytes=9-1", "bytes=", "lines=1-2", "bytes=18446744073709551616-", "bytes=0-,0-,0-", "bytes=-0"} {
		f.Add(s, "")
		f.Add(s, "gzip;q=1,*;q=0")
	}
	const contents = "0123456789"
	home := f.TempDir()
	if err := os.WriteFile(filepath.Join(home, "a"), []byte(contents), 0o644); err != nil {
		f.Fatal(err)
	}
	sys := &diskSystem{System: oshost.New(oshost.Options{}), user: agent.User{Name: "ann", Home: home}}
	a := agent.New(agent.Config{System: sys, DefaultUser: "ann"})
	f.Cleanup(func() { a.Close(); _ = sys.Close() })
	f.Fuzz(func(t *testing.T, ranges, accept string) {
		r := httptest.NewRequest("GET", "/files?path=a", nil)
		r.Header.Set("Range", ranges)
		r.Header.Set("Accept-Encoding", accept)
		w := httptest.NewRecorder()
		a.Handler().ServeHTTP(w, r)
		body := w.Body.String()
		switch w.Code {
		case http.StatusPartialContent:
			if !strings.HasPrefix(w.Header().Get("Content-Type"), "multipart/byteranges") && !strings.Contains(contents, body) {
				t.Fatalf("%q gave %q", ranges, body)
			}
		case http.StatusOK:
			if w.Header().Get("Content-Encoding") == "" && body != contents {
				t.Fatalf("%q gave the whole as %q", ranges, body)
			}
		case http.StatusRequestedRangeNotSatisfiable, http.StatusNotAcceptable:
		default:
			t.Fatalf("%q, %q: status %d %q", ranges, accept, w.Code, body)
		}
	})
}
