package box_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carrel-dev/carrel/internal/testenv"
)

// started is a running command that has printed "up".
type started struct {
	w     *world
	cmd   *exec.Cmd
	lines *bufio.Reader
	errs  *strings.Builder
}

// start starts a command and waits for its first line, which is "up".
func (w *world) start(cmd *exec.Cmd) *started {
	w.t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	s := &started{w: w, cmd: cmd, lines: bufio.NewReader(out), errs: &strings.Builder{}}
	cmd.Stderr, cmd.WaitDelay = s.errs, 30*time.Second
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if line, err := s.lines.ReadString('\n'); line != "up\n" {
		_ = cmd.Wait()
		w.t.Fatalf("%q, %v: %s", line, err, s.errs)
	}
	return s
}

// end waits for the end of the command and of its output. Both must come: no process may hold the
// output any more.
func (s *started) end() syscall.WaitStatus {
	s.w.t.Helper()
	late := time.AfterFunc(time.Minute, func() { _ = s.cmd.Process.Kill(); s.w.t.Error("it did not end") })
	defer late.Stop()
	_, _ = io.Copy(io.Discard, s.lines)
	_ = s.cmd.Wait()
	return s.cmd.ProcessState.Sys().(syscall.WaitStatus)
}

// startAndKill starts a command, and kills it once it is up.
func (w *world) startAndKill(cmd *exec.Cmd) {
	w.t.Helper()
	s := w.start(cmd)
	if err := cmd.Process.Kill(); err != nil {
		w.t.Fatal(err)
	}
	s.end()
}

