package crash

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/test/daemontest"
)

// holdingReceiver is a webhook's receiver. While it holds, it takes requests and answers none.
type holdingReceiver struct {
	*httptest.Server
	mu   sync.Mutex
	gate chan struct{} // answers wait for it
	got  []carrel.LifecycleEvent
}

func newHoldingReceiver(t *testing.T) *holdingReceiver {
	r := &holdingReceiver{gate: make(chan struct{})}
	close(r.gate)
	r.Server = httptest.NewServer(http.HandlerFunc(r.take))
	t.Cleanup(func() { r.answer(); r.Close() })
	return r
}

func (r *holdingReceiver) take(_ http.ResponseWriter, req *http.Request) {
	raw, _ := io.ReadAll(req.Body)
	var e carrel.LifecycleEvent
	_ = json.Unmarshal(raw, &e)
	r.mu.Lock()
	r.got = append(r.got, e)
	gate := r.gate
	r.mu.Unlock()
	select {
	case <-gate:
	case <-req.Context().Done():
	}
}

func (r *holdingReceiver) hold() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gate = make(chan struct{})
}

func (r *holdingReceiver) answer() {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.gate:
	default:
		close(r.gate)
	}
}

// of returns the types of the events of one sandbox, each in the place of its first delivery.
func (r *holdingReceiver) of(id carrel.ID) (types []string, repeats int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := map[string]bool{}
	for _, e := range r.got {
		switch {
		case e.SandboxID != id:
		case seen[e.ID]:
			repeats++
		default:
			seen[e.ID] = true
			types = append(types, e.Type)
		}
	}
	return types, repeats
}

// eventReader reads the daemon's stream as a browser does: server-sent events, and Last-Event-ID
// with the last one it saw when it comes back.
type eventReader struct {
	mu   sync.Mutex
	last string
	seqs []int64
	ids  []carrel.ID
}

// read reads until the daemon is gone.
func (r *eventReader) read(ctx context.Context, t *testing.T, d *daemontest.Daemon) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.URL+"/carrel/v1/events", nil)
	if err != nil {
		t.Error(err)
		return
	}
	req.Header.Set("X-API-Key", d.Key)
	req.Header.Set("Accept", "text/event-stream")
	r.mu.Lock()
	req.Header.Set("Last-Event-ID", r.last)
	r.mu.Unlock()
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return // the daemon was killed before it answered
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		t.Errorf("the stream: %s", res.Status)
		return
	}
	id := ""
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		line := lines.Text()
		if v, ok := strings.CutPrefix(line, "id: "); ok {
			id = v
		}
		data, ok := strings.CutPrefix(line, "data: ")
		var e struct{ Event *carrel.Event }
		if !ok || json.Unmarshal([]byte(data), &e) != nil || e.Event == nil {
			continue
		}
		if id != strconv.FormatInt(e.Event.Seq, 10) {
			t.Errorf("the event %d has the ID %q", e.Event.Seq, id)
		}
		r.mu.Lock()
		r.last, r.seqs, r.ids = id, append(r.seqs, e.Event.Seq), append(r.ids, e.Event.ID)
		r.mu.Unlock()
	}
}

func (r *eventReader) saw(id carrel.ID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Contains(r.ids, id)
}

// TestEventsAfterKills kills the daemon again and again, each time with deliveries that wait for
// their receiver's answer. Each event of each sandbox is delivered at least once and in order. A
// reader of the stream that comes back with Last-Event-ID sees each event exactly once.
func TestEventsAfterKills(t *testing.T) {
	t.Parallel()
	hook := newHoldingReceiver(t)
	d := daemontest.Start(t, "--allow-webhook", hook.URL)
	ctx := t.Context()
	reader, reading := &eventReader{}, sync.WaitGroup{}
	var svc carrel.Service
	begin := func() {
		svc = connect(t, d)
		reading.Go(func() { reader.read(ctx, t, d) })
	}
	begin()
	_, err := svc.(*client.Client).Webhooks().CreateWebhook(ctx, carrel.NewWebhook{Name: "hook",
		URL: hook.URL, Events: carrel.LifecycleTypes()})
	if err != nil {
		t.Fatal(err)
	}
	var all []carrel.ID
	for range 4 {
		for i := range 3 {
			if i == 1 {
				hook.hold()
			}
			sb, err := svc.Create(ctx, carrel.CreateOptions{Tier: carrel.Sim, Timeout: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, sb.ID)
			if err := svc.Kill(ctx, sb.ID); err != nil {
				t.Fatal(err)
			}
		}
		testenv.Eventually(t, "deliveries wait for an answer", func() bool {
			types, _ := hook.of(all[len(all)-1])
			return len(types) > 0 && reader.saw(all[len(all)-1])
		})
		d.Kill9()
		_ = svc.Close()
		reading.Wait()
		hook.answer()
		d.Restart()
		begin()
	}
	want := []string{"sandbox.lifecycle.created", "sandbox.lifecycle.killed"}
	repeated := 0
	for _, id := range all {
		testenv.Eventually(t, "all arrives", func() bool { types, _ := hook.of(id); return len(types) >= 2 })
		types, repeats := hook.of(id)
		if !slices.Equal(types, want) {
			t.Errorf("%s: %v", id, types)
		}
		repeated += repeats
	}
	if repeated == 0 {
		t.Error("no delivery was repeated: no kill met one")
	}
	checkStream(t, svc, reader)
	d.Kill9()
	reading.Wait()
	d.Restart()
}

// checkStream compares what a reader saw with all events that there are.
func checkStream(t *testing.T, svc carrel.Service, reader *eventReader) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	reader.mu.Lock()
	last := reader.seqs[len(reader.seqs)-1]
	seen := slices.Clone(reader.seqs)
	reader.mu.Unlock()
	there := seen[:1:1] // the stream goes on after it
	for e, err := range svc.Events(ctx, seen[0]) {
		if err != nil {
			t.Fatal(err)
		}
		if there = append(there, e.Seq); e.Seq >= last {
			break
		}
	}
	if !slices.Equal(seen, there) {
		t.Errorf("the stream's reader saw %v of %v", seen, there)
	}
}
