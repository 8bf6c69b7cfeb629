package gvisor

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/hosted"
	"github.com/carrel-dev/carrel/internal/linux/cgroup"
)

// Options are a driver's parameters. Root must be on a filesystem with unix sockets, for control
// sockets. Executable is the binary that the sentries run. Replacing it on disk does not mix
// versions, and the directories above it need not be open to the sandboxes' users.
type Options struct {
	hosted.Options
	// Blanks is the number of sentries to keep that were started before there is a sandbox for
	// them; 0 is none.
	Blanks int
	// Kernels is the directory of kept builds; "" keeps none.
	Kernels string
}

// Driver is the gvisor tier.
type Driver struct {
	opts    Options
	log     *slog.Logger
	program *program
	root    bool // we are root: each sandbox can have a uid of its own
	groups  *cgroup.Hierarchy
	links   hosted.Links

	ids     identities // of images and binaries
	kernels *kernels   // of other builds
	spawner spawner
	works   atomic.Bool // Probe says so
	blanks  blanks
	uids    uidSet
	live    hosted.Books[*Instance]

	// The compiled system call filter, made on first use.
	filterOnce sync.Once
	filterFile *os.File
	filterErr  error
}

var (
	_ driver.Driver   = (*Driver)(nil)
	_ driver.Reporter = (*Driver)(nil)
	_ driver.Restorer = (*Driver)(nil)
	_ driver.Blanker  = (*Driver)(nil)
	_ driver.Sweeper  = (*Driver)(nil)

	_ driver.GroupClearer = (*Driver)(nil)
)

// New returns a driver. It makes opts.Root and the parent control groups. It starts only the small
// process that starts sandboxes. Error: Unsupported when the program never called reexec.Run.
func New(opts Options) (*Driver, error) {
	const op = "open gvisor driver"
	groups, err := opts.Prepare(op, "carrel/")
	if err != nil {
		return nil, err
	}
	program, err := openProgram(opts.Executable)
	if err != nil {
		return nil, &carrel.Error{Op: op, Kind: carrel.Internal, Err: errors.Join(fmt.Errorf("the sandboxes' kernel: %w", err), groups.Close())}
	}
	kernels, err := openKernels(opts.Kernels)
	if err != nil {
		program.close()
		return nil, &carrel.Error{Op: op, Kind: carrel.Internal,
			Err: errors.Join(fmt.Errorf("the kept builds: %w", err), groups.Close())}
	}
	d := &Driver{kernels: kernels, opts: opts, log: opts.Log, program: program,
		root: os.Geteuid() == 0 && hasUIDs(), groups: groups, links: opts.Links(name)}
	d.spawner.get(d) // before the daemon is big
	d.uids.fixed = !d.root
	d.blanks.d, d.blanks.want, d.blanks.all = d, opts.Blanks, map[*blank]struct{}{}
	return d, nil
}

// name is the driver's own.
const name = "gvisor"

// Info implements driver.Driver.
func (d *Driver) Info() driver.Info {
	return driver.Info{Name: name, Tier: carrel.GVisor, Capabilities: driver.Capabilities{
		RealProcesses: true,
		Isolation:     true,
		Recover:       d.opts.Keeper != nil,
		MemoryLimit:   true, // without a control group the driver watches
		CPULimit:      d.groups.Has(cgroup.CPU),
		PidLimit:      true, // the sentry itself counts
		DiskLimit:     true,

		Snapshot:       true,
		MemorySnapshot: true,
	}}
}

// Close implements driver.Driver. Sandboxes live on.
func (d *Driver) Close() error {
	d.blanks.close()
	for _, in := range d.live.All() {
		d.live.Strike(in)
		in.Release()
		hosted.CloseAll(in.guestLog)
	}
	d.filterOnce.Do(func() {}) // never compile it now
	hosted.CloseAll(d.filterFile)
	err := d.spawner.close()
	d.kernels.close()
	d.program.close()
	return errors.Join(err, d.groups.Close()) // removes only empty groups
}

// filter returns the compiled system call filter.
func (d *Driver) filter() (*os.File, error) {
	d.filterOnce.Do(func() {
		d.filterFile, d.filterErr = d.makeFilter()
	})
	if d.filterFile == nil && d.filterErr == nil {
		return nil, os.ErrClosed
	}
	return d.filterFile, d.filterErr
}

// sockPath is where a sandbox's control socket is.
func (d *Driver) sockPath(id carrel.ID) string {
	return filepath.Join(d.opts.Root, string(id)+".sock")
}

// Host uids of sandboxes. They are far above the uids of people and services, and above the usual
// ranges for containers.
const (
	firstUID = 1_900_000_000
	uids     = 100_000_000
)

// hasUIDs reports whether the uids of sandboxes exist in our user namespace. In a container they
// may not exist, even for root.
func hasUIDs() bool {
	b, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return false
	}
	return hosted.MapsIDs(string(b), firstUID, uids)
}

// sandboxUID is the host uid of one sandbox's sentry. As root each sandbox gets a uid of its own,
// so that a sentry that was taken over can't touch another.
func (d *Driver) sandboxUID(id carrel.ID) int {
	if !d.root {
		return os.Geteuid()
	}
	sum := sha256.Sum256([]byte(d.opts.Identity + string(id))) // a copy's sandbox may have the same ID
	return firstUID + int(binary.BigEndian.Uint32(sum[:4])%uids)
}
