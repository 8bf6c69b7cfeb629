package hostdoor_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/guest"
	"github.com/carrel-dev/carrel/internal/hostdoor"
	"github.com/carrel-dev/carrel/internal/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// moments is a service that takes snapshots with its function.
type moments struct {
	SnapshotFn func(context.Context, carrel.ID, carrel.SnapshotOptions) (carrel.Snapshot, error)
}

func (m moments) Snapshot(ctx context.Context, id carrel.ID, o carrel.SnapshotOptions) (carrel.Snapshot, error) {
	return m.SnapshotFn(ctx, id, o)
}

// asked records the door's requests to the service.
type asked struct {
	mu  sync.Mutex
	ids []carrel.ID
	all []carrel.SnapshotOptions
}

func (a *asked) snapshot(_ context.Context, id carrel.ID, o carrel.SnapshotOptions) (carrel.Snapshot, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ids, a.all = append(a.ids, id), append(a.all, o)
	return carrel.Snapshot{ID: carrel.SnapshotID(fmt.Sprintf("s%d", len(a.ids)))}, nil
}

func (a *asked) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.ids)
}

// open makes a door that is closed at the end of the test.
func open(t *testing.T, fn func(context.Context, carrel.ID, carrel.SnapshotOptions) (carrel.Snapshot, error), change ...func(*hostdoor.Options)) *hostdoor.Door {
	t.Helper()
	o := hostdoor.Options{Moments: moments{fn}, Generation: func(carrel.ID) int { return 7 }}
	for _, f := range change {
		f(&o)
	}
	d := hostdoor.New(o)
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// dial connects as a sandbox.
func dial(t *testing.T, d *hostdoor.Door, id carrel.ID) net.Conn {
	t.Helper()
	inside, outside := net.Pipe()
	served := make(chan struct{})
	go func() { defer close(served); d.ServeConn(id, outside) }()
	t.Cleanup(func() { _ = inside.Close(); <-served })
	return inside
}

// host returns the guest's own client, which acts for a sandbox.
func host(t *testing.T, d *hostdoor.Door, id carrel.ID) guest.Host {
	return guest.Host{Dial: func(context.Context) (net.Conn, error) { return dial(t, d, id), nil }}
}

func TestCheckpoint(t *testing.T) {
	var a asked
	d := open(t, a.snapshot)
	one, two := carrel.NewID(), carrel.NewID()
	for _, c := range []struct {
		id   carrel.ID
		req  guest.CheckpointRequest
		want carrel.SnapshotOptions
	}{
		{one, guest.CheckpointRequest{}, carrel.SnapshotOptions{Cause: carrel.CauseGuest}},
		{two, guest.CheckpointRequest{Label: "before the upgrade — größer", FilesOnly: true}, carrel.SnapshotOptions{Cause: carrel.CauseGuest, Label: "before the upgrade — größer", FilesOnly: true}},
		{one, guest.CheckpointRequest{Command: "rm -rf /"}, carrel.SnapshotOptions{Cause: carrel.CauseCommand, Detail: "rm -rf /"}},
	} {
		n := a.count()
		reply, err := host(t, d, c.id).Checkpoint(t.Context(), c.req)
		if err != nil || reply.SnapshotID != fmt.Sprintf("s%d", n+1) || reply.Generation != 7 {
			t.Fatal(reply, err)
		}
		if a.ids[n] != c.id || a.all[n] != c.want {
			t.Errorf("asked for %v of %v, want %v of %v", a.all[n], a.ids[n], c.want, c.id)
		}
	}
}

// send sends raw bytes and returns the answer.
func send(t *testing.T, d *hostdoor.Door, raw string) string {
	t.Helper()
	c := dial(t, d, carrel.NewID())
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	go func() { _, _ = io.WriteString(c, raw) }()
	answer, _ := io.ReadAll(c) // whatever came before the end
	return string(answer)
}

func post(body string, headers ...string) string {
	h := "Content-Type: application/json\r\n"
	if len(headers) > 0 {
		h = strings.Join(headers, "\r\n") + "\r\n"
	}
	return fmt.Sprintf("POST /checkpoint HTTP/1.1\r\nHost: h\r\n%sContent-Length: %d\r\n\r\n%s", h, len(body), body)
}

// TestHostileRequests sends requests that no guest sends. None of them may cause a snapshot.
func TestHostileRequests(t *testing.T) {
	var a asked
	d := open(t, a.snapshot)
	for _, c := range []struct {
		name, raw, want string
	}{
		{"no body", post(""), "400"},
		{"not JSON", post("{"), "400"},
		{"a list", post("[]"), "400"},
		{"two objects", post("{}{}"), "400"},
		{"an unknown field", post(`{"sandboxID":"iother"}`), "400"},
		{"an id of another", post(`{"id":"iother"}`), "400"},
		{"a name", post(`{"name":"stolen:latest"}`), "400"},
		{"a wrong type", post(`{"label":7}`), "400"},
		{"not UTF-8", post("{\"label\":\"\xff\"}"), "400"},
		{"control characters", post(`{"label":"\u001b[2J"}`), "400"},
		{"a long label", post(`{"label":"` + strings.Repeat("x", 201) + `"}`), "400"},
		{"a long command", post(`{"command":"` + strings.Repeat("x", 5000) + `"}`), "400"},
		{"a huge body", post(`{"command":"` + strings.Repeat("x", 64<<10) + `"}`), "413"},
		{"a promise of a huge body", "POST /checkpoint HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: 99999999999\r\n\r\n" + strings.Repeat(" ", 17<<10), "413"},
		{"a form", post("label=x", "Content-Type: application/x-www-form-urlencoded"), "415"},
		{"a browser's plain text", post("{}", "Origin: http://evil.example", "Content-Type: text/plain"), "415"},
		{"a browser's question", "OPTIONS /checkpoint HTTP/1.1\r\nHost: h\r\nOrigin: http://evil.example\r\nAccess-Control-Request-Method: POST\r\n\r\n", "405"},
		{"a GET", "GET /checkpoint HTTP/1.1\r\nHost: h\r\n\r\n", "405"},
		{"a query", strings.Replace(post("{}"), "/checkpoint", "/checkpoint?id=iother", 1), "400"},
		{"another route", "GET /sandboxes HTTP/1.1\r\nHost: h\r\n\r\n", "404"},
		{"an upward path", strings.Replace(post("{}"), "/checkpoint", "/checkpoint/../../etc/passwd", 1), "404"},
		{"an absolute target", strings.Replace(post("{}"), "/checkpoint", "http://127.0.0.1:3000/sandboxes", 1), "404"},
		{"a proxy's CONNECT", "CONNECT 127.0.0.1:22 HTTP/1.1\r\nHost: 127.0.0.1:22\r\n\r\n", "404"},
		{"large headers", post("{}", "Content-Type: application/json", "X: "+strings.Repeat("x", 32<<10)), "431"},
		{"two lengths", post("{}", "Content-Type: application/json", "Content-Length: 5"), "400"},
		{"no HTTP", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", "400"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := send(t, d, c.raw)
			if !strings.HasPrefix(got, "HTTP/1.1 "+c.want) && !strings.HasPrefix(got, "HTTP/1.0 "+c.want) {
				t.Errorf("want %s, got %q", c.want, got)
			}
			if strings.Contains(strings.ToLower(got), "access-control-allow") {
				t.Errorf("a browser may: %q", got)
			}
		})
	}
	if a.count() != 0 {
		t.Errorf("%d snapshots were taken", a.count())
	}
}

