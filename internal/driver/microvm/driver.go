//go:build linux

package microvm

import (
	"crypto/sha256"
	"encoding/binary"
	"log/slog"
	"os"
	"sync/atomic"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/hosted"
	"github.com/carrel-dev/carrel/internal/linux/cgroup"
	"github.com/carrel-dev/carrel/internal/reexec"
)

// name is the driver's own.
const name = "microvm"

// Options are a driver's parameters. Root also holds the boot files and the accelerator's verdict;
// Executable is the binary of the stage.
type Options struct {
	hosted.Options
	// Engine is [EngineQEMU] or [EngineFirecracker]; "" takes the first of them that is installed.
	Engine string
	// QEMU is that VMM's program; "" looks for qemu-system-x86_64 in PATH. It must lie in one of the
	// host's directories of programs.
	QEMU string
	// Firecracker is that VMM's program; "" looks for firecracker in PATH.
	Firecracker string
	// Kernel is a directory with the kernel: the file vmlinux (ELF) or vmlinuz (bzImage), and modules
	// as modules/NAME.ko.
	Kernel string
	// FindKernel returns that directory if Kernel is "". It is asked before each start, so that a
	// machine boots a kernel that came meanwhile; nil finds none. Its error is the reason.
	FindKernel func() (string, error)
	// Init is carrel-init, linked statically.
	Init string
	// NoKVM leaves hardware virtualization untried.
	NoKVM bool

	kvm string // tests name another file than /dev/kvm
}

// Driver is the microvm tier.
type Driver struct {
	opts   Options
	log    *slog.Logger
	mark   string // marks this driver's processes, see Sweep
	groups *cgroup.Hierarchy
	links  hosted.Links
	root   bool // we may give out uids

	preparing chan struct{}           // one entry: who prepares
	ready     atomic.Pointer[machine] // set when sandboxes can be made

	ids      imageIDs
	memories memories

	live hosted.Books[*Instance]
}

var (
	_ driver.Driver       = (*Driver)(nil)
	_ driver.Reporter     = (*Driver)(nil)
	_ driver.Sweeper      = (*Driver)(nil)
	_ driver.GroupClearer = (*Driver)(nil)
	_ driver.Restorer     = (*Driver)(nil)
)

// Parts returns the parts of this driver for [reexec.Run].
func Parts() reexec.Parts { return reexec.Parts{stageName: stage} }

// New returns a driver. It makes opts.Root and the parent control groups, and starts nothing.
// Error: Unsupported when the program never called reexec.Run.
func New(opts Options) (*Driver, error) {
	groups, err := opts.Prepare("open microvm driver", "carrel/microvm-")
	if err != nil {
		return nil, err
	}
	links := opts.Links(name)
	links.Checksums = true
	return &Driver{opts: opts, log: opts.Log, mark: name + "-" + opts.Mark() + "/", groups: groups,
		links: links, root: hasUIDs(), preparing: make(chan struct{}, 1)}, nil
}

// Info implements driver.Driver.
func (d *Driver) Info() driver.Info {
	return driver.Info{Name: name, Tier: carrel.MicroVM, Capabilities: driver.Capabilities{
		RealProcesses:  true,
		Isolation:      true,
		Recover:        d.opts.Keeper != nil,
		MemoryLimit:    true, // the machine has no more
		CPULimit:       d.groups.Has(cgroup.CPU),
		DiskLimit:      true,
		Snapshot:       true,
		MemorySnapshot: true,
		SlowBoot:       true,
		// Root inside can raise the limit of processes again. They cost the host nothing.
		PidLimit: false,
	}}
}

// Close implements driver.Driver. Sandboxes live on.
func (d *Driver) Close() error {
	for _, in := range d.live.All() {
		d.live.Strike(in)
		in.Release()
		hosted.CloseAll(in.console, in.vmmLog)
		in.leaveMemory()
	}
	d.memories.close()
	return d.groups.Close() // removes only empty groups
}

// Host uids of sandboxes. The range is far above the ids of people and services, and does not
// overlap with those of the other tiers.
const (
	firstUID = 2_000_000_000
	uids     = 99_000_000
)

// hasUIDs reports whether the uids of sandboxes exist in our user namespace and are ours to give
// out.
func hasUIDs() bool {
	b, err := os.ReadFile("/proc/self/uid_map")
	return err == nil && os.Geteuid() == 0 && hosted.MapsIDs(string(b), firstUID, uids)
}

// uid is the host uid of a sandbox's VMM. It follows from the ID: two living sandboxes hardly ever
// share one, and if they do, their namespaces still part them.
func (d *Driver) uid(id carrel.ID) int {
	if !d.root {
		return os.Geteuid()
	}
	sum := sha256.Sum256([]byte(d.mark + string(id)))
	return firstUID + int(binary.BigEndian.Uint32(sum[:4])%uids)
}
