package daemontest

import (
	"cmp"
	"errors"
	"os"
	"os/exec"
	"testing"

	"github.com/carrel-dev/carrel/internal/testenv"
)

// kernelVar names a directory with the kernel of virtual machines, which "make need-microvm" fills.
const kernelVar = "CARREL_MICROVM"

// Machines returns the arguments of carrel serve for a daemon whose sandboxes are virtual machines.
// It skips the test where there are none.
func Machines(t testing.TB) []string {
	t.Helper()
	dir := os.Getenv(kernelVar)
	var missing error
	if dir == "" {
		missing = errors.New("no " + kernelVar + ": run make machines")
	}
	_, err := exec.LookPath("qemu-system-x86_64")
	testenv.Need(t, "microvm", cmp.Or(missing, err))
	return []string{"--microvm-kernel", dir, "--default-tier", "microvm", "--default-cpus", "1"}
}
