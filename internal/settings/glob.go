package settings

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// target is the meaning of a pattern.
type target struct {
	path string // a literal path, absolute and clean; "" for patterns
	// dir and rest belong to a pattern: rest is relative to dir or, if deep is set, to any
	// directory below dir too.
	dir, rest string
	deep      bool
}

const meta = "*?["

// target reads a pattern of a layer. In a list that closes, a name without a slash means every such
// name below the working directory. In a list that opens, it means that only with globs, because
// opening must be exact.
func (v *resolver) target(l *layer, p string, closes bool) (target, error) {
	if strings.IndexByte(p, 0) >= 0 {
		return target{}, fmt.Errorf("%s has a NUL in it", show(p))
	}
	if p == "" {
		return target{}, fmt.Errorf("an empty path")
	}
	raw := p
	named := strings.HasPrefix(p, "/") || strings.HasPrefix(p, "~") || strings.Contains(p, "/")
	if rest, ok := strings.CutPrefix(p, "~"); ok {
		if rest != "" && rest[0] != '/' {
			return target{}, fmt.Errorf("%s: another user's home is written in full", show(p))
		}
		p = v.home + rest
	}
	if l.literal(raw) {
		if !strings.HasPrefix(p, "/") {
			p = l.Dir + "/" + p
		}
		return target{path: path.Clean(p)}, nil
	}
	if p = strings.TrimSuffix(strings.TrimSuffix(p, "/**"), "/"); p == "" {
		p = "/"
	}
	if !named && strings.ContainsAny(p, meta) && v.exists(l.Dir+"/"+p) {
		return target{path: path.Clean(l.Dir + "/" + p)}, nil
	}
	if !named && p != "." && p != ".." && (closes || strings.ContainsAny(p, meta)) {
		return target{dir: v.dir, rest: p, deep: true}, checkGlob(p)
	}
	if rest, ok := strings.CutPrefix(p, "**/"); ok && !strings.Contains(rest, "**") {
		return target{dir: v.dir, rest: path.Clean(rest), deep: true}, checkGlob(rest)
	}
	if !strings.HasPrefix(p, "/") {
		p = l.Dir + "/" + p
	}
	p = path.Clean(p)
	if !strings.ContainsAny(p, meta) || v.exists(p) {
		return target{path: p}, nil
	}
	// The search begins at the literal elements in front.
	elems := strings.Split(p[1:], "/")
	n := 0
	for n < len(elems) && !strings.ContainsAny(elems[n], meta) {
		n++
	}
	t := target{dir: "/" + strings.Join(elems[:n], "/"), rest: strings.Join(elems[n:], "/")}
	if rest, ok := strings.CutPrefix(t.rest, "**/"); ok && !strings.Contains(rest, "**") {
		t.rest, t.deep = rest, true
	}
	return t, checkGlob(t.rest)
}

// checkGlob refuses patterns that can't be matched.
func checkGlob(p string) error {
	for e := range strings.SplitSeq(p, "/") {
		if _, err := path.Match(e, ""); err != nil {
			return fmt.Errorf("%s is no pattern: a [ is not closed, or a \\ ends it", show(p))
		}
		if strings.Contains(e, "**") && e != "**" {
			return fmt.Errorf("%s is no pattern: ** stands for whole directories", show(p))
		}
	}
	return nil
}

// matchPath matches a relative path with a pattern whose "**" stands for any number of directories.
func matchPath(pattern, name string) bool {
	return matchElements(strings.Split(pattern, "/"), strings.Split(name, "/"))
}

func matchElements(p, s []string) bool {
	for len(p) > 0 && p[0] != "**" {
		if len(s) == 0 {
			return false
		}
		if ok, _ := path.Match(p[0], s[0]); !ok {
			return false
		}
		p, s = p[1:], s[1:]
	}
	if len(p) == 0 {
		return len(s) == 0
	}
	for len(p) > 1 && p[1] == "**" {
		p = p[1:]
	}
	for i := 0; i <= len(s); i++ {
		if matchElements(p[1:], s[i:]) {
			return true
		}
	}
	return false
}

// maxEntries bounds the number of entries that a search in the filesystem looks at. Tests lower it.
var maxEntries = 20_000

// Bounds of a search in the filesystem.
const (
	maxMatches = 4096 // of one pattern
	maxDepth   = 5    // directories below its start
)

// glob finds the matches of a pattern, in dir and below. The number of entries is bounded, because
// anybody may have made the tree; cut reports that the bound was reached.
func (v *resolver) glob(t target) (found []string, cut bool, err error) {
	left := maxEntries
	deepest := maxDepth
	if !t.deep && !strings.Contains(t.rest, "**") {
		deepest = strings.Count(t.rest, "/")
	}
	var look func(dir, rel string, depth int)
	look = func(dir, rel string, depth int) {
		list, _ := v.readDir(dir)
		for _, e := range list {
			if left--; left < 0 || len(found) > maxMatches {
				cut = true
				return
			}
			name := e.Name()
			if rel != "" {
				name = rel + "/" + name
			}
			if matchPath(t.rest, name) || t.deep && matchTail(t.rest, name) {
				found = append(found, filepath.Join(dir, e.Name()))
			}
			if e.IsDir() && depth < deepest && !skipped[e.Name()] {
				look(dir+"/"+e.Name(), name, depth+1)
			} else if e.IsDir() && depth >= deepest && (t.deep || strings.Contains(t.rest, "**")) {
				cut = true
			}
		}
	}
	look(t.dir, "", 0)
	if len(found) > maxMatches {
		return nil, cut, fmt.Errorf("it matches more than %d paths: name a directory", maxMatches)
	}
	return found, cut, nil
}

// matchTail matches the last elements of a name.
func matchTail(pattern, name string) bool {
	have, need := strings.Count(name, "/"), strings.Count(pattern, "/")
	for ; have > need; have-- {
		_, name, _ = strings.Cut(name, "/")
	}
	return matchPath(pattern, name)
}

// skipped are directories that programs fill and people don't. Nothing is searched for in them.
var skipped = map[string]bool{
	".git": true, "node_modules": true, ".venv": true, "venv": true, "__pycache__": true, ".tox": true, ".nox": true, ".mypy_cache": true, ".pytest_cache": true, ".ruff_cache": true, "site-packages": true,
	".next": true, ".nuxt": true, ".cache": true, ".gradle": true, ".terraform": true, "Pods": true, ".pnpm-store": true, ".yarn": true, "bower_components": true, ".svn": true, ".hg": true, ".jj": true, ".sl": true,
}

// readDir lists a directory without sorting or looking at each entry.
func (v *resolver) readDir(dir string) ([]os.DirEntry, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.ReadDir(maxEntries + 1)
}
