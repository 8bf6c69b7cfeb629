package sshdoor_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/carreltest"
	"github.com/carrel-dev/carrel/internal/sshdoor"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// house is a real daemon with simulated sandboxes, a door in front of it, and a key.
type house struct {
	t    *testing.T
	svc  carrel.Service
	box  carrel.Sandbox
	keys *sshdoor.Keys
	addr string
	dir  string // the client's files
	key  string // its private key

	mu    sync.Mutex
	ports map[uint16]string // listeners on the sandbox's loopback

	computers atomic.Int32
}

// Get implements sshdoor.Sandboxes.
func (h *house) Get(ctx context.Context, id carrel.ID) (carrel.Sandbox, error) {
	return h.svc.Get(ctx, id)
}

// Computer implements sshdoor.Sandboxes.
func (h *house) Computer(ctx context.Context, id carrel.ID) (carrel.Computer, error) {
	h.computers.Add(1)
	c, err := h.svc.Computer(ctx, id)
	return dialing{c, h}, err
}

// dialing gives a simulated computer ports. In a real one, programs open them.
type dialing struct {
	carrel.Computer
	h *house
}

func (d dialing) Dial(ctx context.Context, port uint16) (net.Conn, error) {
	d.h.mu.Lock()
	addr, ok := d.h.ports[port]
	d.h.mu.Unlock()
	if !ok {
		return nil, syscall.ECONNREFUSED
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
}

func newHouse(t *testing.T, change func(*sshdoor.Options)) *house {
	t.Helper()
	h := &house{t: t, svc: carreltest.New(t).Client(), dir: t.TempDir(), ports: map[uint16]string{}}
	var err error
	if h.box, err = h.svc.Create(t.Context(), carrel.CreateOptions{Lifecycle: carrel.Lifecycle{AutoResume: true}}); err != nil {
		t.Fatal(err)
	}
	if h.keys, err = sshdoor.OpenKeys(h.dir); err != nil {
		t.Fatal(err)
	}
	host, err := sshdoor.HostKey(h.dir)
	if err != nil {
		t.Fatal(err)
	}
	opts := sshdoor.Options{Sandboxes: h, HostKey: host, Keys: h.keys}
	if change != nil {
		change(&opts)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h.addr = l.Addr().String()
	door := sshdoor.New(opts)
	served := make(chan error, 1)
	go func() { served <- door.Serve(l) }()
	t.Cleanup(func() {
		_ = door.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return h
}

// newKey makes a key pair with the real ssh-keygen.
func (h *house) newKey(name string) (private, public string) {
	h.t.Helper()
	file := filepath.Join(h.dir, name)
	if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", file).CombinedOutput(); err != nil {
		h.t.Fatalf("%v: %s", err, out)
	}
	raw, err := os.ReadFile(file + ".pub")
	if err != nil {
		h.t.Fatal(err)
	}
	return file, string(raw)
}

// admit makes a key and adds it.
func (h *house) admit() {
	h.t.Helper()
	_, err := exec.LookPath("ssh")
	testenv.Need(h.t, "ssh", err)
	var public string
	h.key, public = h.newKey("mine")
	if _, err := h.keys.Add("", "mine", public, nil); err != nil {
		h.t.Fatal(err)
	}
}

// options returns the common options of ssh, scp and sftp.
func (h *house) options() []string {
	host, port, _ := net.SplitHostPort(h.addr)
	config := filepath.Join(h.dir, "config")
	text := fmt.Sprintf("Host box\n HostName %s\n Port %s\n User %s\n IdentityFile %s\n IdentitiesOnly yes\n UserKnownHostsFile %s\n StrictHostKeyChecking accept-new\n"+
		" BatchMode yes\n LogLevel ERROR\n ConnectTimeout 30\n SendEnv LC_TEST LANG PATH_TEST\n", host, port, h.box.ID, h.key, filepath.Join(h.dir, "known"))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		h.t.Fatal(err)
	}
	return []string{"-F", config}
}

// do runs a program of OpenSSH and returns its output and its exit status.
func (h *house) do(stdin io.Reader, program string, args ...string) (stdout, stderr string, code int) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, append(h.options(), args...)...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &out, &errs
	cmd.Env = append(os.Environ(), "LC_TEST=from outside", "PATH_TEST=no", "SSH_AUTH_SOCK=")
	err := cmd.Run()
	if ctx.Err() != nil {
		h.t.Fatalf("%s %q hangs: %s %s", program, args, &out, &errs)
	}
	code = cmd.ProcessState.ExitCode()
	if err != nil && code < 0 {
		h.t.Fatal(err)
	}
	return out.String(), errs.String(), code
}

// TestOpenSSH runs the real client.
func TestOpenSSH(t *testing.T) {
	h := newHouse(t, nil)
	h.admit()
	for _, c := range []struct {
		name, stdin string
		args        []string
		out, err    string
		code        int
	}{
		{"output", "", []string{"box", "echo hello; echo oops >&2"}, "hello\n", "oops\n", 0},
		{"status", "", []string{"box", "exit 7"}, "", "", 7},
		{"input", "line\nmore\n", []string{"box", "cat"}, "line\nmore\n", "", 0},
		{"language, and nothing else", "", []string{"box", `echo "$LC_TEST/$PATH_TEST"`}, "from outside/\n", "", 0},
		{"a shell without a terminal", "echo one\nexit 3\n", []string{"box"}, "one\n", "", 3},
		{"not found", "", []string{"box", "nonesuch 2>/dev/null"}, "", "", 127},
		{"another user", "", []string{"-l", "root%" + string(h.box.ID), "box", "id -un"}, "root\n", "", 0},
		{"the sandbox's user", "", []string{"box", "id -un"}, "user\n", "", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, errs, code := h.do(strings.NewReader(c.stdin), "ssh", c.args...)
			if out != c.out || errs != c.err || code != c.code {
				t.Errorf("%q, %q, status %d; want %q, %q, %d", out, errs, code, c.out, c.err, c.code)
			}
		})
	}
	out, _, code := h.do(strings.NewReader("tty; echo $TERM; stty size; exit 5\n"), "ssh", "-tt", "box")
	if code != 5 || !strings.Contains(out, "/dev/") {
		t.Errorf("a terminal: status %d, %q", code, out)
	}
	large := strings.Repeat("0123456789abcdef", 1<<16) // 1 MiB
	if out, _, code := h.do(strings.NewReader(large), "ssh", "box", "cat"); code != 0 || out != large {
		t.Errorf("%d bytes of %d came back, status %d", len(out), len(large), code)
	}
}

