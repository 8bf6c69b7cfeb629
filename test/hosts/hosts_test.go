package hosts

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/test/miniroot"
)

// several is how many machines a test has.
func several() int {
	if testing.Short() {
		return 4
	}
	return 8
}

func miniArchive(t *testing.T) string { return miniroot.Archive(t, "timeout") }

// TestLoss has every tenth frame lost. All that a fleet does goes on, slower: what is refused for the
// moment has not happened, and works when it is tried again.
func TestLoss(t *testing.T) {
	testenv.Long(t, "a fleet on a bad network")
	m := start(t, options{fronts: 2, nodes: several()})
	m.net.Switch().Lose(0.1)
	ctx := t.Context()
	boxes := make([]carrel.Sandbox, 40)
	refused := 0
	var mu sync.Mutex
	again := func(fn func() error) {
		for n := 0; ; n++ {
			err := fn()
			if carrel.KindOf(err) != carrel.Unavailable || n == 5 {
				if err != nil {
					t.Error(err)
				}
				return
			}
			mu.Lock()
			refused++
			mu.Unlock()
		}
	}
	each(len(boxes), func(i int) {
		again(func() (err error) {
			boxes[i], err = m.Create(ctx, carrel.CreateOptions{Tier: carrel.Sim, Timeout: time.Hour})
			return err
		})
		again(func() error {
			_, err := try(ctx, m.fronts[1].Client, boxes[i].ID, "echo "+string(boxes[i].ID)+" > /tmp/mine")
			return err
		})
	})
	if t.Failed() {
		return
	}
	t.Logf("%d calls were refused for the moment", refused)
	if refused > len(boxes) {
		t.Error("too many calls were refused")
	}
	m.net.Switch().Lose(0)
	drained := m.home(boxes[0].ID) // this test asks each node, and does not try again
	m.net.Switch().Lose(0.1)
	got, err := m.Nodes().DrainNode(ctx, name(drained))
	if err != nil || len(got.Failed) > 0 || len(got.Moved) == 0 {
		t.Fatalf("%+v %v", got, err)
	}
	each(len(boxes), func(i int) {
		again(func() error {
			got, err := try(ctx, m.Client, boxes[i].ID, "cat /tmp/mine")
			if err == nil && got != string(boxes[i].ID) {
				t.Errorf("%s has %q", boxes[i].ID, got)
			}
			return err
		})
	})
	t.Logf("%d frames were lost", m.net.Switch().Lost())
	if m.net.Switch().Lost() == 0 {
		t.Error("no frame was lost")
	}
	m.net.Switch().Heal()
	var want []carrel.ID
	for _, sb := range boxes {
		want = append(want, sb.ID)
		if at := m.home(sb.ID); at == drained {
			t.Errorf("%s is on the drained node", sb.ID)
		}
	}
	m.just(want)
	for i := range m.nodes {
		if n := m.stateOf(i); n.State != carrel.NodeReady && n.State != carrel.NodeDraining {
			t.Errorf("%+v", n)
		}
	}
}

// own fails the test unless each sandbox has its own ID in a file.
func (m *machines) own(boxes []carrel.Sandbox) {
	m.t.Helper()
	m.all(boxes, func(sb carrel.Sandbox) {
		if got, err := try(m.t.Context(), m.Client, sb.ID, "cat /tmp/mine"); got != string(sb.ID) || err != nil {
			m.t.Errorf("%s has %q, %v", sb.ID, got, err)
		}
	})
}

// mark writes each sandbox's ID into a file of its own.
func (m *machines) mark(boxes []carrel.Sandbox) {
	m.t.Helper()
	m.all(boxes, func(sb carrel.Sandbox) {
		if _, err := try(m.t.Context(), m.Client, sb.ID, "echo "+string(sb.ID)+" > /tmp/mine"); err != nil {
			m.t.Errorf("%s: %v", sb.ID, err)
		}
	})
}

// TestCuts pulls cables. No sandbox ever has two lives, and each is there again when the cables are.
func TestCuts(t *testing.T) {
	m := start(t, options{fronts: 2, nodes: several()})
	t.Run("node", func(t *testing.T) { m.under(t, cutNode) })
	t.Run("one way", func(t *testing.T) { m.under(t, cutOneWay) })
	t.Run("database", func(t *testing.T) { m.under(t, cutDatabase) })
}

