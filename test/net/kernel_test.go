package net

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/test/aptmirror"
	"github.com/carrel-dev/carrel/test/daemontest"
)

// TestMachineGetKernel has a daemon without a kernel for virtual machines get Debian's, as a user
// does, and makes a machine without a restart.
func TestMachineGetKernel(t *testing.T) {
	testenv.Long(t, "it downloads a kernel, and boots two machines")
	args := daemontest.Machines(t)
	if len(args) < 2 || args[0] != "--microvm-kernel" {
		t.Fatalf("%q: the first is not the kernel", args)
	}
	mirror := aptmirror.Serve(t, "kernel")
	h := openAs(t, newOutside(t), carrel.MicroVM, append(args[2:], "--debian-mirror", mirror)...)
	create := func() (carrel.Sandbox, error) {
		return h.svc.Create(t.Context(), carrel.CreateOptions{Tier: carrel.MicroVM, Timeout: 10 * time.Minute,
			Limits: carrel.Limits{MemoryMB: 256}})
	}
	if _, err := create(); carrel.KindOf(err) != carrel.Unsupported || !strings.Contains(carrel.HintOf(err), "carrel template get kernel") {
		t.Fatalf("without a kernel: %v, hint %q", err, carrel.HintOf(err))
	}
	out, err := h.CLI("template", "get", "kernel").Output()
	if err != nil || !strings.HasPrefix(string(out), "kernel sha256:") {
		t.Fatalf("template get kernel: %q, %v", out, err)
	}
	sb, err := create()
	if err != nil {
		t.Fatal(err)
	}
	c, err := h.svc.Computer(t.Context(), sb.ID)
	if err != nil {
		t.Fatal(err)
	}
	// The kernel is the one that was got, and loads a module of those that came with it.
	r, err := c.Run(t.Context(), carrel.Command{Shell: "uname -r && ip link add br5 type bridge && echo made", User: "root", Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	found, err := filepath.Glob(filepath.Join(h.Dir, "vm-kernel", "kernel-*", "kernel.json"))
	if err != nil || len(found) != 1 {
		t.Fatalf("%v, %v", found, err)
	}
	manifest, err := os.ReadFile(found[0])
	if err != nil {
		t.Fatal(err)
	}
	release, rest, _ := strings.Cut(string(r.Stdout), "\n")
	if !strings.Contains(string(manifest), "linux-image-"+release+`"`) || rest != "made\n" {
		t.Errorf("%s%s\n%s", r.Stdout, r.Stderr, manifest)
	}
	if out, err := h.CLI("doctor").CombinedOutput(); err != nil || !strings.Contains(string(out), release) {
		t.Errorf("carrel doctor does not tell the kernel: %v\n%s", err, out)
	}
}
