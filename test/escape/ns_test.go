package escape

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/linux/tap"
	"github.com/carrel-dev/carrel/internal/pki"
	"github.com/carrel-dev/carrel/internal/policy"
	"github.com/carrel-dev/carrel/internal/reexec"
	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/internal/wire"
	"github.com/carrel-dev/carrel/test/escape/canary"
	"github.com/carrel-dev/carrel/test/escape/plan"
)

func TestMain(m *testing.M) {
	if reexec.Run(tap.Parts()) {
		return
	}
	os.Exit(m.Run())
}

// outside is the resolver of a world. It records the questions, and changes its answer for one
// name.
type outside struct {
	*wire.Table
	world *canary.World
	mu    sync.Mutex
	flips int
}

func (o *outside) Exchange(ctx context.Context, q *dns.Msg) (*dns.Msg, error) {
	o.world.Asked(q)
	if len(q.Question) == 1 && q.Question[0].Name == plan.Flip+"." && q.Question[0].Qtype == dns.TypeA {
		o.mu.Lock()
		defer o.mu.Unlock()
		address := "127.0.0.1"
		if o.flips++; o.flips == 1 {
			address = plan.Allowed.V4
		}
		a := new(dns.Msg).SetReply(q)
		a.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 1}, A: net.ParseIP(address)}}
		return a, nil
	}
	return o.Table.Exchange(ctx, q)
}

// namespace is a plain namespace behind a wire in this process.
type namespace struct {
	wire  *wire.Wire
	id    carrel.ID
	world *canary.World
	cmd   *exec.Cmd
}

// enter starts the program in a namespace with network n.
func enter(t *testing.T, w *canary.World, p plan.Plan, n carrel.Network, cmd *exec.Cmd) *namespace {
	t.Helper()
	authority, err := pki.New("Carrel test")
	if err != nil {
		t.Fatal(err)
	}
	rules, err := policy.Compile(n)
	if err != nil {
		t.Fatal(err)
	}
	table := &outside{Table: &wire.Table{Names: w.Names, Dial: w.Dial}, world: w}
	ns := &namespace{id: carrel.NewID(), world: w, cmd: cmd, wire: wire.New(wire.Options{
		Egress: func(carrel.ID) *policy.Policy { return rules },
		Dialer: table, Resolver: table, Authority: authority, Roots: w.CA.Pool(),
		Local: func(_ carrel.ID, c net.Conn) { _ = c.Close() },
	})}
	t.Cleanup(func() { _ = ns.wire.Close() })
	cmd.Env = append(os.Environ(), plan.Env+"="+p.String())
	link, err := tap.Spawn(cmd, tap.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ns.wire.Attach(t.Context(), driver.LinkSpec{ID: ns.id, MTU: tap.DefaultMTU}, link); err != nil {
		t.Fatal(err)
	}
	return ns
}

// nsWorld is a world that also has the host's own sockets.
func nsWorld(t *testing.T) (*canary.World, plan.Plan) {
	w, p := canary.NewWorld(t), newPlan()
	w.SeesQuestions = true
	p.Host = w.AddHost(t)
	p.Abstract = "carrel-escape-" + p.Run
	l, err := net.Listen("unix", "@"+p.Abstract)
	if err != nil {
		t.Fatal(err)
	}
	w.Add(canary.NewOn(t, "abstract socket", l))
	return w, p
}

// TestNamespace runs the program in a plain namespace.
func TestNamespace(t *testing.T) {
	testenv.Need(t, "namespaces", canSpawn())
	program := buildProgram(t)
	for name, e := range expectations() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, p := nsWorld(t)
			// This namespace has only walls for the network.
			p.Path = ""
			var stdout, stderr bytes.Buffer
			cmd := exec.Command(program)
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			ns := enter(t, w, p, e.network, cmd)
			if err := waitFor(t, cmd); err != nil {
				t.Fatalf("%v\n%s", err, &stderr)
			}
			if err := ns.wire.Close(); err != nil { // after this, all open connections have ended
				t.Fatal(err)
			}
			judge(t, w, p, e, outcomes(t, p, false, stdout.Bytes()))
		})
	}
}

// waitFor waits for the program for a limited time.
func waitFor(t *testing.T, cmd *exec.Cmd) error {
	t.Helper()
	stop := time.AfterFunc(5*time.Minute, func() { _ = cmd.Process.Kill() })
	defer stop.Stop()
	return cmd.Wait()
}

// canSpawn returns the reason why this machine can't make namespaces with a TAP device, nil if it
// can.
func canSpawn() error {
	cmd := exec.Command("true")
	link, err := tap.Spawn(cmd, tap.Config{})
	if err != nil {
		return err
	}
	_ = link.Close()
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("true in a namespace: %w", err)
	}
	return nil
}
