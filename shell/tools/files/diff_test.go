package files

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/tool/linediff/linedifftest"
)

// textOf returns the lines with these numbers as a text.
func textOf(list []int32) []byte {
	var b bytes.Buffer
	for _, n := range list {
		fmt.Fprintf(&b, "line %d\n", n)
	}
	return b.Bytes()
}

// TestDiffLikeRealDiff compares scripts for random files with those of the real diff. There may be
// several shortest scripts, so it compares their effect: the real patch with our script must make
// the second file from the first, and our script must not be longer.
func TestDiffLikeRealDiff(t *testing.T) {
	for _, program := range []string{"diff", "patch"} {
		_, err := exec.LookPath(program)
		testenv.Need(t, "simbash", err)
	}
	r := rand.New(rand.NewPCG(15, 6))
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	shorter := 0
	for i := range 60 {
		kinds, size := 2+r.IntN(40), 20+r.IntN(400)
		a := linedifftest.RandomLines(r, size, kinds)
		b := linedifftest.Edited(r, a, 1+r.IntN(12), kinds)
		if i%4 == 0 {
			b = linedifftest.RandomLines(r, size, kinds)
		}
		x := newBox(t)
		x.left = 1 << 40
		for name, data := range map[string][]byte{"a": textOf(a), "b": textOf(b)} {
			if err := x.v.WriteFile("/w/"+name, data, 0o644); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(at(name), data, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		theirs, err := exec.CommandContext(t.Context(), "diff", at("a"), at("b")).Output()
		if err != nil && len(theirs) == 0 {
			t.Fatal(err)
		}
		count := func(script string) (n int) {
			for line := range strings.Lines(script) {
				if line[0] == '<' || line[0] == '>' {
					n++
				}
			}
			return n
		}
		for _, option := range []string{"--normal", "-u", "-c", "-U0"} {
			var out bytes.Buffer
			diff(&tool.Call{Host: x, Ctx: t.Context(), Name: "diff", Args: []string{option, "a", "b"}, Out: &out, Err: &out})
			if option == "--normal" {
				ours, limit := count(out.String()), count(string(theirs))
				if ours > limit {
					t.Errorf("script of %d lines, diff has %d:\n%s\n%s", ours, limit, textOf(a), textOf(b))
				}
				if ours < limit {
					shorter++
				}
			}
			if out.Len() == 0 {
				continue
			}
			cmd := exec.CommandContext(t.Context(), "patch", "-s", "-o", at("out"), at("a"))
			cmd.Stdin = bytes.NewReader(out.Bytes())
			if msg, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%s: patch: %v %s\n%s", option, err, msg, out.String())
			}
			if got, err := os.ReadFile(at("out")); err != nil || !bytes.Equal(got, textOf(b)) {
				t.Errorf("%s: patch makes another file: %v\n%s", option, err, out.String())
			}
			code := x.run(t, patch, out.Bytes(), "-s", "-o", "out", "a")
			if got, err := x.v.ReadFile("/w/out"); err != nil || !bytes.Equal(got, textOf(b)) {
				t.Errorf("%s: our patch ends with %d and makes another file: %v\n%s%s", option, code, err, got, out.String())
			}
		}
	}
	t.Logf("%d of 60 scripts are shorter than those of diff", shorter)
}