// TestErrorsTellNothing shows that answers contain nothing of an error's cause, which may name
// things of the host.
func TestErrorsTellNothing(t *testing.T) {
	const secret = "/srv/carrel/snapshots/s0/pages.img of iother"
	for kind, status := range map[carrel.Kind]int{
		carrel.Internal: 500, carrel.Invalid: 400, carrel.NotFound: 404, carrel.Conflict: 409, carrel.Exhausted: 507,
		carrel.Unavailable: 503, carrel.Unsupported: 501, carrel.TimedOut: 504, carrel.Forbidden: 403,
	} {
		d := open(t, func(context.Context, carrel.ID, carrel.SnapshotOptions) (carrel.Snapshot, error) {
			return carrel.Snapshot{}, &carrel.Error{Op: "take snapshot", Kind: kind, Field: secret, Hint: secret, Err: errors.New(secret)}
		})
		got := send(t, d, post("{}"))
		var body struct {
			Code    int    `json:"code"`
			Message string `json:"message"`
		}
		_, text, _ := strings.Cut(got, "\r\n\r\n")
		if err := json.Unmarshal([]byte(text), &body); err != nil || body.Code != status || body.Message == "" {
			t.Errorf("%s: %q", kind, got)
		}
		if strings.Contains(got, "srv") || strings.Contains(got, "iother") {
			t.Errorf("%s: the answer tells of the host: %q", kind, got)
		}
	}
}

