package git

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// condition is the difference between HEAD, the index and the work tree.
type condition struct {
	staged, unstaged []change
	unmerged         map[string]int
	untracked        []string
	ignored          []string
}

// disk compares the index with the work tree.
func (r *repo) disk(x *staging) ([]change, error) {
	var out []change
	bad := x.unmerged()
	for _, e := range x.Entries {
		if e.Stage != 0 || e.SkipWorktree {
			continue
		}
		if !r.Step(4) {
			return nil, tool.ErrStop
		}
		was := entry{e.Mode, e.Hash}
		i, ok := r.lstat(e.Name)
		if !ok || i.Mode.IsDir() && e.Mode.IsFile() {
			out = append(out, change{kind: 'D', old: e.Name, new: e.Name, from: was})
			continue
		}
		if i.Mode.IsDir() {
			continue // a submodule
		}
		h, err := r.hashOf(e.Name, i, e)
		if err != nil {
			return nil, err
		}
		if now := (entry{modeOf(i), h}); e.IntentToAdd {
			out = append(out, change{kind: 'A', old: e.Name, new: e.Name, to: now})
		} else if now != was {
			c := change{kind: 'M', old: e.Name, new: e.Name, from: was, to: now}
			if (now.mode == 0o120000) != (was.mode == 0o120000) {
				c.kind = 'T'
			}
			out = append(out, c)
		}
	}
	for name := range bad {
		out = append(out, change{kind: 'U', old: name, new: name})
	}
	sortChanges(out)
	return out, nil
}

// condition finds all that status shows. mode is no, normal or all.
func (r *repo) condition(x *staging, mode string, ignored bool) (*condition, error) {
	_, at := r.head()
	head, err := r.treeOf(at)
	if err != nil {
		return nil, err
	}
	s := &condition{unmerged: x.unmerged()}
	staged := x.snapshot()
	for name := range s.unmerged {
		delete(head, name)
		delete(staged, name)
	}
	if s.staged, err = r.renames(changes(head, staged), r.stored, r.stored); err != nil {
		return nil, err
	}
	if s.unstaged, err = r.disk(x); err != nil {
		return nil, err
	}
	s.unstaged = slices.DeleteFunc(s.unstaged, func(c change) bool { return c.kind == 'U' })
	if mode == "no" {
		return s, nil
	}
	return s, r.untracked(x, s, mode, ignored)
}

// untracked finds the files that are not in the index.
func (r *repo) untracked(x *staging, s *condition, mode string, ignored bool) error {
	dirs := map[string]bool{}
	known := map[string]bool{}
	for _, e := range x.Entries {
		known[e.Name] = true
		for d := path.Dir(e.Name); d != "." && !dirs[d]; d = path.Dir(d) {
			dirs[d] = true
		}
	}
	g := r.ignores()
	last := ""
	skip := func(name string, isDir bool) bool {
		if known[name] || isDir && dirs[name] {
			return false
		}
		if g.match(name, isDir) {
			if isDir {
				name += "/"
			}
			if ignored && !isDir {
				s.ignored = append(s.ignored, name)
			} else if ignored && r.hasFiles(strings.TrimSuffix(name, "/")) {
				s.ignored = append(s.ignored, name)
			}
			return true
		}
		return false
	}
	return r.walk("", skip, func(name string, _ vfs.Info) error {
		if known[name] || known[strings.TrimSuffix(name, "/")] {
			return nil
		}
		if mode != "all" {
			for i, c := range name {
				if c == '/' && !dirs[name[:i]] {
					name = name[:i+1]
					break
				}
			}
			if name == last {
				return nil
			}
			last = name
		}
		s.untracked = append(s.untracked, name)
		return r.Pay(int64(len(name)) + 16)
	})
}

// hasFiles reports whether there is a file below a directory.
func (r *repo) hasFiles(dir string) bool {
	err := r.walk(dir, nil, func(string, vfs.Info) error { return tool.ErrStop })
	return err == tool.ErrStop
}

// cmdStatus is git status.
func cmdStatus(g *git, r *repo) error {
	f, err := g.flags("sbzvu::", "short=s", "branch=b", "porcelain=\x80::", "long=\x81", "untracked-files=u", "ignored=\x82::", "null=z", "verbose=v", "no-renames=\x83",
		"ahead-behind=\x83", "no-ahead-behind=\x83", "show-stash=\x83", "renames=\x83", "find-renames=\x84::", "column=\x84::", "no-column=\x83", "ignore-submodules=\x84::")
	if err != nil {
		return err
	}
	if err := r.needTree(); err != nil {
		return err
	}
	x, err := r.index()
	if err != nil {
		return err
	}
	mode := "normal"
	if f.Has('u') {
		if mode = f.Value('u', "all"); mode == "" {
			mode = "all"
		}
	}
	s, err := r.condition(x, mode, f.Has(0x82))
	if err != nil {
		return err
	}
	if f.Value(0x80, "") == "v2" || f.Value(0x80, "") == "2" {
		return fatalf("porcelain version 2 is not available here")
	}
	spec, err := r.pathspec(f.Args)
	if err != nil {
		return err
	}
	s.limit(spec)
	if f.Has('s') || f.Has(0x80) || f.Has('z') {
		r.shortStatus(s, f)
		return nil
	}
	r.longStatus(g.w.Write, s, mode, "", false)
	return nil
}

