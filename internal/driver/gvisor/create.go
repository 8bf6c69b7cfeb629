package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"gvisor.dev/gvisor/runsc/boot"

	"github.com/carrel-dev/carrel/internal/cleanup"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/hosted"
	"github.com/carrel-dev/carrel/internal/trace"
)

// bounds are the smallest limits with which a sandbox can start.
var bounds = hosted.Bounds{MinMemoryMB: 64, MemoryFor: "the sandbox's kernel", MinPids: 16}

// remedies are the hints for errors of Create.
var remedies = hosted.Remedies{NoSpace: "the host's disk is full", Forbidden: hosted.HintNamespaces}

// Create implements driver.Driver.
func (d *Driver) Create(ctx context.Context, spec driver.Spec) (driver.Instance, error) {
	if err := bounds.Check(spec); err != nil {
		return nil, err
	}
	if err := d.program.whole(); err != nil {
		return nil, remedies.Explain(hosted.OpCreate, spec.ID, err)
	}
	in, err := d.createFresh(ctx, spec)
	if err != nil {
		return nil, remedies.Explain(hosted.OpCreate, spec.ID, err)
	}
	return in, nil
}

// createFresh creates a sandbox without a snapshot.
func (d *Driver) createFresh(ctx context.Context, spec driver.Spec) (*Instance, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	of, err := d.madeOf(spec)
	if err != nil {
		return nil, err
	}
	return d.create(ctx, spec, of, nil)
}

// hostTasks is the most host tasks that pids tasks inside can need: a process with its threads for
// each address space, twice because the limit inside counts per user, and the sentry's own threads.
// Normally the limit inside is reached first. This one stops a sentry that was taken over.
func hostTasks(pids int) int { return 4*pids + 1024 }

// create builds the sandbox, fresh or from a snapshot. On an error it leaves nothing. A blank
// sentry may die at any moment, before or after it was given the job; then create starts a new
// sentry for the sandbox.
func (d *Driver) create(ctx context.Context, spec driver.Spec, of made, s *saved) (*Instance, error) {
	defer d.blanks.busy()()
	in, err := d.createWith(ctx, spec, of, s, true)
	if errors.Is(err, errBlank) && ctx.Err() == nil {
		d.log.Warn("a sentry that was started ahead failed", "sandbox", spec.ID, "err", err)
		in, err = d.createWith(ctx, spec, of, s, false)
	}
	return in, err
}

// createWith is create with one sentry; blank says whether that may be a blank.
func (d *Driver) createWith(ctx context.Context, spec driver.Spec, of made, s *saved, blank bool) (*Instance, error) {
	var undo cleanup.Stack
	defer undo.Run()
	l := &launch{spec: spec, made: of, saved: s, sock: d.sockPath(spec.ID)}
	undo.Add(func() { removeFiles(l.sock, spec.Dir) })
	defer func() { hosted.CloseAll(l.sync, l.pages) }()
	undo.Add(func() { hosted.CloseAll(l.guestLog) })
	if err := d.start(ctx, l, blank); err != nil {
		return nil, err
	}
	undo.Add(func() { hosted.DestroyGroup(ctx, l.group) })
	in := d.newInstance(l)
	undo.Add(in.Abandon)
	// The control protocol knows no context. Ending the process ends every call.
	stop := context.AfterFunc(ctx, in.Doom)
	defer stop()

	span := trace.Mark(ctx, "link")
	guest, err := in.openLink(ctx)
	span.EndWith(err)
	if err != nil {
		return nil, err
	}
	err = in.boot(ctx, l.sync, guest, l.pages)
	guest.Close()
	if err != nil {
		err = in.bootError(ctx, err)
		if l.blank && errors.Is(err, errNothingRan) {
			err = fmt.Errorf("%w: %w", errBlank, err)
		}
		return nil, err
	}
	if !stop() {
		return nil, context.Cause(ctx)
	}
	undo.Release()
	return in, nil
}

// errNothingRan means that the sentry failed before anything ran in it. So another sentry can be
// tried.
var errNothingRan = errors.New("the sentry failed before anything ran in it")

// openLink makes the link and connects the daemon's end. It returns the guest's end.
func (in *Instance) openLink(ctx context.Context) (guest *os.File, err error) {
	host, guest, mtu, err := hosted.NewPair()
	if err != nil {
		return nil, err
	}
	in.rec.MTU = mtu
	if err := in.d.links.Open(ctx, &in.Life, &in.rec.Record, mtu, host); err != nil {
		guest.Close()
		return nil, err
	}
	return guest, nil
}

// boot waits until the sentry listens, and gives it its network. Then it starts the guest or, if
// pages is set, loads the memory of a snapshot. pages is the socket for the snapshot's files.
func (in *Instance) boot(ctx context.Context, ready io.Reader, guest, pages *os.File) error {
	span := trace.Mark(ctx, "wait for the sentry")
	_, err := io.ReadFull(ready, make([]byte, 1))
	span.EndWith(err)
	if err != nil {
		return fmt.Errorf("%w: it ended before it was ready: %w", errNothingRan, err)
	}
	in.preferForOOM()
	conn, err := dialControl(in.rec.Sock)
	if err != nil {
		return fmt.Errorf("%w: %w", errNothingRan, err)
	}
	defer conn.Close()
	args, err := networkArgs(guest, in.rec.MTU)
	if err != nil {
		return err
	}
	span = trace.Mark(ctx, "network")
	err = conn.Call(boot.ContMgrSetNetworkArgs, args, nil)
	span.EndWith(err)
	if err != nil {
		return fmt.Errorf("%w: set up the network: %w", errNothingRan, err)
	}
	if pages != nil {
		defer trace.Mark(ctx, "load memory").End()
		return load(conn, pages)
	}
	defer trace.Mark(ctx, "start the guest").End()
	id := string(in.rec.ID)
	if err := conn.Call(boot.ContMgrRootContainerStart, &id, nil); err != nil {
		return fmt.Errorf("start the guest: %w", err)
	}
	return nil
}

// bootError explains a failed start. It reads the sentry's log and how the sentry ended.
func (in *Instance) bootError(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	in.Kill()
	<-in.Ended()
	if text := in.lastWords(); text != "" {
		err = fmt.Errorf("%w: %s", err, text)
	}
	if in.outOfMemory() {
		return hosted.OutOfMemory(in.rec.MemoryMB, err)
	}
	return err
}

// removeFiles removes our files of one sandbox.
func removeFiles(sock, dir string) {
	_ = os.Remove(sock)
	if dir != "" {
		_ = os.Remove(filepath.Join(dir, diskFile))
		_ = os.Remove(filepath.Join(dir, logFile))
	}
}
