package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/carrel-dev/carrel/internal/guest"
	"github.com/carrel-dev/carrel/internal/guest/process"
	"github.com/carrel-dev/carrel/internal/guest/process/processconnect"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// binary is the guest, built as it ships.
var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "carrel-guest")
	if err != nil {
		return "", err
	}
	out := filepath.Join(dir, "guest")
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", out, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, text)
	}
	return out, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if out, err := binary(); err == nil {
		_ = os.RemoveAll(filepath.Dir(out))
	}
	os.Exit(code)
}

// running is a guest in a process of its own.
type running struct {
	t      *testing.T
	cmd    *exec.Cmd
	url    string
	client processconnect.ProcessClient
	stderr bytes.Buffer
	ended  chan error
	cwd    *string // nil is the user's home
}

// start runs a guest. command gets the binary and its arguments and returns the command to execute.
func start(t *testing.T, command func(bin string, args ...string) *exec.Cmd, args ...string) *running {
	t.Helper()
	bin, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close()
	g := &running{t: t, cmd: command(bin, append([]string{"-listen", addr}, args...)...), url: "http://" + addr, ended: make(chan error, 1)}
	g.cmd.Stderr = &g.stderr
	began := time.Now()
	if err := g.cmd.Start(); err != nil {
		testenv.Need(t, "mount", err)
	}
	go func() { g.ended <- g.cmd.Wait() }()
	t.Cleanup(func() {
		_ = g.cmd.Process.Kill()
		<-g.ended
		if g.stderr.Len() > 0 {
			t.Logf("guest: %s", g.stderr.String())
		}
	})
	g.client = processconnect.NewProcessClient(&http.Client{Transport: &http.Transport{}}, g.url, connect.WithProtoJSON())
	testenv.EventuallyNil(t, "the guest answers", func() error {
		select {
		case err := <-g.ended:
			g.ended <- err
			testenv.Need(t, "mount", fmt.Errorf("guest ended: %w: %s", err, g.stderr.String()))
		default:
		}
		resp, err := http.Get(g.url + "/health")
		if err == nil {
			_ = resp.Body.Close()
		}
		return err
	})
	t.Logf("answers after %v", time.Since(began))
	return g
}

// sh runs a shell line and returns its output and end.
func (g *running) sh(line string, headers ...string) (string, *process.ProcessEvent_EndEvent, error) {
	ctx, cancel := context.WithTimeout(g.t.Context(), time.Minute)
	defer cancel()
	off := false
	req := connect.NewRequest(&process.StartRequest{Process: &process.ProcessConfig{Cmd: "/bin/sh", Args: []string{"-c", line}, Cwd: g.cwd}, Stdin: &off})
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header().Set(headers[i], headers[i+1])
	}
	stream, err := g.client.Start(ctx, req)
	if err != nil {
		return "", nil, err
	}
	defer stream.Close()
	var out bytes.Buffer
	var end *process.ProcessEvent_EndEvent
	for stream.Receive() {
		d := stream.Msg().GetEvent()
		out.Write(d.GetData().GetStdout())
		out.Write(d.GetData().GetStderr())
		if e := d.GetEnd(); e != nil {
			end = e
		}
	}
	return out.String(), end, stream.Err()
}

// stop asks the guest to end, and checks that it ends without an error.
func (g *running) stop() {
	g.t.Helper()
	if err := g.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		g.t.Fatal(err)
	}
	select {
	case err := <-g.ended:
		g.ended <- err
		if err != nil {
			g.t.Errorf("guest ended with %v", err)
		}
	case <-time.After(time.Minute):
		g.t.Error("guest does not end")
	}
}

func TestAsOrdinaryProcess(t *testing.T) {
	g := start(t, exec.Command, "-no-setup", "-gateway", "127.0.0.9")
	g.cwd = new("/") // the account may have no home
	user := "Authorization"
	out, end, err := g.sh("echo $PPID; ls /proc/self/fd | sort -n | tail -1", user, basic(t))
	if err != nil || end.GetExitCode() != 0 {
		t.Fatal(out, end, err)
	}
	if want := fmt.Sprint(g.cmd.Process.Pid); !strings.HasPrefix(out, want+"\n") {
		t.Errorf("parent is %q, want %s", out, want)
	}
	// Only the gateway may set the identity, and 127.0.0.1 is not the gateway.
	resp, err := http.Post(g.url+"/init", "application/json", strings.NewReader(`{"accessToken":"x"}`))
	if err != nil || resp.StatusCode != http.StatusForbidden {
		t.Errorf("init from elsewhere: %v, %v", resp, err)
	}
	_ = resp.Body.Close()
	checkSize(t, g.cmd.Process.Pid)
	g.stop()
}

