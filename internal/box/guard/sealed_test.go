//go:build linux

package guard

import (
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/linux/seccomp"
	"github.com/carrel-dev/carrel/internal/refusal"
)

// TestCallerThatEnded kills a caller while the guard decides about its call. Another process may
// have the caller's socket. So nothing may be allowed when the guard can't look at the caller any
// more.
func TestCallerThatEnded(t *testing.T) {
	cmd := exec.Command("true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	for _, sealed := range []bool{false, true} {
		g, err := New(Rules{Sealed: sealed}, refusal.New(refusal.Options{}), func() *os.File { return nil })
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close()
		gone := seccomp.Call{PID: cmd.Process.Pid, Name: "connect"}
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		for range 2 { // the second time, a remembered answer could be wrong
			if _, known := g.sharesNetwork(gone); known {
				t.Error("its network is known")
			}
			if (&socket{fd: fd, call: gone, guard: g}).ofCaller() {
				t.Error("a socket passes for its own")
			}
			file, err := os.Create(t.TempDir() + "/young")
			if err != nil {
				t.Fatal(err)
			}
			if w := g.madeInside(gone, int(file.Fd())); w != foreign {
				t.Errorf("whose a young file is: %d", w)
			}
			_ = file.Close()
		}
		if a := g.connectAbstract(&socket{fd: fd, call: gone, guard: g}, append([]byte{unix.AF_UNIX, 0, 0}, "x"...)); a.Errno == 0 || a.Continue {
			t.Errorf("an abstract name: %+v", a)
		}
		if _, err := g.credentials(gone); err == nil {
			t.Error("its user is known")
		}
	}
}
