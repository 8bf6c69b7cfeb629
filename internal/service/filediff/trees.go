package filediff

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/image"
)

// maxTreeDepth bounds how deep the directories of an image may lie.
const maxTreeDepth = 1000

// Trees returns the differences of image b from image a, sorted by path. It walks both images, and
// reads every pair of files that have one size. Times do not count.
func Trees(ctx context.Context, a, b image.Files) ([]carrel.FileChange, error) {
	t := &trees{ctx: ctx, a: a, b: b, buffers: [2][]byte{make([]byte, 64<<10), make([]byte, 64<<10)}}
	if err := t.directory(".", true, true, 0); err != nil {
		return nil, err
	}
	slices.SortFunc(t.out, func(x, y carrel.FileChange) int {
		return bytes.Compare([]byte(x.Path),
			[]byte(y.Path))
	})
	return t.out, nil
}

// trees is one comparison of two images.
type trees struct {
	ctx     context.Context
	a, b    image.Files
	out     []carrel.FileChange
	buffers [2][]byte
}

// directory compares the names in a directory. inA and inB say which image has it.
func (t *trees) directory(dir string, inA, inB bool, depth int) error {
	if t.ctx.Err() != nil {
		return &carrel.Error{Kind: carrel.TimedOut, Err: context.Cause(t.ctx)}
	}
	if depth > maxTreeDepth {
		return tooMany("directories lie more than %d deep", maxTreeDepth)
	}
	seen := map[string]bool{}
	for _, side := range []struct {
		files image.Files
		in    bool
	}{{t.a, inA}, {t.b, inB}} {
		if !side.in {
			continue
		}
		names, err := side.files.List(dir)
		if err != nil {
			return fmt.Errorf("read the template: %w", err)
		}
		for _, n := range names {
			seen[n] = true
		}
	}
	for name := range seen {
		if err := t.file(path.Join(dir, name), inA, inB, depth); err != nil {
			return err
		}
	}
	return nil
}

// file compares one name, and everything below it.
func (t *trees) file(name string, inA, inB bool, depth int) error {
	before, err := lookIn(t.a, name, inA)
	if err != nil {
		return err
	}
	after, err := lookIn(t.b, name, inB)
	if err != nil {
		return err
	}
	kind, err := t.kind(name, before, after)
	if err != nil {
		return err
	}
	if kind != "" {
		if len(t.out) >= mostChanges {
			return tooMany("more than %d files are different", mostChanges)
		}
		full := path.Join("/", name)
		t.out = append(t.out, carrel.FileChange{Path: full, Kind: kind, Before: infoOf(before, full),
			After: infoOf(after, full)})
	}
	dirA, dirB := before != nil && before.Mode.IsDir(), after != nil && after.Mode.IsDir()
	if dirA || dirB {
		return t.directory(name, dirA, dirB, depth+1)
	}
	return nil
}

// lookIn returns a file of an image, or nil if it has none.
func lookIn(files image.Files, name string, in bool) (*image.File, error) {
	if !in {
		return nil, nil
	}
	f, err := files.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read the template: %w", err)
	}
	return &f, nil
}

// kind says how two files differ; "" means not at all.
func (t *trees) kind(name string, x, y *image.File) (carrel.ChangeKind, error) {
	switch {
	case x == nil && y == nil:
		return "", nil
	case x == nil:
		return carrel.ChangeAdded, nil
	case y == nil:
		return carrel.ChangeRemoved, nil
	case x.Mode.Type() != y.Mode.Type(), x.Target != y.Target, x.Major != y.Major, x.Minor != y.Minor,
		x.Mode.IsRegular() && x.Size != y.Size:
		return carrel.ChangeModified, nil
	}
	if x.Mode.IsRegular() && x.Size > 0 {
		same, err := t.sameContent(name)
		if err != nil {
			return "", err
		}
		if !same {
			return carrel.ChangeModified, nil
		}
	}
	if x.Mode&fs.ModeSymlink == 0 && x.Mode != y.Mode || x.UID != y.UID || x.GID != y.GID {
		return carrel.ChangeMode, nil
	}
	return "", nil
}

// sameContent compares the content of a name in both images.
func (t *trees) sameContent(name string) (bool, error) {
	a, err := t.a.Open(name)
	if err != nil {
		return false, fmt.Errorf("read the template: %w", err)
	}
	defer a.Close()
	b, err := t.b.Open(name)
	if err != nil {
		return false, fmt.Errorf("read the template: %w", err)
	}
	defer b.Close()
	for {
		if t.ctx.Err() != nil {
			return false, &carrel.Error{Kind: carrel.TimedOut, Err: context.Cause(t.ctx)}
		}
		n, errA := io.ReadFull(a, t.buffers[0])
		m, errB := io.ReadFull(b, t.buffers[1])
		if !bytes.Equal(t.buffers[0][:n], t.buffers[1][:m]) {
			return false, nil
		}
		endA, endB := atEnd(errA), atEnd(errB)
		switch {
		case errA != nil && !endA:
			return false, fmt.Errorf("read the template: %w", errA)
		case errB != nil && !endB:
			return false, fmt.Errorf("read the template: %w", errB)
		case endA || endB:
			return endA == endB, nil
		}
	}
}

func atEnd(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }

// infoOf converts a file of an image for callers. Its owners are numbers.
func infoOf(f *image.File, name string) *carrel.FileInfo {
	if f == nil {
		return nil
	}
	info := &carrel.FileInfo{Name: path.Base(name), Path: name, Mode: f.Mode, Target: f.Target,
		Owner: strconv.Itoa(int(f.UID)), Group: strconv.Itoa(int(f.GID)), Modified: f.Modified.UTC()}
	if f.Mode.IsRegular() {
		info.Size = f.Size
	}
	return info
}
