package git

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/shell/tool"
)

// freeHost asks no price.
type freeHost struct{ tool.Host }

func (freeHost) Step(int) bool { return true }

// codeText returns a file of functions. Some of them are similar.
func codeText(r *rand.Rand) []string {
	var out []string
	for range 2 + r.IntN(8) {
		name := r.IntN(4)
		switch r.IntN(3) {
		case 0:
			out = append(out, fmt.Sprintf("func f%d() {", name), "\tstart()", fmt.Sprintf("\tcall(%d)", r.IntN(3)), "\tend()", "}", "")
		case 1:
			out = append(out, fmt.Sprintf("def g%d(x):", name), "    if x:", fmt.Sprintf("        return %d", r.IntN(3)), "    return None", "")
		default:
			out = append(out, "# a comment", fmt.Sprintf("x = %d", r.IntN(3)), "")
		}
	}
	return out
}

// TestPlacesLikeRealGit compares the hunks of random changes with those of the real git. The costs
// are our own, so some hunks differ. Their lengths must not differ: a shorter hunk from git would
// be a better one.
func TestPlacesLikeRealGit(t *testing.T) {
	_, err := exec.LookPath("git")
	testenv.Need(t, "simbash", err)
	r := rand.New(rand.NewPCG(15, 10))
	dir := t.TempDir()
	const texts = 150
	equal := 0
	for range texts {
		a := codeText(r)
		at := r.IntN(len(a))
		b := append([]string{}, a[:at]...)
		switch r.IntN(3) {
		case 0:
			b = append(append(b, codeText(r)...), a[at:]...)
		case 1:
			b = append(b, a[min(at+1+r.IntN(9), len(a)):]...)
		default:
			from := r.IntN(at + 1)
			b = append(append(b, a[from:at]...), a[at:]...)
		}
		ta, tb := strings.Join(a, "\n")+"\n", strings.Join(b, "\n")+"\n"
		for name, text := range map[string]string{"a": ta, "b": tb} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.CommandContext(t.Context(), "git", "diff", "--no-index", "--no-color", "-U0", "a", "b")
		cmd.Dir = dir
		out, err := cmd.Output()
		if len(out) == 0 && ta != tb {
			t.Fatal(err)
		}
		g := &git{Call: &tool.Call{Host: freeHost{}, Ctx: context.Background()}}
		old, now := splitLines([]byte(ta)), splitLines([]byte(tb))
		edits, err := g.compare(old, now)
		if err != nil {
			t.Fatal(err)
		}
		var want, got []string
		for line := range strings.Lines(string(out)) {
			if strings.HasPrefix(line, "@@") {
				want = append(want, strings.Join(strings.Fields(line)[1:3], " "))
			}
		}
		var made bytes.Buffer
		last := 0
		for _, e := range edits {
			got = append(got, "-"+span(e.a1, e.a2)+" +"+span(e.b1, e.b2))
			made.Write(bytes.Join(old[last:e.a1], nil))
			made.Write(bytes.Join(now[e.b1:e.b2], nil))
			last = e.a2
		}
		made.Write(bytes.Join(old[last:], nil))
		if made.String() != tb {
			t.Fatalf("the edits %v do not lead from\n%s to\n%s", edits, ta, tb)
		}
		if strings.Join(got, ",") == strings.Join(want, ",") {
			equal++
		} else if os.Getenv("SHOW") != "" {
			t.Logf("got %v, want %v\n%s", got, want, out)
		}
	}
	t.Logf("%d of %d are equal", equal, texts)
	if equal < texts*9/10 {
		t.Errorf("only %d of %d are equal", equal, texts)
	}
}
