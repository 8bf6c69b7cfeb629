package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"gvisor.dev/gvisor/runsc/boot"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/cleanup"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/hosted"
	"github.com/carrel-dev/carrel/internal/linux/cgroup"
	"github.com/carrel-dev/carrel/internal/trace"
)

const opCreate = "create sandbox"

// Create implements driver.Driver.
func (d *Driver) Create(ctx context.Context, spec driver.Spec) (driver.Instance, error) {
	if err := checkSpec(spec); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, d.createError(opCreate, spec.ID, err)
	}
	of, err := d.madeOf(spec)
	if err != nil {
		return nil, d.createError(opCreate, spec.ID, err)
	}
	in, err := d.create(ctx, spec, of, nil)
	if err != nil {
		return nil, d.createError(opCreate, spec.ID, err)
	}
	return in, nil
}

// checkSpec refuses what would otherwise fail half way.
func checkSpec(s driver.Spec) error {
	bad := func(field, format string, args ...any) error {
		return &carrel.Error{Op: opCreate, Kind: carrel.Invalid, ID: s.ID, Field: field, Err: fmt.Errorf(format, args...)}
	}
	if _, err := carrel.ParseID(string(s.ID)); err != nil {
		return err
	}
	for field, path := range map[string]string{"root.image": s.Root.Image, "guest": s.Guest, "dir": s.Dir} {
		if !filepath.IsAbs(path) {
			return bad(field, "%q is not an absolute path", path)
		}
	}
	l := s.Limits
	switch {
	case l.MemoryMB < minMemoryMB:
		return bad("memoryMB", "%d MiB is less than the %d the sandbox's kernel needs", l.MemoryMB, minMemoryMB)
	case l.DiskMB < 1:
		return bad("diskMB", "%d is not positive", l.DiskMB)
	case l.CPUs <= 0:
		return bad("cpus", "%g is not positive", l.CPUs)
	case l.Pids < minPids:
		return bad("pids", "%d is less than %d", l.Pids, minPids)
	}
	return nil
}

// The least a sandbox can start with.
const (
	minMemoryMB = 64
	minPids     = 16
)

// hostTasks is how many host tasks stand for so many tasks inside, at most: a
// process with its threads for each address space, twice over because the limit
// inside counts per user, and the sentry's own threads. The limit inside comes
// first; this one stops a sentry that was taken over.
func hostTasks(pids int) int { return 4*pids + 1024 }

// create builds the sandbox, afresh or from a snapshot; on an error it leaves nothing. A blank sentry may die at any moment, before
// or after it was given the job: then the sandbox gets one that is started for it.
func (d *Driver) create(ctx context.Context, spec driver.Spec, of made, s *saved) (*Instance, error) {
	defer d.blanks.busy()()
	in, err := d.createWith(ctx, spec, of, s, true)
	if errors.Is(err, errBlank) && ctx.Err() == nil {
		d.log.Warn("a sentry that was started ahead failed", "sandbox", spec.ID, "err", err)
		in, err = d.createWith(ctx, spec, of, s, false)
	}
	return in, err
}

// createWith is create with one sentry, a blank one if that may be.
func (d *Driver) createWith(ctx context.Context, spec driver.Spec, of made, s *saved, blank bool) (*Instance, error) {
	var undo cleanup.Stack
	defer undo.Run()
	l := &launch{spec: spec, made: of, saved: s, sock: d.sockPath(spec.ID)}
	undo.Add(func() { removeFiles(l.sock, spec.Dir) })
	defer func() { closeAll(l.sync, l.pages) }()
	undo.Add(func() { closeAll(l.guestLog) })
	if err := d.start(ctx, l, blank); err != nil {
		return nil, err
	}
	undo.Add(func() { destroyGroup(ctx, l.group) })
	in := d.newInstance(l)
	undo.Add(in.Abandon)
	// The control protocol knows no context: ending the process ends every call.
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
		if l.blank && errors.Is(err, errNotReady) {
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

// errNotReady is the end of a sentry that has not heard of its sandbox yet.
var errNotReady = errors.New("sentry ended before it was ready")

// openLink makes the link and connects the daemon's end; it returns the guest's.
func (in *Instance) openLink(ctx context.Context) (guest *os.File, err error) {
	host, guest, mtu, err := newLink()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			guest.Close()
		}
	}()
	in.rec.MTU = mtu
	if k := in.d.opts.Keeper; k != nil {
		if err := k.Put(ctx, in.rec.Link, host); err != nil {
			host.Close()
			return nil, fmt.Errorf("keep the link: %w", err)
		}
	}
	link, err := in.d.opts.Network.Attach(ctx, driver.LinkSpec{ID: in.rec.ID, MTU: mtu}, host)
	if err != nil {
		return nil, fmt.Errorf("attach the link: %w", err)
	}
	in.SetLink(link)
	return guest, nil
}

// boot waits until the sentry listens, gives it its network and starts the guest,
// or, given the socket for its files, loads the memory of a snapshot.
func (in *Instance) boot(ctx context.Context, ready io.Reader, guest, pages *os.File) error {
	span := trace.Mark(ctx, "wait for the sentry")
	_, err := io.ReadFull(ready, make([]byte, 1))
	span.EndWith(err)
	if err != nil {
		return fmt.Errorf("%w: %w", errNotReady, err)
	}
	in.preferForOOM()
	conn, err := dialControl(in.rec.Sock)
	if err != nil {
		return err
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
		return fmt.Errorf("set up the network: %w", err)
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

// bootError explains a failed start by what the sentry left behind.
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
		return &carrel.Error{Kind: carrel.Exhausted, Err: fmt.Errorf("%s: %w", in.memoryLimit(), err), Hint: "give it more memory"}
	}
	return err
}

// createError wraps what create returns.
func (d *Driver) createError(op string, id carrel.ID, err error) error {
	out := &carrel.Error{Op: op, Kind: carrel.Internal, ID: id, Err: err}
	var inner *carrel.Error
	switch {
	case errors.As(err, &inner):
		out.Kind, out.Field, out.Hint = inner.Kind, inner.Field, inner.Hint
		if err == error(inner) && inner.Op == "" && inner.Err != nil {
			out.Err = inner.Err // its field is said once
		}
	case errors.Is(err, context.DeadlineExceeded):
		out.Kind = carrel.TimedOut
	case errors.Is(err, context.Canceled):
		out.Kind = carrel.Unavailable
	case errors.Is(err, os.ErrNotExist):
		out.Kind = carrel.NotFound
	case errors.Is(err, os.ErrExist):
		out.Kind = carrel.AlreadyExists
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		out.Kind, out.Hint = carrel.Exhausted, "the host's disk is full"
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		out.Kind, out.Hint = carrel.Exhausted, "raise the limit of open files (ulimit -n)"
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.ENOMEM):
		out.Kind, out.Hint = carrel.Exhausted, "the host is out of processes or memory"
	case errors.Is(err, os.ErrPermission):
		out.Kind, out.Hint = carrel.Unsupported, hintNamespaces
	}
	return out
}

// destroyGroup removes a group also when ctx has ended.
func destroyGroup(ctx context.Context, g *cgroup.Group) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), hosted.UndoTime)
	defer cancel()
	_ = g.Destroy(ctx)
}

// removeFiles removes our files of one sandbox.
func removeFiles(sock, dir string) {
	_ = os.Remove(sock)
	if dir != "" {
		_ = os.Remove(filepath.Join(dir, diskFile))
		_ = os.Remove(filepath.Join(dir, logFile))
	}
}

// closeAll closes what is open.
func closeAll(files ...*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close()
		}
	}
}
