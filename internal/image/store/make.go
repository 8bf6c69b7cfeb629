package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/atomicfile"
	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/image/archive"
	"github.com/carrel-dev/carrel/internal/image/registry"
)

// Import makes a template from an archive stream and replaces one of the same name.
func (s *Store) Import(ctx context.Context, name string, r io.Reader, progress func(carrel.Progress)) (image.Image, error) {
	return s.make(ctx, "import template", carrel.Template{Name: name}, progress,
		func(ctx context.Context, imp archive.Importer) (*os.File, *archive.Result, string, error) {
			f, res, err := imp.Stream(ctx, r)
			return f, res, "", err
		})
}

// ImportDir makes a template from a directory of this machine.
func (s *Store) ImportDir(ctx context.Context, name, dir string, progress func(carrel.Progress)) (image.Image, error) {
	return s.make(ctx, "import template", carrel.Template{Name: name}, progress,
		func(ctx context.Context, imp archive.Importer) (*os.File, *archive.Result, string, error) {
			f, res, err := imp.Dir(ctx, dir)
			return f, res, dir, err
		})
}

// Pull makes a template from an image in a registry.
func (s *Store) Pull(ctx context.Context, name string, opts carrel.PullOptions,
	progress func(carrel.Progress)) (image.Image, error) {
	if opts.Lazy {
		return fills(s).pullLazy(ctx, carrel.Template{Name: name}, opts, progress)
	}
	return s.pull(ctx, carrel.Template{Name: name}, opts, progress)
}

// pull is Pull for a template that may have a key.
func (s *Store) pull(ctx context.Context, like carrel.Template, opts carrel.PullOptions,
	progress func(carrel.Progress)) (image.Image, error) {
	return s.make(ctx, "pull template", like, progress,
		func(ctx context.Context, imp archive.Importer) (*os.File, *archive.Result, string, error) {
			src, release, err := s.registries.Pull(ctx, opts, s.request(ctx, imp.Meter))
			if err != nil {
				return nil, nil, "", err
			}
			defer release()
			f, res, err := imp.Image(ctx, src, "registry")
			return f, res, opts.Image, err
		})
}

// request says who asks a registry. The operator's own credentials are for administrators and for
// the default project. Every other project gives its own ones.
func (s *Store) request(ctx context.Context, meter *image.Meter) registry.Request {
	c := carrel.CallerOf(ctx)
	return registry.Request{Project: c.Project,
		Operator: c.Role == carrel.RoleAdmin || c.Project == carrel.DefaultProject,
		MaxBytes: s.limits.MaxBytes, Meter: meter}
}

// make makes one template with the name and key of like: its directory under a lock, the image, the
// manifest.
func (s *Store) make(ctx context.Context, op string, like carrel.Template,
	progress func(carrel.Progress),
	build builder) (image.Image, error) {
	return s.makeKept(ctx, op, like, image.NewMeter(progress), build,
		func(ctx context.Context, dir string, f *os.File, t *carrel.Template) (sums string, err error) {
			if t.Size, err = s.keepShared(ctx, f, filepath.Join(dir, imageFile)); err != nil {
				return "", err
			}
			return writeSums(ctx, dir)
		})
}

// builder makes an image in a file that is not durable yet.
type builder func(context.Context, archive.Importer) (f *os.File, res *archive.Result,
	source string, err error)