// under runs a part of a test that shares the machines.
func (m *machines) under(t *testing.T, fn func(*testing.T, *machines)) {
	part := *m
	part.t = t
	defer m.net.Switch().Heal()
	fn(t, &part)
}

// cutNode cuts a node off from both fronts, but not from this test.
func cutNode(t *testing.T, m *machines) {
	ctx := t.Context()
	running, paused := m.on(0, carrel.CreateOptions{}), m.on(0, carrel.CreateOptions{})
	m.mark([]carrel.Sandbox{running, paused})
	if _, err := m.Pause(ctx, paused.ID, carrel.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	m.published(paused.ID)
	for _, f := range m.fronts {
		m.net.Switch().Cut(m.nodes[0].host, f.host)
	}
	testenv.EventuallyNil(t, "the paused sandbox resumes elsewhere", func() error {
		_, _, err := m.Resume(ctx, paused.ID, carrel.ResumeOptions{})
		return err
	})
	m.own([]carrel.Sandbox{paused})
	m.sh(m.fronts[1].Client, paused.ID, "echo two > /tmp/life")
	if _, _, err := m.nodes[0].own.Resume(ctx, paused.ID, carrel.ResumeOptions{}); err == nil {
		t.Error("the node that was cut off runs it, too")
	}
	if out, err := try(ctx, m.nodes[0].own, running.ID, "cat /tmp/mine"); err == nil {
		t.Errorf("a node without a lease runs commands: %q", out)
	}
	testenv.EventuallyNil(t, "the fleet says what is lost", func() error {
		if n := m.stateOf(0); n.State != carrel.NodeLost || n.Lost != 1 {
			return fmt.Errorf("%+v", n)
		}
		return nil
	})
	if _, err := try(ctx, m.Client, running.ID, "true"); carrel.KindOf(err) != carrel.NotFound || carrel.HintOf(err) == "" {
		t.Errorf("a lost sandbox: %v, want NotFound and a hint", err)
	}
	m.net.Switch().Heal()
	m.ready(len(m.nodes))
	testenv.EventuallyNil(t, "the node gives up what moved", func() error {
		if at := m.homes(paused.ID); len(at) != 1 || at[0] == 0 {
			return fmt.Errorf("it is on %v", at)
		}
		return nil
	})
	if got := m.sh(m.Client, paused.ID, "cat /tmp/life"); got != "two" {
		t.Errorf("it has %q", got)
	}
	m.own([]carrel.Sandbox{running}) // nobody else had it
}

// cutOneWay cuts a node off from one front. The other front keeps it alive, so nothing may move.
func cutOneWay(t *testing.T, m *machines) {
	ctx := t.Context()
	running, paused := m.on(1, carrel.CreateOptions{}), m.on(1, carrel.CreateOptions{})
	m.mark([]carrel.Sandbox{running, paused})
	if _, err := m.Pause(ctx, paused.ID, carrel.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	m.published(paused.ID)
	m.net.Switch().Cut(m.nodes[1].host, m.fronts[0].host)
	testenv.EventuallyNil(t, "the front that is cut off notices", func() error {
		if n := m.stateOf(1); n.State == carrel.NodeReady {
			return fmt.Errorf("%+v", n)
		}
		return nil
	})
	if _, err := try(ctx, m.Client, running.ID, "true"); carrel.KindOf(err) != carrel.Unavailable || carrel.HintOf(err) == "" {
		t.Errorf("at the front that is cut off: %v, want Unavailable and a hint", err)
	}
	for _, sb := range m.many(16, carrel.CreateOptions{}) {
		if m.home(sb.ID) == 1 {
			t.Error("it placed a sandbox on the node that it can't reach")
		}
	}
	if got := m.sh(m.fronts[1].Client, running.ID, "cat /tmp/mine"); got != string(running.ID) {
		t.Errorf("at the other front, it has %q", got)
	}
	if _, _, err := m.fronts[1].Resume(ctx, paused.ID, carrel.ResumeOptions{}); err != nil {
		t.Error(err)
	}
	if at := m.homes(paused.ID); !slices.Equal(at, []int{1}) {
		t.Errorf("the paused sandbox is on the nodes %v, want where it was", at)
	}
	m.net.Switch().Heal()
	m.ready(len(m.nodes))
	m.own([]carrel.Sandbox{running, paused})
}

// cutDatabase cuts a front off from the database. It refuses what it can't record, at once or nearly
// so, and never half makes anything. The other front goes on.
func cutDatabase(t *testing.T, m *machines) {
	ctx := t.Context()
	sb := m.create(carrel.CreateOptions{})
	m.mark([]carrel.Sandbox{sb})
	before := m.everywhere()
	m.net.Switch().Cut(m.fronts[0].host, m.data)
	if _, err := m.Create(ctx, carrel.CreateOptions{Tier: carrel.Sim, Timeout: time.Hour}); carrel.KindOf(err) != carrel.Unavailable || carrel.HintOf(err) == "" {
		t.Errorf("a creation: %v, want Unavailable and a hint", err)
	}
	m.own([]carrel.Sandbox{sb}) // what it knows goes on
	other := m.fronts[1]
	made, err := other.Create(ctx, carrel.CreateOptions{Tier: carrel.Sim, Timeout: time.Hour})
	if err == nil {
		err = other.Kill(ctx, made.ID)
	}
	if err != nil {
		t.Errorf("at the other front: %v", err)
	}
	m.net.Switch().Heal()
	m.own([]carrel.Sandbox{sb})
	m.just(before)
}

// everywhere are the sandboxes that the nodes' own daemons have, in order.
func (m *machines) everywhere() (ids []carrel.ID) {
	m.t.Helper()
	for i, n := range m.nodes {
		for o := (carrel.ListOptions{}); ; {
			page, err := n.own.List(m.t.Context(), o)
			if err != nil {
				m.t.Fatalf("node %d: %v", i, err)
			}
			for _, sb := range page.Sandboxes {
				ids = append(ids, sb.ID)
			}
			if o.Cursor = page.Next; o.Cursor == "" {
				break
			}
		}
	}
	slices.Sort(ids)
	return ids
}

// TestDrains drains two nodes at once, and one of them through both fronts. Each sandbox moves once.
func TestDrains(t *testing.T) {
	m := start(t, options{fronts: 2, nodes: several()})
	ctx := t.Context()
	boxes := m.many(64, carrel.CreateOptions{})
	m.mark(boxes)
	var mu sync.Mutex
	var moved []carrel.ID
	var wg sync.WaitGroup
	for _, d := range []struct{ front, node int }{{0, 1}, {1, 1}, {1, 3}, {0, 3}} {
		wg.Go(func() {
			got, err := m.fronts[d.front].Nodes().DrainNode(ctx, name(d.node))
			if err != nil || len(got.Failed) > 0 {
				t.Errorf("front %d, node %d: %+v %v", d.front, d.node, got, err)
			}
			mu.Lock()
			defer mu.Unlock()
			moved = append(moved, got.Moved...)
		})
	}
	wg.Wait()
	m.own(boxes)
	for _, sb := range boxes {
		if at := m.home(sb.ID); at == 1 || at == 3 {
			t.Errorf("%s is on node %d still", sb.ID, at)
		}
	}
	if len(moved) == 0 {
		t.Error("nothing moved")
	}
}

// TestWalls drains a node with a hundred sandboxes behind gVisor's walls. What they had in files and in
// memory is there, byte for byte, and their programs go on.
func TestWalls(t *testing.T) {
	n, nodes := 100, 8
	if testing.Short() {
		n, nodes = 6, 3
	}
	m := start(t, options{fronts: 1, nodes: nodes, walls: true})
	ctx := t.Context()
	for i := 1; i < nodes; i++ { // so that all are on node 0
		if _, err := m.Nodes().DrainNode(ctx, name(i)); err != nil {
			t.Fatal(err)
		}
	}
	boxes := m.many(n, carrel.CreateOptions{Tier: carrel.GVisor, Limits: carrel.Limits{MemoryMB: 128}})
	sums := make([]string, n)
	each(n, func(i int) {
		var err error
		if sums[i], err = try(ctx, m.Client, boxes[i].ID, begin); err != nil {
			t.Errorf("%s: %v", boxes[i].ID, err)
		}
	})
	if t.Failed() {
		return
	}
	for i := 1; i < nodes; i++ {
		if err := m.Nodes().UndrainNode(ctx, name(i)); err != nil {
			t.Fatal(err)
		}
	}
	m.ready(nodes)
	began := time.Now()
	got, err := m.Nodes().DrainNode(ctx, name(0))
	took := time.Since(began)
	if err != nil || len(got.Failed) > 0 || len(got.Moved) != n {
		t.Fatalf("%d moved, %+v failed: %v", len(got.Moved), got.Failed, err)
	}
	t.Logf("%d gVisor sandboxes were drained in %v", n, took.Round(100*time.Millisecond))
	each(n, func(i int) {
		out, err := try(ctx, m.Client, boxes[i].ID, "cat /home/user/data /dev/shm/data | sha256sum")
		if err != nil || out != sums[i] {
			t.Errorf("%s has %q, want %q: %v", boxes[i].ID, out, sums[i], err)
		}
		out, err = try(ctx, m.Client, boxes[i].ID, counts)
		if err != nil || out != "counts" {
			t.Errorf("the program of %s stands still: %q %v", boxes[i].ID, out, err)
		}
	})
	if list, err := m.nodes[0].own.List(ctx, carrel.ListOptions{}); err != nil || len(list.Sandboxes) > 0 {
		t.Errorf("node 0 has %d sandboxes still: %v", len(list.Sandboxes), err)
	}
}

// counts waits until the program has counted on.
const counts = `while a=$(cat /tmp/count); test -z "$a"; do :; done
while b=$(cat /tmp/count); test "${b:-0}" -le $a; do sleep 0.5; done
echo counts`

// begin fills a file on disk and one in memory, starts a program that counts, and prints their sum. The
// program starts no other to wait: with a hundred of them, that alone would take most of a core.
const begin = `set -e
head -c 1000000 /dev/urandom > /home/user/data
head -c 1000000 /dev/urandom > /dev/shm/data
bash -c 'coproc sleep infinity; n=0; while :; do echo $((n+=1)) > /tmp/count; read -t 1 -u ${COPROC[0]}; done' >/dev/null 2>&1 &
cat /home/user/data /dev/shm/data | sha256sum`

// TestThousands makes ten thousand simulated sandboxes. Each is where the fleet says, once.
func TestThousands(t *testing.T) {
	testenv.Long(t, "ten thousand sandboxes on eight machines")
	const n, nodes = 10_000, 8
	m := start(t, options{fronts: 2, nodes: nodes})
	began := time.Now()
	boxes := make([]carrel.Sandbox, n)
	each(n, func(i int) {
		var err error
		boxes[i], err = m.fronts[i%2].Create(t.Context(), carrel.CreateOptions{Tier: carrel.Sim, Timeout: time.Hour})
		if err != nil {
			t.Error(err)
		}
	})
	if t.Failed() {
		return
	}
	t.Logf("made %d in %v", n, time.Since(began).Round(time.Second))
	ids := map[carrel.ID]bool{}
	for o := (carrel.ListOptions{Limit: 100}); ; {
		page, err := m.fronts[1].List(t.Context(), o)
		if err != nil || len(page.Missing) > 0 {
			t.Fatal(err, page.Missing)
		}
		for _, sb := range page.Sandboxes {
			if ids[sb.ID] {
				t.Fatalf("%s is listed twice", sb.ID)
			}
			ids[sb.ID] = true
		}
		if o.Cursor = page.Next; o.Cursor == "" {
			break
		}
	}
	for _, sb := range boxes {
		if !ids[sb.ID] {
			t.Errorf("%s is not listed", sb.ID)
		}
	}
	if all := m.everywhere(); len(all) != n || len(slices.Compact(all)) != n {
		t.Errorf("the nodes have %d", len(all))
	}
	for i := range m.nodes {
		if s := m.stateOf(i); s.Running < n/nodes/3 || s.Running > n/nodes*3 {
			t.Errorf("node %d has %d of %d", i, s.Running, n)
		}
	}
}

// TestDatabase makes the database slow, and then unwilling to write, as a standby is after a failover.
// The front sheds with a hint, and never half makes a sandbox.
func TestDatabase(t *testing.T) {
	testenv.Long(t, "a database that is slow, and one that does not write")
	m := start(t, options{fronts: 2, nodes: several()})
	ctx := t.Context()
	kept := m.many(8, carrel.CreateOptions{})
	m.mark(kept)

	m.line.slow(50 * time.Millisecond)
	kept = append(kept, m.many(16, carrel.CreateOptions{})...)
	m.line.slow(0)
	m.mark(kept)

	if err := m.server.Configure("default_transaction_read_only = on"); err != nil {
		t.Fatal(err)
	}
	m.server.Reload(t)
	testenv.EventuallyNil(t, "a creation is refused", func() error {
		sb, err := m.Create(ctx, carrel.CreateOptions{Tier: carrel.Sim, Timeout: time.Hour})
		if err == nil {
			kept = append(kept, sb)
			m.mark([]carrel.Sandbox{sb})
			return fmt.Errorf("%s was made", sb.ID)
		}
		if carrel.KindOf(err) != carrel.Unavailable || carrel.HintOf(err) == "" {
			t.Fatalf("%v, want Unavailable and a hint", err)
		}
		return nil
	})
	if err := m.server.Configure("default_transaction_read_only = off"); err != nil {
		t.Fatal(err)
	}
	m.server.Reload(t)
	m.ready(len(m.nodes))
	testenv.EventuallyNil(t, "sandboxes are made again", func() error {
		sb, err := m.Create(ctx, carrel.CreateOptions{Tier: carrel.Sim, Timeout: time.Hour})
		if err == nil {
			kept = append(kept, sb)
			m.mark([]carrel.Sandbox{sb})
		}
		return err
	})
	m.own(kept)
	var want []carrel.ID
	for _, sb := range kept {
		want = append(want, sb.ID)
	}
	m.just(want)
}

// just fails the test unless the nodes have these sandboxes and no others, soon.
func (m *machines) just(want []carrel.ID) {
	m.t.Helper()
	slices.Sort(want)
	testenv.EventuallyNil(m.t, "nothing is left of refused creations", func() error {
		if got := m.everywhere(); !slices.Equal(got, want) {
			return fmt.Errorf("the nodes have %d sandboxes, want %d", len(got), len(want))
		}
		return nil
	})
}

// TestReach has sandboxes reach for the machines of the fleet: the nodes' and fronts' doors, the
// database, the object store and a link-local address. A sandbox whose policy names one reaches just that.
func TestReach(t *testing.T) {
	m := start(t, options{fronts: 1, nodes: 1, walls: true})
	targets := []string{m.fronts[0].host.At(clientsPort), m.fronts[0].host.At(fleetPort), m.nodes[0].host.At(clientsPort), m.nodes[0].host.At(fleetPort),
		m.data.At(databasePort), m.data.At(storePort), "169.254.169.253:80", "127.0.0.1:7070"}
	dial := func(sb carrel.Sandbox, at string) string {
		host, port, _ := strings.Cut(at, ":")
		return m.sh(m.Client, sb.ID, fmt.Sprintf("timeout 5 bash -c 'exec 3<>/dev/tcp/%s/%s' 2>/dev/null && echo open || echo closed", host, port))
	}
	for _, tier := range []carrel.Tier{carrel.GVisor, carrel.NS} {
		sb := m.create(carrel.CreateOptions{Tier: tier, Network: carrel.Network{Internet: true}})
		for _, at := range targets {
			if got := dial(sb, at); got != "closed" {
				t.Errorf("%s: %s is %s", tier, at, got)
			}
		}
		named := m.create(carrel.CreateOptions{Tier: tier, Network: carrel.Network{Policy: &carrel.Policy{
			Rules: []carrel.Rule{{Allow: []string{m.data.Addr.String()}, Ports: []string{fmt.Sprint(storePort)}, Protocol: "tcp"}}}}})
		if got := dial(named, m.data.At(storePort)); got != "open" {
			t.Errorf("%s: an address that the policy names is %s", tier, got)
		}
		for _, at := range []string{m.fronts[0].host.At(clientsPort), m.data.At(databasePort)} {
			if got := dial(named, at); got != "closed" {
				t.Errorf("%s: beside what the policy names, %s is %s", tier, at, got)
			}
		}
	}
}
