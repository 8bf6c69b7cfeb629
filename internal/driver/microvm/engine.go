//go:build linux

package microvm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"
)

// Names of engines, for [Options.Engine].
const (
	EngineQEMU        = "qemu"
	EngineFirecracker = "firecracker"
)

// engine is a kind of VMM. Everything in which the kinds differ is behind it.
type engine interface {
	// name is one of the constants above, for options and handles.
	name() string
	// title is the VMM's name for people.
	title() string
	// find looks for the VMM's program and its version. The version begins with the title, and is part
	// of a snapshot's build: memory of one engine is never given to another.
	find(ctx context.Context, d *Driver) (*machine, error)
	// hint is the remedy for a host without the program.
	hint() string
	// emulates reports whether the VMM works without KVM.
	emulates() bool
	// needsELF reports whether the VMM starts no kernel in another form.
	needsELF() bool
	// overheadMB bounds the VMM's memory beside the machine's own.
	overheadMB() int
	// rights are what the stage needs beside the rights that it always has.
	rights() []uintptr

	// equip gives a sandbox's launch its disks, its link and what else the VMM gets. Its files are
	// the launch's, also on an error.
	equip(ctx context.Context, d *Driver, l *launch) error
	// equipExtract gives a launch the two disks of an extraction. The caller calls undo when the VMM
	// has ended.
	equipExtract(ctx context.Context, d *Driver, l *launch, disk, out *os.File) (undo func(), err error)
	// order is what the stage is told.
	order(d *Driver, m *machine, l *launch) (order, error)
	// hostEnd returns the driver's end of the link, when the stage has become the VMM. The caller
	// owns it.
	hostEnd(l *launch) (*os.File, error)
	// boot returns when the machine of a launch has begun to boot. Nothing calls it for a machine that
	// is loaded.
	boot(ctx context.Context, m *machine, l *launch) error

	// load loads a snapshot's memory and devices, and lets the machine run.
	load(ctx context.Context, in *Instance, s *saved) error
	// save stops the machine, writes the files of a snapshot, and lets it go on. wake, unless nil,
	// lets a VMM run that is frozen, so that it can answer; then save leaves it running.
	save(ctx context.Context, in *Instance, files map[string]*os.File, memory bool, wake func() error) error
	// wake lets a machine go on that a daemon had stopped for a snapshot when it died. A machine that
	// runs is left alone.
	wake(ctx context.Context, in *Instance) error
}

var (
	_ engine = qemu{}
	_ engine = firecracker{}
)

// engines are all, in the order of preference: QEMU is what this driver is run with.
var engines = []engine{qemu{}, firecracker{}}

// engineOf returns an engine by its name. Handles of older builds name none.
func engineOf(name string) (engine, error) {
	if name == "" {
		return qemu{}, nil
	}
	for _, e := range engines {
		if e.name() == name {
			return e, nil
		}
	}
	return nil, fmt.Errorf("%q is none of %s, %s", name, EngineQEMU, EngineFirecracker)
}

// findEngine looks for the VMM: the one that was asked for, or the first that is there.
func (d *Driver) findEngine(ctx context.Context) (*machine, error) {
	wanted := engines
	if d.opts.Engine != "" || d.opts.QEMU != "" {
		e, err := engineOf(d.opts.Engine)
		if err != nil {
			return nil, unsupported(err, "")
		}
		wanted = []engine{e}
	}
	var errs []error
	for _, e := range wanted {
		m, err := e.find(ctx, d)
		if err == nil {
			return m, nil
		}
		// A program that is there and can't be used is what its owner wants to hear about.
		if !errors.Is(err, exec.ErrNotFound) {
			return nil, unsupported(err, e.hint())
		}
		errs = append(errs, err)
	}
	return nil, unsupported(errors.Join(errs...), wanted[0].hint())
}

// kvmFile is the kernel's file for virtual machines.
func (d *Driver) kvmFile() string {
	if d.opts.kvm != "" {
		return d.opts.kvm
	}
	return kvmDevice
}

// askVersion asks a program for what it says of itself.
func askVersion(ctx context.Context, program string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, kvmTrial)
	defer cancel()
	out, err := exec.CommandContext(ctx, program, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("%s --version: %w", program, err)
	}
	return string(out), nil
}

// qemu is the engine that this driver is run with.
type qemu struct{}

