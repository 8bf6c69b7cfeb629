package sim

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/shell/interp"
	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/tools"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// Limits of one command. No request can change them.
const (
	defaultOutput = 4 << 30  // bytes it may write
	defaultSteps  = 20 << 30 // its commands and loop rounds: hours of work
)

// Options configures a Driver. The zero value is good.
type Options struct {
	// Logger takes internal errors; nil discards them.
	Logger *slog.Logger
	// Now is the clock of the sandboxes; nil is time.Now.
	Now func() time.Time
	// MaxOutput and MaxSteps bound each started command; 0 is 4 GiB and about twenty thousand
	// million.
	MaxOutput, MaxSteps int64
	// Local serves the requests of a sandbox's guest to its host, as wire's Options.Local does.
	// When Local returns, the connection is closed. It may be nil.
	Local func(id carrel.ID, c net.Conn)
	// Link makes a sandbox's network link, when one of its programs first needs the network. If it
	// is nil, there is no way out. See [LinkBy].
	Link func(ctx context.Context, id carrel.ID) (Inside, error)
	// Programs are available in every sandbox.
	Programs []carrel.Program
	// Roots are the authorities that the sandboxes' programs trust, besides the one that a sandbox
	// is told to trust; nil is none.
	Roots *x509.CertPool
}

// Driver makes simulated sandboxes.
type Driver struct {
	opts     Options
	programs *programs

	// template is the initial filesystem of every sandbox. It is made once.
	template func() (*vfs.FS, error)
}

var _ driver.Driver = (*Driver)(nil)

// New returns the driver.
func New(o Options) *Driver {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.MaxOutput == 0 {
		o.MaxOutput = defaultOutput
	}
	if o.MaxSteps == 0 {
		o.MaxSteps = defaultSteps
	}
	return &Driver{opts: o, programs: newPrograms(o.Programs), template: sync.OnceValues(newTemplate)}
}

// templateTime is the modification time of every file of the template. It is the same in every
// process, so an unchanged file is the same after a restore in another process.
var templateTime = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// newTemplate builds the initial filesystem: the tools, two users and their homes.
func newTemplate() (*vfs.FS, error) {
	f := vfs.New(vfs.Options{Now: func() time.Time { return templateTime }})
	if err := interp.Install(f, tools.Names()...); err != nil {
		return nil, err
	}
	v := f.Root()
	user := f.As(vfs.Cred{UID: userID, GID: userID})
	return f, errors.Join(
		v.WriteFile("/etc/passwd", []byte(passwd), 0o644),
		v.WriteFile("/etc/group", []byte(group), 0o644),
		v.MkdirAll("/home/user", 0o755), v.Chown("/home/user", userID, userID),
		user.WriteFile("/home/user/.profile", []byte("# Read by login shells.\n"), 0o644),
		v.WriteFile("/etc/profile", []byte("# Read by login shells before ~/.profile.\n"), 0o644),
		v.Chmod("/tmp", fs.ModeSticky|0o777),
	)
}

// userID is the default user's number, and its group's.
const userID = 1000

const (
	passwd = "root:x:0:0:root:/root:/bin/bash\nuser:x:1000:1000:user:/home/user:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
	group  = "root:x:0:\nuser:x:1000:\nnogroup:x:65534:\n"
)

// Info implements driver.Driver.
func (d *Driver) Info() driver.Info {
	return driver.Info{Name: "sim", Tier: carrel.Sim, ProgramMark: tool.ProgramMark, Capabilities: driver.Capabilities{
		MemoryLimit: true, PidLimit: true, DiskLimit: true, Snapshot: true,
	}}
}

// Probe implements driver.Driver. The driver works everywhere.
func (d *Driver) Probe(context.Context) error {
	if _, err := d.template(); err != nil {
		return &carrel.Error{Op: "probe", Kind: carrel.Internal, Err: err}
	}
	return nil
}

// Create implements driver.Driver.
func (d *Driver) Create(ctx context.Context, spec driver.Spec) (driver.Instance, error) {
	const op = "create simulated sandbox"
	if err := ctx.Err(); err != nil {
		return nil, &carrel.Error{Op: op, Kind: carrel.Unavailable, ID: spec.ID, Err: err}
	}
	template, err := d.template()
	if err != nil {
		return nil, &carrel.Error{Op: op, Kind: carrel.Internal, ID: spec.ID, Err: err}
	}
	return d.start(spec, template.Clone(d.disk(spec)), template)
}

// disk returns the options of a sandbox's filesystem.
func (d *Driver) disk(spec driver.Spec) vfs.Options {
	return vfs.Options{Quota: int64(spec.Limits.DiskMB) << 20, Now: d.opts.Now}
}

// start starts a sandbox on its files. template is their initial state.
func (d *Driver) start(spec driver.Spec, files, template *vfs.FS) (driver.Instance, error) {
	h, err := json.Marshal(handle{Version: 1, Driver: "sim", ID: spec.ID})
	if err != nil {
		return nil, &carrel.Error{Op: "start simulated sandbox", Kind: carrel.Internal, ID: spec.ID, Err: err}
	}
	return newInstance(d, spec, h, files, template), nil
}

// handle is the result of Handle. It names the sandbox for a person who reads the record. Nothing
// can be recovered with it.
type handle struct {
	Version int       `json:"v"`
	Driver  string    `json:"driver"`
	ID      carrel.ID `json:"id"`
}

// Recover implements driver.Driver. A simulated sandbox lives in the memory of
// the process that made it, so it is always gone.
func (d *Driver) Recover(_ context.Context, h driver.Handle) (driver.Instance, error) {
	var v handle
	if err := json.Unmarshal(h, &v); err != nil {
		return nil, &carrel.Error{Op: "recover simulated sandbox", Kind: carrel.Invalid, Err: fmt.Errorf("handle: %w", err)}
	}
	return nil, &carrel.Error{Op: "recover simulated sandbox", Kind: carrel.NotFound, ID: v.ID,
		Err:  errors.New("its memory ended with the process that made it"),
		Hint: "use a tier with a machine of its own (--tier gvisor) for sandboxes that outlive the daemon"}
}

// Close implements driver.Driver.
func (d *Driver) Close() error { return nil }
