package settings

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// machine are the top-level directories that belong to the system or the kernel. Their files come
// from packages and are for everybody to read, or the list of secrets has their paths.
var machine = map[string]bool{
	"bin": true, "sbin": true, "lib": true, "lib32": true, "lib64": true, "libx32": true, "usr": true, "etc": true, "dev": true, "proc": true, "sys": true, "boot": true, "run": true, "tmp": true,
	"nix": true, "gnu": true, "snap": true, "lost+found": true,
}

// fetchedBelowHome are directories below a home with public files that package managers fetched.
// They are the largest part of most homes, and hold no personal files.
var fetchedBelowHome = map[string]bool{
	".cache": true, ".npm": true, ".nvm": true, ".bun/install": true, ".deno": true, ".local/share/pnpm": true, ".yarn": true,
	".cargo/registry": true, ".cargo/git": true, ".rustup": true, "go/pkg/mod": true, ".m2/repository": true, ".gradle/caches": true,
	".pyenv/versions": true, ".rbenv/versions": true, ".local/share/uv": true, ".local/share/mise/installs": true, ".conda/pkgs": true,
	".vscode-server": true, ".cursor-server": true, ".local/lib": true, ".nuget/packages": true, ".pub-cache": true, ".hex": true,
}

// fetched reports whether a directory holds only fetched files: caches of package managers, and
// git's own files. It is asked only about directories that are neither writable nor named.
func (v *resolver) fetched(dir, name string) bool {
	if name == "node_modules" || name == ".git" {
		return true
	}
	return inside(dir, v.home) && len(dir) > len(v.home) && fetchedBelowHome[strings.TrimPrefix(dir[len(v.home):], "/")]
}

// elsewhere lists the directories with people's own files, besides the writable ones: named are
// those that a layer opens by name, rest are those that are readable because nothing closes them.
func (v *resolver) elsewhere(written []string) (named, rest []string) {
	slices.SortFunc(v.patterned, comparePaths)
	named = v.searchable(v.patterned, written)
	if v.Elsewhere == 0 || v.OS != "linux" || v.box.Tier != tierOf("") {
		return append(named, v.openedInPrivate()...), nil
	}
	people := []string{"/opt"} // is read even where nothing else is
	if v.tree.readDefault {
		people = v.people()
	}
	for p, at := range v.tree.points {
		if at.read != nil && !at.read.op.deny() && !v.systemDir(p) && !ofMachine(p) {
			named = append(named, p)
		}
	}
	slices.SortFunc(named, comparePaths)
	slices.SortFunc(people, comparePaths)
	named = v.searchable(named, written)
	rest = v.searchable(people, slices.Concat(written, named))
	return append(named, v.openedInPrivate()...), rest
}

// searchable returns the directories of a sorted list that need a search: not closed, not the box's
// own, and not inside one that is searched already.
func (v *resolver) searchable(list, already []string) (out []string) {
	for _, p := range list {
		within := func(dir string) bool { return inside(p, dir) }
		if a, _ := v.tree.access(p); a == Denied || slices.ContainsFunc(already, within) || slices.ContainsFunc(out, within) || slices.ContainsFunc(v.box.Private, within) {
			continue
		}
		if info, err := os.Lstat(p); err == nil && info.IsDir() {
			out = append(out, p)
		}
	}
	return out
}

// ofMachine reports whether a path belongs to the system or the kernel.
func ofMachine(p string) bool {
	first, _, _ := strings.Cut(p[1:], "/")
	return p == "/" || machine[first]
}

// openedInPrivate returns directories of this machine that a layer opens for reading although they
// are inside a directory that is the box's own, such as /tmp.
func (v *resolver) openedInPrivate() (out []string) {
	for p, at := range v.tree.points {
		if at.read != nil && at.read.op == readAllow && slices.ContainsFunc(v.box.Private, func(dir string) bool { return inside(p, dir) }) {
			if info, err := os.Lstat(p); err == nil && info.IsDir() {
				out = append(out, p)
			}
		}
	}
	slices.Sort(out)
	return out
}

