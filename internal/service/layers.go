package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/state"
)

const (
	opLayer    = "keep layer"
	opWorkshop = "create sandbox of a build"
)

// CreateWorkshop makes a sandbox for a build, from an image or from a layer. It belongs to the
// caller's project, and the template's own start command does not run in it.
func (s *Service) CreateWorkshop(ctx context.Context, build, image string, layer carrel.SnapshotID,
	opts carrel.CreateOptions) (carrel.Sandbox, error) {
	p, err := s.creator.planWorkshop(ctx, image, layer, opts)
	if err != nil {
		return carrel.Sandbox{}, err
	}
	p.rec.Sandbox.Project, p.rec.Sandbox.Name, p.rec.Start = carrel.CallerOf(ctx).Project, opts.Name,
		nil
	p.rec.Sandbox.Build = build
	return s.creator.make(ctx, p)
}

// Ripen has a template's own start made, for sandboxes of a size, if the template can have one. It
// reports whether it is being made: [carrel.Template].Golden tells how it ends.
func (s *Service) Ripen(ctx context.Context, image string,
	limits carrel.Limits) (making bool, err error) {
	p, err := s.creator.plan(ctx, carrel.CreateOptions{Template: image, Limits: limits})
	if err != nil {
		return false, err
	}
	return p.unripe, nil
}

// planWorkshop is plan for the sandbox of a build.
func (cr *creator) planWorkshop(ctx context.Context, image string, layer carrel.SnapshotID,
	opts carrel.CreateOptions) (*plan, error) {
	egress, err := cr.rules.checkOptions(opts)
	if err != nil {
		return nil, err
	}
	if layer != "" {
		sr, ok := cr.snaps.Get(layer)
		if !ok || sr.Snapshot.Cause != carrel.CauseBuild {
			return nil, &carrel.Error{Op: opWorkshop, Kind: carrel.NotFound,
				Err: fmt.Errorf("layer %s is gone", layer)}
		}
		p, err := cr.planFrom(ctx, sr, opts, egress)
		if err == nil {
			p.from, err = cr.archive.open(ctx, layer, true, false)
		}
		return p, err
	}
	img, err := cr.opts.Images.Get(ctx, image)
	if err != nil {
		return nil, err
	}
	if img.Tier == carrel.MicroVM {
		img.Tier = "" // for its first process, which steps of a build do without
	}
	drv, err := cr.driver(ctx, opts.Tier, img)
	if err != nil {
		return nil, err
	}
	ttl := cr.rules.lifetime(opts)
	plain := len(img.Start) == 0
	img.Start, img.Ready = nil, ""
	p := &plan{driver: drv, root: driver.Root{Image: img.Path}, egress: egress, ttl: ttl,
		owner: img.Project, cold: !plain}
	p.rec = cr.newRecord(ctx, opts, img, drv.Info().Tier, ttl)
	p.rec.Root, p.root.Image, err = cr.roots.keepRoot(img)
	return p, err
}

// KeepLayer keeps the present files of a build's sandbox under a key, as a snapshot that no list
// shows. Its Detail is the key. An equal key replaces nothing: the newest layer counts. The layer
// is held until the caller releases it.
func (s *Service) KeepLayer(ctx context.Context, id carrel.ID,
	key string) (_ carrel.Snapshot, release func(), err error) {
	b, err := s.table.find(opLayer, id)
	if err != nil {
		return carrel.Snapshot{}, nil, err
	}
	ctx, leave, err := s.table.take(ctx, opLayer, b)
	if err != nil {
		return carrel.Snapshot{}, nil, err
	}
	defer leave()
	if err := b.running(opLayer); err != nil {
		return carrel.Snapshot{}, nil, err
	}
	sr, err := s.archive.keep(ctx, b, wish{cause: carrel.CauseBuild, filesOnly: true, detail: key})
	if err != nil {
		return carrel.Snapshot{}, nil, b.momentError(ctx, opLayer, err)
	}
	sr.Snapshot.Kept = true
	sr.Record.Sandbox.AccessToken, sr.Record.Sandbox.TrafficToken, sr.Record.Sandbox.Metadata = "", "",
		nil
	sr.Record.Sandbox.Network, sr.Record.Sandbox.Tokens, sr.Record.Sandbox.Build = carrel.Network{},
		nil, ""
	release = s.archive.snaps.HoldNew(sr.Snapshot.ID)
	if err := s.records.apply(ctx,
		state.Change{PutSnapshots: []state.SnapshotRecord{sr}}); err != nil {
		release()
		s.archive.scrap(sr.Snapshot.ID)
		return carrel.Snapshot{}, nil, err
	}
	return sr.Snapshot, release, nil
}

