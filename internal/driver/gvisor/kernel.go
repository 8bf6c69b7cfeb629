package gvisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/kept"
	"github.com/carrel-dev/carrel/internal/version"
)

// Memory can be restored only by the build whose sentry saved it. So the driver keeps the sentry of
// each build (package kept), and starts the old one for a sandbox that an old one saved. The old
// sentry gets the settings that its own build gave it.

// controlVersion is the version of all that a daemon and a sentry must agree on: the sentry's
// arguments and descriptors, the parts extractPart and tarPart, and the calls on the control
// socket. A sandbox of another version can't be controlled, and a kept build of another version
// can't be started. Change it only when an old sentry would misunderstand a new daemon.
const controlVersion = 1

// mark is part of a build's name. The linker sets it in tests, for builds that differ in nothing
// else.
var mark string

// sentryBuild is the sentry of one build, with the settings that belong to it.
type sentryBuild struct {
	name    string // the build's
	program *program
	flags   []string
	base    json.RawMessage // ociSpec of nothing, as that build made it; nil for our own build
}

// own reports whether a kernel is this build's.
func (k *sentryBuild) own() bool { return k.base == nil }

// settings are the driver's own facts in a kept build.
type settings struct {
	Flags []string        `json:"flags"`
	Spec  json.RawMessage `json:"spec"`
}

// ownSettings returns the settings that this build gives to its sentries.
func ownSettings() settings {
	spec, err := json.Marshal(ociSpec(driver.Spec{}, carrel.Limits{}))
	if err != nil {
		panic("gvisor: the description of a sandbox: " + err.Error()) // plain fields always encode
	}
	return settings{Flags: fixedFlags, Spec: spec}
}

// kernels are the sentries that a driver can start.
type kernels struct {
	store *kept.Store // nil keeps nothing
	once  sync.Once   // for keeping our own
	wg    sync.WaitGroup

	mu   sync.Mutex
	open map[string]*sentryBuild // unpacked, by their builds' names
}

// openKernels opens the kept builds in a directory; "" keeps none.
func openKernels(dir string) (*kernels, error) {
	ks := &kernels{open: map[string]*sentryBuild{}}
	if dir == "" {
		return ks, nil
	}
	var err error
	if ks.store, err = kept.Open(dir); err == nil {
		err = ks.store.Sweep()
	}
	return ks, err
}

// close closes the programs. No process is started afterwards.
func (ks *kernels) close() {
	ks.wg.Wait()
	ks.mu.Lock()
	defer ks.mu.Unlock()
	for _, k := range ks.open {
		k.program.close()
	}
	clear(ks.open)
}

// ownKernel is the kernel of this build.
func (d *Driver) ownKernel() (*sentryBuild, error) {
	name, err := d.buildName()
	if err != nil {
		return nil, err
	}
	return &sentryBuild{name: name, program: d.program, flags: fixedFlags}, nil
}

// kernelOf returns the kernel of a build, and unpacks it if necessary. Error: Unsupported, with the
// build's name, when it is not kept or speaks another protocol.
func (d *Driver) kernelOf(build string) (*sentryBuild, error) {
	own, err := d.ownKernel()
	if err != nil || build == own.name {
		return own, err
	}
	if _, err := d.keptBuild(build); err != nil {
		return nil, err
	}
	d.kernels.mu.Lock()
	defer d.kernels.mu.Unlock()
	if k := d.kernels.open[build]; k != nil {
		return k, nil
	}
	facts, err := d.kernels.store.Get(build)
	if err != nil {
		return nil, err
	}
	k := &sentryBuild{name: build}
	var told settings
	if err := json.Unmarshal(facts.Driver, &told); err != nil || len(told.Spec) == 0 {
		return nil, &carrel.Error{Kind: carrel.Invalid,
			Err: fmt.Errorf("the settings of kept build %q: %w", build, err)}
	}
	k.flags, k.base = told.Flags, told.Spec
	f, err := d.kernels.store.Unpack(build)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if k.program, err = openProgram("/proc/self/fd/" + strconv.Itoa(int(f.Fd()))); err != nil {
		return nil, err
	}
	d.kernels.open[build] = k
	return k, nil
}

