package webhook

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/state"
	"github.com/carrel-dev/carrel/internal/state/memory"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// world is a store of events with webhooks over it. The webhooks can be opened again, as after a
// kill: the ones before simply get no more turn to write.
type world struct {
	t     *testing.T
	store state.Store
	dir   string
	opts  Options
	hooks *Hooks

	mu   sync.Mutex
	wake chan struct{}
}

func newWorld(t *testing.T, change func(*Options)) *world {
	w := &world{t: t, store: memory.Open(), dir: t.TempDir(), wake: make(chan struct{})}
	t.Cleanup(func() { _ = w.store.Close() })
	w.opts = Options{Dir: filepath.Join(w.dir, "webhooks"), Identity: "test", Store: w.store, Follow: w.follow,
		Retry: Retry{First: 5 * time.Millisecond, Longest: 20 * time.Millisecond, For: time.Hour}, Timeout: 2 * time.Second,
		Allow: []string{"http://127.0.0.1"}}
	if change != nil {
		change(&w.opts)
	}
	w.open()
	t.Cleanup(func() { w.close() })
	return w
}

func (w *world) open() {
	w.t.Helper()
	var err error
	if w.hooks, err = Open(w.opts); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) close() {
	w.t.Helper()
	if err := w.hooks.Close(); err != nil {
		w.t.Error(err)
	}
}

// follow is the service's stream of events.
func (w *world) follow(ctx context.Context, after int64) iter.Seq2[carrel.Event, error] {
	return func(yield func(carrel.Event, error) bool) {
		for {
			w.mu.Lock()
			wake := w.wake
			w.mu.Unlock()
			page, err := w.store.Events(ctx, "", after, 100)
			if err != nil {
				yield(carrel.Event{}, err)
				return
			}
			for _, e := range page {
				if after = e.Seq; !yield(e, nil) {
					return
				}
			}
			if len(page) > 0 {
				continue
			}
			select {
			case <-wake:
			case <-ctx.Done():
				return
			}
		}
	}
}

// happen adds an event.
func (w *world) happen(id carrel.ID, kind string, change ...func(*carrel.Event)) carrel.Event {
	w.t.Helper()
	e := carrel.Event{Type: kind, ID: id, Project: "a", Time: time.Now().UTC(),
		Of: &carrel.EventSandbox{Template: "t", CPUs: 1.5, MemoryMB: 512, Started: time.Now().UTC(), Metadata: map[string]string{"task": "x"}}}
	for _, c := range change {
		c(&e)
	}
	e, err := w.store.AppendEvent(w.t.Context(), e)
	if err != nil {
		w.t.Fatal(err)
	}
	w.mu.Lock()
	close(w.wake)
	w.wake = make(chan struct{})
	w.mu.Unlock()
	return e
}

func (w *world) create(url string) carrel.Webhook {
	w.t.Helper()
	k, err := w.hooks.For("a").CreateWebhook(w.t.Context(), carrel.NewWebhook{Name: "mine", URL: url, Events: carrel.LifecycleTypes(), Secret: "secret"})
	if err != nil {
		w.t.Fatal(err)
	}
	return k
}

func (w *world) deliveries(id, state string) []carrel.Delivery {
	w.t.Helper()
	out, err := w.hooks.For("a").Deliveries(w.t.Context(), id, carrel.DeliveryOptions{State: state, Limit: 1000})
	if err != nil {
		w.t.Fatal(err)
	}
	return out
}

// receiver is a server that records what it gets, and answers what status says.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	bodies []delivered
	heads  []http.Header
	raw    [][]byte
	status func(d delivered, n int) int
}

func newReceiver(t *testing.T, status func(d delivered, n int) int) *receiver {
	r := &receiver{status: status}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		raw, _ := io.ReadAll(req.Body)
		var d delivered
		_ = json.Unmarshal(raw, &d)
		r.mu.Lock()
		code, n := 200, len(r.bodies)
		if r.status != nil {
			code = r.status(d, n)
		}
		r.bodies, r.heads, r.raw = append(r.bodies, d), append(r.heads, req.Header), append(r.raw, raw)
		r.mu.Unlock()
		w.WriteHeader(code)
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) got() []delivered {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]delivered{}, r.bodies...)
}

