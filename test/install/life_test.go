package install

import (
	"strings"
	"testing"

	"github.com/carrel-dev/carrel/internal/testenv"
)

// think leaves a file on a sandbox's disk and a process in its memory. remember looks for both, and
// thought is its expected output.
const (
	think    = `carrel exec $id -- bash -c 'echo kept >note; sleep 31415 >/dev/null 2>&1 & disown'`
	remember = `carrel exec $id -- bash -c 'cat note; pgrep -c -f "sleep 31415"'`
	thought  = "kept\n1"
)

// TestDebianOnSystemd is the life of an installation on a machine that systemd boots: installed,
// used, upgraded under running sandboxes, crashed, shut down and booted again, removed, and purged.
func TestDebianOnSystemd(t *testing.T) {
	t.Parallel() // with TestRPM: both wait for their machines
	root := newRoot(t)
	before, now := theRelease(t, "dist-before"), theRelease(t, "dist")
	m := boot(t, root)

	m.run("dpkg -i /dist-before/carrel.deb")
	m.want("carrel version", "carrel "+before.version)
	m.want("systemctl is-active carrel carrel-drain", "active\nactive")
	m.want("systemctl show -p StatusText carrel", "Serving at http://127.0.0.1:7070")
	m.want("systemd-analyze verify carrel.service carrel.socket carrel-drain.service 2>&1 | grep -v DelegateSubgroup; echo checked", "checked")
	if out := m.run("journalctl --no-pager -u carrel"); strings.Contains(out, m.run("cat /var/lib/carrel/api-key")) {
		t.Errorf("the log holds the API key:\n%s", out)
	}
	id := m.run("carrel create --tier gvisor --timeout 1h")
	with := "id=" + id + "; "
	m.run(with + think)
	m.want(with+remember, thought)
	small := m.run("carrel create --tier ns --timeout 1h")

	// An upgrade replaces the daemon while its sandboxes run.
	pid := m.run("systemctl show -P MainPID carrel")
	m.run("dpkg -i /dist/carrel.deb")
	m.want("/proc/$(systemctl show -P MainPID carrel)/exe version", "carrel "+now.version)
	if m.run("systemctl show -P MainPID carrel") == pid {
		t.Error("the daemon was not restarted")
	}
	m.want("systemctl is-active carrel carrel-drain", "active\nactive")
	m.want(with+remember, thought)
	m.want("carrel exec "+small+" -- echo well", "well")

	// A crash.
	m.run("kill -9 $(systemctl show -P MainPID carrel)")
	testenv.Eventually(t, "the daemon is back", func() bool { out, err := m.try(with + remember); return err == nil && strings.Contains(out, thought) })

	// The power button pauses running sandboxes. They run again after the next start of the
	// machine.
	m.powerOff()
	m = boot(t, root)
	testenv.Eventually(t, "the sandbox is back", func() bool { out, err := m.try(with + remember); return err == nil && strings.Contains(out, thought) })
	m.want("carrel --json ls", small)

	// The socket: no daemon runs until a client connects.
	m.run("systemctl stop carrel && systemctl start carrel.socket")
	m.want("systemctl is-active carrel || true", "inactive")
	m.want(with+"export CARREL_URL=http://127.0.0.1:7070; "+remember, thought)
	m.want("systemctl is-active carrel", "active")
	m.want("systemctl show -p StatusText carrel", "Serving at http://127.0.0.1:7070")
	m.run("systemctl stop carrel.socket carrel; systemctl start carrel")

	// Removed: the programs go, users' data stays.
	m.run("dpkg -r carrel")
	if out, err := m.try("ls /usr/bin/carrel /usr/lib/systemd/system/carrel.service"); err == nil {
		t.Errorf("left after the removal: %s", out)
	}
	if out, err := m.try("pgrep -a carrel"); err == nil {
		t.Errorf("runs after the removal: %s", out)
	}
	m.run("test -s /var/lib/carrel/state.db")

	// Installed again: everything goes on as before.
	m.run("dpkg -i /dist/carrel.deb")
	m.run("carrel resume " + id)
	m.want(with+remember, thought)
	m.run("carrel kill --all")
	m.run("dpkg -P carrel")
	if out, err := m.try("ls -d /var/lib/carrel /var/cache/carrel /etc/default/carrel /etc/carrel"); err == nil {
		t.Errorf("left after the purge: %s", out)
	}
}

// TestRPM installs, checks, upgrades and erases the package with rpm itself. If systemd does not
// run, the test starts a daemon by hand.
func TestRPM(t *testing.T) {
	t.Parallel()
	root := newRoot(t)
	before, now := theRelease(t, "dist-before"), theRelease(t, "dist")
	m := start(t, root, "sleep", "infinity")
	testenv.Eventually(t, "it runs", func() bool {
		m.first = childOf(m.cmd.Process.Pid)
		out, err := m.try("cat /proc/1/comm")
		return m.over() || err == nil && strings.TrimSpace(out) == "sleep"
	})
	if m.over() {
		t.Fatalf("it ended: %s", m.said)
	}
	m.run("ip link set lo up")
	m.run("rpm -i /dist-before/carrel.rpm && rpm -V carrel")
	m.want("carrel version", before.version)
	m.want("rpm -q --qf '%{VERSION} %{LICENSE}' carrel", before.version+" Apache-2.0")
	serve := "carrel serve >>/var/log/carrel.log 2>&1 & echo $! >/run/carrel.pid; " +
		"i=0; until carrel ls >/dev/null 2>&1; do i=$((i+1)); [ $i -lt 300 ] || { cat /var/log/carrel.log; exit 1; }; sleep 0.2; done"
	stop := "kill $(cat /run/carrel.pid); while [ -e /proc/$(cat /run/carrel.pid)/exe ]; do sleep 0.1; done"
	m.run(serve)
	id := m.run("carrel create --tier gvisor --timeout 1h")
	with := "id=" + id + "; "
	m.run(with + think)

	m.run("rpm -U /dist/carrel.rpm && rpm -V carrel")
	m.run(stop)
	m.run(serve)
	m.want("/proc/$(cat /run/carrel.pid)/exe version", now.version)
	m.want(with+remember, thought)

	m.run("rpm -e carrel")
	m.want("ls /var/lib/carrel/drained.json", "drained.json")
	if out, err := m.try("ls /usr/bin/carrel /usr/share/man/man1/carrel.1.gz"); err == nil {
		t.Errorf("left: %s", out)
	}
	m.run(stop)
}
