package drivertest

import (
	"context"
	"crypto/rand"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// testEscape plants canaries and runs the attack program against them.
func (s *suite) testEscape(t *testing.T) {
	c := plant(t)
	d := s.open(t) // opened after plant: it inherits the environment with a canary
	b := s.box(t, d)
	if s.attack == "" {
		s.testRefusesCode(t, b, c)
		return
	}
	if !s.info.Capabilities.Isolation {
		testenv.Inapplicable(t, "the driver does not claim to isolate")
	}
	b.upload(t)
	cases := []struct {
		name string
		run  func(*testing.T)
	}{
		{"host files", func(t *testing.T) {
			inside := "control" + rand.Text()
			b.must(t, "echo "+inside+" > /tmp/control")
			b.run(t, time.Minute, nil, append([]string{"canaries", inside, c.token}, c.paths...)...).wantRefused(t, "canaries", "canary", "chroot")
		}},
		{"environment and arguments", func(t *testing.T) {
			own := "own" + rand.Text()
			b.run(t, time.Minute, map[string]string{"OWN": own}, "environ", own, c.token).wantRefused(t, "environ", "environ")
		}},
		{"proc and sys", func(t *testing.T) { b.escapeKnobs(t, c) }},
		{"what tells of the host", b.escapeTelltales},
		{"mounts", func(t *testing.T) {
			a := b.run(t, time.Minute, nil, append([]string{"mounts", c.token}, c.paths...)...)
			for _, w := range a.worked(append(s.kernels("mount debugfs", "mount ext4"), "canary")...) {
				t.Errorf("not refused: %s", w)
			}
			if len(a) == 0 {
				t.Error("nothing was tried")
			}
		}},
		{"devices", func(t *testing.T) {
			b.run(t, time.Minute, nil, "devices").wantRefused(t, "devices", s.kernels("device")...)
		}},
		{"raw sockets", func(t *testing.T) {
			b.run(t, time.Minute, nil, "sockets").wantRefused(t, "sockets", s.kernels("socket")...)
		}},
		{"host processes", func(t *testing.T) {
			pid := strconv.Itoa(c.process.Process.Pid)
			b.run(t, time.Minute, nil, "pids", pid).wantControl(t, "pids")
		}},
		{"system calls", func(t *testing.T) {
			before := time.Now()
			b.run(t, time.Minute, nil, "syscalls", c.key).wantRefused(t, "syscalls", append(s.kernels(
				"perf", "bpf", "io_uring", "userfaultfd", "kexec", "reboot", "swapon", "init_module", "settimeofday", "iopl"), "keyctl", "vsock")...)
			if d := time.Since(before); time.Now().Year() < 2020 || d > time.Minute {
				t.Error("the host's clock moved")
			}
		}},
		{"terminals", func(t *testing.T) { b.run(t, time.Minute, nil, "tty").wantControl(t, "tty") }},
		{"unix sockets", func(t *testing.T) {
			b.run(t, time.Minute, nil, append([]string{"unix"}, c.sockets...)...).wantRefused(t, "unix", "unix")
		}},
		{"host network", func(t *testing.T) { b.escapeNetwork(t, c) }},
		{"names", func(t *testing.T) {
			a := b.run(t, time.Minute, nil, "dns", c.token+".example.com", driver.GatewayIPv4+":53", "203.0.113.9:53", "127.0.0.1:53")
			a.wantRefused(t, "dns "+driver.GatewayIPv4+":53", "dns")
		}},
	}
	for _, k := range cases {
		t.Run(k.name, func(t *testing.T) {
			if why := s.Skip["escape/"+k.name]; why != "" {
				testenv.Inapplicable(t, why)
			}
			k.run(t)
			c.wantUntouched(t)
		})
	}
	if out := b.must(t, "echo alive"); out != "alive" {
		t.Errorf("after all that the sandbox says %q", out)
	}
}

// kernels returns the attempts that a kernel must refuse if others live on it, too.
func (s *suite) kernels(attempts ...string) []string {
	if s.OwnKernel {
		return nil
	}
	return attempts
}

// escapeKnobs writes to kernel settings inside, and compares the host's settings before and after.
func (b *box) escapeKnobs(t *testing.T, c *canaries) {
	knobs := []string{"/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/domainname",
		"/sys/kernel/uevent_helper", "/sys/fs/cgroup/memory/release_agent"}
	before := make(map[string]string)
	for _, k := range knobs {
		v, err := os.ReadFile(k)
		if err == nil {
			before[k] = string(v)
		}
	}
	a := b.run(t, time.Minute, nil, "proc", c.token)
	a.wantRefused(t, "proc", b.s.kernels("write /proc/sysrq-trigger", "write /sys/power", "write /proc/sys/kernel/core_pattern", "write /proc/sys/kernel/modprobe")...)
	for k, v := range before {
		if now, err := os.ReadFile(k); err != nil || string(now) != v {
			t.Errorf("the host's %s was %q and is %q", k, v, now)
			_ = os.WriteFile(k, []byte(v), 0) // put it back
		}
	}
}

// telltales are commands whose output identifies the machine: how it was booted, its devices, its
// disks.
var telltales = []string{"cat /proc/cmdline", "cat /proc/bootconfig", "cat /proc/partitions", "cat /proc/diskstats", "cat /proc/swaps", "cat /proc/mdstat", "cat /proc/modules",
	"cat /proc/interrupts", "cat /proc/softirqs", "cat /proc/iomem", "cat /proc/zoneinfo", "cat /proc/buddyinfo", "cat /proc/bus/pci/devices",
	"cat /proc/bus/input/devices", "cat /proc/slabinfo", "ls /proc/irq", "ls /sys/block", "ls /sys/class/block", "ls /sys/bus/pci/devices",
	"ls /sys/bus/virtio/devices", "ls /sys/bus/usb/devices", "ls /sys/module", "ls /sys/fs", "cat /sys/class/dmi/id/product_uuid", "cat /sys/class/dmi/id/product_name",
	"cat /sys/class/dmi/id/board_serial", "cat /sys/hypervisor/uuid", "cat /sys/firmware/dmi/tables/DMI | od -An -tx1"}

// escapeTelltales runs the telltales on the host and inside. No line's first three words may be the
// same. It compares only these, because counters change.
func (b *box) escapeTelltales(t *testing.T) {
	begins := func(text string) map[string]bool {
		out := map[string]bool{}
		for line := range strings.Lines(text) {
			if words := strings.Fields(line); len(words) > 0 && strings.ContainsAny(line, "0123456789/-_") {
				out[strings.Join(words[:min(3, len(words))], " ")] = true
			}
		}
		return out
	}
	tried := 0
	for _, command := range telltales {
		host, _ := exec.CommandContext(t.Context(), "sh", "-c", command+" 2>/dev/null").Output()
		want := begins(string(host))
		if len(want) == 0 {
			continue
		}
		tried++
		out, _, _ := b.exec(t.Context(), command+" 2>/dev/null")
		for line := range begins(out) {
			if want[line] {
				t.Errorf("%s shows the host's %q", command, line)
				break
			}
		}
	}
	if tried < 5 {
		t.Errorf("only %d of these say something on this host", tried)
	}
}

// escapeNetwork tries to reach every address of this host, its neighbours and the gateway that
// might answer.
func (b *box) escapeNetwork(t *testing.T, c *canaries) {
	_, port, err := net.SplitHostPort(c.tcp)
	if err != nil {
		t.Fatal(err)
	}
	to := []string{c.tcp, "[::1]:" + port, "0.0.0.0:" + port, "169.254.169.254:80", "203.0.113.9:80", "[2001:db8::9]:80"}
	for _, gw := range []string{driver.GatewayIPv4, driver.GatewayIPv6} {
		for _, p := range []string{port, "1", "22", "80", "443", "7070", "8080", "49983"} {
			to = append(to, net.JoinHostPort(gw, p))
		}
	}
	if own, err := net.InterfaceAddrs(); err == nil {
		for _, o := range own {
			if ip, ok := o.(*net.IPNet); ok && !ip.IP.IsLoopback() && ip.IP.To4() != nil {
				to = append(to, net.JoinHostPort(ip.IP.String(), port))
			}
		}
	}
	start := time.Now()
	b.run(t, 3*time.Minute, nil, append([]string{"connect"}, to...)...).wantRefused(t, "connect", "tcp")
	if d := time.Since(start); d > 2*time.Minute {
		t.Errorf("what is forbidden took %v to fail: it must fail at once", d)
	}
}

// testRefusesCode is the escape case for a driver that runs no real programs. It must refuse native
// code honestly, and nothing of the host may be visible.
func (s *suite) testRefusesCode(t *testing.T, b *box, c *canaries) {
	t.Run("native code", func(t *testing.T) {
		elf := "\x7fELF\x02\x01\x01\x00" + strings.Repeat("\x00", 200)
		if _, err := b.conn.Files("root").Write(t.Context(), "/tmp/attack", strings.NewReader(elf)); err != nil {
			t.Fatal(err)
		}
		_, code, err := b.exec(t.Context(), "chmod 755 /tmp/attack; /tmp/attack")
		if err == nil && code == 0 {
			t.Error("an ELF file was run with success")
		}
	})
	t.Run("host files", func(t *testing.T) {
		inside := "control" + rand.Text()
		b.must(t, "echo "+inside+" > /tmp/control")
		if out := b.must(t, "cat /tmp/control"); out != inside {
			t.Errorf("the control reads %q", out)
		}
		for _, p := range c.paths {
			for _, name := range []string{p, "/.." + p, "/proc/1/root" + p, "/proc/self/root" + p} {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				if out, _, _ := b.exec(ctx, "cat "+name); strings.Contains(out, c.token) {
					t.Errorf("%s holds the host's secret", name)
				}
				cancel()
				if rc, err := b.conn.Files("root").Read(t.Context(), name); err == nil {
					rc.Close()
					t.Errorf("the host's %s is there", name)
				}
			}
		}
		if out, _, _ := b.exec(t.Context(), "env; cat /proc/*/environ"); strings.Contains(out, c.token) {
			t.Error("the host's environment is there")
		}
	})
	t.Run("what tells of the host", b.escapeTelltales)
	t.Run("host network", func(t *testing.T) {
		_, port, _ := net.SplitHostPort(c.tcp)
		n, _ := strconv.Atoi(port)
		if conn, err := b.in.Dial(t.Context(), uint16(n)); err == nil {
			conn.Close()
			t.Error("a port of the host answers as the sandbox's")
		}
		if conn, err := b.conn.Dial(t.Context(), uint16(n)); err == nil {
			conn.Close()
			t.Error("the tunnel leads to the host's loopback")
		} else if carrel.KindOf(err) == "" {
			t.Errorf("the refusal has no kind: %v", err)
		}
	})
	c.wantUntouched(t)
}