func (s *condition) limit(spec *pathspec) {
	if spec.all() {
		return
	}
	not := func(c change) bool { return !spec.match(c.new) }
	s.staged, s.unstaged = slices.DeleteFunc(s.staged, not), slices.DeleteFunc(s.unstaged, not)
	s.untracked = slices.DeleteFunc(s.untracked, func(n string) bool { return !spec.match(strings.TrimSuffix(n, "/")) && !spec.below(n) })
}

var conflicts = map[int]string{1: "DD", 2: "AU", 4: "UA", 3: "UD", 5: "DU", 6: "AA", 7: "UU"}

// shortStatus is status -s.
func (r *repo) shortStatus(s *condition, f tool.Flags) {
	end := "\n"
	name := quotePath
	relative := !f.Has(0x80)
	if f.Has('z') {
		end, relative = "\x00", false
		name = func(s string) string { return s }
	}
	spaced := func(n string) string {
		if relative {
			n = r.shown(n)
		}
		q := name(n)
		if strings.Contains(q, " ") && q[0] != '"' && !f.Has('z') {
			q = `"` + q + `"`
		}
		return q
	}
	if f.Has('b') {
		branch, at := r.head()
		switch {
		case branch == "":
			r.printf("## HEAD (no branch)%s", end)
		case at.IsZero():
			r.printf("## No commits yet on %s%s", strings.TrimPrefix(branch, "refs/heads/"), end)
		default:
			r.printf("## %s%s%s", strings.TrimPrefix(branch, "refs/heads/"), r.tracking(branch), end)
		}
	}
	type line struct {
		x, y byte
		old  string
	}
	lines := map[string]*line{}
	at := func(n string) *line {
		if lines[n] == nil {
			lines[n] = &line{' ', ' ', ""}
		}
		return lines[n]
	}
	for _, c := range s.staged {
		l := at(c.new)
		if l.x = c.kind; c.kind == 'R' {
			l.old = c.old
		}
	}
	for _, c := range s.unstaged {
		at(c.new).y = c.kind
	}
	for n, bits := range s.unmerged {
		l := at(n)
		l.x, l.y = conflicts[bits][0], conflicts[bits][1]
	}
	var names []string
	for n := range lines {
		names = append(names, n)
	}
	slices.Sort(names)
	for _, n := range names {
		l := lines[n]
		switch {
		case l.old != "" && f.Has('z'):
			r.printf("%c%c %s\x00%s\x00", l.x, l.y, n, l.old)
		case l.old != "":
			r.printf("%c%c %s -> %s\n", l.x, l.y, spaced(l.old), spaced(n))
		default:
			r.printf("%c%c %s%s", l.x, l.y, spaced(n), end)
		}
	}
	for _, n := range s.untracked {
		r.printf("?? %s%s", spaced(n), end)
	}
	for _, n := range s.ignored {
		r.printf("!! %s%s", spaced(n), end)
	}
}

// tracking returns the text that follows a branch's name in short status.
func (r *repo) tracking(branch string) string {
	up, _ := r.upstream(branch)
	if up == "" {
		return ""
	}
	s := "..." + strings.TrimPrefix(up, "refs/remotes/")
	ahead, behind, ok := r.distance(branch, up)
	switch {
	case !ok:
		return s + " [gone]"
	case ahead > 0 && behind > 0:
		return fmt.Sprintf("%s [ahead %d, behind %d]", s, ahead, behind)
	case ahead > 0:
		return fmt.Sprintf("%s [ahead %d]", s, ahead)
	case behind > 0:
		return fmt.Sprintf("%s [behind %d]", s, behind)
	}
	return s
}

// distance counts the commits that only one of two references has.
func (r *repo) distance(a, b string) (ahead, behind int, ok bool) {
	x, ok1 := r.ref(a)
	y, ok2 := r.ref(b)
	if !ok1 || !ok2 {
		return 0, 0, false
	}
	if x == y {
		return 0, 0, true
	}
	of, err1 := r.ancestors(x)
	to, err2 := r.ancestors(y)
	if err1 != nil || err2 != nil {
		return 0, 0, false
	}
	for h := range of {
		if !to[h] {
			ahead++
		}
	}
	for h := range to {
		if !of[h] {
			behind++
		}
	}
	return ahead, behind, true
}

// pathspec reads a command's paths.
func (r *repo) pathspec(args []string) (*pathspec, error) {
	p := &pathspec{r: r, hit: make([]bool, len(args))}
	for _, a := range args {
		if rest, ok := strings.CutPrefix(a, ":/"); ok {
			p.specs = append(p.specs, strings.Trim(rest, "/"))
			continue
		}
		if strings.HasPrefix(a, ":(") || strings.HasPrefix(a, ":!") || strings.HasPrefix(a, ":^") {
			return nil, fatalf("pathspec magic is not available here: '%s'", a)
		}
		s, err := r.rel(a)
		if err != nil {
			return nil, err
		}
		p.specs = append(p.specs, s)
	}
	return p, nil
}

// headCommit returns the commit of HEAD.
func (r *repo) headCommit() (*object.Commit, error) {
	_, at := r.head()
	if at.IsZero() {
		branch, _ := r.head()
		return nil, fatalf("your current branch '%s' does not have any commits yet", strings.TrimPrefix(branch, "refs/heads/"))
	}
	return r.commit(at)
}
