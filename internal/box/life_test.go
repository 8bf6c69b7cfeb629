//go:build linux

package box_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carrel-dev/carrel/internal/box"
	"github.com/carrel-dev/carrel/internal/testenv"
)

func init() { helpers["parent"] = parent }

// parent starts a box whose command has children, prints the pids, and waits.
func parent() {
	s := plain("/bin/sh", "-c", "sleep 1000 & setsid sleep 1000 & exec sleep 1000")
	s.Light = len(os.Args) > 2
	b, err := box.Start(context.Background(), s, box.Options{})
	if err != nil {
		fmt.Println("error", err)
		return
	}
	time.Sleep(300 * time.Millisecond)
	fmt.Println(b.Stage(), b.PID())
	_, _ = b.Wait()
}

// gone waits for the end of a process.
func gone(t *testing.T, pid int) {
	t.Helper()
	testenv.EventuallyNil(t, "the process is gone", func() error {
		b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err != nil || strings.Contains(string(b), ") Z ") {
			return nil
		}
		return fmt.Errorf("process %d is still there: %s", pid, b)
	})
}

func TestEndsWithItsParent(t *testing.T) {
	need(t)
	for _, args := range [][]string{{"parent"}, {"parent", "light"}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			cmd := exec.Command("/proc/self/exe", args...)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(out).ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			var pids [2]int
			if _, err := fmt.Sscan(line, &pids[0], &pids[1]); err != nil {
				t.Fatal(line)
			}
			var all []int
			testenv.EventuallyNil(t, "all four run", func() error {
				if all = descendants(pids[0]); len(all) < 4 {
					return fmt.Errorf("only %v", all)
				}
				return nil
			})
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			for _, pid := range append(all, pids[:]...) {
				gone(t, pid)
			}
		})
	}
}

// descendants returns a process and all its descendants.
func descendants(pid int) []int {
	out := []int{pid}
	for i := 0; i < len(out); i++ {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", out[i], out[i]))
		list, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", out[i]))
		for _, e := range list {
			if e.Name() != strconv.Itoa(out[i]) {
				more, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", out[i], e.Name()))
				b = append(append(b, ' '), more...)
			}
		}
		for _, w := range strings.Fields(string(b)) {
			n, _ := strconv.Atoi(w)
			out = append(out, n)
		}
	}
	return out
}

func TestBackgroundEndsWithTheCommand(t *testing.T) {
	for _, light := range []bool{false, true} {
		s := shell("sleep 1000 & setsid sleep 1000 & echo $!")
		s.Light = light
		out, exit := output(t, s, box.Options{}) // output returns only after they have ended
		if exit.Code != 0 || out == "" {
			t.Errorf("%q %+v", out, exit)
		}
	}
}

func TestSignals(t *testing.T) {
	need(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	b, err := box.Start(t.Context(), shell(`trap 'echo got; exit 7' USR1; echo ready; while :; do sleep 0.01; done`), box.Options{Stdout: w})
	_ = w.Close()
	if err != nil {
		t.Fatal(err)
	}
	out := bufio.NewReader(r)
	if line, err := out.ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatal(line, err)
	}
	if pid := b.PID(); pid <= 0 || pid == b.Stage() || syscall.Kill(pid, 0) != nil {
		t.Errorf("pid %d, stage %d", pid, b.Stage())
	}
	if err := b.Freeze(); err != nil {
		t.Error(err)
	}
	if stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", b.PID())); !strings.Contains(string(stat), ") T ") {
		t.Logf("not yet stopped: %s", stat)
	}
	if err := b.Thaw(); err != nil {
		t.Error(err)
	}
	if err := b.Signal(syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	if line, _ := out.ReadString('\n'); line != "got\n" {
		t.Errorf("%q", line)
	}
	if e, err := b.Wait(); err != nil || e.Code != 7 {
		t.Error(e, err)
	}
	if err := b.Kill(); err != nil {
		t.Error(err)
	}
	if b.PID() != 0 {
		t.Error("a pid after the end")
	}
}