// hintBuild tells how to get at a snapshot whose build is missing.
func hintBuild(what string) string {
	return "start " + what +
		" on this data directory once, which keeps its kernel here; or go on with the files alone"
}

// keptBuild checks that a build of another version can be started here. Error: Unsupported.
func (d *Driver) keptBuild(build string) (kept.Facts, error) {
	unsupported := func(hint, format string, args ...any) error {
		return &carrel.Error{Op: opRestore, Kind: carrel.Unsupported, Err: fmt.Errorf(format, args...),
			Hint: hint}
	}
	own, err := d.buildName()
	if err != nil {
		return kept.Facts{}, &carrel.Error{Op: opRestore, Kind: carrel.Internal, Err: err}
	}
	if d.kernels.store == nil {
		return kept.Facts{}, unsupported(hintBuild("the build that took it"),
			"the memory was saved by build %q, this is build %q", build, own)
	}
	facts, err := d.kernels.store.Get(build)
	switch {
	case carrel.KindOf(err) == carrel.NotFound:
		return facts, unsupported(hintBuild("the build that took it"),
			"the memory was saved by build %q, whose kernel is not kept here; this is build %q", build, own)
	case err != nil:
		return facts, err
	case facts.Control != controlVersion:
		return facts, unsupported("restore it with carrel "+facts.Version+", or its files only",
			"the memory was saved by build %q, whose kernel speaks version %d of the control protocol; this build speaks version %d", build, facts.Control, controlVersion)
	}
	return facts, nil
}

// keep keeps this build's own sentry, once.
func (d *Driver) keep() error {
	if d.kernels.store == nil {
		return nil
	}
	own, err := d.ownKernel()
	if err != nil {
		return err
	}
	d.kernels.once.Do(func() {}) // the background need not begin
	return d.keepProgram(own.name, version.Version, own.program.path, ownSettings())
}

// keepLater begins to keep this build's own sentry, in the background. A sandbox that runs must be
// restorable after an upgrade, however this daemon ends.
func (d *Driver) keepLater() {
	if d.kernels.store == nil {
		return
	}
	d.kernels.once.Do(func() {
		d.kernels.wg.Go(func() {
			if err := d.keep(); err != nil {
				d.log.Warn("the kernel of this build could not be kept: after an upgrade, memory that it saved can't be restored", "err", err)
			}
		})
	})
}

