package ns

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/hosted"
	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/linux/cgroup"
)

// Options are a driver's parameters. Root also holds unpacked templates; Executable is the binary
// of the stage.
type Options struct {
	hosted.Options
	// Files opens an EROFS image for reading. A user who may not mount an image unpacks it with
	// Files.
	Files func(ctx context.Context, image string) (image.Files, error)
	// Device is the kernel's file for making TAP devices; "" is /dev/net/tun.
	Device string
}

// Driver is the ns tier.
type Driver struct {
	opts   Options
	log    *slog.Logger
	mark   string // marks this driver's processes, see Sweep
	groups *cgroup.Hierarchy
	links  hosted.Links
	ice    *freezers

	// full: we are root of the host, so we may give out ids and mount images. bounded: we can also
	// make disks of a limited size.
	full, bounded bool
	why           map[string]error // why not

	templates templates
	roots     rootIDs

	live hosted.Books[*Instance]

	mu     sync.Mutex
	ranges map[uint32]bool // first ids of the ranges in use
}

var (
	_ driver.Driver   = (*Driver)(nil)
	_ driver.Reporter = (*Driver)(nil)
	_ driver.Sweeper  = (*Driver)(nil)

	_ driver.GroupClearer = (*Driver)(nil)
)

// New returns a driver. It makes opts.Root and the parent control groups, and starts nothing.
// Error: Unsupported when the program never called reexec.Run.
func New(opts Options) (*Driver, error) {
	const op = "open ns driver"
	if opts.Files == nil {
		return nil, &carrel.Error{Op: op, Kind: carrel.Invalid, Field: "files", Err: errors.New("no reader of images given")}
	}
	groups, err := opts.Prepare(op, "carrel/ns-")
	if err != nil {
		return nil, err
	}
	mark := "ns-" + opts.Mark()
	d := &Driver{opts: opts, log: opts.Log, mark: mark + "/", groups: groups, links: opts.Links(name), ice: openFreezers("carrel/" + mark),
		ranges: map[uint32]bool{}}
	d.why = map[string]error{"full": canMap(), "bounded": canBound()}
	d.full = d.why["full"] == nil
	d.bounded = d.full && d.why["bounded"] == nil
	d.templates = templates{d: d, used: map[string]*template{}}
	return d, nil
}

// name is the driver's own.
const name = "ns"

// track records an instance and its ids, for Close.
func (d *Driver) track(in *Instance) {
	d.live.Enter(in)
	d.mu.Lock()
	defer d.mu.Unlock()
	if in.rec.FirstID != 0 {
		d.ranges[in.rec.FirstID] = true
	}
}

// forget is the opposite of track.
func (d *Driver) forget(in *Instance) {
	d.live.Strike(in)
	d.dropRange(in.rec.FirstID)
}

// Info implements driver.Driver.
func (d *Driver) Info() driver.Info {
	return driver.Info{Name: name, Tier: carrel.NS, Capabilities: driver.Capabilities{
		RealProcesses: true,
		Isolation:     true,
		Recover:       d.opts.Keeper != nil,
		MemoryLimit:   true, // without a control group the driver watches
		CPULimit:      d.groups.Has(cgroup.CPU),
		// Without a group the kernel counts per user. If only one id is mapped, the sandbox is one
		// user.
		PidLimit:  d.groups.Has(cgroup.Pids) || !d.full,
		DiskLimit: d.bounded,
		Snapshot:  true, // of files
	}}
}

// Close implements driver.Driver. Sandboxes live on.
func (d *Driver) Close() error {
	for _, in := range d.live.All() {
		d.live.Strike(in)
		in.Release()
		hosted.CloseAll(in.guestLog)
	}
	d.templates.close()
	d.ice.close()
	return d.groups.Close() // removes only empty groups
}