// marked returns this machine's processes whose command line contains a mark.
func marked(mark string) (pids []string) {
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, p := range all {
		line, _ := os.ReadFile(p)
		if strings.Contains(string(line), mark) {
			pids = append(pids, p+" "+strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return pids
}

// noneLeft waits a moment for all marked processes to be gone.
func noneLeft(t *testing.T, mark string) {
	t.Helper()
	testenv.EventuallyNil(t, "no process is left", func() error {
		if left := marked(mark); len(left) > 0 {
			return fmt.Errorf("%v are", left)
		}
		return nil
	})
}

// children starts processes that try to outlive the box.
const children = `trap '' TERM HUP INT
for i in 1 2; do bash -c 'exec -a MARK sleep 600' & done
setsid bash -c 'trap "" TERM HUP INT; exec -a MARK sleep 600' >/dev/null 2>&1 </dev/null &
(setsid bash -c 'exec -a MARK sleep 600' &) 
nohup bash -c 'exec -a MARK sleep 600' >/dev/null 2>&1 &
disown -a
sleep 0.1
`

// TestLife shows how a box ends, and that nothing of it is left.
func TestLife(t *testing.T) {
	// Under nohup this process ignores SIGHUP, and so would every program that it starts.
	// A signal that is caught here has its default action there.
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	t.Cleanup(func() { signal.Stop(hangup) })
	both(t, func(t *testing.T, w *world) {
		needBox(t, w)
		for _, c := range []struct {
			name   string
			flags  []string
			then   string
			do     func(*os.Process) error
			code   int
			signal syscall.Signal
		}{
			{"the command ends", nil, "echo up; exit 7", nil, 7, 0},
			{"SIGTERM to the runner", nil, "trap - TERM; echo up; sleep 600 & wait", func(p *os.Process) error { return p.Signal(syscall.SIGTERM) }, -1, syscall.SIGTERM},
			{"SIGTERM to the runner, handled inside", nil, "trap 'exit 9' TERM; echo up; sleep 600 & wait", func(p *os.Process) error { return p.Signal(syscall.SIGTERM) }, 9, 0},
			{"SIGHUP to the runner", nil, "trap - HUP; echo up; sleep 600 & wait", func(p *os.Process) error { return p.Signal(syscall.SIGHUP) }, -1, syscall.SIGHUP},
			{"SIGINT to the runner", nil, "trap 'exit 8' INT; echo up; sleep 600 & wait", func(p *os.Process) error { return p.Signal(syscall.SIGINT) }, 8, 0},
			{"SIGUSR1 to the runner", nil, "trap 'exit 6' USR1; echo up; sleep 600 & wait", func(p *os.Process) error { return p.Signal(syscall.SIGUSR1) }, 6, 0},
			{"SIGKILL to the runner", nil, "echo up; sleep 600 & wait", func(p *os.Process) error { return p.Kill() }, -1, syscall.SIGKILL},
			{"SIGKILL to the runner, with a network", []string{"--internet"}, "echo up; sleep 600 & wait", func(p *os.Process) error { return p.Kill() }, -1, syscall.SIGKILL},
			{"a timeout", []string{"--timeout", "4s"}, "echo up; sleep 600 & wait; sleep 600", nil, 124, 0},
		} {
			w.sub(t, c.name, func(t *testing.T) {
				mark := "mark-" + word()
				cmd := w.box(append(c.flags, "-c", strings.ReplaceAll(children, "MARK", mark)+c.then)...)
				s := w.start(cmd)
				if c.do != nil {
					testenv.EventuallyNil(t, "the children start", func() error {
						if all := marked(mark); len(all) < 5 {
							return fmt.Errorf("only %v did", all)
						}
						return nil
					})
					if err := c.do(cmd.Process); err != nil {
						t.Fatal(err)
					}
				}
				st := s.end()
				if st.Exited() && st.ExitStatus() != c.code || st.Signaled() && st.Signal() != c.signal || st.Signaled() != (c.signal != 0) {
					t.Errorf("exit %d, %v, want %d, %v: %s", st.ExitStatus(), st.Signal(), c.code, c.signal, s.errs)
				}
				if c.name == "a timeout" && !strings.Contains(s.errs.String(), "4s") {
					t.Errorf("the limit is not named: %s", s.errs)
				}
				noneLeft(t, mark)
			})
		}
		w.sub(t, "stopped and continued", func(t *testing.T) { testStop(t, w) })
		t.Run("orphans are reaped", func(t *testing.T) {
			r := w.run(w.box("-c", `for i in $(seq 50); do (sh -c 'true &' &) ; done; for i in $(seq 200); do n=$(grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null | wc -l); [ $n = 0 ] && break; sleep 0.1; done; echo $n`))
			if r.out != "0\n" {
				t.Errorf("%q zombies %s", r.out, r.err)
			}
		})
		t.Run("pids", func(t *testing.T) {
			r := w.run(w.box("-c", "ls -d /proc/[0-9]* | wc -l; echo $PPID; ls -l /proc/1/fd 2>/dev/null | grep -c -- '->'"))
			f := strings.Fields(r.out)
			if len(f) != 3 || len(f[0]) > 1 || f[1] != "1" && f[1] != "0" || f[2] != "0" {
				t.Errorf("%q %s", r.out, r.err)
			}
		})
		w.sub(t, "a runner whose parent dies", func(t *testing.T) {
			mark := "mark-" + word()
			s := w.start(w.command("bash", "-c", w.carrel+" run -c 'bash -c \"exec -a "+mark+" sleep 600\" & echo up; wait' & wait"))
			_ = s.cmd.Process.Kill()
			// The same as outside: the runner goes on until somebody ends it.
			for _, line := range marked(mark) {
				if strings.Contains(line, "run") {
					var pid int
					_, _ = fmt.Sscanf(line, "/proc/%d/", &pid)
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
			}
			_ = s.cmd.Wait() // for the end of its output, which the runner holds
			noneLeft(t, mark)
		})
	})
}

// testStop stops the whole box by stopping its runner.
func testStop(t *testing.T, w *world) {
	cmd := w.box("-c", "echo up; while :; do echo tick; sleep 0.02; done")
	s := w.start(cmd)
	for _, step := range []struct {
		send  syscall.Signal
		state string // the runner's state to wait for; "" for none
	}{{syscall.SIGTSTP, "T"}, {syscall.SIGCONT, "SR"}, {syscall.SIGTERM, ""}} {
		if err := cmd.Process.Signal(step.send); err != nil {
			t.Fatal(err)
		}
		testenv.EventuallyNil(t, "the runner's state changes", func() error {
			if is := processState(cmd.Process.Pid); step.state != "" && !strings.Contains(step.state, is) {
				return fmt.Errorf("after %v it is %s", step.send, is)
			}
			return nil
		})
	}
	if st := s.end(); !st.Signaled() || st.Signal() != syscall.SIGTERM {
		t.Errorf("%v %s", st, s.errs)
	}
}

// processState returns the kernel's letter for a process's state.
func processState(pid int) string {
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(data), ") ")
	return rest[:min(1, len(rest))]
}

// TestLimits reaches each limit. The message must name it.
func TestLimits(t *testing.T) {
	both(t, func(t *testing.T, w *world) {
		for _, c := range []struct {
			name  string
			flags []string
			args  []string
			says  []string
		}{
			{"memory", []string{"--memory", "100M"}, []string{"memory", "mb=400"}, []string{"memory", "100"}},
			{"memory of many", []string{"--memory", "100M"}, []string{"memory", "mb=400", "count=8"}, []string{"memory", "100"}},
			{"processes", []string{"--pids", "60"}, []string{"fork", "count=200"}, []string{"pids", "60"}},
			{"time", []string{"--timeout", "1s"}, []string{"sleep", "seconds=60"}, []string{"1s"}},
			{"file size", []string{"--file-size", "10M"}, []string{"disk", "mb=40", "paths=" + w.project}, []string{"file", "10"}},
			{"tmp", []string{"--tmp-size", "10M"}, []string{"disk", "mb=40", "paths=/tmp"}, []string{"/tmp", "10"}},
		} {
			t.Run(c.name, func(t *testing.T) {
				known(t)
				r := w.run(w.box(append(append(c.flags, "--", w.attack), c.args...)...))
				if strings.Contains(r.out, "HARM") {
					t.Errorf("the limit did not hold: %s", r.out)
				}
				for _, s := range c.says {
					if !strings.Contains(lastCarrel(r.err), s) {
						t.Errorf("%q is not in the message: exit %d\n%s", s, r.code, r.err)
					}
				}
			})
		}
		t.Run("processor", func(t *testing.T) {
			if r := w.run(w.box("--cpu", "0.5", "--", "true")); r.code != 0 {
				t.Errorf("%d %s", r.code, r.err)
			}
		})
	})
}

// lastCarrel returns the lines that Carrel itself wrote.
func lastCarrel(text string) string {
	if i := strings.Index(text, "carrel: "); i >= 0 {
		return text[i:]
	}
	return ""
}
