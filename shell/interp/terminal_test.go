package interp_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carrel-dev/carrel/shell/internal/patience"
	"github.com/carrel-dev/carrel/shell/interp"
)

// session is a person at an interactive shell.
type session struct {
	t    *testing.T
	tty  *interp.TTY
	p    *interp.Process
	mu   sync.Mutex
	text strings.Builder
	seen int // up to where want has looked

	shell int // its process group
}

func newSession(t *testing.T, args ...string) *session {
	t.Helper()
	m := newMachine(t, interp.Limits{Procs: 100, Memory: 64 << 20})
	s := &session{t: t, tty: m.NewTTY(80, 24)}
	p, err := m.Start(interp.Spec{Path: "bash", Args: args, Dir: "/work", TTY: s.tty,
		Env: []string{"HOME=/root", "PATH=/usr/bin:/bin", `PS1=\w\$ `, "HISTCONTROL=ignoredups"}})
	if err != nil {
		t.Fatal(err)
	}
	s.p, s.shell = p, s.tty.Front()
	go func() {
		b := make([]byte, 4096)
		for {
			n, err := s.tty.Read(b)
			s.mu.Lock()
			s.text.Write(b[:n])
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return s
}

// shows reports whether the screen shows a text after the last text that was found. If so, it moves
// behind it.
func (s *session) shows(text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := strings.Index(s.text.String()[s.seen:], text)
	if at >= 0 {
		s.seen += at + len(text)
	}
	return at >= 0
}

// want waits until the screen shows a text after the last text that was found.
func (s *session) want(text string) {
	s.t.Helper()
	s.until(text, func() bool { return s.shows(text) })
}

// until waits for a condition.
func (s *session) until(what string, so func() bool) {
	s.t.Helper()
	patience.Until(s.t, "the screen is right", func() error {
		if so() {
			return nil
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		return fmt.Errorf("it lacks %q after %q", what, s.text.String()[s.seen:])
	})
}

// job waits until a job is in the foreground of the terminal. Only then do the keys that stop or
// end a job reach it.
func (s *session) job() {
	s.t.Helper()
	s.until("a job in front", func() bool { f := s.tty.Front(); return f != 0 && f != s.shell })
}

func (s *session) keys(text string) {
	s.t.Helper()
	if _, err := s.tty.Write([]byte(text)); err != nil {
		s.t.Fatal(err)
	}
}

// say types a line at the prompt and waits for its output.
func (s *session) say(line, want string) {
	s.t.Helper()
	s.keys(line + "\r")
	s.want("\r\n" + want)
	s.want("# ")
}

// TestInteractive is a session with jobs, editing, history and completion.
func TestInteractive(t *testing.T) {
	s := newSession(t, "-i")
	s.want("/work# ")
	s.say("echo $-", "himBHs\r\n")
	// Jobs.
	s.keys("sleep 1000\r")
	s.want("sleep 1000\r\n")
	s.job()
	s.keys("\x1a")
	s.want("[1]+  Stopped                 sleep 1000\r\n")
	s.want("# ")
	s.say("echo $?", "148\r\n")
	s.say("jobs", "[1]+  Stopped                 sleep 1000\r\n")
	s.say("bg", "[1]+ sleep 1000 &\r\n")
	s.say("jobs", "[1]+  Running                 sleep 1000 &\r\n")
	s.keys("fg\r")
	s.want("\r\nsleep 1000\r\n")
	s.job()
	s.keys("\x03")
	s.want("^C")
	s.want("# ")
	s.say("echo $?; jobs", "130\r\n")
	s.keys("sleep 0.05 &\r")
	s.want("[1] ")
	s.want("# ")
	s.until("Done", func() bool { // it is told before a prompt
		s.keys("\r")
		return s.shows("[1]+  Done                    sleep 0.05\r\n")
	})
	s.say("echo next", "next\r\n")
	// A stopped reader leaves the terminal to the shell. It reads again in the foreground.
	s.keys("cat\r")
	s.want("cat\r\n")
	s.job()
	s.keys("\x1a")
	s.want("Stopped                 cat\r\n")
	s.say("echo mine", "mine\r\n")
	s.keys("fg\r")
	s.want("\r\ncat\r\n")
	s.job()
	s.keys("line\r")
	s.want("line\r\nline\r\n")
	s.keys("\x04")
	s.want("# ")
	// Editing.
	s.say("ecXo a\x01\x1b[C\x1b[C\x1b[3~h", "a\r\n")
	s.say("echo one two\x17three", "one three\r\n")
	s.say("garbage\x15echo kept", "kept\r\n")
	s.say("echo abc\x02\x02\x0b\x19", "abc\r\n")
	s.say("echo x\x1b[D\x1b[D\x1b[D\x1b[Dy\x7f\x05z", "xz\r\n")
	// History.
	s.say("echo first", "first\r\n")
	s.say("\x1b[A", "first\r\n")
	s.say("echo second", "second\r\n")
	s.say("\x10\x10", "first\r\n")
	s.say("\x12sec", "second\r\n")
	s.say("history 2", "")
	// Completion.
	s.say("mkdir -p some-directory/inner; touch 'a file' unique-name", "")
	s.say("ls -d some\t", "some-directory/\r\n")
	s.say("echo uni\t end", "unique-name end\r\n")
	s.say("unali\t-a", "")
	// Continuation, interrupts, and errors.
	s.keys("if true\r")
	s.want("> ")
	s.keys("then echo inside; fi\r")
	s.want("\r\ninside\r\n")
	s.keys("echo 'open\r")
	s.want("> ")
	s.keys("\x03")
	s.want("# ")
	s.say("echo $?", "130\r\n")
	s.keys("while :; do :; done\r")
	time.Sleep(50 * time.Millisecond)
	s.keys("\x03")
	s.want("# ")
	s.say("echo alive", "alive\r\n")
	s.say("set -u; echo $nope; set +u", "bash: nope: unbound variable\r\n")
	s.say("fi", "bash: ")
	s.say("alias ll='echo listed'; ll", "")
	s.say("ll", "listed\r\n")
	s.say("PROMPT_COMMAND='f() { f; }; f'", "")
	s.say("PROMPT_COMMAND=", "")
	s.keys("exit 3\r")
	if e := s.p.Wait(); e.Code != 3 {
		t.Errorf("%+v", e)
	}
}

// TestInterruptAtOnce presses ^C at various moments of a command's start. It must never be lost.
func TestInterruptAtOnce(t *testing.T) {
	s := newSession(t, "-i")
	s.want("# ")
	for i := range 100 {
		s.keys("sleep 1000\r")
		time.Sleep(time.Duration(i*4) * time.Microsecond)
		s.keys("\x03")
		s.want("# ")
	}
	s.say("echo $?", "130\r\n")
}

// TestInteractiveEnd ends sessions in each possible way.
func TestInteractiveEnd(t *testing.T) {
	s := newSession(t)
	s.want("# ")
	s.keys("\x04")
	s.want("exit\r\n")
	if e := s.p.Wait(); e.Code != 0 {
		t.Errorf("%+v", e)
	}
	s = newSession(t)
	s.want("# ")
	s.keys("sleep 1000\r")
	s.job()
	s.keys("\x1a")
	s.want("# ")
	s.keys("exit\r")
	s.want("There are stopped jobs.")
	s.want("# ")
	s.keys("exit\r")
	s.p.Wait()
	s = newSession(t, "--login")
	s.want("# ")
	s.keys("logout\r")
	s.p.Wait()
}