func TestDelivery(t *testing.T) {
	w, r := newWorld(t, nil), newReceiver(t, nil)
	id := carrel.NewID()
	w.happen(id, "sandbox.created") // before the webhook: not sent
	k := w.create(r.URL)
	w.happen(id, "sandbox.adopted") // E2B has no such event
	w.happen(id, "sandbox.snapshot", func(e *carrel.Event) { e.Fields = map[string]string{"cause": "interval"} })
	w.happen(id, "sandbox.ended", func(e *carrel.Event) { e.Project = "b" })
	end := w.happen(id, "sandbox.ended", func(e *carrel.Event) {
		e.Reason, e.Message = carrel.EndOutOfMemory, "over 512 MiB"
		e.Time = e.Time.Add(1500 * time.Millisecond)
	})
	testenv.Eventually(t, "it is delivered", func() bool { return len(w.deliveries(k.ID, "delivered")) == 1 })
	got := r.got()
	if len(got) != 1 {
		t.Fatalf("%d deliveries", len(got))
	}
	d, head := got[0], r.heads[0]
	if d.Type != carrel.LifecycleKilled || d.Label != "killed" || d.SandboxID != id || d.LifecycleEvent.SandboxID != id ||
		d.TeamID != carrel.TeamID("a") || d.Data.Metadata["task"] != "x" || d.SnakeData == nil ||
		d.Data.Execution == nil || d.Data.Execution.VCPUs != 2 || d.Data.Execution.MemoryMB != 512 ||
		d.Data.Execution.Millis < 1500 || d.Data.Carrel.Reason != carrel.EndOutOfMemory || d.ID != w.hooks.events.id(end.Seq) {
		t.Errorf("%s", r.raw[0])
	}
	sum := sha256.Sum256(append([]byte("secret"), r.raw[0]...))
	if want := strings.TrimRight(base64.StdEncoding.EncodeToString(sum[:]), "="); head.Get("e2b-signature") != want {
		t.Errorf("signature %s, want %s", head.Get("e2b-signature"), want)
	}
	if head.Get("e2b-webhook-id") != k.ID || head.Get("e2b-signature-version") != "v1" || len(head.Get("e2b-delivery-id")) != 36 {
		t.Errorf("%v", head)
	}
}

// TestOrder fails deliveries at random. Each sandbox's events arrive in order, and none is missed.
func TestOrder(t *testing.T) {
	w := newWorld(t, nil)
	tries := map[string]int{}
	r := newReceiver(t, func(d delivered, n int) int {
		if tries[d.ID]++; tries[d.ID] <= n%3 {
			return 500
		}
		return 204
	})
	k := w.create(r.URL)
	const boxes, each = 5, 8
	ids := []carrel.ID{}
	for range boxes {
		ids = append(ids, carrel.NewID())
	}
	for range each {
		for _, id := range ids {
			w.happen(id, "sandbox.updated")
		}
	}
	testenv.Eventually(t, "all are delivered", func() bool { return len(w.deliveries(k.ID, "delivered")) == boxes*each })
	last := map[carrel.ID]int64{}
	for _, d := range r.got() {
		seq, ok := w.hooks.events.seq(d.ID)
		if !ok || seq < last[d.SandboxID] {
			t.Errorf("event %d of %s arrived after %d", seq, d.SandboxID, last[d.SandboxID])
		}
		last[d.SandboxID] = seq
	}
}