// TestFiles runs scp and sftp.
func TestFiles(t *testing.T) {
	h := newHouse(t, nil)
	h.admit()
	local := t.TempDir()
	content := make([]byte, 5<<20+123)
	_, _ = rand.Read(content)
	if err := os.WriteFile(filepath.Join(local, "up"), content, 0o754); err != nil {
		t.Fatal(err)
	}
	if _, errs, code := h.do(nil, "scp", "-p", filepath.Join(local, "up"), "box:up file"); code != 0 {
		t.Fatalf("upload: %s", errs)
	}
	if _, errs, code := h.do(nil, "scp", "box:up file", filepath.Join(local, "down")); code != 0 {
		t.Fatalf("download: %s", errs)
	}
	if back, err := os.ReadFile(filepath.Join(local, "down")); err != nil || !bytes.Equal(back, content) {
		t.Errorf("%d bytes came back, %v", len(back), err)
	}
	if out, _, _ := h.do(nil, "ssh", "box", "stat -c %a 'up file'"); out != "754\n" {
		t.Errorf("mode %q", out)
	}
	tree := filepath.Join(local, "tree")
	for name, text := range map[string]string{"a": "1", "b/c": "22", "b/empty": ""} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(tree, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(tree, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, errs, code := h.do(nil, "scp", "-r", tree, "box:"); code != 0 {
		t.Fatalf("a tree: %s", errs)
	}
	if out, _, _ := h.do(nil, "ssh", "box", "cat tree/a tree/b/c; wc -c < tree/b/empty"); strings.ReplaceAll(out, " ", "") != "1220\n" {
		t.Errorf("the tree: %q", out)
	}
	script := "pwd\nmkdir d\nput " + filepath.Join(local, "up") + " d/x\nrename d/x d/y\nls -1 d\nchmod 600 d/y\nget d/y " + filepath.Join(local, "y") + "\nrm d/y\nrmdir d\n-ls d\n-rmdir tree\n-reput " + filepath.Join(local, "up") + " tree/a\n"
	out, errs, code := h.do(strings.NewReader(script), "sftp", "-b", "-", "box")
	if code != 0 || !strings.Contains(out, "/home/user") || !strings.Contains(out, "d/y") || !strings.Contains(errs, "not found") {
		t.Errorf("sftp: status %d\n%s\n%s", code, out, errs)
	}
	if back, err := os.ReadFile(filepath.Join(local, "y")); err != nil || !bytes.Equal(back, content) {
		t.Errorf("sftp get: %d bytes, %v", len(back), err)
	}
	if out, _, _ := h.do(nil, "ssh", "box", "cat tree/a"); out != "1" {
		t.Errorf("a refused resumption or rmdir changed the file: %q", out)
	}
}

// listen opens a port of the sandbox that echoes until the client closes its half.
func (h *house) listen(port uint16) {
	h.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = l.Close() })
	h.mu.Lock()
	h.ports[port] = l.Addr().String()
	h.mu.Unlock()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				raw, _ := io.ReadAll(c)
				fmt.Fprintf(c, "%d:%s", port, raw)
			}()
		}
	}()
}

