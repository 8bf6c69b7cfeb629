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

// maxDepth bounds the depth of a directory tree that is copied out.
const maxDepth = 1000

// download copies a file or directory out of the sandbox. The names come from the sandbox and are
// not trusted: everything is written through an os.Root, and no path can leave that.
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
		dir, base = dst, baseName(src, info.Path)
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
	if err := makeDir(root, base); err != nil {
		return err
	}
	top, err := root.OpenRoot(base) // so that nothing next to the copy is touched either
	if err != nil {
		return err
	}
	defer top.Close()
	if j.hasTar(ctx) {
		return j.downloadTar(ctx, top, info.Path)
	}
	return j.downloadTree(ctx, top, info.Path)
}

// baseName returns the name for the copy: the caller's own text, or the sandbox's answer if that
// text is no name ("", ".", "..", "/").
func baseName(src, there string) string {
	switch base := path.Base(path.Clean(src)); base {
	case ".", "..", "/":
		return path.Base(path.Clean(there))
	default:
		return base
	}
}

// makeDir makes a directory, or uses an existing one. It refuses a link to a directory, because the
// files would be written elsewhere.
func makeDir(root *os.Root, name string) error { return makeDirMode(root, name, 0o755) }

// makeDirMode is makeDir with a mode; the umask still applies.
func makeDirMode(root *os.Root, name string, mode fs.FileMode) error {
	err := root.Mkdir(name, mode)
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	if info, lerr := root.Lstat(name); lerr != nil || info.IsDir() {
		return lerr
	}
	return err
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

// downloadWhole copies one file of a directory, completely or not at all.
func (j *copyJob) downloadWhole(ctx context.Context, root *os.Root, info carrel.FileInfo, name string) error {
	r, err := j.files.Read(ctx, info.Path)
	if err != nil {
		return err
	}
	defer r.Close()
	if err := writeWhole(root, name, info.Mode.Perm(), counted{r, j}); err != nil {
		return err
	}
	j.count.Add(1)
	return nil
}

// leftOut reports a file that was not copied, and the reason.
func (j *copyJob) leftOut(name, reason string) {
	fmt.Fprintf(j.app.err, "carrel: left out %s: %s\n", printable(filepath.ToSlash(name)), printable(reason))
}

// downloadTree copies the contents of a directory into root, one level after another.
func (j *copyJob) downloadTree(ctx context.Context, root *os.Root, src string) error {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(copyWorkers)
	err := j.walk(gctx, root, src, "", 0, g)
	if cause := g.Wait(); cause != nil {
		return cause // it is what cut the walk short
	}
	return err
}

func (j *copyJob) walk(ctx context.Context, root *os.Root, src, dst string, depth int, g *errgroup.Group) error {
	if depth > maxDepth {
		return &carrel.Error{Op: "copy", Kind: carrel.Invalid, Field: src, Err: fmt.Errorf("deeper than %d directories", maxDepth)}
	}
	if dst != "" {
		if err := makeDir(root, dst); err != nil {
			return err
		}
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
			j.downloadLink(ctx, root, strings.TrimSuffix(src, "/"+filepath.ToSlash(dst)), e, target)
		case e.Mode.IsDir():
			err := j.walk(ctx, root, path.Join(src, e.Name), target, depth+1, g)
			if carrel.KindOf(err) == carrel.Invalid { // stop trusting a sandbox that lies
				return err
			}
			if err := j.goOn(ctx, target, err); err != nil {
				return err
			}
		case e.Mode.IsRegular():
			g.Go(func() error { return j.goOn(ctx, target, j.downloadWhole(ctx, root, e, target)) })
		default:
			j.leftOut(target, "it is no file, directory or link")
		}
		j.bar.update(carrel.Progress{Stage: "download", Done: j.bytes.Load()})
	}
	return nil
}

// downloadLink copies a symbolic link from the listing of top.
func (j *copyJob) downloadLink(ctx context.Context, root *os.Root, top string, e carrel.FileInfo, target string) {
	link := e.Target
	if link == e.Path { // the guest's answer for a broken link
		link = j.readLink(ctx, e.Path)
	}
	if there, ok := strings.CutPrefix(link, top+"/"); ok { // the guest returns absolute paths
		if rel, err := filepath.Rel(filepath.Dir(target), there); err == nil {
			link = rel
		}
	}
	j.makeLink(root, target, link)
}

// makeLink makes a symbolic link that stays inside the copy. It reports a link that would not.
func (j *copyJob) makeLink(root *os.Root, target, link string) {
	if !staysInside(filepath.ToSlash(target), link) {
		j.leftOut(target, "it links to "+link+", outside the copy")
		return
	}
	_ = root.Remove(target)
	if err := root.Symlink(link, target); err != nil {
		j.leftOut(target, err.Error())
		return
	}
	j.count.Add(1)
}

// readLink returns the text of a link in the sandbox, or "".
func (j *copyJob) readLink(ctx context.Context, name string) string {
	res, err := j.comp.Run(ctx, carrel.Command{Args: []string{"readlink", "-n", "--", name}, User: j.user})
	if err != nil || res.ExitCode != 0 {
		return ""
	}
	return string(res.Stdout)
}

// staysInside reports whether a link at target, a path in the copy, leads to a path in the copy. It
// never trusts a ".." after a name: the name may be another link.
func staysInside(target, link string) bool {
	if link == "" || path.IsAbs(link) {
		return false
	}
	depth, down := strings.Count(target, "/"), false
	for part := range strings.SplitSeq(link, "/") {
		switch part {
		case "", ".":
		case "..":
			if depth--; down || depth < 0 {
				return false
			}
		default:
			down = true
		}
	}
	return true
}
