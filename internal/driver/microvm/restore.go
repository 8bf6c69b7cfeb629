//go:build linux

package microvm

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/guest"
	"github.com/carrel-dev/carrel/internal/trace"
)

const opRestore = "restore sandbox"

// loadTime bounds the loading of a machine's state.
const loadTime = time.Minute

// CanRestore implements driver.Restorer. The first time it boots a machine, as Probe does.
func (d *Driver) CanRestore(info driver.SnapshotInfo, opts driver.RestoreOptions) error {
	refuse := func(hint, format string, args ...any) error {
		return &carrel.Error{Op: opRestore, Kind: carrel.Unsupported, Err: fmt.Errorf(format, args...), Hint: hint}
	}
	if info.Driver != name {
		return refuse("", "the snapshot is of driver %q, this is %q", info.Driver, name)
	}
	if !info.Memory {
		if info.Build != filesBuild || info.CPU != "" {
			return refuse("restore it with the build that took it", "the snapshot's files have the form %q, this build reads %q", info.Build, filesBuild)
		}
		return nil
	}
	form := fmt.Sprintf("vm%d ", snapshotFormat)
	if !strings.HasPrefix(info.Build, form) {
		return refuse("restore it with the build that took it", "the snapshot has the form %q, this build reads %q", info.Build, form)
	}
	if opts.FilesOnly {
		return nil // no program of the snapshot continues
	}
	ctx, cancel := context.WithTimeout(context.Background(), tcgTrial)
	defer cancel()
	m, err := d.prepare(ctx)
	if err != nil {
		return remedies.Explain(opRestore, "", err)
	}
	if have := m.build(); info.Build != have {
		return refuse("restore it on a host with that VMM, version and accelerator, or its files only",
			"the snapshot's machine is %q, those of this host are %q", info.Build, have)
	}
	if !m.sees(info.CPU) {
		return refuse("restore it on a host with that processor, or its files only",
			"the snapshot's machine has the processor %q, those of this host have %q", info.CPU, m.cpu)
	}
	return nil
}

// Restore implements driver.Restorer. A machine with memory keeps the limits that it was saved with.
func (d *Driver) Restore(ctx context.Context, dir string, info driver.SnapshotInfo, spec driver.Spec, opts driver.RestoreOptions) (driver.Instance, error) {
	if err := d.CanRestore(info, opts); err != nil {
		return nil, err
	}
	if err := bounds.Check(spec); err != nil {
		return nil, err
	}
	in, err := d.restore(ctx, dir, info, spec, opts)
	if err != nil {
		return nil, remedies.Explain(opRestore, spec.ID, err)
	}
	return in, nil
}

// restore opens the snapshot and creates a sandbox from it.
func (d *Driver) restore(ctx context.Context, dir string, info driver.SnapshotInfo, spec driver.Spec, opts driver.RestoreOptions) (*Instance, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	m, err := d.prepare(ctx)
	if err != nil {
		return nil, err
	}
	s, err := openSaved(dir, info, info.Memory && !opts.FilesOnly)
	if err != nil {
		return nil, err
	}
	defer s.close()
	s.sameBoot = opts.SameBoot
	if err := d.fits(s, spec); err != nil {
		return nil, err
	}
	if s.memory {
		was := s.side.Limits
		spec.Limits.MemoryMB, spec.Limits.DiskMB, spec.Limits.CPUs = was.MemoryMB, was.DiskMB, was.CPUs
	}
	return d.create(ctx, m, spec, s)
}

