package drivertest

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
)

// attackInside is the path of the attack program in a sandbox.
const attackInside = "/tmp/attack"

// BuildAttack builds the attack program as a static binary for this machine.
func BuildAttack(t testing.TB, out string) {
	t.Helper()
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", out, "github.com/carrel-dev/carrel/internal/driver/drivertest/attack")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if b, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the attack program: %v\n%s", err, b)
	}
}

// upload puts the attack program into the sandbox.
func (b *box) upload(t testing.TB) {
	t.Helper()
	f, err := os.Open(b.s.attack)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := b.conn.Files("root").Write(t.Context(), attackInside, f); err != nil {
		t.Fatalf("upload: %v", err)
	}
	b.must(t, "chmod 755 "+attackInside)
}

// attempt is one line of the attack program.
type attempt struct{ name, outcome, detail string }

// attempts are all lines of one part of the attack program.
type attempts []attempt

// run runs a part of the attack program inside, as root, and returns its lines. If the wall ends
// the part (a signal, a dead sandbox), run returns the lines printed until then.
func (b *box) run(t testing.TB, limit time.Duration, env map[string]string, args ...string) attempts {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	res, err := b.conn.Run(ctx, carrel.Command{Args: append([]string{attackInside}, args...), User: "root", Dir: "/", Env: env})
	if err != nil {
		t.Fatalf("%s: %v", args[0], err)
	}
	if res.ExitCode != 0 {
		t.Logf("%s: %s; stderr: %.500s", args[0], res.Status, res.Stderr)
	}
	return parseAttempts(string(res.Stdout))
}

func parseAttempts(out string) attempts {
	var list attempts
	for _, line := range strings.Split(out, "\n") {
		if f := strings.SplitN(line, "\t", 3); len(f) == 3 {
			list = append(list, attempt{f[0], f[1], f[2]})
		}
	}
	return list
}

// worked returns the attempts with these name prefixes that the system let through.
func (a attempts) worked(prefixes ...string) []string {
	var out []string
	for _, x := range a {
		if x.outcome != "worked" {
			continue
		}
		for _, p := range prefixes {
			if strings.HasPrefix(x.name, p) {
				out = append(out, x.name+": "+x.detail)
				break
			}
		}
	}
	return out
}

// wantRefused fails for each attempt with these name prefixes that worked. It also fails when the
// part's control did not work.
func (a attempts) wantRefused(t testing.TB, part string, prefixes ...string) {
	t.Helper()
	a.wantControl(t, part)
	for _, w := range a.worked(prefixes...) {
		t.Errorf("not refused: %s", w)
	}
}

func (a attempts) wantControl(t testing.TB, name string) {
	t.Helper()
	for _, x := range a {
		if x.outcome == "control" && x.name == name {
			return
		}
	}
	t.Errorf("the control of %q is missing: this case proved nothing; %d lines: %.600v", name, len(a), a)
}
