package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"math"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
)

// audits is an audit log made of a function.
type audits func(context.Context, carrel.AuditOptions, func(carrel.Decision, error) bool)

func (a audits) Audit(ctx context.Context, opts carrel.AuditOptions) iter.Seq2[carrel.Decision, error] {
	return func(yield func(carrel.Decision, error) bool) { a(ctx, opts, yield) }
}

func withAudits(a audits) func(*Options) {
	return func(o *Options) { o.Service = logging{o.Service.(*fake), a} }
}

// logging is a fake with an audit log.
type logging struct {
	*fake
	carrel.Audits
}

func TestAudit(t *testing.T) {
	var asked []carrel.AuditOptions
	srv := start(t, newFake(), withAudits(func(_ context.Context, opts carrel.AuditOptions, yield func(carrel.Decision, error) bool) {
		if opts.After == math.MaxInt64-1 {
			return
		}
		asked = append(asked, opts)
		_ = yield(carrel.Decision{Seq: 7, ID: boxID, Protocol: "dns", Name: "a\x1b[2J", Rule: "default"}, nil)
	}))
	resp, body := call(t, srv, "GET", "/carrel/v1/audit?since=2026-03-01T00:00:00Z&until=2026-03-02T00:00:00Z&verdict=denied&host=*.example.com&rule=def&secret=s&limit=5&after=3&sandbox="+boxID, "")
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "application/x-ndjson" {
		t.Fatalf("%d %s %s", resp.StatusCode, resp.Header, body)
	}
	if !strings.HasPrefix(body, `{"decision":{"seq":7,`) || strings.Contains(body, "\x1b") || strings.Contains(body, "\n") {
		t.Errorf("answer %q", body)
	}
	no := false
	since := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	want := carrel.AuditOptions{ID: boxID, Since: since, Until: since.Add(24 * time.Hour), Allowed: &no, Host: "*.example.com", Rule: "def", Secret: "s", Limit: 5, After: 3}
	if len(asked) != 1 || !reflect.DeepEqual(asked[0], want) {
		t.Errorf("asked for %+v", asked)
	}
	if resp, _ := call(t, srv, "GET", "/carrel/v1/sandboxes/"+otherID+"/audit?verdict=allowed", ""); resp.StatusCode != http.StatusOK ||
		asked[1].ID != otherID || !*asked[1].Allowed {
		t.Errorf("of a sandbox that is gone: %d, %+v", resp.StatusCode, asked)
	}
}

func TestAuditRefuses(t *testing.T) {
	srv := start(t, newFake(), withAudits(func(_ context.Context, opts carrel.AuditOptions, yield func(carrel.Decision, error) bool) {
		if opts.Host == "bad host" {
			_ = yield(carrel.Decision{}, &carrel.Error{Op: "read audit log", Kind: carrel.Invalid, Field: "host", Err: errors.New("no name")})
		}
	}))
	for query, field := range map[string]string{
		"since=yesterday": "since", "until=1": "until", "verdict=maybe": "verdict", "limit=-1": "limit", "limit=1000001": "limit", "limit=x": "limit",
		"after=-1": "after", "after=x": "after", "follow=x": "follow", "sandbox=x": "sandbox", "verdit=denied": "verdit", "host=a&host=b": "host",
		"host=bad%20host": "host", "host=bad%20host&follow=true": "host",
	} {
		resp, body := call(t, srv, "GET", "/carrel/v1/audit?"+query, "")
		var got errorBody
		if err := json.Unmarshal([]byte(body), &got); err != nil || resp.StatusCode != http.StatusBadRequest || got.Field != field {
			t.Errorf("%s: %d %s", query, resp.StatusCode, body)
		}
	}
	if resp, body := call(t, srv, "GET", "/carrel/v1/sandboxes/"+boxID+"/audit?sandbox="+otherID, ""); resp.StatusCode != http.StatusBadRequest {
		t.Errorf("two sandboxes: %d %s", resp.StatusCode, body)
	}
	if resp, _ := call(t, srv, "GET", "/carrel/v1/sandboxes/nonsense/audit", ""); resp.StatusCode != http.StatusNotFound {
		t.Errorf("no sandbox ID: %d", resp.StatusCode)
	}
	if resp, body := call(t, start(t, newFake()), "GET", "/carrel/v1/audit", ""); resp.StatusCode != http.StatusNotImplemented {
		t.Errorf("without a log: %d %s", resp.StatusCode, body)
	}
	resp, err := srv.Client().Get(srv.URL + "/carrel/v1/audit")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a key: %d", resp.StatusCode)
	}
}

