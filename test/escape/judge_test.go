package escape

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/test/escape/canary"
	"github.com/carrel-dev/carrel/test/escape/plan"
)

// buildProgram builds the program that runs inside.
func buildProgram(t testing.TB) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "escape")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", file, "./prog")
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return file
}

func newPlan() plan.Plan {
	b := make([]byte, 4)
	_, _ = rand.Read(b)
	return plan.Plan{Run: hex.EncodeToString(b)}
}

// outcomes reads the program's output. It must have every attempt of the plan: the held ones, or
// all others.
func outcomes(t testing.TB, p plan.Plan, held bool, output []byte) map[string]plan.Outcome {
	t.Helper()
	out := make(map[string]plan.Outcome)
	for d := json.NewDecoder(bytes.NewReader(output)); ; {
		var o plan.Outcome
		err := d.Decode(&o)
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatalf("%v\n%s", err, output)
		}
		out[o.Name] = o
	}
	if _, ok := out["end"]; !ok {
		t.Fatalf("the program did not come to its end:\n%s", output)
	}
	for _, a := range plan.Attempts {
		if _, ok := out[a.Name]; !ok && a.Held() == held && (len(p.Only) == 0 || slices.Contains(p.Only, a.Name)) {
			t.Errorf("%s was not tried", a.Name)
		}
	}
	return out
}

// expectation lists, for one policy, what may and what must arrive.
type expectation struct {
	network carrel.Network
	// must and may report whether the marker of an attempt has to arrive, and whether it is allowed
	// to arrive.
	must, may func(plan.Attempt) bool
	// only are the canaries that may receive anything; none means any.
	only []string
	// refused are the accepted outcomes of attempts that must be refused; none means no check.
	refused []string
}

// expectations returns the policies.
func expectations() map[string]expectation {
	is := func(kinds ...plan.Reach) func(plan.Attempt) bool {
		return func(a plan.Attempt) bool { return slices.Contains(kinds, a.Reach) }
	}
	nothing := is()
	listed := []string{"allowed", "echo", "quiet", "questions"}
	open, maybe := is(plan.Control, plan.Fronted, plan.Opaque, plan.Open), is(plan.Control, plan.Fronted, plan.Opaque, plan.Open, plan.OpenMaybe)
	never, late := []string{plan.Refused}, []string{plan.Refused, plan.Reset}
	return map[string]expectation{
		"deny":     {denyAll(), nothing, nothing, []string{"none"}, never},
		"list":     {allowList(false), is(plan.Control, plan.Fronted), is(plan.Control, plan.Fronted, plan.Opaque), listed, late},
		"inspect":  {allowList(true), is(plan.Control), is(plan.Control), listed, late},
		"allow":    {allowAll(), open, maybe, nil, nil},
		"internet": {internet(), open, maybe, nil, nil},
	}
}

// judge compares the arrived markers with those that may and must arrive.
func judge(t *testing.T, w *canary.World, p plan.Plan, e expectation, saw map[string]plan.Outcome) {
	t.Helper()
	found, touched := w.Arrived(t, p)
	var lines []string
	for _, a := range plan.Attempts {
		o, tried := saw[a.Name]
		if !tried {
			continue
		}
		where := found[a.Name]
		lines = append(lines, fmt.Sprintf("%-34s %-9s %5.1fs %-24s %.200s", a.Name, o.Saw, o.Took.Seconds(), strings.Join(where, ","), o.Detail))
		unable := o.Saw == plan.Unable && (a.Root || a.Reach == plan.OpenMaybe)
		switch {
		case len(where) > 0 && !e.may(a):
			t.Errorf("%s GOT OUT: its marker is at %v; it saw %q %s", a.Name, where, o.Saw, o.Detail)
		case len(where) == 0 && e.must(a) && !unable && (!a.Asked || w.SeesQuestions):
			t.Errorf("%s did not arrive, and should have: it saw %q %s", a.Name, o.Saw, o.Detail)
		}
		if a.Deaf && o.Saw == plan.Answered {
			t.Errorf("%s was answered: %s", a.Name, o.Detail)
		}
		if len(e.refused) > 0 && a.Refused && !slices.Contains(e.refused, o.Saw) {
			t.Errorf("%s saw %q %s, want %q", a.Name, o.Saw, o.Detail, e.refused)
		}
	}
	for name, n := range touched {
		if e.only != nil && !slices.Contains(e.only, name) {
			t.Errorf("canary %s saw %d connections or packets", name, n)
			for _, c := range w.Canaries {
				if c.Name == name {
					for _, b := range c.Seen() {
						t.Logf("  %.200q", b)
					}
				}
			}
		}
	}
	sort.Strings(lines)
	t.Logf("what was seen and where it arrived:\n%s", strings.Join(lines, "\n"))
}