// fits checks that the new sandbox meets the conditions of a snapshot.
func (d *Driver) fits(s *saved, spec driver.Spec) error {
	root, err := d.ids.of(spec.Root.Image)
	if err != nil {
		return err
	}
	if root != s.side.Root {
		return &carrel.Error{Kind: carrel.Invalid, Field: "root",
			Err: fmt.Errorf("the snapshot lies on image %s, not on %s", s.side.Root, root)}
	}
	low := func(field string, got, want int) error {
		return &carrel.Error{Kind: carrel.Invalid, Field: "limits." + field,
			Err: fmt.Errorf("%d is less than the %d of the snapshot", got, want)}
	}
	was, now := s.side.Limits, spec.Limits
	if now.DiskMB < was.DiskMB {
		return low("diskMB", now.DiskMB, was.DiskMB)
	}
	if !s.memory {
		return nil
	}
	if now.MemoryMB < was.MemoryMB {
		return low("memoryMB", now.MemoryMB, was.MemoryMB)
	}
	guest, err := d.ids.of(spec.Guest)
	if err == nil && guest != s.side.Guest { // its processes have it mapped
		return &carrel.Error{Kind: carrel.Unsupported, Hint: "restore it with the build that took it, or its files only",
			Err: fmt.Errorf("the snapshot runs guest %s, this build has %s", s.side.Guest, guest)}
	}
	return err
}

// load has the VMM of a snapshot with memory load the devices' state, and lets the machine go on.
// Afterwards the kernel is another one than the snapshot's.
func (in *Instance) load(ctx context.Context, s *saved) error {
	if s.side.MTU != in.rec.MTU {
		return &carrel.Error{Kind: carrel.Unsupported, Hint: "restore its files only",
			Err: fmt.Errorf("the snapshot's network card takes packets of %d bytes, those of this host take %d", s.side.MTU, in.rec.MTU)}
	}
	ctx, cancel := context.WithTimeout(ctx, loadTime)
	defer cancel()
	span := trace.Mark(ctx, "load memory")
	err := in.engine.load(ctx, in, s)
	span.EndWith(err)
	if err != nil && ctx.Err() == nil {
		if in.hasEnded() {
			return damaged("%s can't load it: %s", in.engine.title(), in.Exit().Message)
		}
		return damaged("%s can't load it: %w", in.engine.title(), err)
	}
	if err != nil {
		return err
	}
	if err := in.renew(ctx, !s.sameBoot); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return &carrel.Error{Kind: carrel.Unavailable, Err: fmt.Errorf("the restored machine does not answer: %w", err)}
	}
	return nil
}

// loadState loads the devices' state and lets the machine run.
func (in *Instance) loadState(ctx context.Context, state *os.File) error {
	const name = "load"
	// The offset of the file is shared with its copies, and this snapshot may be loaded several times
	// at once.
	own, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", state.Fd()))
	if err != nil {
		return err
	}
	defer own.Close()
	q, err := dialControl(ctx, in.rec.Dir, nil)
	if err != nil {
		return err
	}
	defer q.close()
	if err := q.ignoreShared(ctx); err != nil {
		return err
	}
	if _, err := q.call(ctx, "getfd", map[string]any{"fdname": name}, own); err != nil {
		return err
	}
	if _, err := q.call(ctx, "migrate-incoming", map[string]any{"uri": "fd:" + name}, nil); err != nil {
		return err
	}
	status, err := q.await(ctx, "query-status", func(s string) bool { return s != "inmigrate" })
	if err != nil {
		return err
	}
	if status != "paused" && status != "postmigrate" {
		return errors.New("the machine's state is " + words([]byte(status)))
	}
	_, err = q.call(ctx, "cont", nil, nil)
	return err
}

// entropyBytes is how much a restored kernel gets.
const entropyBytes = 64

// renew makes a restored kernel another one than that of the snapshot. The first request meets code
// that an emulated processor must translate first, so the clock is set again.
func (in *Instance) renew(ctx context.Context, newBoot bool) error {
	defer trace.Mark(ctx, "another clock and identity").End()
	in.clocked.Do(func() {})
	entropy := make([]byte, entropyBytes)
	_, _ = rand.Read(entropy)
	err := in.tell(ctx, loadTime, guest.MachineRequest{Time: time.Now(), Entropy: entropy, NewBoot: newBoot, Sever: true})
	if err == nil {
		in.setClock(ctx)
	}
	return err
}
