package escape

import (
	"encoding/json"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/test/daemontest"
	"github.com/carrel-dev/carrel/test/escape/canary"
	"github.com/carrel-dev/carrel/test/escape/plan"
)

// inside is the program's directory in a sandbox.
const inside = "/tmp/escape"

// house is a daemon whose outside world consists of canaries.
type house struct {
	tier    carrel.Tier // of its sandboxes
	world   *canary.World
	plan    plan.Plan
	daemon  *daemontest.Daemon
	svc     carrel.Service
	program string
}

// openHouse starts a daemon with further arguments.
func openHouse(t *testing.T, tier carrel.Tier, args ...string) *house {
	t.Helper()
	h := &house{tier: tier, world: canary.NewWorld(t), plan: newPlan(), program: buildProgram(t)}
	h.plan.Host = h.world.AddHost(t)
	h.plan.Abstract, h.plan.Path = "carrel-escape-"+h.plan.Run, filepath.Join(os.TempDir(), "carrel-escape-"+h.plan.Run)
	for _, name := range []string{"@" + h.plan.Abstract, h.plan.Path} {
		l, err := net.Listen("unix", name)
		if err != nil {
			t.Fatal(err)
		}
		h.world.Add(canary.NewOn(t, "socket "+name, l))
	}
	h.daemon = daemontest.Start(t, append(args, "--wire-table", writeTable(t, h.world))...)
	u, err := url.Parse(h.daemon.URL)
	if err != nil {
		t.Fatal(err)
	}
	h.plan.Doors = []string{u.Host}
	for _, at := range h.plan.Host {
		host, _, _ := net.SplitHostPort(at)
		h.plan.Doors = append(h.plan.Doors, net.JoinHostPort(host, u.Port()))
	}
	if h.svc, err = client.New(h.daemon.URL, h.daemon.Key); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.svc.Close() })
	return h
}

// writeTable writes the table of a world for a daemon.
func writeTable(t testing.TB, w *canary.World) string {
	t.Helper()
	dir := t.TempDir()
	text, err := json.Marshal(map[string]any{"names": w.Names, "dial": w.Dial, "roots": "ca.pem"})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "table.json")
	for name, b := range map[string][]byte{file: text, filepath.Join(dir, "ca.pem"): w.CA.CertPEM()} {
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return file
}

// sandbox makes a sandbox with the program in it.
func (h *house) sandbox(t *testing.T, n carrel.Network) (carrel.Sandbox, carrel.Computer) {
	t.Helper()
	ctx := t.Context()
	sb, err := h.svc.Create(ctx, carrel.CreateOptions{Tier: h.tier, Network: n, Timeout: 20 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	c, err := h.svc.Computer(ctx, sb.ID)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(h.program)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := c.Files("root").Write(ctx, inside, f); err != nil {
		t.Fatal(err)
	}
	if r, err := c.Run(ctx, carrel.Command{Args: []string{"chmod", "755", inside}, User: "root"}); err != nil || r.ExitCode != 0 {
		t.Fatal(r, err)
	}
	return sb, c
}

// TestGVisor runs the program in real sandboxes of a real daemon.
func TestGVisor(t *testing.T) {
	testenv.Need(t, "root", needRoot())
	// TestNamespace has the others: "internet" is "allow" in E2B's words.
	openHouse(t, carrel.GVisor).escape(t, "list", "inspect")
}

// TestMachineEscape runs the program in virtual machines, whose root may send any frame.
func TestMachineEscape(t *testing.T) {
	openHouse(t, carrel.MicroVM, daemontest.Machines(t)...).escape(t, "deny", "list")
}

// escape runs the program under each policy, and as each user. With -short it runs it as root alone,
// and under those policies that are named.
func (h *house) escape(t *testing.T, short ...string) {
	users := []string{"root"}
	if !testing.Short() {
		users = append(users, "") // the sandbox's own
	}
	// Another sandbox that may reach everything, in case that helps this one.
	h.plan.Neighbour = 41234
	_, other := h.sandbox(t, allowAll())
	heard := &daemontest.Output{}
	if _, err := other.Start(t.Context(), carrel.Command{Args: []string{inside, "listen"}, Env: map[string]string{plan.Env: h.plan.String()}, Stdout: heard, Stderr: heard}); err != nil {
		t.Fatal(err)
	}
	heard.Until(t, "listening")
	for name, e := range expectations() {
		if testing.Short() && !slices.Contains(short, name) {
			continue
		}
		for _, user := range users {
			t.Run(name+"/user="+user, func(t *testing.T) {
				h.world.Forget()
				p := h.plan
				p.Run = newPlan().Run
				sb, c := h.sandbox(t, e.network)
				r, err := c.Run(t.Context(), carrel.Command{Args: []string{inside}, User: user, Env: map[string]string{plan.Env: p.String()}, Timeout: 8 * time.Minute})
				if err != nil {
					t.Fatal(err)
				}
				if r.ExitCode != 0 {
					t.Errorf("the program: %s\n%s", r.Status, r.Stderr)
				}
				if err := h.svc.Kill(t.Context(), sb.ID); err != nil {
					t.Fatal(err)
				}
				judge(t, h.world, p, e, outcomes(t, p, false, r.Stdout))
				if text := heard.String(); len(p.Find([]byte(text))) > 0 {
					t.Errorf("the other sandbox heard %s", text)
				}
			})
		}
	}
}

func needRoot() error {
	if os.Geteuid() != 0 {
		return os.ErrPermission
	}
	return nil
}

// TestCanariesHear shows that this test itself can reach each canary that must stay silent.
func TestCanariesHear(t *testing.T) {
	w, p := nsWorld(t)
	mark := p.Marker("tcp4")
	for _, c := range w.Canaries {
		network := "tcp"
		if c.Address[0] == '@' {
			network = "unix"
		}
		conn, err := net.Dial(network, c.Address)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write([]byte(mark)); err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
		if network == "tcp" {
			if conn, err = net.Dial("udp", c.Address); err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Write([]byte(p.Marker("udp4"))); err != nil {
				t.Fatal(err)
			}
			_ = conn.Close()
		}
	}
	found, _ := w.Arrived(t, p)
	for _, c := range w.Canaries {
		if !slices.Contains(found["tcp4"], c.Name) {
			t.Errorf("%s did not hear a connection", c.Name)
		}
		if c.Address[0] != '@' && !slices.Contains(found["udp4"], c.Name) {
			t.Errorf("%s did not hear a packet", c.Name)
		}
	}
}
