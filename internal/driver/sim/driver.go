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

// Limits of one command, which no request sets.
const (
	defaultOutput = 4 << 30  // bytes it may write
	defaultSteps  = 20 << 30 // commands and loop rounds it may make: hours of work
)

// Options configures a Driver. The zero value is good.
type Options struct {
	// Logger takes what went wrong inside; nil discards it.
	Logger *slog.Logger
	// Now is the clock of the sandboxes; nil is time.Now.
	Now func() time.Time
	// MaxOutput and MaxSteps bound each command that is started; 0 is 4 GiB and
	// about twenty thousand million.
	MaxOutput, MaxSteps int64
	// Local, if given, serves what a sandbox's guest asks of its host, as wire's
	// Options.Local does. The connection is closed when it returns.
	Local func(id carrel.ID, c net.Conn)
	// Link, if given, makes a sandbox's network link, once one of its programs asks for something outside. Nil: there is no
	// way out. See [LinkBy].
	Link func(ctx context.Context, id carrel.ID) (Inside, error)
	// Programs are in every sandbox.
	Programs []carrel.Program
	// Roots are what the sandboxes' programs trust besides the authority that a sandbox is told to trust; nil is
	// nobody.
	Roots *x509.CertPool
}

// Driver makes simulated sandboxes.
type Driver struct {
	opts     Options
	programs *programs

	// template is the filesystem that every sandbox begins with, made once.
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

// templateTime is when every file of the template was changed: the same in every
// process, so that a file nobody touched is the same after a restore in another one.
var templateTime = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// newTemplate builds the start state: the tools, two users and their homes.
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

// Probe implements driver.Driver: it works everywhere.
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

// disk is how a sandbox's filesystem is made.
func (d *Driver) disk(spec driver.Spec) vfs.Options {
	return vfs.Options{Quota: int64(spec.Limits.DiskMB) << 20, Now: d.opts.Now}
}

// start starts a sandbox on its files, which began as template.
func (d *Driver) start(spec driver.Spec, files, template *vfs.FS) (driver.Instance, error) {
	h, err := json.Marshal(handle{Version: 1, Driver: "sim", ID: spec.ID})
	if err != nil {
		return nil, &carrel.Error{Op: "start simulated sandbox", Kind: carrel.Internal, ID: spec.ID, Err: err}
	}
	return newInstance(d, spec, h, files, template), nil
}

// handle is what Handle returns. It names the sandbox for a person who reads the
// record; nothing can be recovered with it.
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