// basic returns the user of the tests in the form of an Authorization header.
func basic(t *testing.T) string {
	t.Helper()
	req, _ := http.NewRequest("GET", "http://x", nil)
	req.SetBasicAuth(fmt.Sprint(os.Getuid()), "")
	return req.Header.Get("Authorization")
}

// checkSize checks the guest's memory, because every sandbox contains a guest.
func checkSize(t *testing.T, pid int) {
	t.Helper()
	bin, _ := binary()
	info, err := os.Stat(bin)
	if err != nil || info.Size() > 12<<20 {
		t.Errorf("binary: %d bytes, %v", info.Size(), err)
	}
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	var rss int
	for line := range strings.Lines(string(status)) {
		_, _ = fmt.Sscanf(line, "VmRSS: %d kB", &rss)
	}
	if rss == 0 || rss > 15<<10 {
		t.Errorf("resident: %d KiB", rss)
	}
	t.Logf("binary %.1f MB, resident %d KiB", float64(info.Size())/1e6, rss)
}

// asInit runs the guest as process 1 of a new process namespace.
func asInit(bin string, args ...string) *exec.Cmd {
	cmd := exec.Command(bin, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	return cmd
}

// TestReaping shows that process 1 reaps orphans, and loses no exit status by that.
func TestReaping(t *testing.T) {
	g := start(t, asInit, "-no-setup")
	rootUser := []string{"Authorization", "Basic cm9vdDo="}
	g.cwd = new("/") // /root is not ours if we are root only in our namespace
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			// Each leaves an orphan that ends at about the same time as its parent.
			out, end, err := g.sh(fmt.Sprintf("(sleep 0.0%d; exit 9) >/dev/null 2>&1 & sleep 0.0%[1]d; exit %[2]d", i%7, i), rootUser...)
			if err != nil || end.GetExitCode() != int32(i) {
				t.Errorf("process %d: %q, %v, %v", i, out, end, err)
			}
		})
	}
	wg.Wait()
	testenv.EventuallyNil(t, "all are reaped", func() error {
		if left := childrenOf(g.cmd.Process.Pid); len(left) > 0 {
			return fmt.Errorf("%q are not", left)
		}
		return nil
	})
	// A daemon in another session must end with the sandbox.
	out, _, err := g.sh("setsid sleep 300 </dev/null >/dev/null 2>&1 & echo started", rootUser...)
	if err != nil || out != "started\n" {
		t.Fatal(out, err)
	}
	g.stop()
}

// childrenOf returns the stat lines of a process's children.
func childrenOf(pid int) (out []string) {
	names, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range names {
		data, _ := os.ReadFile(name)
		rest := string(data[bytes.LastIndexByte(data, ')')+1:])
		var state string
		var ppid int
		if _, err := fmt.Sscan(rest, &state, &ppid); err == nil && ppid == pid {
			out = append(out, string(data))
		}
	}
	return out
}

// TestChildEnvironment shows that settings for the guest's own runtime do not reach the programs it
// starts.
func TestChildEnvironment(t *testing.T) {
	g := start(t, func(bin string, args ...string) *exec.Cmd {
		cmd := exec.Command(bin, args...)
		cmd.Env = append(os.Environ(), "GOMAXPROCS=1", "GOGC=200", "GOMEMLIMIT=100MiB", "GODEBUG=madvdontneed=1", "SECRET_OF_OURS=1")
		return cmd
	}, "-no-setup")
	out, _, err := g.sh("env", "Authorization", basic(t))
	if err != nil || !strings.Contains(out, "PATH=") {
		t.Fatal(out, err)
	}
	for _, name := range []string{"GOMAXPROCS", "GOGC", "GOMEMLIMIT", "GODEBUG", "SECRET_OF_OURS"} {
		if strings.Contains(out, name+"=") {
			t.Errorf("%s is in the environment of a program: %s", name, out)
		}
	}
}

