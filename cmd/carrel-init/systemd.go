//go:build linux

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/microvm/boot"
)

// A template whose file [boot.InitFile] says so has systemd as its first process. The guest is then a
// service of systemd's, which begins before all others and whose end is the machine's.

// systemdPaths are the places of systemd.
var systemdPaths = []string{"/usr/lib/systemd/systemd", "/lib/systemd/systemd"}

// runDir is where systemd finds what lasts until the machine's end. It goes before what the template
// has in /usr/lib, and behind what it has in /etc.
const runDir = "/run/systemd"

// unitName is the guest's service.
const unitName = "carrel-guest.service"

// units are files in runDir. The guest's own is made for each machine.
//
// The console is the driver's: it takes the last lines for the reason of an end. So no login is
// offered there, and nobody asks for a locale or a password at the first start. A systemd that
// crashes would stand still, and the sandbox with it.
var units = map[string]string{
	"system.conf.d/carrel.conf": "[Manager]\nCrashReboot=yes\nShowStatus=no\n",
}

// masked are units that do not start.
var masked = []string{"serial-getty@ttyS0.service", "console-getty.service", "systemd-firstboot.service"}

// becomeFirst becomes the machine's first process: the guest, or what the template names. It returns
// only after an error.
func becomeFirst(order boot.Order) error {
	name, err := readInit("/" + boot.InitFile)
	if err != nil {
		return err
	}
	switch name {
	case "":
		err := syscall.Exec(driver.GuestPath, order.Args, order.Env)
		return fmt.Errorf("start the guest: %w", err)
	case boot.Systemd:
		return becomeSystemd(order)
	}
	return fmt.Errorf("the template's /%s names %.100q, and only %q is known", boot.InitFile, name, boot.Systemd)
}

// readInit reads which first process a template wants; "" is the guest.
func readInit(file string) (string, error) {
	f, err := os.OpenFile(file, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	return boot.ReadInit(f)
}

// becomeSystemd writes the guest's service and starts systemd.
func becomeSystemd(order boot.Order) error {
	if err := realDir("/run"); err != nil {
		return err
	}
	if err := (mount{"tmpfs", "/run", "tmpfs", "mode=755", unix.MS_NOSUID | unix.MS_NODEV}).make(); err != nil {
		return err
	}
	if err := writeUnits(runDir, order); err != nil {
		return fmt.Errorf("the guest's service: %w", err)
	}
	env := append(order.Env[:len(order.Env):len(order.Env)], "TERM=linux")
	for _, path := range systemdPaths {
		if err := syscall.Exec(path, []string{path}, env); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("start %s: %w", path, err)
		}
	}
	return fmt.Errorf("the template's /%s wants systemd, which is not in the template", boot.InitFile)
}

// writeUnits writes what systemd is told into a directory.
func writeUnits(dir string, order boot.Order) error {
	system := filepath.Join(dir, "system")
	files := map[string]string{filepath.Join(system, unitName): guestUnit(order)}
	for name, text := range units {
		files[filepath.Join(dir, name)] = text
	}
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			return err
		}
	}
	for _, name := range masked {
		if err := os.Symlink(os.DevNull, filepath.Join(system, name)); err != nil {
			return err
		}
	}
	wants := filepath.Join(system, "sysinit.target.wants")
	if err := os.Mkdir(wants, 0o755); err != nil {
		return err
	}
	return os.Symlink("../"+unitName, filepath.Join(wants, unitName))
}

// guestUnit is the guest's service. It waits for no other unit, and no target's change stops it: the
// host speaks to it until the machine's last moment. What callers run inside belongs to its control
// group, so a process that runs out of memory must not stop it, and it may divide the group.
func guestUnit(order boot.Order) string {
	var b strings.Builder
	b.WriteString("[Unit]\nDescription=The guest of Carrel, through which the host reaches this machine\n" +
		"DefaultDependencies=no\nIgnoreOnIsolate=yes\nRefuseManualStop=yes\n" +
		"SuccessAction=reboot-force\nFailureAction=reboot-force\n\n" +
		"[Service]\nType=exec\nOOMPolicy=continue\nDelegate=yes\nTasksMax=infinity\n" +
		"LimitCORE=0\nStandardError=journal+console\n")
	fmt.Fprintf(&b, "LimitNOFILE=%d\n", maxOpenFiles)
	if order.Pids > 0 {
		fmt.Fprintf(&b, "LimitNPROC=%d\n", order.Pids)
	}
	for _, v := range order.Env {
		fmt.Fprintf(&b, "Environment=%s\n", unitWord(v))
	}
	b.WriteString("ExecStart=")
	for i, arg := range order.Args {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(strings.ReplaceAll(unitWord(arg), "$", "$$")) // a variable here, and nowhere else
	}
	b.WriteByte('\n')
	return b.String()
}

// unitWord quotes a word for a unit: systemd replaces %, and \ begins an escape.
func unitWord(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "%", "%%", "\n", `\n`).Replace(s) + `"`
}
