package agent_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/guest"
	"github.com/carrel-dev/carrel/internal/guest/agent"
	"github.com/carrel-dev/carrel/internal/guest/oshost"
	"github.com/carrel-dev/carrel/internal/guest/process"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// ownFiles is the real Linux, except that /run is in a directory of the test.
type ownFiles struct{ elsewhere }

func (o *ownFiles) Lstat(name string) (agent.Entry, error) { return o.System.Lstat(o.at(name)) }
func (o *ownFiles) RemoveAll(name string) error            { return o.System.RemoveAll(o.at(name)) }

// newRefusable returns a guest that is told of refusals.
func newRefusable(t testing.TB) (g *guestUnderTest, dir string) {
	t.Helper()
	dir = t.TempDir()
	g = newGuest(t, trustAll, func(c *agent.Config) {
		c.System = &ownFiles{elsewhere{c.System.(*oshost.System), dir}}
		c.Denials, c.OwnerLimit = true, time.Minute
	})
	return g, dir
}

// denied is the refused decision in the tests.
var denied = carrel.Decision{ID: "iaaaaaaaaaaaaaaaaaaaa", Time: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), Protocol: "tls", Name: "api.example.com",
	Address: "203.0.113.9", Port: 443, Rule: "default", Reason: "no rule allows api.example.com", Hint: "allow api.example.com"}

// refuse tells the guest of a refusal.
func (g *guestUnderTest) refuse(t testing.TB, r guest.Refusal) guest.RefusalReply {
	t.Helper()
	body, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	code, _, answer := g.ask(t, "POST", guest.RefusedPath, string(body))
	var reply guest.RefusalReply
	if err := json.Unmarshal([]byte(answer), &reply); err != nil || code != 200 {
		t.Fatal(code, answer, err)
	}
	return reply
}

// outside is a server that keeps its clients waiting until the test lets them go.
type outside struct {
	net.Listener
	port string
}

