package settings

import (
	"cmp"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// wanted is a pattern that the search below the writable directories looks for.
type wanted struct {
	pattern string // relative to any directory
	dir     string // only below it
	op      operation
	by      *layer
	rule    string
	source  Source
	hit     bool
}

// first returns the first element of the pattern.
func (w *wanted) first() string {
	first, _, _ := strings.Cut(w.pattern, "/")
	return first
}

// search looks through the working directory and the writable ones for names that must be closed
// wherever they are. One pass serves all patterns, and no pattern gives up early.
//
// Names that hold secrets are searched everywhere. Names that are protected from writing hold only
// v.depth directories deep, and not in directories that programs fill.
type search struct {
	v       *resolver
	literal map[string][]*wanted // by first element
	// byHead, byTail and rest are patterns whose first element has globs. byHead has them by their
	// first byte. byTail has those that begin with a star, by their last byte. rest has the others.
	byHead, byTail map[byte][]*wanted
	rest           []*wanted
	roots          map[string]bool
	closed         map[string]bool
	inodes         map[uint64][]covered // covered files, by inode number only
	beyond         bool                 // the directory is neither written nor named
}

func newSearch(v *resolver, list []*wanted) *search {
	s := &search{v: v, literal: make(map[string][]*wanted, len(list)), byHead: map[byte][]*wanted{}, byTail: map[byte][]*wanted{}, roots: map[string]bool{}, closed: v.closedDirs(), inodes: v.box.covered}
	for _, w := range list {
		first := w.first()
		switch head, tail := first[0], first[len(first)-1]; {
		case !strings.ContainsAny(first, meta):
			s.literal[first] = append(s.literal[first], w)
		case strings.IndexByte(meta, head) < 0 && head != '\\':
			s.byHead[head] = append(s.byHead[head], w)
		case head == '*' && strings.IndexByte(meta+"]\\", tail) < 0 && !strings.ContainsAny(first, "\\"):
			s.byTail[tail] = append(s.byTail[tail], w)
		default:
			s.rest = append(s.rest, w)
		}
	}
	return s
}

// closedDirs returns directories that are completely closed for reading: there is nothing to
// search.
func (v *resolver) closedDirs() map[string]bool {
	out := map[string]bool{}
	var open []string
	for p, at := range v.tree.points {
		switch {
		case at.read == nil && at.write == nil:
		case at.read != nil && at.read.op.deny():
			out[p] = true
		default:
			open = append(open, p)
		}
	}
	for _, p := range open {
		for dir := p; dir != "/"; dir = filepath.Dir(dir) {
			delete(out, dir)
		}
	}
	return out
}

// gitPointer closes a .git that is not a directory.
var gitPointer = wanted{op: writeDeny, rule: "built-in: git configuration", source: "built-in"}

// matches calls f for each pattern whose first element may match an entry's name, until f returns
// true.
func (s *search) matches(name []byte, f func(*wanted) bool) bool {
	if slices.ContainsFunc(s.literal[string(name)], f) {
		return true
	}
	if len(name) == 0 {
		return false
	}
	for _, list := range [][]*wanted{s.byHead[name[0]], s.byTail[name[len(name)-1]], s.rest} {
		for _, w := range list {
			if matchName1(w.first(), string(name)) && f(w) {
				return true
			}
		}
	}
	return false
}

// means reports whether a pattern holds in a directory.
func (s *search) means(w *wanted, l level) bool {
	return (w.op == readDeny || l.shallow) && (w.dir == "" || inside(l.dir, w.dir))
}

// keep is for the crew.
func (s *search) keep(l level, name []byte, typ fs.FileMode, ino uint64) bool {
	if s.inodes[ino] != nil && typ == 0 {
		return true
	}
	if l.shallow && gitName(name) {
		return true
	}
	return s.matches(name, func(w *wanted) bool { return s.means(w, l) })
}

// enter is for the crew.
func (s *search) enter(l level, name string) (level, bool) {
	if l.dir == "/" && machine[name] {
		return level{}, false
	}
	dir := sight{level: l, name: name}.path()
	if s.beyond && s.v.fetched(dir, name) {
		return level{}, false
	}
	next := level{dir: dir, shallow: l.shallow && !skipped[name] && l.depth < s.v.depth}
	return next, !s.roots[dir] && !s.closed[dir] && !(len(name) == 2 && strings.HasSuffix(l.dir, "/.git/objects"))
}

// run searches below the written directories. For secrets only, it also searches below the named
// ones and, as long as there is time, the rest.
func (s *search) run(written, named, rest []string) {
	levels := s.levels(nil, written, true)
	for _, dir := range written {
		s.root(dir)
	}
	s.pass(s.levels(levels, named, false), 0)
	if len(rest) == 0 {
		return
	}
	s.beyond = true
	order := slices.DeleteFunc(s.v.inOrder(rest), func(l level) bool { return s.roots[l.dir] || s.closed[l.dir] })
	s.v.outOfTime(s.pass(order, s.v.Elsewhere), rest)
}

// levels adds the directories that are not roots yet.
func (s *search) levels(list []level, dirs []string, shallow bool) []level {
	for _, dir := range dirs {
		if !s.roots[dir] {
			s.roots[dir] = true
			list = append(list, level{dir: dir, shallow: shallow})
		}
	}
	return list
}

// pass looks through directories and judges the found entries, those near the top first. It returns
// the levels that it did not reach.
func (s *search) pass(levels []level, atMost time.Duration) []level {
	c := &crew{keep: s.keep, enter: s.enter}
	seen, left := c.run(levels, atMost)
	slices.SortFunc(seen, func(a, b sight) int {
		return cmp.Or(cmp.Compare(a.depth, b.depth), strings.Compare(a.dir, b.dir), strings.Compare(a.name, b.name))
	})
	var shape gitShape
	for _, e := range seen {
		if e.shallow {
			shape.see(s.v, e.dir, e.name)
		}
		s.judge(e)
	}
	return left
}

// root checks names that begin with the directory's own name: ".claude/settings.json" in ~/.claude.
func (s *search) root(dir string) {
	name := filepath.Base(dir)
	for _, w := range s.literal[name] {
		if _, rest, more := strings.Cut(w.pattern, "/"); more && !strings.ContainsAny(rest, meta) && s.v.exists(dir+"/"+rest) {
			s.v.closeFound(w, dir+"/"+rest)
		}
	}
}

// judge decides about one entry that the crew found.
func (s *search) judge(e sight) {
	if e.name == "" {
		s.v.unlisted(e.dir)
		return
	}
	if l := s.inodes[e.ino]; l != nil && e.typ == 0 {
		s.v.sameFile(l, e.path())
	}
	if e.shallow && e.name == ".git" && e.typ != fs.ModeDir {
		s.v.closeFound(&gitPointer, e.path()) // of a worktree or submodule: another one could name other hooks
	}
	s.matches([]byte(e.name), func(w *wanted) bool {
		if s.means(w, e.level) {
			s.found(w, e)
		}
		return false
	})
}

// matchName1 matches one element. It is fast for patterns with stars only.
func matchName1(pattern, name string) bool {
	if !strings.ContainsAny(pattern, "?[\\") {
		return matchStars(pattern, name)
	}
	ok, _ := filepath.Match(pattern, name)
	return ok
}

func (s *search) found(w *wanted, e sight) {
	if w.op == readDeny && w.by == nil && sample(e.name) {
		return
	}
	_, rest, more := strings.Cut(w.pattern, "/")
	p := e.path()
	if !more {
		s.v.closeFound(w, p)
		return
	}
	if e.typ != fs.ModeSymlink && e.typ != fs.ModeDir {
		return
	}
	if !strings.ContainsAny(rest, meta) {
		if s.v.exists(p + "/" + rest) {
			s.v.closeFound(w, p+"/"+rest)
		}
		return
	}
	list, _, _ := s.v.glob(target{dir: p, rest: rest})
	for _, f := range list {
		s.v.closeFound(w, f)
	}
}

// sample reports whether an environment file is a sample, made for reading.
func sample(name string) bool {
	for _, p := range environmentSamples {
		if matchStars(p, name) {
			return true
		}
	}
	return false
}

// secretName reports whether files of this name hold secrets by custom.
func secretName(name string) bool {
	for _, p := range environmentFiles {
		if matchStars(p, name) {
			return !sample(name)
		}
	}
	return false
}

// inside reports whether path is dir or below it.
func inside(path, dir string) bool {
	if dir == "/" {
		return strings.HasPrefix(path, "/")
	}
	return path == dir || len(path) > len(dir) && path[len(dir)] == '/' && path[:len(dir)] == dir
}