func (qemu) name() string      { return EngineQEMU }
func (qemu) title() string     { return "QEMU" }
func (qemu) hint() string      { return hintQEMU }
func (qemu) emulates() bool    { return true }
func (qemu) needsELF() bool    { return false }
func (qemu) overheadMB() int   { return qemuMB }
func (qemu) rights() []uintptr { return nil }

// find looks for the program in the host's directories of programs.
func (e qemu) find(ctx context.Context, d *Driver) (*machine, error) {
	program, err := findQEMU(d.opts.QEMU)
	if err != nil {
		return nil, err
	}
	text, err := askVersion(ctx, program)
	version, _, _ := strings.Cut(text, "\n")
	return &machine{engine: e, program: program, version: version}, err
}

// equip gives QEMU everything as a descriptor.
func (qemu) equip(ctx context.Context, d *Driver, l *launch) error {
	inside, err := l.pair()
	if err != nil {
		return err
	}
	if err := l.addDisks(ctx); err != nil {
		inside.Close()
		return err
	}
	l.files = append(l.files, inside)
	control, err := listenControl(l.spec.Dir)
	if err != nil {
		return err
	}
	l.files = append(l.files, control)
	return d.addMemory(ctx, l)
}

// equipExtract implements engine.
func (qemu) equipExtract(_ context.Context, _ *Driver, l *launch, disk, out *os.File) (func(), error) {
	if err := os.Remove(out.Name()); err != nil {
		return nil, err
	}
	for _, f := range []*os.File{disk, out} {
		copied, err := dup(f)
		if err != nil {
			return nil, err
		}
		l.files = append(l.files, copied)
	}
	return func() {}, nil
}

// minFile is the size of files that every VMM may write: its console and its log have less.
const minFile = 1 << 20

// order implements engine.
func (qemu) order(d *Driver, m *machine, l *launch) (order, error) {
	restored := l.restores()
	args, err := m.args(d.mark+string(l.spec.ID), l.spec.Limits, l.order, restored)
	if err != nil {
		return order{}, err
	}
	o := order{Args: args, Shared: systemFiles(), Files: map[string]string{kernelPath: m.kernel, initrdPath: m.initrd},
		KVM: m.accel == kvm, Descriptors: restored, MaxFile: minFile}
	for _, f := range l.files { // a disk has its size, and never grows
		info, err := f.Stat()
		if err != nil {
			return order{}, err
		}
		o.MaxFile = max(o.MaxFile, uint64(info.Size()))
	}
	return o, nil
}

// hostEnd returns the end that equip made.
func (qemu) hostEnd(l *launch) (*os.File, error) {
	host := l.host
	l.host = nil
	return host, nil
}

// boot does nothing: QEMU boots by itself.
func (qemu) boot(context.Context, *machine, *launch) error { return nil }

// load implements engine.
func (qemu) load(ctx context.Context, in *Instance, s *saved) error {
	return in.loadState(ctx, s.files[stateFile])
}

// save implements engine. QEMU reads the command to stop the machine before a frozen machine runs.
func (qemu) save(ctx context.Context, in *Instance, files map[string]*os.File, memory bool, wake func() error) error {
	undo := context.WithoutCancel(ctx)
	q, err := dialControl(ctx, in.rec.Dir, wake, "stop")
	if err != nil {
		in.goOn(undo)
		return fmt.Errorf("stop the machine: %w", err)
	}
	if memory {
		err = in.saveMemory(ctx, q, files)
	}
	if err == nil {
		err = in.saveDisk(ctx, files[diskFile])
	}
	q.close()
	in.goOn(undo)
	return err
}

// wake implements engine.
func (qemu) wake(ctx context.Context, in *Instance) error {
	q, err := dialControl(ctx, in.rec.Dir, nil)
	if err != nil {
		return err
	}
	status, err := q.status(ctx, "query-status")
	q.close()
	if err == nil && status != "running" {
		in.d.log.Info("a machine goes on that a snapshot had stopped", "sandbox", in.rec.ID, "status", words([]byte(status)))
		in.goOn(ctx)
	}
	return err
}

// isReadableByAll reports whether a VMM, whose uid owns nothing, may read a file.
func isReadableByAll(name string) bool {
	var st unix.Stat_t
	return unix.Stat(name, &st) == nil && st.Mode&0o004 != 0
}
