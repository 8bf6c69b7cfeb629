package hostbase

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
	"syscall"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/image/erofs"
)

// Options says what to copy. The zero value copies this machine's toolchain.
type Options struct {
	// Root is the directory that serves as the machine's /; "" is "/".
	Root string
	// Exclude replaces DefaultExclude when it is not nil.
	Exclude []string
}

func (o Options) withDefaults() Options {
	if o.Root == "" {
		o.Root = "/"
	}
	if o.Exclude == nil {
		o.Exclude = DefaultExclude()
	}
	return o
}

// Base is the result of Build.
type Base struct {
	Root  *erofs.Node
	Env   map[string]string // environment for its programs
	Files int               // regular files copied
	Bytes int64             // their contents
}

// topDirs are the directories beside /usr that hold programs. On today's systems they are links
// into it.
var topDirs = []string{"bin", "sbin", "lib", "lib32", "lib64", "libx32"}

// Build copies the toolchain into an image and returns its tree. The caller finishes the image.
// Errors: Unsupported when this machine has no usable toolchain, Unavailable when it changed during
// the copy.
func Build(ctx context.Context, w *erofs.Writer, opts Options, meter *image.Meter) (*Base, error) {
	opts = opts.withDefaults()
	b := &builder{opts: opts, rules: newRules(opts.Exclude), w: w, root: erofs.NewDir(0o755), links: map[inode]*erofs.Node{}}
	for _, name := range append([]string{"usr"}, topDirs...) {
		if err := b.entry(ctx, b.root, "/"+name); err != nil {
			return nil, b.fail(err)
		}
	}
	if err := b.etc(ctx); err != nil {
		return nil, b.fail(err)
	}
	if !b.reaches("/bin/sh") {
		return nil, &carrel.Error{Op: "make base template", Kind: carrel.Unsupported,
			Err:  fmt.Errorf("%s has no /bin/sh that every user can read", opts.Root),
			Hint: "this machine's toolchain can't be used: import an image with 'carrel template import' or 'carrel template pull'"}
	}
	b.pruneLinks()
	meter.Stage(image.StageUnpack, b.bytes)
	if err := b.copyAll(ctx, meter); err != nil {
		return nil, b.fail(err)
	}
	meter.Flush()
	if err := b.write(); err != nil {
		return nil, b.fail(err)
	}
	if err := b.locales(); err != nil {
		return nil, b.fail(err)
	}
	return &Base{Root: b.root, Env: b.env(), Files: len(b.jobs), Bytes: b.bytes}, nil
}

func (b *builder) fail(err error) error {
	var ce *carrel.Error
	if errors.As(err, &ce) {
		return err
	}
	kind, hint := carrel.Internal, ""
	switch {
	case errors.Is(err, errChanged):
		kind, hint = carrel.Unavailable, "software is being installed on this machine: try again when that is done"
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		kind, hint = carrel.Exhausted, "free some disk space, or put the cache directory on another disk"
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		kind = carrel.TimedOut
	}
	return &carrel.Error{Op: "make base template", Kind: kind, Err: err, Hint: hint}
}

var errChanged = errors.New("file changed while it was copied")

type inode struct{ dev, ino uint64 }

// job is one file whose contents must still be copied.
type job struct {
	path  string
	inode inode
	data  erofs.Extent
}

type builder struct {
	opts  Options
	rules *rules
	w     *erofs.Writer
	root  *erofs.Node
	links map[inode]*erofs.Node // files with several names
	jobs  []job
	bytes int64
}

func (b *builder) host(p string) string { return filepath.Join(b.opts.Root, p) }

// entry adds the host's file at p to dir, if the rules allow it. p is an absolute path. A file that
// is missing, or vanishes during the copy, is no error.
func (b *builder) entry(ctx context.Context, dir *erofs.Node, p string) error {
	if b.rules.excluded(p) {
		return nil
	}
	info, err := os.Lstat(b.host(p))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Errorf("%s: no owner known", p)
	}
	local := within(p, "/usr/local")
	if local && st.Uid != 0 {
		return nil
	}
	n := &erofs.Node{Mode: info.Mode()}
	n.SetMtime(info.ModTime())
	switch {
	case info.IsDir():
		if !readable(info.Mode()) {
			return nil
		}
		n.Mode = fs.ModeDir | 0o755
		dir.Set(path.Base(p), n)
		return b.children(ctx, n, p)
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := os.Readlink(b.host(p))
		if err != nil || target == "" || !linkOK(path.Dir(p), target) {
			return nil
		}
		n.Mode, n.Target = fs.ModeSymlink|0o777, target
		dir.Set(path.Base(p), n)
		return nil
	case info.Mode().IsRegular():
		return b.file(dir, p, n, st)
	}
	return nil
}

