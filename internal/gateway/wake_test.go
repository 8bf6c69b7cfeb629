package gateway

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// sleepy is the lifecycle of a sandbox with automatic wake-up.
var sleepy = carrel.Lifecycle{OnTimeout: carrel.ActionPause, AutoResume: true}

// set changes a sandbox in the world.
func (w *world) set(id carrel.ID, change func(*carrel.Sandbox)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	sb := w.boxes[id]
	change(&sb)
	w.boxes[id] = sb
}

// wake makes a sandbox run.
func (w *world) wake(id carrel.ID) {
	w.set(id, func(sb *carrel.Sandbox) { sb.State = carrel.Running; sb.Generation++ })
}

// restore gives a sandbox a new life, with other servers on its ports.
func (w *world) restore(t *testing.T, id carrel.ID, ports map[uint16]http.Handler) {
	t.Helper()
	addrs := map[uint16]string{}
	for p, h := range ports {
		srv := httptest.NewServer(h)
		t.Cleanup(srv.Close)
		addrs[p] = srv.Listener.Addr().String()
	}
	conn := w.conn(id, addrs)
	t.Cleanup(func() { conn.Close() })
	w.set(id, func(sb *carrel.Sandbox) { sb.State = carrel.Running; sb.Generation++ })
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conns[id] = conn
}

// quiet waits until every visit has ended. It fails the test if one ended twice.
func (w *world) quiet(t *testing.T, visits int) {
	t.Helper()
	testenv.EventuallyNil(t, fmt.Sprintf("%d visits are ended", visits), func() error {
		if d := w.dones.Load(); d < int32(visits) {
			return fmt.Errorf("of %d visits %d are", w.visits.Load(), d)
		}
		return nil
	})
	if v, d := w.visits.Load(), w.dones.Load(); v != int32(visits) || d != int32(visits) {
		t.Errorf("%d visits, %d ended, want %d of each", v, d, visits)
	}
}

// TestWakeStorm sends a hundred requests to a paused sandbox. They are held until it runs, all are
// answered, and each is one visit.
func TestWakeStorm(t *testing.T) {
	const n = 100
	echo := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		_, _ = rw.Write(raw)
	})
	w := newWorld(t)
	id := w.add(t, carrel.Sandbox{State: carrel.Paused, Lifecycle: sleepy}, map[uint16]http.Handler{3000: echo, carrel.GuestPort: echo})
	var held atomic.Int32
	awake := make(chan struct{})
	w.onVisit = func(ctx context.Context, _ carrel.ID) error {
		if held.Add(1) == n {
			w.wake(id)
			close(awake)
		}
		select {
		case <-awake:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	srv := front(t, w, Options{})
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			want := strings.Repeat(strconv.Itoa(i), 1000)
			req, _ := http.NewRequest("POST", srv.URL, strings.NewReader(want))
			req.Header.Set(headerID, string(id))
			req.Header.Set(headerPort, []string{"3000", "49983"}[i%2])
			resp, err := tr.RoundTrip(req)
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			if raw, err := io.ReadAll(resp.Body); resp.StatusCode != 200 || string(raw) != want || err != nil {
				t.Errorf("request %d: %d, %d bytes, %v", i, resp.StatusCode, len(raw), err)
			}
		})
	}
	wg.Wait()
	w.quiet(t, n)
}

// watchedBody records whether it was read.
type watchedBody struct {
	io.Reader
	read atomic.Bool
}

func (b *watchedBody) Read(p []byte) (int, error) { b.read.Store(true); return b.Reader.Read(p) }
func (b *watchedBody) Close() error               { return nil }

// TestHeldUnread shows that the body of a held request is not read before its sandbox runs.
func TestHeldUnread(t *testing.T) {
	w := newWorld(t)
	id := w.add(t, carrel.Sandbox{State: carrel.Resuming, Lifecycle: carrel.Lifecycle{Idle: carrel.Idle{After: time.Minute}}},
		map[uint16]http.Handler{3000: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { _, _ = io.Copy(rw, r.Body) })})
	body := &watchedBody{Reader: strings.NewReader("upload")}
	w.onVisit = func(context.Context, carrel.ID) error {
		if body.read.Load() {
			t.Error("the body was read while the request was held")
		}
		w.wake(id)
		return nil
	}
	g := New(Options{Sandboxes: w})
	defer g.Close()
	req := httptest.NewRequest("PUT", "http://3000-"+string(id)+".example.com/", body)
	req.ContentLength = 6
	rec := httptest.NewRecorder()
	g.Wrap(nil).ServeHTTP(rec, req)
	if rec.Code != 200 || rec.Body.String() != "upload" {
		t.Errorf("%d %q", rec.Code, rec.Body)
	}
	w.quiet(t, 1)
}

