package search

import (
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/carrel-dev/carrel/shell/vfs"
)

// rgRule is a line of .gitignore, or a -g.
type rgRule struct {
	pattern string
	base    string // absolute directory to which it is relative; "" for -g
	negate  bool
	dirOnly bool
	rooted  bool // matches directly below base, otherwise at any depth
}

func newRule(line, base string, negate bool) rgRule {
	r := rgRule{base: base, negate: negate}
	if strings.HasSuffix(line, "/") {
		r.dirOnly = true
		line = strings.TrimSuffix(line, "/")
	}
	if strings.Contains(line, "/") {
		r.rooted = true
		line = strings.TrimPrefix(line, "/")
	}
	r.pattern = line
	return r
}

// matches reports whether the rule matches a path below base, or its last name.
func (r *rgRule) matches(rel, name string, dir bool) bool {
	if r.dirOnly && !dir {
		return false
	}
	for _, p := range braces(r.pattern, 0) {
		if r.rooted && globMatch(p, rel, true) || !r.rooted && globMatch(p, name, true) {
			return true
		}
	}
	return false
}

// braces expands {a,b}, up to a limit.
func braces(p string, depth int) []string {
	open := strings.IndexByte(p, '{')
	if open < 0 || depth > 4 {
		return []string{p}
	}
	end := strings.IndexByte(p[open:], '}')
	if end < 0 {
		return []string{p}
	}
	var out []string
	for alt := range strings.SplitSeq(p[open+1:open+end], ",") {
		if len(out) > 256 {
			break
		}
		out = append(out, braces(p[:open]+alt+p[open+end+1:], depth+1)...)
	}
	return out
}

// ignores reads the ignore files of a directory.
func (r *rg) ignores(dir string, git bool) []rgRule {
	var out []rgRule
	names := []string{".ignore", ".rgignore"}
	if git {
		names = []string{".gitignore", ".ignore", ".rgignore"}
	}
	for _, name := range names {
		data, err := r.FS().ReadFile(path.Join(dir, name))
		if err != nil || len(data) > 1<<20 || !r.Step(1+len(data)>>6) {
			continue
		}
		for line := range strings.Lines(string(data)) {
			line = strings.TrimRight(line, "\r\n \t")
			if line == "" || line[0] == '#' {
				continue
			}
			neg := line[0] == '!'
			out = append(out, newRule(strings.TrimPrefix(line, "!"), dir, neg))
		}
	}
	return out
}

// inRepo reports whether a directory is in a git repository.
func (r *rg) inRepo(dir string) bool {
	for ; ; dir = path.Dir(dir) {
		if _, err := r.FS().Stat(path.Join(dir, ".git")); err == nil {
			return true
		}
		if dir == "/" || dir == "." {
			return false
		}
	}
}

// rgDir is a directory to walk.
type rgDir struct {
	name  string
	depth int
	rules []rgRule // rules of the directories above come first
	git   bool
}

// walk searches a tree.
func (r *rg) walk(root string) {
	abs := path.Clean(r.Abs(root))
	first := rgDir{name: root, git: r.noGit || r.inRepo(abs)}
	if !r.noIgnore {
		var above []string
		for d := abs; d != "/"; {
			d = path.Dir(d)
			above = append(above, d)
		}
		slices.Reverse(above)
		for _, d := range above {
			first.rules = append(first.rules, r.ignores(d, first.git)...)
		}
	}
	r.dir(first)
}

// dir searches a directory in path order.
func (r *rg) dir(d rgDir) {
	if r.failed || d.depth > 500 {
		return
	}
	entries, err := r.FS().ReadDir(r.Abs(d.name))
	if err != nil {
		r.complain(d.name, err)
		return
	}
	if !r.Step(10 + len(entries)) {
		r.failed = true
		return
	}
	if r.depth >= 0 && d.depth >= r.depth {
		return
	}
	rules := d.rules
	abs := path.Clean(r.Abs(d.name))
	git := d.git
	if !git {
		git = slices.ContainsFunc(entries, func(e vfs.Info) bool { return e.Name == ".git" })
	}
	if !r.noIgnore {
		rules = append(slices.Clip(rules), r.ignores(abs, git)...)
	}
	for _, e := range entries {
		if r.failed {
			return
		}
		name := strings.TrimSuffix(d.name, "/") + "/" + e.Name
		if d.name == "./" && !r.given {
			name = e.Name
		}
		mode := e.Mode
		if mode&fs.ModeSymlink != 0 {
			i, err := r.FS().Stat(r.Abs(name))
			if !r.opts.deref || err != nil {
				continue
			}
			mode = i.Mode
		}
		if !mode.IsDir() && !mode.IsRegular() || !r.wanted(rules, path.Join(abs, e.Name), e.Name, mode.IsDir()) {
			continue
		}
		if mode.IsDir() {
			r.dir(rgDir{name, d.depth + 1, rules, git})
		} else {
			r.one(name, false)
		}
	}
}

// wanted reports whether a file or directory is not ignored and not hidden.
func (r *rg) wanted(rules []rgRule, abs, name string, dir bool) bool {
	rel := strings.TrimPrefix(abs, strings.TrimSuffix(path.Clean(r.Dir()), "/")+"/")
	include := false
	for _, g := range slices.Backward(r.overs) {
		if g.matches(rel, name, dir) {
			if g.negate {
				return false
			}
			include = true
			break
		}
	}
	if !include {
		if slices.ContainsFunc(r.overs, func(g rgRule) bool { return !g.negate }) && !dir {
			return false
		}
		for _, g := range slices.Backward(rules) {
			rel := strings.TrimPrefix(strings.TrimPrefix(abs, g.base), "/")
			if g.matches(rel, name, dir) {
				if !g.negate {
					return false
				}
				include = true
				break
			}
		}
	}
	if !include && !r.hidden && strings.HasPrefix(name, ".") {
		return false
	}
	if dir {
		return true
	}
	match := func(p string) bool { return globMatch(p, name, true) }
	return (len(r.types) == 0 || slices.ContainsFunc(r.types, match)) && !slices.ContainsFunc(r.typesNot, match)
}
