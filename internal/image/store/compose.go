package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/atomicfile"
	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/image/archive"
)

// Compose implements image.Store.
func (s *Store) Compose(ctx context.Context, t carrel.Template, base string, changes io.Reader,
	skip []string) (image.Image, error) {
	from, err := os.Open(base)
	if err != nil {
		return image.Image{}, archive.Classify(opCompose, err)
	}
	defer from.Close()
	return s.put(ctx, t, func(dir string) (int64, *sumsTable, error) {
		imp := archive.Importer{NewFile: func() (*os.File, error) { return os.CreateTemp(dir, "part-*") },
			Limits: s.limits}
		f, err := imp.Compose(ctx, from, changes, skip)
		if err != nil {
			return 0, nil, err
		}
		size, err := s.keepShared(ctx, f, filepath.Join(dir, imageFile))
		return size, nil, err
	})
}

// Link implements image.Store.
func (s *Store) Link(ctx context.Context, id string, t carrel.Template) (image.Image, error) {
	if made, ok, err := thins(s).linkThin(ctx, id, t); ok || err != nil {
		return made, err
	}
	from, err := s.Get(ctx, id)
	if err != nil {
		return image.Image{}, err
	}
	return s.put(ctx, t, func(dir string) (int64, *sumsTable, error) {
		if err := os.Link(from.Path, filepath.Join(dir, imageFile)); err != nil {
			return 0, nil, err
		}
		// The file is the same one, so its checksums are known. Without them it is read.
		known, _, err := readSums(filepath.Dir(from.Path))
		if err != nil || known == nil || known.SHA256 == "" || filepath.Base(from.Path) != imageFile {
			return from.Size, nil, nil
		}
		return from.Size, known, nil
	})
}

const opCompose = "make template"

// put makes a template whose image write puts into the template's directory. write may know the
// image's checksums. The template's digest is that of the image's file.
func (s *Store) put(ctx context.Context, t carrel.Template,
	write func(dir string) (size int64, known *sumsTable, err error)) (_ image.Image, err error) {
	if !strings.HasPrefix(t.Name, image.HiddenMark) {
		if t.Name, err = checkName(opCompose, t.Name); err != nil {
			return image.Image{}, err
		}
		if err := s.nameFree(opCompose, t.Project, t.Name); err != nil {
			return image.Image{}, err
		}
	}
	t.ID = newID()
	dir := filepath.Join(s.opts.Dir, t.ID)
	held, err := s.makeDir(ctx, dir)
	if err != nil {
		return image.Image{}, archive.Classify(opCompose, err)
	}
	defer held.Close() // frees the lock
	defer func() {
		if err != nil {
			_ = os.RemoveAll(dir)
		}
	}()
	var sums *sumsTable
	if t.Size, sums, err = write(dir); err == nil {
		err = ctx.Err()
	}
	if err == nil && sums == nil {
		sums, err = makeSums(ctx, dir, sha256.New())
	}
	if err == nil {
		err = sums.write(dir)
	}
	if err != nil {
		return image.Image{}, archive.Classify(opCompose, err)
	}
	t.Created, t.Digest = s.opts.Now().UTC(), "sha256:"+sums.SHA256
	img, err := s.commit(dir, t, sums.digest())
	return img, archive.Classify(opCompose, err)
}

// Rename implements image.Store.
func (s *Store) Rename(_ context.Context, id string, t carrel.Template) (image.Image, error) {
	s.mu.Lock()
	e := s.byID[id]
	s.mu.Unlock()
	if e == nil {
		return image.Image{}, notFound(opCompose, id)
	}
	next := e.Template
	next.Name, next.Tag, next.Of, next.Build, next.Public = t.Name, t.Tag, t.Of, t.Build, t.Public
	next.Created = s.opts.Now().UTC()
	img, err := s.commit(filepath.Join(s.opts.Dir, id), next, e.Sums)
	return img, archive.Classify(opCompose, err)
}

// CheckName implements image.Store.
func (s *Store) CheckName(op, name string) error {
	_, err := checkName(op, name)
	return err
}

// Keyed implements image.Store.
func (s *Store) Keyed(project, key string) (image.Image, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var newest *entry
	for _, e := range s.byID {
		if key != "" && e.Project == project && e.Key == key &&
			(newest == nil || e.Created.After(newest.Created)) {
			newest = e
		}
	}
	if newest == nil {
		return image.Image{}, false
	}
	return newest.Image, true
}

// WithContent implements image.Store.
func (s *Store) WithContent(project, content string) (image.Image, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var newest *entry
	for _, e := range s.byID {
		if e.Project == project && image.HasContent(e.Key, content) &&
			!strings.HasPrefix(e.Name, image.DraftMark) &&
			(newest == nil || e.Created.After(newest.Created)) {
			newest = e
		}
	}
	if newest == nil {
		return image.Image{}, false
	}
	return newest.Image, true
}

