package box_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/testenv"
)

// screen acts as a person at a terminal.
type screen struct {
	w      *world
	cmd    *exec.Cmd
	master *os.File
	before *unix.Termios

	mu   sync.Mutex
	text bytes.Buffer
	seen int // how much of it was waited for
}

// onScreen starts a command on its own terminal.
func (w *world) onScreen(cmd *exec.Cmd) *screen {
	w.t.Helper()
	s := &screen{w: w, cmd: cmd}
	callersTerminal(w)
	s.master = w.master
	s.resize(100, 30)
	s.before = s.modes()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = w.slave, w.slave, w.slave
	cmd.SysProcAttr.Setctty, cmd.SysProcAttr.Ctty = true, 0
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := s.master.Read(buf)
			s.mu.Lock()
			s.text.Write(buf[:n])
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return s
}

// modes returns the terminal's settings.
func (s *screen) modes() *unix.Termios {
	m, err := unix.IoctlGetTermios(int(s.w.slave.Fd()), unix.TCGETS)
	if err != nil {
		s.w.t.Fatal(err)
	}
	return m
}

func (s *screen) resize(cols, rows uint16) {
	if err := pty.Setsize(s.master, &pty.Winsize{Cols: cols, Rows: rows}); err != nil {
		s.w.t.Fatal(err)
	}
}

// types types.
func (s *screen) types(text string) {
	if _, err := s.master.WriteString(text); err != nil {
		s.w.t.Fatal(err)
	}
}

// sees waits for a text that comes after all text seen before.
func (s *screen) sees(text string) {
	s.w.t.Helper()
	testenv.EventuallyNil(s.w.t, "the screen shows a text", func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		all := s.text.String()
		i := strings.Index(all[s.seen:], text)
		if i < 0 {
			return fmt.Errorf("no %q on it:\n%s", text, all)
		}
		s.seen += i + len(text)
		return nil
	})
}

// says types a line and waits for an answer. The line itself must not contain the answer.
func (s *screen) says(line, answer string) {
	s.w.t.Helper()
	s.types(line + "\r")
	s.sees(answer)
}

// ends waits for the end, and checks that the terminal's settings are as before.
func (s *screen) ends() syscall.WaitStatus {
	s.w.t.Helper()
	done := make(chan error, 1)
	go func() { done <- s.cmd.Wait() }()
	select {
	case <-done:
	case <-time.After(time.Minute):
		s.w.t.Fatalf("it did not end:\n%s", s.text.String())
	}
	after := s.modes()
	if after.Lflag != s.before.Lflag || after.Iflag != s.before.Iflag || after.Oflag != s.before.Oflag {
		s.w.t.Errorf("the terminal is not as it was: %x, %x, %x", after.Lflag, after.Iflag, after.Oflag)
	}
	return s.cmd.ProcessState.Sys().(syscall.WaitStatus)
}

// TestTerminal acts as a person at a shell in a box.
func TestTerminal(t *testing.T) {
	testenv.Long(t, "keys typed at the right moment need a machine that is not busy: part of make test-all; internal/box has the terminal's own tests")
	both(t, func(t *testing.T, w *world) {
		needBox(t, w)
		w.sub(t, "an interactive shell", func(t *testing.T) { testShell(t, w, "bash", "--norc", "-i") })
		w.sub(t, "zsh", func(t *testing.T) {
			_, err := exec.LookPath("zsh")
			testenv.Need(t, "zsh", err)
			testShell(t, w, "zsh", "-f", "-i")
		})
		w.sub(t, "a command", func(t *testing.T) { testTerminalCommand(t, w) })
		w.sub(t, "stopped by ctrl-z", func(t *testing.T) { testSuspend(t, w) })
		w.sub(t, "the window closes", func(t *testing.T) {
			mark := "mark-" + word()
			s := w.onScreen(w.box("--", "bash", "-c", "echo up$((1)); exec -a "+mark+" sleep 600"))
			s.sees("up1")
			_ = w.master.Close()
			_ = w.slave.Close()
			_ = s.cmd.Process.Signal(syscall.SIGHUP)
			_ = s.cmd.Wait()
			noneLeft(t, mark)
		})
		w.sub(t, "output to a pipe", func(t *testing.T) {
			s := w.onScreen(w.command("bash", "-c", w.carrel+" run -- sh -c 'test -t 0 && echo in; test -t 1 || echo pipe' | cat; echo done$((1))"))
			s.sees("in\r\npipe")
			s.sees("done1")
			s.ends()
		})
		w.sub(t, "input from a pipe", func(t *testing.T) {
			s := w.onScreen(w.command("bash", "-c", "echo data | "+w.carrel+" run -- sh -c 'cat; test -t 1 && echo screen'; echo done$((1))"))
			s.sees("data\r\nscreen")
			s.sees("done1")
			s.ends()
		})
	})
}

