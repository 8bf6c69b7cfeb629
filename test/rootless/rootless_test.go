// Package rootless drives a real daemon that an unprivileged user runs: no root, no
// set-uid helper, no control group.
package rootless

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/test/daemontest"
)

// stranger is the daemon's uid. No account has it.
const stranger = 54321

// world is a daemon of the unprivileged user, and a client of it.
type world struct {
	*daemontest.Daemon
	svc carrel.Service
}

func start(t *testing.T) *world {
	t.Helper()
	if os.Geteuid() != 0 {
		testenv.Need(t, "rootless", errors.New("root, to become another user"))
	}
	if err := namespaces(nil, "true").Run(); err != nil {
		testenv.Need(t, "rootless", fmt.Errorf("user namespaces for uid %d: %w", stranger, err))
	}
	w := &world{Daemon: daemontest.StartAs(t, stranger)}
	w.connect(t)
	return w
}

func (w *world) connect(t *testing.T) {
	t.Helper()
	svc, err := client.New(w.URL, w.Key)
	if err != nil {
		t.Fatal(err)
	}
	w.svc = svc
	t.Cleanup(func() { _ = svc.Close() })
}

// box makes a sandbox that ends with the test.
func (w *world) box(t *testing.T, o carrel.CreateOptions) (carrel.ID, carrel.Computer) {
	t.Helper()
	o.Timeout = 10 * time.Minute
	sb, err := w.svc.Create(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.svc.Kill(context.Background(), sb.ID) })
	c, err := w.svc.Computer(t.Context(), sb.ID)
	if err != nil {
		t.Fatal(err)
	}
	return sb.ID, c
}

// sh runs a line and returns both outputs.
func sh(t *testing.T, c carrel.Computer, user, line string) string {
	t.Helper()
	res, err := c.Run(t.Context(), carrel.Command{Shell: line, User: user, Timeout: time.Minute})
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	return string(res.Stdout) + string(res.Stderr)
}

func TestRootless(t *testing.T) {
	w := start(t)
	t.Run("processes belong to the stranger", w.testHostUID)
	t.Run("users", w.testUsers)
	t.Run("sudo", w.testSudo)
	t.Run("files", w.testFiles)
	t.Run("terminal", w.testTerminal)
	t.Run("limits", func(t *testing.T) {
		t.Run("disk", w.testDisk)
		t.Run("memory of one", w.testMemory("head -c 900m /dev/zero | tail"))
		t.Run("memory of many", w.testMemory("for i in 1 2 3 4 5 6 7 8; do head -c 90m /dev/zero | (sleep 1; tail; sleep 9) & done; wait"))
		t.Run("processes", w.testProcesses)
	})
	t.Run("network is closed", w.testNetwork)
	t.Run("twenty and a crash", w.testCrash)
}

func (w *world) testHostUID(t *testing.T) {
	id, _ := w.box(t, carrel.CreateOptions{})
	found := 0
	entries, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range entries {
		line, _ := os.ReadFile(name)
		if !bytes.Contains(line, []byte(id)) {
			continue
		}
		found++
		var st unix.Stat_t
		if err := unix.Stat(filepath.Dir(name), &st); err == nil && st.Uid != stranger && st.Uid != 0 { // 0: not dumpable
			t.Errorf("%s runs as %d", name, st.Uid)
		}
		status, _ := os.ReadFile(filepath.Dir(name) + "/status")
		for line := range strings.Lines(string(status)) {
			if f := strings.Fields(line); len(f) == 5 && f[0] == "Uid:" && (f[1] != fmt.Sprint(stranger) || f[2] != f[1] || f[3] != f[1]) {
				t.Errorf("%s: %s", name, line)
			}
		}
	}
	if found == 0 {
		t.Error("no process of the sandbox on the host")
	}
}

func (w *world) testUsers(t *testing.T) {
	_, c := w.box(t, carrel.CreateOptions{})
	if got := sh(t, c, "", "id -un; pwd; touch mine && stat -c %U mine"); got != "user\n/home/user\nuser\n" {
		t.Errorf("as user: %q", got)
	}
	if got := sh(t, c, "root", "id -u; chown daemon /home/user && stat -c %U /home/user"); got != "0\ndaemon\n" {
		t.Errorf("as root: %q", got)
	}
	// The user who packed the base owns none of its files.
	if got := sh(t, c, "", "stat -Lc '%u:%g %a %n' / /usr /usr/bin/env /etc/passwd /root /tmp"); got != "0:0 755 /\n0:0 755 /usr\n0:0 755 /usr/bin/env\n0:0 644 /etc/passwd\n0:0 700 /root\n0:0 1777 /tmp\n" {
		t.Errorf("owners and modes in base:\n%s", got)
	}
	if got := sh(t, c, "root", "find /usr /etc -xdev -uid "+fmt.Sprint(stranger)+" | head"); got != "" {
		t.Errorf("files of the stranger in base: %s", got)
	}
}

func (w *world) testSudo(t *testing.T) {
	_, c := w.box(t, carrel.CreateOptions{})
	daemontest.CheckSudo(t, c)
}