// TestForwards shows that -W reaches the sandbox's own localhost, and nothing else.
func TestForwards(t *testing.T) {
	h := newHouse(t, nil)
	h.admit()
	h.listen(8080)
	h.listen(carrel.GuestPort)
	outside, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer outside.Close()
	_, outsidePort, _ := net.SplitHostPort(outside.Addr().String())
	for _, host := range []string{"localhost", "127.0.0.1", "127.1.2.3", "[::1]", string(h.box.ID)} {
		if out, errs, _ := h.do(strings.NewReader("ping"), "ssh", "-W", host+":8080", "box"); out != "8080:ping" {
			t.Errorf("%s: %q %s", host, out, errs)
		}
	}
	for _, where := range []string{"127.0.0.1:" + outsidePort, "192.0.2.1:8080", "example.com:80", "169.254.169.254:80", "0.0.0.0:8080", "localhost:9", fmt.Sprintf("localhost:%d", carrel.GuestPort)} {
		if out, _, code := h.do(strings.NewReader("x"), "ssh", "-W", where, "box"); code == 0 || out != "" {
			t.Errorf("%s is reached: %q", where, out)
		}
	}
	if _, errs, code := h.do(nil, "ssh", "-o", "ExitOnForwardFailure=yes", "-R", "0:localhost:"+outsidePort, "box", "true"); code == 0 {
		t.Errorf("it listens for the client: %s", errs)
	}
	if out, _, code := h.do(nil, "ssh", "-A", "box", "echo x$SSH_AUTH_SOCK"); out != "x\n" || code != 0 {
		t.Errorf("the client's agent is there: %q", out)
	}
	_ = outside.(*net.TCPListener).SetDeadline(time.Now().Add(10 * time.Millisecond))
	if c, err := outside.Accept(); err == nil {
		c.Close()
		t.Error("somebody connected to this host")
	}
}

// dialAs tries to log in. It returns the error without its address.
func (h *house) dialAs(user string, signer ssh.Signer) (*ssh.Client, string) {
	c, err := ssh.Dial("tcp", h.addr, &ssh.ClientConfig{User: user, Auth: []ssh.AuthMethod{ssh.PublicKeys(signer)}, HostKeyCallback: ssh.InsecureIgnoreHostKey(), Timeout: 30 * time.Second}) //nolint:gosec // a test of authentication the other way
	if err != nil {
		return nil, err.Error()
	}
	return c, ""
}

// signer makes a key that the door knows for these sandboxes, or does not know at all.
func (h *house) signer(name string, known bool, boxes ...carrel.ID) ssh.Signer {
	h.t.Helper()
	s, err := sshdoor.NewHostKey()
	if err != nil {
		h.t.Fatal(err)
	}
	if known {
		if _, err := h.keys.Add("", name, string(ssh.MarshalAuthorizedKey(s.PublicKey())), boxes); err != nil {
			h.t.Fatal(err)
		}
	}
	return s
}

