package cli

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

	"github.com/carrel-dev/carrel"
	"golang.org/x/sync/errgroup"
)

// maxDepth bounds how deep a directory tree is copied out.
const maxDepth = 1000

// download copies a file or directory out of the sandbox. The names come from
// the sandbox and are not trusted: everything is written through an os.Root,
// which nothing can leave.
func (j *copyJob) download(ctx context.Context, src, dst string) error {
	info, err := j.files.Stat(ctx, src)
	if err != nil {
		return err
	}
	if dst == "-" {
		return j.downloadTo(ctx, src, j.app.out)
	}
	dir, base := filepath.Dir(dst), filepath.Base(dst)
	if there, err := os.Stat(dst); (err == nil && there.IsDir()) || strings.HasSuffix(dst, "/") {
		dir, base = dst, path.Base(path.Clean(info.Path))
	}
	if base == "/" || base == "." || base == ".." {
		return usage(fmt.Errorf("%q names no file to write", dst))
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return usage(err)
	}
	defer root.Close()
	if !info.Mode.IsDir() {
		return j.downloadFile(ctx, root, info, base)
	}
	return j.downloadTree(ctx, root, info.Path, base)
}

func (j *copyJob) downloadTo(ctx context.Context, src string, w io.Writer) error {
	r, err := j.files.Read(ctx, src)
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = io.Copy(w, counted{r, j})
	j.count.Add(1)
	return err
}

func (j *copyJob) downloadFile(ctx context.Context, root *os.Root, info carrel.FileInfo, name string) (err error) {
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644|info.Mode.Perm()&0o111)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return j.downloadTo(ctx, info.Path, f)
}

// downloadTree copies one directory level after another.
func (j *copyJob) downloadTree(ctx context.Context, root *os.Root, src, dst string) error {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(copyWorkers)
	err := j.walk(gctx, root, src, dst, 0, g)
	return errors.Join(g.Wait(), err)
}

func (j *copyJob) walk(ctx context.Context, root *os.Root, src, dst string, depth int, g *errgroup.Group) error {
	if depth > maxDepth {
		return &carrel.Error{Op: "copy", Kind: carrel.Invalid, Field: src, Err: fmt.Errorf("deeper than %d directories", maxDepth)}
	}
	if err := root.Mkdir(dst, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	entries, err := j.files.List(ctx, src, 1)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name == "" || e.Name == "." || e.Name == ".." || strings.ContainsAny(e.Name, "/\x00") {
			return &carrel.Error{Op: "copy", Kind: carrel.Invalid, Field: src, Err: fmt.Errorf("the sandbox lists an impossible name %q", e.Name)}
		}
		target := filepath.Join(dst, e.Name)
		switch {
		case e.Target != "" || e.Mode&fs.ModeSymlink != 0:
			j.downloadLink(root, e, target)
		case e.Mode.IsDir():
			if err := j.walk(ctx, root, path.Join(src, e.Name), target, depth+1, g); err != nil {
				return err
			}
		case e.Mode.IsRegular():
			g.Go(func() error { return j.downloadFile(ctx, root, e, target) })
		}
		j.bar.update(carrel.Progress{Stage: "download", Done: j.bytes.Load()})
	}
	return nil
}

// downloadLink makes a symbolic link that stays inside the copy, and names one
// that would not.
func (j *copyJob) downloadLink(root *os.Root, e carrel.FileInfo, target string) {
	depth := strings.Count(filepath.ToSlash(target), "/")
	clean := path.Clean(e.Target)
	if path.IsAbs(clean) || strings.Count(clean, "../") > depth || (strings.HasPrefix(clean, "..") && depth == 0) {
		fmt.Fprintf(j.app.err, "carrel: left out %s: it links to %s, outside the copy\n", printable(target), printable(e.Target))
		return
	}
	_ = root.Remove(target)
	if err := root.Symlink(e.Target, target); err != nil {
		fmt.Fprintf(j.app.err, "carrel: left out %s: %v\n", printable(target), err)
		return
	}
	j.count.Add(1)
}
