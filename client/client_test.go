package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
	"github.com/carrel-dev/carrel/internal/access"
	"github.com/carrel-dev/carrel/internal/api"
	"github.com/carrel-dev/carrel/internal/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const key = "e2b_0123456789abcdef"

var box = carrel.Sandbox{
	ID: "i0123456789abcdefghij", Template: "tpl1", Tier: carrel.Sim, State: carrel.Running,
	Limits: carrel.Limits{CPUs: 1, MemoryMB: 64, DiskMB: 64, Pids: 10}, Metadata: map[string]string{"a": "b"},
	Started: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC), Ends: time.Date(2026, 1, 2, 4, 4, 5, 6, time.UTC), AccessToken: "tok",
}

// parts are the parts of a service that a fake may lack.
type parts interface {
	carrel.Sandboxes
	carrel.Moments
	carrel.Templates
}

// fake is a service made of functions, behind a real control plane.
type fake struct {
	parts
	carrel.NoExtras
	err      error
	list     carrel.ListOptions
	logs     carrel.LogOptions
	imported string
	events   func(ctx context.Context, after int64) iter.Seq2[carrel.Event, error]
	computer carrel.Computer
}

func (f *fake) Close() error { return nil }

func (f *fake) Create(_ context.Context, o carrel.CreateOptions) (carrel.Sandbox, error) {
	sb := box
	sb.Metadata, sb.Limits, sb.Ends = o.Metadata, o.Limits, sb.Started.Add(o.Timeout)
	return sb, f.err
}
func (f *fake) Get(context.Context, carrel.ID) (carrel.Sandbox, error) { return box, f.err }
func (f *fake) Kill(context.Context, carrel.ID) error                  { return f.err }
func (f *fake) List(_ context.Context, o carrel.ListOptions) (carrel.Page, error) {
	f.list = o
	return carrel.Page{Sandboxes: []carrel.Sandbox{box}, Next: "n", Running: 3,
		Missing: []string{"node-3"}}, f.err
}
func (f *fake) SetTimeout(_ context.Context, _ carrel.ID, d time.Duration, extend bool) (carrel.Sandbox, error) {
	sb := box
	if extend {
		sb.Ends = sb.Started.Add(d)
	}
	return sb, f.err
}
func (f *fake) Metrics(_ context.Context, _ carrel.ID, from, to time.Time) ([]carrel.Metric, error) {
	return []carrel.Metric{{Time: from, MemUsed: 1}, {Time: to, MemUsed: 2}}, f.err
}
func (f *fake) Logs(_ context.Context, _ carrel.ID, o carrel.LogOptions) ([]carrel.LogEntry, error) {
	f.logs = o
	return []carrel.LogEntry{{Level: "info", Message: "made"}}, f.err
}
func (f *fake) Events(ctx context.Context, after int64) iter.Seq2[carrel.Event, error] {
	return f.events(ctx, after)
}
func (f *fake) Computer(context.Context, carrel.ID) (carrel.Computer, error) {
	return f.computer, f.err
}
func (f *fake) ListTemplates(context.Context) ([]carrel.Template, error) {
	return []carrel.Template{{ID: "t", Name: "team/x"}}, f.err
}
func (f *fake) GetTemplate(_ context.Context, name string) (carrel.Template, error) {
	return carrel.Template{ID: "t", Name: name}, f.err
}
func (f *fake) DeleteTemplate(context.Context, string) error { return f.err }
func (f *fake) ImportTemplate(_ context.Context, name string, r io.Reader, progress func(carrel.Progress)) (carrel.Template, error) {
	progress(carrel.Progress{Stage: "unpack"})
	raw, err := io.ReadAll(r)
	f.imported = string(raw)
	progress(carrel.Progress{Stage: "write", Done: int64(len(raw))})
	return carrel.Template{ID: "t", Name: name}, errors.Join(f.err, err)
}
func (f *fake) PullImage(_ context.Context, name string, opts carrel.PullOptions,
	progress func(carrel.Progress)) (carrel.Template, error) {
	progress(carrel.Progress{Stage: "pull", Done: 1, Total: 2})
	if f.err != nil {
		return carrel.Template{}, f.err
	}
	return carrel.Template{ID: "t", Name: name, Source: opts.Image}, nil
}
func (f *fake) PushTemplate(_ context.Context, name string, opts carrel.PushOptions,
	progress func(carrel.Progress)) (carrel.Pushed, error) {
	progress(carrel.Progress{Stage: "push", Done: 1, Total: 2})
	return carrel.Pushed{Image: opts.Image, Digest: name + opts.Credentials.Password, Size: 2,
		Sent: 1}, f.err
}

