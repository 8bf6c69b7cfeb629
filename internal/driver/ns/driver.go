package ns

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/hosted"
	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/linux/cgroup"
	"github.com/carrel-dev/carrel/internal/linux/proc"
	"github.com/carrel-dev/carrel/internal/reexec"
)

// Options are what a driver is made of.
type Options struct {
	// Root is a directory of this driver's own, for unpacked templates. Its path also
	// tells this driver's sandboxes from those of another on the same host.
	Root string
	// Network makes the daemon's ends of the links.
	Network driver.Network
	// Keeper holds them while the daemon is away. Without one nothing can be recovered.
	Keeper hosted.FDKeeper
	// Files opens an EROFS image for reading: a user who may not mount one unpacks it.
	Files func(ctx context.Context, image string) (image.Files, error)
	// Device is where TAP devices are given out; "" is /dev/net/tun.
	Device string
	// Executable is the binary of the stage. "" is the running one, whose main must call reexec.Run with
	// [Parts]. Every user must be allowed to execute it.
	Executable string
	// Log takes what a person may need later. nil discards it.
	Log *slog.Logger
}

// Driver is the ns tier.
type Driver struct {
	opts   Options
	log    *slog.Logger
	exe    string
	mark   string // tells this driver's processes, see Sweep
	groups *cgroup.Hierarchy
	ice    *freezers

	// full: we are root of the host and may give out ids and mount images. bounded:
	// and disks of a limited size.
	full, bounded bool
	why           map[string]error // why not

	templates templates
	roots     rootIDs

	mu        sync.Mutex
	instances map[*Instance]struct{} // all that are not destroyed
	ranges    map[uint32]bool        // first ids of the ranges in use
}

var (
	_ driver.Driver   = (*Driver)(nil)
	_ driver.Reporter = (*Driver)(nil)
)

// New returns a driver. It makes opts.Root and the parent control groups, starts
// nothing. Error: Unsupported when the program never called reexec.Run.
func New(opts Options) (*Driver, error) {
	const op = "open ns driver"
	proc.CloseOnExec(3) // what this process was started with is no sandbox's
	if opts.Root == "" || !filepath.IsAbs(opts.Root) {
		return nil, &carrel.Error{Op: op, Kind: carrel.Invalid, Field: "root", Err: fmt.Errorf("%q is not an absolute path", opts.Root)}
	}
	if opts.Network == nil || opts.Files == nil {
		return nil, &carrel.Error{Op: op, Kind: carrel.Invalid, Field: "network", Err: errors.New("no network, or no reader of images, given")}
	}
	if opts.Executable == "" {
		if !reexec.Ready() {
			return nil, &carrel.Error{Op: op, Kind: carrel.Unsupported,
				Err:  errors.New("this program can't start itself as a sandbox"),
				Hint: "call carrel's re-exec hook first thing in main, or name the carrel binary"}
		}
		opts.Executable = selfName
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(opts.Root, 0o700); err != nil {
		return nil, &carrel.Error{Op: op, Kind: carrel.Internal, Err: err}
	}
	sum := sha256.Sum256([]byte(opts.Root))
	name := hex.EncodeToString(sum[:4])
	groups, err := cgroup.Open("carrel/ns-" + name)
	if err != nil {
		return nil, &carrel.Error{Op: op, Kind: carrel.Internal, Err: err}
	}
	d := &Driver{opts: opts, log: opts.Log, exe: opts.Executable, mark: "ns-" + name + "/", groups: groups, ice: openFreezers("carrel/ns-" + name),
		instances: map[*Instance]struct{}{}, ranges: map[uint32]bool{}}
	d.why = map[string]error{"full": canMap(), "bounded": canBound()}
	d.full = d.why["full"] == nil
	d.bounded = d.full && d.why["bounded"] == nil
	d.templates = templates{d: d, used: map[string]*template{}}
	return d, nil
}

// track remembers an instance for Close.
func (d *Driver) track(in *Instance) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.instances[in] = struct{}{}
	if in.rec.FirstID != 0 {
		d.ranges[in.rec.FirstID] = true
	}
}

// forget is the opposite of track.
func (d *Driver) forget(in *Instance) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.instances, in)
	delete(d.ranges, in.rec.FirstID)
}

// Info implements driver.Driver.
func (d *Driver) Info() driver.Info {
	return driver.Info{Name: "ns", Tier: carrel.NS, Capabilities: driver.Capabilities{
		RealProcesses: true,
		Isolation:     true,
		Recover:       d.opts.Keeper != nil,
		MemoryLimit:   true, // without a control group the driver watches
		CPULimit:      d.groups.Has(cgroup.CPU),
		// Without a group the kernel counts per user, and where one id is mapped there is only one.
		PidLimit:  d.groups.Has(cgroup.Pids) || !d.full,
		DiskLimit: d.bounded,
		Snapshot:  true, // of files
	}}
}

// Close implements driver.Driver. Sandboxes live on.
func (d *Driver) Close() error {
	d.mu.Lock()
	instances := d.instances
	d.instances = map[*Instance]struct{}{}
	d.mu.Unlock()
	for in := range instances {
		in.Release()
		closeAll(in.guestLog)
	}
	d.templates.close()
	d.ice.close()
	return d.groups.Close() // only what is empty goes
}