// TestWakeUpgrade shows that an upgraded connection and a large upload wake a sandbox too, and that
// the visit lasts as long as they do.
func TestWakeUpgrade(t *testing.T) {
	upgrade := http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		c, buf, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		fmt.Fprint(buf, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: raw\r\nConnection: Upgrade\r\n\r\n")
		buf.Flush()
		_, _ = io.Copy(c, buf)
	})
	count := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		fmt.Fprint(rw, n)
	})
	w := newWorld(t)
	id := w.add(t, carrel.Sandbox{State: carrel.Paused, Lifecycle: sleepy}, map[uint16]http.Handler{80: upgrade, 81: count})
	w.onVisit = func(context.Context, carrel.ID) error { w.wake(id); return nil }
	srv := front(t, w, Options{})
	c, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: 80-%s.example.com\r\nConnection: Upgrade\r\nUpgrade: raw\r\n\r\n", id)
	br := bufio.NewReader(c)
	if resp, err := http.ReadResponse(br, nil); err != nil || resp.StatusCode != 101 {
		t.Fatal(resp, err)
	}
	fmt.Fprintln(c, "hello")
	if line, err := br.ReadString('\n'); line != "hello\n" {
		t.Fatal(line, err)
	}
	if w.dones.Load() != 0 {
		t.Error("the visit ended before the connection")
	}
	c.Close()
	w.quiet(t, 1)

	w.set(id, func(sb *carrel.Sandbox) { sb.State = carrel.Paused })
	resp, body := ask(t, "PUT", srv.URL, bytes.NewReader(make([]byte, 8<<20)), headerID, string(id), headerPort, "81")
	if resp.StatusCode != 200 || body != strconv.Itoa(8<<20) {
		t.Errorf("upload: %d %s", resp.StatusCode, body)
	}
	w.quiet(t, 2)
}

