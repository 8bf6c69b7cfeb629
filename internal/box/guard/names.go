//go:build linux

package guard

import (
	"strings"

	"golang.org/x/sys/unix"
)

// pattern is a Protected, split into parts.
type pattern struct {
	*Protected
	parts []string
}

// relation is the relation of a path to a protected name.
type relation uint8

const (
	unrelated relation = iota
	within             // it is the name, or below it
	above              // the path is a directory that leads to the name
)

// names holds the protected names and where they are.
type names struct {
	// words are the parts of all patterns and the names of holders, in lower case. globs are the
	// parts that contain a "*". A path is interesting only if its last element is among these.
	words map[string]bool
	globs []string
	// star says that a pattern has the part "*". Then any name may match. But only a link, or a
	// directory moved there, can lead to a protected name.
	star bool
	// top are the patterns that apply at a directory. deep are those that apply in repositories
	// below it.
	top, deep map[string][]*pattern
	// repository are the holders that had a .git before the box.
	repository map[string]bool
	// before are the protected names that existed before the box, with their inodes. holds are the
	// directories above them, below a writable one. Moving such a directory would carry the name
	// away.
	before map[string]inode
	holds  map[string]*pattern
}

// inode is a file's identity.
type inode struct{ dev, ino uint64 }

func identity(st *unix.Stat_t) inode { return inode{st.Dev, st.Ino} }

// compile builds names from the rules and the directories in them.
func (g *Guard) compile() *names {
	n := &names{
		words: map[string]bool{}, top: map[string][]*pattern{}, deep: map[string][]*pattern{},
		repository: map[string]bool{}, before: map[string]inode{}, holds: map[string]*pattern{},
	}
	for i := range g.rules.Protected {
		r := &g.rules.Protected[i]
		p := &pattern{r, strings.Split(strings.Trim(r.Pattern, "/"), "/")}
		n.top[r.Dir] = append(n.top[r.Dir], p)
		if r.Deep {
			n.deep[r.Dir] = append(n.deep[r.Dir], p)
		}
		for _, part := range p.parts {
			n.word(part)
		}
	}
	for dir := range n.top {
		n.holder(dir)
	}
	g.nested(n)
	list := listing{}
	for dir, patterns := range n.top {
		for _, p := range patterns {
			g.existing(n, list, dir, p, p.parts)
		}
	}
	return n
}

func (n *names) word(part string) {
	switch {
	case part == "*":
		n.star = true
		return
	case strings.Contains(part, "*"):
		n.globs = append(n.globs, part)
		return
	}
	n.words[strings.ToLower(part)] = true
}

// holder checks whether a directory is a repository. A .git that is a file leads to a repository
// elsewhere. A change to it would choose another repository, so that file itself is protected.
func (n *names) holder(dir string) {
	var st unix.Stat_t
	if unix.Lstat(join(dir, ".git"), &st) != nil {
		return
	}
	n.repository[dir] = true
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return
	}
	for _, p := range n.top[dir] {
		if p.parts[0] == ".git" {
			r := *p.Protected
			r.Pattern = ".git"
			n.top[dir] = append(n.top[dir], &pattern{&r, []string{".git"}})
			return
		}
	}
}

// nested finds the repositories in subdirectories that the rules reveal: a read-only path that
// matches a pattern.
func (g *Guard) nested(n *names) {
	for full := range g.paths {
		for root, deep := range n.deep {
			if !below(full, root) {
				continue
			}
			for dir := parent(full); dir != root && below(dir, root); dir = parent(dir) {
				if n.top[dir] != nil || installed(dir[len(root):]) {
					continue
				}
				for _, p := range deep {
					if relate(p.parts, full[len(dir)+1:]) == within {
						var st unix.Stat_t
						if unix.Lstat(join(dir, ".git"), &st) == nil {
							n.top[dir] = deep
							n.holder(dir)
						}
						break
					}
				}
			}
		}
	}
}