// TestStrangers shows that a wrong key, an unknown sandbox, a sandbox that the key is not for, and
// an invalid name all get the same answer, and wake nothing.
func TestStrangers(t *testing.T) {
	h := newHouse(t, nil)
	other, err := h.svc.Create(t.Context(), carrel.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	good, stranger, limited := h.signer("good", true), h.signer("", false), h.signer("limited", true, h.box.ID)
	answers := map[string][]string{}
	for name, c := range map[string]struct {
		user string
		key  ssh.Signer
	}{
		"a stranger":                     {string(h.box.ID), stranger},
		"a stranger, no such sandbox":    {string(carrel.NewID()), stranger},
		"a good key, no such sandbox":    {string(carrel.NewID()), good},
		"a good key, no ID":              {"root", good},
		"a good key, a bad user":         {"-x%" + string(h.box.ID), good},
		"a good key, an empty user":      {"%" + string(h.box.ID), good},
		"a limited key, another sandbox": {string(other.ID), limited},
		"a limited key, no such sandbox": {string(carrel.NewID()), limited},
	} {
		c, text := h.dialAs(c.user, c.key)
		if c != nil {
			c.Close()
			t.Errorf("%s passes", name)
		}
		answers[text] = append(answers[text], name)
	}
	if len(answers) != 1 {
		t.Errorf("the answers differ: %v", answers)
	}
	if n := h.computers.Load(); n != 0 {
		t.Errorf("a stranger made %d computers open", n)
	}
	for user, key := range map[string]ssh.Signer{string(h.box.ID): limited, "root%" + string(h.box.ID): limited, string(other.ID): good} {
		c, text := h.dialAs(user, key)
		if c == nil {
			t.Errorf("%s does not pass: %s", user, text)
			continue
		}
		c.Close()
	}
	if err := h.keys.Remove("", "good"); err != nil {
		t.Fatal(err)
	}
	if c, _ := h.dialAs(string(h.box.ID), good); c != nil {
		c.Close()
		t.Error("a removed key passes")
	}
}

// TestWakes shows that the first session wakes a paused sandbox, and the handshake does not.
func TestWakes(t *testing.T) {
	h := newHouse(t, nil)
	key := h.signer("mine", true)
	if _, err := h.svc.Pause(t.Context(), h.box.ID, carrel.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	c, text := h.dialAs(string(h.box.ID), key)
	if c == nil {
		t.Fatal(text)
	}
	defer c.Close()
	if sb, err := h.svc.Get(t.Context(), h.box.ID); err != nil || sb.State != carrel.Paused {
		t.Errorf("after the handshake it is %s, %v", sb.State, err)
	}
	s, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	if out, err := s.Output("echo awake"); err != nil || string(out) != "awake\n" {
		t.Errorf("%q, %v", out, err)
	}
}

// TestAsleep shows that the error for a sandbox without automatic wake-up says what to do.
func TestAsleep(t *testing.T) {
	h := newHouse(t, nil)
	box, err := h.svc.Create(t.Context(), carrel.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.svc.Pause(t.Context(), box.ID, carrel.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	c, text := h.dialAs(string(box.ID), h.signer("mine", true))
	if c == nil {
		t.Fatal(text)
	}
	defer c.Close()
	s, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	var errs bytes.Buffer
	s.Stderr = &errs
	if err := s.Run("true"); err == nil || !strings.Contains(errs.String(), "carrel resume") {
		t.Errorf("%v: %q", err, &errs)
	}
}

// TestSignals shows that TERM ends a command, INT ends a terminal's command, and a broken
// connection ends the terminal's program.
func TestSignals(t *testing.T) {
	h := newHouse(t, nil)
	c, text := h.dialAs(string(h.box.ID), h.signer("mine", true))
	if c == nil {
		t.Fatal(text)
	}
	defer c.Close()
	s, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	out, _ := s.StdoutPipe()
	if err := s.Start("echo up; sleep 1000"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, 3)); err != nil {
		t.Fatal(err)
	}
	if err := s.Signal(ssh.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := s.Wait(); err == nil {
		t.Error("it ended well")
	}
	tty, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	if err := tty.RequestPty("xterm", 24, 80, nil); err != nil {
		t.Fatal(err)
	}
	if err := tty.Shell(); err != nil {
		t.Fatal(err)
	}
	if err := tty.WindowChange(50, 132); err != nil {
		t.Error(err)
	}
	h.await("a shell", func(n int) bool { return n > 0 })
	_ = tty.Close()
	h.await("nothing", func(n int) bool { return n == 0 })
}

// await waits until the number of running programs satisfies ok.
func (h *house) await(what string, ok func(int) bool) {
	h.t.Helper()
	comp, err := h.svc.Computer(h.t.Context(), h.box.ID)
	if err != nil {
		h.t.Fatal(err)
	}
	testenv.EventuallyNil(h.t, what+" runs", func() error {
		list, err := comp.Processes(h.t.Context())
		if err == nil && !ok(len(list)) {
			err = fmt.Errorf("%v run", list)
		}
		return err
	})
}

// TestBounds checks the bounds on handshakes, tries and channels.
func TestBounds(t *testing.T) {
	hasty := newHouse(t, func(o *sshdoor.Options) { o.HandshakeTime = 100 * time.Millisecond })
	silent, err := net.Dial("tcp", hasty.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	_ = silent.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := io.Copy(io.Discard, silent); err != nil {
		t.Errorf("a silent client is kept: %v", err)
	}
	h := newHouse(t, func(o *sshdoor.Options) { o.MaxChannels, o.MaxTries, o.IdleTime = 2, 2, time.Hour })
	good := h.signer("mine", true)
	many := []ssh.Signer{h.signer("", false), h.signer("", false), h.signer("", false), good}
	if c, err := ssh.Dial("tcp", h.addr, &ssh.ClientConfig{User: string(h.box.ID), Auth: []ssh.AuthMethod{ssh.PublicKeys(many...)}, HostKeyCallback: ssh.InsecureIgnoreHostKey()}); err == nil { //nolint:gosec // as above
		c.Close()
		t.Error("the fourth key is still tried")
	}
	c, text := h.dialAs(string(h.box.ID), good)
	if c == nil {
		t.Fatal(text)
	}
	defer c.Close()
	for range 2 {
		if _, err := c.NewSession(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.NewSession(); err == nil {
		t.Error("a third session")
	}
	for _, kind := range []string{"x11", "forwarded-tcpip", "direct-streamlocal@openssh.com", "auth-agent@openssh.com", "tun@openssh.com"} {
		if ch, _, err := c.OpenChannel(kind, nil); err == nil {
			ch.Close()
			t.Errorf("channel %s is opened", kind)
		}
	}
	for _, kind := range []string{"tcpip-forward", "streamlocal-forward@openssh.com"} {
		if ok, _, _ := c.SendRequest(kind, true, ssh.Marshal(struct {
			Host string
			Port uint32
		}{"127.0.0.1", 0})); ok {
			t.Errorf("request %s is granted", kind)
		}
	}
}

// TestIdle shows that a connection without channels ends.
func TestIdle(t *testing.T) {
	h := newHouse(t, func(o *sshdoor.Options) { o.IdleTime = 50 * time.Millisecond })
	c, text := h.dialAs(string(h.box.ID), h.signer("mine", true))
	if c == nil {
		t.Fatal(text)
	}
	done := make(chan error, 1)
	go func() { done <- c.Wait() }()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Error("it goes on")
	}
}

// TestAtOnce makes many connections with many sessions, while keys come and go.
func TestAtOnce(t *testing.T) {
	h := newHouse(t, nil)
	key := h.signer("mine", true)
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range 20 {
			s, err := sshdoor.NewHostKey()
			if err != nil {
				t.Error(err)
				return
			}
			name := fmt.Sprintf("key-%d", i)
			if _, err := h.keys.Add("", name, string(ssh.MarshalAuthorizedKey(s.PublicKey())), nil); err != nil {
				t.Error(err)
			}
			if err := h.keys.Remove("", name); err != nil {
				t.Error(err)
			}
		}
	})
	for i := range 6 {
		wg.Go(func() {
			c, text := h.dialAs(string(h.box.ID), key)
			if c == nil {
				t.Error(text)
				return
			}
			defer c.Close()
			var sessions sync.WaitGroup
			for j := range 5 {
				sessions.Go(func() {
					s, err := c.NewSession()
					if err != nil {
						t.Error(err)
						return
					}
					want := strings.Repeat(fmt.Sprintf("%d-%d ", i, j), 1000)
					s.Stdin = strings.NewReader(want)
					if out, err := s.Output("cat"); err != nil || string(out) != want {
						t.Errorf("%d bytes, %v", len(out), err)
					}
				})
			}
			sessions.Wait()
		})
	}
	wg.Wait()
}
