package shell_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel/internal/testenv"
)

// stranger is a program written only from this package's documentation.
const stranger = `package main

import (
	"context"
	"fmt"

	"github.com/carrel-dev/carrel/shell"
)

func main() {
	m, err := shell.New(shell.Options{})
	if err != nil {
		panic(err)
	}
	defer m.Close()
	r, err := m.Run(context.Background(), "seq 3 | paste -sd+ | bc; git init -q && git status --short --branch")
	fmt.Print(r.Stdout, r.Stderr, err, "\n")
}
`

// TestStranger builds and runs a separate module that requires this one. It uses the module cache
// and no network.
func TestStranger(t *testing.T) {
	testenv.Long(t, "it links a whole machine")
	goTool, err := exec.LookPath("go")
	testenv.Need(t, "go", err)
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	sum, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	// Use the versions that this module requires, so that nothing must be downloaded.
	_, requires, _ := strings.Cut(string(mod), "\nrequire")
	text := "module example.org/stranger\n\ngo 1.26\n\nrequire github.com/carrel-dev/carrel v0.0.0\n\nreplace github.com/carrel-dev/carrel => " + root + "\n\nrequire" + requires
	for name, content := range map[string]string{"main.go": stranger, "go.mod": text, "go.sum": string(sum)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), goTool, "run", ".")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod -trimpath -buildvcs=false", "GOPROXY=off", "GOWORK=off", "GONOSUMDB=*", "GOTOOLCHAIN=local")
	out, err := cmd.Output()
	if ee, ok := errors.AsType[*exec.ExitError](err); ok {
		if text := string(ee.Stderr); strings.Contains(text, "module lookup disabled by GOPROXY=off") {
			testenv.Need(t, "modules", fmt.Errorf("the module cache lacks something: %.300s", text))
		}
		t.Fatalf("%v: %s", err, ee.Stderr)
	}
	if want := "6\n## No commits yet on master\n<nil>\n"; err != nil || string(out) != want {
		t.Errorf("%q %v, want %q", out, err, want)
	}
}