// TestNotWoken shows that a request that may not pass, or that E2B refuses, wakes nothing.
func TestNotWoken(t *testing.T) {
	w := newWorld(t)
	ports := map[uint16]http.Handler{carrel.GuestPort: say("guest"), 3000: say("app")}
	box := func(state carrel.State, l carrel.Lifecycle) string {
		return string(w.add(t, carrel.Sandbox{State: state, Lifecycle: l, AccessToken: "secret", TrafficToken: "traffic",
			Network: carrel.Network{PrivateTraffic: true}}, ports))
	}
	asleep, tired, dazed := box(carrel.Paused, sleepy), box(carrel.Pausing, carrel.Lifecycle{}), box(carrel.Resuming, carrel.Lifecycle{})
	unborn := box(carrel.Starting, carrel.Lifecycle{})
	gone, dying := box(carrel.Paused, carrel.Lifecycle{}), box(carrel.Stopping, sleepy)
	sign := func(s string) string {
		sum := sha256.Sum256([]byte(s))
		return url.QueryEscape("v1_" + base64.RawStdEncoding.EncodeToString(sum[:]))
	}
	srv := front(t, w, Options{})
	for _, c := range []struct {
		name, id, port, path string
		header               string // name=value
		status               int
	}{
		{"paused for good", gone, "49983", "/", "X-Access-Token=secret", 502},
		{"being killed", dying, "49983", "/", "X-Access-Token=secret", 502},
		{"pausing", tired, "49983", "/", "X-Access-Token=secret", 409},
		{"resuming", dazed, "49983", "/", "X-Access-Token=secret", 409},
		{"health of a pausing one", tired, "49983", "/health", "X-Access-Token=secret", 502},
		{"health of a starting one", unborn, "49983", "/health", "X-Access-Token=secret", 502},
		{"another's health of a pausing one", tired, "3000", "/health", headerTraffic + "=traffic", 409},
		{"no access token", asleep, "49983", "/health", "", 403},
		{"wrong access token", asleep, "49983", "/", "X-Access-Token=guess", 403},
		{"another operation's signature", asleep, "49983", "/files?path=a&signature=" + sign("a:write::secret"), "", 403},
		{"expired signature", asleep, "49983", "/files?path=a&signature_expiration=9&signature=" + sign("a:read::secret:9"), "", 403},
		{"a route for the host", asleep, "49983", "/init", "X-Access-Token=secret", 404},
		{"no traffic token", asleep, "3000", "/", "", 403},
		{"wrong traffic token", asleep, "3000", "/", headerTraffic + "=secret", 403},
	} {
		headers := []string{headerID, c.id, headerPort, c.port}
		if name, value, ok := strings.Cut(c.header, "="); ok {
			headers = append(headers, name, value)
		}
		if resp, body := ask(t, "GET", srv.URL+c.path, nil, headers...); resp.StatusCode != c.status {
			t.Errorf("%s: %d %s, want %d", c.name, resp.StatusCode, body, c.status)
		}
	}
	w.quiet(t, 0)
	for _, c := range [][]string{
		{"/", headerPort, "49983", "X-Access-Token", "secret"},
		{"/", headerPort, "3000", headerTraffic, "traffic"},
		{"/files?path=a&signature=" + sign("a:read::secret"), headerPort, "49983"},
		{"/files?path=b&signature=" + sign("b:read::secret")}, // that finds its sandbox, too
	} {
		w.set(carrel.ID(asleep), func(sb *carrel.Sandbox) { sb.State = carrel.Paused })
		headers := c[1:]
		if len(headers) > 0 {
			headers = append(headers, headerID, asleep)
		} else {
			w.forget(carrel.ID(gone)) // they all have one token here
			w.forget(carrel.ID(tired))
			w.forget(carrel.ID(dazed))
			w.forget(carrel.ID(dying))
			w.forget(carrel.ID(unborn))
		}
		w.onVisit = func(_ context.Context, id carrel.ID) error { w.wake(id); return nil }
		if resp, body := ask(t, "GET", srv.URL+c[0], nil, headers...); resp.StatusCode != 200 {
			t.Errorf("%v: %d %s", c, resp.StatusCode, body)
		}
	}
	w.quiet(t, 4)
}

