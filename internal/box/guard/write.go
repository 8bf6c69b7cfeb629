//go:build linux

package guard

import (
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/linux/seccomp"
)

// text reads a name from the caller. A name that can't be read is the kernel's to refuse. Whether
// the caller still waits is asked only before something is refused or reported.
func text(c seccomp.Call, arg int) (string, bool) {
	name, err := c.Glance(c.Args[arg])
	return name, err == nil && name != ""
}

// plain reports whether a name is in a writable place and is not protected. It is fast, because it
// looks only at the text. A link on the way may lead elsewhere. Then the kernel refuses the call,
// or the link leads to another writable place, where a protected name would have the same last
// element. full is the absolute name.
func (g *Guard) plain(c seccomp.Call, dirArg int, name string) (full string, ok bool) {
	if g.names.interesting(last(name)) {
		return "", false
	}
	if full = name; !strings.HasPrefix(name, "/") {
		base, rest := begin(c, dirArg, name)
		dir, err := readlink(base)
		if err != nil {
			return "", false
		}
		full = dir + "/" + rest
	}
	return full, g.writable(clean(full))
}

// clean is path.Clean, for the most part of names that are clean.
func clean(full string) string {
	if strings.Contains(full, "//") || strings.Contains(full, "/.") || strings.HasSuffix(full, "/") {
		return path.Clean(full)
	}
	return full
}

// isPlain is plain without the resulting name.
func (g *Guard) isPlain(c seccomp.Call, dirArg int, name string) bool {
	_, ok := g.plain(c, dirArg, name)
	return ok
}

// wasRepository returns a function that reports whether a directory of the box had a .git before
// it.
func (g *Guard) wasRepository(c seccomp.Call) func(string) bool {
	return func(dir string) bool {
		root, done, err := g.rootOf(c)
		if err != nil {
			return false
		}
		defer done()
		fd, err := openat2(root, join(dir, ".git"), unix.O_NOFOLLOW, scoped)
		if err != nil {
			return false
		}
		defer unix.Close(fd)
		return !g.made(fd)
	}
}

// made reports whether a file is younger than the guard.
func (g *Guard) made(fd int) bool {
	_, young := g.birth(fd)
	return young
}

// birth returns the time when a file was made, and whether the guard already existed then. On
// filesystems that don't record that time, no file is young.
func (g *Guard) birth(fd int) (unix.StatxTimestamp, bool) {
	var st unix.Statx_t
	err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_BTIME, &st)
	if err != nil || st.Mask&unix.STATX_BTIME == 0 {
		return st.Btime, false
	}
	return st.Btime, st.Btime.Sec > g.start.Sec || st.Btime.Sec == g.start.Sec && int64(st.Btime.Nsec) >= g.start.Nsec
}

// change answers calls that change one name.
func (g *Guard) change(c seccomp.Call, s shape) seccomp.Answer {
	name, ok := text(c, s.path)
	if !ok || !(s.kind == links && g.names.star) && g.isPlain(c, s.dir, name) || !c.Waits() {
		return goOn
	}
	p, err := g.locate(c, s.dir, name)
	if err != nil {
		return g.unresolved(c, name, err)
	}
	defer p.close()
	if r := g.replacing(p); r != nil {
		if a, done := r.change(c, s, p.base); done {
			return a
		}
	}
	_, exists := p.stat()
	if creates := s.kind == makes || s.kind == links; creates == exists {
		return goOn // the kernel returns EEXIST or ENOENT
	}
	full := p.full()
	switch r, by := g.protects(full, g.wasRepository(c)); {
	case r == within, r == above && s.kind == links:
		return g.protected(c, full, by[0])
	}
	if !g.writable(full) {
		g.unwritable(c, p, s.kind, s.quiet)
	}
	return goOn
}

// unresolved answers a call if the name's directory was not found. Normally the kernel won't find
// it either. But if the way goes through a link of /proc, the kernel follows it and the guard does
// not. So a protected last element is refused.
func (g *Guard) unresolved(c seccomp.Call, name string, err error) seccomp.Answer {
	if err != unix.ELOOP && err != unix.EXDEV {
		return goOn
	}
	for _, patterns := range g.names.top {
		for _, p := range patterns {
			for _, part := range p.parts {
				if match(part, last(name)) {
					return g.protected(c, path.Clean(name), p)
				}
			}
		}
	}
	return goOn
}

// open answers opens for writing.
func (g *Guard) open(c seccomp.Call) seccomp.Answer {
	dirArg, arg, flags := openShape(c.Name, c.Args)
	name, ok := text(c, arg)
	if !ok || flags&unix.O_TMPFILE == unix.O_TMPFILE {
		return goOn
	}
	follows := flags&unix.O_NOFOLLOW == 0 && flags&(unix.O_CREAT|unix.O_EXCL) != unix.O_CREAT|unix.O_EXCL
	full, plain := g.plain(c, dirArg, name)
	if plain && (flags&unix.O_CREAT == 0 || !follows || !g.isLink(c, full)) || !c.Waits() {
		return goOn
	}
	// A link may lead to a name that does not exist, which the open then creates.
	for range 40 {
		p, err := g.locate(c, dirArg, name)
		if err != nil {
			return g.unresolved(c, name, err)
		}
		st, exists := p.stat()
		if follows && exists && st.Mode&unix.S_IFMT == unix.S_IFLNK {
			to, err := p.readlink()
			p.close()
			if err != nil {
				return goOn
			}
			if dirArg = -1; strings.HasPrefix(to, "/") {
				name = to
			} else {
				name = p.dir + "/" + to
			}
			continue
		}
		defer p.close()
		if r := g.replacing(p); r != nil && !strings.HasSuffix(name, "/") {
			return r.open(c, p.base, flags)
		}
		return g.opened(c, p, flags, exists)
	}
	return goOn // ELOOP
}

