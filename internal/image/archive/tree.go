package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/image/erofs"
)

// Limits bounds the content of one template. All layers count together.
type Limits struct {
	MaxBytes   int64 // contents of files; 0 is 64 GiB
	MaxEntries int64 // files, directories and links; 0 is 2,000,000
}

// WithDefaults returns l with its zero fields set.
func (l Limits) WithDefaults() Limits {
	if l.MaxBytes <= 0 {
		l.MaxBytes = 64 << 30
	}
	if l.MaxEntries <= 0 {
		l.MaxEntries = 2_000_000
	}
	return l
}

const (
	maxHops  = 40   // links on the way to one entry, as in Linux
	maxDepth = 1024 // directories above one entry
	maxPath  = 4096
)

// Tree is a template that is being built. Only one goroutine uses it.
type Tree struct {
	Root *erofs.Node
	w    *erofs.Writer

	limits  Limits
	meter   *image.Meter
	bytes   int64
	entries int64
	dropped Dropped
	// touched holds the names that the present layer has added, because its whiteouts concern only
	// lower layers. It is nil outside of layers.
	touched map[place]struct{}
	stargz  bool // the present layer ends with a table of contents
	// late holds the files whose contents come later, by the place of their contents. It is nil
	// unless the image is made by Importer.Late.
	late map[int64]*lateFile
}

// place is a name in a directory.
type place struct {
	dir  *erofs.Node
	name string
}

// Dropped counts the entries that were left out.
type Dropped struct {
	Devices int // device nodes and sockets
	Xattrs  int // entries that had extended attributes
}

// NewTree returns an empty tree. Contents go to w. meter counts the bytes of files; it may be nil.
func NewTree(w *erofs.Writer, limits Limits, meter *image.Meter) *Tree {
	return &Tree{Root: erofs.NewDir(0o755), w: w, limits: limits.WithDefaults(), meter: meter}
}

// Dropped returns the number of entries left out so far.
func (t *Tree) Dropped() Dropped { return t.dropped }

// splitName checks an entry's name and splits it. "." gives no parts.
func splitName(name string) ([]string, error) {
	switch {
	case len(name) > maxPath:
		return nil, fmt.Errorf("a path of %d bytes", len(name))
	case strings.HasPrefix(name, "/"):
		return nil, errors.New("an absolute path")
	case strings.ContainsRune(name, 0):
		return nil, errors.New("a path with a NUL byte")
	}
	var parts []string
	for _, p := range strings.Split(name, "/") {
		switch {
		case p == "" || p == ".":
		case p == "..":
			return nil, errors.New(`a path with ".."`)
		case len(p) > erofs.MaxName:
			return nil, fmt.Errorf("a name of %d bytes", len(p))
		default:
			parts = append(parts, p)
		}
	}
	if len(parts) == 0 && name != "." && name != "./" && strings.Trim(name, "./") != "" {
		return nil, errors.New("no path")
	}
	return parts, nil
}

// dir finds the directory that parts lead to. It follows links inside the tree. If create is set it
// makes missing directories; otherwise it returns nil for them.
func (t *Tree) dir(parts []string, create bool) (*erofs.Node, error) {
	stack := []*erofs.Node{t.Root}
	todo := append([]string(nil), parts...)
	for hops := 0; len(todo) > 0; {
		name := todo[0]
		todo = todo[1:]
		here := stack[len(stack)-1]
		if name == ".." { // from a link's target; above the root is the root
			stack = stack[:max(1, len(stack)-1)]
			continue
		}
		c := here.Child(name)
		switch {
		case c == nil && !create:
			return nil, nil
		case c == nil:
			if err := t.count(); err != nil {
				return nil, err
			}
			c = erofs.NewDir(0o755)
			t.put(here, name, c)
		case c.Mode&fs.ModeSymlink != 0:
			if hops++; hops > maxHops {
				return nil, errors.New("too many links on the way")
			}
			if path.IsAbs(c.Target) {
				stack = stack[:1]
			}
			target := strings.FieldsFunc(c.Target, func(r rune) bool { return r == '/' })
			target = removeDots(target)
			todo = append(target, todo...)
			continue
		case !c.IsDir():
			return nil, fmt.Errorf("%q on the way is no directory", name)
		}
		if stack = append(stack, c); len(stack) > maxDepth {
			return nil, fmt.Errorf("more than %d directories deep", maxDepth)
		}
	}
	return stack[len(stack)-1], nil
}

func removeDots(parts []string) []string {
	out := parts[:0]
	for _, p := range parts {
		if p != "." {
			out = append(out, p)
		}
	}
	return out
}

