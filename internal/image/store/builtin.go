package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/image/archive"
)

// builtIns are the built-in templates beside host and sim. Each is made at its first use or ahead
// of it, base only ahead of it. Making one takes minutes, so it goes on when its caller leaves.
type builtIns struct {
	noFirstUse bool
	ctx        context.Context // of makings
	cancel     context.CancelFunc
	wg         sync.WaitGroup
	turn       chan struct{} // holds one token; its holder makes a template
	all        []*builtIn    // by name
}

// builtIn is one of them.
type builtIn struct {
	*cached

	mu     sync.Mutex
	making *making // nil when nobody makes it
}

// making is a template being made. Any number of callers wait for it.
type making struct {
	done chan struct{} // closed at the end
	img  image.Image   // set before done is closed, like err
	err  error

	mu       sync.Mutex
	watchers map[int]func(carrel.Progress)
	next     int
}

func newBuiltIns(opts Options) *builtIns {
	b := &builtIns{noFirstUse: opts.NoFirstUse, turn: make(chan struct{}, 1)}
	b.turn <- struct{}{}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	for _, d := range opts.BuiltIns {
		t := d.Template
		t.BuiltIn = true
		c := newCached(opts, builtInPrefix(t.Name), t)
		c.print = func() (string, error) { return d.Print, nil }
		c.make = func(ctx context.Context, dir string, _ time.Time, meter *image.Meter) (*os.File,
			carrel.Template, error) {
			return d.Make(ctx, dir, meter)
		}
		b.all = append(b.all, &builtIn{cached: c})
	}
	slices.SortFunc(b.all, func(x, y *builtIn) int {
		return strings.Compare(x.template.Name,
			y.template.Name)
	})
	return b
}

// builtInPrefix begins the name of a built-in template's directory in the cache.
func builtInPrefix(name string) string { return "template-" + name + "-" }

// find returns a template by its ID or its name; nil for none.
func (b *builtIns) find(id, name string) *builtIn {
	for _, t := range b.all {
		if id != "" && t.template.ID == id || name != "" && t.template.Name == name {
			return t
		}
	}
	return nil
}

// names returns the names of all.
func (b *builtIns) names() []string {
	var out []string
	for _, t := range b.all {
		out = append(out, t.template.Name)
	}
	return out
}

// cached returns their images' keepers.
func (b *builtIns) cached() []*cached {
	var out []*cached
	for _, t := range b.all {
		out = append(out, t.cached)
	}
	return out
}

// sweep removes what a process left that died while it made a template.
func (b *builtIns) sweep() {
	for _, t := range b.all {
		entries, err := os.ReadDir(t.dir)
		if err != nil {
			return
		}
		for _, e := range entries {
			dir := filepath.Join(t.dir, e.Name())
			if !e.IsDir() || !t.owns(e.Name()) {
				continue
			}
			if _, err := os.Stat(filepath.Join(dir, manifestFile)); errors.Is(err, os.ErrNotExist) {
				if err := removeUnheld(dir); err != nil {
					t.log.Warn("removing a half-made template", "dir", e.Name(), "err", err)
				}
			}
		}
	}
}

// load takes the image from the cache if an earlier process made it.
func (t *builtIn) load(ctx context.Context) error {
	print, err := t.print()
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(t.dir, t.prefix+print, manifestFile)); err != nil {
		return err
	}
	_, err = t.cached.get(ctx, true, nil)
	return err
}

// get returns the image. If there is none, it makes it first, or waits for its making.
func (b *builtIns) get(ctx context.Context, t *builtIn, ahead bool,
	progress func(carrel.Progress)) (image.Image, error) {
	if img, ok := t.ready(); ok && (!ahead || t.isCurrent()) {
		return img, nil
	}
	if t.load(ctx) == nil {
		return t.listed(), nil
	}
	if b.noFirstUse && !ahead {
		return image.Image{}, &carrel.Error{Op: opBuiltIn, Kind: carrel.Unavailable, Field: "template",
			Err: fmt.Errorf(
				"%s has not been made on this machine, and this service makes no template at its first use",
				t.template.Name),
			Hint: "make it with 'carrel template get " + t.template.Name + "'"}
	}
	m, leave := b.join(t, progress)
	defer leave()
	select {
	case <-m.done:
		return m.img, m.err
	case <-ctx.Done():
		return image.Image{}, &carrel.Error{Op: opBuiltIn, Kind: carrel.TimedOut, Field: "template",
			Err:  fmt.Errorf("%s is still being made: %w", t.template.Name, ctx.Err()),
			Hint: "try again later; 'carrel template get " + t.template.Name + "' shows the progress"}
	}
}

