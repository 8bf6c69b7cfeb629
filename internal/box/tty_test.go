//go:build linux

package box_test

import (
	"bytes"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carrel-dev/carrel/internal/box"
)

// session is a box with a terminal.
type session struct {
	*box.Box
	t   *testing.T
	all bytes.Buffer
}

func open(t *testing.T, s box.Spec, o box.Options) *session {
	t.Helper()
	need(t)
	s.Terminal = [3]bool{true, true, true}
	b, err := box.Start(t.Context(), s, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Kill(); _, _ = b.Wait(); _ = b.Terminal().Close() })
	return &session{Box: b, t: t}
}

// until reads until the terminal has shown a text.
func (s *session) until(text string) {
	s.t.Helper()
	_ = s.Terminal().SetReadDeadline(time.Now().Add(30 * time.Second))
	buf := make([]byte, 4096)
	for !strings.Contains(s.all.String(), text) {
		n, err := s.Terminal().Read(buf)
		s.all.Write(buf[:n])
		if err != nil {
			s.t.Fatalf("waiting for %q: %v after %q", text, err, s.all.String())
		}
	}
	s.all.Reset()
}

func (s *session) typed(text string) {
	s.t.Helper()
	if _, err := io.WriteString(s.Terminal(), text); err != nil {
		s.t.Fatal(err)
	}
}

func TestTerminal(t *testing.T) {
	s := open(t, shell(`tty; test -t 0 && test -t 1 && echo yes > /dev/tty; read line; echo "got $line"`), box.Options{})
	s.until("/dev/pts/0\r\nyes\r\n")
	s.typed("hello\n")
	s.until("got hello\r\n")
	if e, err := s.Wait(); err != nil || e.Code != 0 {
		t.Error(e, err)
	}
}

func TestInterruptFromTerminal(t *testing.T) {
	s := open(t, shell("echo ready; exec sleep 1000"), box.Options{})
	s.until("ready")
	s.typed("\x03")
	if e, err := s.Wait(); err != nil || (e.Signal != syscall.SIGINT && e.Code != 130) {
		t.Error(e, err)
	}
}

func TestStoppedFromTerminal(t *testing.T) {
	stopped := make(chan bool, 8)
	s := open(t, shell("echo ready; read x; echo awake; read x"), box.Options{Events: box.Events{Stopped: func() { stopped <- true }}})
	s.until("ready")
	s.typed("\x1a")
	select {
	case <-stopped:
	case <-time.After(30 * time.Second):
		t.Fatal("it did not stop")
	}
	if err := s.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	s.typed("\n")
	s.until("awake")
	s.typed("\n")
	if e, err := s.Wait(); err != nil || e.Code != 0 {
		t.Error(e, err)
	}
}

func TestJobControl(t *testing.T) {
	p := plain("/bin/bash", "--norc", "-i")
	p.Env = append(p.Env, "PS1=$ ", "TERM=dumb")
	s := open(t, p, box.Options{})
	s.until("$ ")
	s.typed("sed -u s/n/N/\n")
	s.typed("one\n")
	s.until("oNe") // from sed: it runs
	s.typed("\x1a")
	s.until("Stopped")
	s.typed("jobs; fg\n")
	s.until("sed -u s/n/N/\r\nsed -u s/n/N/")
	s.typed("nine\n")
	s.until("Nine")
	s.typed("\x03")
	s.until("$ ")
	s.typed("exit 9\n")
	if e, err := s.Wait(); err != nil || e.Code != 9 {
		t.Error(e, err)
	}
}