// count counts one more entry.
func (t *Tree) count() error {
	if t.entries++; t.entries > t.limits.MaxEntries {
		return exhausted("MaxEntries", t.limits.MaxEntries, "entries")
	}
	return nil
}

// reserve counts size bytes of contents and reserves their place.
func (t *Tree) reserve(size int64) (erofs.Extent, error) {
	if size < 0 {
		return erofs.Extent{}, errors.New("a negative size")
	}
	if size > t.limits.MaxBytes-t.bytes {
		return erofs.Extent{}, exhausted("MaxBytes", t.limits.MaxBytes, "bytes")
	}
	t.bytes += size
	return t.w.Reserve(size)
}

// put adds n to a directory under name. If both n and the old node are directories, the old
// children stay.
func (t *Tree) put(dir *erofs.Node, name string, n *erofs.Node) {
	if t.touched != nil {
		t.touched[place{dir, name}] = struct{}{}
	}
	if old := dir.Child(name); old != nil && old.IsDir() && n.IsDir() {
		old.Mode, old.UID, old.GID = n.Mode, n.UID, n.GID
		old.SetMtime(n.Mtime())
		return
	}
	dir.Set(name, n).Release(t.w.Discard)
}

// hide removes the files of lower layers under a name of dir, and keeps those of this layer.
func (t *Tree) hide(dir *erofs.Node, name string) {
	n := dir.Child(name)
	if n == nil {
		return
	}
	if t.isOurs(dir, name) || n.IsDir() && t.holdsOurs(n) {
		if n.IsDir() {
			t.hideChildren(n)
		}
		return
	}
	dir.Remove(name).Release(t.w.Discard)
}

// hideChildren carries out an opaque mark: it hides all children of dir.
func (t *Tree) hideChildren(dir *erofs.Node) {
	for _, name := range dir.Names() {
		t.hide(dir, name)
	}
}

// isOurs reports whether this layer added a name.
func (t *Tree) isOurs(dir *erofs.Node, name string) bool {
	_, ok := t.touched[place{dir, name}]
	return ok
}

// holdsOurs reports whether this layer added anything below dir.
func (t *Tree) holdsOurs(dir *erofs.Node) bool {
	for _, name := range dir.Names() {
		if c := dir.Child(name); t.isOurs(dir, name) || c.IsDir() && t.holdsOurs(c) {
			return true
		}
	}
	return false
}

// find returns the node at a path, or nil. It follows links.
func (t *Tree) find(name string) *erofs.Node {
	parts := removeDots(strings.FieldsFunc(name, func(r rune) bool { return r == '/' }))
	for range maxHops {
		if len(parts) == 0 {
			return t.Root
		}
		dir, err := t.dir(parts[:len(parts)-1], false)
		if err != nil || dir == nil {
			return nil
		}
		n := dir.Child(parts[len(parts)-1])
		if n == nil || n.Mode&fs.ModeSymlink == 0 {
			return n
		}
		target := removeDots(strings.FieldsFunc(n.Target, func(r rune) bool { return r == '/' }))
		if path.IsAbs(n.Target) {
			parts = target
		} else {
			parts = append(append([]string(nil), parts[:len(parts)-1]...), target...)
		}
	}
	return nil
}

// open reads back a regular file of the tree.
func (t *Tree) open(name string) (*io.SectionReader, error) {
	n := t.find(name)
	if n == nil || !n.Mode.IsRegular() {
		return nil, fmt.Errorf("%s: %w", name, fs.ErrNotExist)
	}
	if err := t.fetchLate(n.Data); err != nil {
		return nil, err
	}
	return t.w.Reader(n.Data)
}

// readSmall reads a file of at most limit bytes.
func (t *Tree) readSmall(name string, limit int64) ([]byte, error) {
	r, err := t.open(name)
	if err != nil {
		return nil, err
	}
	return readAll(name, r, limit)
}

func readAll(name string, r io.Reader, limit int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > limit {
		return nil, invalid("%s is larger than %d bytes", name, limit)
	}
	return b, nil
}

// ctxReader is a stream that fails when ctx has ended.
type ctxReader struct {
	ctx context.Context
	r   io.Reader
}

func (c ctxReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, sourceError{err}
	}
	n, err := c.r.Read(p)
	if err != nil && err != io.EOF {
		err = sourceError{err}
	}
	return n, err
}

// countReader counts the bytes of a stream and fails when they exceed a limit.
type countReader struct {
	r        io.Reader
	n, limit int64
}

func (c *countReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	if c.n += int64(n); c.n > c.limit {
		return n, exhausted("MaxBytes", c.limit, "bytes, unpacked")
	}
	return n, err
}