// inBareRoot runs the guest as process 1 of a machine whose root contains only this host's
// programs.
func inBareRoot(root string) func(string, ...string) *exec.Cmd {
	return func(bin string, args ...string) *exec.Cmd {
		script := `set -e; R=$1; shift
mount --make-rprivate /
mkdir -p $R/usr $R/proc $R/dev
mount --bind /usr $R/usr
for d in bin sbin lib lib64; do [ -e /usr/$d ] && ln -s usr/$d $R/$d; done
mount -t tmpfs tmpfs $R/dev
for f in null zero full random urandom; do touch $R/dev/$f; mount --bind /dev/$f $R/dev/$f; done
cp "$1" $R/guest; shift
exec chroot $R /guest "$@"`
		all := append([]string{"--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child", "sh", "-c", script, "sh", root, bin}, args...)
		return exec.Command("unshare", all...)
	}
}

func TestSetup(t *testing.T) {
	if os.Geteuid() != 0 {
		testenv.Need(t, "mount", errors.New("only root can make this root"))
	}
	before, _ := os.Hostname()
	root := t.TempDir()
	g := start(t, inBareRoot(root), "-gateway", "127.0.0.1")
	body, _ := json.Marshal(guest.InitRequest{Hostname: "isandbox", SandboxID: "isandbox", TemplateID: "base", EnvVars: map[string]string{"A": "1"}})
	resp, err := http.Post(g.url+"/init", "application/json", bytes.NewReader(body))
	if err != nil || resp.StatusCode != http.StatusNoContent {
		t.Fatal(resp, err)
	}
	_ = resp.Body.Close()
	out, end, err := g.sh(`id -un; id -u; pwd; echo $HOME $SHELL $A $E2B_SANDBOX_ID; cat /run/e2b/.E2B_SANDBOX_ID; echo
stat -c '%a %U %n' / /tmp /home/user /var/tmp; cat /etc/resolv.conf; uname -n; cat /etc/hostname; tail -1 /etc/hosts
touch /tmp/mine mine && echo wrote; [ -c /dev/ptmx ] && [ -d /dev/pts ] && [ -d /proc/self ] && echo kernel; echo $$ > /dev/null; ls -d /dev/fd/0`)
	want := "user\n1000\n/home/user\n/home/user /bin/bash 1 isandbox\nisandbox\n755 root /\n1777 root /tmp\n755 user /home/user\n1777 root /var/tmp\n" +
		"nameserver 127.0.0.1\nisandbox\nisandbox\n127.0.1.1\tisandbox\nwrote\nkernel\n/dev/fd/0\n"
	if i := strings.Index(out, "755 root /\n"); i < 0 {
		want = strings.Replace(want, "755 root /\n", "700 root /\n", 1) // the mode of the temporary directory itself
	}
	if err != nil || end.GetExitCode() != 0 || out != want {
		t.Errorf("got:\n%swant:\n%s%v, %v", out, want, end, err)
	}
	if out, _, err := g.sh("id -un; cat /proc/1/comm; pwd", "Authorization", "Basic cm9vdDo="); err != nil || out != "root\nguest\n/root\n" {
		t.Errorf("as root: %q, %v", out, err)
	}
	if _, _, err := g.sh("true", "Authorization", "Basic bm9ib2R5LWhlcmU6"); connect.CodeOf(err) != connect.CodeUnauthenticated || !strings.Contains(err.Error(), "invalid username: 'nobody-here'") {
		t.Errorf("unknown user: %v", err)
	}
	if out, _, err := g.sh("test ! -e /usr/bin/sudo || sudo -n id -u"); err != nil || (out != "" && out != "0\n") {
		t.Errorf("sudo: %q, %v", out, err)
	}
	if after, _ := os.Hostname(); after != before {
		t.Errorf("the host's name became %q", after)
	}
}

func TestAddressFlags(t *testing.T) {
	list, err := parseAddrs("10.73.0.1,fd73:6361:7272::1,::ffff:10.0.0.1")
	if err != nil || len(list) != 3 || nameServer(list) != "10.73.0.1" || nameServer(list[1:2]) != "" {
		t.Fatal(list, err)
	}
	trusted := trust(list)
	for addr, want := range map[string]bool{
		"10.73.0.1:5": true, "[::ffff:10.73.0.1]:5": true, "[fd73:6361:7272::1]:1": true, "10.0.0.1:9": true,
		"10.73.0.2:5": false, "127.0.0.1:5": false, "[::1]:1": false,
	} {
		if got := trusted(net.TCPAddrFromAddrPort(netip.MustParseAddrPort(addr))); got != want {
			t.Errorf("%s: %v", addr, got)
		}
	}
	if trusted(&net.UnixAddr{Name: "10.73.0.1"}) || trust(nil)(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}) {
		t.Error("trusts what it must not")
	}
	if _, err := parseAddrs("gateway"); err == nil {
		t.Error("accepts a name")
	}
}
