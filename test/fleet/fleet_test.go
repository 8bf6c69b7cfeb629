// Package fleet tests a fleet of real processes: fronts over a real PostgreSQL, and daemons that
// joined them as nodes and share a store of snapshots.
package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
	"github.com/carrel-dev/carrel/internal/config"
	fleetwords "github.com/carrel-dev/carrel/internal/fleet"
	"github.com/carrel-dev/carrel/internal/fleet/member"
	"github.com/carrel-dev/carrel/internal/front"
	"github.com/carrel-dev/carrel/internal/state/postgres/postgrestest"
	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/test/daemontest"
)

// fleetOf is a database, fronts, nodes and their store.
type fleetOf struct {
	t      *testing.T
	lease  time.Duration
	server *postgrestest.Server
	state  string
	dir    string
	fronts []*front.Front
	nodes  []*daemontest.Daemon
	*client.Client
}

const joinToken = "0123456789abcdef0123456789abcdef"

// start starts a fleet of n nodes behind one front.
func start(t *testing.T, n int, extra ...string) *fleetOf {
	t.Helper()
	return startFor(t, fleetwords.ShortestLease, n, extra...)
}

// startFor is start for nodes with another lease.
func startFor(t *testing.T, lease time.Duration, n int, extra ...string) *fleetOf {
	t.Helper()
	f := &fleetOf{t: t, lease: lease, server: postgrestest.Start(t), dir: t.TempDir()}
	f.state = f.server.URL(f.server.Database(t))
	if err := os.WriteFile(filepath.Join(f.dir, "token"), []byte(joinToken+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f.addFront()
	f.Client = f.at(0)
	for range n {
		f.addNode(extra...)
	}
	f.ready(n)
	return f
}

// addFront starts a front in this process.
func (f *fleetOf) addFront() (stop func()) {
	f.t.Helper()
	log := slog.New(slog.NewTextHandler(testLog{f.t}, nil))
	fr, err := front.New(f.t.Context(), front.Config{Listen: "127.0.0.1:0", NodesListen: "127.0.0.1:0", SSHListen: "127.0.0.1:0", State: f.state,
		TokenFile: filepath.Join(f.dir, "token"), KeyFile: filepath.Join(f.dir, "key"),
		Lease: f.lease, Trail: config.Default().Trail, TrailDir: filepath.Join(f.dir, fmt.Sprint("trail-", len(f.fronts))), AllowWebhooks: []string{"http://127.0.0.1"}}, log)
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- fr.Serve(ctx) }()
	f.fronts = append(f.fronts, fr)
	ended := false
	stop = func() {
		if ended {
			return
		}
		ended = true
		cancel()
		if err := errors.Join(<-done, fr.Close()); err != nil {
			f.t.Error(err)
		}
	}
	f.t.Cleanup(stop)
	return stop
}

// testLog writes to a test's log, as long as the test runs.
type testLog struct{ t *testing.T }

func (l testLog) Write(p []byte) (int, error) {
	if l.t.Context().Err() == nil {
		l.t.Log(strings.TrimSpace(string(p)))
	}
	return len(p), nil
}

// at is a client of a front.
func (f *fleetOf) at(i int) *client.Client {
	f.t.Helper()
	key, _ := f.fronts[i].Key()
	svc, err := client.New(f.fronts[i].URL(), key)
	if err != nil {
		f.t.Fatal(err)
	}
	return svc.(*client.Client)
}

// freePort is an address that nobody has just now.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// addNode starts a daemon that joins the fronts.
func (f *fleetOf) addNode(extra ...string) *daemontest.Daemon {
	f.t.Helper()
	args := []string{"--node-name", fmt.Sprintf("node-%d", len(f.nodes)), "--join-token-file", filepath.Join(f.dir, "token"),
		"--fleet-listen", freePort(f.t), "--snapshot-store", filepath.Join(f.dir, "store")}
	for _, fr := range f.fronts {
		args = append(args, "--join", fr.NodesURL())
	}
	d := daemontest.StartSim(f.t, append(args, extra...)...)
	f.nodes = append(f.nodes, d)
	return d
}

// ready waits until n nodes can be used.
func (f *fleetOf) ready(n int) {
	f.t.Helper()
	testenv.EventuallyNil(f.t, "the nodes are ready", func() error {
		list, err := f.Nodes().Nodes(f.t.Context())
		good := 0
		for _, node := range list {
			if node.State == carrel.NodeReady && len(node.Tiers) > 0 {
				good++
			}
		}
		if err == nil && good != n {
			err = fmt.Errorf("%d of %d: %+v", good, n, list)
		}
		return err
	})
}

// stateOf is what the fleet says of a node.
func (f *fleetOf) stateOf(name string) carrel.Node {
	f.t.Helper()
	list, err := f.Nodes().Nodes(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	for _, n := range list {
		if n.Name == name {
			return n
		}
	}
	f.t.Fatalf("no node %s", name)
	return carrel.Node{}
}

// create makes a simulated sandbox.
func (f *fleetOf) create(o carrel.CreateOptions) carrel.Sandbox {
	f.t.Helper()
	o.Tier, o.Timeout = carrel.Sim, time.Hour
	sb, err := f.Create(f.t.Context(), o)
	if err != nil {
		f.t.Fatal(err)
	}
	return sb
}

// sh runs a command in a sandbox, through a front's gateway.
func (f *fleetOf) sh(c *client.Client, id carrel.ID, command string) string {
	f.t.Helper()
	out, err := try(f.t.Context(), c, id, command)
	if err != nil {
		f.t.Fatalf("%s: %v", command, err)
	}
	return out
}

// tryTime bounds one command.
const tryTime = 20 * time.Second

func try(ctx context.Context, c *client.Client, id carrel.ID, command string) (string, error) {
	return daemontest.Sh(ctx, c, id, command, tryTime)
}

// home is the node that has a sandbox, and its number.
func (f *fleetOf) home(id carrel.ID) int {
	f.t.Helper()
	for i, d := range f.nodes {
		svc, err := client.New(d.URL, d.Key)
		if err != nil {
			f.t.Fatal(err)
		}
		if _, err := svc.Get(f.t.Context(), id); err == nil {
			return i
		}
	}
	f.t.Fatalf("no node has sandbox %s", id)
	return -1
}

// TestFleet is the life of a fleet: sandboxes on all nodes, through two fronts, a drain that loses no
// byte, and a front that dies.
func TestFleet(t *testing.T) {
	f := start(t, 3)
	ctx := t.Context()
	stopSecond := f.addFront()
	second := f.at(1)
	var boxes []carrel.Sandbox
	for i := range 9 {
		sb := f.create(carrel.CreateOptions{Metadata: map[string]string{"n": fmt.Sprint(i)}})
		f.sh(f.Client, sb.ID, fmt.Sprintf("echo %d > /tmp/mine", i))
		boxes = append(boxes, sb)
	}
	for i, sb := range boxes {
		if got := f.sh(second, sb.ID, "cat /tmp/mine"); got != fmt.Sprint(i) {
			t.Errorf("the other front: sandbox %d has %q", i, got)
		}
	}
	page, err := second.List(ctx, carrel.ListOptions{})
	if err != nil || len(page.Sandboxes) != len(boxes) || len(page.Missing) > 0 {
		t.Fatalf("%d sandboxes, %v missing, %v", len(page.Sandboxes), page.Missing, err)
	}
	used := map[int]int{}
	for _, sb := range boxes {
		used[f.home(sb.ID)]++
	}
	if len(used) != 3 {
		t.Errorf("sandboxes by node: %v, want all three", used)
	}

	drained := f.home(boxes[0].ID)
	got, err := f.Nodes().DrainNode(ctx, fmt.Sprintf("node-%d", drained))
	if err != nil || len(got.Failed) > 0 || len(got.Moved) != used[drained] {
		t.Fatalf("%+v %v, want %d moved", got, err, used[drained])
	}
	for i, sb := range boxes {
		if at := f.home(sb.ID); at == drained {
			t.Errorf("sandbox %d is on the drained node still", i)
		}
		for _, c := range []*client.Client{f.Client, second} {
			if got := f.sh(c, sb.ID, "cat /tmp/mine"); got != fmt.Sprint(i) {
				t.Errorf("after the drain, sandbox %d has %q", i, got)
			}
		}
	}
	if n := f.stateOf(fmt.Sprintf("node-%d", drained)); n.State != carrel.NodeDraining || n.Running != 0 {
		t.Errorf("%+v", n)
	}
	sb := f.create(carrel.CreateOptions{})
	if f.home(sb.ID) == drained {
		t.Error("a drained node got a new sandbox")
	}

	stopSecond()
	for i, sb := range boxes {
		if got := f.sh(f.Client, sb.ID, "cat /tmp/mine"); got != fmt.Sprint(i) {
			t.Errorf("after a front ended, sandbox %d has %q", i, got)
		}
	}
	for _, sb := range boxes {
		if err := f.Kill(ctx, sb.ID); err != nil {
			t.Error(err)
		}
		if _, err := f.Get(ctx, sb.ID); carrel.KindOf(err) != carrel.NotFound {
			t.Errorf("a killed sandbox: %v", err)
		}
	}
}

// TestDeath kills a node. What was paused there goes on elsewhere, what ran is reported lost, and the
// node that comes back does not run what is another's.
func TestDeath(t *testing.T) {
	f := start(t, 2)
	ctx := t.Context()
	var paused, running carrel.Sandbox
	for running.ID == "" || paused.ID == "" { // both on node 0
		sb := f.create(carrel.CreateOptions{})
		switch {
		case f.home(sb.ID) != 0:
		case paused.ID == "":
			paused = sb
		default:
			running = sb
		}
	}
	f.sh(f.Client, paused.ID, "echo kept > /tmp/kept")
	if _, err := f.Pause(ctx, paused.ID, carrel.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	f.published(paused.ID)
	dead := f.nodes[0]
	died := time.Now()
	dead.Kill9()
	testenv.EventuallyNil(t, "the node's death is noticed", func() error {
		if n := f.stateOf("node-0"); n.State == carrel.NodeReady {
			return fmt.Errorf("%+v", n)
		}
		return nil
	})
	t.Logf("noticed after %v", time.Since(died).Round(10*time.Millisecond))
	f.brokenStore(paused.ID)
	testenv.EventuallyNil(t, "its paused sandbox resumes elsewhere", func() error {
		_, _, err := f.Resume(ctx, paused.ID, carrel.ResumeOptions{})
		return err
	})
	if got := f.sh(f.Client, paused.ID, "cat /tmp/kept"); got != "kept" {
		t.Errorf("it has %q", got)
	}
	testenv.EventuallyNil(t, "what ran there is reported lost", func() error {
		if n := f.stateOf("node-0"); n.State != carrel.NodeLost || n.Lost != 1 {
			return fmt.Errorf("%+v, want one lost", n)
		}
		return nil
	})
	f.isLost(running.ID, "node-0")
	if err := f.Kill(ctx, running.ID); err != nil {
		t.Errorf("end a lost sandbox: %v", err)
	}
	if _, err := f.Get(ctx, running.ID); carrel.KindOf(err) != carrel.NotFound {
		t.Errorf("a sandbox that was ended, and whose node is away: %v, want NotFound", err)
	}

	dead.Restart()
	f.ready(2)
	testenv.EventuallyNil(t, "the node that came back gives the sandbox up", func() error {
		if at := f.home(paused.ID); at != 1 {
			return fmt.Errorf("node %d has it", at)
		}
		return nil
	})
	testenv.EventuallyNil(t, "the ended sandbox is gone there", func() error {
		svc, err := client.New(dead.URL, dead.Key)
		if err != nil {
			return err
		}
		if _, err := svc.Get(ctx, running.ID); carrel.KindOf(err) != carrel.NotFound {
			return fmt.Errorf("%v", err)
		}
		return nil
	})
	if got := f.sh(f.Client, paused.ID, "cat /tmp/kept"); got != "kept" {
		t.Errorf("it has %q", got)
	}
}

// published waits until a paused sandbox can be taken over.
func (f *fleetOf) published(id carrel.ID) {
	f.t.Helper()
	testenv.EventuallyNil(f.t, "the paused sandbox is published", func() error {
		out := f.server.Exec(f.t, f.database(), "SELECT count(*) FROM carrel.homes WHERE state = 'paused' AND passport IS NOT NULL AND sandbox = '"+string(id)+"'::bytea")
		if strings.TrimSpace(out) != "1" {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
}

// database is the name of the fleet's database.
func (f *fleetOf) database() string {
	_, name, _ := strings.Cut(f.state[strings.Index(f.state, "://")+3:], "/")
	name, _, _ = strings.Cut(name, "?")
	return name
}

// TestSplit stops a node's daemon while a sandbox is paused on it. Another node takes it over. The
// daemon that goes on must neither run it nor say that it has it.
func TestSplit(t *testing.T) {
	f := start(t, 2)
	ctx := t.Context()
	var sb carrel.Sandbox
	for sb.ID == "" {
		if got := f.create(carrel.CreateOptions{}); f.home(got.ID) == 0 {
			sb = got
		}
	}
	f.sh(f.Client, sb.ID, "echo one > /tmp/life")
	if _, err := f.Pause(ctx, sb.ID, carrel.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	f.published(sb.ID)
	stopped := f.nodes[0]
	if err := syscall.Kill(stopped.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	testenv.EventuallyNil(t, "another node takes it over", func() error {
		_, _, err := f.Resume(ctx, sb.ID, carrel.ResumeOptions{})
		return err
	})
	f.sh(f.Client, sb.ID, "echo two > /tmp/life")
	if err := syscall.Kill(stopped.PID(), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	direct, err := client.New(stopped.URL, stopped.Key)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := direct.Resume(ctx, sb.ID, carrel.ResumeOptions{}); err == nil {
		t.Error("the old node runs it, too")
	}
	f.ready(2)
	testenv.EventuallyNil(t, "the old node gives it up", func() error {
		if _, err := direct.Get(ctx, sb.ID); carrel.KindOf(err) != carrel.NotFound {
			return fmt.Errorf("%v", err)
		}
		return nil
	})
	if got := f.sh(f.Client, sb.ID, "cat /tmp/life"); got != "two" {
		t.Errorf("it has %q", got)
	}
}

// isLost waits until the fleet's records say that a sandbox is lost, and asks for it in all ways: each
// answer says that it was lost with its node.
func (f *fleetOf) isLost(id carrel.ID, node string) {
	f.t.Helper()
	ctx := f.t.Context()
	testenv.EventuallyNil(f.t, "the sandbox is recorded as lost", func() error {
		if out := f.server.Exec(f.t, f.database(), "SELECT state FROM carrel.homes WHERE sandbox = '"+string(id)+"'::bytea"); strings.TrimSpace(out) != "lost" {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
	for what, ask := range map[string]func() error{
		"get":     func() error { _, err := f.Get(ctx, id); return err },
		"command": func() error { _, err := try(ctx, f.Client, id, "true"); return err },
		"resume":  func() error { _, _, err := f.Resume(ctx, id, carrel.ResumeOptions{}); return err },
	} {
		if err := ask(); carrel.KindOf(err) != carrel.NotFound || carrel.HintOf(err) == "" || !strings.Contains(err.Error(), "lost with its node "+node) {
			f.t.Errorf("%s: a lost sandbox: %v, want NotFound that names %s, and a hint", what, err, node)
		}
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, f.fronts[0].URL()+"/files?path=/x", nil)
	if err != nil {
		f.t.Fatal(err)
	}
	r.Header.Set("E2b-Sandbox-Id", string(id))
	r.Header.Set("E2b-Sandbox-Port", "49983")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		f.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusBadGateway || !strings.Contains(string(text), "lost with its node") {
		f.t.Errorf("a port of a lost sandbox: %d %s %v", resp.StatusCode, text, err)
	}
}

// TestIntruders come to the front's door for nodes without the join token, and with a name that is
// another's. A name that a dead node had is given away, without the node's sandboxes.
func TestIntruders(t *testing.T) {
	f := start(t, 1)
	join := func(name, token string) error {
		m, err := member.New(member.Options{Fronts: []string{f.fronts[0].NodesURL()}, Name: name, Token: token, Dir: t.TempDir(),
			URL: "https://127.0.0.1:1", Key: "k"})
		if err != nil {
			return err
		}
		return m.Join(t.Context())
	}
	if err := join("node-9", strings.Repeat("x", 32)); carrel.KindOf(err) != carrel.Forbidden {
		t.Errorf("a wrong token: %v", err)
	}
	if err := join("node-0", joinToken); carrel.KindOf(err) != carrel.Conflict {
		t.Errorf("another machine's name: %v", err)
	}
	if err := join("../front", joinToken); carrel.KindOf(err) != carrel.Invalid {
		t.Errorf("a bad name: %v", err)
	}
	if err := join("node-9", joinToken); err != nil {
		t.Errorf("a good one: %v", err)
	}
	// The node's door serves fronts only, and its own door needs its key.
	addr := f.stateOf("node-0").URL
	svc, err := client.New(addr, f.nodes[0].Key)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := svc.List(t.Context(), carrel.ListOptions{}); carrel.KindOf(err) != carrel.Unavailable {
		t.Errorf("the node's door for fronts, without a certificate: %v", err)
	}

	sb := f.create(carrel.CreateOptions{})
	f.nodes[0].Kill9()
	if err := join("node-0", joinToken); carrel.KindOf(err) != carrel.Conflict {
		t.Errorf("the name of a node whose lease has not expired: %v", err)
	}
	testenv.EventuallyNil(t, "the dead node's name is free", func() error { return join("node-0", joinToken) })
	f.isLost(sb.ID, "node-0")
	if n := f.stateOf("node-0"); n.Running+n.Paused+n.Lost != 0 {
		t.Errorf("the machine that has the name now has sandboxes: %+v", n)
	}
	f.nodes[0].Restart() // the old machine; nobody lives in the name, so it gets it back
	f.ready(1)
	f.isLost(sb.ID, "node-0")
}

// TestKeys makes a project's key at one front. It works at the other, and so does its end.
func TestKeys(t *testing.T) {
	f := start(t, 1)
	f.addFront()
	ctx := t.Context()
	if _, err := f.People().CreateProject(ctx, "p"); err != nil {
		t.Fatal(err)
	}
	svc, err := client.New(f.fronts[0].URL(), f.Key(), client.WithProject("p"))
	if err != nil {
		t.Fatal(err)
	}
	k, err := svc.(*client.Client).People().CreateKey(ctx, carrel.NewKey{Name: "k", Scope: carrel.ScopeRun})
	if err != nil {
		t.Fatal(err)
	}
	other, err := client.New(f.fronts[1].URL(), k.Secret)
	if err != nil {
		t.Fatal(err)
	}
	var sb carrel.Sandbox
	testenv.EventuallyNil(t, "the key works at the other front", func() (err error) {
		sb, err = other.Create(ctx, carrel.CreateOptions{Tier: carrel.Sim, Timeout: time.Hour})
		return err
	})
	if sb.Project != "p" {
		t.Errorf("it belongs to %q", sb.Project)
	}
	foreign := f.create(carrel.CreateOptions{})
	if _, err := other.Get(ctx, foreign.ID); carrel.KindOf(err) != carrel.NotFound {
		t.Errorf("another project's sandbox: %v", err)
	}
	if err := svc.(*client.Client).People().RevokeKey(ctx, "k"); err != nil {
		t.Fatal(err)
	}
	testenv.EventuallyNil(t, "the key ends at the other front", func() error {
		if _, err := other.Get(ctx, sb.ID); carrel.KindOf(err) != carrel.Unauthenticated {
			return fmt.Errorf("%v", err)
		}
		return nil
	})
	f.ceilings("p", svc.(*client.Client))
	f.sshKeys(svc.(*client.Client), sb.ID, foreign.ID)
	f.people("p", sb.ID, foreign.ID)
	f.trails(sb.ID)
	if _, err := svc.CreateSecret(ctx, carrel.NewSecret{Name: "s", Value: "v"}); err != nil {
		t.Fatal(err)
	}
	node, err := client.New(f.nodes[0].URL, f.nodes[0].Key, client.WithProject("p"))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := node.GetSecret(ctx, "s"); err != nil || got.Name != "s" {
		t.Errorf("the node's secret: %+v %v", got, err)
	}
	if out := f.server.Exec(t, f.database(), "SELECT encode(sealed, 'escape') FROM carrel.secrets"); strings.Contains(out, `"v"`) || out == "" {
		t.Errorf("the kept secret is %q", out)
	}
}

// TestPodEnds pauses all sandboxes of a node as "carrel drain" does, and ends its daemon at once. The
// machine never comes back, and all of them resume on another one.
func TestPodEnds(t *testing.T) {
	t.Parallel()
	f := start(t, 2)
	ctx := t.Context()
	var ids []carrel.ID
	for len(ids) < 6 {
		if sb := f.create(carrel.CreateOptions{}); f.home(sb.ID) == 0 {
			f.sh(f.Client, sb.ID, "head -c 3000000 /dev/urandom > /tmp/mine; sha256sum < /tmp/mine > /tmp/sum")
			ids = append(ids, sb.ID)
		}
	}
	if out, err := f.nodes[0].CLI("drain").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	f.nodes[0].Terminate()
	for _, id := range ids {
		testenv.EventuallyNil(t, "it resumes elsewhere", func() error {
			_, _, err := f.Resume(ctx, id, carrel.ResumeOptions{})
			return err
		})
		if at := f.home(id); at != 1 {
			t.Errorf("it is on node %d", at)
		}
		if f.sh(f.Client, id, "sha256sum < /tmp/mine") != f.sh(f.Client, id, "cat /tmp/sum") {
			t.Error("its file is another")
		}
	}
}