// HoldLayer keeps a layer from being removed until release. ok is false for one that is gone.
func (s *Service) HoldLayer(id carrel.SnapshotID) (release func(), ok bool) {
	return s.archive.snaps.Hold(id)
}

// Layers lists all layers, in no order.
func (s *Service) Layers() []carrel.Snapshot {
	var out []carrel.Snapshot
	for _, sr := range s.archive.snaps.All() {
		if sr.Snapshot.Cause == carrel.CauseBuild {
			out = append(out, sr.Snapshot)
		}
	}
	return out
}

// DropLayers removes layers. Those in use stay.
func (s *Service) DropLayers(ctx context.Context, ids []carrel.SnapshotID) error {
	_, _, err := s.archive.dropSnapshots(ctx, ids,
		dropRule{may: func(sn carrel.Snapshot) bool { return sn.Cause == carrel.CauseBuild }})
	return err
}

// LayerFiles hands the content of a layer to use: the path of the image below it, and the changes
// as a tar stream (driver.Restorer). The content is compared with its checksums before LayerFiles
// returns without an error.
func (s *Service) LayerFiles(ctx context.Context, id carrel.SnapshotID,
	use func(root string, changes io.Reader) error) error {
	sr, ok := s.archive.snaps.Get(id)
	if !ok || sr.Snapshot.Cause != carrel.CauseBuild {
		return &carrel.Error{Op: "read layer", Kind: carrel.NotFound,
			Err: fmt.Errorf("layer %s is gone", id)}
	}
	return s.archive.streamFiles(ctx, sr, use)
}

// streamFiles is LayerFiles for any snapshot. It fails with snapshot.ErrReplaced if the snapshot's
// files were damaged and have just been fetched again.
func (ar *archive) streamFiles(ctx context.Context, sr state.SnapshotRecord,
	use func(root string, changes io.Reader) error) error {
	o, err := ar.open(ctx, sr.Snapshot.ID, false, false)
	if err != nil {
		return err
	}
	defer o.release()
	f, err := ar.openFiles(ctx, o, sr)
	if err != nil {
		return err
	}
	return errors.Join(use(f.root, f), f.Close(), o.verify(ctx))
}

// openFiles is a stream of the files of an open snapshot, by the driver that wrote it.
func (ar *archive) openFiles(ctx context.Context, o *origin, sr state.SnapshotRecord) (*snapshotFiles, error) {
	drv, root, err := ar.launcher.home(ctx, sr.Record, o.info.Root)
	if err != nil {
		return nil, err
	}
	r, err := restorer(drv)
	if err != nil {
		return nil, err
	}
	scratch := carrel.NewID() // of no sandbox; see readFiles
	spec := driver.Spec{ID: scratch, Root: root, Guest: ar.opts.GuestImage,
		Dir: filepath.Join(ar.opts.Dir, string(scratch)), Limits: sr.Snapshot.Limits}
	if err := os.Mkdir(spec.Dir, 0o700); err != nil {
		return nil, err
	}
	f := &snapshotFiles{driver: drv, root: root.Image, dir: spec.Dir}
	if f.ReadCloser, err = r.SnapshotFiles(ctx, o.files.Dir(), o.info, spec); err != nil {
		_ = os.RemoveAll(spec.Dir) // the next service removes the rest
		return nil, err
	}
	return f, nil
}

// snapshotFiles is a stream of a snapshot's files. Its Close removes what it needed.
type snapshotFiles struct {
	io.ReadCloser
	driver driver.Driver
	root   string // the image under it
	dir    string
}

// Close implements io.Closer.
func (f *snapshotFiles) Close() error {
	err := f.ReadCloser.Close()
	_ = os.RemoveAll(f.dir) // the next service removes the rest
	return err
}

// TemplatesChanged makes the service check again everything that it made from templates.
func (s *Service) TemplatesChanged() { s.templates.templatesChanged() }

// EnterBuild waits for the turn of a piece of work that uses the whole machine for a while. done
// ends it.
func (s *Service) EnterBuild(ctx context.Context, op string) (done func(), err error) {
	pass, err := s.gates.enterBuild(ctx, op)
	if err != nil {
		return nil, err
	}
	return func() { pass.Done(nil) }, nil
}
