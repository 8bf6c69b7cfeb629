package filediff

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/guest"
	"github.com/carrel-dev/carrel/internal/image"
)

// mostChanges bounds the number of changes in an answer.
const mostChanges = 200_000

// comparison walks two layers and their root image side by side. It does not look at the image
// where neither layer has anything. So a comparison costs as much as the layers hold, not as the
// image holds.
type comparison struct {
	ctx  context.Context
	base image.Files // nil if the image's files are not known
	out  []carrel.FileChange
}

// side is one snapshot's view of a place.
type side struct {
	n    *node // nil if its layer has nothing there
	seen bool  // the image's is not hidden
}

// Compare returns the differences of b from a, sorted by path.
func Compare(ctx context.Context, base image.Files, a, b *Layer) ([]carrel.FileChange, error) {
	c := &comparison{ctx: ctx, base: base}
	if _, err := c.walk(".", side{&a.root, true}, side{&b.root, true}); err != nil {
		return nil, err
	}
	// The guest's own files about its identity and its restores are not a change by anybody.
	for _, ours := range []string{path.Dir(guest.GenerationFile), guest.AnnounceDir} {
		c.out = slices.DeleteFunc(c.out, func(x carrel.FileChange) bool { return x.Path == ours || strings.HasPrefix(x.Path, ours+"/") })
	}
	slices.SortFunc(c.out, func(x, y carrel.FileChange) int { return strings.Compare(x.Path, y.Path) })
	return c.out, nil
}

// walk compares one place and everything below it. told says that it found a change.
func (c *comparison) walk(name string, a, b side) (told bool, err error) {
	if a.n == nil && b.n == nil && a.seen == b.seen {
		return false, nil
	}
	if c.ctx.Err() != nil {
		return false, &carrel.Error{Kind: carrel.TimedOut, Err: context.Cause(c.ctx)}
	}
	before, err := c.look(name, a)
	if err != nil {
		return false, err
	}
	after, err := c.look(name, b)
	if err != nil {
		return false, err
	}
	below := len(c.out)
	if err := c.children(name, a.below(before), b.below(after)); err != nil {
		return false, err
	}
	told = len(c.out) > below
	change, err := c.judge(name, a, b, before, after, told)
	if err != nil || change == nil {
		return told, err
	}
	if len(c.out) >= mostChanges {
		return false, tooMany("more than %d files are different", mostChanges)
	}
	c.out = append(c.out, *change)
	return true, nil
}

// look returns a side's file at a place, or nil if there is none.
func (c *comparison) look(name string, s side) (*entry, error) {
	switch {
	case s.n != nil && s.n.entry != nil:
		if s.n.entry.gone {
			return nil, nil
		}
		return s.n.entry, nil
	case s.seen && c.base != nil:
		e, err := c.lookBase(name)
		if e != nil || err != nil {
			return e, err
		}
	}
	if s.n != nil && len(s.n.kids) > 0 { // the stream had no entry for this directory
		return &entry{mode: fs.ModeDir | 0o755}, nil
	}
	return nil, nil
}

// lookBase returns the image's file at a place, or nil if there is none.
func (c *comparison) lookBase(name string) (*entry, error) {
	f, err := c.base.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, &carrel.Error{Kind: carrel.Internal, Err: fmt.Errorf("read the template: %w", err)}
	}
	e := &entry{mode: f.Mode, uid: int(f.UID), gid: int(f.GID), modified: f.Modified, target: f.Target, major: int64(f.Major), minor: int64(f.Minor)}
	if f.Mode.IsRegular() {
		e.size = f.Size
	}
	return e, nil
}

// below is the side for the contents of a directory. e is the side's entry for that directory.
func (s side) below(e *entry) side {
	switch {
	case e == nil && !s.unknown() || e != nil && !e.mode.IsDir():
		return side{}
	case s.n == nil:
		return s
	}
	return side{s.n, s.seen && !s.n.entry.hides()}
}

// unknown reports whether only the image could tell which file is there.
func (s side) unknown() bool { return s.seen && (s.n == nil || s.n.entry == nil) }

