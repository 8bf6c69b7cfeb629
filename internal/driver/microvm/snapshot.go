//go:build linux

package microvm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/guest"
	"github.com/carrel-dev/carrel/internal/trace"
)

var _ driver.Snapshotter = (*Instance)(nil)

const opSnapshot = "snapshot sandbox"

// Snapshot implements driver.Snapshotter. The machine stands still while its memory and its disk are
// written.
func (in *Instance) Snapshot(ctx context.Context, dir string, opts driver.SnapshotOptions) (driver.SnapshotInfo, error) {
	none := driver.SnapshotInfo{}
	select {
	case in.ice <- struct{}{}:
		defer func() { <-in.ice }()
	default:
		return none, &carrel.Error{Op: opSnapshot, Kind: carrel.Conflict, ID: in.rec.ID, Err: errors.New("one is being taken, or it is being frozen")}
	}
	info, err := in.snapshot(ctx, dir, !opts.FilesOnly)
	if err == nil {
		return info, nil
	}
	if ctx.Err() == nil {
		in.hasEnded()
	}
	return none, in.explain(ctx, opSnapshot, err)
}

// noticeTime is how long the watch may need to notice the VMM's end.
const noticeTime = 100 * time.Millisecond

// hasEnded reports whether the VMM has ended. An end is noticed a moment later, so it waits for that.
func (in *Instance) hasEnded() bool {
	select {
	case <-in.Ended():
		return true
	case <-time.After(noticeTime):
		return false
	}
}

// whyNot returns the VMM's end as the reason of an error, if it ended.
func (in *Instance) whyNot(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if in.hasEnded() {
		return &carrel.Error{Kind: carrel.Unavailable, Err: errors.New(in.Exit().Message)}
	}
	return err
}

// snapshot takes one; after an error it leaves no files.
func (in *Instance) snapshot(ctx context.Context, dir string, memory bool) (driver.SnapshotInfo, error) {
	none := driver.SnapshotInfo{}
	if ctx.Err() != nil {
		return none, context.Cause(ctx)
	}
	select {
	case <-in.Ended():
		return none, errors.New(in.Exit().Message)
	default:
	}
	if in.rec.Guest == "" {
		return none, &carrel.Error{Kind: carrel.Unsupported, Err: errors.New("the sandbox was made by a build that knew no snapshots")}
	}
	root, err := in.rootID()
	if err != nil {
		return none, err
	}
	files, err := createFiles(dir, fileNames(memory))
	if err != nil {
		return none, err
	}
	err = in.save(ctx, files, memory)
	if err == nil {
		err = writeSide(dir, side{Memory: memory, Limits: in.rec.Inside, MTU: in.rec.MTU, Root: root, Guest: in.rec.Guest}, files)
	}
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	for _, f := range files {
		f.Close()
	}
	if err != nil {
		for _, name := range append(fileNames(memory), sideFile) {
			_ = os.Remove(filepath.Join(dir, name))
		}
		return none, err
	}
	info := driver.SnapshotInfo{Driver: name, Memory: memory, Build: filesBuild, Root: root}
	if memory {
		info.Build, info.CPU = in.rec.Build, in.rec.CPU
	}
	return info, nil
}

// rootID names the root image.
func (in *Instance) rootID() (string, error) {
	if in.rec.Whole != "" {
		return in.d.ids.of(in.rec.Whole)
	}
	return in.rec.Root, nil
}

// save stops the machine, writes the files, and lets it go on.
func (in *Instance) save(ctx context.Context, files map[string]*os.File, memory bool) error {
	frozen := in.isFrozen()
	if !frozen {
		span := trace.Mark(ctx, "write to the disk")
		err := in.tell(ctx, flushTime, guest.MachineRequest{Flush: true})
		span.EndWith(err)
		if err != nil {
			if !memory || ctx.Err() != nil {
				return fmt.Errorf("the guest does not write to its disk: %w", err)
			}
			in.d.log.Warn("a snapshot's disk may lack what its memory has", "sandbox", in.rec.ID, "err", err)
		}
	}
	undo := context.WithoutCancel(ctx)
	var wake func() error
	if frozen {
		// The VMM must run to answer.
		wake = func() error { return in.setIce(undo, false) }
		defer func() { _ = in.setIce(undo, true) }()
	}
	err := in.engine.save(ctx, in, files, memory, wake)
	if !frozen {
		// The machine's clock stood still.
		in.setClock(undo)
	}
	return err
}

// goOnTime bounds the work that lets a machine run again.
const goOnTime = time.Minute

// goOn lets a machine run that was stopped. It uses a connection of its own: the snapshot's may have
// ended with its context.
func (in *Instance) goOn(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, goOnTime)
	defer cancel()
	q, err := dialControl(ctx, in.rec.Dir, nil)
	if err == nil {
		defer q.close()
		_, _ = q.call(ctx, "migrate_cancel", nil, nil)
		if _, err = q.await(ctx, "query-migrate", migrationOver); err == nil {
			_, err = q.call(ctx, "cont", nil, nil)
		}
	}
	if err != nil {
		in.d.log.Error("a machine does not go on after a snapshot", "sandbox", in.rec.ID, "err", err)
	}
}

// migrationOver reports whether a migration has ended, or none began.
func migrationOver(status string) bool {
	return status == "" || status == "completed" || status == "failed" || status == "cancelled"
}

// saveMemory has QEMU write the machine, and divides what it writes.
func (in *Instance) saveMemory(ctx context.Context, q *control, files map[string]*os.File) error {
	defer trace.Mark(ctx, "save memory").End()
	const name = "save"
	size := int64(in.rec.Inside.MemoryMB) << 20
	if err := files[ramFile].Truncate(size); err != nil {
		return err
	}
	if err := q.ignoreShared(ctx); err != nil {
		return err
	}
	if _, err := q.call(ctx, "migrate-set-parameters", map[string]any{"max-bandwidth": int64(1) << 40}, nil); err != nil {
		return err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	_, _ = unix.FcntlInt(w.Fd(), unix.F_SETPIPE_SZ, 1<<20)
	_, err = q.call(ctx, "getfd", map[string]any{"fdname": name}, w)
	w.Close()
	if err == nil {
		_, err = q.call(ctx, "migrate", map[string]any{"uri": "fd:" + name}, nil)
	}
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = r.SetReadDeadline(time.Unix(1, 0)) })
	err = divide(r, files[ramFile], size, files[stateFile])
	stop()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("read the machine's state: %w", err)
	}
	status, err := q.await(ctx, "query-migrate", migrationOver)
	if err == nil && status != "completed" {
		err = fmt.Errorf("the machine's state was not saved: %s", words([]byte(status)))
	}
	return err
}

// saveDisk copies the disk.
func (in *Instance) saveDisk(ctx context.Context, to *os.File) error {
	defer trace.Mark(ctx, "save the disk").End()
	from, err := os.Open(filepath.Join(in.rec.Dir, diskFile))
	if err != nil {
		return err
	}
	defer from.Close()
	info, err := from.Stat()
	if err != nil {
		return err
	}
	return copySparse(ctx, to, from, info.Size())
}
