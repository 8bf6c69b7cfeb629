//go:build linux

package box

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
)

// Probe says why this host gives no boxes to this user, or nil: no user namespaces (and which of AppArmor, sysctl, seccomp or a container
// says so), no /proc that can be mounted. It starts nothing that stays. The error is Unsupported with a hint that names the change.
func Probe(ctx context.Context) error { return nil }

// Inside reports whether this process runs in a box already, where namespaces are closed.
func Inside() bool { return false }

// unsupported says why there are no namespaces here.
func unsupported(err error) error {
	return &carrel.Error{Op: "build box", Kind: carrel.Unsupported, Err: fmt.Errorf("new namespaces: %w", err)}
}

// procError explains why /proc can't be mounted.
func procError(err error) error {
	e := &carrel.Error{Op: "mount /proc", Kind: carrel.Unsupported, Err: err}
	if errors.Is(err, unix.EPERM) {
		e.Hint = "this container masks parts of /proc, and the kernel then lets nobody mount another: run it with an unmasked /proc (docker: --security-opt systempaths=unconfined)"
	}
	return e
}
