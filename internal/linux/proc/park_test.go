//go:build linux

package proc

import (
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// parker is a variable that has this test's binary park its descriptor 3 and wait for its standard
// input to end.
const parker = "CARREL_TEST_PARKER"

// TestPark shows that a parked file stays open as long as its process lives, and no longer.
func TestPark(t *testing.T) {
	if os.Getenv(parker) != "" {
		if err := Park(3); err != nil {
			t.Fatal(err)
		}
		_ = unix.Close(3)
		_, _ = os.Stdout.WriteString("parked")
		_, _ = io.Copy(io.Discard, os.Stdin)
		syscall.Exit(0)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestPark$")
	cmd.Env = append(os.Environ(), parker+"=1")
	cmd.ExtraFiles = []*os.File{w}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	if _, err := io.ReadFull(out, make([]byte, len("parked"))); err != nil {
		t.Fatal(err)
	}
	if err := r.SetReadDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Read(make([]byte, 1)); !os.IsTimeout(err) {
		t.Errorf("it is not open while the process lives: %v", err)
	}
	_ = in.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if err := r.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("it is open after the process's end: %v", err)
	}
}
