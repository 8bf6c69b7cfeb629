package chaos

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
)

// backupTrial takes a backup under load, and restores it on another machine: another directory, and
// namespaces with another name, another machine ID, another boot ID and another network. The first
// machine is gone then.
func backupTrial(t *trial) {
	if os.Geteuid() != 0 {
		t.skip("only root can make another machine")
	}
	reboot := t.seed%2 == 1
	if reboot { // tier ns needs a /proc that nothing hides
		t.tiers = []carrel.Tier{carrel.GVisor, carrel.Sim}
	}
	d := t.serve(setup{})
	t.populate(d)
	t.calm.Store(true)
	stop := t.work(d, 2)
	t.busy(8 + t.rng.IntN(15))
	stop()
	t.verify(d.svc, allowed{}) // settle what is in doubt
	t.pauseSome(d)
	file := filepath.Join(t.dir, "backup")
	if _, err := d.cli("backup", file); err != nil {
		t.fatalf("%v", err)
	}
	d.kill9()
	t.killAllOf(d.dir)
	t.faults++
	t.check(os.RemoveAll(d.dir))
	other := t.prepare(setup{dir: filepath.Join(t.dir, "other"), wrap: t.otherMachine(reboot)})
	if _, err := other.cli("restore", file); err != nil {
		t.fatalf("%v", err)
	}
	t.check(os.Remove(file))
	if err := other.start(); err != nil {
		t.fatalf("it does not start on another machine: %v", err)
	}
	t.enter(other)
	sub := t.copied(true) // what ran is not in a backup, but its snapshots are
	sub.verify(other.svc, allowed{})
	sub.finish(other)
	t.take(sub, "restored")
}

// otherMachine returns a function that lets a command run as on another machine, with another boot
// ID or not.
func (t *trial) otherMachine(reboot bool) func(*exec.Cmd) {
	id, boot := filepath.Join(t.dir, "machine-id"), filepath.Join(t.dir, "boot_id")
	t.check(os.WriteFile(id, []byte(fmt.Sprintf("%032x\n", t.seed+77)), 0o444))
	t.check(os.WriteFile(boot, []byte(fmt.Sprintf("%08x-0000-4000-8000-000000000000\n", t.seed+78)),
		0o444))
	script := "hostname elsewhere && ip link set lo up && "
	if reboot {
		script += "mount --bind " + boot + " /proc/sys/kernel/random/boot_id && "
	}
	script += `if [ -e /etc/machine-id ]; then mount --bind ` + id +
		` /etc/machine-id; fi && exec "$@"`
	return func(cmd *exec.Cmd) {
		args := append([]string{"unshare", "-m", "-u", "-n", "sh", "-c", script, "sh", cmd.Path},
			cmd.Args[1:]...)
		cmd.Path, cmd.Args = t.must(exec.LookPath("unshare")), args
	}
}

// enter makes a daemon in another network namespace reachable from this one, by a relay.
func (t *trial) enter(d *server) {
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", d.cmd.Process.Pid))
	t.check(err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	t.check(err)
	t.later(func() { _ = l.Close(); _ = ns.Close() })
	to := strings.TrimPrefix(d.url, "http://")
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go relay(c, int(ns.Fd()), to)
		}
	}()
	d.url = "http://" + l.Addr().String()
	_ = d.svc.Close()
	d.svc, err = client.New(d.url, d.key)
	t.check(err)
}

// relay joins a connection to an address in a network namespace.
func relay(c net.Conn, ns int, to string) {
	defer c.Close()
	far, err := dialIn(ns, to)
	if err != nil {
		return
	}
	defer far.Close()
	done := make(chan struct{})
	go func() {
		_, _ = io.Copy(far, c)
		_ = far.(*net.TCPConn).CloseWrite()
		close(done)
	}()
	_, _ = io.Copy(c, far)
	_ = c.(*net.TCPConn).CloseWrite()
	<-done
}

// dialIn connects from inside a network namespace. Its thread is not used again.
func dialIn(ns int, to string) (net.Conn, error) {
	type answer struct {
		c   net.Conn
		err error
	}
	got := make(chan answer)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		if err := unix.Setns(ns, unix.CLONE_NEWNET); err != nil {
			got <- answer{nil, err}
			return
		}
		c, err := net.Dial("tcp", to)
		got <- answer{c, err}
	}()
	a := <-got
	return a.c, a.err
}
