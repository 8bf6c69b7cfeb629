package gvisor

import (
	"archive/tar"
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"sort"
	"strings"

	"google.golang.org/protobuf/proto"
	fspb "gvisor.dev/gvisor/pkg/sentry/fscheckpoint/fscheckpoint_proto_go_proto"

	"github.com/carrel-dev/carrel/internal/driver"
)

// Descriptors of the part that makes a tar stream.
const (
	tarManifest = 3 + iota
	tarTree
	tarMeta
	tarPages
	tarOut
)

// tarPart is the process that writes a snapshot of files as a plain tar stream.
func tarPart() error {
	b, err := io.ReadAll(os.NewFile(tarManifest, "manifest"))
	if err != nil {
		return err
	}
	var m fspb.Manifest
	if err := proto.Unmarshal(b, &m); err != nil {
		return err
	}
	if len(m.MemoryFiles) != 1 || len(m.Tmpfs) != 1 {
		return fmt.Errorf("the manifest lists %d and %d filesystems", len(m.MemoryFiles), len(m.Tmpfs))
	}
	if b, err = io.ReadAll(os.NewFile(tarMeta, "meta")); err != nil {
		return err
	}
	from, to := m.MemoryFiles[0].PagesMetadataStart, m.MemoryFiles[0].PagesMetadataEnd
	if from > to || to > uint64(len(b)) {
		return errors.New("the manifest points past the pages' record")
	}
	record, _, err := pageRecord(b[from:to])
	if err != nil {
		return err
	}
	p := pages{file: os.NewFile(tarPages, "pages"), ranges: pageRanges(record, m.MemoryFiles[0].PagesStart)}
	tree := io.NewSectionReader(os.NewFile(tarTree, "tree"), int64(m.Tmpfs[0].TarStart), int64(m.Tmpfs[0].TarEnd-m.Tmpfs[0].TarStart))
	out := bufio.NewWriterSize(os.NewFile(tarOut, "out"), 256<<10)
	if err := plainTar(out, bufio.NewReaderSize(tree, 256<<10), p); err != nil {
		return err
	}
	return out.Flush()
}

// plainTar copies the archive and puts the contents of regular files in place. In the snapshot's
// archive a regular file is a list of ranges in a memory file. The sentry's whiteouts are one inode
// with many names. In the result each is an entry of its own, because a link to an omitted entry
// would mean nothing.
func plainTar(out io.Writer, tree io.Reader, p pages) error {
	tr, tw := tar.NewReader(tree), tar.NewWriter(out)
	white := map[string]bool{}
	for {
		h, err := tr.Next()
		if err == io.EOF {
			return tw.Close()
		}
		if err != nil {
			return err
		}
		h.Name, h.Linkname = relative(h.Name), linkTarget(h)
		switch {
		case h.Typeflag == tar.TypeChar && h.Devmajor == 0 && h.Devminor == 0:
			white[h.Name] = true
		case h.Typeflag == tar.TypeLink && white[h.Linkname]:
			h.Typeflag, h.Linkname = tar.TypeChar, ""
		}
		if h.Name == "" || hidden(h.Name) {
			continue
		}
		if h.Typeflag != tar.TypeReg {
			if err := tw.WriteHeader(h); err != nil {
				return err
			}
			continue
		}
		c, err := readContents(tr, h.Size)
		if err != nil {
			return fmt.Errorf("%q: %w", h.Name, err)
		}
		if err := p.write(out, tw, h, c); err != nil {
			return fmt.Errorf("%q: %w", h.Name, err)
		}
	}
}

// relative is a name in the archive without the leading "./".
func relative(name string) string { return strings.TrimPrefix(name, "./") }

// linkTarget is the target of a link. The target of a hard link is a name in the archive.
func linkTarget(h *tar.Header) string {
	if h.Typeflag == tar.TypeLink {
		return relative(h.Linkname)
	}
	return h.Linkname
}

// hidden reports whether a name is in a directory that exists only for one of the sentry's mounts.
func hidden(name string) bool {
	top, _, _ := strings.Cut(name, "/")
	switch "/" + top {
	case driver.GuestMount, "/proc", "/sys", "/dev":
		return true
	}
	return false
}

// contents describes the contents of a regular file.
type contents struct {
	size     uint64
	segments []segment
}

// segment is a piece of a file and its offset in the memory file.
type segment struct{ start, end, at uint64 }

// readContents reads a list of n bytes.
func readContents(r io.Reader, n int64) (contents, error) {
	const word, perSegment = 8, 3 * 8
	if n < word || (n-word)%perSegment != 0 {
		return contents{}, fmt.Errorf("a list of %d bytes", n)
	}
	b, err := io.ReadAll(io.LimitReader(r, n))
	if err != nil || int64(len(b)) != n {
		return contents{}, fmt.Errorf("a list is cut off: %w", err)
	}
	c := contents{size: binary.LittleEndian.Uint64(b)}
	if c.size > math.MaxInt64 {
		return contents{}, errors.New("an impossible size")
	}
	last := uint64(0)
	for b = b[word:]; len(b) > 0; b = b[perSegment:] {
		s := segment{binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[word:]), binary.LittleEndian.Uint64(b[2*word:])}
		if s.start < last || s.end <= s.start {
			return contents{}, errors.New("a list is out of order")
		}
		last = s.end
		if s.start >= c.size { // pages past the end
			continue
		}
		s.end = min(s.end, c.size)
		c.segments = append(c.segments, s)
	}
	return c, nil
}

// pages is a memory file as stored in a pages file.
type pages struct {
	file   io.ReaderAt
	ranges []pageRange
}

// copy writes n bytes of the memory file from an offset on. Ranges that are not committed are zero.
func (p pages) copy(w io.Writer, at, n uint64) error {
	i := sort.Search(len(p.ranges), func(i int) bool { return p.ranges[i].end > at })
	for n > 0 {
		var r io.Reader = zeros{}
		step := n
		if i < len(p.ranges) {
			switch g := p.ranges[i]; {
			case at < g.start:
				step = min(n, g.start-at)
			default:
				step = min(n, g.end-at)
				r = io.NewSectionReader(p.file, int64(g.at+at-g.start), int64(step))
				i++
			}
		}
		if _, err := io.CopyN(w, r, int64(step)); err != nil {
			return fmt.Errorf("its pages: %w", err)
		}
		at, n = at+step, n-step
	}
	return nil
}

// zeros is an endless reader of zero bytes.
type zeros struct{}

// Read implements io.Reader.
func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}
