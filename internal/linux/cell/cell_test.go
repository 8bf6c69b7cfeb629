//go:build linux && !cgo

package cell

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/testenv"
)

// TestMain plays the cell, which tries operations that it must not be able to do.
func TestMain(m *testing.M) {
	if os.Args[0] == "carrel-test-cell" {
		play()
	}
	os.Exit(m.Run())
}

func play() {
	if err := Enter(Limits{Files: 64, Memory: 1 << 30}); err != nil {
		fmt.Println("enter:", err)
		os.Exit(1)
	}
	tries := map[string]error{}
	_, tries["open"] = os.Open("/")
	_, tries["create"] = os.Create("/x")
	tries["mkdir"] = os.Mkdir("/x", 0o700)
	_, tries["stat"] = os.Stat("/etc/passwd")
	_, tries["exec"] = os.StartProcess("/bin/true", []string{"true"}, &os.ProcAttr{})
	_, tries["tcp"] = net.Dial("tcp", "127.0.0.1:1")
	_, tries["socket"] = unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	_, tries["pair"] = unix.Socketpair(unix.AF_INET, unix.SOCK_STREAM, 0)
	tries["kill"] = unix.Kill(1, 0)
	tries["mount"] = unix.Mount("", "/", "tmpfs", 0, "")
	tries["unshare"] = unix.Unshare(unix.CLONE_NEWUSER)
	tries["setns"] = unix.Setns(0, 0)
	tries["ptrace"] = unix.PtraceAttach(1)
	_, tries["memfd"] = unix.MemfdCreate("x", 0)
	for name, err := range tries {
		if err == nil {
			fmt.Println("allowed:", name)
		}
	}
	// Operations that a cell needs: memory, threads, its own descriptors, timers.
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		fmt.Println("socketpair:", err)
	}
	done := make(chan int)
	for range 20 {
		go func() { done <- len(make([]byte, 1<<20)) }()
	}
	for range 20 {
		<-done
	}
	if _, err := syscall.Write(fds[0], []byte("x")); err != nil {
		fmt.Println("write:", err)
	}
	f := os.NewFile(3, "given")
	b := make([]byte, 5)
	if _, err := f.ReadAt(b, 0); err != nil || string(b) != "given" {
		fmt.Println("read:", string(b), err)
	}
	fmt.Println("end")
	os.Exit(0)
}

// TestCell starts a cell. Only the operations on its own descriptors and memory may work.
func TestCell(t *testing.T) {
	uid := os.Geteuid()
	if uid == 0 {
		uid = 54377
	}
	f, err := os.CreateTemp(t.TempDir(), "given")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString("given"); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{"carrel-test-cell"}
	cmd.Env = []string{"GOTRACEBACK=all"}
	cmd.ExtraFiles = []*os.File{f}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = Start(cmd, uid)
	testenv.Need(t, "userns", err)
	if err := cmd.Wait(); err != nil || strings.TrimSpace(out.String()) != "end" {
		t.Errorf("%v: %s", err, out.String())
	}
}
