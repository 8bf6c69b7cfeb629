package carrel_test

import (
	"os/exec"
	"strings"
	"testing"
)

// TestOtherSystems checks the program for systems on which Carrel can't isolate sandboxes. It holds
// only the clients, "carrel run" and "carrel sim", without the daemon and its heavy modules. "make
// cross" checks that it builds there.
func TestOtherSystems(t *testing.T) {
	for _, system := range []string{"darwin", "windows"} {
		cmd := exec.Command("go", "list", "-deps", "./cmd/carrel")
		cmd.Env = append(cmd.Environ(), "GOOS="+system, "GOARCH=arm64", "CGO_ENABLED=0")
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v", system, err)
		}
		linked := strings.Fields(string(out))
		for _, dep := range linked {
			for _, heavy := range []string{"gvisor.dev/", "k8s.io/", module + "/internal/daemon", module + "/internal/state", module + "/internal/service", module + "/internal/driver", module + "/internal/box", module + "/internal/wire", module + "/internal/guest/guestbin"} {
				if strings.HasPrefix(dep, heavy) {
					t.Errorf("%s: %s is linked", system, dep)
				}
			}
		}
		if len(linked) < 50 {
			t.Errorf("%s: only %d packages", system, len(linked))
		}
	}
}