// TestDead gives a delivery up, goes on with the next one, and replays.
func TestDead(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.Retry.For = 50 * time.Millisecond })
	var bad atomic.Bool
	bad.Store(true)
	r := newReceiver(t, func(d delivered, _ int) int {
		if d.Type == carrel.LifecycleCreated && bad.Load() {
			return 400
		}
		return 200
	})
	k, id := w.create(r.URL), carrel.NewID()
	first := w.happen(id, "sandbox.created")
	w.happen(id, "sandbox.paused")
	testenv.Eventually(t, "the second one is delivered", func() bool { return len(w.deliveries(k.ID, "delivered")) == 1 })
	dead := w.deliveries(k.ID, "dead")
	if len(dead) != 1 || dead[0].Event != w.hooks.events.id(first.Seq) || dead[0].Status != 400 || dead[0].Attempts < 2 {
		t.Fatalf("%+v", dead)
	}
	w.close()
	w.open() // the list outlives the process
	if dead := w.deliveries(k.ID, "dead"); len(dead) != 1 {
		t.Fatalf("%+v", dead)
	}
	bad.Store(false)
	own := w.hooks.For("a")
	if n, err := own.Replay(t.Context(), k.ID, carrel.ReplayOptions{Dead: true}); err != nil || n.Events != 1 {
		t.Fatal(n, err)
	}
	testenv.Eventually(t, "it is delivered", func() bool { return len(w.deliveries(k.ID, "dead")) == 0 && len(w.deliveries(k.ID, "delivered")) == 2 })
	before := len(r.got())
	if n, err := own.Replay(t.Context(), k.ID, carrel.ReplayOptions{Events: []string{dead[0].Event}}); err != nil || n.Events != 1 {
		t.Fatal(n, err)
	}
	if n, err := own.Replay(t.Context(), k.ID, carrel.ReplayOptions{Since: time.Now().Add(-time.Minute)}); err != nil || n.Events != 2 {
		t.Fatal(n, err)
	}
	testenv.Eventually(t, "they arrive again", func() bool { return len(r.got()) >= before+2 })
	for name, o := range map[string]carrel.ReplayOptions{"nothing": {}, "both": {Dead: true, Since: time.Now()}} {
		if _, err := own.Replay(t.Context(), k.ID, o); carrel.KindOf(err) != carrel.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	other := w.happen(carrel.NewID(), "sandbox.created", func(e *carrel.Event) { e.Project = "b" })
	for _, event := range []string{"x", w.hooks.events.id(999), w.hooks.events.id(other.Seq), "00000000-0000-8000-8000-000000000001"} {
		if _, err := own.Replay(t.Context(), k.ID, carrel.ReplayOptions{Events: []string{event}}); carrel.KindOf(err) != carrel.NotFound {
			t.Errorf("%s: %v", event, err)
		}
	}
}

// TestCrash opens the directory again as kill -9 leaves it, at random moments and with a cut line.
// Each event arrives at least once, and one that is recorded as delivered not again.
func TestCrash(t *testing.T) {
	w, r := newWorld(t, nil), newReceiver(t, nil)
	k := w.create(r.URL)
	all := map[string]bool{}
	for round := range 6 {
		for range 10 {
			all[w.hooks.events.id(w.happen(carrel.NewID(), "sandbox.created").Seq)] = true
		}
		if round%2 == 0 {
			testenv.Eventually(t, "some are delivered", func() bool { return len(r.got()) > round*8 })
		}
		files := map[string][]byte{} // at the moment of the kill
		for _, name := range []string{hookName(w.opts.Dir, k.ID), progressName(w.opts.Dir, k.ID)} {
			raw, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			files[name] = raw
		}
		w.close()
		for name, raw := range files {
			if strings.HasSuffix(name, ".log") {
				raw = append(raw, `{"Kind":"deliv`...)
			}
			if err := os.WriteFile(name, raw, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		w.open()
	}
	testenv.Eventually(t, "all arrived", func() bool {
		seen := map[string]bool{}
		for _, d := range r.got() {
			seen[d.ID] = true
		}
		return len(seen) == len(all)
	})
	testenv.Eventually(t, "nothing waits", func() bool { return len(w.deliveries(k.ID, "pending")) == 0 })
	n := len(r.got())
	w.close()
	w.open()
	w.happen(carrel.NewID(), "sandbox.created")
	testenv.Eventually(t, "the next one arrives", func() bool { return len(r.got()) > n })
	if got := len(r.got()); got != n+1 {
		t.Errorf("%d deliveries were repeated although they were recorded", got-n-1)
	}
}

// TestDown lets a receiver be away. The attempts get few, nothing is lost, and memory is bounded.
func TestDown(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.Retry.Longest = 100 * time.Millisecond })
	var up atomic.Bool
	r := newReceiver(t, func(delivered, int) int {
		if up.Load() {
			return 200
		}
		return 503
	})
	k := w.create(r.URL)
	const n = 2 * window
	for range n {
		w.happen(carrel.NewID(), "sandbox.created")
	}
	testenv.Eventually(t, "it is held", func() bool { return len(r.got()) >= downAfter })
	if got := len(w.deliveries(k.ID, "pending")); got > window {
		t.Errorf("%d wait in memory, more than %d", got, window)
	}
	up.Store(true)
	testenv.Eventually(t, "all arrive", func() bool { return w.hooks.Needed() >= n })
	ok := map[string]bool{}
	for _, d := range r.got() {
		ok[d.ID] = true
	}
	if len(ok) != n {
		t.Errorf("%d of %d arrived", len(ok), n)
	}
}