// dialer is a Computer that can only dial.
type dialer struct {
	carrel.Computer
	dial func(port uint16) (net.Conn, error)
}

func (d dialer) Dial(_ context.Context, port uint16) (net.Conn, error) { return d.dial(port) }

// adminKey accepts one key, an administrator's.
func adminKey(key string) api.Callers {
	return access.NewAuthenticator(access.Key{Name: "test", Secret: key, Role: carrel.RoleAdmin})
}

// connect serves a fake and returns a client of it.
func connect(t *testing.T, f *fake) (carrel.Service, *httptest.Server) {
	t.Helper()
	srv := httptest.NewServer(api.New(api.Options{Service: f, Callers: adminKey(key), Version: "v9"}))
	svc, err := client.New(srv.URL+"/", key)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { svc.Close(); srv.Close() })
	return svc, srv
}

func TestRoundTrips(t *testing.T) {
	f := &fake{}
	svc, _ := connect(t, f)
	ctx := t.Context()
	sb, err := svc.Create(ctx, carrel.CreateOptions{Timeout: 90 * time.Second, Metadata: map[string]string{"k": "v"}, Limits: carrel.Limits{CPUs: .5}})
	if err != nil || sb.Ends.Sub(sb.Started) != 90*time.Second || sb.Metadata["k"] != "v" || sb.Limits.CPUs != .5 || sb.AccessToken != "tok" {
		t.Errorf("create: %+v %v", sb, err)
	}
	if sb, err := svc.Get(ctx, box.ID); err != nil || !sb.Started.Equal(box.Started) || sb.Metadata["a"] != "b" {
		t.Errorf("get: %+v %v", sb, err)
	}
	want := carrel.ListOptions{Metadata: map[string]string{"k &=": "v%"}, States: []carrel.State{carrel.Running, carrel.Starting}, Template: "a/b",
		StartedAfter: box.Started, OldestFirst: true, Limit: 5, Cursor: "c&d"}
	page, err := svc.List(ctx, want)
	if err != nil || len(page.Sandboxes) != 1 || page.Next != "n" || page.Running != 3 ||
		len(page.Missing) != 1 {
		t.Errorf("list: %+v %v", page, err)
	}
	if fmt.Sprint(f.list) != fmt.Sprint(want) {
		t.Errorf("list options: %+v, want %+v", f.list, want)
	}
	if sb, err := svc.SetTimeout(ctx, box.ID, time.Minute, true); err != nil || sb.Ends.Sub(sb.Started) != time.Minute {
		t.Errorf("timeout: %+v %v", sb, err)
	}
	if ms, err := svc.Metrics(ctx, box.ID, box.Started, box.Ends); err != nil || !ms[0].Time.Equal(box.Started) || !ms[1].Time.Equal(box.Ends) {
		t.Errorf("metrics: %+v %v", ms, err)
	}
	if ls, err := svc.Logs(ctx, box.ID, carrel.LogOptions{Since: box.Started, Limit: 3, NewestFirst: true}); err != nil || ls[0].Message != "made" || f.logs.Limit != 3 || !f.logs.NewestFirst || !f.logs.Since.Equal(box.Started) {
		t.Errorf("logs: %+v %v %+v", ls, err, f.logs)
	}
	if err := svc.Kill(ctx, box.ID); err != nil {
		t.Error(err)
	}
	if ts, err := svc.ListTemplates(ctx); err != nil || ts[0].Name != "team/x" {
		t.Errorf("templates: %+v %v", ts, err)
	}
	if tpl, err := svc.GetTemplate(ctx, "team/x y"); err != nil || tpl.Name != "team/x y" {
		t.Errorf("template with a slash: %+v %v", tpl, err)
	}
	if err := svc.DeleteTemplate(ctx, "team/x"); err != nil {
		t.Error(err)
	}
	if v, err := svc.(*client.Client).Version(ctx); err != nil || v != "v9" {
		t.Errorf("version: %s %v", v, err)
	}
}

