package fleet

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
	fleetwords "github.com/carrel-dev/carrel/internal/fleet"
	"github.com/carrel-dev/carrel/internal/state/postgres/postgrestest"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// hookSecret signs the deliveries of these tests.
const hookSecret = "of the fleet"

// told is a delivery as its receiver sees it.
type told struct {
	ID      string    `json:"id"`
	Type    string    `json:"type"`
	Sandbox carrel.ID `json:"sandboxId"`
}

// receiver is a program that webhooks tell of events. It refuses two deliveries.
type receiver struct {
	*httptest.Server
	mu    sync.Mutex
	asked int
	taken []told
	wrong []string
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		raw, err := io.ReadAll(req.Body)
		var got told
		if err == nil {
			err = json.Unmarshal(raw, &got)
		}
		sum := sha256.Sum256(append([]byte(hookSecret), raw...))
		r.mu.Lock()
		defer r.mu.Unlock()
		if err != nil || req.Header.Get("e2b-signature") != base64.RawStdEncoding.EncodeToString(sum[:]) {
			r.wrong = append(r.wrong, fmt.Sprintf("%q: %s %v", req.Header.Get("e2b-signature"), raw, err))
		}
		if r.asked++; r.asked == 3 || r.asked == 9 {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		r.taken = append(r.taken, got)
	}))
	t.Cleanup(r.Close)
	return r
}

// of is what the receiver was told of a sandbox, each event once.
func (r *receiver) of(id carrel.ID) (types []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := map[string]bool{}
	for _, d := range r.taken {
		if d.Sandbox == id && !seen[d.ID] {
			seen[d.ID] = true
			types = append(types, d.Type[strings.LastIndexByte(d.Type, '.')+1:])
		}
	}
	return types
}

// twice is how many deliveries were of events that had been taken before.
func (r *receiver) twice() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := map[string]bool{}
	for _, d := range r.taken {
		if seen[d.ID] {
			n++
		}
		seen[d.ID] = true
	}
	return n
}

// program starts a front as a process of its own, and returns it. It can be killed.
func (f *fleetOf) program() *exec.Cmd {
	f.t.Helper()
	var log bytes.Buffer
	listen := freePort(f.t)
	cmd := exec.Command(filepath.Join("..", "..", "bin", "carrel"), "front", "--listen", listen, "--nodes-listen", "127.0.0.1:0", "--node-lease", f.lease.String(),
		"--join-token-file", filepath.Join(f.dir, "token"), "--api-key-file", filepath.Join(f.dir, "key"), "--allow-webhook", "http://127.0.0.1")
	cmd.Env = append(os.Environ(), "CARREL_STATE="+f.state)
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if f.t.Failed() {
			f.t.Logf("the log of a front:\n%s", log.String())
		}
	})
	testenv.EventuallyNil(f.t, "the front answers", func() error {
		resp, err := http.Get("http://" + listen + "/health")
		if err == nil {
			err = resp.Body.Close()
		}
		return err
	})
	return cmd
}

// holder is who has the duty of webhooks.
func (f *fleetOf) holder() string {
	f.t.Helper()
	return strings.TrimSpace(f.server.Exec(f.t, f.database(), "SELECT convert_from(node, 'UTF8') FROM carrel.leases WHERE sandbox = '~webhooks'::bytea AND expires > clock_timestamp()"))
}