// TestUpdate changes, disables and removes a webhook.
func TestUpdate(t *testing.T) {
	w, r := newWorld(t, nil), newReceiver(t, nil)
	k, own := w.create(r.URL), w.hooks.For("a")
	off, on, types := false, true, []string{carrel.LifecyclePaused}
	for _, u := range []carrel.WebhookUpdate{{Enabled: &off}} {
		if k, err := own.UpdateWebhook(t.Context(), k.ID, u); err != nil || k.Enabled {
			t.Fatal(k, err)
		}
	}
	w.happen(carrel.NewID(), "sandbox.paused")
	if _, err := own.Replay(t.Context(), k.ID, carrel.ReplayOptions{Dead: true}); carrel.KindOf(err) != carrel.Conflict {
		t.Error(err)
	}
	if k, err := own.UpdateWebhook(t.Context(), k.ID, carrel.WebhookUpdate{Enabled: &on, Events: &types}); err != nil || len(k.Events) != 1 || k.Secret != "" {
		t.Fatal(k, err)
	}
	w.happen(carrel.NewID(), "sandbox.created")
	want := w.happen(carrel.NewID(), "sandbox.paused")
	testenv.Eventually(t, "it is delivered", func() bool { return len(w.deliveries(k.ID, "delivered")) == 1 })
	if got := r.got(); len(got) != 1 || got[0].SandboxID != want.ID {
		t.Errorf("%+v", got)
	}
	// Another project has no such webhook.
	other := w.hooks.For("b")
	_, e1 := other.GetWebhook(t.Context(), k.ID)
	_, e2 := other.UpdateWebhook(t.Context(), k.ID, carrel.WebhookUpdate{Enabled: &off})
	_, e3 := other.Deliveries(t.Context(), k.ID, carrel.DeliveryOptions{})
	_, e4 := other.Replay(t.Context(), k.ID, carrel.ReplayOptions{Dead: true})
	for i, err := range []error{e1, e2, e3, e4, other.DeleteWebhook(t.Context(), k.ID)} {
		if carrel.KindOf(err) != carrel.NotFound {
			t.Errorf("%d: %v", i, err)
		}
	}
	if all, err := other.ListWebhooks(t.Context()); err != nil || len(all) != 0 {
		t.Error(all, err)
	}
	if err := own.DeleteWebhook(t.Context(), k.ID); err != nil {
		t.Fatal(err)
	}
	w.happen(carrel.NewID(), "sandbox.paused")
	left, _ := os.ReadDir(w.opts.Dir)
	if len(left) != 0 || len(r.got()) != 1 {
		t.Errorf("%v is left, %d deliveries", left, len(r.got()))
	}
}

