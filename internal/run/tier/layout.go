//go:build linux

package tier

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/linux/overlay"
)

// layout makes an upper layer from the changes inside.
type layout struct {
	src           *source
	before, after map[string]meta
	dir           string // of the layer
	limits        limits
	root          *os.Root
	skipped       []overlay.Skipped
	dropped       map[string]bool
	done          map[string]bool // files that came
	bytes         int64
}

// fill fetches what changed.
func (l *layout) fill(ctx context.Context, c carrier) (err error) {
	if l.after, err = c.look(ctx); err != nil {
		return err
	}
	if l.root, err = os.OpenRoot(l.dir); err != nil {
		return err
	}
	defer l.root.Close()
	l.dropped, l.done = map[string]bool{}, map[string]bool{}
	fetch, err := l.came()
	if err != nil {
		return err
	}
	if err := c.fetch(ctx, fetch, l.put); err != nil {
		return err
	}
	if err := l.went(); err != nil {
		return err
	}
	return l.modes()
}

// changed reports whether a path has changed.
func (l *layout) changed(name string, m meta) bool {
	old, ok := l.before[name]
	return !ok || old != m
}

// skip leaves a path out and records that.
func (l *layout) skip(name string, k overlay.Kind, m meta, rule string) {
	l.dropped[name] = true
	l.skipped = append(l.skipped, overlay.Skipped{Change: overlay.Change{Path: name, Kind: k, Mode: fs.FileMode(m.perm & 0o777)}, Rule: rule})
}

// came makes the new directories and returns the names of files and links to fetch.
func (l *layout) came() ([]string, error) {
	var fetch []string
	for _, name := range slices.Sorted(maps.Keys(l.after)) {
		m := l.after[name]
		if !l.changed(name, m) {
			continue
		}
		kind := overlay.Added
		if _, ok := l.before[name]; ok {
			kind = overlay.Modified
		}
		rule, out := l.src.leftOut(name)
		switch {
		case out:
			l.skip(name, kind, m, rule)
		case strings.IndexByte("fdl", m.typ) < 0:
			l.skip(name, kind, m, map[byte]string{'p': "a named pipe", 's': "a socket"}[m.typ]+" is not carried over")
		case m.typ != 'd' && l.src.hidden[name] != "":
			l.skip(name, kind, m, "holds "+l.src.hidden[name]+", which was left out of the copy")
		case len(l.done)+len(fetch) >= l.limits.files:
			l.skip(name, kind, m, fmt.Sprintf("more than %d files changed", l.limits.files))
		case !l.reached(name): // the listing lies: nothing can be below a link or file
			l.skip(name, kind, m, "is below something that is no directory")
		case m.typ == 'd':
			if err := l.root.MkdirAll(name, 0o700); err != nil {
				return nil, err
			}
		default:
			fetch = append(fetch, name)
		}
	}
	return fetch, nil
}

// reached reports whether everything above name is a directory. So nothing is ever written through
// a link from inside, which would avoid the check of its name.
func (l *layout) reached(name string) bool {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if l.after[dir].typ != 'd' || l.dropped[dir] {
			return false
		}
	}
	return true
}

