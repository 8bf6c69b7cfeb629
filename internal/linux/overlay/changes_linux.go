package overlay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
)

// maxChanges bounds the memory that a program can make the user's process hold.
const maxChanges = 1 << 20

// maxPath is the longest path that the kernel takes in one call.
const maxPath = unix.PathMax - 1

// Changes lists the differences in lexical order, element by element. It leaves out files that were
// rewritten with the same content and mode. It lists special files with their type; Apply leaves
// them out.
func Changes(ctx context.Context, lower, upper string, _ Options) (_ []Change, err error) {
	w := &walk{ctx: ctx}
	if w.lower, err = openTree(lower, false); err != nil {
		return nil, err
	}
	defer w.lower.Close()
	if w.upper, err = openTree(upper, true); err != nil {
		return nil, err
	}
	defer w.upper.Close()
	if err := w.merged(".", true, false); err != nil {
		return nil, err
	}
	return w.out, nil
}

// walk compares two trees.
type walk struct {
	ctx          context.Context
	lower, upper *tree
	out          []Change
}

// add lists one change.
func (w *walk) add(p string, k Kind, n *node, mode uint32) error {
	if len(w.out) >= maxChanges {
		return &carrel.Error{Op: "list changes", Kind: carrel.Exhausted, Err: fmt.Errorf("more than %d changes", maxChanges)}
	}
	c := Change{Path: p, Kind: k, Mode: fileMode(mode)}
	if n.isRegular() {
		c.Size = n.Size
	}
	w.out = append(w.out, c)
	return nil
}

// merged lists a directory of the upper layer. below says that the lower one is a directory too.
// The lower directory shows through unless this directory, or one above it (hides), is opaque.
func (w *walk) merged(dir string, below, hides bool) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	names, err := w.upper.list(dir)
	if err != nil {
		return err
	}
	hidden := map[string]bool{} // names that an opaque directory hides
	if below && dir != "." {
		opaque, err := w.upper.opaque(dir)
		if err != nil {
			return err
		}
		if hides = hides || opaque; hides {
			low, err := w.lower.list(dir)
			if err != nil {
				return err
			}
			for _, name := range low {
				if _, found := slices.BinarySearch(names, name); !found {
					hidden[name] = true
				}
			}
			for name := range hidden {
				names = append(names, name)
			}
			slices.Sort(names)
		}
	}
	for _, name := range names {
		p := path.Join(dir, name)
		if len(p) > maxPath {
			return &carrel.Error{Op: "list changes", Kind: carrel.Invalid, Err: fmt.Errorf("a path of more than %d bytes: %s…", maxPath, quotePath(p[:80]))}
		}
		if err := w.entry(p, below, hides, hidden[name]); err != nil {
			return err
		}
	}
	return nil
}

// entry compares one path.
func (w *walk) entry(p string, below, hides, gone bool) error {
	var low *node
	var err error
	if below {
		// A mount in the lower directory is not part of it, and an overlay does not show it.
		if low, err = w.lower.stat(p); err != nil && !errors.Is(err, unix.EXDEV) {
			return err
		}
	}
	var up *node
	if !gone {
		if up, err = w.upper.stat(p); err != nil {
			return err
		}
		if up == nil {
			return fmt.Errorf("%s went away: is the layer still mounted?", path.Join(w.upper.name, p))
		}
		if gone, err = w.upper.whiteout(p, up); err != nil {
			return err
		}
	}
	if gone {
		return w.removed(p, low)
	}
	return w.present(p, up, low, hides)
}

// removed lists a removed file, with everything below it.
func (w *walk) removed(p string, low *node) error {
	if low == nil {
		return nil
	}
	if err := w.add(p, Removed, low, low.Mode); err != nil || !low.isDir() {
		return err
	}
	return w.removedBelow(p)
}

// removedBelow lists the former content of a removed directory.
func (w *walk) removedBelow(dir string) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	names, err := w.lower.list(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		p := path.Join(dir, name)
		low, err := w.lower.stat(p)
		if errors.Is(err, unix.EXDEV) {
			continue
		}
		if err != nil {
			return err
		}
		if err := w.removed(p, low); err != nil {
			return err
		}
	}
	return nil
}

// present compares the upper layer's file at p with the lower one.
func (w *walk) present(p string, up, low *node, hides bool) error {
	mode := newMode(up, low)
	kind := Kind("")
	switch {
	case low == nil:
		kind = Added
	case low.typ() != up.typ():
		kind = Modified
	default:
		same, err := w.same(p, up, low)
		if err != nil {
			return err
		}
		if !same {
			kind = Modified
		} else if mode != low.Mode && !up.isLink() {
			kind = Mode
		}
	}
	if kind != "" {
		if err := w.add(p, kind, up, mode); err != nil {
			return err
		}
	}
	if low.isDir() && !up.isDir() {
		return w.removedBelow(p)
	}
	if up.isDir() {
		return w.merged(p, low.isDir(), hides)
	}
	return nil
}

// same compares the content of two nodes of one type.
func (w *walk) same(p string, up, low *node) (bool, error) {
	switch {
	case up.isLink():
		a, err := w.upper.link(p)
		if err != nil {
			return false, err
		}
		b, err := w.lower.link(p)
		return a == b, err
	case up.isRegular():
		return sameFile(w.ctx, w.upper, w.lower, p, up.Size == low.Size)
	case up.isDir():
		return true, nil
	}
	return up.Rdev == low.Rdev, nil
}

// sameFile compares two regular files.
func sameFile(ctx context.Context, upper, lower *tree, p string, sameSize bool) (bool, error) {
	a, err := upper.file(p)
	if err != nil {
		return false, err
	}
	defer a.Close()
	if err := whole(a); err != nil || !sameSize {
		return false, err
	}
	b, err := lower.file(p)
	if errors.Is(err, unix.EACCES) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer b.Close()
	bufA, bufB := make([]byte, 64<<10), make([]byte, 64<<10)
	for {
		n, errA := io.ReadFull(a, bufA)
		m, errB := io.ReadFull(b, bufB)
		if n != m || !bytes.Equal(bufA[:n], bufB[:m]) {
			return false, nil
		}
		for _, err := range []error{errA, errB, ctx.Err()} {
			if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
				return false, err
			}
		}
		if errA != nil {
			return true, nil
		}
	}
}
