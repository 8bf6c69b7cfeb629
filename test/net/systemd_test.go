package net

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// tickerUnit is a service that writes a line each second, into a file and the journal.
const tickerUnit = `[Unit]
Description=Ticker
[Service]
ExecStart=/bin/sh -c 'echo ticker begins; while :; do date +%%s >>/ticks; sleep 1; done'
[Install]
WantedBy=multi-user.target
`

// beaconFiles are the package that a machine installs: a service, which its script starts.
var beaconFiles = map[string]string{
	"DEBIAN/control":  "Package: beacon\nVersion: 1.0\nArchitecture: all\nMaintainer: Test <test@example.com>\nDescription: a test\n",
	"DEBIAN/postinst": "#!/bin/sh\nset -e\nsystemctl daemon-reload\nsystemctl enable --now beacon.service\n",
	"lib/systemd/system/beacon.service": "[Service]\nExecStart=/bin/sh -c 'echo beacon begins; exec sleep infinity'\n" +
		"[Install]\nWantedBy=multi-user.target\n",
}

// writeTree writes files below a directory. Scripts of packages can be executed.
func writeTree(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		file, mode := filepath.Join(dir, name), os.FileMode(0o644)
		if filepath.Base(name) == "postinst" {
			mode = 0o755
		}
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
}

// aptArchive makes a directory that apt takes for an archive with one package.
func aptArchive(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	writeTree(t, filepath.Join(dir, "beacon"), beaconFiles)
	deb := filepath.Join(dir, "beacon.deb")
	out, err := exec.Command("dpkg-deb", "--root-owner-group", "--build", filepath.Join(dir, "beacon"), deb).CombinedOutput()
	testenv.Need(t, "apt", err)
	raw, err := os.ReadFile(deb)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	index := fmt.Sprintf("%sFilename: ./beacon.deb\nSize: %d\nSHA256: %x\n", beaconFiles["DEBIAN/control"], len(raw), sha256.Sum256(raw))
	writeTree(t, dir, map[string]string{"Packages": index})
	return dir
}

// systemdRoot makes a Debian whose first process is systemd.
func systemdRoot(t *testing.T) string {
	t.Helper()
	root := filepath.Join(t.TempDir(), "root")
	out, err := exec.Command("../../internal/tools/debianroot.sh", root, "systemd,systemd-sysv,dbus").CombinedOutput()
	testenv.Need(t, "apt", err)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := os.RemoveAll(filepath.Join(root, "etc/apt/sources.list.d")); err != nil {
		t.Fatal(err)
	}
	writeTree(t, root, map[string]string{
		"etc/carrel/init":                   "systemd\n",
		"etc/apt/sources.list":              "deb [trusted=yes] http://mirror.example.com/ ./\n",
		"etc/systemd/system/ticker.service": tickerUnit,
	})
	wants := filepath.Join(root, "etc/systemd/system/multi-user.target.wants")
	if err := os.MkdirAll(wants, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/systemd/system/ticker.service", filepath.Join(wants, "ticker.service")); err != nil {
		t.Fatal(err)
	}
	return root
}

// TestMachineSystemd runs a Debian with systemd as its first process: its services, its journal, a
// pause, and a package whose script starts a service.
func TestMachineSystemd(t *testing.T) {
	testenv.Long(t, "it makes a template of Debian's packages, and systemd takes long to start in an emulated machine")
	o := newOutside(t)
	o.serve(t, "mirror.example.com", "203.0.113.71", http.FileServer(http.Dir(aptArchive(t))))
	h := openMachines(t, o)
	if out, err := h.CLI("template", "import", "systemd", systemdRoot(t)).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	_, err := h.svc.Create(t.Context(), carrel.CreateOptions{Template: "systemd", Tier: carrel.GVisor})
	if carrel.KindOf(err) != carrel.Invalid || !strings.Contains(carrel.HintOf(err), "microvm") {
		t.Errorf("in tier gvisor: %v, hint %q", err, carrel.HintOf(err))
	}
	sb, err := h.svc.Create(t.Context(), carrel.CreateOptions{Template: "systemd", Timeout: time.Hour,
		Limits:  carrel.Limits{MemoryMB: 512, DiskMB: 2048},
		Network: carrel.Network{Policy: &carrel.Policy{Rules: []carrel.Rule{{Allow: []string{"mirror.example.com"}}}}}})
	if err != nil {
		t.Fatal(err)
	}
	run := func(user, script string) string {
		t.Helper()
		c, err := h.svc.Computer(t.Context(), sb.ID)
		if err != nil {
			t.Fatal(err)
		}
		r, err := c.Run(t.Context(), carrel.Command{Shell: script, User: user, Timeout: 5 * time.Minute})
		if err != nil {
			t.Fatalf("%s: %v", script, err)
		}
		if r.ExitCode != 0 {
			t.Errorf("%s: exit code %d\n%s%s", script, r.ExitCode, r.Stdout, r.Stderr)
		}
		return strings.TrimSpace(string(r.Stdout))
	}
	is := func(script, want string) {
		t.Helper()
		if got := run("root", script); got != want {
			t.Errorf("%s: %q, want %q", script, got, want)
		}
	}
	is("systemctl is-system-running --wait || systemctl --no-pager --failed", "running")
	is("cat /proc/1/comm; systemctl is-active carrel-guest ticker; hostname", "systemd\nactive\nactive\n"+string(sb.ID))
	is("journalctl -u ticker -o cat | grep -c 'ticker begins'", "1")
	if got := run("user", "id -un; systemctl is-active ticker"); got != "user\nactive" {
		t.Errorf("for another user: %q", got)
	}
	const state = "systemctl show -p MainPID --value ticker; wc -l </ticks"
	before := strings.Fields(run("root", state))
	if _, err := h.svc.Pause(t.Context(), sb.ID, carrel.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := h.svc.Resume(t.Context(), sb.ID, carrel.ResumeOptions{}); err != nil {
		t.Fatal(err)
	}
	after := strings.Fields(run("root", "sleep 3; "+state))
	if len(before) != 2 || len(after) != 2 || before[0] == "0" || after[0] != before[0] || number(t, after[1]) <= number(t, before[1]) {
		t.Errorf("the service's process and its ticks were %v, and are %v after a pause", before, after)
	}
	run("root", "apt-get update -q && apt-get install -y -q beacon")
	is("systemctl is-active beacon; journalctl -u beacon -o cat | grep -c 'beacon begins'", "active\n1")
	is("systemctl is-system-running", "running")
	// The guest can't be stopped by itself, and its processes don't count as systemd's own.
	is("systemctl stop carrel-guest 2>&1 | grep -c refused; systemctl is-active carrel-guest", "1\nactive")
	// A power-off ends the sandbox in order: systemd stops its services before.
	run("root", "systemctl --no-block poweroff")
	testenv.EventuallyNil(t, "the end", func() error {
		if sb, err := h.svc.Get(t.Context(), sb.ID); carrel.KindOf(err) != carrel.NotFound {
			return fmt.Errorf("after a power-off it is %s, %v", sb.State, err)
		}
		return nil
	})
}

// number reads a number that a command printed.
func number(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Error(err)
	}
	return n
}
