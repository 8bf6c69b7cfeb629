// Package engine tests package internal/engine with real daemons.
package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
	"github.com/carrel-dev/carrel/internal/engine"
	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/test/daemontest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fleet is real daemons and an engine over them.
type fleet struct {
	*engine.Engine
	list    engine.List
	daemons []*daemontest.Daemon
}

func dial(n engine.Node, project string) (engine.Remote, error) {
	var opts []client.Option
	if project != "" {
		opts = append(opts, client.WithProject(project))
	}
	svc, err := client.New(n.URL, n.Key, opts...)
	if err != nil {
		return nil, err
	}
	return patient{svc.(*client.Client)}, nil
}

// patient asks each daemon only once which tiers work. To answer, a daemon starts processes, and
// these tests make many engines.
type patient struct{ *client.Client }

var tiersOf sync.Map // by URL and key

// Tiers implements engine.Remote.
func (p patient) Tiers(ctx context.Context) ([]carrel.Tier, error) {
	of := p.URL() + " " + p.Key()
	if known, ok := tiersOf.Load(of); ok {
		return known.([]carrel.Tier), nil
	}
	tiers, err := p.Client.Tiers(ctx)
	if err == nil {
		tiersOf.Store(of, tiers)
	}
	return tiers, err
}

// name is the name of the i-th node.
func name(i int) string { return fmt.Sprintf("node-%d", i) }

// startDaemons starts daemons.
func startDaemons(t *testing.T, n int) []*daemontest.Daemon {
	t.Helper()
	out := make([]*daemontest.Daemon, n)
	for i := range out {
		out[i] = daemontest.StartSim(t)
	}
	return out
}

// node is a daemon as a node.
func node(i int, d *daemontest.Daemon) engine.Node {
	return engine.Node{Name: name(i), URL: d.URL, Key: d.Key}
}

// over makes an engine over daemons, and more nodes, and waits until it knows the daemons.
func over(t *testing.T, daemons []*daemontest.Daemon, more ...engine.Node) *fleet {
	t.Helper()
	return overWith(t, nil, daemons, more...)
}

// overWith is over with a store of owners.
func overWith(t *testing.T, owners engine.Owners, daemons []*daemontest.Daemon, more ...engine.Node) *fleet {
	t.Helper()
	f := &fleet{daemons: daemons}
	if err := f.list.Set(append(f.nodes(), more...)...); err != nil {
		t.Fatal(err)
	}
	var err error
	f.Engine, err = engine.New(engine.Options{Nodes: &f.list, Dial: dial, Owners: owners, PollEvery: 100 * time.Millisecond,
		StudyEvery: time.Second, AskWithin: 3 * time.Second, DeadAfter: 2 * time.Second, Forget: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Engine.Close() })
	for i := range daemons {
		f.ready(t, i)
	}
	return f
}

// nodes are the daemons as nodes.
func (f *fleet) nodes() []engine.Node {
	var out []engine.Node
	for i, d := range f.daemons {
		out = append(out, node(i, d))
	}
	return out
}

// status is what the engine knows of a node.
func (f *fleet) status(node string) engine.Status {
	for _, s := range f.Status() {
		if s.Node == node {
			return s
		}
	}
	return engine.Status{}
}