func TestRefusals(t *testing.T) {
	w := newWorld(t, nil)
	good := carrel.NewWebhook{Name: "n", URL: "https://example.com/x", Events: []string{carrel.LifecycleCreated}}
	for name, c := range map[string]struct {
		change func(*carrel.NewWebhook)
		field  string
	}{
		"no name":        {func(n *carrel.NewWebhook) { n.Name = "" }, "name"},
		"a line break":   {func(n *carrel.NewWebhook) { n.Name = "a\r\nX-Evil: 1" }, "name"},
		"an escape":      {func(n *carrel.NewWebhook) { n.Name = "a\x1b[2J" }, "name"},
		"a bidi mark":    {func(n *carrel.NewWebhook) { n.Name = "a\u202eb" }, "name"},
		"long":           {func(n *carrel.NewWebhook) { n.Name = strings.Repeat("a", 129) }, "name"},
		"no events":      {func(n *carrel.NewWebhook) { n.Events = nil }, "events"},
		"odd event":      {func(n *carrel.NewWebhook) { n.Events = []string{"sandbox.ended"} }, "events"},
		"long secret":    {func(n *carrel.NewWebhook) { n.Secret = strings.Repeat("a", 513) }, "signatureSecret"},
		"no URL":         {func(n *carrel.NewWebhook) { n.URL = "" }, "url"},
		"http":           {func(n *carrel.NewWebhook) { n.URL = "http://example.com/" }, "url"},
		"file":           {func(n *carrel.NewWebhook) { n.URL = "file:///etc/passwd" }, "url"},
		"a user":         {func(n *carrel.NewWebhook) { n.URL = "https://a:b@example.com/" }, "url"},
		"a line in it":   {func(n *carrel.NewWebhook) { n.URL = "https://example.com/\r\nX: 1" }, "url"},
		"metadata":       {func(n *carrel.NewWebhook) { n.URL = "https://169.254.169.254/latest" }, "url"},
		"mapped":         {func(n *carrel.NewWebhook) { n.URL = "https://[::ffff:169.254.169.254]/" }, "url"},
		"loopback":       {func(n *carrel.NewWebhook) { n.URL = "https://127.0.0.2/" }, "url"},
		"localhost":      {func(n *carrel.NewWebhook) { n.URL = "https://LocalHost./" }, "url"},
		"private":        {func(n *carrel.NewWebhook) { n.URL = "https://10.0.0.1/" }, "url"},
		"shared":         {func(n *carrel.NewWebhook) { n.URL = "https://100.100.100.200/" }, "url"},
		"private IPv6":   {func(n *carrel.NewWebhook) { n.URL = "https://[fd00:ec2::254]/" }, "url"},
		"a long address": {func(n *carrel.NewWebhook) { n.URL = "https://example.com/" + strings.Repeat("a", 2048) }, "url"},
	} {
		n := good
		c.change(&n)
		_, err := w.hooks.For("a").CreateWebhook(t.Context(), n)
		var e *carrel.Error
		if k := carrel.KindOf(err); k != carrel.Invalid && k != carrel.Forbidden || !asError(err, &e) || e.Field != c.field {
			t.Errorf("%s: %v", name, err)
		}
	}
	for i := range maxPerProject {
		if _, err := w.hooks.For("a").CreateWebhook(t.Context(), good); err != nil {
			t.Fatal(i, err)
		}
	}
	if _, err := w.hooks.For("a").CreateWebhook(t.Context(), good); carrel.KindOf(err) != carrel.Exhausted {
		t.Error(err)
	}
	if k, err := w.hooks.For("b").CreateWebhook(t.Context(), good); err != nil || len(k.Secret) != 64 {
		t.Error(k, err)
	}
}

func asError(err error, to **carrel.Error) bool {
	e, ok := err.(*carrel.Error)
	*to = e
	return ok
}

// failure waits for the first failed attempt of one delivery and returns its reason.
func (w *world) failure(id string) string {
	w.t.Helper()
	w.happen(carrel.NewID(), "sandbox.created")
	var reason string
	testenv.Eventually(w.t, "an attempt fails", func() bool {
		for _, d := range w.deliveries(id, "") {
			reason = d.Error
		}
		return reason != ""
	})
	return reason
}

