package request_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/request"
)

var idForm = regexp.MustCompile(`^[0-9a-f]{16}$`)

// TestWrap checks that each request has an ID of its own, which no header of the client decides, and
// the client's address without its port.
func TestWrap(t *testing.T) {
	var infos []*request.Info
	h := request.Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		infos = append(infos, request.Of(r.Context()))
	}))
	for remote, from := range map[string]string{
		"192.0.2.7:4711":     "192.0.2.7",
		"[2001:db8::1]:4711": "2001:db8::1",
		"@":                  "@", // a Unix socket has no port
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = remote
		r.Header.Set("X-Request-Id", "mine")
		h.ServeHTTP(httptest.NewRecorder(), r)
		if i := infos[len(infos)-1]; i.From != from || !idForm.MatchString(i.ID) {
			t.Errorf("%s: %q, %q", remote, i.From, i.ID)
		}
	}
	if infos[0].ID == infos[1].ID || infos[1].ID == infos[2].ID {
		t.Error("two requests have one ID")
	}
}

// TestTouch notes things from many goroutines, more than are kept, and without a request.
func TestTouch(t *testing.T) {
	request.Touch(t.Context(), "nothing takes it")
	if got := request.Of(t.Context()).Targets(); got != nil {
		t.Errorf("no request has %v", got)
	}
	i := request.New("")
	ctx := request.With(t.Context(), i)
	var wg sync.WaitGroup
	for n := range 200 {
		wg.Go(func() {
			request.Touch(ctx, fmt.Sprint("target ", n/2)) // each twice
			request.Touch(ctx, "")
		})
	}
	wg.Wait()
	got, seen := i.Targets(), map[string]bool{}
	for _, target := range got {
		if seen[target] || !strings.HasPrefix(target, "target ") {
			t.Errorf("%q is noted twice or was never said", target)
		}
		seen[target] = true
	}
	if len(got) != 64 {
		t.Errorf("%d targets are kept, want 64", len(got))
	}
	got[0] = "changed"
	if i.Targets()[0] == "changed" {
		t.Error("a reader can change the notes")
	}
}

// TestHandler checks that each log line of a request has its ID, and other lines have none.
func TestHandler(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(request.Handler(slog.NewTextHandler(&out, nil))).With("part", "x")
	i := request.New("")
	log.InfoContext(request.With(context.Background(), i), "inside")
	log.WithGroup("g").InfoContext(request.With(context.Background(), i), "grouped")
	log.Info("outside")
	for _, line := range strings.Split(strings.TrimSpace(out.String()), "\n") {
		has := strings.Contains(line, "request="+i.ID)
		if outside := strings.Contains(line, "outside"); has == outside {
			t.Errorf("%s", line)
		}
	}
}

// TestRefused checks which answers are refusals.
func TestRefused(t *testing.T) {
	for status, want := range map[int]string{200: "kind", 401: carrel.TrailRefuse, 403: carrel.TrailRefuse,
		404: "kind", 429: "kind", 500: "kind"} {
		if got := request.Refused("kind", status); got != want {
			t.Errorf("%d is %q, want %q", status, got, want)
		}
	}
}
