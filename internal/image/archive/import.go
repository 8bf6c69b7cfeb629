package archive

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/image/erofs"
)

// Importer makes one image. NewFile makes an empty file on the disk where the image will stay. The
// file that a method returns is the finished image, not yet fsynced; the caller owns it. The
// Importer removes all other files.
type Importer struct {
	NewFile func() (*os.File, error)
	Limits  Limits
	Meter   *image.Meter
}

// Stream imports an archive: a root filesystem or an exported image.
func (i Importer) Stream(ctx context.Context, r io.Reader) (*os.File, *Result, error) {
	i.Meter.Stage(image.StageUnpack, 0)
	return i.make(ctx, func(t *Tree) (*Result, error) {
		if err := t.Tar(ctx, r, false); err != nil {
			return nil, err
		}
		src, format, err := findImage(treeFiles{t})
		if err != nil {
			return nil, err
		}
		if src != nil {
			return nil, &exported{src, format}
		}
		return t.rootFS("root filesystem")
	})
}

// exported is no failure. It says that the tree is no root filesystem but holds an image, whose
// layers go into a second file.
type exported struct {
	src    *Source
	format string
}

func (*exported) Error() string { return "an exported image" }

// Image imports the layers of an image.
func (i Importer) Image(ctx context.Context, src *Source, format string) (*os.File, *Result, error) {
	i.Meter.Stage(image.StageUnpack, 0)
	return i.make(ctx, func(t *Tree) (*Result, error) { return t.Image(ctx, src, format) })
}

// Dir imports a directory: a root filesystem, an OCI layout or an unpacked
// docker-save archive.
func (i Importer) Dir(ctx context.Context, dir string) (*os.File, *Result, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, nil, dirError(dir, err)
	}
	defer root.Close()
	src, format, err := findImage(rootFiles{root})
	if err != nil {
		return nil, nil, err
	}
	if src != nil {
		return i.Image(ctx, src, format)
	}
	i.Meter.Stage(image.StageUnpack, 0)
	return i.make(ctx, func(t *Tree) (*Result, error) {
		if err := t.Dir(ctx, root); err != nil {
			return nil, err
		}
		return t.rootFS("directory")
	})
}

// make builds a tree in a new file and finishes the image.
func (i Importer) make(ctx context.Context, build func(*Tree) (*Result, error)) (*os.File, *Result,
	error) {
	return i.makeWith(ctx, build, func(t *Tree) (int64, error) {
		return t.w.Finish(t.Root, t.Root.Newest())
	})
}

// makeWith is make with another way to finish the image.
func (i Importer) makeWith(ctx context.Context, build func(*Tree) (*Result, error),
	finish func(*Tree) (int64, error)) (_ *os.File, _ *Result, err error) {
	f, err := i.NewFile()
	if err != nil {
		return nil, nil, Classify(op, err)
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = os.Remove(f.Name())
		}
	}()
	w := erofs.NewWriter(f)
	t := NewTree(w, i.Limits, i.Meter)
	res, err := build(t)
	var inner *exported
	if errors.As(err, &inner) {
		// The layers are read from this file while the second one is written.
		out, res, ierr := i.Image(ctx, inner.src, inner.format)
		if ierr != nil {
			return nil, nil, ierr
		}
		_ = f.Close()
		_ = os.Remove(f.Name())
		return out, res, nil
	}
	if err != nil {
		return nil, nil, Classify(op, err)
	}
	i.Meter.Flush()
	i.Meter.Stage(image.StageWrite, 0)
	size, err := finish(t)
	if err != nil {
		return nil, nil, Classify(op, err)
	}
	i.Meter.Add(size)
	return f, res, nil
}
