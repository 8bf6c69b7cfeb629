package store

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync"

	"github.com/carrel-dev/carrel/internal/atomicfile"
	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/image/archive"
)

// Hold implements image.Store. Collect never takes a built-in template, so nobody needs to count
// who holds one.
func (s *Store) Hold(id string) (release func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.find(id, "")
	if e == nil {
		_, lent := s.lent[id]
		return func() {}, lent || isBuiltIn(id) || s.builtIns.find(id, "") != nil
	}
	s.held[e.ID]++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.held[e.ID]--; s.held[e.ID] == 0 {
			delete(s.held, e.ID)
		}
	}), true
}

// Collectable implements image.Store.
func (s *Store) Collectable() []image.Image {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.collectableLocked(func(image.Image) bool { return true })
}

// collectableLocked lists the bases of builds that nobody holds and that may go. The draft of a
// build is none: its build removes it. The caller holds mu.
func (s *Store) collectableLocked(may func(image.Image) bool) []image.Image {
	var out []image.Image
	for id, e := range s.byID {
		if strings.HasPrefix(e.Name, image.HiddenMark) &&
			!strings.HasPrefix(e.Name, image.DraftMark) && s.held[id] == 0 && may(e.Image) {
			out = append(out, e.Image)
		}
	}
	return out
}

// Collect implements image.Store.
func (s *Store) Collect(ctx context.Context, may func(image.Image) bool) ([]image.Image, error) {
	const op = "collect templates"
	if err := ctx.Err(); err != nil {
		return nil, archive.Classify(op, err)
	}
	s.mu.Lock()
	gone := s.collectableLocked(may)
	for _, img := range gone {
		delete(s.byID, img.ID)
		delete(s.packed, img.ID)
	}
	s.mu.Unlock()
	if len(gone) == 0 {
		return nil, nil
	}
	var errs []error
	for _, img := range gone {
		dir := filepath.Join(s.opts.Dir, img.ID)
		s.checks.forget(dir)
		errs = append(errs, removeTemplate(dir))
	}
	errs = append(errs, atomicfile.SyncDir(s.opts.Dir))
	return gone, archive.Classify(op, errors.Join(errs...))
}
