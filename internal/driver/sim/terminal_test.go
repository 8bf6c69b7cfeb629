package sim_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/sim"
	"github.com/carrel-dev/carrel/internal/guest"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// box makes a sandbox and a connection to its guest.
func box(t testing.TB, l carrel.Limits) (driver.Instance, *guest.Conn) {
	t.Helper()
	spec := driver.Spec{ID: carrel.NewID(), Limits: l}
	in, err := sim.New(sim.Options{}).Create(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	c := guest.NewConn(in.Dial, guest.ConnOptions{ID: spec.ID})
	t.Cleanup(func() {
		_ = c.Close()
		if err := in.Destroy(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if err := c.Init(t.Context(), guest.InitRequest{Timestamp: time.Now(), Hostname: "box"}); err != nil {
		t.Fatal(err)
	}
	return in, c
}

// screen collects the output of a terminal.
type screen struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (s *screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.Write(b)
}

// want waits until the screen shows text. It drops the output up to there.
func (s *screen) want(t testing.TB, text string) {
	t.Helper()
	testenv.EventuallyNil(t, "the screen shows a text", func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		at := strings.Index(s.buf.String(), text)
		if at < 0 {
			return fmt.Errorf("it lacks %q: %q", text, s.buf.String())
		}
		s.buf.Next(at + len(text))
		return nil
	})
}

// TestTerminal runs an interactive session, started as the SDKs start one.
func TestTerminal(t *testing.T) {
	_, c := box(t, carrel.Limits{MemoryMB: 64, DiskMB: 64, Pids: 64})
	var s screen
	p, err := c.Start(t.Context(), carrel.Command{Args: []string{"/bin/bash", "-i", "-l"}, TTY: &carrel.Size{Cols: 80, Rows: 24}, Stdout: &s})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	say := func(text string) {
		t.Helper()
		if _, err := io.WriteString(p, text); err != nil {
			t.Fatal(err)
		}
	}
	s.want(t, "user@box:~$ ")
	say("echo $((6*7)) from $(tty)\r")
	s.want(t, "\r\n42 from /dev/pts/0\r\n")
	s.want(t, "$ ")
	say("stty size\r")
	s.want(t, "\r\n24 80\r\n")
	if err := p.Resize(t.Context(), carrel.Size{Cols: 132, Rows: 50}); err != nil {
		t.Fatal(err)
	}
	s.want(t, "$ ")
	say("stty size\r")
	s.want(t, "\r\n50 132\r\n")
	s.want(t, "$ ")
	say("echo hel\x7f\x7fello\r") // backspace edits
	s.want(t, "\r\nhello\r\n")
	s.want(t, "$ ")
	say("sleep 1000\r")
	s.want(t, "sleep 1000\r\n")
	say("\x03")
	s.want(t, "^C")
	s.want(t, "$ ")
	say("echo status $?\r")
	s.want(t, "\r\nstatus 130\r\n")
	s.want(t, "$ ")
	say("for i in 1 2\rdo echo it $i\rdone\r")
	s.want(t, "> ")
	s.want(t, "it 1\r\nit 2\r\n")
	s.want(t, "$ ")
	say("(((\x03")
	s.want(t, "$ ")
	say("cat\r")
	s.want(t, "cat\r\n")
	say("one line\r")
	s.want(t, "one line\r\none line\r\n") // the echo, and cat
	say("\x04")                           // ends cat, not the shell
	say("cd /tmp; x='kept state'\r")
	s.want(t, "/tmp$ ")
	say("echo $x; nosuch\r")
	s.want(t, "\r\nkept state\r\n")
	s.want(t, "nosuch: command not found\r\n")
	_, _ = io.WriteString(p, "exit 5\r") // the shell may be gone before this is acknowledged
	res, err := p.Wait(t.Context())
	if err != nil || res.ExitCode != 5 {
		t.Errorf("%+v, %v", res, err)
	}
}

// TestRefusals checks that sim reports actions that it can't do.
func TestRefusals(t *testing.T) {
	in, c := box(t, carrel.Limits{MemoryMB: 16, DiskMB: 1, Pids: 8})
	for _, x := range []struct {
		script, stderr string
		code           int
	}{
		{"ruby -e 1", "ruby: command not found", 127},
		{`printf '\177ELF\0\0\0' > p; chmod +x p; ./p`, "cannot execute binary file: Exec format error", 126},
		{"cat /dev/zero > big", "No space left on device", 1},
		{"cat /root/x", "Permission denied", 1},
		{"ulimit -n 1000000", "Operation not permitted", 1},
		{"echo x > /etc/passwd", "Permission denied", 1},
		{"x=x; while :; do x=$x$x; done", "", -1},
		{"ls /proc/1", "No such file or directory", 2},
	} {
		res, err := c.Run(t.Context(), carrel.Command{Shell: x.script})
		if err != nil || res.ExitCode != x.code || !strings.Contains(string(res.Stderr), x.stderr) {
			t.Errorf("%s: %+v %s, %v", x.script, res, res.Stderr, err)
		}
	}
	if _, err := c.Run(t.Context(), carrel.Command{Args: []string{"/usr/bin/ruby"}}); err == nil {
		t.Error("a program that does not exist started")
	}
	if _, err := in.Dial(t.Context(), 8080); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a port nobody listens on gave %v", err)
	}
	if res, err := c.Run(t.Context(), carrel.Command{Shell: "sudo id -u; id -un"}); err != nil || string(res.Stdout) != "0\nuser\n" {
		t.Errorf("%s %s, %v", res.Stdout, res.Stderr, err)
	}
}

// TestThousand keeps a thousand sandboxes alive at once.
func TestThousand(t *testing.T) {
	d := sim.New(sim.Options{})
	boxes := make([]driver.Instance, 1000)
	start := time.Now()
	for i := range boxes {
		in, err := d.Create(t.Context(), driver.Spec{ID: carrel.NewID(), Limits: carrel.Limits{MemoryMB: 16, DiskMB: 16, Pids: 16}})
		if err != nil {
			t.Fatal(err)
		}
		boxes[i] = in
	}
	t.Logf("made in %v", time.Since(start))
	for i := 0; i < len(boxes); i += 100 {
		c := guest.NewConn(boxes[i].Dial, guest.ConnOptions{})
		res, err := c.Run(t.Context(), carrel.Command{Shell: fmt.Sprintf("echo %d", i)})
		if err != nil || string(res.Stdout) != fmt.Sprintln(i) {
			t.Errorf("%d: %+v, %v", i, res, err)
		}
		_ = c.Close()
	}
	for _, in := range boxes {
		if err := in.Destroy(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func BenchmarkCreate(b *testing.B) {
	d := sim.New(sim.Options{})
	for b.Loop() {
		in, err := d.Create(b.Context(), driver.Spec{ID: carrel.NewID(), Limits: carrel.Limits{MemoryMB: 16, DiskMB: 16, Pids: 16}})
		if err != nil {
			b.Fatal(err)
		}
		_ = in.Destroy(b.Context())
	}
}

func BenchmarkExec(b *testing.B) {
	_, c := box(b, carrel.Limits{MemoryMB: 16, DiskMB: 16, Pids: 16})
	for b.Loop() {
		if _, err := c.Run(b.Context(), carrel.Command{Shell: "true"}); err != nil {
			b.Fatal(err)
		}
	}
}
