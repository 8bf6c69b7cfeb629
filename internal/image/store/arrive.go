package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/image/archive"
)

var _ image.Arrivals = (*Store)(nil)

const opArrive = "adopt template"

// Arrive implements image.Arrivals.
func (s *Store) Arrive(ctx context.Context, t carrel.Template, sum string,
	fetch func(path string) error) (_ image.Image, err error) {
	if err := s.mayArrive(&t); err != nil {
		return image.Image{}, err
	}
	s.mu.Lock()
	had := s.byID[t.ID]
	s.mu.Unlock()
	if had != nil {
		return s.alreadyArrived(had, t)
	}
	dir := filepath.Join(s.opts.Dir, t.ID)
	held, err := s.makeDir(ctx, dir)
	if errors.Is(err, os.ErrExist) {
		return image.Image{}, &carrel.Error{Op: opArrive, Kind: carrel.Unavailable, Field: "template",
			Err: fmt.Errorf("template %s is being made here, or a crash left some of it", t.ID), Hint: "try again; a restart removes leftovers"}
	}
	if err != nil {
		return image.Image{}, archive.Classify(opArrive, err)
	}
	defer held.Close() // frees the lock
	defer func() {
		if err != nil {
			_ = os.RemoveAll(dir)
		}
	}()
	if err := fetch(filepath.Join(dir, imageFile)); err != nil {
		return image.Image{}, err
	}
	h := sha256.New()
	sums, err := makeSums(ctx, dir, h)
	if err == nil && hex.EncodeToString(h.Sum(nil)) != sum {
		err = &carrel.Error{Kind: carrel.Invalid, Field: "image", Err: fmt.Errorf("the image has another SHA-256 than %s", sum)}
	}
	if err == nil {
		err = sums.write(dir)
	}
	if err != nil {
		return image.Image{}, archive.Classify(opArrive, err)
	}
	img, err := s.commit(dir, t, sums.digest())
	return img, archive.Classify(opArrive, err)
}

// mayArrive checks a template from another machine.
func (s *Store) mayArrive(t *carrel.Template) error {
	bad := func(field, format string, args ...any) error {
		return &carrel.Error{Op: opArrive, Kind: carrel.Invalid, Field: field, Err: fmt.Errorf(format, args...)}
	}
	switch {
	case !isID(t.ID):
		return bad("template.id", "%.80q is not the ID of a template", t.ID)
	case t.BuiltIn || t.Lazy != nil || t.StandIn != "":
		return bad("template", "it is built in, or not whole")
	}
	if err := carrel.CheckProject(t.Project); err != nil {
		return bad("template.project", "%w", err)
	}
	if err := checkUpdate(opArrive, carrel.TemplateUpdate{Start: &t.Start, Ready: &t.Ready}); err != nil {
		return err
	}
	name, err := checkName(opArrive, t.Name)
	if err != nil {
		return err
	}
	t.Name = name
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, other := range s.byID {
		if other.ID != t.ID && other.own() == (ownName{t.Project, t.Name, t.Tag}) && !other.Created.Before(t.Created) {
			return &carrel.Error{Op: opArrive, Kind: carrel.AlreadyExists, Field: "template.name",
				Err: fmt.Errorf("the newer template %s has the name %s here", other.ID, t.FullName())}
		}
	}
	return nil
}

// alreadyArrived returns a template that is here. Its start settings may have changed since.
func (s *Store) alreadyArrived(had *entry, t carrel.Template) (image.Image, error) {
	if had.Project != t.Project || had.Size != t.Size {
		return image.Image{}, &carrel.Error{Op: opArrive, Kind: carrel.Conflict, Field: "template.id",
			Err: fmt.Errorf("another template has the ID %s here", t.ID)}
	}
	return had.Image, nil
}
