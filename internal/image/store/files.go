package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	goerofs "github.com/erofs/go-erofs"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/image"
)

// Files opens an image for reading single files.
func (s *Store) Files(ctx context.Context, name string) (image.Files, error) {
	return openFiles(ctx, name)
}

// openFiles opens an image for reading single files.
func openFiles(ctx context.Context, name string) (image.Files, error) {
	const op = "read template"
	if err := ctx.Err(); err != nil {
		return nil, &carrel.Error{Op: op, Kind: carrel.TimedOut, Err: context.Cause(ctx)}
	}
	if !filepath.IsAbs(name) {
		return nil, &carrel.Error{Op: op, Kind: carrel.Invalid, Field: "path", Err: fmt.Errorf("%q is not an absolute path", name)}
	}
	f, err := os.Open(name)
	if err != nil {
		kind := carrel.Internal
		if errors.Is(err, fs.ErrNotExist) {
			kind = carrel.NotFound
		}
		return nil, &carrel.Error{Op: op, Kind: kind, Err: err}
	}
	tree, err := goerofs.Open(f)
	if err == nil {
		if links, ok := tree.(fs.ReadLinkFS); ok {
			return &files{file: f, tree: links, dirs: map[string]bool{".": true}}, nil
		}
		err = errors.New("its reader knows no symbolic links")
	}
	_ = f.Close() // nothing was written
	return nil, &carrel.Error{Op: op, Kind: carrel.Invalid, Err: fmt.Errorf("%s is no EROFS image: %w", name, err)}
}

// files implements image.Files.
type files struct {
	file *os.File
	tree fs.ReadLinkFS
	dirs map[string]bool // for each name asked so far: is it a directory; bounded
}

var _ image.Files = (*files)(nil)

// dirsKept bounds files.dirs.
const dirsKept = 100_000

// isDir reports whether a name and all its parent parts are directories. The reader itself would
// follow links in the middle.
func (f *files) isDir(name string) (bool, error) {
	if is, known := f.dirs[name]; known {
		return is, nil
	}
	is, err := f.isDir(path.Dir(name))
	if err != nil {
		return false, err
	}
	if is {
		fi, err := f.tree.Lstat(name)
		if err != nil && !isMissing(err) {
			return false, err
		}
		is = err == nil && fi.IsDir()
	}
	if len(f.dirs) < dirsKept {
		f.dirs[name] = is
	}
	return is, nil
}

// isMissing reports whether an error of the reader means that there is no such file.
func isMissing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, goerofs.ErrNotDirectory)
}

// find checks a name and that all parts before the last one are directories.
func (f *files) find(op, name string) error {
	// Not fs.ValidPath: names in images are bytes, and not all are valid UTF-8.
	if name == "" || name != path.Clean(name) || name[0] == '/' || name == ".." || strings.HasPrefix(name, "../") {
		return &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	is, err := f.isDir(path.Dir(name))
	if err == nil && !is {
		err = fs.ErrNotExist
	}
	if err != nil {
		return &fs.PathError{Op: op, Path: name, Err: err}
	}
	return nil
}

// Lstat implements image.Files.
func (f *files) Lstat(name string) (image.File, error) {
	if err := f.find("lstat", name); err != nil {
		return image.File{}, err
	}
	fi, err := f.tree.Lstat(name)
	if err != nil {
		return image.File{}, err
	}
	out := image.File{Mode: fi.Mode(), Size: fi.Size(), Modified: fi.ModTime()}
	if st, ok := fi.Sys().(*goerofs.Stat); ok {
		out.Mode, out.UID, out.GID = st.Mode, st.UID, st.GID
		out.Major, out.Minor = devNumbers(st.Rdev)
		out.Inode, out.Links = uint64(st.Ino), st.Nlink
	}
	if out.Mode&fs.ModeSymlink != 0 {
		if out.Target, err = f.tree.ReadLink(name); err != nil {
			return image.File{}, err
		}
	}
	return out, nil
}

// devNumbers splits a device number in Linux's encoding.
func devNumbers(rdev uint32) (major, minor uint32) {
	return rdev >> 8 & 0xfff, rdev&0xff | rdev>>12&0xfff00
}

// List implements image.Files.
func (f *files) List(name string) ([]string, error) {
	if err := f.find("list", name); err != nil {
		return nil, err
	}
	if is, err := f.isDir(name); err != nil || !is {
		if err == nil {
			err = fs.ErrNotExist
		}
		return nil, &fs.PathError{Op: "list", Path: name, Err: err}
	}
	entries, err := fs.ReadDir(f.tree, name)
	if err != nil {
		return nil, err
	}
	out := make([]string, 0, len(entries))
	for _, e := range entries {
		if e.Name() != "." && e.Name() != ".." {
			out = append(out, e.Name())
		}
	}
	return out, nil
}

// Open implements image.Files.
func (f *files) Open(name string) (io.ReadCloser, error) {
	fi, err := f.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !fi.Mode.IsRegular() {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	return f.tree.Open(name)
}

// Close implements image.Files.
func (f *files) Close() error { return closeOnce(f.file) }