// children compares the contents of a directory. It takes the names in the layers. It also takes
// the names in the image if only one side sees the image there.
func (c *comparison) children(name string, a, b side) error {
	names := map[string]bool{}
	for _, s := range []side{a, b} {
		if s.n != nil {
			for k := range s.n.kids {
				names[k] = true
			}
		}
	}
	if a.seen != b.seen && c.base != nil {
		list, err := c.base.List(name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return &carrel.Error{Kind: carrel.Internal, Err: fmt.Errorf("read the template: %w", err)}
		}
		for _, k := range list {
			names[k] = true
		}
	}
	for _, k := range slices.Sorted(maps.Keys(names)) {
		if _, err := c.walk(path.Join(name, k), a.child(k), b.child(k)); err != nil {
			return err
		}
	}
	return nil
}

// child is the side at a name in a directory.
func (s side) child(name string) side {
	if s.n != nil {
		return side{s.n.kids[name], s.seen}
	}
	return side{nil, s.seen}
}

// judge compares two files of one name. told says that a file below it differs.
func (c *comparison) judge(name string, a, b side, before, after *entry, told bool) (*carrel.FileChange, error) {
	change := &carrel.FileChange{Path: path.Join("/", name)}
	switch {
	case before == nil && after == nil:
		// Without an image: a removed file must have been there.
		if c.base != nil || a.unknown() == b.unknown() {
			return nil, nil
		}
		if change.Kind = carrel.ChangeAdded; a.unknown() {
			change.Kind = carrel.ChangeRemoved
		}
		return change, nil
	case before == nil || after == nil:
		// Without an image: a parent directory of a change is no change.
		if c.base == nil && (a.unknown() || b.unknown()) && (told || name == ".") {
			return nil, nil
		}
		if change.Kind = carrel.ChangeAdded; after == nil {
			change.Kind = carrel.ChangeRemoved
		}
	default:
		kind, err := c.kind(name, before, after)
		if err != nil || kind == "" {
			return nil, err
		}
		change.Kind = kind
	}
	change.Before, change.After = before.info(change.Path), after.info(change.Path)
	return change, nil
}

// kind says how two files differ; "" means not at all.
func (c *comparison) kind(name string, x, y *entry) (carrel.ChangeKind, error) {
	if x == y {
		return "", nil
	}
	if x.mode.Type() != y.mode.Type() || x.size != y.size || x.target != y.target || x.mode&fs.ModeDevice != 0 && (x.major != y.major || x.minor != y.minor) {
		return carrel.ChangeModified, nil
	}
	if x.mode.IsRegular() {
		same, err := c.sameContent(name, x, y)
		if err != nil {
			return "", err
		}
		if !same {
			return carrel.ChangeModified, nil
		}
	}
	if x.mode&fs.ModeSymlink == 0 && x.mode != y.mode || x.uid != y.uid || x.gid != y.gid {
		return carrel.ChangeMode, nil
	}
	return "", nil
}

// sameContent compares two regular files of one size. For a file that was too large to read, the
// modification time decides.
func (c *comparison) sameContent(name string, x, y *entry) (bool, error) {
	for _, e := range []*entry{x, y} {
		if e.summed || e.layered {
			continue
		}
		if err := c.sumBase(name, e); err != nil {
			return false, err
		}
	}
	if !x.summed || !y.summed {
		return x.modified.Equal(y.modified), nil
	}
	return x.sum == y.sum, nil
}

// sumBase reads and hashes a file of the image.
func (c *comparison) sumBase(name string, e *entry) error {
	r, err := c.base.Open(name)
	if err != nil {
		return &carrel.Error{Kind: carrel.Internal, Err: fmt.Errorf("read the template: %w", err)}
	}
	defer func() { _ = r.Close() }() // it was only read
	h := sha256.New()
	if _, err := io.Copy(h, ctxReader{c.ctx, r}); err != nil {
		return &carrel.Error{Kind: carrel.Internal, Err: fmt.Errorf("read the template's %.80q: %w", name, err)}
	}
	h.Sum(e.sum[:0])
	e.summed = true
	return nil
}

// info converts an entry for callers. Owners are numbers, because their names exist only inside the
// sandbox.
func (e *entry) info(name string) *carrel.FileInfo {
	if e == nil {
		return nil
	}
	return &carrel.FileInfo{Name: path.Base(name), Path: name, Size: e.size, Mode: e.mode, Target: e.target,
		Owner: strconv.Itoa(e.uid), Group: strconv.Itoa(e.gid), Modified: e.modified.UTC()}
}
