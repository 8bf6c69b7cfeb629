package gvisor

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/hosted"
	"github.com/carrel-dev/carrel/internal/linux/cgroup"
)

// Probe implements driver.Driver. It starts a process in the namespaces that a sentry gets, and
// compiles the system call filter; together they take some 50 ms. It asks the kernel for the rest.
func (d *Driver) Probe(ctx context.Context) error {
	unsupported := func(err error, hint string) error {
		return &carrel.Error{Op: "probe gvisor", Kind: carrel.Unsupported, Err: err, Hint: hint}
	}
	if runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		return unsupported(fmt.Errorf("no gVisor for %s", runtime.GOARCH), "use an amd64 or arm64 host")
	}
	if _, err := unix.PrctlRetInt(unix.PR_GET_SECCOMP, 0, 0, 0, 0); err != nil {
		return unsupported(fmt.Errorf("seccomp: %w", err), "use a kernel with CONFIG_SECCOMP_FILTER")
	}
	fd, err := unix.MemfdCreate("probe", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return unsupported(fmt.Errorf("memfd_create: %w", err), "use Linux 4.14 or newer with CONFIG_MEMFD_CREATE")
	}
	unix.Close(fd)
	pidfd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		return unsupported(fmt.Errorf("pidfd_open: %w", err), "use Linux 5.3 or newer")
	}
	unix.Close(pidfd)
	if err := checkStatic(d.program.path, d.opts.Executable == hosted.SelfName); err != nil {
		return unsupported(err, "build it with CGO_ENABLED=0 (also: CGO_ENABLED=0 go run, CGO_ENABLED=0 go test): it is started again in an empty root, where no loader is")
	}
	if _, err := d.filter(); err != nil { // so the first Create is as fast as the others
		d.log.Warn("sandboxes compile their own system call filter", "err", err)
	}
	err = d.probeNamespaces(ctx)
	if err == nil {
		d.works.Store(true)
	}
	return err
}

// checkStatic fails for a binary that needs a dynamic linker. The sentry starts the binary once
// more inside its empty root, where there is no linker.
func checkStatic(name string, self bool) error {
	f, err := elf.Open(name)
	if err != nil {
		return fmt.Errorf("the binary for sandboxes: %w", err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			if self {
				return errors.New("this program is linked dynamically, so it can't be a sandbox's kernel")
			}
			return errors.New("the binary for sandboxes is linked dynamically")
		}
	}
	return nil
}

// probeNamespaces starts nsProbe.
func (d *Driver) probeNamespaces(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, d.program.path)
	cmd.Args = []string{nsProbeName}
	cmd.Env = []string{}
	cmd.Dir = "/"
	cmd.Stdin = d.program.null
	cmd.SysProcAttr = d.namespaces(d.sandboxUID(""))
	return hosted.Trial{Op: "probe gvisor", Cmd: cmd,
		RootHint: "the binary must be executable by every user, and this container must allow new namespaces (CAP_SYS_ADMIN, CAP_SETUID, CAP_SETGID)",
	}.Run(ctx)
}

// Report implements driver.Reporter.
func (d *Driver) Report(context.Context) []driver.Finding {
	out := hosted.GroupFindings(d.groups, map[cgroup.Controller]string{
		cgroup.Memory: "the driver watches memory limits itself: a sandbox can pass its limit for a quarter of a second before it is ended",
		cgroup.CPU:    "processor limits are not enforced",
		cgroup.Pids:   "the host tasks of a sandbox are not bounded (the processes inside are)",
	})
	if !d.root {
		out = append(out, driver.Finding{
			What: "all sandboxes share one host uid",
			Why:  fmt.Sprintf("running as uid %d, which may give out no others", os.Geteuid()),
			Hint: "run as the host's root to give each sandbox a uid of its own",
		})
	}
	if host, guest, mtu, err := hosted.NewPair(); err == nil {
		hosted.CloseAll(host, guest)
		if mtu < hosted.BigMTU {
			out = append(out, driver.Finding{
				What: fmt.Sprintf("the network of a sandbox is slower (frames of %d bytes instead of %d)", mtu, hosted.BigMTU),
				Why:  "the socket buffers may not grow",
				Hint: fmt.Sprintf("run as root, or set sysctl net.core.wmem_max=%d", hosted.PairBuffer),
			})
		}
	}
	return out
}
