package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/engine"
	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/test/daemontest"
)

// liar is a node in front of a real daemon. It passes requests on, except those that answer takes.
func liar(t *testing.T, d *daemontest.Daemon, answer func(w http.ResponseWriter, r *http.Request) bool) engine.Node {
	t.Helper()
	n, _ := mortalLiar(t, d, answer)
	return n
}

// mortalLiar is liar with a function that ends it.
func mortalLiar(t *testing.T, d *daemontest.Daemon,
	answer func(w http.ResponseWriter, r *http.Request) bool) (engine.Node, func()) {
	t.Helper()
	to, err := url.Parse(d.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }}
	transport := &http.Transport{}
	proxy.Transport = transport
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !answer(w, r) {
			proxy.ServeHTTP(w, r)
		}
	}))
	end := func() { srv.CloseClientConnections(); srv.Close(); transport.CloseIdleConnections() }
	t.Cleanup(end)
	return engine.Node{Name: "liar", URL: srv.URL, Key: d.Key}, end
}

func sendJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

// knows waits until an engine has heard of the liar.
func knows(t *testing.T, f *fleet) {
	t.Helper()
	testenv.EventuallyNil(t, "the liar is heard", func() error {
		if s := f.status("liar"); !s.Ready {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
}

// lies has a fourth node that is wrong in many ways.
func lies(t *testing.T, f *fleet) {
	t.Run("load", func(t *testing.T) { lieAboutLoad(t, f) })
	t.Run("one sandbox twice", func(t *testing.T) { claimTwice(t, f) })
	t.Run("answers", func(t *testing.T) { otherAnswers(t, f) })
	t.Run("1 GB", func(t *testing.T) { huge(t, f) })
	t.Run("another fleet", func(t *testing.T) { otherFleet(t, f) })
	t.Run("lost answer", func(t *testing.T) { lostAnswer(t, f) })
	t.Run("lost node", func(t *testing.T) { lostNode(t, f) })
}

// lieAboutLoad has a node that is always empty, and refuses every creation. All creations succeed.
func lieAboutLoad(t *testing.T, f *fleet) {
	var asked atomic.Int64
	n := liar(t, f.daemons[0], func(w http.ResponseWriter, r *http.Request) bool {
		switch {
		case r.Method == http.MethodPost && r.URL.Path == "/carrel/v1/sandboxes":
			asked.Add(1)
			w.WriteHeader(http.StatusTooManyRequests)
			sendJSON(w, map[string]any{"code": 429, "message": "full", "kind": "exhausted", "retryAfter": 1})
		case r.URL.Path == "/carrel/v1/sandboxes":
			sendJSON(w, map[string]any{})
		case r.URL.Path == "/carrel/v1/admission":
			sendJSON(w, map[string]any{"machine": map[string]any{"memory": 1 << 50, "memoryTotal": 1 << 50}})
		default:
			return false
		}
		return true
	})
	e := over(t, f.daemons, n)
	knows(t, e)
	for _, m := range create(t.Context(), e, 60, nil) {
		if m.err != nil {
			t.Fatal(m.err)
		}
	}
	if n := asked.Load(); n == 0 || n > 45 { // two of four choices are half
		t.Errorf("the liar was asked %d times for 60 sandboxes", n)
	}
	killAll(t, f)
}

// claimTwice has a node that claims all sandboxes of another. An engine that made them goes on. One
// that knows nothing refuses them, and the next word of the fleet settles it.
func claimTwice(t *testing.T, f *fleet) {
	n := liar(t, f.daemons[0], func(http.ResponseWriter, *http.Request) bool { return false })
	e := over(t, f.daemons, n)
	nodes := e.nodes()
	mine := onEach(t, f)
	at0 := all(t, direct(t, f.daemons[0]), carrel.ListOptions{})
	e.Rebuild()
	testenv.EventuallyNil(t, "the claim is refused", func() error {
		if _, err := e.Get(t.Context(), at0[0].ID); carrel.KindOf(err) != carrel.Conflict {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
	if _, err := e.Computer(t.Context(), at0[0].ID); carrel.KindOf(err) != carrel.Conflict || !strings.Contains(err.Error(), "liar") {
		t.Errorf("a disputed sandbox: %v", err)
	}
	page, err := e.List(t.Context(), carrel.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, sb := range page.Sandboxes {
		if sb.ID == at0[0].ID {
			t.Errorf("the list has a disputed sandbox")
		}
	}
	judge := overWith(t, owner{at0[0].ID, name(0)}, f.daemons, n)
	knows(t, judge)
	judge.Rebuild()
	if sb, err := judge.Get(t.Context(), at0[0].ID); err != nil || sb.ID != at0[0].ID {
		t.Errorf("the store says whose it is: %v", err)
	}
	if err := f.list.Set(append(f.nodes(), n)...); err != nil { // the engine that made them
		t.Fatal(err)
	}
	knows(t, f)
	f.Rebuild()
	for _, id := range mine {
		if sb, err := f.Get(t.Context(), id); err != nil || sb.ID != id {
			t.Errorf("the engine that made it: %v", err)
		}
	}
	if err := f.list.Set(f.nodes()...); err != nil {
		t.Fatal(err)
	}
	if err := e.list.Set(nodes...); err != nil { // the liar leaves
		t.Fatal(err)
	}
	testenv.EventuallyNil(t, "the sandboxes are found again", func() error {
		for _, id := range mine {
			if _, err := e.Get(t.Context(), id); err != nil {
				return err
			}
		}
		return nil
	})
	killAll(t, f)
}

// owner is a store that knows the node of one sandbox.
type owner struct {
	id   carrel.ID
	node string
}

// Owner implements engine.Owners.
func (o owner) Owner(_ context.Context, id carrel.ID) (string, bool, error) {
	return o.node, id == o.id, nil
}

// otherAnswers has a node that answers about another sandbox than the one it was asked for.
func otherAnswers(t *testing.T, f *fleet) {
	sb, err := f.Create(t.Context(), carrel.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	wanted := carrel.NewID()
	n := liar(t, f.daemons[0], func(w http.ResponseWriter, r *http.Request) bool {
		switch {
		case strings.HasSuffix(r.URL.Path, string(wanted)):
			sendJSON(w, sb)
		case r.Method == http.MethodPost && r.URL.Path == "/carrel/v1/sandboxes":
			sendJSON(w, map[string]any{"id": "../../etc"})
		case r.URL.Path == "/carrel/v1/sandboxes":
			sendJSON(w, map[string]any{"sandboxes": []map[string]any{{"id": "no/id"}}, "next": "x"})
		default:
			return false
		}
		return true
	})
	e := over(t, f.daemons, n)
	testenv.Eventually(t, "the liar is heard", func() bool { return e.status("liar").Away == nil })
	if _, err := e.Get(t.Context(), wanted); err == nil || carrel.KindOf(err) == carrel.NotFound {
		t.Errorf("the answer about another sandbox: %v", err)
	}
	if page, err := e.List(t.Context(), carrel.ListOptions{}); err != nil || len(page.Sandboxes) != 1 || page.Sandboxes[0].ID != sb.ID {
		t.Errorf("the list: %+v, %v", page, err)
	}
	refused := false
	for range 40 {
		got, err := e.Create(t.Context(), carrel.CreateOptions{})
		if _, bad := carrel.ParseID(string(got.ID)); err == nil && bad != nil {
			t.Fatalf("a sandbox %q", got.ID)
		}
		if err != nil && carrel.KindOf(err) != carrel.Internal {
			t.Errorf("a new sandbox with no ID: %v", err)
		}
		refused = refused || err != nil
	}
	if !refused {
		t.Error("the liar was never asked for a sandbox")
	}
	killAll(t, f)
}

// endless reads as one kind of byte.
type endless byte

func (e endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(e)
	}
	return len(p), nil
}

// huge has a node whose every answer is a gigabyte of JSON.
func huge(t *testing.T, f *fleet) {
	n := liar(t, f.daemons[0], func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/carrel/v1/events" {
			return false
		}
		_, _ = io.Copy(w, io.MultiReader(strings.NewReader(`{"id":"`), io.LimitReader(endless('x'), 1<<30)))
		return true
	})
	e := over(t, f.daemons, n)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := e.Get(t.Context(), carrel.NewID()); carrel.KindOf(err) != carrel.Unavailable {
		t.Errorf("nobody knows whether the node has it: %v", err)
	}
	sb, err := e.Create(t.Context(), carrel.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if page, err := e.List(t.Context(), carrel.ListOptions{}); err != nil || len(page.Sandboxes) != 1 || fmt.Sprint(page.Missing) != "[liar]" {
		t.Errorf("the list: %+v, %v", page, err)
	}
	if err := e.Kill(t.Context(), sb.ID); err != nil {
		t.Error(err)
	}
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapSys) - int64(before.HeapSys); grown > 600<<20 {
		t.Errorf("answers took %d MiB", grown>>20)
	}
}

// otherFleet has a node that does not know this fleet's key.
func otherFleet(t *testing.T, f *fleet) {
	n := liar(t, f.daemons[0], func(http.ResponseWriter, *http.Request) bool { return false })
	n.Key = f.daemons[1].Key
	e := over(t, f.daemons, n)
	testenv.Eventually(t, "the node is refused", func() bool {
		s := e.status("liar")
		return s.Away != nil && strings.Contains(s.Away.Error(), "key")
	})
	for _, m := range create(t.Context(), e, 12, nil) {
		if m.err != nil {
			t.Error(m.err)
		}
	}
	_, err := e.Get(t.Context(), carrel.NewID())
	if carrel.KindOf(err) != carrel.Unavailable || !strings.Contains(carrel.HintOf(err), "liar") || strings.Contains(fmt.Sprint(err), n.Key) {
		t.Errorf("what may be there: %v (hint: %s)", err, carrel.HintOf(err))
	}
	if text := fmt.Sprintf("%v %+v %#v", n, n, n); strings.Contains(text, n.Key) {
		t.Error("a node is printed with its key")
	}
	killAll(t, f)
}

// losing is an answer function that makes a sandbox and loses the answer, while lose is set.
func losing(d *daemontest.Daemon, lose *atomic.Bool) func(w http.ResponseWriter, r *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPost || r.URL.Path != "/carrel/v1/sandboxes" || !lose.Load() {
			return false
		}
		raw, _ := io.ReadAll(r.Body)
		req, _ := http.NewRequestWithContext(r.Context(), r.Method, d.URL+r.URL.Path, bytes.NewReader(raw))
		req.Header = r.Header.Clone()
		if resp, err := http.DefaultClient.Do(req); err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
		panic(http.ErrAbortHandler)
	}
}

// lostAnswer has a node that makes sandboxes and loses the answer. The error says that there may be
// one, no other node is tried, and with a key the second request gets the first one's sandbox.
func lostAnswer(t *testing.T, f *fleet) {
	var lose atomic.Bool
	lose.Store(true)
	n := liar(t, f.daemons[0], losing(f.daemons[0], &lose))
	defer http.DefaultClient.CloseIdleConnections()
	e := over(t, nil, n)
	knows(t, e)
	if _, err := e.Create(t.Context(), carrel.CreateOptions{}); carrel.KindOf(err) != carrel.Unavailable || !strings.Contains(err.Error(), "may exist") {
		t.Errorf("a lost answer: %v", err)
	}
	opts := carrel.CreateOptions{IdempotencyKey: "again"}
	if _, err := e.Create(t.Context(), opts); carrel.KindOf(err) != carrel.Unavailable {
		t.Errorf("a lost answer: %v", err)
	}
	if n := len(all(t, direct(t, f.daemons[0]), carrel.ListOptions{})); n != 2 {
		t.Errorf("two requests made %d sandboxes", n)
	}
	lose.Store(false)
	testenv.Eventually(t, "the node is there", func() bool { return e.status("liar").Ready })
	if _, err := e.Create(t.Context(), opts); err != nil {
		t.Error(err)
	}
	if n := len(all(t, direct(t, f.daemons[0]), carrel.ListOptions{})); n != 2 {
		t.Errorf("the third request made another: %d", n)
	}
	killAll(t, f)
}

// lostNode has a node that makes sandboxes, loses the answers, and then goes away. The same
// requests with their keys make no second sandbox on another node, also when nobody has noticed
// yet.
func lostNode(t *testing.T, f *fleet) {
	var lose atomic.Bool
	lose.Store(true)
	n, end := mortalLiar(t, f.daemons[1], losing(f.daemons[1], &lose))
	defer http.DefaultClient.CloseIdleConnections()
	e := over(t, f.daemons[:1], n)
	knows(t, e)
	var lost []carrel.CreateOptions
	for i := range 20 {
		opts := carrel.CreateOptions{IdempotencyKey: fmt.Sprintf("lost-%d", i)}
		if _, err := e.Create(t.Context(), opts); err != nil {
			lost = append(lost, opts)
		}
	}
	if len(lost) == 0 || len(lost) == 20 {
		t.Fatalf("%d of 20 creations went to the node", len(lost))
	}
	end()
	for range 2 { // before and after the engine knows that it is away
		for _, opts := range lost {
			if sb, err := e.Create(t.Context(), opts); carrel.KindOf(err) != carrel.Unavailable || !strings.Contains(err.Error(), "liar") {
				t.Errorf("%s: %q, %v", opts.IdempotencyKey, sb.ID, err)
			}
		}
		testenv.Eventually(t, "the engine notices", func() bool { return e.status("liar").Away != nil })
	}
	if n := len(all(t, f, carrel.ListOptions{})); n != 20 {
		t.Errorf("20 keys made %d sandboxes", n)
	}
	killAll(t, f)
}

// follow reads the events of sandboxes on all nodes, stops, and goes on at the position.
func follow(t *testing.T, f *fleet) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	got := make(chan engine.Followed, 10_000)
	read := func(ctx context.Context, at string) {
		for ev, err := range f.Follow(ctx, at) {
			if err != nil {
				t.Error(err)
				return
			}
			got <- ev
		}
	}
	first, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { defer close(done); read(first, "") }()
	seen := map[carrel.ID][]string{}
	var at string
	await := func(ids []carrel.ID, last string) {
		t.Helper()
		testenv.EventuallyNil(t, last+" of all", func() error {
			for len(got) > 0 {
				ev := <-got
				if at = ev.Position; ev.ID != "" {
					seen[ev.ID] = append(seen[ev.ID], ev.Type)
				}
			}
			for _, id := range ids {
				if n := len(seen[id]); n == 0 || seen[id][n-1] != last {
					return fmt.Errorf("%s: %v", id, seen[id])
				}
			}
			return nil
		})
	}
	// A stream that begins now has no first event to wait for: make sandboxes until one is seen.
	var ids []carrel.ID
	testenv.Eventually(t, "each node is followed", func() bool {
		for _, m := range create(ctx, f, 3, nil) {
			ids = append(ids, m.id)
		}
		nodes := map[string]bool{}
		for len(got) > 0 {
			ev := <-got
			nodes[ev.Node], at = true, ev.Position
		}
		return len(nodes) == 3
	})
	ids = nil
	for _, m := range create(ctx, f, 12, nil) {
		ids = append(ids, m.id)
	}
	await(ids, "sandbox.created")
	stop()
	<-done
	for _, id := range ids { // while nobody reads
		if err := f.Kill(ctx, id); err != nil {
			t.Fatal(err)
		}
	}
	again, stop := context.WithCancel(ctx)
	done = make(chan struct{})
	go func() { defer close(done); read(again, at) }()
	await(ids, "sandbox.ended")
	stop()
	<-done
	for _, id := range ids {
		if s := fmt.Sprint(seen[id]); s != "[sandbox.created sandbox.ended]" {
			t.Errorf("%s: %s", id, s)
		}
	}
	wrongPositions(ctx, t, f)
	killAll(t, f)
}

// wrongPositions begins streams at positions that Follow did not make.
func wrongPositions(ctx context.Context, t *testing.T, f *fleet) {
	t.Helper()
	for _, bad := range []string{"x", "e30=", strings.Repeat("A", 1<<20), "eyJzaW5jZSI6LTF9", "eyJzZXFzIjp7IiI6MX19"} {
		for _, err := range f.Follow(ctx, bad) {
			if carrel.KindOf(err) != carrel.Invalid {
				t.Errorf("position %.20q: %v", bad, err)
			}
			break
		}
	}
	for _, err := range f.Events(ctx, 5) {
		if carrel.KindOf(err) != carrel.Unsupported {
			t.Errorf("events after a number: %v", err)
		}
		break
	}
}
