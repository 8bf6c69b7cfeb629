package filediff

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/image"
)

// ErrElsewhere says that the content of a file stands in the stream under another of its names. The
// stream must be read once more, and that name kept.
type ErrElsewhere struct{ Name string }

// Error implements error.
func (e ErrElsewhere) Error() string { return fmt.Sprintf("the content is at %.80q", e.Name) }

// File returns one file of a snapshot, from its layer or from the root image below it. The layer must
// have kept that file. base is nil if the image's files are not known. Links are not followed. ok is
// false if there is no such file. Error: ErrElsewhere, beside those of reading.
func (l *Layer) File(ctx context.Context, base image.Files, name string, most int64) (f carrel.SnapshotFile, ok bool, err error) {
	c := &comparison{ctx: ctx, base: base}
	ps, err := parts(name)
	if err != nil {
		return f, false, err
	}
	s, at := side{&l.root, true}, "."
	e, err := c.look(at, s)
	for _, p := range ps {
		if err != nil {
			return f, false, err
		}
		s, at = s.below(e).child(p), path.Join(at, p)
		e, err = c.look(at, s)
	}
	if err == nil && e == nil && at == "." { // nothing in the layer, and the image's files are not known
		e = &entry{mode: fs.ModeDir | 0o755}
	}
	if err != nil || e == nil {
		return f, false, err
	}
	f.Info, f.Whole = *e.info(path.Join("/", at)), true
	if !e.mode.IsRegular() {
		return f, true, nil
	}
	if e.layered {
		head, here := l.kept[e]
		if !here {
			return f, false, ErrElsewhere{e.first}
		}
		f.Content = head
	} else if f.Content, err = readHead(ctx, base, at, most); err != nil {
		return f, false, err
	}
	f.Whole = int64(len(f.Content)) >= e.size
	return f, true, nil
}

// readHead reads the beginning of an image's file.
func readHead(ctx context.Context, base image.Files, name string, most int64) ([]byte, error) {
	r, err := base.Open(name)
	if err != nil {
		return nil, readFault(err)
	}
	defer func() { _ = r.Close() }() // it was only read
	head, err := io.ReadAll(io.LimitReader(ctxReader{ctx, r}, most))
	if err != nil {
		return nil, readFault(err)
	}
	return head, nil
}

// readFault is an error of an image that can't be read.
func readFault(err error) error {
	kind := carrel.Internal
	if errors.Is(err, fs.ErrNotExist) {
		kind = carrel.NotFound
	}
	return &carrel.Error{Kind: kind, Err: fmt.Errorf("read the template: %w", err)}
}
