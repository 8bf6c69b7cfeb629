package service

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/service/filediff"
	"github.com/carrel-dev/carrel/internal/snapshot"
	"github.com/carrel-dev/carrel/internal/state"
)

const opDiff = "compare snapshots"

// Diff implements carrel.Moments. A file counts as changed when its content, type, target, mode or
// owner differs. A file that was written again with the same content does not count. In tier sim,
// the template has no files to compare with. There, a directory that only one of the two snapshots
// touched is listed only when no file in it is.
func (ar *archive) Diff(ctx context.Context, from, to carrel.SnapshotID) ([]carrel.FileChange, error) {
	a, err := ar.findSnapshot(ctx, opDiff, string(from))
	if err != nil {
		return nil, err
	}
	b, err := ar.findSnapshot(ctx, opDiff, string(to))
	if err != nil {
		return nil, err
	}
	changes, err := ar.diff(ctx, a, b)
	if err != nil {
		out := &carrel.Error{Op: opDiff, Kind: carrel.KindOf(err), Err: err, Hint: carrel.HintOf(err)}
		if out.Kind == carrel.Invalid {
			out.Field = "to"
		}
		return nil, out
	}
	return changes, nil
}

func (ar *archive) diff(ctx context.Context, a, b state.SnapshotRecord) ([]carrel.FileChange, error) {
	was, err := ar.readFiles(ctx, a, "")
	if err != nil {
		return nil, fmt.Errorf("snapshot %s: %w", a.Snapshot.ID, err)
	}
	is := was
	if a.Snapshot.ID != b.Snapshot.ID {
		if is, err = ar.readFiles(ctx, b, ""); err != nil {
			return nil, fmt.Errorf("snapshot %s: %w", b.Snapshot.ID, err)
		}
	}
	if !was.sameRoot(is) {
		return nil, &carrel.Error{Kind: carrel.Invalid,
			Err:  fmt.Errorf("snapshot %s lies on another template than %s: %s, not %s", b.Snapshot.ID, a.Snapshot.ID, is.template, was.template),
			Hint: "only snapshots of one template can be compared"}
	}
	base, done, err := ar.baseOf(ctx, was)
	if err != nil {
		return nil, err
	}
	defer done()
	return filediff.Compare(ctx, base, was.layer, is.layer)
}

// baseOf opens the root image of a snapshot. The result is nil without one. done closes it.
func (ar *archive) baseOf(ctx context.Context, c content) (base image.Files, done func(), err error) {
	if c.image == "" {
		return nil, func() {}, nil
	}
	if base, err = ar.opts.Images.Files(ctx, c.image); err != nil {
		return nil, nil, err
	}
	return base, func() { _ = base.Close() }, nil // it was only read
}

// pastFiles reads files of snapshots.
type pastFiles struct{ ar *archive }

// SnapshotFile implements carrel.Moments. In tier sim, only what a snapshot changed can be read.
func (p pastFiles) SnapshotFile(ctx context.Context, id carrel.SnapshotID, name string) (carrel.SnapshotFile, error) {
	const op = "read file of snapshot"
	if len(name) > longestPath || !strings.HasPrefix(name, "/") || strings.Contains(name, "\x00") {
		return carrel.SnapshotFile{}, &carrel.Error{Op: op, Kind: carrel.Invalid, Field: "path",
			Err: fmt.Errorf("%s is no absolute path", clip(name))}
	}
	sr, err := p.ar.findSnapshot(ctx, op, string(id))
	if err != nil {
		return carrel.SnapshotFile{}, err
	}
	f, ok, err := p.read(ctx, sr, name, name)
	if e, elsewhere := errors.AsType[filediff.ErrElsewhere](err); elsewhere {
		f, ok, err = p.read(ctx, sr, name, e.Name)
	}
	if err == nil && !ok {
		err = &carrel.Error{Kind: carrel.NotFound, Err: fmt.Errorf("snapshot %s has no file %s", id, clip(name))}
	}
	if err != nil {
		return carrel.SnapshotFile{}, &carrel.Error{Op: op, Kind: carrel.KindOf(err), Field: "path", Err: err, Hint: carrel.HintOf(err)}
	}
	return f, nil
}

