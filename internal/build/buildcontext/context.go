// Package buildcontext reads the files that a Dockerfile's COPY sees: a directory without what its
// .dockerignore leaves out, as one tar stream.
//
// The stream depends on the files only: names are sorted, and every file belongs to 0:0. Times of
// files are kept, because programs compare them, and cut to seconds. A cache of builds should look
// at names, modes and content, and not at times.
//
// Symbolic links are sent as links and never followed, so that no file from outside the directory
// gets into a build. Sockets, pipes and devices are refused: they have no content that could be
// copied.
package buildcontext

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"

	"github.com/carrel-dev/carrel"
)

// Bounds of a context, and of its list of what to leave out.
const (
	DefaultMaxBytes = 8 << 30
	DefaultMaxFiles = 2_000_000
	maxIgnoreBytes  = 1 << 20
	maxPatterns     = 10_000
)

// Options bound a context. The zero value has the defaults.
type Options struct {
	// Dockerfile is the path of the Dockerfile. A file beside it whose name is that name and
	// ".dockerignore" goes before the ".dockerignore" of the directory.
	Dockerfile string
	MaxBytes   int64
	MaxFiles   int
}

// Context is the list of the files of a directory. Their content is read by WriteTar.
type Context struct {
	dir     string
	entries []entry
	bytes   int64
	left    int // files that were left out; a whole directory counts as one
}

// entry is one file.
type entry struct {
	name string // with slashes, relative
	info fs.FileInfo
}

// Open lists the files of a directory that a build sees. Errors: Invalid (no directory, a wrong
// pattern, a file that cannot be sent), Exhausted (too much).
func Open(ctx context.Context, dir string, o Options) (*Context, error) {
	if o.MaxBytes == 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	if o.MaxFiles == 0 {
		o.MaxFiles = DefaultMaxFiles
	}
	info, err := os.Stat(dir)
	if err != nil {
		return nil, &carrel.Error{Op: "read context", Kind: carrel.Invalid, Err: err}
	}
	if !info.IsDir() {
		return nil, &carrel.Error{Op: "read context", Kind: carrel.Invalid,
			Err: fmt.Errorf("%s is no directory", dir)}
	}
	patterns, err := readIgnore(dir, o.Dockerfile)
	if err != nil {
		return nil, err
	}
	w := &walk{ctx: ctx, options: o, out: &Context{dir: dir}, patterns: patterns}
	if w.matcher, err = patternmatcher.New(patterns); err != nil {
		return nil, &carrel.Error{Op: "read context", Kind: carrel.Invalid,
			Err: fmt.Errorf(".dockerignore: %w", err)}
	}
	if err := w.directory("", patternmatcher.MatchInfo{}); err != nil {
		return nil, err
	}
	// The order of a walk is that of names in each directory; the stream's is that of whole names.
	slices.SortFunc(w.out.entries, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	return w.out, nil
}

// Files returns how many files there are, directories included.
func (c *Context) Files() int { return len(c.entries) }

// Bytes returns the sum of the files' sizes.
func (c *Context) Bytes() int64 { return c.bytes }

// readIgnore returns the patterns of the .dockerignore that counts, if there is one.
func readIgnore(dir, dockerfile string) ([]string, error) {
	names := []string{filepath.Join(dir, ".dockerignore")}
	if dockerfile != "" {
		names = append([]string{dockerfile + ".dockerignore"}, names...)
	}
	for _, name := range names {
		f, err := os.Open(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, &carrel.Error{Op: "read context", Kind: carrel.Invalid, Err: err}
		}
		defer f.Close()
		patterns, err := ParseIgnore(f)
		if err != nil {
			return nil, &carrel.Error{Op: "read context", Kind: carrel.Invalid,
				Err: fmt.Errorf("%s: %w", name, err)}
		}
		return patterns, nil
	}
	return nil, nil
}

// ParseIgnore reads the patterns of a .dockerignore.
func ParseIgnore(r io.Reader) ([]string, error) {
	limited := &io.LimitedReader{R: r, N: maxIgnoreBytes + 1}
	patterns, err := ignorefile.ReadAll(limited)
	switch {
	case err != nil:
		return nil, err
	case limited.N == 0:
		return nil, fmt.Errorf("it is longer than %d bytes", maxIgnoreBytes)
	case len(patterns) > maxPatterns:
		return nil, fmt.Errorf("it has %d patterns, and at most %d are read", len(patterns), maxPatterns)
	}
	for _, p := range patterns {
		// A pattern is looked at when it is first used, so each is used here.
		// After one that matches everything, an exception is looked at too.
		alone, err := patternmatcher.New([]string{"*", p})
		if !strings.HasPrefix(p, "!") {
			alone, err = patternmatcher.New([]string{p})
		}
		if err == nil {
			_, err = alone.MatchesOrParentMatches("x")
		}
		if err != nil {
			return nil, fmt.Errorf("%q: %w", p, err)
		}
	}
	return patterns, nil
}

// walk is one walk through a directory.
type walk struct {
	ctx      context.Context
	options  Options
	out      *Context
	patterns []string
	matcher  *patternmatcher.PatternMatcher
	held     []entry // directories that are left out, and sent if a file in them is not
	sizes    map[string]int64
}

// directory lists one directory. parent is what the patterns said of it.
func (w *walk) directory(name string, parent patternmatcher.MatchInfo) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	list, err := os.ReadDir(filepath.Join(w.out.dir, filepath.FromSlash(name)))
	if err != nil {
		return &carrel.Error{Op: "read context", Kind: carrel.Invalid, Err: err,
			Hint: "make it readable, or name it in .dockerignore"}
	}
	for _, d := range list {
		child := path.Join(name, d.Name())
		ignored, match, err := w.matcher.MatchesUsingParentResults(child, parent)
		if err != nil {
			return &carrel.Error{Op: "read context", Kind: carrel.Invalid,
				Err: fmt.Errorf(".dockerignore: %w", err)}
		}
		if ignored && (!d.IsDir() || !w.mayReturn(child)) {
			w.out.left++
			continue
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // it went since the directory was read
		}
		if err != nil {
			return &carrel.Error{Op: "read context", Kind: carrel.Invalid, Err: err}
		}
		held := len(w.held)
		if ignored {
			w.held = append(w.held, entry{child, info})
		} else if err := w.add(entry{child, info}); err != nil {
			return err
		}
		if d.IsDir() {
			if err := w.directory(child, match); err != nil {
				return err
			}
		}
		w.held = w.held[:min(held, len(w.held))]
	}
	return nil
}