// ready waits until a node can get sandboxes.
func (f *fleet) ready(t *testing.T, i int) {
	t.Helper()
	testenv.EventuallyNil(t, name(i)+" is ready", func() error {
		if s := f.status(name(i)); !s.Ready {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
}

// direct is a client of one daemon.
func direct(t *testing.T, d *daemontest.Daemon) carrel.Service {
	t.Helper()
	svc, err := client.New(d.URL, d.Key)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { svc.Close() })
	return svc
}

// all lists all sandboxes of a service, page by page.
func all(t *testing.T, svc carrel.Service, o carrel.ListOptions) []carrel.Sandbox {
	t.Helper()
	var out []carrel.Sandbox
	for {
		page, err := svc.List(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, page.Sandboxes...)
		if o.Cursor = page.Next; o.Cursor == "" {
			return out
		}
	}
}

// killAll ends all sandboxes.
func killAll(t *testing.T, svc carrel.Service) {
	t.Helper()
	var wg sync.WaitGroup
	for _, sb := range all(t, svc, carrel.ListOptions{}) {
		wg.Go(func() {
			if err := svc.Kill(context.WithoutCancel(t.Context()), sb.ID); err != nil && !errors.Is(err, carrel.NotFound) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// made is the result of one creation.
type made struct {
	id  carrel.ID
	err error
}

// create makes sandboxes, some at a time, and calls during after some of them.
func create(ctx context.Context, svc carrel.Service, n int, during func(done int)) []made {
	out := make([]made, n)
	var wg sync.WaitGroup
	turn := make(chan struct{}, 16)
	for i := range out {
		turn <- struct{}{}
		if during != nil {
			during(i)
		}
		wg.Go(func() {
			defer func() { <-turn }()
			sb, err := svc.Create(ctx, carrel.CreateOptions{Timeout: time.Hour, Metadata: map[string]string{"n": fmt.Sprint(i)}})
			out[i] = made{sb.ID, err}
		})
	}
	wg.Wait()
	return out
}

// onEach makes sandboxes until each node has one, and returns all that it made. Few sandboxes need
// not spread: all daemons report this one machine, each at another moment.
func onEach(t *testing.T, f *fleet) []carrel.ID {
	t.Helper()
	var ids []carrel.ID
	testenv.Eventually(t, "each node has a sandbox", func() bool {
		for _, m := range create(t.Context(), f, 6, nil) {
			if m.err != nil {
				t.Fatal(m.err)
			}
			ids = append(ids, m.id)
		}
		for _, d := range f.daemons {
			if len(all(t, direct(t, d), carrel.ListOptions{})) == 0 {
				return false
			}
		}
		return true
	})
	return ids
}

// TestFleet has one fleet for everything that leaves it whole.
func TestFleet(t *testing.T) {
	daemons := startDaemons(t, 3)
	f := over(t, daemons)
	t.Run("contract", func(t *testing.T) { contract(t, f) })
	t.Run("answers", func(t *testing.T) { sameAnswers(t, f) })
	t.Run("one node", func(t *testing.T) { onOneNode(t, f) })
	t.Run("spread", func(t *testing.T) { evenly(t, f) })
	t.Run("pages", func(t *testing.T) { pages(t, f) })
	t.Run("keys", func(t *testing.T) { sameKey(t, f) })
	t.Run("projects", func(t *testing.T) { apart(t, f) })
	t.Run("drain", func(t *testing.T) { drain(t, f) })
	t.Run("restart", func(t *testing.T) { rebuilt(t, f) })
	t.Run("lies", func(t *testing.T) { lies(t, f) })
	t.Run("follow", func(t *testing.T) { follow(t, f) })
	t.Run("hang", func(t *testing.T) { hang(t, f) })
	t.Run("kill", func(t *testing.T) { killed(t, f) })
}

// evenly makes 300 sandboxes, and no node is left out or gets most of them. All daemons report the
// same machine, but each at another moment. So a node that measured in a calm moment looks emptier
// than the others until they measure again, which is worth some 30 sandboxes on a busy machine.
func evenly(t *testing.T, f *fleet) {
	for _, m := range create(t.Context(), f, 300, nil) {
		if m.err != nil {
			t.Fatal(m.err)
		}
	}
	for i, d := range f.daemons {
		if s := f.status(name(i)); s.Load.Memory <= 0 || s.Load.Memory >= s.Load.MemoryTotal || len(s.Tiers) == 0 {
			t.Errorf("%s tells %+v", name(i), s)
		}
		if n := len(all(t, direct(t, d), carrel.ListOptions{})); n < 50 || n > 180 {
			t.Errorf("%s has %d of 300", name(i), n)
		}
	}
}

// pages reads the 300 sandboxes page by page, while some end and others begin.
func pages(t *testing.T, f *fleet) {
	for _, oldest := range []bool{false, true} {
		o := carrel.ListOptions{Limit: 37, OldestFirst: oldest}
		seen := map[carrel.ID]bool{}
		var last carrel.Sandbox
		before := all(t, f, carrel.ListOptions{})
		for first := true; ; first = false {
			page, err := f.List(t.Context(), o)
			if err != nil || len(page.Missing) > 0 {
				t.Fatal(err, page.Missing)
			}
			if first && page.Running != len(before) {
				t.Errorf("%d run, of %d", page.Running, len(before))
			}
			for _, sb := range page.Sandboxes {
				if seen[sb.ID] {
					t.Fatalf("%s is on two pages", sb.ID)
				}
				if seen[sb.ID] = true; last.ID != "" && (sb.Started.Before(last.Started) == oldest) && !sb.Started.Equal(last.Started) {
					t.Fatalf("%v comes after %v", sb.Started, last.Started)
				}
				last = sb
			}
			if o.Cursor = page.Next; o.Cursor == "" {
				break
			}
			if err := f.Kill(t.Context(), page.Sandboxes[0].ID); err != nil { // a page's end may go
				t.Fatal(err)
			}
			if err := f.Kill(t.Context(), last.ID); err != nil {
				t.Fatal(err)
			}
		}
		for _, sb := range before {
			if !seen[sb.ID] {
				t.Errorf("%s is on no page", sb.ID)
			}
		}
	}
	for _, token := range []string{"x", "!!", strings.Repeat("A", 1<<20), "MTIzOi4uLy4uL2V0Yw", "MTIzOmkwMTIz"} {
		if _, err := f.List(t.Context(), carrel.ListOptions{Cursor: token}); carrel.KindOf(err) != carrel.Invalid {
			t.Errorf("token %.20q: %v", token, err)
		}
		if _, err := f.ListSnapshots(t.Context(), carrel.SnapshotListOptions{Cursor: token}); carrel.KindOf(err) != carrel.Invalid {
			t.Errorf("token %.20q: %v", token, err)
		}
	}
	killAll(t, f)
}

// sameKey sends one creation many times at once, and again by another engine.
func sameKey(t *testing.T, f *fleet) {
	other := over(t, f.daemons)
	for i := range 10 {
		opts := carrel.CreateOptions{IdempotencyKey: fmt.Sprintf("key-%d", i), Timeout: time.Hour}
		ids := make([]carrel.ID, 6)
		var wg sync.WaitGroup
		for k := range ids {
			wg.Go(func() {
				svc := []carrel.Service{f, other}[k%2]
				sb, err := svc.Create(t.Context(), opts)
				if err != nil {
					t.Error(err)
				}
				ids[k] = sb.ID
			})
		}
		wg.Wait()
		for _, id := range ids {
			if id != ids[0] {
				t.Errorf("one key made %v", ids)
			}
		}
	}
	if n := len(all(t, f, carrel.ListOptions{})); n != 10 {
		t.Errorf("10 keys made %d sandboxes", n)
	}
	if _, err := f.Create(t.Context(), carrel.CreateOptions{IdempotencyKey: "key-1", Timeout: time.Minute}); carrel.KindOf(err) != carrel.Conflict {
		t.Errorf("a key for two creations: %v", err)
	}
	killAll(t, f)
}

// apart shows that a project sees nothing of another's.
func apart(t *testing.T, f *fleet) {
	as := func(project string) context.Context {
		return carrel.WithCaller(t.Context(), carrel.Caller{Project: project, Role: carrel.RoleOwner})
	}
	for _, d := range f.daemons {
		for _, p := range []string{"red", "blue"} {
			if _, err := direct(t, d).(*client.Client).People().CreateProject(t.Context(), p); err != nil {
				t.Fatal(err)
			}
		}
	}
	var boxes []carrel.ID
	for range 6 {
		sb, err := f.Create(as("red"), carrel.CreateOptions{})
		if err != nil || sb.Project != "red" {
			t.Fatal(sb.Project, err)
		}
		boxes = append(boxes, sb.ID)
	}
	snap, err := f.Snapshot(as("red"), boxes[0], carrel.SnapshotOptions{})
	if err != nil {
		t.Fatal(err)
	}
	fresh := over(t, f.daemons) // knows nothing of who made them
	for _, e := range []carrel.Service{f, fresh} {
		for _, id := range boxes {
			if _, err := e.Get(as("blue"), id); carrel.KindOf(err) != carrel.NotFound {
				t.Errorf("another project's get: %v", err)
			}
			if err := e.Kill(as("blue"), id); carrel.KindOf(err) != carrel.NotFound {
				t.Errorf("another project's kill: %v", err)
			}
			if _, err := e.Computer(as("blue"), id); carrel.KindOf(err) != carrel.NotFound {
				t.Errorf("another project's computer: %v", err)
			}
			if _, err := e.Get(as("red"), id); err != nil {
				t.Error(err)
			}
		}
		if _, err := e.GetSnapshot(as("blue"), string(snap.ID)); carrel.KindOf(err) != carrel.NotFound {
			t.Errorf("another project's snapshot: %v", err)
		}
		if _, err := e.Create(as("blue"), carrel.CreateOptions{Template: string(snap.ID)}); carrel.KindOf(err) != carrel.NotFound {
			t.Errorf("a sandbox from another project's snapshot: %v", err)
		}
		if page, err := e.List(as("blue"), carrel.ListOptions{}); err != nil || len(page.Sandboxes) > 0 {
			t.Errorf("another project lists %d, %v", len(page.Sandboxes), err)
		}
		if page, err := e.List(as("red"), carrel.ListOptions{}); err != nil || len(page.Sandboxes) != 6 {
			t.Errorf("the project lists %d, %v", len(page.Sandboxes), err)
		}
		if _, err := e.List(carrel.WithCaller(t.Context(), carrel.Caller{Role: carrel.RolePerson}), carrel.ListOptions{}); carrel.KindOf(err) != carrel.Forbidden {
			t.Errorf("a caller without a project: %v", err)
		}
	}
	killAll(t, f)
}

// drain makes one node drain and taints another: only the third gets sandboxes. What they have goes
// on.
func drain(t *testing.T, f *fleet) {
	var before []carrel.ID
	for _, m := range create(t.Context(), f, 30, nil) {
		if m.err != nil {
			t.Fatal(m.err)
		}
		before = append(before, m.id)
	}
	nodes := f.nodes()
	nodes[0].Draining, nodes[1].Taints = true, []string{"gpu"}
	if err := f.list.Set(nodes...); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the node drains", func() bool { return f.status(name(0)).Draining })
	was := len(all(t, direct(t, f.daemons[2]), carrel.ListOptions{}))
	for _, m := range create(t.Context(), f, 30, nil) {
		if m.err != nil {
			t.Fatal(m.err)
		}
	}
	if n := len(all(t, direct(t, f.daemons[2]), carrel.ListOptions{})); n != was+30 {
		t.Errorf("the only node got %d of 30", n-was)
	}
	for _, id := range before {
		if _, err := f.Get(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	nodes[2].Draining = true
	if err := f.list.Set(nodes...); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "all drain", func() bool { return f.status(name(2)).Draining })
	if _, err := f.Create(t.Context(), carrel.CreateOptions{}); carrel.KindOf(err) != carrel.Exhausted || carrel.RetryAfterOf(err) == 0 {
		t.Errorf("no node takes it: %v", err)
	}
	if err := f.list.Set(f.nodes()...); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "none drains", func() bool { return !f.status(name(0)).Draining && !f.status(name(2)).Draining })
}

// rebuilt shows that a new engine finds everything, at once and from its directory.
func rebuilt(t *testing.T, f *fleet) {
	want := all(t, f, carrel.ListOptions{})
	fresh := over(t, f.daemons)
	for _, sb := range want[:10] {
		if got, err := fresh.Get(t.Context(), sb.ID); err != nil || got.ID != sb.ID {
			t.Error(err)
		}
	}
	testenv.Eventually(t, "the directory is full", func() bool { return fresh.Directory().Len() == len(want) })
	direct0 := direct(t, f.daemons[0])
	sb, err := direct0.Create(t.Context(), carrel.CreateOptions{}) // past the engines
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fresh.Get(t.Context(), sb.ID); err != nil {
		t.Error(err)
	}
	if err := direct0.Kill(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := fresh.Get(t.Context(), sb.ID); carrel.KindOf(err) != carrel.NotFound {
		t.Errorf("it is gone: %v", err)
	}
	killAll(t, f)
	testenv.Eventually(t, "the directory is empty", func() bool { return fresh.Directory().Len() == 0 })
}

// hang stops a node's process. The others stay quick, and its sandboxes are Unavailable, not gone.
func hang(t *testing.T, f *fleet) {
	boxes := map[string]carrel.ID{}
	onEach(t, f)
	for i, d := range f.daemons {
		boxes[name(i)] = all(t, direct(t, d), carrel.ListOptions{})[0].ID
	}
	pid := f.daemons[1].PID()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	goOn := sync.OnceFunc(func() { _ = syscall.Kill(pid, syscall.SIGCONT) })
	t.Cleanup(goOn)
	testenv.Eventually(t, "it has stopped", func() bool { return stopped(t, pid) })
	begin := time.Now()
	_, err := f.Get(t.Context(), boxes[name(1)]) // nobody knows yet that it hangs
	if took := time.Since(begin); carrel.KindOf(err) != carrel.Unavailable || !strings.Contains(carrel.HintOf(err), name(1)) || took > 10*time.Second {
		t.Errorf("after %v: %v (hint: %s)", took, err, carrel.HintOf(err))
	}
	testenv.Eventually(t, "the engine notices", func() bool { return f.status(name(1)).Away != nil })
	begin = time.Now()
	for range 20 {
		for _, n := range []string{name(0), name(2)} {
			if _, err := f.Get(t.Context(), boxes[n]); err != nil {
				t.Error(err)
			}
		}
		if _, err := f.Create(t.Context(), carrel.CreateOptions{}); err != nil {
			t.Error(err)
		}
		if page, err := f.List(t.Context(), carrel.ListOptions{}); err != nil || fmt.Sprint(page.Missing) != "["+name(1)+"]" {
			t.Errorf("missing %v, %v", page.Missing, err)
		}
		if _, err := f.Get(t.Context(), boxes[name(1)]); carrel.KindOf(err) != carrel.Unavailable {
			t.Errorf("a hanging node's sandbox: %v", err)
		}
		if _, err := f.Get(t.Context(), carrel.NewID()); carrel.KindOf(err) != carrel.Unavailable {
			t.Errorf("what may be on a hanging node: %v", err)
		}
	}
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("120 calls took %v while a node hangs", took)
	}
	goOn()
	f.ready(t, 1)
	if _, err := f.Get(t.Context(), boxes[name(1)]); err != nil {
		t.Errorf("after it is back: %v", err)
	}
	if _, err := f.Get(t.Context(), carrel.NewID()); carrel.KindOf(err) != carrel.NotFound {
		t.Errorf("nobody has it: %v", err)
	}
	killAll(t, f)
}

// stopped reports whether all threads of a process are stopped. A signal reaches one after the
// other.
func stopped(t *testing.T, pid int) bool {
	t.Helper()
	stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(stats) == 0 {
		t.Fatalf("threads of %d: %v", pid, err)
	}
	for _, p := range stats {
		raw, err := os.ReadFile(p)
		if _, state, ok := strings.Cut(string(raw), ") "); err == nil && (!ok || state[0] != 'T') {
			return false
		}
	}
	return true
}

// killed kills a node in the middle of creations. Every ID that was returned is there, or was on
// the node that died. No sandbox is there that was not returned. Then the node comes back.
func killed(t *testing.T, f *fleet) {
	var once sync.Once
	results := create(t.Context(), f, 120, func(done int) {
		if done == 60 {
			once.Do(f.daemons[2].Kill9)
		}
	})
	returned := map[carrel.ID]bool{}
	failed := 0
	for _, m := range results {
		switch {
		case m.err == nil && returned[m.id]:
			t.Errorf("%s was returned twice", m.id)
		case m.err == nil:
			returned[m.id] = true
		default:
			failed++
			if carrel.KindOf(m.err) != carrel.Unavailable || carrel.HintOf(m.err) == "" {
				t.Errorf("%v (hint: %s)", m.err, carrel.HintOf(m.err))
			}
		}
	}
	if failed > 16 { // as many as were under way
		t.Errorf("%d creations failed", failed)
	}
	living := 0
	for _, d := range f.daemons[:2] {
		for _, sb := range all(t, direct(t, d), carrel.ListOptions{}) {
			if living++; !returned[sb.ID] {
				t.Errorf("%s was made and not returned", sb.ID)
			}
		}
	}
	lost := 0
	for id := range returned {
		switch _, err := f.Get(t.Context(), id); carrel.KindOf(err) {
		case "":
			living--
		case carrel.Unavailable:
			lost++
		default:
			t.Error(err)
		}
	}
	if living != 0 || lost == 0 {
		t.Errorf("%d more live than were found, %d were on the node that died", living, lost)
	}
	f.daemons[2].Restart()
	if err := f.list.Set(f.nodes()...); err != nil { // the port is the same, but look
		t.Fatal(err)
	}
	f.ready(t, 2)
	for id := range returned {
		if _, err := f.Get(t.Context(), id); err != nil && carrel.KindOf(err) != carrel.NotFound {
			t.Fatalf("after the node is back: %v", err)
		}
	}
	testenv.Eventually(t, "it gets sandboxes again", func() bool {
		if _, err := f.Create(t.Context(), carrel.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		return len(all(t, direct(t, f.daemons[2]), carrel.ListOptions{})) > 0
	})
}