// makeKept is make with another way to keep the image in the template's directory. keep completes
// the template and returns the digest of the checksums.
func (s *Store) makeKept(ctx context.Context, op string, like carrel.Template, meter *image.Meter,
	build builder, keep func(ctx context.Context, dir string, f *os.File, t *carrel.Template) (
		sums string, err error)) (_ image.Image, err error) {
	name := like.Name
	if !strings.HasPrefix(name, image.HiddenMark) {
		if name, err = checkName(op, name); err != nil {
			return image.Image{}, err
		}
	}
	if err := s.nameFree(op, carrel.CallerOf(ctx).Project, name); err != nil {
		return image.Image{}, err
	}
	id := newID()
	dir := filepath.Join(s.opts.Dir, id)
	held, err := s.makeDir(ctx, dir)
	if err != nil {
		return image.Image{}, archive.Classify(op, err)
	}
	defer held.Close() // frees the lock
	defer func() {
		if err != nil {
			_ = os.RemoveAll(dir)
		}
	}()
	writing, stop := keepRoom(ctx, dir)
	defer stop()
	f, res, source, err := build(writing, archive.Importer{
		NewFile: func() (*os.File, error) { return os.CreateTemp(dir, "part-*") },
		Limits:  s.limits,
		Meter:   meter,
	})
	if err = roomError(writing, err); err != nil {
		return image.Image{}, archive.Classify(op, err)
	}
	t := carrel.Template{ID: id, Name: name, Key: like.Key, Project: carrel.CallerOf(ctx).Project,
		Created: s.opts.Now().UTC(), Source: res.Format, Digest: res.Digest,
		Env: res.Env, User: res.User, WorkDir: res.WorkDir, Start: res.Start, Labels: res.Labels,
		Entry: res.Entry, OnBuild: res.OnBuild}
	if source != "" {
		t.Source += ": " + source
	}
	sums, err := keep(ctx, dir, f, &t)
	if err != nil {
		return image.Image{}, archive.Classify(op, err)
	}
	if err := ctx.Err(); err != nil {
		return image.Image{}, archive.Classify(op, err)
	}
	img, err := s.commit(dir, t, sums)
	return img, archive.Classify(op, err)
}

// nameFree refuses a name that is the ID of another template of the project. It does not check the
// IDs of other projects, because the caller must not learn them.
func (s *Store) nameFree(op, project, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.byID[name]; t != nil && t.Project == project {
		return &carrel.Error{Op: op, Kind: carrel.AlreadyExists, Field: "name", Err: fmt.Errorf("%q is the ID of a template", name)}
	}
	return nil
}

// makeDir makes a template's directory and locks it. The store's lock keeps a sweep from running in
// between.
func (s *Store) makeDir(ctx context.Context, dir string) (_ *os.File, err error) {
	// It needs its own open file: locks of one open file do not exclude each other.
	guard, err := os.Open(s.lock.Name())
	if err != nil {
		return nil, err
	}
	defer guard.Close()
	if err := lockFile(ctx, guard, false); err != nil {
		return nil, err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	held, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := lockFile(ctx, held, true); err != nil {
		_ = held.Close()
		return nil, err
	}
	return held, nil
}

// keepShared is keepFile, but the file itself goes if another template has an equal one.
func (s *Store) keepShared(ctx context.Context, f *os.File, name string) (int64, error) {
	if s.share(ctx, f, name) {
		size, err := diskSize(f)
		return size, errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	return keepFile(f, name)
}

// keepFile makes a finished image durable under its name and returns its size on the disk.
func keepFile(f *os.File, name string) (int64, error) {
	err := f.Chmod(0o644)
	if err == nil {
		err = f.Sync()
	}
	size := int64(0)
	if err == nil {
		size, err = diskSize(f)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return 0, err
	}
	return size, os.Rename(f.Name(), name)
}

func diskSize(f *os.File) (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Blocks > 0 {
		return st.Blocks * 512, nil
	}
	return info.Size(), nil
}

// encodeManifest returns the text of template.json.
func encodeManifest(t carrel.Template, sums string) ([]byte, error) {
	return json.MarshalIndent(struct {
		carrel.Template
		Sums string `json:"sums,omitempty"`
	}{t, sums}, "", "  ")
}

// commit writes the manifest and moves the name to the template. From then on the template exists.
func (s *Store) commit(dir string, t carrel.Template, sums string) (image.Image, error) {
	if t.Lazy == nil { // else the image is not whole
		t.Tier = neededTier(filepath.Join(dir, imageFile))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := &entry{Sums: sums, Image: image.Image{Template: t, Path: filepath.Join(dir, imageFile)}}
	for _, other := range s.byID {
		// The newest template of a name counts, so be newer even if the clock went back.
		if other.own() == e.own() && !other.Created.Before(e.Created) {
			e.Created = other.Created.Add(1)
		}
	}
	raw, err := encodeManifest(e.Template, sums)
	if err != nil {
		return image.Image{}, err
	}
	if err := atomicfile.Write(filepath.Join(dir, manifestFile), append(raw, '\n'), 0o644); err != nil {
		return image.Image{}, err
	}
	if err := atomicfile.SyncDir(s.opts.Dir); err != nil {
		return image.Image{}, err
	}
	for _, other := range s.byID {
		if other.own() == e.own() {
			other.old = true
		}
	}
	s.byID[t.ID] = e
	return e.Image, nil
}
