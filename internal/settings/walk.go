package settings

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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

// search looks through the working directory and the writable ones for names that are to be
// closed wherever they are. One pass serves all patterns; breadth first, so that what is cut off is what is deepest.
type search struct {
	v       *resolver
	list    []*wanted
	literal map[string][]*wanted // by first element
	globs   []*wanted            // whose first element has globs
	left    int
	end     time.Time
	cut     string
}

func newSearch(v *resolver, list []*wanted) *search {
	s := &search{v: v, list: list, literal: make(map[string][]*wanted, len(list)), left: maxEntries, end: time.Now().Add(maxSearch)}
	for _, w := range list {
		first, _, _ := strings.Cut(w.pattern, "/")
		if strings.ContainsAny(first, meta) {
			s.globs = append(s.globs, w)
		} else {
			s.literal[first] = append(s.literal[first], w)
		}
	}
	return s
}

// gitPointer closes a .git that is no directory.
var gitPointer = wanted{op: writeDeny, rule: "built-in: git configuration", source: "built-in"}

// level is a directory that is to be looked through.
type level struct {
	dir   string
	depth int
}

func (s *search) run(roots []string) {
	queue := make([]level, 0, 16)
	for _, r := range roots {
		queue = append(queue, level{r, 0})
	}
	seen := make(map[string]bool, 16)
	for len(queue) > 0 && s.cut == "" {
		l := queue[0]
		queue = queue[1:]
		if seen[l.dir] {
			continue
		}
		seen[l.dir] = true
		if l.depth == 0 {
			s.root(l.dir)
		}
		if l.depth > 0 && time.Now().After(s.end) {
			s.cut = fmt.Sprintf("after %s, in %s", maxSearch, show(l.dir))
			return
		}
		f, err := os.Open(l.dir)
		if err != nil {
			continue
		}
		queue = s.look(f, l, queue)
		f.Close()
	}
}

// root looks for names that begin with the directory's own: ".claude/settings.json" in ~/.claude.
func (s *search) root(dir string) {
	name := filepath.Base(dir)
	for _, w := range s.literal[name] {
		if _, rest, more := strings.Cut(w.pattern, "/"); more && !strings.ContainsAny(rest, meta) && s.v.exists(dir+"/"+rest) {
			s.v.closeFound(w, dir+"/"+rest)
		}
	}
}

// look goes through one directory.
func (s *search) look(f *os.File, l level, queue []level) []level {
	var shape gitShape
	for {
		list, err := f.ReadDir(512)
		for _, e := range list {
			shape.see(s.v, l.dir, e.Name())
			if s.left--; s.left < 0 {
				s.cut = fmt.Sprintf("after %d entries, in %s", maxEntries, show(l.dir))
				return queue
			}
			name := e.Name()
			s.entry(l.dir, name, e)
			if e.IsDir() && !skipped[name] {
				if l.depth < s.v.depth {
					queue = append(queue, level{l.dir + "/" + name, l.depth + 1})
				} else if s.v.deeper == "" {
					s.v.deeper = l.dir
				}
			}
		}
		if err != nil || len(list) == 0 {
			return queue
		}
	}
}

// entry looks at one name of a directory.
func (s *search) entry(dir, name string, e fs.DirEntry) {
	if name == ".git" && !e.IsDir() {
		s.v.closeFound(&gitPointer, dir+"/"+name) // of a worktree or submodule: another one would point to other hooks
	}
	for _, w := range s.literal[name] {
		s.found(w, dir, name, e)
	}
	for _, w := range s.globs {
		first, _, _ := strings.Cut(w.pattern, "/")
		if matchName1(first, name) {
			s.found(w, dir, name, e)
		}
	}
}

// matchName1 matches one element, quickly where there are only stars.
func matchName1(pattern, name string) bool {
	if !strings.ContainsAny(pattern, "?[\\") {
		return matchStars(pattern, name)
	}
	ok, _ := filepath.Match(pattern, name)
	return ok
}

func (s *search) found(w *wanted, dir, name string, e fs.DirEntry) {
	if w.dir != "" && !inside(dir, w.dir) {
		return
	}
	if w.op == readDeny && w.by == nil && sample(name) {
		return
	}
	_, rest, more := strings.Cut(w.pattern, "/")
	p := dir + "/" + name
	if !more {
		s.v.closeFound(w, p)
		return
	}
	if e.Type()&fs.ModeSymlink == 0 && !e.IsDir() {
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

// sample reports whether an environment file is one that is made to be read.
func sample(name string) bool {
	for _, p := range environmentSamples {
		if matchStars(p, name) {
			return true
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
