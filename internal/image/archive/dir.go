package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"syscall"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/image/erofs"
)

// dirError is an error about the directory that is being imported.
func dirError(dir string, err error) error {
	kind := carrel.Invalid
	if errors.Is(err, fs.ErrPermission) {
		kind = carrel.Forbidden
	}
	return &carrel.Error{Op: op, Kind: kind, Field: "dir", Err: err}
}

type inode struct{ dev, ino uint64 }

// source is a file of the host whose contents must still be copied.
type source struct {
	path string
	id   inode
	data erofs.Extent
}

// dirWalk is one import of a directory.
type dirWalk struct {
	t     *Tree
	root  *os.Root
	dev   uint64 // of the directory itself: other mounts in it are not entered
	links map[inode]*erofs.Node
	files []source
}

// Dir adds a whole directory of this machine to the tree, unchanged. It stays on one file system.
// It opens everything below root, so a link that somebody makes during the import leads nowhere
// else. If a file changes while it is copied, the error has kind Conflict.
func (t *Tree) Dir(ctx context.Context, root *os.Root) error {
	info, err := root.Lstat(".")
	if err != nil {
		return dirError(root.Name(), err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return dirError(root.Name(), errors.New("no owner known"))
	}
	w := &dirWalk{t: t, root: root, dev: uint64(st.Dev), links: map[inode]*erofs.Node{}}
	copyMeta(t.Root, info, st)
	if err := w.children(ctx, t.Root, "."); err != nil {
		return err
	}
	t.meter.Stage(image.StageUnpack, t.bytes)
	return image.Parallel(ctx, w.files, w.copy)
}

func copyMeta(n *erofs.Node, info fs.FileInfo, st *syscall.Stat_t) {
	n.Mode, n.UID, n.GID = info.Mode(), st.Uid, st.Gid
	n.SetMtime(info.ModTime())
}

func (w *dirWalk) children(ctx context.Context, dir *erofs.Node, p string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	f, err := w.root.Open(p)
	if err != nil {
		return dirError(p, err)
	}
	entries, err := f.ReadDir(-1)
	_ = f.Close()
	if err != nil {
		return dirError(p, err)
	}
	for _, e := range entries {
		if err := w.entry(ctx, dir, path.Join(p, e.Name()), e.Name()); err != nil {
			return err
		}
	}
	return nil
}

func (w *dirWalk) entry(ctx context.Context, dir *erofs.Node, p, name string) error {
	info, err := w.root.Lstat(p)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it has been removed
	}
	if err != nil {
		return dirError(p, err)
	}
	if err := w.t.count(); err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return dirError(p, errors.New("no owner known"))
	}
	n := &erofs.Node{}
	copyMeta(n, info, st)
	id := inode{uint64(st.Dev), st.Ino}
	if st.Nlink > 1 && !info.IsDir() {
		if first := w.links[id]; first != nil {
			dir.Set(name, first)
			return nil
		}
		w.links[id] = n
	}
	switch mode := info.Mode(); {
	case mode.IsDir():
		dir.Set(name, n)
		if uint64(st.Dev) != w.dev {
			return nil
		}
		return w.children(ctx, n, p)
	case mode&fs.ModeSymlink != 0:
		if n.Target, err = w.root.Readlink(p); err != nil {
			return dirError(p, err)
		}
		n.Mode = fs.ModeSymlink | 0o777
	case mode.IsRegular():
		if n.Data, err = w.t.reserve(st.Size); err != nil {
			return err
		}
		w.files = append(w.files, source{p, id, n.Data})
	case mode&fs.ModeNamedPipe != 0:
	default:
		delete(w.links, id)
		w.t.dropped.Devices++
		return nil
	}
	dir.Set(name, n)
	return nil
}

// copy copies one file. It must still be the file that the walk saw.
func (w *dirWalk) copy(s source) error {
	f, err := w.root.OpenFile(s.path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return dirError(s.path, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	same := ok && (inode{uint64(st.Dev), st.Ino}) == s.id && st.Size == s.data.Size
	if same {
		_, err = w.t.w.Fill(s.data, f)
	}
	if !same || errors.Is(err, io.ErrUnexpectedEOF) {
		return &carrel.Error{Op: op, Kind: carrel.Conflict, Field: "dir",
			Err: fmt.Errorf("%s changed while it was copied", s.path), Hint: "try again when nothing writes to the directory"}
	}
	w.t.meter.Add(s.data.Size)
	return err
}