func (b *builder) children(ctx context.Context, n *erofs.Node, p string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	entries, err := os.ReadDir(b.host(p))
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := b.entry(ctx, n, path.Join(p, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// file adds a regular file. Its contents are copied later.
func (b *builder) file(dir *erofs.Node, p string, n *erofs.Node, st *syscall.Stat_t) error {
	name := path.Base(p)
	if !readable(n.Mode) {
		return nil
	}
	if d := path.Dir(p); d == "/usr/local/bin" || d == "/usr/local/sbin" {
		if ok, err := b.localProgram(p); err != nil || !ok {
			return err
		}
	}
	id := inode{uint64(st.Dev), st.Ino}
	if st.Nlink > 1 {
		if first := b.links[id]; first != nil {
			dir.Set(name, first)
			return nil
		}
		b.links[id] = n
	}
	b.tame(n, name, st)
	data, err := b.w.Reserve(st.Size)
	if err != nil {
		return err
	}
	n.Data = data
	b.jobs = append(b.jobs, job{path: p, inode: id, data: data})
	b.bytes += st.Size
	dir.Set(name, n)
	return nil
}

// tame sets a file's owner and mode inside. Only root may own or change the toolchain, and only few
// programs keep their set-id bits.
func (b *builder) tame(n *erofs.Node, name string, st *syscall.Stat_t) {
	keep := n.Mode&(fs.ModeSetuid|fs.ModeSetgid) != 0 && st.Uid == 0 && matches(setIDKept, name)
	n.Mode = n.Mode.Perm()&^0o022 | n.Mode&(fs.ModeSetuid|fs.ModeSetgid)
	if !keep {
		n.Mode = n.Mode.Perm()
		return
	}
	const shadow = 42 // the group of chage and unix_chkpwd
	if n.Mode&fs.ModeSetgid != 0 {
		n.GID = shadow
	}
}

func (b *builder) localProgram(p string) (bool, error) {
	f, err := os.OpenFile(b.host(p), os.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return false, nil
	}
	defer f.Close()
	head := make([]byte, 4)
	n, err := io.ReadFull(f, head)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return false, err
	}
	return localProgram(path.Base(p), head[:n]), nil
}

// copyAll copies the contents, several files at once.
func (b *builder) copyAll(ctx context.Context, meter *image.Meter) error {
	return image.Parallel(ctx, b.jobs, func(j job) error {
		if err := b.copyFile(j); err != nil {
			return fmt.Errorf("%s: %w", j.path, err)
		}
		meter.Add(j.data.Size)
		return nil
	})
}

// copyFile copies one file. It must still be the file that the rules checked.
func (b *builder) copyFile(j job) error {
	f, err := os.OpenFile(b.host(j.path), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return errors.Join(errChanged, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || (inode{uint64(st.Dev), st.Ino}) != j.inode || st.Size != j.data.Size || !readable(info.Mode()) {
		return errChanged
	}
	_, err = b.w.Fill(j.data, f)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return errChanged
	}
	return err
}

// reaches reports whether a path leads to a file of the image. It follows links.
func (b *builder) reaches(p string) bool {
	n := b.root
	rest := strings.Split(strings.Trim(p, "/"), "/")
	at := "/"
	for hops := 0; len(rest) > 0; {
		c := n.Child(rest[0])
		if c == nil {
			return false
		}
		if c.Mode&fs.ModeSymlink == 0 {
			n, at, rest = c, path.Join(at, rest[0]), rest[1:]
			continue
		}
		if hops++; hops > 40 {
			return false
		}
		target := c.Target
		if !path.IsAbs(target) {
			target = path.Join(at, target)
		}
		full := path.Join(append([]string{target}, rest[1:]...)...)
		n, at, rest = b.root, "/", strings.Split(strings.Trim(full, "/"), "/")
		if full == "/" {
			return true
		}
	}
	return true
}

// pruneLinks removes commands whose link leads to a program that was left out. A shell then says
// "not found", which is the truth.
func (b *builder) pruneLinks() {
	for again := true; again; {
		again = false
		for _, dir := range []string{"/etc/alternatives", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin"} {
			d := b.root.Lookup(dir)
			if d == nil || !d.IsDir() {
				continue
			}
			for _, name := range d.Names() {
				if d.Child(name).Mode&fs.ModeSymlink != 0 && !b.reaches(path.Join(dir, name)) {
					d.Remove(name).Release(b.w.Discard)
					again = true
				}
			}
		}
	}
}