// SetBuild implements image.Store.
func (s *Store) SetBuild(_ context.Context, id, build string) (image.Image, error) {
	return s.rewrite(id, func(t *carrel.Template) { t.Build = build })
}

// Tagged implements image.Store.
func (s *Store) Tagged(of string) []image.Image {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []image.Image
	for _, e := range s.byID {
		if !e.old && of != "" && e.Of == of {
			out = append(out, e.Image)
		}
	}
	return out
}

// LastingID implements image.Store.
func (s *Store) LastingID(project, nameOrID string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.byID {
		if !e.old && e.Of != "" && e.Project == project && (e.Name == nameOrID || e.Of == nameOrID) &&
			!strings.HasPrefix(e.Name, image.HiddenMark) {
			return e.Of
		}
	}
	return ""
}

// Untag implements image.Store.
func (s *Store) Untag(_ context.Context, of, tag string) error {
	s.mu.Lock()
	var gone []string
	for id, e := range s.byID {
		if of != "" && e.Of == of && e.Tag == tag {
			gone = append(gone, id)
			delete(s.byID, id)
		}
	}
	s.mu.Unlock()
	if len(gone) == 0 {
		return &carrel.Error{Op: "remove tag", Kind: carrel.NotFound, Field: "tags",
			Err: fmt.Errorf("the template has no tag %.100q", tag)}
	}
	var errs []error
	for _, id := range gone {
		errs = append(errs, removeTemplate(filepath.Join(s.opts.Dir, id)))
	}
	return archive.Classify("remove tag", errors.Join(append(errs, atomicfile.SyncDir(s.opts.Dir))...))
}

// FindBase implements image.Store.
func (s *Store) FindBase(ctx context.Context, opts carrel.PullOptions) (image.Image, bool, error) {
	digest, err := s.remoteDigest(ctx, opts)
	if err != nil {
		return image.Image{}, false, err
	}
	img, ok := s.Keyed(carrel.CallerOf(ctx).Project, baseKey+digest)
	return img, ok, nil
}

// PullBase implements image.Store.
func (s *Store) PullBase(ctx context.Context, opts carrel.PullOptions,
	progress func(carrel.Progress)) (image.Image, error) {
	digest, err := s.remoteDigest(ctx, opts)
	if err != nil {
		return image.Image{}, err
	}
	project, key := carrel.CallerOf(ctx).Project, baseKey+digest
	s.bases.Lock(project + " " + key)
	defer s.bases.Unlock(project + " " + key)
	if img, ok := s.Keyed(project, key); ok {
		return img, nil
	}
	sum := sha256.Sum256([]byte(digest))
	return s.pull(ctx, carrel.Template{Name: image.HiddenMark + hex.EncodeToString(sum[:12]), Key: key},
		opts, progress)
}

// baseKey begins the keys of bases.
const baseKey = "base:"

// remoteDigest asks a registry for the digest of an image for this machine.
func (s *Store) remoteDigest(ctx context.Context, opts carrel.PullOptions) (string, error) {
	return s.registries.Digest(ctx, opts, s.request(ctx, nil))
}

// rewrite changes the manifest of an image.
func (s *Store) rewrite(id string, change func(*carrel.Template)) (image.Image, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.byID[id]
	if e == nil {
		return image.Image{}, notFound(opCompose, id)
	}
	t := e.Template
	change(&t)
	raw, err := encodeManifest(t, e.Sums)
	if err == nil {
		err = atomicfile.Write(filepath.Join(s.opts.Dir, t.ID, manifestFile), append(raw, '\n'), 0o644)
	}
	if err != nil {
		return image.Image{}, archive.Classify(opCompose, err)
	}
	e.Template = t
	return e.Image, nil
}

// keyLocks are locks by name.
type keyLocks struct {
	mu    sync.Mutex
	locks map[string]*keyLock
}

// keyLock is one lock, and how many want it.
type keyLock struct {
	sync.Mutex
	users int
}

// Lock takes the lock of a name.
func (k *keyLocks) Lock(name string) {
	k.mu.Lock()
	if k.locks == nil {
		k.locks = map[string]*keyLock{}
	}
	l := k.locks[name]
	if l == nil {
		l = &keyLock{}
		k.locks[name] = l
	}
	l.users++
	k.mu.Unlock()
	l.Lock()
}

// Unlock frees it.
func (k *keyLocks) Unlock(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l := k.locks[name]
	l.Unlock()
	if l.users--; l.users == 0 {
		delete(k.locks, name)
	}
}
