package seccomp

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/testenv"
)

// stranger is the uid of the unprivileged tests. No account has it.
const stranger = 54321

func init() {
	children["closed"] = func([]string) {
		_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
		p, _ := unix.BytePtrFromString("/closed")
		n, e := openat(p, unix.O_RDWR)
		fmt.Println(n, e)
	}
}

// TestClosedMemory uses a caller whose memory can't be read. Its calls can only be refused.
func TestClosedMemory(t *testing.T) {
	f := Filter{WatchWrites: true}
	c := start(t, f, "closed")
	c.serve(t, f, func(c Call) Answer {
		if p, err := c.Path(0, 1); err == nil && p == "/closed" { // by a user with rights
			return Answer{Value: 3}
		}
		return Answer{Errno: unix.EACCES}
	})
	if out := c.finish(t); out != "3 errno 0\n" && out != "-1 permission denied\n" {
		t.Error(out)
	}
}

// TestAsStranger runs the other tests that start processes as an unprivileged user.
func TestAsStranger(t *testing.T) {
	if os.Geteuid() == stranger {
		testenv.Inapplicable(t, "this is the stranger")
	}
	if os.Geteuid() != 0 {
		testenv.Need(t, "root", errors.New("root, to become another user"))
	}
	dir := t.TempDir()
	for d := dir; d != os.TempDir() && len(d) > 1; d = filepath.Dir(d) {
		_ = os.Chmod(d, 0o755)
	}
	own, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{os.WriteFile(dir+"/test", own, 0o755), os.Mkdir(dir+"/tmp", 0o777), os.Chown(dir+"/tmp", stranger, stranger)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(dir+"/test", "-test.run", "^Test(Dangerous|Programs|Foreign|Network|Flipped|Many|Signals|Files|Caller|Close|Box|Listener)")
	cmd.Dir = dir + "/tmp"
	cmd.Env = append(os.Environ(), "TMPDIR="+dir+"/tmp", "HOME="+dir+"/tmp")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: stranger, Gid: stranger}}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
