package archive

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"os"
	"strings"

	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/image/erofs"
)

// Compose makes an image of another image and the changes of a sandbox that was made from it.
// changes is a tar stream in which removed files have overlayfs' form: a character device 0/0, and
// the attribute trusted.overlay.opaque on a directory that hides the one below. It may be nil.
// Names in skip, and everything below them, keep the content that they have in base.
func (i Importer) Compose(ctx context.Context, base *os.File, changes io.Reader,
	skip []string) (_ *os.File, err error) {
	f, err := i.NewFile()
	if err != nil {
		return nil, Classify(op, err)
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = os.Remove(f.Name())
		}
	}()
	root, err := erofs.Read(base)
	if err != nil {
		return nil, Classify(op, err)
	}
	w, err := erofs.Extend(f, base)
	if err != nil {
		return nil, Classify(op, err)
	}
	t := NewTree(w, i.Limits, i.Meter)
	t.Root = root
	i.Meter.Stage(image.StageUnpack, 0)
	if changes != nil {
		if err := t.changes(ctx, changes, skip); err != nil {
			return nil, Classify(op, err)
		}
	}
	i.Meter.Flush()
	i.Meter.Stage(image.StageWrite, 0)
	if err := t.complete(); err != nil {
		return nil, Classify(op, err)
	}
	size, err := w.Finish(t.Root, t.Root.Newest())
	if err != nil {
		return nil, Classify(op, err)
	}
	i.Meter.Add(size)
	return f, nil
}

// changes adds the changes of a sandbox to the tree.
func (t *Tree) changes(ctx context.Context, r io.Reader, skip []string) error {
	t.touched = map[place]struct{}{}
	tr := tar.NewReader(ctxReader{ctx, r})
	for {
		h, err := tr.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return streamError(err)
		}
		name := strings.Trim(strings.TrimPrefix(h.Name, "./"), "/")
		if under(name, skip) {
			continue
		}
		h.Name = name
		if name == "" {
			h.Name = "."
		}
		if err := t.change(tr, h); err != nil {
			return entryError(h.Name, err)
		}
	}
}

// under reports whether a name is one of some names, or below one.
func under(name string, names []string) bool {
	for _, n := range names {
		if rest, ok := strings.CutPrefix(name, n); ok && (rest == "" || rest[0] == '/') {
			return true
		}
	}
	return false
}

// opaqueKeys mark a directory that hides everything below it.
var opaqueKeys = []string{"SCHILY.xattr.trusted.overlay.opaque", "SCHILY.xattr.user.overlay.opaque"}

// change adds one change.
func (t *Tree) change(tr *tar.Reader, h *tar.Header) error {
	gone := h.Typeflag == tar.TypeChar && h.Devmajor == 0 && h.Devminor == 0
	if gone || h.Typeflag == tar.TypeLink && t.gone(h.Linkname) {
		t.markGone(h.Name)
		return t.remove(h.Name)
	}
	if h.Typeflag == tar.TypeDir {
		for _, key := range opaqueKeys {
			if h.PAXRecords[key] == "y" {
				if err := t.remove(h.Name); err != nil {
					return err
				}
				break
			}
		}
	}
	return t.entry(h, false, t.copier(tr))
}

// gone reports whether a name was removed by an earlier change: gVisor makes one removed file, and
// links it to the names of the others.
func (t *Tree) gone(name string) bool {
	_, is := t.touched[place{nil, strings.Trim(strings.TrimPrefix(name, "./"), "/")}]
	return is
}

func (t *Tree) markGone(name string) { t.touched[place{nil, name}] = struct{}{} }

// remove removes what lower layers have under a name.
func (t *Tree) remove(name string) error {
	parts, err := splitName(name)
	if err != nil {
		return err
	}
	if len(parts) == 0 {
		return errors.New("the root is removed")
	}
	dir, err := t.dir(parts[:len(parts)-1], false)
	if err != nil || dir == nil {
		return err
	}
	t.hide(dir, parts[len(parts)-1])
	return nil
}
