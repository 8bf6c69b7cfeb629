package escape

import (
	"io"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/policy"
	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/test/daemontest"
	"github.com/carrel-dev/carrel/test/escape/plan"
)

// change is a change of the network while connections are open.
type change struct {
	name   string
	to     carrel.Network
	expect expectation
}

// changes follow the allow-list. One allows nothing, which cuts everything. The other repeats the
// allow-list, which cuts nothing.
func changes() []change {
	held := func(a plan.Attempt) bool { return a.Held() }
	nothing := func(plan.Attempt) bool { return false }
	return []change{
		{"to deny", denyAll(), expectation{must: nothing, may: nothing}},
		{"to the same", allowList(false), expectation{must: held, may: held}},
	}
}

// checkHeld judges the ends of the connections.
func checkHeld(t *testing.T, saw map[string]plan.Outcome, cut bool) {
	t.Helper()
	for name, o := range saw {
		switch {
		case name == "end" || name == "held":
		case cut && name == "hold-http" && strings.Contains(o.Detail, "403"): // each request is judged
		case cut && o.Saw != plan.Closed && o.Saw != plan.Reset && o.Saw != plan.Refused && name != "hold-udp":
			t.Errorf("%s was not cut: it saw %q %s", name, o.Saw, o.Detail)
		case !cut && o.Saw != plan.Answered:
			t.Errorf("%s was cut: it saw %q %s", name, o.Saw, o.Detail)
		}
	}
}

// TestNamespaceHold changes the policy of a plain namespace while connections are open.
func TestNamespaceHold(t *testing.T) {
	testenv.Need(t, "namespaces", canSpawn())
	program := buildProgram(t)
	for _, c := range changes() {
		t.Run(c.name, func(t *testing.T) {
			w, p := nsWorld(t)
			stdout, stderr := &daemontest.Output{}, &daemontest.Output{}
			cmd := exec.Command(program, "hold")
			cmd.Stdout, cmd.Stderr = stdout, stderr
			stdin, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			ns := enter(t, w, p, allowList(false), cmd)
			stdout.Until(t, `"held"`)
			to, err := policy.Compile(c.to)
			if err != nil {
				t.Fatal(err)
			}
			if err := ns.wire.SetNetwork(ns.id, to); err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(stdin, "go\n"); err != nil {
				t.Fatal(err)
			}
			if err := waitFor(t, cmd); err != nil {
				t.Fatalf("%v\n%s", err, stderr)
			}
			if err := ns.wire.Close(); err != nil {
				t.Fatal(err)
			}
			saw := outcomes(t, p, true, []byte(stdout.String()))
			judge(t, w, p, c.expect, saw)
			checkHeld(t, saw, c.name == "to deny")
		})
	}
}

// TestGVisorHold does the same with a sandbox of a daemon, through the API.
func TestGVisorHold(t *testing.T) {
	testenv.Need(t, "root", needRoot())
	openHouse(t, carrel.GVisor).hold(t)
}

// TestMachineHold does the same with virtual machines.
func TestMachineHold(t *testing.T) {
	openHouse(t, carrel.MicroVM, daemontest.Machines(t)...).hold(t)
}

// hold changes the policies of sandboxes.
func (h *house) hold(t *testing.T) {
	for _, change := range changes() {
		t.Run(change.name, func(t *testing.T) {
			h.world.Forget()
			p := h.plan
			p.Run = newPlan().Run
			sb, c := h.sandbox(t, allowList(false))
			out := &daemontest.Output{}
			process, err := c.Start(t.Context(), carrel.Command{Args: []string{inside, "hold"}, User: "root", OpenStdin: true,
				Env: map[string]string{plan.Env: p.String()}, Stdout: out, Timeout: 5 * time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			out.Until(t, `"held"`)
			if _, err := h.svc.SetNetwork(t.Context(), sb.ID, change.to); err != nil {
				t.Fatal(err)
			}
			if _, err := process.Write([]byte("go\n")); err != nil {
				t.Fatal(err)
			}
			if _, err := process.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := h.svc.Kill(t.Context(), sb.ID); err != nil {
				t.Fatal(err)
			}
			saw := outcomes(t, p, true, []byte(out.String()))
			judge(t, h.world, p, change.expect, saw)
			checkHeld(t, saw, change.name == "to deny")
		})
	}
}