// join makes the template, or joins the caller to its making. The caller calls leave in the end.
func (b *builtIns) join(t *builtIn, progress func(carrel.Progress)) (_ *making, leave func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := t.making
	if m == nil {
		m = &making{done: make(chan struct{}), watchers: map[int]func(carrel.Progress){}}
		t.making = m
		b.wg.Go(func() { b.make(t, m) })
	}
	return m, m.watch(progress)
}

// make makes the template and tells the callers who wait.
func (b *builtIns) make(t *builtIn, m *making) {
	select {
	case <-b.turn:
		m.img, m.err = t.cached.get(b.ctx, true, m.report)
		b.turn <- struct{}{}
	case <-b.ctx.Done():
	}
	if b.ctx.Err() != nil && m.img.Path == "" {
		m.err = &carrel.Error{Op: opBuiltIn, Kind: carrel.Unavailable,
			Err: errors.New("the service is closed")}
	}
	if m.err != nil {
		t.log.Warn("making a built-in template", "template", t.template.Name, "err", m.err, "hint",
			carrel.HintOf(m.err))
	}
	t.mu.Lock()
	t.making = nil
	t.mu.Unlock()
	close(m.done)
}

// watch adds a function for progress; nil adds none.
func (m *making) watch(progress func(carrel.Progress)) (leave func()) {
	if progress == nil {
		return func() {}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	key := m.next
	m.next++
	m.watchers[key] = progress
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.watchers, key)
	}
}

// report passes progress on. A function is not called after its caller has left.
func (m *making) report(p carrel.Progress) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(m.watchers)) {
		m.watchers[key](p)
	}
}

func (b *builtIns) close() error {
	b.cancel()
	b.wg.Wait()
	var errs []error
	for _, t := range b.all {
		errs = append(errs, t.cached.close())
	}
	return errors.Join(errs...)
}

// Make makes the built-in template with a name ahead of its first use, and reports progress.
// Errors: NotFound (no such built-in template), Unavailable (its parts can't be had).
func (s *Store) Make(ctx context.Context, name string,
	progress func(carrel.Progress)) (image.Image, error) {
	switch untag(name) {
	case image.Base:
		return s.makeBase(ctx, progress)
	case image.Host:
		return s.host.get(ctx, true, progress)
	case Sim:
		return simTemplate(), nil
	}
	if t := s.builtIns.find("", untag(name)); t != nil {
		return s.builtIns.get(ctx, t, true, progress)
	}
	names := append([]string{image.Host}, s.builtIns.names()...)
	return image.Image{}, &carrel.Error{Op: opBuiltIn, Kind: carrel.NotFound, Field: "name",
		Err:  fmt.Errorf("no built-in template is called %.100q", name),
		Hint: "there are " + strings.Join(names, ", ")}
}

// BuiltInNames returns the names of Options.BuiltIns, sorted.
func (s *Store) BuiltInNames() []string { return s.builtIns.names() }

// Lend gives an image an ID for as long as release has not been called, so that sandboxes can start
// from it. It is in no list and has no name. The image's file is the caller's.
func (s *Store) Lend(img image.Image) (id string, release func()) {
	img.ID, img.BuiltIn, img.Lent = newID(), true, true
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lent[img.ID] = img
	return img.ID, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.lent, img.ID)
	}
}

// lentImage returns an image that was lent.
func (s *Store) lentImage(id string) (image.Image, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	img, ok := s.lent[id]
	return img, ok
}

// openBuiltIns sweeps, and takes what earlier processes made.
func (s *Store) openBuiltIns(ctx context.Context) error {
	s.builtIns.sweep()
	for _, t := range s.builtIns.all {
		load := t.load
		if t.template.ID == BaseID {
			load = func(ctx context.Context) error { return s.loadBase(ctx, t) }
		}
		if err := load(ctx); err != nil && !errors.Is(err, os.ErrNotExist) {
			return archive.Classify(opBuiltIn, err)
		}
	}
	return nil
}