func (w *world) testFiles(t *testing.T) {
	_, c := w.box(t, carrel.CreateOptions{})
	want := bytes.Repeat([]byte("0123456789abcdef"), 1<<20) // 16 MiB
	if _, err := c.Files("").Write(t.Context(), "dir/big", bytes.NewReader(want)); err != nil {
		t.Fatal(err)
	}
	r, err := c.Files("").Read(t.Context(), "/home/user/dir/big")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes came back, %v", len(got), err)
	}
	if _, err := c.Files("root").Write(t.Context(), "/etc/x", strings.NewReader("x")); err != nil {
		t.Error(err)
	}
}

func (w *world) testTerminal(t *testing.T) {
	_, c := w.box(t, carrel.CreateOptions{})
	var out daemontest.Output
	p, err := c.Start(t.Context(), carrel.Command{Args: []string{"/bin/bash", "--norc"}, TTY: &carrel.Size{Cols: 101, Rows: 33}, Stdout: &out})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if _, err := p.Write([]byte("stty size; tty\n")); err != nil {
		t.Fatal(err)
	}
	out.Until(t, "/dev/pts/")
	if err := p.Resize(t.Context(), carrel.Size{Cols: 77, Rows: 11}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Write([]byte("stty size; exit 5\n")); err != nil {
		t.Fatal(err)
	}
	res, err := p.Wait(t.Context())
	if err != nil || res.ExitCode != 5 {
		t.Fatalf("%+v, %v", res, err)
	}
	for _, want := range []string{"33 101", "/dev/pts/", "11 77"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in %q", want, out.String())
		}
	}
}

func (w *world) testDisk(t *testing.T) {
	_, c := w.box(t, carrel.CreateOptions{Limits: carrel.Limits{DiskMB: 64}})
	if got := sh(t, c, "", "head -c 100m /dev/zero > fill"); !strings.Contains(got, "No space left on device") {
		t.Errorf("100 MB into 64: %q", got)
	}
	if got := sh(t, c, "", "rm fill; echo again"); got != "again\n" {
		t.Errorf("after it: %q", got)
	}
}

// testMemory runs a program that uses up memory. Only the daemon itself limits it.
func (w *world) testMemory(bomb string) func(*testing.T) {
	return func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		ended := make(chan carrel.Event, 100)
		ready := make(chan struct{})
		var once sync.Once
		go func() {
			defer close(ended)
			for e, err := range w.svc.Events(ctx, 0) {
				if err != nil {
					return
				}
				once.Do(func() { close(ready) })
				if e.Type == "sandbox.ended" {
					ended <- e
				}
			}
		}()
		time.Sleep(200 * time.Millisecond)
		id, c := w.box(t, carrel.CreateOptions{Limits: carrel.Limits{MemoryMB: 256}})
		<-ready
		begin := time.Now()
		_, _ = c.Run(ctx, carrel.Command{Shell: bomb})
		for e := range ended {
			if e.ID != id {
				continue
			}
			t.Logf("ended after %v: %s", time.Since(begin), e.Message)
			if e.Reason != carrel.EndOutOfMemory || !strings.Contains(e.Message, "256 MiB") {
				t.Errorf("ended as %q: %s", e.Reason, e.Message)
			}
			return
		}
		t.Error("the bomb was not ended")
	}
}

func (w *world) testProcesses(t *testing.T) {
	_, c := w.box(t, carrel.CreateOptions{Limits: carrel.Limits{Pids: 64}})
	if got := sh(t, c, "", "for i in $(seq 300); do sleep 20 & done 2>&1 | head; true"); !strings.Contains(got, "Resource temporarily unavailable") {
		t.Errorf("300 processes of 64: %q", got)
	}
	err := testenv.Within(t.Context(), 2*time.Minute, func() error { // they end by themselves
		res, err := c.Run(t.Context(), carrel.Command{Shell: "echo alive", User: "root", Timeout: time.Minute})
		if err == nil && string(res.Stdout) != "alive\n" {
			err = fmt.Errorf("%+v", res)
		}
		return err
	})
	if err != nil {
		t.Fatalf("after it: %v", err)
	}
}

func (w *world) testNetwork(t *testing.T) {
	_, c := w.box(t, carrel.CreateOptions{})
	port := w.URL[strings.LastIndexByte(w.URL, ':')+1:]
	for _, to := range []string{"127.0.0.1/" + port, "192.0.2.1/80", "10.0.0.1/" + port} {
		// The wire's refusals are explained on the command's standard error. Loopback is the
		// sandbox's own.
		want := ""
		if !strings.HasPrefix(to, "127.") {
			want = "carrel: denied tcp://" + strings.Replace(to, "/", ":", 1)
		}
		got := sh(t, c, "", "timeout 60 bash -c ': </dev/tcp/"+to+"' 2>/dev/null && echo reached; true")
		if strings.Contains(got, "reached") || !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("%s: %q", to, got)
		}
	}
}