// longestPath bounds a path in bytes, as Linux does.
const longestPath = 4096

// read finds a file whose content the stream has under the name keep.
func (p pastFiles) read(ctx context.Context, sr state.SnapshotRecord, name, keep string) (f carrel.SnapshotFile, ok bool, err error) {
	c, err := p.ar.readFiles(ctx, sr, keep)
	if err != nil {
		return f, false, err
	}
	base, done, err := p.ar.baseOf(ctx, c)
	if err != nil {
		return f, false, err
	}
	defer done()
	return c.layer.File(ctx, base, name, carrel.MaxSnapshotFile)
}

// content is Diff's information about one snapshot.
type content struct {
	layer    *filediff.Layer
	template string // its name, or ID
	image    string // the root image's path; "" without one
	root     string // its name among the kept images; "" if not kept
	sum      string // the driver's name for the root's content; may be ""
}

// sameRoot reports whether two snapshots use the same root image.
func (c content) sameRoot(o content) bool {
	switch {
	case c.sum != "" && o.sum != "":
		return c.sum == o.sum
	case c.root != "" || o.root != "":
		return c.root == o.root
	}
	return c.template == o.template && c.image == o.image
}

// readFiles reads the files that a snapshot holds, and keeps the content of one; "" is none.
func (ar *archive) readFiles(ctx context.Context, sr state.SnapshotRecord, keep string) (content, error) {
	o, err := ar.open(ctx, sr.Snapshot.ID, false, false)
	if err != nil {
		return content{}, err
	}
	defer o.release()
	drv, root, err := ar.launcher.home(ctx, sr.Record, o.info.Root)
	if err != nil {
		return content{}, err
	}
	r, err := restorer(drv)
	if err != nil {
		return content{}, err
	}
	c := content{template: sr.Snapshot.Template, image: root.Image, root: sr.Record.Root, sum: o.info.Root}
	// The directory is named like a sandbox that does not exist. After a crash, the next service
	// removes it with the other leftovers.
	id := carrel.NewID()
	spec := driver.Spec{ID: id, Root: root, Guest: ar.opts.GuestImage, Dir: filepath.Join(ar.opts.Dir, string(id)), Limits: sr.Snapshot.Limits}
	if err := os.Mkdir(spec.Dir, 0o700); err != nil {
		return content{}, fmt.Errorf("make a directory: %w", err)
	}
	defer func() {
		if err := os.RemoveAll(spec.Dir); err != nil {
			ar.log.Error("remove a directory", "err", err)
		}
	}()
	if c.layer, err = readVerified(ctx, o, r, spec, keep); errors.Is(err, snapshot.ErrReplaced) {
		c.layer, err = readVerified(ctx, o, r, spec, keep) // its files are whole now
	}
	return c, err
}

// readVerified reads a snapshot's files while it verifies their checksums. A damaged snapshot
// explains every other error, so damage is reported first.
func readVerified(ctx context.Context, o *origin, r driver.Restorer, spec driver.Spec, keep string) (*filediff.Layer, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	checked := make(chan error, 1)
	go func() {
		err := o.verify(ctx)
		if err != nil {
			cancel()
		}
		checked <- err
	}()
	var l *filediff.Layer
	stream, err := r.SnapshotFiles(ctx, o.files.Dir(), o.info, spec)
	if err == nil {
		l, err = filediff.ReadKeeping(ctx, stream, int64(spec.Limits.DiskMB)<<20+filediff.HashSlack, keep, carrel.MaxSnapshotFile)
		if cerr := stream.Close(); err == nil {
			err = cerr
		}
	}
	if err != nil && ctx.Err() == nil {
		cancel() // stop verifying; damage found so far still counts
	}
	verr := <-checked
	if verr != nil && (err == nil || carrel.KindOf(verr) == carrel.Invalid) {
		return nil, verr
	}
	return l, err
}