// TestErrorsAreRestored shows that kind, operation, field, text and hint are the same on both
// sides.
func TestErrorsAreRestored(t *testing.T) {
	f := &fake{}
	svc, _ := connect(t, f)
	for _, want := range []*carrel.Error{
		{Op: "kill sandbox", Kind: carrel.NotFound, ID: box.ID, Err: errors.New("the sandbox ended (timeout)")},
		{Op: "kill sandbox", Kind: carrel.Conflict, ID: box.ID},
		{Op: "create sandbox", Kind: carrel.Exhausted, Field: "limits.memoryMB", Err: errors.New("too much"), Hint: "ask for less"},
		{Op: "x", Kind: carrel.Unsupported, Hint: "need a better host"},
		{Op: "x", Kind: carrel.Unavailable, Err: errors.New("starting")},
		{Kind: carrel.TimedOut, Err: errors.New("slow")},
	} {
		f.err = want
		err := svc.Kill(t.Context(), box.ID)
		got, ok := errors.AsType[*carrel.Error](err)
		if !ok || got.Kind != want.Kind || got.Hint != want.Hint || got.Field != want.Field || got.ID != want.ID || !errors.Is(err, want.Kind) ||
			(want.Op != "" && err.Error() != want.Error()) {
			t.Errorf("%v came back as %v (%+v)", want, err, got)
		}
	}
	f.err = errors.New("/etc/secret is broken")
	if err := svc.Kill(t.Context(), box.ID); carrel.KindOf(err) != carrel.Internal || strings.Contains(err.Error(), "secret") {
		t.Errorf("a fault of the daemon's: %v", err)
	}
}