// testCrash kills the daemon with twenty sandboxes; the next one adopts them.
func (w *world) testCrash(t *testing.T) {
	const count = 20
	ids, pids := make([]carrel.ID, count), make([]int, count)
	begin := time.Now()
	daemontest.InParallel(t, count, func(i int) error {
		sb, err := w.svc.Create(t.Context(), carrel.CreateOptions{Timeout: 10 * time.Minute})
		if err != nil {
			return err
		}
		ids[i] = sb.ID
		c, err := w.svc.Computer(t.Context(), sb.ID)
		if err != nil {
			return err
		}
		p, err := c.Start(t.Context(), carrel.Command{Shell: fmt.Sprintf("echo %d > word; sleep 1000", i)})
		if err != nil {
			return err
		}
		pids[i] = p.PID()
		return p.Close()
	})
	t.Logf("%d sandboxes made and busy after %v", count, time.Since(begin))
	w.Kill9()
	_ = w.svc.Close()
	w.Restart()
	w.connect(t)
	daemontest.InParallel(t, count, func(i int) error {
		c, err := w.svc.Computer(t.Context(), ids[i])
		if err != nil {
			return err
		}
		res, err := c.Run(t.Context(), carrel.Command{Shell: fmt.Sprintf("cat word; kill -0 %d && echo alive", pids[i])})
		if err != nil {
			return fmt.Errorf("%s: %w", ids[i], err)
		}
		if want := fmt.Sprintf("%d\nalive\n", i); string(res.Stdout) != want {
			return fmt.Errorf("%s: %q, want %q", ids[i], res.Stdout, want)
		}
		return w.svc.Kill(t.Context(), ids[i])
	})
}

// TestPatientReader takes no output for longer than an impatient daemon would wait, like a person
// in a pager.
func TestPatientReader(t *testing.T) {
	testenv.Long(t, "takes 40 s")
	w := start(t)
	id, _ := w.box(t, carrel.CreateOptions{})
	cmd := w.CLI("exec", string(id), "--", "seq", "5000000")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(40 * time.Second)
	n, err := io.Copy(io.Discard, out)
	if err != nil || n != 38888896 {
		t.Errorf("%d bytes, %v", n, err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// report is the output of carrel doctor --json.
// report is what the doctor says, by driver.
type report map[string]finding

type finding struct {
	Driver, Problem, Hint string
	OK                    bool
	Findings              []struct{ What, Why, Hint string }
}

func TestDoctor(t *testing.T) {
	w := start(t)
	row := doctor(t, w.CLI("doctor", "--json"))
	if !row["gvisor"].OK || !row["base"].OK || !row["run"].OK {
		t.Fatalf("%+v", row)
	}
	var all string
	for _, f := range row["gvisor"].Findings {
		all += f.What + "\n" + f.Hint + "\n"
	}
	for _, want := range []string{"memory limits", "processor limits", "host tasks", "share one host uid", "Delegate=yes"} {
		if !strings.Contains(all, want) {
			t.Errorf("no %q in\n%s", want, all)
		}
	}

	// The same where no user namespace may be made: inside a user namespace of ours, whose limit we
	// can set.
	cmd := namespaces([]string{"PATH=" + os.Getenv("PATH")}, "echo 0 > /proc/sys/user/max_user_namespaces && exec "+w.Bin+" --data-dir "+w.Dir+" doctor --json")
	row = doctor(t, cmd)
	if row["gvisor"].OK || !strings.Contains(row["gvisor"].Problem, "max_user_namespaces is 0") || !strings.Contains(row["gvisor"].Hint, "sysctl user.max_user_namespaces") {
		t.Errorf("without namespaces: %+v", row["gvisor"])
	}
	if row["ns"].OK || row["ns"].Hint == "" {
		t.Errorf("without namespaces: %+v", row["ns"])
	}
	if row["run"].OK || row["run"].Hint == "" {
		t.Errorf("without namespaces: %+v", row["run"])
	}
	if !row["sim"].OK {
		t.Errorf("the simulated tier needs nothing: %+v", row["sim"])
	}
}

func doctor(t *testing.T, cmd *exec.Cmd) report {
	t.Helper()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var list []finding
	if jerr := json.Unmarshal(out, &list); err != nil || jerr != nil {
		t.Fatalf("%v, %v: %s%s", err, jerr, out, stderr.Bytes())
	}
	rows := report{}
	for _, f := range list {
		rows[f.Driver] = f
	}
	for _, driver := range []string{"gvisor", "ns", "microvm", "sim", "base", "run"} {
		if _, ok := rows[driver]; !ok || len(list) != 6 {
			t.Fatalf("%d rows, and %s is one: %v, in %s", len(list), driver, ok, out)
		}
	}
	return rows
}

// namespaces returns a shell line that the stranger runs in its own user namespace.
func namespaces(env []string, line string) *exec.Cmd {
	cmd := exec.Command("sh", "-c", line)
	cmd.Env, cmd.Dir = env, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER,
		Credential:  &syscall.Credential{Uid: stranger, Gid: stranger, NoSetGroups: true},
		UidMappings: []syscall.SysProcIDMap{{ContainerID: stranger, HostID: stranger, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: stranger, HostID: stranger, Size: 1}},
		AmbientCaps: []uintptr{unix.CAP_SYS_RESOURCE}, // only in that namespace, which has its own limit
	}
	return cmd
}
