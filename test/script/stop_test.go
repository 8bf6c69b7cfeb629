package script

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/test/daemontest"
)

// TestStoppedDaemon shows that, after a clean stop, clients say that the daemon does not run, and a
// running command says that its sandbox may live on. Neither takes the stop for another error.
func TestStoppedDaemon(t *testing.T) {
	d := daemontest.Start(t, "--default-tier", "sim")
	sleeper := start(t, d, "sim")
	doomed := start(t, d, "sim")
	if out, err := d.CLI("kill", doomed.id).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if said := doomed.end(t); !strings.Contains(said, "the sandbox ended (killed)") && !strings.Contains(said, "the sandbox is ending") {
		t.Errorf("the command of a killed sandbox says:\n%s", said)
	}
	d.Terminate()
	said := sleeper.end(t)
	if !strings.Contains(said, "the sandbox may live on") || strings.Contains(said, "have ended") || strings.Contains(said, "EOF") {
		t.Errorf("the command that was under way says:\n%s", said)
	}
	if said := list(d, d.Dir); !strings.Contains(said, "the daemon of data directory "+d.Dir+" does not run") || strings.Contains(said, "none has run") {
		t.Errorf("ls says:\n%s", said)
	}
	if said := list(d, t.TempDir()); !strings.Contains(said, "none has run") {
		t.Errorf("ls for a new directory says:\n%s", said)
	}
}

// list returns the output of "carrel ls" for a data directory whose daemon does not run.
func list(d *daemontest.Daemon, dir string) string {
	cmd := exec.Command(d.Bin, "--data-dir", dir, "ls")
	cmd.Env = []string{"HOME=/nonexistent"}
	out, _ := cmd.CombinedOutput() // it fails, as it should
	return string(out)
}

// underWay is a command that runs in a sandbox.
type underWay struct {
	id   string
	cmd  *exec.Cmd
	said bytes.Buffer
}

// start starts a command in a new sandbox, and returns when it runs.
func start(t *testing.T, d *daemontest.Daemon, template string) *underWay {
	t.Helper()
	id, err := d.CLI("create", "-t", template).Output()
	if err != nil {
		t.Fatal(err)
	}
	u := &underWay{id: strings.TrimSpace(string(id))}
	u.cmd = d.CLI("exec", u.id, "--", "sh", "-c", "touch /tmp/started; sleep 1000")
	u.cmd.Stderr = &u.said
	if err := u.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the command runs", func() bool {
		return d.CLI("exec", u.id, "--", "test", "-e", "/tmp/started").Run() == nil
	})
	return u
}

// end waits for the command and returns its output.
func (u *underWay) end(t *testing.T) string {
	t.Helper()
	if err := u.cmd.Wait(); err == nil {
		t.Errorf("a command that was cut off ended well")
	}
	return u.said.String()
}