// drip writes now and then, until it can't any more.
func drip(ctx context.Context, quit <-chan struct{}, write func() error) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for write() == nil {
		select {
		case <-quit:
			return
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// TestHostileAnswers lets receivers answer what they should not. None holds the daemon, and the next
// attempts come.
func TestHostileAnswers(t *testing.T) {
	var inside atomic.Int32
	secret := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { inside.Add(1) }))
	quit := make(chan struct{})
	t.Cleanup(func() { close(quit); secret.Close() }) // after the subtests, which are parallel
	for name, c := range map[string]struct {
		serve http.HandlerFunc
		want  string // in the reason; "" is delivered
	}{
		"hangs": {func(_ http.ResponseWriter, r *http.Request) {
			select {
			case <-quit:
			case <-r.Context().Done():
			}
		}, "no answer within"},
		"redirects": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, secret.URL, http.StatusTemporaryRedirect)
		}, "redirects are not followed"},
		"drips its head": {func(w http.ResponseWriter, r *http.Request) {
			c, _, _ := http.NewResponseController(w).Hijack()
			defer c.Close()
			drip(r.Context(), quit, func() error { _, err := io.WriteString(c, "H"); return err })
		}, "no answer within|not HTTP"},
		"a head without end": {func(w http.ResponseWriter, _ *http.Request) {
			c, _, _ := http.NewResponseController(w).Hijack()
			defer c.Close()
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n")
			for i := range 10_000 {
				if _, err := fmt.Fprintf(c, "X-%d: %s\r\n", i, strings.Repeat("a", 1000)); err != nil {
					return
				}
			}
		}, "not HTTP, or too large"},
		"ten gigabytes": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "10737418240")
			chunk := bytes.Repeat([]byte("x"), 1<<16)
			for range 163_840 {
				if _, err := w.Write(chunk); err != nil {
					return
				}
			}
			t.Error("ten gigabytes were read")
		}, ""},
		"drips its body": {func(w http.ResponseWriter, r *http.Request) {
			drip(r.Context(), quit, func() error {
				_, err := io.WriteString(w, "x")
				_ = http.NewResponseController(w).Flush()
				return err
			})
		}, ""},
		"not HTTP": {func(w http.ResponseWriter, _ *http.Request) {
			c, _, _ := http.NewResponseController(w).Hijack()
			_, _ = io.WriteString(c, "220 mail.internal ESMTP secret-banner\r\n")
			c.Close()
		}, "not HTTP"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.ReadAll(r.Body) // or the server does not notice that the client leaves
				c.serve(w, r)
			}))
			defer func() { // without waiting for handlers: they end with quit
				srv.CloseClientConnections()
				_ = srv.Listener.Close()
			}()
			w := newWorld(t, func(o *Options) { o.Timeout = 300 * time.Millisecond })
			k := w.create(srv.URL)
			if c.want == "" {
				w.happen(carrel.NewID(), "sandbox.created")
				testenv.Eventually(t, "it is delivered", func() bool { return len(w.deliveries(k.ID, "delivered")) == 1 })
				return
			}
			reason, found := w.failure(k.ID), false
			for want := range strings.SplitSeq(c.want, "|") {
				found = found || strings.Contains(reason, want)
			}
			if !found || strings.Contains(reason, "banner") {
				t.Errorf("%q", reason)
			}
		})
	}
	t.Cleanup(func() {
		if inside.Load() != 0 {
			t.Error("a redirect was followed")
		}
	})
}