// TestWokenForNothing wakes a sandbox for a port without a listener. The answer must say that the
// port is not open.
func TestWokenForNothing(t *testing.T) {
	w := newWorld(t)
	id := w.add(t, carrel.Sandbox{State: carrel.Paused, Lifecycle: sleepy}, nil)
	w.onVisit = func(_ context.Context, id carrel.ID) error {
		if sb, _ := w.Get(context.Background(), id); sb.State == carrel.Paused {
			w.wake(id)
		}
		return nil
	}
	srv := front(t, w, Options{})
	if resp, body := ask(t, "GET", srv.URL, nil, headerID, string(id), headerPort, "80"); resp.StatusCode != 502 || !strings.Contains(body, "port is not open") {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}

// TestVisitErrors checks the client's answer for each kind of failed resumption.
func TestVisitErrors(t *testing.T) {
	w := newWorld(t)
	id := w.add(t, carrel.Sandbox{State: carrel.Paused, Lifecycle: sleepy}, nil)
	srv := front(t, w, Options{})
	for kind, want := range map[carrel.Kind]struct {
		status int
		text   string
	}{
		carrel.NotFound:    {502, "The sandbox was not found"},
		carrel.Conflict:    {409, "The sandbox is changing its state, try again"},
		carrel.Exhausted:   {429, "no memory left"},
		carrel.Unsupported: {501, "no memory left"},
		carrel.TimedOut:    {502, "The sandbox did not answer"},
		carrel.Internal:    {500, "internal error"},
	} {
		w.onVisit = func(context.Context, carrel.ID) error {
			w.set(id, func(sb *carrel.Sandbox) { sb.State = carrel.Resuming })
			return &carrel.Error{Op: "resume sandbox", Kind: kind, ID: id, Err: errors.New("no memory left")}
		}
		resp, body := ask(t, "GET", srv.URL, nil, headerID, string(id))
		if resp.StatusCode != want.status || !strings.Contains(body, want.text) || (want.status == 429) != (resp.Header.Get("Retry-After") == "1") {
			t.Errorf("%s: %d %s %v", kind, resp.StatusCode, body, resp.Header)
		}
	}
	// Requests do not wake this sandbox, although its lifecycle says that they do.
	w.set(id, func(sb *carrel.Sandbox) { sb.State = carrel.Paused })
	w.onVisit = func(context.Context, carrel.ID) error {
		return &carrel.Error{Op: "visit sandbox", Kind: carrel.Conflict, ID: id}
	}
	if resp, body := ask(t, "GET", srv.URL, nil, headerID, string(id)); resp.StatusCode != 502 || !strings.Contains(body, "not found") {
		t.Errorf("sleeps soundly: %d %s", resp.StatusCode, body)
	}
	// This sandbox was paused after the gateway had looked at it, and it does not wake by itself.
	w.wake(id)
	w.onVisit = func(context.Context, carrel.ID) error {
		w.set(id, func(sb *carrel.Sandbox) { sb.State, sb.Lifecycle = carrel.Paused, carrel.Lifecycle{} })
		return &carrel.Error{Op: "visit sandbox", Kind: carrel.Conflict, ID: id}
	}
	if resp, body := ask(t, "GET", srv.URL, nil, headerID, string(id)); resp.StatusCode != 502 || !strings.Contains(body, "not found") {
		t.Errorf("paused meanwhile: %d %s", resp.StatusCode, body)
	}
	w.quiet(t, 0)
}

// TestLeavesWhileHeld shows that the gateway does not wait for a client that leaves.
func TestLeavesWhileHeld(t *testing.T) {
	w := newWorld(t)
	id := w.add(t, carrel.Sandbox{State: carrel.Paused, Lifecycle: sleepy}, nil)
	held, over := make(chan struct{}), make(chan struct{})
	w.onVisit = func(ctx context.Context, _ carrel.ID) error {
		close(held)
		<-ctx.Done()
		close(over)
		return &carrel.Error{Op: "visit sandbox", Kind: carrel.TimedOut, Err: ctx.Err()}
	}
	srv := front(t, w, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	req, _ := http.NewRequestWithContext(ctx, "GET", srv.URL, nil)
	req.Header.Set(headerID, string(id))
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	go func() { <-held; cancel() }()
	if resp, err := tr.RoundTrip(req); err == nil {
		resp.Body.Close()
		t.Error("it was answered:", resp.Status)
	}
	<-over
	w.quiet(t, 0)
}

// TestDoneOnce shows that a visit ends exactly once, however its exchange ends.
func TestDoneOnce(t *testing.T) {
	stop := make(chan struct{})
	var stopOnce sync.Once
	t.Cleanup(func() { stopOnce.Do(func() { close(stop) }) })
	flush := func(rw http.ResponseWriter) { _ = http.NewResponseController(rw).Flush() }
	handlers := map[uint16]http.Handler{
		1: say("whole"),
		2: http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			fmt.Fprintln(rw, "x")
			flush(rw)
			panic(http.ErrAbortHandler)
		}),
		3: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			fmt.Fprintln(rw, "x")
			flush(rw)
			select {
			case <-r.Context().Done():
			case <-stop:
			}
		}),
		4: http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			c, _, _ := http.NewResponseController(rw).Hijack()
			c.Close() // no answer at all
		}),
		5: http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			c, buf, _ := http.NewResponseController(rw).Hijack()
			fmt.Fprint(buf, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: raw\r\nConnection: Upgrade\r\n\r\nbye")
			buf.Flush()
			c.Close()
		}),
	}
	w := newWorld(t)
	id := string(w.add(t, carrel.Sandbox{}, handlers))
	srv := front(t, w, Options{})
	tr := &http.Transport{DisableKeepAlives: true}
	defer tr.CloseIdleConnections()
	send := func(port, method string, body io.Reader, upgrade bool) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		req, _ := http.NewRequestWithContext(ctx, method, srv.URL, body)
		req.Header.Set(headerID, id)
		req.Header.Set(headerPort, port)
		if upgrade {
			req.Header.Set("Connection", "Upgrade")
			req.Header.Set("Upgrade", "raw")
		}
		resp, err := tr.RoundTrip(req)
		if err != nil {
			return
		}
		defer resp.Body.Close()
		if port == "3" {
			_, _ = resp.Body.Read(make([]byte, 1))
			return // the client leaves in the middle
		}
		_, _ = io.Copy(io.Discard, resp.Body)
	}
	send("1", "GET", nil, false)
	send("2", "GET", nil, false)
	send("3", "GET", nil, false)
	send("5", "GET", nil, true)
	send("9", "GET", nil, false) // closed port; two visits in one life
	send("4", "POST", strings.NewReader("x"), false)
	w.quiet(t, 7)
}

