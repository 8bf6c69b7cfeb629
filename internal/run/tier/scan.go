//go:build linux

package tier

import (
	"archive/tar"
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
)

// source is the working directory at the start of the run.
type source struct {
	dir    string
	order  []string               // paths relative to dir, directories before their contents
	infos  map[string]fs.FileInfo // of those that are copied
	left   map[string]string      // those that are not, and why
	hidden map[string]string      // directories with a path of left in them, and that path
	bytes  int64                  // of the files
	copied atomic.Int64           // of these
	sizes  map[string]*limits     // what the entries of dir hold
}

// far says how much is copied.
func (s *source) far() string {
	return fmt.Sprintf(": %s of %s in %d files", size(s.copied.Load()), size(s.bytes), len(s.order))
}

// size is a number of bytes for people.
func size(n int64) string {
	if n >= 10<<30 {
		return fmt.Sprintf("%d GiB", n>>30)
	}
	return fmt.Sprintf("%d MiB", (n+1<<19)>>20)
}

// info returns the state of a path at the start, for overlay.Options.Base. It knows nothing of
// paths that were left out, but nothing is carried back to those either.
func (s *source) info(p string) (fs.FileInfo, bool) { i, ok := s.infos[p]; return i, ok }

// scan walks the working directory. It follows no link, and refuses a directory that is too large.
func scan(ctx context.Context, r Request, p *progress) (*source, error) {
	s := &source{dir: r.Dir, infos: map[string]fs.FileInfo{}, left: map[string]string{}, hidden: map[string]string{}, sizes: map[string]*limits{}}
	var seen atomic.Int64
	defer p.during("looking through "+r.Dir, func() string { return fmt.Sprintf(": %d files so far", seen.Load()) })()
	limit := r.limits()
	over := time.Time{} // when it was too much
	err := filepath.WalkDir(r.Dir, func(p string, d fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if p == r.Dir {
			return err
		}
		rel, rerr := filepath.Rel(r.Dir, p)
		if rerr != nil {
			return rerr
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil // gone meanwhile
		}
		why := ""
		var info fs.FileInfo
		if err == nil {
			info, err = d.Info()
		}
		switch {
		case err != nil:
			why = "can't be read"
		case r.Readable != nil && !r.Readable(p):
			why = "must not be read"
		case !info.Mode().IsRegular() && !info.IsDir() && info.Mode()&fs.ModeSymlink == 0:
			why = "is a " + kindOf(info.Mode())
		case info.Mode()&fs.ModeSymlink == 0 && !accessible(p, info.IsDir()):
			why = "can't be read"
		case r.Tier == carrel.Sim && strings.ToValidUTF8(rel, "") != rel:
			why = "has a name that is no UTF-8"
		}
		if why != "" {
			s.leave(rel, why)
			if d.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		s.count(rel, info)
		if seen.Add(1); over.IsZero() {
			s.order, s.infos[rel] = append(s.order, rel), info
		}
		switch {
		case !over.IsZero() && time.Since(over) > countOn:
			return fs.SkipAll
		case over.IsZero() && (len(s.order) > limit.files || s.bytes > limit.bytes):
			over = time.Now() // what is large is still to be found out
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if !over.IsZero() {
		return nil, s.tooMuch(r, limit)
	}
	if n := len(s.left); n > 0 {
		r.note(fmt.Sprintf("%d files and directories were left out of the copy of %s", n, r.Dir))
	}
	return s, nil
}

// countOn is how long a directory that is too large is looked through on, to name what makes it so.
const countOn = time.Second

// count adds a file to what its entry of the working directory holds.
func (s *source) count(rel string, info fs.FileInfo) {
	top, _, _ := strings.Cut(rel, "/")
	of := s.sizes[top]
	if of == nil {
		of = &limits{}
		s.sizes[top] = of
	}
	of.files++
	if info.Mode().IsRegular() {
		s.bytes += info.Size()
		of.bytes += info.Size()
	}
}

// tooMuch names the limit, and what is large.
func (s *source) tooMuch(r Request, limit limits) error {
	what := fmt.Sprintf("more than %d files", limit.files)
	if s.bytes > limit.bytes {
		what = "more than " + size(limit.bytes)
	}
	large := func(of *limits) float64 {
		return max(float64(of.bytes)/float64(limit.bytes), float64(of.files)/float64(limit.files))
	}
	tops := slices.SortedFunc(maps.Keys(s.sizes), func(a, b string) int { return cmp.Compare(large(s.sizes[b]), large(s.sizes[a])) })
	var names []string
	for _, top := range tops[:min(len(tops), 4)] {
		if of := s.sizes[top]; large(of) > 0.05 {
			names = append(names, fmt.Sprintf("%s (%s, %d files)", strconv.QuoteToGraphic(top), size(of.bytes), of.files))
		}
	}
	return &carrel.Error{Op: "run", Kind: carrel.Exhausted, Err: fmt.Errorf("%s holds %s, the limit of --tier %s, which works on a copy", r.Dir, what, r.Tier),
		Hint: "the largest in it: " + strings.Join(names, ", ") + ". Leave out what it does not need (--no-read NAME), run it in a smaller directory, raise the limit (--copy-max SIZE), or use --tier ns"}
}

// leave records that a path was not copied, and the directories around it.
func (s *source) leave(rel, why string) {
	s.left[rel] = why
	for dir := filepath.Dir(rel); dir != "."; dir = filepath.Dir(dir) {
		if s.hidden[dir] == "" {
			s.hidden[dir] = rel
		}
	}
}

// leftOut reports whether a path, or a directory above it, was left out.
func (s *source) leftOut(rel string) (string, bool) {
	if len(s.left) == 0 {
		return "", false
	}
	for p := rel; p != "."; p = filepath.Dir(p) {
		if why, ok := s.left[p]; ok {
			return fmt.Sprintf("left out of the copy: %s %s", p, why), true
		}
	}
	return "", false
}

// accessible reports whether this user may read a file or list a directory.
func accessible(p string, dir bool) bool {
	mode := uint32(unix.R_OK)
	if dir {
		mode |= unix.X_OK
	}
	return unix.Faccessat(unix.AT_FDCWD, p, mode, unix.AT_EACCESS) == nil
}

// kindOf names special files.
func kindOf(m fs.FileMode) string {
	switch {
	case m&fs.ModeNamedPipe != 0:
		return "named pipe"
	case m&fs.ModeSocket != 0:
		return "socket"
	}
	return "device"
}

// pack writes the copy as an archive with names relative to the working directory.
func (s *source) pack(ctx context.Context, w io.Writer) error {
	buf := bufio.NewWriterSize(w, 64<<10) // each write becomes one message
	tw := tar.NewWriter(buf)
	for _, rel := range s.order {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := s.packOne(tw, rel); err != nil {
			return err
		}
	}
	return errors.Join(tw.Close(), buf.Flush())
}

// packOne writes one entry as scan saw it, or returns an error.
func (s *source) packOne(tw *tar.Writer, rel string) error {
	info := s.infos[rel]
	h := &tar.Header{Name: "./" + rel, Mode: int64(info.Mode().Perm()), ModTime: info.ModTime(), Format: tar.FormatPAX}
	switch {
	case info.IsDir():
		h.Typeflag, h.Name = tar.TypeDir, h.Name+"/"
		return tw.WriteHeader(h)
	case info.Mode()&fs.ModeSymlink != 0:
		link, err := os.Readlink(filepath.Join(s.dir, rel))
		if err != nil {
			return err
		}
		h.Typeflag, h.Linkname = tar.TypeSymlink, link
		return tw.WriteHeader(h)
	}
	f, err := s.open(rel)
	if err != nil {
		return err
	}
	defer f.Close()
	h.Size = info.Size()
	if err := tw.WriteHeader(h); err != nil {
		return err
	}
	n, err := io.CopyN(tw, f, h.Size)
	if s.copied.Add(n); err != nil {
		return fmt.Errorf("%s was changed while it was copied: %w", rel, err)
	}
	return nil
}

// open opens a file that scan saw. It refuses another file in its place.
func (s *source) open(rel string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(s.dir, rel), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	if now, err := f.Stat(); err != nil || !os.SameFile(now, s.infos[rel]) {
		_ = f.Close()
		return nil, fmt.Errorf("%s was replaced while it was copied", rel)
	}
	return f, nil
}
