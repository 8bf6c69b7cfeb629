package dockerfile_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"

	"github.com/carrel-dev/carrel/internal/build/dockerfile"
	"github.com/carrel-dev/carrel/internal/build/plan"
)

// anyBase resolves every base.
func anyBase(context.Context, plan.Source) (plan.Config, error) { return plan.Config{}, nil }

// TestDockersOwnFiles reads the test files of BuildKit's parser, from the module's directory. Each
// parses here if BuildKit takes it, and is refused if BuildKit refuses it. Those that begin with a
// FROM make a plan.
func TestDockersOwnFiles(t *testing.T) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/moby/buildkit").Output()
	if err != nil || len(strings.TrimSpace(string(out))) == 0 {
		t.Fatalf("the module's directory: %v", err)
	}
	dir := filepath.Join(strings.TrimSpace(string(out)), "frontend/dockerfile/parser")
	for _, kind := range []string{"testfiles", "testfiles-negative"} {
		files, err := filepath.Glob(filepath.Join(dir, kind, "*", "Dockerfile"))
		if err != nil || len(files) < 3 {
			t.Fatalf("%s: %d files, %v", kind, len(files), err)
		}
		planned := 0
		for _, name := range files {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			f, err := dockerfile.Parse(string(text))
			if want := buildkitSays(string(text)); (err == nil) != (want == nil) {
				t.Errorf("%s: %v, and BuildKit says %v", name, err, want)
			}
			if err != nil {
				continue
			}
			if _, err := f.Plan(t.Context(), dockerfile.Options{}, anyBase); err == nil {
				planned++
			} else if !known[filepath.Base(filepath.Dir(name))] {
				t.Errorf("%s: %v", name, err)
			}
		}
		if kind == "testfiles" && planned < 15 {
			t.Errorf("%d of %d files make a plan", planned, len(files))
		}
	}
}

// known are files of BuildKit that parse and that no builder could build.
var known = map[string]bool{
	"env":     true, // a quote that is never closed
	"escapes": true, // the same
}

// buildkitSays parses a file as BuildKit does.
func buildkitSays(text string) error {
	read, err := parser.Parse(strings.NewReader(text))
	if err == nil {
		_, _, err = instructions.Parse(read.AST, nil)
	}
	return err
}

// FuzzDockerfile plans any text. It must end, and every step of a plan must have a line of the
// file.
func FuzzDockerfile(f *testing.F) {
	for _, text := range []string{
		"FROM a\nRUN b\n", "ARG A=$A$A\nFROM ${A:-x}\nARG A\nENV B=${A%x}${B/y/z}\n",
		"FROM a AS b\nCOPY --from=b <<E x\n$y\nE\n",
		"# escape=`\nFROM a\nRUN <<-E\n\t#!x\nE\n", "FROM a\nONBUILD ONBUILD COPY a b\nFROM a\n", "FROM a\nRUN --mount=type=cache,target=${X},mode=9 y\n",
		"FROM --platform=$BUILDPLATFORM a\nHEALTHCHECK --interval=1h CMD x\nCMD []\nENTRYPOINT\n",
		"FROM a\nEXPOSE 1-2/tcp $X\nWORKDIR ..\nADD http://a/b c\n",
		"FROM a AS x\nONBUILD COPY --from=0 a b\nFROM x\nCOPY --from=0 a b\n",
		"FROM a\nCMD [\"sh\",\"-c\",\"\"]\nSHELL [\"a\"]\nRUN \\\n#\n b\n",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 10_000 {
			return
		}
		file, err := dockerfile.Parse(text)
		if err != nil {
			return
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		p, err := file.Plan(ctx, dockerfile.Options{Args: map[string]string{"A": "b$A"}}, anyBase)
		if err != nil {
			return
		}
		if p.Result < 0 || p.Result >= len(p.Stages) {
			t.Fatalf("result %d of %d stages", p.Result, len(p.Stages))
		}
		lines := 2 + strings.Count(text, "\n")
		for i, s := range p.Stages {
			if s.From.Stage > i {
				t.Errorf("stage %d begins from stage %d", i+1, s.From.Stage)
			}
			for _, step := range s.Steps {
				if step.Line < 1 || step.Line > lines {
					t.Errorf("a step of line %d of %d", step.Line, lines)
				}
				if c, ok := step.Op.(*plan.Copy); ok && (c.From.Stage > i ||
					!strings.HasPrefix(c.Target, "/")) {
					t.Errorf("stage %d copies from stage %d to %q", i+1, c.From.Stage, c.Target)
				}
				if r, ok := step.Op.(*plan.Run); ok && len(r.Args) == 0 {
					t.Error("a RUN of nothing")
				}
			}
		}
	})
}
