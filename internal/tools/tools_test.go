// Package tools_test tests the scripts in this directory.
package tools_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/carrel-dev/carrel/internal/testenv"
)

// TestPartsGoOn shows that the other parts run after a part has failed, and that the failure is
// reported.
func TestPartsGoOn(t *testing.T) {
	makeProgram, err := exec.LookPath("make")
	testenv.Need(t, "shell", err)
	script, err := filepath.Abs("parts.sh")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	rules := "good:\n\t@echo one is said\nbad:\n\t@exit 3\nlast:\n\t@echo three is said\n" +
		"all:\n\t+@" + script + " good bad last\nfine:\n\t+@" + script + " good last\n"
	if err := os.WriteFile(filepath.Join(dir, "Makefile"), []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	for target, want := range map[string]string{
		"all":  `(?s)one is said.*three is said.*\ngood +ok +\d+\nbad +FAILED +\d+\nlast +ok +\d+\n`,
		"fine": `(?s)one is said.*three is said.*\ngood +ok +\d+\nlast +ok +\d+\n$`,
	} {
		for _, jobs := range []string{"-j1", "-j4"} {
			out, err := exec.Command(makeProgram, "--no-print-directory", "-C", dir, jobs, target).CombinedOutput()
			var exit *exec.ExitError
			if failed := errors.As(err, &exit); failed != (target == "all") || (err != nil && !failed) {
				t.Errorf("make %s %s: %v\n%s", jobs, target, err, out)
			}
			if !regexp.MustCompile(want).Match(out) {
				t.Errorf("make %s %s says\n%s", jobs, target, out)
			}
		}
	}
}