// isLink reports whether a name is a link, or can't be examined. It may then lead to a name that
// the open creates.
func (g *Guard) isLink(c seccomp.Call, full string) bool {
	root, done, err := g.rootOf(c)
	if err != nil {
		return true
	}
	defer done()
	fd, err := openat2(root, full, unix.O_NOFOLLOW, scoped)
	if err != nil {
		return err != unix.ENOENT && err != unix.ENOTDIR
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	return unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT == unix.S_IFLNK
}

// opened decides about an open. Its links have been followed.
func (g *Guard) opened(c seccomp.Call, p *place, flags int, exists bool) seccomp.Answer {
	creates := flags&unix.O_CREAT != 0
	if !exists && !creates || exists && creates && flags&unix.O_EXCL != 0 {
		return goOn
	}
	full := p.full()
	r, by := g.protects(full, g.wasRepository(c))
	if r == within {
		return g.protected(c, full, by[0])
	}
	if !g.writable(full) {
		k := opens
		if !exists {
			k = makes
		}
		g.unwritable(c, p, k, false)
	}
	return goOn
}

// rename answers renames. It refuses to rename a protected name or a directory that holds one, to
// rename over one, and to move in a directory that contains one.
func (g *Guard) rename(c seccomp.Call) seccomp.Answer {
	oldDir, oldPath, newDir, newPath, flags := renameShape(c.Name, c.Args)
	oldName, ok1 := text(c, oldPath)
	newName, ok2 := text(c, newPath)
	if !ok1 || !ok2 || !g.names.star && g.isPlain(c, oldDir, oldName) && g.isPlain(c, newDir, newName) || !c.Waits() {
		return goOn
	}
	from, err := g.locate(c, oldDir, oldName)
	if err != nil {
		return g.unresolved(c, oldName, err)
	}
	defer from.close()
	to, err := g.locate(c, newDir, newName)
	if err != nil {
		return g.unresolved(c, newName, err)
	}
	defer to.close()
	if r := g.replacing(from); r != nil && r == g.replacing(to) {
		return r.rename(from.base, to.base, flags)
	}
	if _, exists := from.stat(); !exists {
		return goOn
	}
	if full, by := g.moves(c, from, to); by != nil {
		return g.protected(c, full, by)
	}
	if flags&unix.RENAME_EXCHANGE != 0 {
		if full, by := g.moves(c, to, from); by != nil {
			return g.protected(c, full, by)
		}
	}
	switch {
	case !g.writable(from.full()):
		g.unwritable(c, from, removes, false)
	case !g.writable(to.full()):
		g.unwritable(c, to, opens, false)
	}
	return goOn
}

// repository is the pattern for the .git of a repository that existed before the box.
var repository = &pattern{Protected: &Protected{Pattern: ".git", Rule: "built-in: git configuration"}, parts: []string{".git"}}

// moves returns the pattern that forbids a move, and the path of the two that it concerns. If the
// move is allowed, the pattern is nil.
func (g *Guard) moves(c seccomp.Call, from, to *place) (string, *pattern) {
	was, old, full := g.wasRepository(c), from.full(), to.full()
	if p := g.names.holds[old]; p != nil {
		return old, p
	}
	// If a .git could be moved away and back, its directory could be filled without its protection
	// in between.
	if last(old) == ".git" && was(parent(old)) {
		return old, repository
	}
	if r, by := g.protects(old, was); r == within {
		return old, by[0]
	}
	r, by := g.protects(full, was)
	if r == within {
		return full, by[0]
	}
	st, _ := from.stat()
	for _, p := range by {
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFLNK:
			return full, p
		case unix.S_IFDIR:
			if rest := p.parts[strings.Count(full[len(p.at(full)):], "/"):]; from.carries(rest) {
				return full, p
			}
		}
	}
	return "", nil
}

// at returns the directory whose pattern leads through full.
func (p *pattern) at(full string) string {
	for dir := parent(full); ; dir = parent(dir) {
		if relate(p.parts, strings.TrimPrefix(full[len(dir):], "/")) == above {
			if dir == "/" {
				return ""
			}
			return dir
		}
		if dir == "/" {
			return ""
		}
	}
}

// carries reports whether the directory contains a file at a relative name.
func (p *place) carries(parts []string) bool {
	rel := p.base
	for _, part := range parts {
		if strings.Contains(part, "*") {
			break // the directory above is enough
		}
		rel += "/" + part
	}
	fd, err := openat2(p.fd, rel, unix.O_NOFOLLOW, unix.RESOLVE_BENEATH|unix.RESOLVE_NO_MAGICLINKS)
	if err != nil {
		return err != unix.ENOENT && err != unix.ENOTDIR
	}
	_ = unix.Close(fd)
	return true
}