// existing records which names of a pattern exist below at. at is a directory that leads to the
// pattern.
func (g *Guard) existing(n *names, list listing, at string, p *pattern, parts []string) {
	for _, name := range list.candidates(at, parts[0]) {
		full := join(at, name)
		var st unix.Stat_t
		if unix.Lstat(full, &st) != nil {
			continue
		}
		if len(parts) > 1 && st.Mode&unix.S_IFMT == unix.S_IFDIR {
			g.existing(n, list, full, p, parts[1:])
			continue
		}
		n.before[full] = identity(&st)
		for dir := parent(full); g.writable(dir) && g.paths[dir] == nil; dir = parent(dir) {
			n.holds[dir] = p
			n.word(last(dir))
		}
	}
}

// interesting reports whether a path with this last element may concern a protected name.
func (n *names) interesting(base string) bool {
	if n.words[strings.ToLower(base)] {
		return true
	}
	for _, g := range n.globs {
		if match(g, base) {
			return true
		}
	}
	return false
}

// protects returns the relation of a path to protected names, and their patterns. If the path is
// within one, it returns that pattern; otherwise all patterns that the path is above. wasRepository
// reports whether a directory had a .git before the box.
func (g *Guard) protects(full string, wasRepository func(dir string) bool) (relation, []*pattern) {
	n := g.names
	var leads []*pattern
	for dir := parent(full); ; dir = parent(dir) {
		rel := strings.TrimPrefix(full[len(dir):], "/")
		for _, p := range n.at(dir, rel, wasRepository) {
			switch r := relate(p.parts, rel); {
			case r == unrelated || r == within && g.lifted(full, dir, len(p.parts)):
			case r == above:
				leads = append(leads, p)
			case p.parts[0] == ".git" && !n.repository[dir] && n.top[dir] != nil:
				// A repository that the box made.
			default:
				return within, []*pattern{p}
			}
		}
		if dir == "/" {
			break
		}
	}
	if leads == nil {
		return unrelated, nil
	}
	return above, leads
}

// at returns the patterns that apply at a directory.
func (n *names) at(dir, rel string, wasRepository func(string) bool) []*pattern {
	if top := n.top[dir]; top != nil {
		return top
	}
	for root, deep := range n.deep {
		if !below(dir, root) || installed(dir[len(root):]) {
			continue
		}
		for _, p := range deep {
			if relate(p.parts, rel) != unrelated && wasRepository(dir) {
				return deep
			}
		}
	}
	return nil
}

// lifted reports whether a writable path of the rules lifts the protection of a name below dir.
// parts is the number of the name's parts.
func (g *Guard) lifted(full, dir string, parts int) bool {
	p := g.rule(full)
	if p == nil || !p.Writable || !below(p.Path, dir) {
		return false
	}
	return strings.Count(p.Path[len(dir):], "/") >= parts || dir == "/" && strings.Count(p.Path, "/") >= parts
}

// relate compares a pattern with a relative path.
func relate(parts []string, rel string) relation {
	for _, part := range parts {
		first, rest, _ := strings.Cut(rel, "/")
		if first == "" {
			return above
		}
		if !match(part, first) {
			return unrelated
		}
		rel = rest
	}
	return within
}

// below reports whether a path is below a directory.
func below(full, dir string) bool {
	if dir == "/" {
		return full != "/"
	}
	return len(full) > len(dir) && full[len(dir)] == '/' && full[:len(dir)] == dir
}

// installed reports whether a relative path leads into the files of a package manager.
func installed(rel string) bool {
	for part := range strings.SplitSeq(rel, "/") {
		switch part {
		case "node_modules", "vendor", "site-packages", "target", ".venv", "venv", ".tox", ".cargo", ".git":
			return true
		}
	}
	return false
}

// match compares one element with a pattern. It ignores case, because some directories do. "*"
// matches any text.
func match(pattern, name string) bool {
	first, rest, star := strings.Cut(pattern, "*")
	if !star {
		return strings.EqualFold(pattern, name)
	}
	if len(name) < len(first) || !strings.EqualFold(first, name[:len(first)]) {
		return false
	}
	for name = name[len(first):]; ; name = name[1:] {
		if match(rest, name) {
			return true
		}
		if name == "" {
			return false
		}
	}
}
