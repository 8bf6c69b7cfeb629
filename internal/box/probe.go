//go:build linux

package box

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/reexec"
)

// Probe returns nil if this host can make boxes for this user. Otherwise it returns an Unsupported
// error with a hint that names the remedy. Reasons are missing user namespaces (because of
// AppArmor, a sysctl, seccomp or a container) or a /proc that can't be mounted. Probe leaves no
// process running. If the program's main does not run Parts, Probe tests only the namespaces.
func Probe(ctx context.Context) error {
	s := Spec{Args: []string{"/"}, Root: Root{Host: true}, Network: Closed}
	if !reexec.Ready() {
		return namespaces()
	}
	b, err := Start(ctx, s, Options{})
	var exec *os.PathError
	if errors.As(err, &exec) && exec.Op == "exec" { // the walls stood
		return nil
	}
	if err != nil {
		return err
	}
	_ = b.Kill()
	_, _ = b.Wait()
	return nil
}

// namespaces starts a program in new namespaces.
func namespaces() error {
	b := &Box{spec: Spec{Network: Closed}}
	var last error
	for _, user := range b.userChoices() {
		attr := b.attributes(user)
		attr.PidFD, attr.AmbientCaps, attr.Pdeathsig = nil, nil, 0
		pid, err := syscall.ForkExec("/proc/self/exe", []string{"true", "--version"}, &syscall.ProcAttr{Dir: "/dev/null/none", Sys: attr})
		if err == nil {
			_, _ = syscall.Wait4(pid, nil, 0, nil)
			return nil
		}
		if errors.Is(err, unix.ENOTDIR) { // it got as far as Dir, which is no directory
			return nil
		}
		last = err
	}
	return unsupported(last)
}

// Inside reports whether this process already runs in a box, or in something similar where
// namespaces are closed: it has no_new_privs and a system call filter.
func Inside() bool { return statusIs("NoNewPrivs", "1") && statusIs("Seccomp", "2") }

// statusIs compares the value of a line in /proc/self/status.
func statusIs(key, value string) bool {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return false
	}
	for line := range bytes.Lines(text) {
		if k, v, ok := strings.Cut(string(line), ":"); ok && k == key {
			return strings.TrimSpace(v) == value
		}
	}
	return false
}

// unsupported returns the error for a host without namespaces, with the reason.
func unsupported(err error) error {
	return &carrel.Error{Op: "build box", Kind: carrel.Unsupported, Err: fmt.Errorf("new namespaces: %w", err), Hint: remedy(err, sysctl, statusIs)}
}

// sysctl reads one value of /proc/sys; "" if there is none.
func sysctl(name string) string {
	b, err := os.ReadFile("/proc/sys/" + strings.ReplaceAll(name, ".", "/"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// remedy is the change to the host after which namespaces can be made.
func remedy(err error, sysctl func(string) string, status func(key, value string) bool) string {
	switch {
	case sysctl("user.max_user_namespaces") == "0" || errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EUSERS):
		return "as root: sysctl -w user.max_user_namespaces=15000 (it is " + sysctl("user.max_user_namespaces") + "), or ask for Landlock and the filter alone (--light)"
	case sysctl("kernel.unprivileged_userns_clone") == "0":
		return "as root: sysctl -w kernel.unprivileged_userns_clone=1, or ask for Landlock and the filter alone (--light)"
	case sysctl("kernel.apparmor_restrict_unprivileged_userns") == "1":
		return "AppArmor forbids it to programs without a profile; as root: sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or give carrel a profile with \"userns,\", or ask for Landlock and the filter alone (--light)"
	case status("NoNewPrivs", "1") && status("Seccomp", "2"):
		return "this is inside a box already, where no other is built: ask for Landlock and the filter alone (--light)"
	case status("Seccomp", "2"):
		return "this container's filter forbids it: run it with one that allows clone and unshare with namespaces (docker: --security-opt seccomp=unconfined), or ask for Landlock and the filter alone (--light)"
	case errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS):
		return "this kernel has no user namespaces (CONFIG_USER_NS), or is older than 5.12: ask for Landlock and the filter alone (--light)"
	}
	return "the kernel refuses namespaces to this user, perhaps because of a chroot or a security module: ask for Landlock and the filter alone (--light)"
}

// procError explains why /proc can't be mounted.
func procError(err error) error {
	e := &carrel.Error{Op: "mount /proc", Kind: carrel.Unsupported, Err: err}
	if errors.Is(err, unix.EPERM) {
		e.Hint = "this container masks parts of /proc, and the kernel then lets nobody mount another: run it with an unmasked /proc (docker: --security-opt systempaths=unconfined), or ask for Landlock and the filter alone (--light)"
	}
	return e
}
