//go:build linux

package hosted

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/linux/cgroup"
)

// HintNamespaces is the remedy when user namespaces are refused.
const HintNamespaces = "allow unprivileged user namespaces (sysctl kernel.unprivileged_userns_clone=1, " +
	"user.max_user_namespaces>0, kernel.apparmor_restrict_unprivileged_userns=0 or an AppArmor profile), or run as root"

// HintGroups is the remedy when no control group may be made.
const HintGroups = "run as root, or have a control group delegated (version 2 with systemd: " +
	"systemd-run --user --scope -p Delegate=yes carrel serve; in a service: Delegate=yes and DelegateSubgroup=daemon)"

// hintNamespaceLimit is the remedy when there are too many namespaces.
const hintNamespaceLimit = "raise it: sysctl user.max_user_namespaces=15000, also in the containers around this one"

// A Trial is a process that a probe starts in the namespaces of a sandbox, to see whether that
// works.
type Trial struct {
	Op  string
	Cmd *exec.Cmd
	// RootHint is the remedy when even root may not start it.
	RootHint string
	// Said explains the text that the process wrote to its standard error before it failed. Nil
	// adds the text to the error.
	Said func(text string) (what, hint string)
}

// Run runs the process. Errors: TimedOut, and Unsupported with a hint.
func (t Trial) Run(ctx context.Context) error {
	var stderr bytes.Buffer
	t.Cmd.Stderr = &stderr
	err := t.Cmd.Run()
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); cause != nil {
		return &carrel.Error{Op: t.Op, Kind: carrel.TimedOut, Err: cause}
	}
	if text := strings.TrimSpace(stderr.String()); text != "" {
		if t.Said != nil {
			what, hint := t.Said(text)
			return &carrel.Error{Op: t.Op, Kind: carrel.Unsupported, Err: errors.New(what), Hint: hint}
		}
		err = fmt.Errorf("%w: %s", err, text)
	}
	hint := HintNamespaces
	switch {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EUSERS): // clone(2)'s error at a limit
		most, _ := os.ReadFile("/proc/sys/user/max_user_namespaces")
		err = fmt.Errorf("the limit of user namespaces is reached (user.max_user_namespaces is %s)", bytes.TrimSpace(most))
		hint = hintNamespaceLimit
	case errors.Is(err, os.ErrPermission) && os.Geteuid() == 0:
		hint = t.RootHint
	}
	return &carrel.Error{Op: t.Op, Kind: carrel.Unsupported, Err: fmt.Errorf("new namespaces: %w", err), Hint: hint}
}

// GroupFindings returns a finding for each controller that is missing on this host. what holds the
// driver's words for the features that don't work without it. A controller without words is left
// out.
func GroupFindings(h *cgroup.Hierarchy, what map[cgroup.Controller]string) (out []driver.Finding) {
	for _, c := range []cgroup.Controller{cgroup.Memory, cgroup.CPU, cgroup.Pids} {
		if err := h.Missing()[c]; err != nil && what[c] != "" {
			out = append(out, driver.Finding{What: what[c], Why: OneLine(err), Hint: HintGroups})
		}
	}
	return out
}

// OneLine joins the lines of a joined error.
func OneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// MapsIDs reports whether one line of a uid_map covers count ids from first on. In a container it
// may not, even for root.
func MapsIDs(uidMap string, first, count int64) bool {
	for line := range strings.Lines(uidMap) {
		var inside, outside, length int64
		if _, err := fmt.Sscan(line, &inside, &outside, &length); err == nil && inside <= first && first+count <= inside+length {
			return true
		}
	}
	return false
}