// TestRate shows that a sandbox with too many requests is refused, and another is not.
func TestRate(t *testing.T) {
	var a asked
	d := open(t, a.snapshot, func(o *hostdoor.Options) { o.Every, o.Burst = time.Hour, 3 })
	id := carrel.NewID()
	ask := func(id carrel.ID) *http.Response {
		c := dial(t, d, id)
		transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return c, nil }, DisableKeepAlives: true}
		resp, err := (&http.Client{Transport: transport}).Post("http://host/checkpoint", "application/json", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp
	}
	for range 3 {
		if resp := ask(id); resp.StatusCode != 200 {
			t.Fatal(resp.Status)
		}
	}
	for range 10 {
		if resp := ask(id); resp.StatusCode != 429 || resp.Header.Get("Retry-After") != "3600" {
			t.Fatal(resp.Status, resp.Header)
		}
	}
	if resp := ask(carrel.NewID()); resp.StatusCode != 200 {
		t.Error("another sandbox is refused as well:", resp.Status)
	}
	if a.count() != 4 {
		t.Errorf("%d snapshots", a.count())
	}
}

// TestGuestWaits shows that the guest's own client waits and tries again when it is told to.
func TestGuestWaits(t *testing.T) {
	var a asked
	d := open(t, a.snapshot, func(o *hostdoor.Options) { o.Every, o.Burst = time.Second, 1 })
	h := host(t, d, carrel.NewID())
	for range 2 {
		if _, err := h.Checkpoint(t.Context(), guest.CheckpointRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := h.Checkpoint(ctx, guest.CheckpointRequest{}); err == nil {
		t.Error("an ended context waits")
	}
}

// TestOneAtATime shows that a sandbox's requests are carried out one after the other, and do not
// delay another sandbox's.
func TestOneAtATime(t *testing.T) {
	slow := carrel.NewID()
	var mu sync.Mutex
	running, most := 0, 0
	entered, proceed := make(chan struct{}, 8), make(chan struct{})
	d := open(t, func(ctx context.Context, id carrel.ID, _ carrel.SnapshotOptions) (carrel.Snapshot, error) {
		if id != slow {
			return carrel.Snapshot{ID: "squick"}, nil
		}
		mu.Lock()
		running++
		most = max(most, running)
		mu.Unlock()
		entered <- struct{}{}
		<-proceed
		mu.Lock()
		running--
		mu.Unlock()
		return carrel.Snapshot{ID: "sslow"}, nil
	})
	var wg sync.WaitGroup
	h := host(t, d, slow)
	for range 4 {
		wg.Go(func() {
			if _, err := h.Checkpoint(t.Context(), guest.CheckpointRequest{}); err != nil {
				t.Error(err)
			}
		})
	}
	<-entered
	if _, err := host(t, d, carrel.NewID()).Checkpoint(t.Context(), guest.CheckpointRequest{}); err != nil {
		t.Error(err)
	}
	close(proceed)
	wg.Wait()
	if most != 1 {
		t.Errorf("%d at once", most)
	}
}

// TestCallerGone breaks a connection, which ends the snapshot's context. ServeConn must return even
// before the snapshot has ended: a rollback that closes the link may hold something that the
// snapshot waits for.
func TestCallerGone(t *testing.T) {
	entered, ended, proceed := make(chan struct{}), make(chan error, 1), make(chan struct{})
	d := open(t, func(ctx context.Context, _ carrel.ID, _ carrel.SnapshotOptions) (carrel.Snapshot, error) {
		close(entered)
		<-ctx.Done()
		ended <- ctx.Err()
		<-proceed
		return carrel.Snapshot{}, ctx.Err()
	})
	inside, outside := net.Pipe()
	served := make(chan struct{})
	go func() { defer close(served); d.ServeConn(carrel.NewID(), outside) }()
	if _, err := io.WriteString(inside, post("{}")); err != nil {
		t.Fatal(err)
	}
	<-entered
	_ = inside.Close()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	<-served
	closed := make(chan struct{})
	go func() { defer close(closed); _ = d.Close() }()
	select {
	case <-closed:
		t.Error("Close did not wait for the snapshot")
	case <-time.After(20 * time.Millisecond):
	}
	close(proceed)
	<-closed
	d.ServeConn(carrel.NewID(), outside) // a closed door returns at once
}

// TestSlowCaller shows that a request that does not arrive in time is given up.
func TestSlowCaller(t *testing.T) {
	testenv.Long(t, "waits for a deadline")
	var a asked
	d := open(t, a.snapshot)
	for _, raw := range []string{"POST /check", strings.TrimSuffix(post("{}"), "}")} {
		if got := send(t, d, raw); strings.HasPrefix(got, "HTTP/1.1 200") {
			t.Errorf("%q: %q", raw, got)
		}
	}
	if a.count() != 0 {
		t.Error("a snapshot was taken")
	}
}
