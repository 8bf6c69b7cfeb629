package build

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/carrel-dev/carrel"
)

// Directories beside those of builds.
const (
	uploadsDir = ".uploads"
	cachesDir  = ".caches"
)

// maxUploads bounds the uploads of one project.
const maxUploads = 10_000

// uploads keeps the archives that clients send ahead for COPY. Each project has its own. The name
// is what the client's SDK computes of the files. It says nothing about the archive's bytes, so it
// decides nothing but which archive a COPY takes.
type uploads struct{ dir string }

// projectDir is a directory's name for a project.
func projectDir(project string) string {
	sum := sha256.Sum256([]byte(project))
	return hex.EncodeToString(sum[:12])
}

// path returns where an upload is. Error: Invalid, for a name that no SDK makes.
func (u *uploads) path(op, project, name string) (string, error) {
	if len(name) != 64 {
		return "", invalid(op, "filesHash", "%.100q is no SHA-256 sum", name)
	}
	if _, err := hex.DecodeString(name); err != nil {
		return "", invalid(op, "filesHash", "%.100q is no SHA-256 sum", name)
	}
	return filepath.Join(u.dir, projectDir(project), name+".tar"), nil
}

// HasUpload reports whether the caller's project has uploaded an archive. All its templates may use
// it.
func (e *Engine) HasUpload(ctx context.Context, _, name string) (bool, error) {
	file, err := e.uploads.path("look for files", carrel.CallerOf(ctx).Project, name)
	if err != nil {
		return false, err
	}
	now := time.Now()
	if err := os.Chtimes(file, now, now); err != nil { // it is about to be used
		if errors.Is(err, os.ErrNotExist) {
			return false, nil
		}
		return false, &carrel.Error{Op: "look for files", Kind: carrel.Internal, Err: err}
	}
	return true, nil
}

// PutUpload keeps an archive for the caller's project. The archive is checked, and kept without
// its compression.
func (e *Engine) PutUpload(ctx context.Context, _, name string, r io.Reader) (err error) {
	const op = "upload files"
	file, err := e.uploads.path(op, carrel.CallerOf(ctx).Project, name)
	if err != nil {
		return err
	}
	dir := filepath.Dir(file)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return &carrel.Error{Op: op, Kind: carrel.Internal, Err: err}
	}
	if entries, err := os.ReadDir(dir); err == nil && len(entries) > maxUploads {
		return &carrel.Error{Op: op, Kind: carrel.Exhausted, Field: "files",
			Err:  fmt.Errorf("this project has %d uploads", len(entries)),
			Hint: "they go after a week without use"}
	}
	f, err := os.CreateTemp(dir, "part-*")
	if err != nil {
		return writeError(err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	err = normalize(ctx, f, r)
	if cerr := f.Close(); err == nil && cerr != nil {
		err = writeError(cerr)
	}
	if err == nil {
		if err = os.Rename(f.Name(), file); err != nil {
			err = writeError(err)
		}
	}
	return err
}

// tidy removes uploads that nobody has asked for since a time.
func (u *uploads) tidy(since time.Time) {
	projects, err := os.ReadDir(u.dir)
	if err != nil {
		return
	}
	for _, p := range projects {
		dir := filepath.Join(u.dir, p.Name())
		files, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, f := range files {
			if info, err := f.Info(); err == nil && info.ModTime().Before(since) {
				_ = os.Remove(filepath.Join(dir, f.Name()))
			}
		}
	}
}

// caches keeps the directories of RUN --mount=type=cache between builds, as archives. Each project
// has its own.
type caches struct{ dir string }

// maxCache bounds one cache.
const maxCache = 8 << 30

// path returns where a cache is.
func (c *caches) path(project, id string) string {
	sum := sha256.Sum256([]byte(id))
	return filepath.Join(c.dir, projectDir(project), hex.EncodeToString(sum[:16])+".tar")
}

// open opens a cache; nil is an empty one.
func (c *caches) open(project, id string) (*os.File, error) {
	f, err := os.Open(c.path(project, id))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return f, err
}

// put replaces a cache. The stream comes from a sandbox.
func (c *caches) put(ctx context.Context, project, id string, r io.Reader) (err error) {
	file := c.path(project, id)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(file), "part-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	n, err := io.Copy(f, io.LimitReader(ctxReader{ctx, r}, maxCache+1))
	if err == nil && n > maxCache {
		err = fmt.Errorf("the cache has more than %d GiB", maxCache>>30)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), file)
}