// mayReturn reports whether a pattern with "!" could match something in a directory that is left
// out. Without that, the directory is not read: it may be large.
func (w *walk) mayReturn(dir string) bool {
	for _, p := range w.patterns {
		p, exception := strings.CutPrefix(p, "!")
		if !exception {
			continue
		}
		literal := p
		if i := strings.IndexAny(p, `*?[\`); i >= 0 {
			literal = p[:i]
		}
		if strings.HasPrefix(literal, dir+"/") || strings.HasPrefix(dir+"/", literal) {
			return true
		}
	}
	return false
}

// add takes a file in, after the directories above it that were held back.
func (w *walk) add(e entry) error {
	w.out.entries = append(w.out.entries, w.held...)
	w.held = w.held[:0]
	mode := e.info.Mode()
	switch {
	case mode.IsDir(), mode.IsRegular(), mode&fs.ModeSymlink != 0:
	default:
		return &carrel.Error{Op: "read context", Kind: carrel.Invalid,
			Err:  fmt.Errorf("%s is a %s, which has no content", e.name, kindOf(mode)),
			Hint: "remove it, or name it in .dockerignore"}
	}
	w.out.entries = append(w.out.entries, e)
	if mode.IsRegular() {
		w.out.bytes += e.info.Size()
		if w.sizes == nil {
			w.sizes = map[string]int64{}
		}
		top, _, _ := strings.Cut(e.name, "/")
		w.sizes[top] += e.info.Size()
	}
	if w.out.bytes > w.options.MaxBytes {
		return w.tooMuch(fmt.Sprintf("more than %d bytes", w.options.MaxBytes))
	}
	if len(w.out.entries) > w.options.MaxFiles {
		return w.tooMuch(fmt.Sprintf("more than %d files", w.options.MaxFiles))
	}
	return nil
}

// tooMuch refuses the context, and names its largest part.
func (w *walk) tooMuch(what string) error {
	largest := ""
	for name, size := range w.sizes {
		if largest == "" || size > w.sizes[largest] {
			largest = name
		}
	}
	return &carrel.Error{Op: "read context", Kind: carrel.Exhausted,
		Err: fmt.Errorf("%s has %s", w.out.dir, what),
		Hint: fmt.Sprintf(
			"name what the build does not need in .dockerignore: the largest part so far is %s", largest)}
}

func kindOf(mode fs.FileMode) string {
	switch {
	case mode&fs.ModeSocket != 0:
		return "socket"
	case mode&fs.ModeNamedPipe != 0:
		return "pipe"
	case mode&fs.ModeDevice != 0:
		return "device"
	}
	return "special file"
}

// WriteTar writes the files as a tar stream. progress hears how many bytes of the files are
// written; nil is for nobody. A file that changes its size meanwhile is an error: Conflict.
func (c *Context) WriteTar(ctx context.Context, out io.Writer, progress func(done int64)) error {
	root, err := os.OpenRoot(c.dir)
	if err != nil {
		return &carrel.Error{Op: "read context", Kind: carrel.Invalid, Err: err}
	}
	defer root.Close()
	w := &tarWriter{ctx: ctx, root: root, tar: tar.NewWriter(out), progress: progress,
		buffer: make([]byte, 256<<10)}
	for _, e := range c.entries {
		if err := w.write(e); err != nil {
			return err
		}
	}
	return w.tar.Close()
}

// tarWriter writes one stream.
type tarWriter struct {
	ctx      context.Context
	root     *os.Root
	tar      *tar.Writer
	progress func(int64)
	buffer   []byte
	done     int64
}

// write writes one file.
func (w *tarWriter) write(e entry) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	h := &tar.Header{Name: e.name, Mode: tarMode(e.info.Mode()),
		ModTime: e.info.ModTime().Truncate(time.Second), Format: tar.FormatPAX}
	switch mode := e.info.Mode(); {
	case mode.IsDir():
		h.Typeflag, h.Name = tar.TypeDir, e.name+"/"
	case mode.IsRegular():
		h.Typeflag, h.Size = tar.TypeReg, e.info.Size()
	default:
		target, err := w.root.Readlink(filepath.FromSlash(e.name))
		if err != nil {
			return changed(e.name, err)
		}
		h.Typeflag, h.Linkname = tar.TypeSymlink, filepath.ToSlash(target)
	}
	if err := w.tar.WriteHeader(h); err != nil {
		return err
	}
	if h.Typeflag != tar.TypeReg || h.Size == 0 {
		return nil
	}
	f, err := w.root.Open(filepath.FromSlash(e.name))
	if err != nil {
		return changed(e.name, err)
	}
	defer f.Close()
	if now, err := f.Stat(); err != nil || !os.SameFile(now, e.info) {
		return changed(e.name, errors.New("it is another file now"))
	}
	return w.content(e.name, f, h.Size)
}

// content copies the content of a file that must have a size.
func (w *tarWriter) content(name string, f io.Reader, size int64) error {
	for left := size; left > 0; {
		if err := w.ctx.Err(); err != nil {
			return err
		}
		n, err := f.Read(w.buffer[:min(left, int64(len(w.buffer)))])
		if n > 0 {
			if _, err := w.tar.Write(w.buffer[:n]); err != nil {
				return err
			}
			left -= int64(n)
			if w.done += int64(n); w.progress != nil {
				w.progress(w.done)
			}
		}
		if left > 0 && err != nil {
			return changed(name, fmt.Errorf("%d bytes are missing", left))
		}
	}
	if n, _ := f.Read(w.buffer[:1]); n > 0 {
		return changed(name, errors.New("it grew"))
	}
	return nil
}

func changed(name string, err error) error {
	return &carrel.Error{Op: "read context", Kind: carrel.Conflict,
		Err:  fmt.Errorf("%s changed while it was sent: %w", name, err),
		Hint: "build again when nothing writes to the directory"}
}

// tarMode returns the mode bits of a tar header.
func tarMode(mode fs.FileMode) int64 {
	bits := int64(mode.Perm())
	for _, b := range []struct {
		flag fs.FileMode
		bit  int64
	}{{fs.ModeSetuid, 0o4000}, {fs.ModeSetgid, 0o2000}, {fs.ModeSticky, 0o1000}} {
		if mode&b.flag != 0 {
			bits |= b.bit
		}
	}
	return bits
}