// TestNewLife shows that, after a restoration, no request uses a warm connection of the earlier
// life, even one that still works.
func TestNewLife(t *testing.T) {
	w := newWorld(t)
	id := w.add(t, carrel.Sandbox{}, map[uint16]http.Handler{carrel.GuestPort: say("old"), 3000: say("old")})
	srv := front(t, w, Options{})
	for _, life := range []string{"old", "new", "newest"} {
		if life != "old" {
			w.restore(t, id, map[uint16]http.Handler{carrel.GuestPort: say(life), 3000: say(life)})
		}
		for range 3 {
			for _, port := range []string{"49983", "3000"} {
				if resp, body := ask(t, "GET", srv.URL+"/", nil, headerID, string(id), headerPort, port); resp.StatusCode != 200 || body != life+" /" {
					t.Errorf("port %s in the %s life: %d %s", port, life, resp.StatusCode, body)
				}
			}
		}
	}
	w.quiet(t, 18)
}

// TestAtTheMoment sends requests that meet the end of one life. A request goes to the next life if
// it can't have done anything in the first.
func TestAtTheMoment(t *testing.T) {
	for _, port := range []uint16{carrel.GuestPort, 3000} {
		for _, c := range []struct {
			name, method, body string
			dead               bool // the old life does not even accept the connection
			status             int
			want               string
		}{
			{"get", "GET", "", false, 200, "new GET "},
			{"delete", "DELETE", "", false, 200, "new DELETE "},
			{"get refused", "GET", "", true, 200, "new GET "},
			{"post refused", "POST", "whole body", true, 200, "new POST whole body"},
			{"post", "POST", "body", false, 409, "changing its state"},
			{"post of nothing", "POST", "", false, 409, "changing its state"},
			{"put", "PUT", "body", false, 409, "changing its state"},
		} {
			t.Run(fmt.Sprint(port, " ", c.name), func(t *testing.T) {
				w := newWorld(t)
				var id carrel.ID
				var once sync.Once
				turn := func() {
					once.Do(func() {
						w.restore(t, id, map[uint16]http.Handler{port: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
							raw, _ := io.ReadAll(r.Body)
							fmt.Fprintf(rw, "new %s %s", r.Method, raw)
						})})
					})
				}
				ports := map[uint16]http.Handler{port: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					turn()
					conn, _, _ := http.NewResponseController(rw).Hijack()
					_ = conn.(*net.TCPConn).SetLinger(0)
					conn.Close()
				})}
				if c.dead {
					ports = nil
				}
				id = w.add(t, carrel.Sandbox{}, ports)
				first := true
				w.onVisit = func(context.Context, carrel.ID) error {
					if !first && c.dead {
						turn()
					}
					first = false
					return nil
				}
				srv := front(t, w, Options{})
				var body io.Reader
				if c.body != "" {
					body = strings.NewReader(c.body)
				}
				resp, got := ask(t, c.method, srv.URL, body, headerID, string(id), headerPort, strconv.Itoa(int(port)))
				if resp.StatusCode != c.status || !strings.Contains(got, c.want) {
					t.Errorf("%d %s, want %d %s", resp.StatusCode, got, c.status, c.want)
				}
				if v, d := w.visits.Load(), w.dones.Load(); v != d {
					w.quiet(t, int(v))
				}
			})
		}
	}
}

