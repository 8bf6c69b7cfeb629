package gvisor

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/hosted"
	"github.com/carrel-dev/carrel/internal/linux/cgroup"
	"github.com/carrel-dev/carrel/internal/linux/proc"
	"github.com/carrel-dev/carrel/internal/reexec"
)

// Options are what a driver is made of.
type Options struct {
	// Root is a directory of this driver's own, for control sockets. It must be on
	// a filesystem with unix sockets; its path also tells this driver's sandboxes
	// from those of another on the same host.
	Root string
	// Network makes the daemon's ends of the links.
	Network driver.Network
	// Keeper holds them while the daemon is away. Without one nothing can be recovered.
	Keeper hosted.FDKeeper
	// Executable is the binary the sentries run. "" is the running one, whose main
	// must call reexec.Run with [Parts]; replacing it on disk does not mix versions.
	// Its mode must allow every user to execute it; the directories above it need not be theirs to search.
	Executable string
	// Blanks is how many sentries are kept that were started before there is a sandbox for them; 0 is none.
	Blanks int
	// Log takes what a person may need later. nil discards it.
	Log *slog.Logger
}

// Driver is the gvisor tier.
type Driver struct {
	opts    Options
	log     *slog.Logger
	program *program
	root    bool // we are root and may give each sandbox a uid of its own
	groups  *cgroup.Hierarchy

	ids     identities // of images and binaries
	spawner spawner
	works   atomic.Bool // Probe says so
	blanks  blanks
	uids    uidSet

	mu        sync.Mutex
	instances map[*Instance]struct{} // all that are not destroyed

	// The compiled system call filter, made when it is first wanted.
	filterOnce sync.Once
	filterFile *os.File
	filterErr  error
}

var (
	_ driver.Driver   = (*Driver)(nil)
	_ driver.Reporter = (*Driver)(nil)
	_ driver.Restorer = (*Driver)(nil)
)

// New returns a driver. It makes opts.Root and the parent control groups, and starts
// nothing but the small process that starts sandboxes. Error: Unsupported when the program never called reexec.Run.
func New(opts Options) (*Driver, error) {
	const op = "open gvisor driver"
	// What this process was started with, by a shell or a supervisor, is no sandbox's: neither to keep open
	// nor, for the sentry wants certain numbers, to stumble over.
	proc.CloseOnExec(3)
	if opts.Root == "" || !filepath.IsAbs(opts.Root) {
		return nil, &carrel.Error{Op: op, Kind: carrel.Invalid, Field: "root", Err: fmt.Errorf("%q is not an absolute path", opts.Root)}
	}
	if opts.Network == nil {
		return nil, &carrel.Error{Op: op, Kind: carrel.Invalid, Field: "network", Err: errors.New("no network given")}
	}
	exe := opts.Executable
	if exe == "" {
		if !reexec.Ready() {
			return nil, &carrel.Error{Op: op, Kind: carrel.Unsupported,
				Err:  errors.New("this program can't start itself as a sandbox"),
				Hint: "call carrel's re-exec hook first thing in main, or name the carrel binary"}
		}
		exe = selfName
	}
	if err := os.MkdirAll(opts.Root, 0o700); err != nil {
		return nil, &carrel.Error{Op: op, Kind: carrel.Internal, Err: err}
	}
	program, err := openProgram(exe)
	if err != nil {
		return nil, &carrel.Error{Op: op, Kind: carrel.Internal, Err: fmt.Errorf("the sandboxes' kernel: %w", err)}
	}
	groups, err := cgroup.Open("carrel/" + instanceName(opts.Root))
	if err != nil {
		program.close()
		return nil, &carrel.Error{Op: op, Kind: carrel.Internal, Err: err}
	}
	d := &Driver{opts: opts, log: opts.Log, program: program, root: os.Geteuid() == 0 && hasUIDs(), groups: groups,
		instances: map[*Instance]struct{}{}}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	d.spawner.get(d) // before the daemon is big
	d.uids.fixed = !d.root
	d.blanks.d, d.blanks.want, d.blanks.all = d, opts.Blanks, map[*blank]struct{}{}
	return d, nil
}

// track remembers an instance for Close.
func (d *Driver) track(in *Instance) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.instances[in] = struct{}{}
}

// forget is the opposite of track.
func (d *Driver) forget(in *Instance) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.instances, in)
}

// instanceName tells drivers with different roots apart.
func instanceName(root string) string {
	sum := sha256.Sum256([]byte(root))
	return hex.EncodeToString(sum[:4])
}

// Info implements driver.Driver.
func (d *Driver) Info() driver.Info {
	return driver.Info{Name: "gvisor", Tier: carrel.GVisor, Capabilities: driver.Capabilities{
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
	d.mu.Lock()
	instances := d.instances
	d.instances = map[*Instance]struct{}{}
	d.mu.Unlock()
	for in := range instances {
		in.Release()
		closeAll(in.guestLog)
	}
	d.filterOnce.Do(func() {}) // never compile it now
	closeAll(d.filterFile)
	err := d.spawner.close()
	d.program.close()
	return errors.Join(err, d.groups.Close()) // only what is empty goes
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

// Host uids of sandboxes, far above those of people, services and the usual
// ranges for containers.
const (
	firstUID = 1_900_000_000
	uids     = 100_000_000
)

// hasUIDs reports whether the uids of sandboxes exist in our user namespace: those
// of a container's root may not.
func hasUIDs() bool {
	b, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return false
	}
	return mapsUIDs(string(b), firstUID, uids)
}

// mapsUIDs reports whether one line of a uid_map covers count uids from first on.
func mapsUIDs(uidMap string, first, count int64) bool {
	for line := range strings.Lines(uidMap) {
		var inside, outside, length int64
		if _, err := fmt.Sscan(line, &inside, &outside, &length); err == nil &&
			inside <= first && first+count <= inside+length {
			return true
		}
	}
	return false
}

// sandboxUID is the host uid of one sandbox's sentry: as root one of its own, so
// that a sentry that was taken over can't touch another.
func (d *Driver) sandboxUID(id carrel.ID) int {
	if !d.root {
		return os.Geteuid()
	}
	sum := sha256.Sum256([]byte(id))
	return firstUID + int(binary.BigEndian.Uint32(sum[:4])%uids)
}
