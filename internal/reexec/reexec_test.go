package reexec_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/carrel-dev/carrel/internal/reexec"
)

func TestMain(m *testing.M) {
	if reexec.Run(reexec.Parts{
		"carrel-part":    func() { fmt.Print("one") },
		"carrel-two sub": func() { fmt.Print("two") },
	}) {
		return
	}
	os.Exit(m.Run())
}

func TestPartsArePlayedByName(t *testing.T) {
	if !reexec.Ready() {
		t.Fatal("Ready is false after Run")
	}
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"first argument", []string{"carrel-part", "-x"}, "one"},
		{"first two arguments", []string{"carrel-two", "sub", "x"}, "two"},
		{"no part", []string{"carrel-two", "-test.run=^$"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := exec.Command("/proc/self/exe")
			cmd.Args = c.args
			out, _ := cmd.CombinedOutput()
			if c.want != "" && string(out) != c.want {
				t.Errorf("output %q, want %q", out, c.want)
			}
			if c.want == "" && (bytes.Contains(out, []byte("one")) || bytes.Contains(out, []byte("two"))) {
				t.Errorf("a part was played: %q", out)
			}
		})
	}
}