// testShell uses a shell with job control.
func testShell(t *testing.T, w *world, shell ...string) {
	cmd := w.box(append([]string{"--"}, shell...)...)
	cmd.Env = append(cmd.Env, "PS1=PROMPT> ", "HISTFILE=/dev/null")
	s := w.onScreen(cmd)
	s.sees("PROMPT> ")
	s.says("echo $((40+2))", "42")
	s.says("stty size", "30 100")
	s.resize(77, 11)
	time.Sleep(500 * time.Millisecond) // it comes by a signal
	s.says("stty size", "11 77")
	s.says("tty", "/dev/pts/")
	s.says("sleep 500", "sleep 500")
	time.Sleep(300 * time.Millisecond)
	s.types("\x03") // ctrl-c
	s.sees("PROMPT> ")
	s.says("echo code $?", "code 130")
	s.says("sleep 501", "sleep 501")
	time.Sleep(300 * time.Millisecond)
	s.types("\x1a") // ctrl-z
	s.sees("topped")
	s.says("jobs", "topped")
	s.says("fg", "sleep 501")
	time.Sleep(300 * time.Millisecond)
	s.types("\x03")
	s.sees("PROMPT> ")
	s.says("sleep 502 & echo bg$((1))", "bg1")
	s.says("kill %1; wait; echo waited$((1))", "waited1")
	s.says("cat", "cat")
	s.says("typed", "typed\r\ntyped")
	s.types("\x04") // the end of input
	s.sees("PROMPT> ")
	s.types("stty -echo; read -r x; stty echo; echo got ${x}!\r")
	time.Sleep(300 * time.Millisecond)
	s.types("hidden\r")
	s.sees("got hidden!")
	s.types("exit 5\r")
	if st := s.ends(); st.ExitStatus() != 5 {
		t.Errorf("%v\n%s", st, s.text.String())
	}
	if strings.Contains(s.text.String(), "job control") || strings.Contains(s.text.String(), "ioctl") {
		t.Errorf("%s", s.text.String())
	}
}

// testTerminalCommand runs commands other than shells on a terminal.
func testTerminalCommand(t *testing.T, w *world) {
	s := w.onScreen(w.box("--", "sleep", "600"))
	time.Sleep(time.Second)
	s.types("\x03")
	if st := s.ends(); !st.Signaled() || st.Signal() != syscall.SIGINT {
		t.Errorf("ctrl-c: exit %d, %v %s", st.ExitStatus(), st.Signal(), s.text.String())
	}
	s = w.onScreen(w.box("--", "python3", "-c", "import os,sys; print(os.isatty(0), os.isatty(1), os.get_terminal_size().columns, os.ttyname(0)[:9]); print('line '+input())"))
	s.sees("True True 100 /dev/pts/")
	s.types("typed\r")
	s.sees("line typed")
	s.ends()
}

// testSuspend stops a box from an outer shell.
func testSuspend(t *testing.T, w *world) {
	cmd := w.command("bash", "--norc", "-i")
	cmd.Env = append(cmd.Env, "PS1=OUTER> ", "HISTFILE=/dev/null")
	s := w.onScreen(cmd)
	s.sees("OUTER> ")
	// Use one process: a shell that is just forking loses the key, outside of a box too.
	s.says(w.carrel+` run -- python3 -u -c 'import time,itertools; print("up%d"%1); [print("tick%d"%1) or time.sleep(0.2) for _ in itertools.repeat(0)]'`, "up1")
	time.Sleep(200 * time.Millisecond)
	s.types("\x1a")
	s.sees("topped")
	s.sees("OUTER> ")
	s.says("echo in between $((1+1))", "in between 2")
	s.says("jobs", "topped")
	s.says("fg", "tick1")
	s.types("\x03")
	s.sees("OUTER> ")
	s.says("echo code $?", "code 130")
	s.types("exit\r")
	s.ends()
}
