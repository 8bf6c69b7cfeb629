package chaos

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/test/miniroot"
)

// setup says how a daemon of a trial is started.
type setup struct {
	bin   string // "": bin/carrel
	dir   string // its data directory; "": one in the trial's directory
	uid   int    // 0: root
	args  []string
	env   []string
	wrap  func(cmd *exec.Cmd) // changes the command before it starts; nil: nothing
	patch string              // fail points; only with the test binary
	// sandboxes are made from this machine's programs, not from a small template
	base bool
}

// server is a running carrel serve.
type server struct {
	setup
	t       *trial
	url     string
	key     string
	logPath string
	cmd     *exec.Cmd
	last    []byte        // daemon.json before this start
	ended   chan struct{} // closed when cmd has ended
	svc     carrel.Service
}

// userID is the ordinary user of trials. No account has it.
const userID = 54323

var home struct {
	once sync.Once
	dir  string
	err  error
}

// userHome returns the home of the ordinary user, with a copy of the binary. All trials share it,
// because the first daemon packs a base template there.
func userHome() (string, error) {
	home.once.Do(func() {
		home.dir, home.err = os.MkdirTemp("", "carrel-chaos-user-")
		if home.err != nil {
			return
		}
		out, err := exec.Command("cp", builtBinary(), filepath.Join(home.dir, "carrel")).CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		home.err = cmp.Or(err, os.Chmod(home.dir, 0o755), os.Chown(home.dir, userID, userID))
	})
	return home.dir, home.err
}

// removeShared removes what trials share, at the end of all tests.
func removeShared() {
	for _, dir := range []string{home.dir, mini.dir, otherBuild.dir} {
		if dir != "" {
			_ = os.RemoveAll(dir)
		}
	}
}

// builtBinary is the absolute path of bin/carrel.
func builtBinary() string {
	path, err := filepath.Abs("../../bin/carrel")
	if err != nil {
		return "bin/carrel"
	}
	return path
}

// serve prepares a daemon and starts it.
func (t *trial) serve(s setup) *server {
	d := t.prepare(s)
	if err := d.start(); err != nil {
		t.fatalf("the first start: %v", err)
	}
	if !s.base {
		if _, err := d.cli("template", "import", "mini", t.must(miniArchive(t.tb))); err != nil {
			t.fatalf("%v", err)
		}
	}
	return d
}

var mini struct {
	once sync.Once
	dir  string
	err  error
}

// miniArchive returns the archive of a small template. All trials share it.
func miniArchive(tb testing.TB) (string, error) {
	mini.once.Do(func() {
		if mini.dir, mini.err = os.MkdirTemp("", "carrel-chaos-mini-"); mini.err == nil {
			mini.err = os.Rename(miniroot.Archive(tb), filepath.Join(mini.dir, "mini.tar"))
		}
	})
	return filepath.Join(mini.dir, "mini.tar"), mini.err
}

// prepare makes a server that does not run yet.
func (t *trial) prepare(s setup) *server {
	if t.patch != "" {
		s.patch = t.patch
	}
	s.dir = cmp.Or(s.dir, filepath.Join(t.dir, "data"))
	t.servers++
	d := &server{setup: s, t: t, logPath: filepath.Join(t.dir,
		fmt.Sprintf("daemon-%d.log", t.servers))}
	if d.bin == "" {
		d.bin = builtBinary()
		if d.patch != "" {
			d.bin = t.must(os.Executable())
			d.env = append(d.env, playVar+"=1", pointsVar+"="+d.patch)
		}
	}
	if d.uid != 0 {
		dir := t.must(userHome())
		d.bin = filepath.Join(dir, "carrel")
		d.env = append(d.env, "HOME="+dir)
		t.check(os.Chmod(t.dir, 0o755))
		t.check(os.MkdirAll(d.dir, 0o700))
		t.check(os.Chown(d.dir, d.uid, d.uid))
	}
	t.later(d.end)
	return d
}

// command returns a run of the binary by the daemon's user.
func (d *server) command(args ...string) *exec.Cmd {
	cmd := exec.Command(d.bin, args...)
	cmd.Env = append(os.Environ(), d.env...)
	cmd.Dir = "/"
	if d.uid != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(d.uid),
			Gid: uint32(d.uid)}}
	}
	return cmd
}