// keepProgram keeps the sentry in a file.
func (d *Driver) keepProgram(build, carrelVersion, path string, told settings) error {
	if d.kernels.store.Has(build) {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	more, err := json.Marshal(told)
	if err != nil {
		return err
	}
	return d.kernels.store.Keep(kept.Facts{Name: build, Version: carrelVersion,
		Control: controlVersion, Driver: more}, f)
}

var (
	_ driver.Versioned   = (*Instance)(nil)
	_ driver.BuildKeeper = (*Driver)(nil)
)

// Build implements driver.Versioned.
func (in *Instance) Build() (name string, own bool) {
	build, err := in.d.buildName()
	return in.rec.Build, in.rec.Build == "" || err == nil && in.rec.Build == build
}

// KeepBuild implements driver.Versioned. The running sentry itself is the source of a build that is
// not kept, if this build gives its sentries the same settings.
func (in *Instance) KeepBuild(ctx context.Context) error {
	const op = "keep the sandbox's build"
	build, own := in.Build()
	if own {
		return in.wrap(op, in.d.keep())
	}
	_, err := in.d.keptBuild(build)
	if err == nil || in.d.kernels.store == nil || in.d.kernels.store.Has(build) {
		return in.wrap(op, err)
	}
	mine, berr := in.d.buildName()
	if berr != nil || settingsPart(build) != settingsPart(mine) {
		return in.wrap(op, err)
	}
	if ctx.Err() != nil {
		return in.wrap(op, context.Cause(ctx))
	}
	return in.wrap(op, in.d.keepProgram(build, "", "/proc/"+strconv.Itoa(in.rec.PID)+"/exe",
		ownSettings()))
}

// settingsPart is the part of a build's name that names its settings.
func settingsPart(build string) string {
	return build[strings.LastIndexByte(build, ' ')+1:]
}

// kernel returns the kernel of a running sandbox's build.
func (in *Instance) kernel(ctx context.Context) (*sentryBuild, error) {
	if _, own := in.Build(); own {
		return in.d.ownKernel()
	}
	if err := in.KeepBuild(ctx); err != nil {
		return nil, err
	}
	return in.d.kernelOf(in.rec.Build)
}

// Builds implements driver.BuildKeeper.
func (d *Driver) Builds(context.Context) ([]driver.Build, error) {
	if d.kernels.store == nil {
		return nil, nil
	}
	own, err := d.buildName()
	if err != nil {
		return nil, &carrel.Error{Op: "list builds", Kind: carrel.Internal, Err: err}
	}
	all, err := d.kernels.store.List()
	if err != nil {
		return nil, &carrel.Error{Op: "list builds", Kind: carrel.Internal, Err: err}
	}
	used := map[string]bool{}
	for _, in := range d.live.All() {
		used[in.rec.Build] = true
	}
	out := []driver.Build{{Name: own, Version: version.Version, Own: true, Used: used[own]}}
	for _, f := range all {
		if f.Name == own {
			out[0].Kept = true
			continue
		}
		b := driver.Build{Name: f.Name, Version: f.Version, Kept: true, Used: used[f.Name]}
		if f.Control != controlVersion {
			b.Problem = fmt.Sprintf(
				"its kernel speaks version %d of the control protocol, this build version %d", f.Control,
				controlVersion)
		}
		out = append(out, b)
	}
	return out, nil
}

// errKeepsNone is the error of a driver without a directory for builds.
var errKeepsNone = errors.New("this service keeps no builds")

// keptStore returns the kept builds. Error: Unsupported.
func (d *Driver) keptStore(op string) (*kept.Store, error) {
	if d.kernels.store == nil {
		return nil, &carrel.Error{Op: op, Kind: carrel.Unsupported, Err: errKeepsNone}
	}
	return d.kernels.store, nil
}

// DropBuild implements driver.BuildKeeper.
func (d *Driver) DropBuild(_ context.Context, name string) error {
	const op = "drop build"
	s, err := d.keptStore(op)
	if err == nil {
		err = s.Drop(name)
	}
	if err != nil {
		return &carrel.Error{Op: op, Kind: carrel.KindOf(err), Err: err}
	}
	return nil
}

// describe returns the description of a sandbox for a kernel, as its own build would write it.
func (k *sentryBuild) describe(s driver.Spec, inside carrel.Limits) (*specs.Spec, error) {
	now := ociSpec(s, inside)
	if k.own() {
		return now, nil
	}
	old := new(specs.Spec)
	if err := json.Unmarshal(k.base, old); err != nil {
		return nil, err
	}
	old.Hostname = now.Hostname
	if old.Process != nil {
		for i, r := range old.Process.Rlimits {
			if r.Type == "RLIMIT_NPROC" {
				old.Process.Rlimits[i].Soft, old.Process.Rlimits[i].Hard = uint64(inside.Pids),
					uint64(inside.Pids)
			}
		}
	}
	for i, m := range old.Mounts {
		for j, o := range m.Options {
			if m.Destination == "/dev/shm" && strings.HasPrefix(o, "size=") {
				old.Mounts[i].Options[j] = shmSize(inside)
			}
		}
	}
	return old, nil
}