// TestRebinding lets a name change its address after it was judged, and mix good and bad ones.
func TestRebinding(t *testing.T) {
	var lookups, dials atomic.Int32
	var answer atomic.Pointer[[]netip.Addr]
	w := newWorld(t, func(o *Options) {
		o.Resolve = func(context.Context, string) ([]netip.Addr, error) {
			if lookups.Add(1)%2 == 1 && answer.Load() == nil {
				return []netip.Addr{netip.MustParseAddr("8.8.8.8")}, nil
			}
			if a := answer.Load(); a != nil {
				return *a, nil
			}
			return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
		}
		o.Dial = func(_ context.Context, _, address string) (net.Conn, error) {
			dials.Add(1)
			if address != "8.8.8.8:443" {
				t.Errorf("%s was dialled", address)
			}
			return nil, &net.OpError{Op: "dial", Err: io.EOF}
		}
	})
	k := w.create("https://rebind.example.com/")
	if reason := w.failure(k.ID); reason != "the connection failed" && !strings.Contains(reason, "of this machine") {
		t.Errorf("%q", reason)
	}
	testenv.Eventually(t, "many attempts", func() bool { return lookups.Load() >= 6 })
	if dials.Load() == 0 {
		t.Error("the public address was never dialled")
	}
	for _, bad := range []string{"127.0.0.1", "::1", "::ffff:127.0.0.1", "169.254.169.254", "192.168.1.1", "0.0.0.0", "fe80::1",
		"fd00::1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::", "100.64.0.1"} {
		answer.Store(&[]netip.Addr{netip.MustParseAddr("8.8.8.8"), netip.MustParseAddr(bad)})
		before := dials.Load()
		if c, err := w.hooks.sender.dialJudged(t.Context(), "tcp", "x.example.com:443"); err == nil {
			c.Close()
			t.Errorf("%s was dialled", bad)
		} else if _, ok := err.(*refusal); !ok || dials.Load() != before && !ok {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// TestRedaction lets secrets get into metadata and messages.
func TestRedaction(t *testing.T) {
	var log bytes.Buffer
	w := newWorld(t, func(o *Options) {
		o.Logger = slog.New(slog.NewTextHandler(&log, nil))
		o.Redact = func(_ context.Context, project string) func(string) string {
			return strings.NewReplacer("value-of-"+project, "[redacted]").Replace
		}
		o.Retry.For = time.Nanosecond
	})
	r := newReceiver(t, func(_ delivered, n int) int {
		if n > 0 {
			return 500
		}
		return 200
	})
	k := w.create(r.URL + "/path-secret")
	w.happen(carrel.NewID(), "sandbox.created", func(e *carrel.Event) {
		e.Message = "with value-of-a\r\nfake log line"
		e.Of.Metadata = map[string]string{"key": "value-of-a", "value-of-a": "x", "line": "a\r\nb"}
	})
	testenv.Eventually(t, "it arrives", func() bool { return len(r.got()) == 1 })
	r.mu.Lock()
	raw := string(r.raw[0])
	r.mu.Unlock()
	if strings.Contains(raw, "value-of-a") || strings.Contains(raw, "\n") || !strings.Contains(raw, "[redacted]") {
		t.Error(raw)
	}
	w.happen(carrel.NewID(), "sandbox.created", func(e *carrel.Event) { e.Message = "x\nfake=line" })
	testenv.Eventually(t, "one is given up", func() bool { return len(w.deliveries(k.ID, "dead")) == 1 })
	w.close()
	if text := log.String(); strings.Contains(text, "fake") || strings.Contains(text, "path-secret") || !strings.Contains(text, "given up") {
		t.Error(text)
	}
	w.open()
	listed, err := w.hooks.For("a").LifecycleEvents(t.Context(), carrel.LifecycleOptions{})
	out, _ := json.Marshal(listed)
	if err != nil || strings.Contains(string(out), "value-of-a") {
		t.Error(string(out), err)
	}
}

func TestList(t *testing.T) {
	w := newWorld(t, nil)
	a, b := carrel.NewID(), carrel.NewID()
	for i := range 30 {
		id := a
		if i%3 == 0 {
			id = b
		}
		w.happen(id, "sandbox.created")
		w.happen(id, "sandbox.paused")
		w.happen(id, "sandbox.created", func(e *carrel.Event) { e.Project = "other" })
		w.happen(id, "sandbox.paused", func(e *carrel.Event) { e.Time = e.Time.Add(-8 * 24 * time.Hour) })
	}
	list := func(o carrel.LifecycleOptions) []carrel.LifecycleEvent {
		t.Helper()
		got, err := w.hooks.For("a").LifecycleEvents(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got := list(carrel.LifecycleOptions{}); len(got) != 10 || got[0].Timestamp.Before(got[9].Timestamp) || got[0].Type != carrel.LifecyclePaused {
		t.Errorf("%+v", got)
	}
	if got := list(carrel.LifecycleOptions{Limit: 100}); len(got) != 60 {
		t.Errorf("%d", len(got))
	}
	seen := map[string]bool{}
	for offset := 0; offset < 60; offset += 7 {
		for _, e := range list(carrel.LifecycleOptions{Offset: offset, Limit: 7, OldestFirst: true}) {
			seen[e.ID] = true
		}
	}
	if len(seen) != 60 {
		t.Errorf("%d of 60 on the pages", len(seen))
	}
	if got := list(carrel.LifecycleOptions{Sandbox: b, Types: []string{carrel.LifecycleCreated}, Limit: 100}); len(got) != 10 || got[0].SandboxID != b {
		t.Errorf("%d", len(got))
	}
	if got := list(carrel.LifecycleOptions{Sandbox: carrel.NewID()}); len(got) != 0 || got == nil {
		t.Errorf("%v", got)
	}
	for field, o := range map[string]carrel.LifecycleOptions{"limit": {Limit: 101}, "offset": {Offset: -1}, "types": {Types: []string{"x"}}} {
		_, err := w.hooks.For("a").LifecycleEvents(t.Context(), o)
		var e *carrel.Error
		if !asError(err, &e) || e.Kind != carrel.Invalid || e.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}