// inOrder returns the rest as a stack for the search; the end is searched first. In each person's
// directory, files of programs ("~/.cargo") are searched before people's own files. So a search
// that runs out of time closes no tool.
func (v *resolver) inOrder(rest []string) []level {
	var end, first, last []level
	for _, dir := range rest {
		last = append(last, level{dir: dir, flat: true})
		// The search itself meets this error again and judges it.
		_ = listDir(dir, make([]byte, 16<<10), func(name []byte, typ os.FileMode, _ uint64) {
			if typ != os.ModeDir {
				return
			}
			l := level{dir: sight{level: level{dir: dir}, name: string(name)}.path(), depth: 1}
			if v.fetched(l.dir, string(name)) {
				return
			}
			switch {
			case slices.Contains(mounted, dir):
				end = append(end, l)
			case name[0] == '.' || !inside(v.home, dir):
				last = append(last, l)
			default:
				first = append(first, l)
			}
		})
	}
	return slices.Concat(end, first, last)
}

// mostClosed is the most directories that are closed because there was no time to search them. If
// there are more, their parents are closed instead.
const mostClosed = 32

// outOfTime closes the directories that were not searched.
func (v *resolver) outOfTime(left []level, rest []string) {
	dirs := map[string]bool{}
	for _, l := range left {
		dirs[l.dir] = true
	}
	for len(dirs) > mostClosed && raise(dirs, rest) {
	}
	list := slices.SortedFunc(maps.Keys(dirs), comparePaths)
	list = slices.DeleteFunc(list, func(p string) bool { return dirs[filepath.Dir(p)] })
	var names []string
	for _, dir := range list {
		v.tree.add(&decision{path: dir, op: readDeny, glob: true, rule: "built-in: there was no time to search it for secrets", source: "built-in"})
		names = append(names, v.short(dir))
		if at := v.tree.points[v.dir]; inside(v.dir, dir) && (at == nil || at.read == nil) {
			v.tree.add(&decision{path: v.dir, op: readAllow, rule: "built-in: working directory", source: "built-in"})
		}
	}
	if len(list) > 0 {
		v.note("!these were not searched for secrets within %s, and are closed: %s: --read DIRECTORY has one searched, however long that takes", v.Elsewhere, strings.Join(names, " "))
	}
}

// raise replaces the deepest directories by their parents. It returns false if only directories at
// which the search began are left.
func raise(dirs map[string]bool, roots []string) bool {
	deepest := 0
	depth := func(p string) int {
		if slices.Contains(roots, p) {
			return 0
		}
		return strings.Count(p, "/")
	}
	for p := range dirs {
		deepest = max(deepest, depth(p))
	}
	if deepest == 0 {
		return false
	}
	for p := range maps.Clone(dirs) {
		if depth(p) == deepest {
			delete(dirs, p)
			dirs[filepath.Dir(p)] = true
		}
	}
	return true
}

// mounted are directories in which other disks and machines are mounted, and what servers serve
// lies. They are often large, and may be slow.
var mounted = []string{"/srv", "/mnt", "/media"}

// people returns directories that are searched although nobody named them: the home, and the
// directory around the working directory, unless it belongs to the system or to other people.
func (v *resolver) people() (out []string) {
	if !ofMachine(v.home) {
		out = append(out, v.home)
	}
	if beside := filepath.Dir(v.dir); !v.systemDir(beside) && !ofMachine(beside) && !inside(v.home, beside) {
		out = append(out, beside)
	}
	for _, dir := range append([]string{"/opt"}, mounted...) {
		if !inside(v.home, dir) {
			out = append(out, dir)
		}
	}
	return out
}

// environmentFile closes a file because of its name.
var environmentFile = wanted{op: readDeny, rule: "built-in: environment files", source: "built-in"}

