package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/atomicfile"
	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/image/archive"
	"github.com/carrel-dev/carrel/internal/image/filler"
)

// lazyImages is the part of a [Store] whose images are being filled.
type lazyImages struct{ *Store }

func fills(s *Store) lazyImages { return lazyImages{s} }

// A template that is pulled lazily exists before its image is whole. Its manifest says so
// (Template.Lazy), and package filler fills the image. A create gets the filler's view. Everybody
// else waits or is refused: until the image is whole, its file has no superblock.
//
// A goroutine for each such template looks at what its filler says, and starts another one when it
// is gone. When the image is whole, the template gets its checksums and becomes an ordinary one.

const (
	opLazy = "pull template lazily"
	// lookEvery is how often the state of a filler is looked at.
	lookEvery = 100 * time.Millisecond
	// viewGrace is how long the view stays after the image is whole: a create may be about to open
	// it.
	viewGrace = 30 * time.Second
	// maxRefills is how often a filler that died is started again.
	maxRefills = 5
)

// lazies are the templates that are being filled.
type lazies struct {
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	starts keyLocks // one start of a filler at a time, by ID
}

func newLazies() *lazies {
	l := &lazies{}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

func (l *lazies) close() {
	l.cancel()
	l.wg.Wait()
}

// pullLazy is pull, but returns before the image is whole. If the image can't come in parts, it is
// pulled whole, and the result says why.
func (s lazyImages) pullLazy(ctx context.Context, like carrel.Template, opts carrel.PullOptions,
	progress func(carrel.Progress)) (image.Image, error) {
	whole := func(why string) (image.Image, error) {
		img, err := s.pull(ctx, like, opts, progress)
		img.Lazy = &carrel.Lazy{State: carrel.LazyWhole, Reason: why}
		return img, err
	}
	if err := filler.Able(); err != nil {
		return whole(errors.Unwrap(err).Error())
	}
	meter := image.NewMeter(progress)
	req := s.request(ctx, meter)
	late, release, why, err := s.registries.PullLate(ctx, opts, req)
	if err != nil {
		return image.Image{}, archive.Classify(opLazy, err)
	}
	if why != "" {
		return whole(why)
	}
	defer release()
	plan := &filler.Plan{Image: opts.Image, Platform: opts.Platform, Project: req.Project,
		Operator: req.Operator, Private: opts.Credentials != nil, Layers: late.Layers}
	img, err := s.makeKept(ctx, opLazy, like, meter,
		func(ctx context.Context, imp archive.Importer) (*os.File, *archive.Result, string, error) {
			f, res, rest, err := imp.Late(ctx, late.Source, "registry")
			if err == nil {
				plan.Late = *rest
			}
			return f, res, opts.Image, err
		}, func(ctx context.Context, dir string, f *os.File, t *carrel.Template) (string, error) {
			t.Lazy = &carrel.Lazy{State: carrel.LazyFilling, Reason: partly(late.Whole)}
			for _, p := range plan.Pieces {
				t.Lazy.Missing += p.Chunk.Size
			}
			return "", s.beginFill(ctx, dir, f, t, plan, opts.Credentials)
		})
	if err != nil {
		return image.Image{}, err
	}
	s.watchFill(img.ID)
	return img, nil
}

// partly says which layers came whole.
func partly(whole map[int]string) string {
	var out []string
	for i, why := range whole {
		out = append(out, fmt.Sprintf("layer %d was pulled whole: %s", i+1, why))
	}
	slices.Sort(out)
	return strings.Join(out, "; ")
}

// beginFill keeps the file of an image that is not whole, and starts its filler.
func (s lazyImages) beginFill(ctx context.Context, dir string, f *os.File, t *carrel.Template,
	plan *filler.Plan, own *carrel.RegistryCredentials) error {
	size, err := keepFile(f, filepath.Join(dir, imageFile))
	if err != nil {
		return err
	}
	t.Size = size
	if err := filler.Prepare(dir, plan); err != nil {
		return err
	}
	o := s.order()
	o.Credentials = own
	_, err = filler.Start(ctx, "", dir, o)
	return err
}

// order is what fillers of this store are told.
func (s lazyImages) order() filler.Order {
	r := s.opts.Registries
	return filler.Order{Allow: r.Allow, Mirrors: r.Mirrors, Offline: r.Offline, Layout: r.Layout,
		MinBytes: r.MinBytes, StallTime: r.StallTime}
}

// Boot implements image.Store.
func (s *Store) Boot(ctx context.Context, id string) (image.Image, error) {
	s.mu.Lock()
	e := s.find(id, "")
	s.mu.Unlock()
	if e == nil {
		return s.Get(ctx, id) // a built-in one, or none
	}
	switch img, ok := fills(s).lazy(e); {
	case !ok:
		return s.Get(ctx, id)
	case img.Lazy.State == carrel.LazyFailed:
		return image.Image{}, fillFailed(img)
	}
	p, err := fills(s).refill(ctx, e.ID)
	if err != nil {
		return image.Image{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	img := e.Image
	if img.Lazy == nil { // it became whole meanwhile
		return img, nil
	}
	img.View = p.View()
	return img, nil
}

// lazy returns the template of an entry if its image is not whole.
func (s lazyImages) lazy(e *entry) (image.Image, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return e.Image, e.Lazy != nil
}

// half is the error for who needs the whole image.
func half(op string, img image.Image) error {
	if img.Lazy.State == carrel.LazyFailed {
		return fillFailed(img)
	}
	return &carrel.Error{Op: op, Kind: carrel.Conflict, Field: "template",
		Err: fmt.Errorf("the image of %s is still being filled: %d bytes are missing", img.Name,
			img.Lazy.Missing),
		Hint: "wait until 'carrel template show " + img.Name + "' no longer shows it as lazy"}
}

func fillFailed(img image.Image) error {
	return &carrel.Error{Op: "open template", Kind: carrel.Unavailable, Field: "template",
		Err:  fmt.Errorf("the image of %s could not be filled: %s", img.Name, img.Lazy.Reason),
		Hint: "pull it again: carrel template pull " + img.Name + " IMAGE"}
}

// errNoKeys says why a fill can't go on.
var errNoKeys = errors.New("the filler ended, and the credentials of the pull are not kept")

// refill returns the filler of a template, and starts one if there is none.
func (s lazyImages) refill(ctx context.Context, id string) (*filler.Process, error) {
	dir := filepath.Join(s.opts.Dir, id)
	s.lazies.starts.Lock(id)
	defer s.lazies.starts.Unlock(id)
	if p := filler.Find(dir); p != nil {
		return p, nil
	}
	plan, err := filler.ReadPlan(filepath.Join(dir, "fill.plan"))
	if err == nil && plan.Private {
		err = &carrel.Error{Op: opLazy, Kind: carrel.Unauthenticated, Err: errNoKeys,
			Hint: "pull it again"}
	}
	if err == nil {
		err = filler.Able()
	}
	if err != nil {
		return nil, archive.Classify(opLazy, err)
	}
	o := s.order()
	o.Resumed = true
	p, err := filler.Start(ctx, "", dir, o)
	return p, archive.Classify(opLazy, err)
}

// watchFill looks after a template until its image is whole.
func (s lazyImages) watchFill(id string) {
	s.lazies.wg.Go(func() {
		dir := filepath.Join(s.opts.Dir, id)
		died := 0
		for {
			select {
			case <-time.After(lookEvery):
			case <-s.lazies.ctx.Done():
				if p := filler.Find(dir); p != nil {
					p.Release()
				}
				return
			}
			if ok, err := image.IsWhole(filepath.Join(dir, imageFile)); err != nil {
				return // it was deleted
			} else if ok {
				s.wholeNow(id, dir)
				return
			}
			st, err := filler.ReadStatus(dir)
			switch {
			case err == nil && st.State == filler.Failed:
				s.setLazy(id, &carrel.Lazy{State: carrel.LazyFailed, Missing: st.Missing, Reason: st.Reason})
				return
			case filler.Find(dir) == nil:
				s.opts.Logger.Error("the filler of a template ended: its sandboxes fail to read what they "+
					"have not read yet", "template", id)
				if died++; died > maxRefills {
					s.setLazy(id, &carrel.Lazy{State: carrel.LazyFailed,
						Reason: fmt.Sprintf("its filler ended %d times", died)})
					return
				}
				if _, err := s.refill(s.lazies.ctx, id); err != nil && s.lazies.ctx.Err() == nil {
					s.setLazy(id, &carrel.Lazy{State: carrel.LazyFailed, Reason: err.Error()})
					return
				}
			case err == nil:
				s.showMissing(id, st.Missing)
			}
		}
	})
}

// showMissing notes how much is missing, in memory only.
func (s lazyImages) showMissing(id string, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.byID[id]; e != nil && e.Lazy != nil {
		next := *e.Lazy
		next.Missing = n
		e.Lazy = &next
	}
}

// setLazy writes the state of a template's image.
func (s lazyImages) setLazy(id string, l *carrel.Lazy) {
	if l.State == carrel.LazyFailed {
		s.opts.Logger.Error("a template's image could not be filled", "template", id, "why", l.Reason)
	}
	if _, err := s.rewrite(id, func(t *carrel.Template) { t.Lazy = l }); err != nil {
		s.opts.Logger.Warn("the state of a template is not written", "template", id, "err", err)
	}
}

// wholeNow makes a template whose image is whole an ordinary one.
func (s lazyImages) wholeNow(id, dir string) {
	ctx := s.lazies.ctx
	sums, err := makeSums(ctx, dir, nil)
	if err == nil {
		err = sums.write(dir)
	}
	size := int64(0)
	if f, ferr := os.Open(filepath.Join(dir, imageFile)); err == nil && ferr == nil {
		size, err = diskSize(f)
		_ = f.Close()
	}
	if err == nil {
		err = s.commitWhole(id, dir, size, sums.digest())
	}
	if err != nil {
		if ctx.Err() == nil {
			s.opts.Logger.Error("a template that was filled is not usable yet", "template", id, "err", err)
		}
		return // the next start of the store tries again
	}
	s.opts.Logger.Info("a template that was pulled lazily is whole", "template", id, "bytes", size)
	select {
	case <-time.After(viewGrace):
	case <-ctx.Done():
	}
	s.endFill(dir)
}

// endFill takes the view away and removes the filler's files.
func (s lazyImages) endFill(dir string) {
	if p := filler.Find(dir); p != nil {
		p.Release()
	}
	if err := filler.Clean(dir); err != nil {
		s.opts.Logger.Warn("files of a filler stay", "dir", dir, "err", err)
	}
}

// commitWhole writes the manifest of an ordinary template.
func (s lazyImages) commitWhole(id, dir string, size int64, sums string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.byID[id]
	if e == nil {
		return nil // deleted meanwhile
	}
	t := e.Template
	t.Lazy, t.Size = nil, size
	raw, err := encodeManifest(t, sums)
	if err != nil {
		return err
	}
	err = atomicfile.Write(filepath.Join(dir, manifestFile), append(raw, '\n'), 0o644)
	if err == nil {
		e.Template, e.Sums = t, sums
	}
	return err
}

// openLazy goes on with what an earlier store began.
func (s lazyImages) openLazy() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, e := range s.byID {
		dir := filepath.Join(s.opts.Dir, id)
		if e.Lazy == nil {
			if _, err := os.Stat(filepath.Join(dir, "fill.plan")); err == nil {
				s.endFill(dir)
			}
			continue
		}
		if e.Lazy.State == carrel.LazyFailed {
			if e.Lazy = (&carrel.Lazy{State: carrel.LazyFilling, Missing: e.Lazy.Missing}); filler.Find(dir) != nil {
				filler.Find(dir).Release()
			}
		}
		s.watchFill(id)
	}
}
