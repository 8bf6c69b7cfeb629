//go:build linux

package umounter

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/carrel-dev/carrel/internal/testenv"
)

// passedBy is the exit status of a child that the package did not take for its own.
const passedBy = 42

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "umount" {
		os.Exit(passedBy)
	}
	os.Exit(m.Run())
}

// play starts this program as gVisor starts the child, with args. The namespaces have a locked
// /proc, so nothing can be unmounted. It returns the exit status.
func play(t *testing.T, uid int, args string, say string) int {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := w.WriteString(say); err != nil {
		t.Fatal(err)
	}
	w.Close()
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = strings.Split(args, " ")
	cmd.ExtraFiles = []*os.File{r}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: uid, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: uid, HostID: os.Getegid(), Size: 1}},
	}
	err = cmd.Run()
	if cmd.ProcessState == nil {
		testenv.Need(t, "userns", err)
	}
	return cmd.ProcessState.ExitCode()
}

func TestOnlyTheSentrysChild(t *testing.T) {
	const exact = "/proc/self/exe umount --sync-fd=3 /proc"
	for what, c := range map[string]struct {
		uid  int
		args string
		say  string
		want int
	}{
		"told, and the kernel refuses": {nobody, exact, "x", 1},
		"never told":                   {nobody, exact, "", 1},
		"not nobody":                   {0, exact, "x", passedBy},
		"another path":                 {nobody, "/proc/self/exe umount --sync-fd=3 /", "x", passedBy},
		"another name":                 {nobody, "carrel-sentry umount --sync-fd=3 /proc", "x", passedBy},
		"more arguments":               {nobody, exact + " /sys", "x", passedBy},
	} {
		if got := play(t, c.uid, c.args, c.say); got != c.want {
			t.Errorf("%s: exit status %d, want %d", what, got, c.want)
		}
	}
}