// unlisted closes a directory that can't be searched: its names can't be listed although the files
// could be opened, or it is so deep that the walls can't name its files.
func (v *resolver) unlisted(dir string) {
	v.tree.add(&decision{path: dir, op: readDeny, glob: true, rule: "built-in: it can't be searched for secrets", source: "built-in"})
	loud := ""
	if inside(dir, v.dir) {
		loud = "!"
	}
	v.note("%s%s can't be searched for secrets and is closed: --read %s opens it", loud, v.short(dir), v.short(dir))
}

// file is the identity of a file, independent of its names.
type file struct{ dev, ino uint64 }

// covered is a file that is closed by its path or by its directory's path.
type covered struct {
	path string
	by   *decision
}

// sameFile closes another name of a covered file.
func (v *resolver) sameFile(list []covered, p string) {
	f, links, ok := fileOf(p)
	if !ok || links < 2 {
		return
	}
	for _, c := range list {
		if same, _, ok := fileOf(c.path); ok && same == f && c.path != p {
			v.alsoClosed(p, c.by, "another name of "+v.short(c.path))
			return
		}
	}
}

// alsoClosed closes another path to something that is closed.
func (v *resolver) alsoClosed(p string, by *decision, why string) {
	if a, _ := v.tree.access(p); a == Denied {
		return
	}
	d := *by
	d.path, d.glob = p, true
	d.rule += ", " + why
	v.tree.add(&d)
}

// stores are kinds of secrets that programs keep by the thousand. The search looks only at their
// top directory for links, and at none of their files for other names. Nobody keeps keys there by a
// link.
var stores = []string{"browser profiles", "mail and chat", "other users' homes", "agents' credentials", "carrel's own state", "core dumps", "journals and logs", "mail and print spools", "daemon data", "keyrings"}

// follow closes the targets of links in closed directories, and records which files are closed.
func (v *resolver) follow() {
	v.box.covered = map[uint64][]covered{}
	by := map[string]*decision{}
	var levels []level
	begin := func(d *decision) {
		if info, err := os.Lstat(d.path); err != nil {
			return
		} else if info.IsDir() {
			by[d.path] = d
			levels = append(levels, level{dir: d.path, links: true, shallow: ofMachine(d.path) || slices.ContainsFunc(stores, func(r string) bool { return d.rule == "built-in: "+r })})
		} else if info.Mode().IsRegular() {
			v.cover(d.path, d)
		}
	}
	for _, at := range v.tree.points {
		if at.read != nil && at.read.op == readDeny {
			begin(at.read)
		}
	}
	for round := 0; len(levels) > 0 && round < 40; round++ { // the kernel follows as many links
		c := &crew{
			keep: func(l level, _ []byte, typ os.FileMode, _ uint64) bool {
				return typ == os.ModeSymlink || typ == 0 && !l.shallow
			},
			enter: func(l level, name string) (level, bool) { return level{links: true}, !l.shallow },
		}
		seen, _ := c.run(levels, 0)
		levels = nil
		for _, e := range seen {
			d := ruleAbove(by, e.dir)
			if d == nil {
				continue
			}
			if e.typ == 0 {
				v.box.covered[e.ino] = append(v.box.covered[e.ino], covered{e.path(), d})
				continue
			}
			to := v.linked(e.path())
			if to == "" || v.system(to) {
				continue
			}
			if a, _ := v.tree.access(to); a == Denied {
				continue
			}
			v.alsoClosed(to, d, v.short(e.path())+" leads there")
			if at := v.tree.points[to]; at != nil && at.read != nil && at.read.op == readDeny {
				begin(at.read)
			}
		}
	}
}

// cover records a closed file that has several names.
func (v *resolver) cover(p string, d *decision) {
	if f, links, ok := fileOf(p); ok && links > 1 {
		v.box.covered[f.ino] = append(v.box.covered[f.ino], covered{p, d})
	}
}

// ruleAbove returns the decision about the nearest directory above.
func ruleAbove(by map[string]*decision, dir string) *decision {
	for {
		if d := by[dir]; d != nil || dir == "/" {
			return d
		}
		dir = filepath.Dir(dir)
	}
}
