//go:build linux

package hosted

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
)

// Strays calls f with the arguments of every process of this host except this one. f recognises its
// driver's processes by them. Code inside a sandbox may write such arguments, too; then only its
// own process is ended.
func Strays(f func(pid int, args []string)) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		b, _ := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		if text := strings.TrimSuffix(string(b), "\x00"); text != "" {
			f(pid, strings.Split(text, "\x00"))
		}
	}
}

// Known returns a set of IDs of sandboxes.
func Known(ids []carrel.ID) map[string]bool {
	keep := make(map[string]bool, len(ids))
	for _, id := range ids {
		keep[string(id)] = true
	}
	return keep
}

// SweepError joins the errors of a Sweep; nil when there are none.
func SweepError(errs []error) error {
	if err := errors.Join(errs...); err != nil {
		return &carrel.Error{Op: "sweep sandboxes", Kind: carrel.Internal, Err: err}
	}
	return nil
}

// KillStray ends a process that no daemon knows, and waits for its end.
func KillStray(ctx context.Context, pid int) error {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil // gone
	}
	f := os.NewFile(uintptr(fd), "pidfd")
	defer f.Close()
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && err != unix.ESRCH {
		return fmt.Errorf("kill leftover %d: %w", pid, err)
	}
	WaitDead(ctx, f)
	return ctx.Err()
}