// cli runs the command line against this daemon.
func (d *server) cli(args ...string) (string, error) {
	out, err := d.command(append([]string{"--data-dir", d.dir}, args...)...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("carrel %s: %w: %s", args[0], err, out)
	}
	return string(out), err
}

// points chooses other fail points for the next start, beside the trial's own. The daemon must be
// the test binary.
func (d *server) points(spec string) {
	d.env = append(slices.DeleteFunc(d.env, func(v string) bool {
		return strings.HasPrefix(v, pointsVar+"=")
	}), pointsVar+"="+d.t.patch+","+spec)
}

// start runs the daemon and waits until it listens. An error holds its last words.
func (d *server) start() error {
	d.last, _ = os.ReadFile(filepath.Join(d.dir, "daemon.json")) // it stays: on a full disk its room is needed
	log, err := os.OpenFile(d.logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	before, _ := log.Seek(0, 2)
	args := append([]string{"--data-dir", d.dir, "serve", "--listen", "127.0.0.1:" + freePort(),
		"--warm", "0"}, d.args...)
	if !d.base {
		args = append(args, "--default-template", "mini")
	}
	d.cmd = d.command(args...)
	d.cmd.Stdout, d.cmd.Stderr = log, log
	if d.wrap != nil {
		d.wrap(d.cmd)
	}
	if err := d.cmd.Start(); err != nil {
		return err
	}
	d.ended = make(chan struct{})
	go func(cmd *exec.Cmd, ended chan struct{}) { _ = cmd.Wait(); close(ended) }(d.cmd, d.ended)
	err = testenv.Within(context.Background(), 2*time.Minute, func() error {
		select {
		case <-d.ended:
			return nil
		default:
			return d.reach()
		}
	})
	if err == nil && isClosed(d.ended) {
		b, _ := os.ReadFile(d.logPath)
		err = fmt.Errorf("the daemon ended: %s", lastLine(string(b[min(int(before), len(b)):])))
	}
	return err
}

// reach connects to the daemon, once it says where it listens.
func (d *server) reach() error {
	raw, err := os.ReadFile(filepath.Join(d.dir, "daemon.json"))
	key, keyErr := os.ReadFile(filepath.Join(d.dir, "api-key"))
	var info struct {
		URL string `json:"url"`
	}
	if bytes.Equal(raw, d.last) && err == nil {
		return errors.New("daemon.json is the last daemon's")
	}
	if err := cmp.Or(err, keyErr, json.Unmarshal(raw, &info)); err != nil {
		return err
	}
	d.t.marksOf(d.dir)
	d.url, d.key = info.URL, strings.TrimSpace(string(key))
	if d.svc != nil {
		_ = d.svc.Close()
	}
	d.svc, err = client.New(d.url, d.key)
	return err
}

// kill9 ends the daemon without warning.
func (d *server) kill9() {
	_ = d.cmd.Process.Kill()
	<-d.ended
}

// terminate ends the daemon in the way of a service manager. It reports a daemon that stays.
func (d *server) terminate() {
	_ = d.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-d.ended:
	case <-time.After(2 * time.Minute):
		d.t.violate("the daemon did not stop within two minutes of SIGTERM")
		d.kill9()
	}
}

// signal sends a signal to the daemon itself.
func (d *server) signal(s syscall.Signal) { d.t.check(d.cmd.Process.Signal(s)) }

// end stops everything that belongs to the daemon, however it is.
func (d *server) end() {
	if d.svc != nil {
		_ = d.svc.Close()
	}
	if d.cmd != nil {
		_ = d.cmd.Process.Signal(syscall.SIGCONT)
		_ = d.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-d.ended:
		case <-time.After(20 * time.Second):
			d.kill9()
		}
	}
	d.t.killAllOf(d.dir)
}

// log returns everything that the daemon wrote.
func (d *server) log() string {
	b, err := os.ReadFile(d.logPath)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err.Error()
	}
	return string(b)
}

func freePort() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "0"
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-2):], " / ")
}