func TestTimeout(t *testing.T) {
	need(t)
	told := make(chan string, 8)
	s := shell("sleep 1000 & sleep 1000")
	s.Limits.Timeout = 100 * time.Millisecond
	_, exit := output(t, s, box.Options{Events: box.Events{Limit: func(name, value string) { told <- name + " " + value }}})
	if exit.Limit != "timeout" || exit.Signal != syscall.SIGKILL || <-told != "timeout 100ms" {
		t.Errorf("%+v", exit)
	}
}

func TestCancel(t *testing.T) {
	need(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := box.Start(ctx, plain("true"), box.Options{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestMemoryLimit(t *testing.T) {
	for _, group := range []string{"", "carrel-box-test"} {
		t.Run("group "+group, func(t *testing.T) {
			s := shell("head -c 400m /dev/zero | tail -c 400m > /dev/null; sleep 1; echo alive; sleep 1000")
			s.Limits = box.Limits{Memory: 64 << 20, Timeout: 60 * time.Second}
			if group != "" && os.Geteuid() == 0 { // the kernel ends only the process that uses too much
				s.Args[2] = "head -c 400m /dev/zero | tail -c 400m > /dev/null; echo alive"
			}
			_, exit := output(t, s, box.Options{Cgroup: group})
			if exit.Limit != "memory" {
				t.Errorf("%+v", exit)
			}
		})
	}
}

func TestPidLimit(t *testing.T) {
	s := shell("for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39 40; do sleep 1000 & done 2>/dev/null; echo all")
	s.Limits.Pids = 20
	if out, _ := output(t, s, box.Options{Cgroup: "carrel-box-test"}); strings.Contains(out, "all") {
		t.Error("40 processes within 20")
	}
}

func TestFileLimits(t *testing.T) {
	s := shell("head -c 3m /dev/zero > /tmp/x; stat -c %s /tmp/x; ulimit -n; ulimit -n 5000 2>/dev/null && echo more")
	s.Limits = box.Limits{FileSize: 1 << 20, OpenFiles: 64}
	out, _ := output(t, s, box.Options{})
	if !strings.Contains(out, "1048576\n64\n") || strings.Contains(out, "more") {
		t.Errorf("%q", out)
	}
}

func TestTmpSize(t *testing.T) {
	s := shell("head -c 3m /dev/zero > /tmp/x 2>/dev/null; stat -c %s /tmp/x")
	s.TmpSize = 1 << 20
	expect(t, s, "1048576\n")
}

func TestManyLeakNothing(t *testing.T) {
	need(t)
	n := 1000
	if testing.Short() {
		n = 50
	}
	run := func() {
		b, err := box.Start(t.Context(), plain("/bin/true"), box.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if e, err := b.Wait(); err != nil || e != (box.Exit{CPU: e.CPU, MaxMemory: e.MaxMemory}) {
			t.Fatal(e, err)
		}
	}
	run()
	before := descriptors(t)
	children := len(descendants(os.Getpid()))
	for range n {
		run()
	}
	if after := descriptors(t); after > before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
	if now := len(descendants(os.Getpid())); now > children {
		t.Errorf("%d processes before, %d after", children, now)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

func TestDetached(t *testing.T) {
	need(t)
	s := plain("/bin/sleep", "1000")
	s.Init = true
	b, err := box.Start(t.Context(), s, box.Options{Detach: true})
	if err != nil {
		t.Fatal(err)
	}
	if b.PID() != b.Stage() {
		t.Error("with Init they are one")
	}
	if err := b.Signal(syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	if e, err := b.Wait(); err != nil || e.Signal != syscall.SIGKILL {
		t.Error(e, err)
	}
}

var _ = io.Discard

// TestCrashIsTold crashes a stage while the command runs. The stage no longer has the standard
// streams then. SIGQUIT makes Go's runtime crash.
func TestCrashIsTold(t *testing.T) {
	need(t)
	b, err := box.Start(t.Context(), plain("/bin/sleep", "1000"), box.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(b.Stage(), syscall.SIGQUIT); err != nil {
		t.Fatal(err)
	}
	_, err = b.Wait()
	if err == nil || !strings.Contains(err.Error(), "exit 2") || !strings.Contains(err.Error(), "SIGQUIT") || !strings.Contains(err.Error(), "goroutine") {
		t.Errorf("a crash is told as: %v", err)
	}
}