func newOutside(t *testing.T) outside {
	t.Helper()
	if _, err := exec.LookPath("bash"); err != nil {
		testenv.Need(t, "bash", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return outside{l, port}
}

// client returns a shell line that connects and waits.
func (o outside) client() string {
	return "bash -c 'exec 3<>/dev/tcp/127.0.0.1/" + o.port + "; read line <&3'"
}

// accept returns the port of a client, and a function that lets it go.
func (o outside) accept(t *testing.T) (port uint16, release func()) {
	t.Helper()
	c, err := o.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return uint16(c.RemoteAddr().(*net.TCPAddr).Port), func() { _ = c.Close() }
}

const (
	unnamed = "carrel: denied https://api.example.com:443: no rule allows api.example.com. Ask for: allow api.example.com. See /run/carrel/denied.jsonl"
	byBash  = "carrel: denied https://api.example.com:443 (bash): no rule allows api.example.com. Ask for: allow api.example.com. See /run/carrel/denied.jsonl"
)

// told waits until a stream has shown a line on standard error or the terminal.
func (s *started) told(t *testing.T, want string) {
	t.Helper()
	e := &events{}
	for s.Receive() {
		e.add(s.Msg().GetEvent())
		if strings.Contains(e.stderr.String()+e.tty.String(), want) {
			return
		}
	}
	t.Fatalf("no %q in %q%q: %v", want, e.stderr.String(), e.tty.String(), s.Err())
}

// TestRefusalReachesTheCommand shows that the user of a command reads the reason, however deep
// below the command the program is.
func TestRefusalReachesTheCommand(t *testing.T) {
	g, dir := newRefusable(t)
	o := newOutside(t)
	bystander := g.start(t, sh("exec sleep 600"))
	for name, line := range map[string]string{
		"itself":     "exec " + o.client(),
		"a child":    o.client() + "; true",
		"far below":  "sh -c \"sh -c \\\"" + o.client() + "; true\\\"; true\"; true",
		"background": o.client() + " & wait",
		"an orphan":  "(" + o.client() + " &); cat >/dev/null",
	} {
		t.Run(name, func(t *testing.T) {
			req := sh(line)
			on := true
			req.Stdin = &on
			s := g.start(t, req)
			port, release := o.accept(t)
			reply := g.refuse(t, guest.Refusal{Event: denied, Line: guest.RefusalLine(denied), SourcePort: port})
			if !strings.HasPrefix(reply.Process, "bash (pid ") {
				t.Errorf("reply %+v", reply)
			}
			s.told(t, byBash+"\n")
			release()
			s.cancel()
		})
	}
	t.Run("terminal", func(t *testing.T) {
		req := sh(o.client())
		req.Pty = &process.PTY{Size: &process.PTY_Size{Cols: 80, Rows: 24}}
		s := g.start(t, req)
		port, release := o.accept(t)
		g.refuse(t, guest.Refusal{Event: denied, Line: guest.RefusalLine(denied), SourcePort: port})
		s.told(t, byBash+"\r\n")
		release()
	})
	t.Run("another's words", func(t *testing.T) {
		s := g.start(t, sh(o.client()))
		port, release := o.accept(t)
		g.refuse(t, guest.Refusal{Event: denied, Line: "something else", SourcePort: port})
		s.told(t, "something else\n")
		release()
		if e := s.finish(t); strings.Contains(e.stderr.String(), "carrel: denied") {
			t.Errorf("stderr %q", e.stderr.String())
		}
	})
	events := readDenied(t, dir, guest.DeniedFile)
	if len(events) != 7 || !strings.HasPrefix(events[0].Process, "bash (pid ") || events[0].Name != denied.Name || !events[0].Time.Equal(denied.Time) {
		t.Errorf("the file has %+v", events)
	}
	kill(t, bystander)
	if e := bystander.finish(t); e.stderr.Len() != 0 {
		t.Errorf("one that has nothing to do with it read %q", e.stderr.String())
	}
}

// kill ends a command through the operating system.
func kill(t *testing.T, s *started) {
	t.Helper()
	if err := syscall.Kill(int(s.pid), syscall.SIGKILL); err != nil {
		t.Error(err)
	}
}

// readDenied reads the refusals that a guest has kept.
func readDenied(t *testing.T, dir, name string) []carrel.Decision {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []carrel.Decision
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		var d carrel.Decision
		if err := json.Unmarshal(sc.Bytes(), &d); err != nil {
			t.Fatalf("%q: %v", sc.Text(), err)
		}
		out = append(out, d)
	}
	return out
}

// TestRefusalOfAnUnknownProgram shows that commands with listeners get the line, but only a few of
// them, and never the template's own command.
func TestRefusalOfAnUnknownProgram(t *testing.T) {
	g, _ := newRefusable(t)
	tag := guest.StartTag
	start := sh("exec sleep 600")
	start.Tag = &tag
	services := g.start(t, start)
	var commands []*started
	for range 4 {
		commands = append(commands, g.start(t, sh("exec sleep 600")))
	}
	if reply := g.refuse(t, guest.Refusal{Event: denied, SourcePort: 1}); reply.Process != "" {
		t.Errorf("reply %+v", reply)
	}
	told := 0
	for _, s := range append(commands, services) {
		kill(t, s)
		text := s.finish(t).stderr.String()
		if text != "" && text != unnamed+"\n" {
			t.Errorf("read %q", text)
		}
		if text != "" {
			told++
			if s == services {
				t.Error("the template's own command was told")
			}
		}
	}
	if told != 3 {
		t.Errorf("%d were told", told)
	}
}

// TestRefusalsAreFew shows that a program that causes many refusals can't flood the user's output.
func TestRefusalsAreFew(t *testing.T) {
	g, dir := newRefusable(t)
	s := g.start(t, sh("exec sleep 600"))
	began := time.Now()
	for i := range 300 {
		d := denied
		d.Name = fmt.Sprintf("h%d.example.com", i)
		g.refuse(t, guest.Refusal{Event: d})
	}
	took := time.Since(began)
	kill(t, s)
	lines := strings.Count(s.finish(t).stderr.String(), "\n")
	if windows := 1 + int(took/(10*time.Second)); lines == 0 || lines > 20*windows {
		t.Errorf("%d lines in %v", lines, took)
	}
	if kept, seconds := len(readDenied(t, dir, guest.DeniedFile)), 1+int(took/time.Second); kept < 20 || kept > 100*seconds {
		t.Errorf("%d kept in %v", kept, took)
	}
}

// TestRefusalWaitsForNobody shows that a client that takes nothing does not delay a refusal.
func TestRefusalWaitsForNobody(t *testing.T) {
	g, _ := newRefusable(t)
	s := g.start(t, sh("exec yes carrel")) // and its stream is not read
	for range 50 {
		g.refuse(t, guest.Refusal{Event: denied})
	}
	kill(t, s)
}

func TestRefusalIsTheHosts(t *testing.T) {
	t.Run("inside", func(t *testing.T) {
		g := newGuest(t)
		s := g.start(t, sh("exec sleep 600"))
		if code, _, answer := g.ask(t, "POST", guest.RefusedPath, `{"event":{"rule":"default"},"line":"carrel: pay here"}`); code != 403 {
			t.Errorf("from inside: %d %s", code, answer)
		}
		kill(t, s)
		if e := s.finish(t); e.stderr.Len() > 0 {
			t.Errorf("read %q", e.stderr.String())
		}
	})
	g := newGuest(t, trustAll)
	for body, want := range map[string]int{"": 400, "{": 400, `{"line":1}`: 400, `{"line":"` + strings.Repeat("x", 1<<20) + `"}`: 400} {
		if code, _, answer := g.ask(t, "POST", guest.RefusedPath, body); code != want {
			t.Errorf("%.20q: %d %s", body, code, answer)
		}
	}
	if code, _, _ := g.ask(t, "GET", guest.RefusedPath, ""); code != 405 {
		t.Errorf("GET: %d", code)
	}
}

func TestSilence(t *testing.T) {
	g, dir := newRefusable(t)
	g.init(t, guest.InitRequest{Silent: true, AccessToken: "token"})
	g.refuse(t, guest.Refusal{Event: denied})
	if _, err := os.Lstat(filepath.Join(dir, guest.DeniedFile)); err == nil {
		t.Error("a silent sandbox has a file")
	}
	g.init(t, guest.InitRequest{AccessToken: "token"})
	g.refuse(t, guest.Refusal{Event: denied})
	if events := readDenied(t, dir, guest.DeniedFile); len(events) != 1 {
		t.Errorf("%+v", events)
	}
}

// TestDeniedFileStaysSmall shows that a large file becomes the old file.
func TestDeniedFileStaysSmall(t *testing.T) {
	g, dir := newRefusable(t)
	d := denied
	d.Path = "/" + strings.Repeat("x", 50<<10)
	for range 50 {
		g.refuse(t, guest.Refusal{Event: d})
	}
	for _, name := range []string{guest.DeniedFile, guest.DeniedFile + ".1"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Size() > 1<<20 || info.Size() == 0 || info.Mode().Perm() != 0o644 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
		readDenied(t, dir, name)
	}
}

// TestDeniedFileIsReplaced shows that the guest does not follow, or wait for, a file that root
// inside puts at the path.
func TestDeniedFileIsReplaced(t *testing.T) {
	g, dir := newRefusable(t)
	name := filepath.Join(dir, guest.DeniedFile)
	victim := filepath.Join(dir, "victim")
	if err := os.WriteFile(victim, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	for what, put := range map[string]func() error{
		"nothing":           func() error { return nil },
		"a link":            func() error { return os.Symlink(victim, name) },
		"a link to nowhere": func() error { return os.Symlink(filepath.Join(dir, "new"), name) },
		"a pipe":            func() error { return syscall.Mkfifo(name, 0o600) },
		"a directory":       func() error { return os.MkdirAll(filepath.Join(name, "full"), 0o700) },
		"another file":      func() error { return os.WriteFile(name, []byte("x"), 0o600) },
		"an old directory": func() error {
			_ = os.Remove(name + ".1")
			return os.MkdirAll(filepath.Join(name+".1", "full"), 0o700)
		},
	} {
		t.Run(what, func(t *testing.T) {
			g.refuse(t, guest.Refusal{Event: denied})
			if what != "an old directory" {
				if err := os.Remove(name); err != nil {
					t.Fatal(err)
				}
			}
			if err := put(); err != nil {
				t.Fatal(err)
			}
			g.refuse(t, guest.Refusal{Event: denied})
			if events := readDenied(t, dir, guest.DeniedFile); len(events) == 0 {
				t.Error("nothing is kept")
			}
			if info, err := os.Lstat(name); err != nil || info.Mode()&^fs.ModePerm != 0 {
				t.Errorf("it is %v, %v", info, err)
			}
			_ = os.RemoveAll(name + ".1")
		})
	}
	if data, err := os.ReadFile(victim); err != nil || string(data) != "precious" {
		t.Errorf("the link's target has %q, %v", data, err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "new")); err == nil {
		t.Error("a link was followed")
	}
}