// TestMomentDenied shows that a caller who may not wake a sandbox can't do so at the moment of a
// change either.
func TestMomentDenied(t *testing.T) {
	w := newWorld(t)
	id := w.add(t, carrel.Sandbox{AccessToken: "secret", Lifecycle: sleepy}, nil) // a life without connections
	w.onVisit = func(_ context.Context, id carrel.ID) error {
		w.set(id, func(sb *carrel.Sandbox) { sb.State = carrel.Paused })
		return nil
	}
	srv := front(t, w, Options{})
	if resp, body := ask(t, "GET", srv.URL+"/health", nil, headerID, string(id)); resp.StatusCode != 502 {
		t.Errorf("health: %d %s", resp.StatusCode, body)
	}
	w.quiet(t, 1)
	w.set(id, func(sb *carrel.Sandbox) { sb.State = carrel.Running })
	if resp, body := ask(t, "GET", srv.URL+"/files", nil, headerID, string(id)); resp.StatusCode != 409 {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	w.quiet(t, 2)
}

// TestHealthWhilePausing sends a health check to a sandbox during a pause after which it does not
// wake by itself. The answer is that it does not run. A check during a resumption waits for the
// resumption.
func TestHealthWhilePausing(t *testing.T) {
	w := newWorld(t)
	id := w.add(t, carrel.Sandbox{AccessToken: "secret"}, nil) // a life without connections
	w.onVisit = func(_ context.Context, id carrel.ID) error {
		w.set(id, func(sb *carrel.Sandbox) { sb.State = carrel.Pausing })
		return nil
	}
	srv := front(t, w, Options{})
	health := func(id carrel.ID) int {
		resp, _ := ask(t, "GET", srv.URL+"/health", nil, headerID, string(id), "X-Access-Token", "secret")
		return resp.StatusCode
	}
	if code := health(id); code != 502 {
		t.Errorf("the health of one that is paused meanwhile: %d", code)
	}
	w.onVisit = nil
	back := w.add(t, carrel.Sandbox{State: carrel.Resuming, AccessToken: "secret"}, map[uint16]http.Handler{carrel.GuestPort: say("well")})
	if code := health(back); code != 200 {
		t.Errorf("the health of one that is resumed: %d", code)
	}
}

// TestTurnMidStream rolls a sandbox back in the middle of an answer, which then breaks off. An
// answer that was already complete stays complete.
func TestTurnMidStream(t *testing.T) {
	turn := make(chan struct{})
	w := newWorld(t)
	id := w.add(t, carrel.Sandbox{}, map[uint16]http.Handler{3000: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(rw, "first")
		if r.URL.Path == "/whole" {
			return
		}
		_ = http.NewResponseController(rw).Flush()
		<-turn
		conn, _, _ := http.NewResponseController(rw).Hijack()
		_ = conn.(*net.TCPConn).SetLinger(0)
		conn.Close()
	})})
	srv := front(t, w, Options{})
	if resp, body := ask(t, "GET", srv.URL+"/whole", nil, headerID, string(id), headerPort, "3000"); resp.StatusCode != 200 || body != "first\n" {
		t.Errorf("whole: %d %q", resp.StatusCode, body)
	}
	br := bufio.NewReader(begin(t, "GET", srv.URL+"/part", nil, headerID, string(id), headerPort, "3000").Body)
	if line, err := br.ReadString('\n'); line != "first\n" {
		t.Fatal(line, err)
	}
	w.restore(t, id, map[uint16]http.Handler{3000: say("new")})
	close(turn)
	if rest, err := io.ReadAll(br); err == nil || len(rest) != 0 {
		t.Errorf("the answer goes on with %q and ends with %v", rest, err)
	}
	w.quiet(t, 2)
}

// TestLivesForget shows that lives keeps no Conn in memory.
func TestLivesForget(t *testing.T) {
	var l lives
	w := newWorld(t)
	seen := map[uint64]bool{}
	for range 100 {
		c := w.conn(carrel.NewID(), nil)
		n := l.number(c)
		if seen[n] || l.number(c) != n {
			t.Fatalf("number %d", n)
		}
		seen[n] = true
	}
	testenv.EventuallyNil(t, "the lives are forgotten", func() error {
		runtime.GC()
		l.mu.Lock()
		defer l.mu.Unlock()
		if left := len(l.known); left > 1 { // the last one may still be in a register
			return fmt.Errorf("%d lives are remembered", left)
		}
		return nil
	})
}
