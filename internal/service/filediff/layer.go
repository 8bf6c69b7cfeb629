package filediff

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
)

// Bounds on a snapshot that can be compared. The stream comes from the sandbox. Without bounds, it
// could make this process read, and use memory, without end.
const (
	layerEntries = 500_000
	layerNames   = 64 << 20 // bytes of all names and targets together
	layerDepth   = 512      // directories in one another
	HashSlack    = 64 << 20 // bytes that may be hashed beyond the sandbox's disk
)

// Layer holds the files of a snapshot on top of its root image, as a tree from the root directory.
type Layer struct {
	root  node
	count int
	names int
	left  int64 // bytes that may still be hashed

	keep string // the file whose beginning is kept; "" for none
	most int64  // bytes of it
	kept map[*entry][]byte
}

// node is one name of a layer.
type node struct {
	entry *entry // nil for a directory without an entry of its own
	kids  map[string]*node
}

// entry is a file, with the properties that are compared. A file of a root image gets its sum only
// when it is needed.
type entry struct {
	mode         fs.FileMode
	uid, gid     int
	size         int64
	modified     time.Time
	target       string
	major, minor int64
	sum          [sha256.Size]byte
	summed       bool   // sum is set (regular files only)
	layered      bool   // of a layer, not of the image
	gone         bool   // the image's is removed
	opaque       bool   // a directory that hides the image's
	first        string // in a layer, the first of its names: the stream has its content there
}

// hides reports whether the entry hides everything that the image has below it.
func (e *entry) hides() bool { return e != nil && (e.gone || e.opaque || !e.mode.IsDir()) }

// Read reads a tar stream. It keeps only the data for a comparison: of a file's content, only the
// sum. budget is how many bytes of all contents it reads for the sums. A file larger than the rest
// of the budget, most likely a sparse one, gets no sum.
func Read(ctx context.Context, r io.Reader, budget int64) (*Layer, error) {
	return ReadKeeping(ctx, r, budget, "", 0)
}

// ReadKeeping is Read that also keeps the first bytes of one file's content, at most most.
func ReadKeeping(ctx context.Context, r io.Reader, budget int64, keep string, most int64) (*Layer, error) {
	l := &Layer{left: budget, keep: clean(keep), most: most, kept: map[*entry][]byte{}}
	tr := tar.NewReader(ctxReader{ctx, r})
	sum := sha256.New()
	for {
		h, err := tr.Next()
		if err == io.EOF {
			return l, nil
		}
		if err == nil {
			err = l.add(h, tr, sum)
		}
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return nil, &carrel.Error{Kind: carrel.TimedOut, Err: context.Cause(ctx)}
		case errors.Is(err, tar.ErrHeader), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, tar.ErrFieldTooLong):
			return nil, &carrel.Error{Kind: carrel.Invalid, Err: fmt.Errorf("its files can't be read: %w", err)}
		default:
			return nil, err
		}
	}
}

// ctxReader is a reader that fails when a context ends.
type ctxReader struct {
	ctx context.Context
	r   io.Reader
}

// Read implements io.Reader.
func (c ctxReader) Read(p []byte) (int, error) {
	if c.ctx.Err() != nil {
		return 0, context.Cause(c.ctx)
	}
	return c.r.Read(p)
}

// opaqueXattrs mark a directory that hides the image's.
var opaqueXattrs = []string{"SCHILY.xattr.trusted.overlay.opaque", "SCHILY.xattr.user.overlay.opaque"}

// add adds one entry of the stream.
func (l *Layer) add(h *tar.Header, content io.Reader, sum hash.Hash) error {
	l.count++
	l.names += len(h.Name) + len(h.Linkname)
	if l.count > layerEntries || l.names > layerNames {
		return tooMany("it holds more than %d files, or names of more than %d MiB, on top of its template", layerEntries, layerNames>>20)
	}
	n, err := l.at(h.Name)
	if err != nil {
		return err
	}
	if h.Typeflag == tar.TypeLink {
		target, err := l.find(h.Linkname)
		if err != nil {
			return err
		}
		n.entry = target
		return nil
	}
	e := entryOf(h)
	if e == nil { // nothing that a filesystem has
		return nil
	}
	e.first = clean(h.Name)
	if l.keep != "" && e.first == l.keep && e.mode.IsRegular() {
		head, err := io.ReadAll(io.LimitReader(content, l.most))
		if err != nil {
			return err
		}
		clear(l.kept) // of an earlier entry with this name
		l.kept[e] = head
		content = io.MultiReader(bytes.NewReader(head), content)
	}
	if e.mode.IsRegular() && e.size <= l.left {
		l.left -= e.size
		sum.Reset()
		if _, err := io.Copy(sum, content); err != nil {
			return err
		}
		sum.Sum(e.sum[:0])
		e.summed = true
	}
	n.entry = e
	return nil
}

// entryOf converts a header to an entry. It returns nil for kinds that are no files.
func entryOf(h *tar.Header) *entry {
	h.Mode &= 0o7777 // only Typeflag decides the kind
	e := &entry{layered: true, mode: h.FileInfo().Mode(), uid: h.Uid, gid: h.Gid, modified: h.ModTime, major: h.Devmajor, minor: h.Devminor}
	switch h.Typeflag {
	case tar.TypeReg:
		e.size = h.Size
	case tar.TypeSymlink:
		e.target = h.Linkname
	case tar.TypeDir:
		for _, k := range opaqueXattrs {
			e.opaque = e.opaque || h.PAXRecords[k] == "y"
		}
	case tar.TypeChar:
		e.gone = h.Devmajor == 0 && h.Devminor == 0
	case tar.TypeBlock, tar.TypeFifo:
	default:
		return nil
	}
	return e
}

// clean writes a name as it is below the root; "" is the root itself.
func clean(name string) string { return strings.TrimPrefix(path.Clean("/"+name), "/") }

// parts splits a name into its elements. The result never leaves the root, however the name is
// written.
func parts(name string) ([]string, error) {
	name = clean(name)
	if name == "" {
		return nil, nil
	}
	out := strings.Split(name, "/")
	if len(out) > layerDepth {
		return nil, tooMany("it holds directories %d deep, at most %d can be compared", len(out), layerDepth)
	}
	return out, nil
}

func tooMany(format string, args ...any) error {
	return &carrel.Error{Kind: carrel.Exhausted, Err: fmt.Errorf(format, args...)}
}

// at finds or makes the node of a name.
func (l *Layer) at(name string) (*node, error) {
	ps, err := parts(name)
	n := &l.root
	for _, p := range ps {
		if n.kids == nil {
			n.kids = map[string]*node{}
		}
		kid := n.kids[p]
		if kid == nil {
			if l.count++; l.count > layerEntries {
				return nil, tooMany("it holds more than %d files and directories", layerEntries)
			}
			kid = &node{}
			n.kids[p] = kid
		}
		n = kid
	}
	return n, err
}

// find returns the earlier entry that a hard link points to. gVisor's overlay has one whiteout, and
// links it to every removed name.
func (l *Layer) find(name string) (*entry, error) {
	ps, err := parts(name)
	if err != nil {
		return nil, err
	}
	n := &l.root
	for _, p := range ps {
		if n = n.kids[p]; n == nil {
			break
		}
	}
	if n == nil || n.entry == nil || n.entry.mode.IsDir() {
		return nil, &carrel.Error{Kind: carrel.Invalid, Err: fmt.Errorf("its files can't be read: a link to %.80q, which is not among them", name)}
	}
	return n.entry, nil
}