func TestUnreachable(t *testing.T) {
	svc, srv := connect(t, &fake{})
	wrong, err := client.New(srv.URL, "e2b_wrong")
	if err != nil {
		t.Fatal(err)
	}
	defer wrong.Close()
	if err := wrong.Kill(t.Context(), box.ID); carrel.KindOf(err) != carrel.Unauthenticated || carrel.HintOf(err) == "" {
		t.Errorf("wrong key: %v", err)
	}
	if _, err := svc.Get(t.Context(), "nope"); carrel.KindOf(err) != carrel.NotFound {
		t.Errorf("no ID: %v", err)
	}
	srv.Close()
	if err := svc.Kill(t.Context(), box.ID); carrel.KindOf(err) != carrel.Unavailable || carrel.HintOf(err) != "start one with: carrel serve" {
		t.Errorf("no daemon: %v %q", err, carrel.HintOf(err))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := svc.Kill(ctx, box.ID); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	stranger, _ := client.New(other.URL, key)
	defer stranger.Close()
	if err := stranger.Kill(t.Context(), box.ID); carrel.KindOf(err) != carrel.NotFound || !strings.Contains(carrel.HintOf(err), "may not be a carrel daemon") {
		t.Errorf("another server: %v", err)
	}
	for _, bad := range []string{"", "127.0.0.1:7070", "ftp://x", "http://", "http://x?y=z", "%"} {
		if _, err := client.New(bad, key); carrel.KindOf(err) != carrel.Invalid {
			t.Errorf("URL %q: %v", bad, err)
		}
	}
	if _, err := client.New(srv.URL, "a\nb"); carrel.KindOf(err) != carrel.Invalid {
		t.Errorf("key: %v", err)
	}
}

func TestImport(t *testing.T) {
	f := &fake{}
	svc, _ := connect(t, f)
	var mu sync.Mutex
	var stages []string
	progress := func(p carrel.Progress) { mu.Lock(); stages = append(stages, p.Stage); mu.Unlock() }
	// The archive continues only after its progress arrived, so data must flow both ways at once.
	pr, pw := io.Pipe()
	go func() {
		_, _ = io.WriteString(pw, "first ")
		told := testenv.Within(t.Context(), time.Minute, func() error {
			mu.Lock()
			defer mu.Unlock()
			if len(stages) == 0 {
				return errors.New("no progress was told")
			}
			return nil
		})
		if told != nil {
			t.Error(told)
		}
		_, _ = io.WriteString(pw, "second")
		pw.Close()
	}()
	tpl, err := svc.ImportTemplate(t.Context(), "a/b", pr, progress)
	if err != nil || tpl.Name != "a/b" || f.imported != "first second" || strings.Join(stages, " ") != "unpack write" {
		t.Errorf("%+v %v %q %v", tpl, err, f.imported, stages)
	}
	f.err = &carrel.Error{Op: "pull template", Kind: carrel.NotFound, Field: "image", Err: errors.New("no such image"), Hint: "check it"}
	if _, err := svc.PullTemplate(t.Context(), "a", "example.com/x", nil); err == nil || err.Error() != f.err.Error() || carrel.HintOf(err) != "check it" {
		t.Errorf("an error after progress: %v", err)
	}
	f.err = nil
	if tpl, err := svc.PullTemplate(t.Context(), "a", "example.com/x", nil); err != nil || tpl.Source != "example.com/x" {
		t.Errorf("%+v %v", tpl, err)
	}
	opts := carrel.PushOptions{Image: "example.com/y",
		Credentials: &carrel.RegistryCredentials{Password: "!"}}
	pushed, err := svc.PushTemplate(t.Context(), "a/b", opts, nil)
	if err != nil || pushed != (carrel.Pushed{Image: "example.com/y", Digest: "a/b!", Size: 2,
		Sent: 1}) {
		t.Errorf("%+v %v", pushed, err)
	}
	f.err = &carrel.Error{Op: "push template", Kind: carrel.Unauthenticated, Err: errors.New("no"),
		Hint: "log in"}
	if _, err := svc.PushTemplate(t.Context(), "a/b", opts,
		nil); carrel.KindOf(err) != carrel.Unauthenticated || carrel.HintOf(err) != "log in" {
		t.Errorf("an error after progress: %v", err)
	}
}

// TestEventsResume shows that the client continues after the last event when a connection breaks.
func TestEventsResume(t *testing.T) {
	var afters []int64
	f := &fake{}
	f.events = func(_ context.Context, after int64) iter.Seq2[carrel.Event, error] {
		afters = append(afters, after)
		return func(yield func(carrel.Event, error) bool) {
			for i := range int64(2) {
				if !yield(carrel.Event{Seq: after + i + 1, Type: "sandbox.created"}, nil) {
					return
				}
			}
		} // then the stream ends, as when a daemon stops
	}
	svc, _ := connect(t, f)
	var seqs []int64
	for e, err := range svc.Events(t.Context(), 10) {
		if err != nil {
			t.Fatal(err)
		}
		if seqs = append(seqs, e.Seq); len(seqs) == 5 {
			break
		}
	}
	if fmt.Sprint(seqs) != "[11 12 13 14 15]" || fmt.Sprint(afters) != "[10 12 14]" {
		t.Errorf("%v, asked after %v", seqs, afters)
	}
	f.events = func(context.Context, int64) iter.Seq2[carrel.Event, error] {
		return func(yield func(carrel.Event, error) bool) {
			yield(carrel.Event{}, &carrel.Error{Op: "read events", Kind: carrel.Invalid, Field: "after", Err: errors.New("too old")})
		}
	}
	n := 0
	for _, err := range svc.Events(t.Context(), 1) {
		if n++; carrel.KindOf(err) != carrel.Invalid {
			t.Errorf("%v", err)
		}
	}
	if n != 1 {
		t.Errorf("a refusal was told %d times", n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	f.events = func(ctx context.Context, _ int64) iter.Seq2[carrel.Event, error] {
		return func(func(carrel.Event, error) bool) { cancel(); <-ctx.Done() }
	}
	for range svc.Events(ctx, 1) {
		t.Error("an event from nowhere")
	}
}

// TestDial sends bytes both ways, ends one direction, and is refused.
func TestDial(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		raw, _ := io.ReadAll(c) // until the client's end
		fmt.Fprintf(c, "%d bytes", len(raw))
	})
	var dials atomic.Int32
	f := &fake{computer: dialer{dial: func(port uint16) (net.Conn, error) {
		dials.Add(1)
		if port != 80 {
			return nil, &carrel.Error{Op: "dial port", Kind: carrel.Unavailable, Err: syscall.ECONNREFUSED}
		}
		return net.Dial("tcp", l.Addr().String())
	}}}
	svc, _ := connect(t, f)
	c, err := svc.Computer(t.Context(), box.ID)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := c.Dial(t.Context(), 80)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	if _, err := conn.Write(make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	if err := conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if raw, err := io.ReadAll(conn); err != nil || string(raw) != "1048576 bytes" {
		t.Errorf("%q %v", raw, err)
	}
	if _, err := c.Dial(t.Context(), 81); !errors.Is(err, syscall.ECONNREFUSED) || carrel.KindOf(err) != carrel.Unavailable {
		t.Errorf("closed port: %v (%s)", err, carrel.KindOf(err))
	}
	f.err = &carrel.Error{Op: "connect to sandbox", Kind: carrel.NotFound, ID: box.ID}
	if _, err := c.Dial(t.Context(), 80); carrel.KindOf(err) != carrel.NotFound {
		t.Errorf("sandbox gone: %v", err)
	}
}
