package ns

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/hosted"
	"github.com/carrel-dev/carrel/internal/linux/cgroup"
	"github.com/carrel-dev/carrel/internal/linux/tap"
)

// probeName is the part that tries a stage's actions.
const probeName = "carrel-ns-try"

// Probe implements driver.Driver. It starts a process in the namespaces of a sandbox. That process
// tries the mounts and the device that a sandbox needs.
func (d *Driver) Probe(ctx context.Context) error {
	unsupported := func(err error, hint string) error {
		return &carrel.Error{Op: "probe ns", Kind: carrel.Unsupported, Err: err, Hint: hint}
	}
	if pidfd, err := unix.PidfdOpen(os.Getpid(), 0); err != nil {
		return unsupported(fmt.Errorf("pidfd_open: %w", err), "use Linux 5.13 or newer")
	} else {
		unix.Close(pidfd)
	}
	cmd := exec.CommandContext(ctx, d.opts.Executable)
	cmd.Args = []string{probeName, d.opts.Device}
	cmd.Env, cmd.Dir = []string{}, "/"
	first := uint32(0)
	if d.full {
		first = firstID
	}
	cmd.SysProcAttr = d.namespaces(first)
	return hosted.Trial{Op: "probe ns", Cmd: cmd,
		RootHint: "this container must allow new namespaces (CAP_SYS_ADMIN, CAP_SETUID, CAP_SETGID)",
		Said: func(text string) (what, hint string) {
			what, hint, _ = strings.Cut(text, "\n")
			return what, hint
		},
	}.Run(ctx)
}

// try is the part: it does a stage's first steps. On standard error it reports the refused step and
// the remedy.
func try() {
	runtime.LockOSThread()
	refused := func(err error, hint string) {
		os.Stderr.WriteString(strings.ReplaceAll(err.Error(), "\n", "; ") + "\n" + hint)
		os.Exit(1)
	}
	if os.Getpid() != 1 {
		refused(errors.New("not in namespaces of its own"), "")
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		refused(os.NewSyscallError("mount private", err), hosted.HintNamespaces)
	}
	if err := mountProc("/proc"); err != nil {
		refused(fmt.Errorf("in a new user namespace: %w", err), "this container hides parts of /proc: run it with an unmasked one (docker: --security-opt systempaths=unconfined), or on the host")
	}
	link, err := tap.Setup(tap.Config{Device: os.Args[1]})
	if err != nil {
		refused(err, carrel.HintOf(err))
	}
	_ = link.Close()
	if err := becomeRoot(); err != nil {
		refused(err, hosted.HintNamespaces)
	}
	if err := tryOverlay(); err != nil {
		refused(fmt.Errorf("overlay in a new user namespace: %w", err), "use Linux 5.13 or newer with overlayfs (modprobe overlay)")
	}
	os.Exit(0)
}

// tryOverlay mounts a small overlay.
func tryOverlay() error {
	dir, err := scratch()
	if err != nil {
		return err
	}
	if err := os.Chdir(dir); err != nil {
		return err
	}
	for _, name := range []string{lowerName, diskName, diskName + "/" + upperName, diskName + "/" + workName, rootName} {
		if err := os.Mkdir(name, 0o755); err != nil {
			return err
		}
	}
	return mountOverlay()
}

// Report implements driver.Reporter.
func (d *Driver) Report(context.Context) []driver.Finding {
	out := []driver.Finding{{
		What: "sandboxes share this host's kernel: a bug in it is a way out",
		Why:  "namespaces, Landlock and a system call filter are the walls of this tier",
		Hint: "for code that attacks the kernel use --tier gvisor",
	}}
	lacks := map[cgroup.Controller]string{
		cgroup.Memory: "the driver watches memory limits itself: a sandbox can pass its limit for a quarter of a second before it is ended, and memory files that no process maps are not counted",
		cgroup.CPU:    "processor limits are not enforced",
	}
	if d.full { // otherwise the limit per user applies to one user
		lacks[cgroup.Pids] = "the processes of a sandbox are bounded for each of its users, and not in all"
	}
	out = append(out, hosted.GroupFindings(d.groups, lacks)...)
	if err := d.why["full"]; err != nil {
		out = append(out, driver.Finding{
			What: "inside, everything belongs to root and runs as root, who is this user outside; templates are unpacked before their first use; what a sandbox writes to the disk is not bounded",
			Why:  hosted.OneLine(err) + ", which may map one id and mount no image",
			Hint: "run as the host's root to give each sandbox ids and a disk of its own, or use --tier gvisor",
		})
	} else if err := d.why["bounded"]; err != nil {
		out = append(out, driver.Finding{
			What: "what a sandbox writes to the disk is not bounded", Why: hosted.OneLine(err), Hint: "make loop devices and ext4 available (modprobe loop ext4)",
		})
	}
	return out
}