// TestAuditFollows shows that lines come as decisions happen, and that the daemon's stop and an
// error differ from the log's end.
func TestAuditFollows(t *testing.T) {
	stop, feed := make(chan struct{}), make(chan carrel.Decision)
	srv := start(t, newFake(), func(o *Options) {
		o.Done = stop
		withAudits(func(ctx context.Context, opts carrel.AuditOptions, yield func(carrel.Decision, error) bool) {
			for opts.Follow {
				select {
				case d := <-feed:
					if !yield(d, nil) {
						return
					}
				case <-ctx.Done():
					return
				}
			}
		})(o)
	})
	req, err := http.NewRequestWithContext(t.Context(), "GET", srv.URL+"/carrel/v1/audit?follow=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-API-KEY", testKey)
	resp, err := srv.Client().Do(req) // the head comes before the first line
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	sc := bufio.NewScanner(resp.Body)
	for seq := range int64(3) {
		feed <- carrel.Decision{Seq: seq + 1}
		var line struct{ Decision carrel.Decision }
		if !sc.Scan() || json.Unmarshal(sc.Bytes(), &line) != nil || line.Decision.Seq != seq+1 {
			t.Fatalf("line %q, %v", sc.Text(), sc.Err())
		}
	}
	close(stop)
	if !sc.Scan() || !strings.Contains(sc.Text(), `"unavailable"`) || sc.Scan() {
		t.Errorf("the end is %q, %v", sc.Text(), sc.Err())
	}
}

func TestAuditBreaksOff(t *testing.T) {
	srv := start(t, newFake(), withAudits(func(_ context.Context, opts carrel.AuditOptions, yield func(carrel.Decision, error) bool) {
		if opts.After == 0 && yield(carrel.Decision{Seq: 1}, nil) {
			_ = yield(carrel.Decision{}, errors.New("/secret/path is broken"))
		}
	}))
	_, body := call(t, srv, "GET", "/carrel/v1/audit", "")
	lines := strings.Split(body, "\n")
	if len(lines) != 2 || !strings.HasPrefix(lines[1], `{"error":`) || strings.Contains(body, "/secret") {
		t.Errorf("answer %q", body)
	}
}

func FuzzAuditOptions(f *testing.F) {
	f.Add("since=2026-03-01T00:00:00Z&verdict=denied&limit=5")
	f.Add("limit=99999999999999999999&after=-0&follow=T")
	none := audits(func(context.Context, carrel.AuditOptions, func(carrel.Decision, error) bool) {})
	srv := New(Options{Service: logging{newFake(), none}, Callers: adminKey(testKey)})
	f.Fuzz(func(t *testing.T, query string) {
		req, err := http.NewRequest("GET", "/carrel/v1/audit", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.URL.RawQuery = query
		opts, err := auditOptions(req.URL.Query(), "")
		if err != nil {
			if status, body := srv.render(req, err); status != http.StatusBadRequest {
				t.Errorf("%v: %d %+v", err, status, body)
			}
			return
		}
		if opts.Limit < 0 || opts.Limit > maxAudit || opts.After < 0 {
			t.Errorf("%q gives %+v", query, opts)
		}
	})
}