// TestWebhooks tells of what happens on all nodes, through one front at a time. The one that delivers is
// killed in the midst: nothing is lost, and the events of each sandbox come in order.
func TestWebhooks(t *testing.T) {
	f := &fleetOf{t: t, lease: fleetwords.ShortestLease, server: postgrestest.Start(t), dir: t.TempDir()}
	f.state = f.server.URL(f.server.Database(t))
	if err := os.WriteFile(filepath.Join(f.dir, "token"), []byte(joinToken+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	doomed := f.program()
	testenv.EventuallyNil(t, "the first front has the duty", func() error {
		if f.holder() == "" {
			return fmt.Errorf("nobody has it")
		}
		return nil
	})
	first := f.holder()
	f.addFront()
	f.Client = f.at(0)
	f.addNode()
	f.addNode()
	f.ready(2)
	ctx := t.Context()
	to := newReceiver(t)
	hook := f.hook(to.URL)

	// A drain moves this one, so its events come from two nodes.
	moved := f.create(carrel.CreateOptions{})
	from := f.home(moved.ID)
	if got, err := f.Nodes().DrainNode(ctx, fmt.Sprintf("node-%d", from)); err != nil || len(got.Failed) > 0 {
		t.Fatalf("%+v %v", got, err)
	}
	if err := f.Nodes().UndrainNode(ctx, fmt.Sprintf("node-%d", from)); err != nil {
		t.Fatal(err)
	}
	want := map[carrel.ID][]string{moved.ID: {"created", "paused", "resumed", "killed"}}
	for i := range 12 {
		sb := f.create(carrel.CreateOptions{})
		want[sb.ID] = []string{"created", "updated", "killed"}
		if _, err := f.SetTimeout(ctx, sb.ID, 2*time.Hour, false); err != nil {
			t.Fatal(err)
		}
		if i == 5 {
			if f.holder() != first {
				t.Error("another front delivers already")
			}
			if err := doomed.Process.Signal(syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
	}
	for id := range want {
		if err := f.Kill(ctx, id); err != nil {
			t.Fatal(err)
		}
	}
	testenv.EventuallyNil(t, "all events are delivered", func() error {
		for id, types := range want {
			if got := to.of(id); !slices.Equal(got, types) {
				return fmt.Errorf("%s: %v, want %v", id, got, types)
			}
		}
		return nil
	})
	if now := f.holder(); now == "" || now == first {
		t.Errorf("the duty is %q's", now)
	}
	if n := to.twice(); n > 8 { // what was under way when the front died
		t.Errorf("%d deliveries were repeated", n)
	}
	if len(to.wrong) > 0 {
		t.Errorf("not signed: %q", to.wrong)
	}
	f.replay(hook, moved.ID, to)
	f.changed(hook, to)
}

// hook makes a webhook of the default project, and tries some that must not be.
func (f *fleetOf) hook(url string) carrel.Webhook {
	t, ctx := f.t, f.t.Context()
	t.Helper()
	for what, n := range map[string]carrel.NewWebhook{
		"the metadata service": {Name: "x", URL: "http://169.254.169.254/", Events: carrel.LifecycleTypes()},
		"a private address":    {Name: "x", URL: "https://10.0.0.1/", Events: carrel.LifecycleTypes()},
		"no type":              {Name: "x", URL: url, Events: []string{"sandbox.nonsense"}},
	} {
		if _, err := f.Webhooks().CreateWebhook(ctx, n); carrel.KindOf(err) != carrel.Forbidden && carrel.KindOf(err) != carrel.Invalid {
			t.Errorf("%s: %v", what, err)
		}
	}
	h, err := f.Webhooks().CreateWebhook(ctx, carrel.NewWebhook{Name: "mine", URL: url, Events: carrel.LifecycleTypes(), Secret: hookSecret})
	if err != nil {
		t.Fatal(err)
	}
	if out := f.server.Exec(t, f.database(), "SELECT encode(sealed, 'escape') FROM carrel.webhooks"); strings.Contains(out, hookSecret) || out == "" {
		t.Errorf("the record has the secret: %q", out)
	}
	svc, err := client.New(f.fronts[0].URL(), keyOf(f), client.WithProject("other"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := svc.(*client.Client).Webhooks().GetWebhook(ctx, h.ID); carrel.KindOf(err) != carrel.NotFound {
		t.Errorf("another project's webhook: %v", err)
	}
	return h
}

func keyOf(f *fleetOf) string {
	key, _ := f.fronts[0].Key()
	return key
}

// replay lists the deliveries of a webhook, and has one event delivered again.
func (f *fleetOf) replay(h carrel.Webhook, id carrel.ID, to *receiver) {
	t, ctx := f.t, f.t.Context()
	t.Helper()
	list, err := f.Webhooks().Deliveries(ctx, h.ID, carrel.DeliveryOptions{State: carrel.DeliveryDone, Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	event := ""
	for _, d := range list {
		if d.SandboxID == id && d.Type == carrel.LifecycleResumed && d.Attempts > 0 {
			event = d.Event
		}
	}
	events, err := f.Webhooks().LifecycleEvents(ctx, carrel.LifecycleOptions{Sandbox: id, OldestFirst: true})
	if err != nil || len(events) != 4 || events[2].ID != event || events[2].Type != carrel.LifecycleResumed {
		t.Fatalf("%d events %+v %v, and %q was delivered", len(events), events, err, event)
	}
	before := to.twice()
	if got, err := f.Webhooks().Replay(ctx, h.ID, carrel.ReplayOptions{Events: []string{event}}); err != nil || got.Events != 1 {
		t.Fatal(got, err)
	}
	testenv.EventuallyNil(t, "the event comes again", func() error {
		if to.twice() == before {
			return fmt.Errorf("it does not")
		}
		return nil
	})
}

// changed disables a webhook, and removes it.
func (f *fleetOf) changed(h carrel.Webhook, to *receiver) {
	t, ctx := f.t, f.t.Context()
	t.Helper()
	no, yes := false, true
	if got, err := f.Webhooks().UpdateWebhook(ctx, h.ID, carrel.WebhookUpdate{Enabled: &no}); err != nil || got.Enabled {
		t.Fatal(got, err)
	}
	quiet := f.create(carrel.CreateOptions{}) // while it is disabled
	testenv.EventuallyNil(t, "the event is recorded", func() error {
		events, err := f.Webhooks().LifecycleEvents(ctx, carrel.LifecycleOptions{Sandbox: quiet.ID})
		if err == nil && len(events) != 1 {
			err = fmt.Errorf("%d events", len(events))
		}
		return err
	})
	if _, err := f.Webhooks().UpdateWebhook(ctx, h.ID, carrel.WebhookUpdate{Enabled: &yes}); err != nil {
		t.Fatal(err)
	}
	if err := f.Kill(context.WithoutCancel(ctx), quiet.ID); err != nil {
		t.Fatal(err)
	}
	testenv.EventuallyNil(t, "only what happened after it was enabled is told", func() error {
		if got := to.of(quiet.ID); !slices.Equal(got, []string{"killed"}) {
			return fmt.Errorf("%v", got)
		}
		return nil
	})
	if err := f.Webhooks().DeleteWebhook(ctx, h.ID); err != nil {
		t.Fatal(err)
	}
	if list, err := f.Webhooks().ListWebhooks(ctx); err != nil || len(list) != 0 {
		t.Errorf("%+v %v", list, err)
	}
}