// put takes one file or link.
func (l *layout) put(it item, r io.Reader) error {
	m := l.after[it.name]
	if err := l.root.MkdirAll(path.Dir(it.name), 0o700); err != nil {
		return err
	}
	l.done[it.name] = true
	switch {
	case it.isLnk:
		return l.root.Symlink(it.link, it.name)
	case r != nil && it.link != "": // another name of an earlier file
		if !l.done[it.link] || !local(it.link) {
			return nil
		}
		return l.root.Link(it.link, it.name)
	}
	if it.size > l.limits.bytes-l.bytes {
		l.skip(it.name, overlay.Modified, m, fmt.Sprintf("more than %d MiB changed", l.limits.bytes>>20))
		return nil
	}
	f, err := l.root.OpenFile(it.name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	n, err := copySparse(f, io.LimitReader(r, l.limits.bytes-l.bytes+1))
	l.bytes += n
	if err == nil && l.bytes > l.limits.bytes {
		err = fmt.Errorf("%s has more content than the sandbox said", it.name)
	}
	if err != nil {
		return err
	}
	if !it.mtime.IsZero() {
		_ = l.root.Chtimes(it.name, it.mtime, it.mtime)
	}
	return f.Close()
}

// went marks removed paths. If a directory holds something that was not copied in, both stay.
func (l *layout) went() error {
	whole := map[string]bool{} // directories that are gone completely
	for _, name := range slices.Sorted(maps.Keys(l.before)) {
		old := l.before[name]
		now, still := l.after[name]
		if still && (old.typ != 'd' || now.typ == 'd' || l.dropped[name]) {
			continue
		}
		if still {
			whole[name] = true // a file took its place
			continue
		}
		if above(whole, name) {
			continue
		}
		if held := l.src.hidden[name]; old.typ == 'd' && held != "" {
			l.skip(name, overlay.Removed, old, "holds "+held+", which was left out of the copy")
			if err := l.root.MkdirAll(name, 0o700); err != nil {
				return err
			}
			continue
		}
		if err := l.root.MkdirAll(path.Dir(name), 0o700); err != nil {
			return err
		}
		if err := overlay.Whiteout(l.dir, name); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("mark %s as removed: %w", name, err)
		}
		whole[name] = true
	}
	return nil
}

// above reports whether a directory above name is in set.
func above(set map[string]bool, name string) bool {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if set[dir] {
			return true
		}
	}
	return false
}

// modes sets the permissions of everything in the layer to those inside. For unchanged files these
// are the real ones.
func (l *layout) modes() error {
	var names []string
	err := filepath.WalkDir(l.dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == l.dir {
			return err
		}
		if d.IsDir() || d.Type().IsRegular() {
			rel, err := filepath.Rel(l.dir, p)
			names = append(names, rel)
			return err
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, name := range slices.Backward(names) {
		m, ok := l.after[name]
		if !ok {
			m = l.before[name]
		}
		mode := m.perm & 0o1777
		if info := l.src.infos[name]; info != nil && l.before[name].perm == m.perm {
			mode = unixMode(info.Mode())
		} else if info != nil {
			mode |= m.perm & unixMode(info.Mode()) & (unix.S_ISUID | unix.S_ISGID)
		}
		// Only this process writes to the layer, and no link is followed: the walk has checked the
		// type.
		if err := unix.Fchmodat(unix.AT_FDCWD, filepath.Join(l.dir, name), mode, 0); err != nil {
			return err
		}
	}
	return nil
}

// unixMode returns a mode in the system's form.
func unixMode(m fs.FileMode) uint32 {
	mode := uint32(m.Perm())
	for _, b := range []struct {
		mode fs.FileMode
		bit  uint32
	}{{fs.ModeSetuid, unix.S_ISUID}, {fs.ModeSetgid, unix.S_ISGID}, {fs.ModeSticky, unix.S_ISVTX}} {
		if m&b.mode != 0 {
			mode |= b.bit
		}
	}
	return mode
}

// copySparse copies, and turns zeros into holes.
func copySparse(f *os.File, r io.Reader) (int64, error) {
	var n int64
	buf, zero := make([]byte, 64<<10), make([]byte, 64<<10)
	for {
		got, err := io.ReadFull(r, buf)
		if got > 0 && !bytes.Equal(buf[:got], zero[:got]) {
			if _, werr := f.WriteAt(buf[:got], n); werr != nil {
				return n, werr
			}
		}
		n += int64(got)
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			return n, f.Truncate(n)
		}
		if err != nil {
			return n, err
		}
	}
}

// readlink reads a link of the working directory.
func readlink(src *source, rel string) (string, error) {
	return os.Readlink(filepath.Join(src.dir, rel))
}
