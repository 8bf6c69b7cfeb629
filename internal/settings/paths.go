package settings

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// literal reports whether a layer takes a pattern literally: an existing name with "[" in it.
func (l *layer) literal(p string) bool { return l.srt != nil && slices.Contains(l.srt.literals, p) }

// closeBuiltIn adds a built-in decision that closes an existing path, and the target if the path is
// a link.
func (v *resolver) closeBuiltIn(p string, op operation, rule string, blank bool) {
	p = v.canonical(p)
	v.tree.add(&decision{path: p, op: op, rule: "built-in: " + rule, source: "built-in", blank: blank})
	if to := v.linked(p); to != "" && !v.system(to) {
		v.tree.add(&decision{path: to, op: op, rule: "built-in: " + rule, source: "built-in", blank: blank})
	}
}

// linked returns the target of a path whose last element is a link to an existing file, "" for
// others.
func (v *resolver) linked(p string) string {
	if v.Exists != nil {
		return ""
	}
	info, err := os.Lstat(p)
	if err != nil || info.Mode()&os.ModeSymlink == 0 {
		return ""
	}
	to, err := filepath.EvalSymlinks(p)
	if err != nil {
		return ""
	}
	return to
}

// system reports whether a path belongs to the machine. A link in a project must not close such a
// path.
func (v *resolver) system(p string) bool {
	if p == "/" || inside(v.dir, p) || inside(v.home, p) {
		return true
	}
	for _, d := range []string{"/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", "/dev", "/proc", "/sys", "/System", "/nix"} {
		if inside(p, d) {
			return true
		}
	}
	return false
}

// closeFound adds the decision about a path that the search found.
func (v *resolver) closeFound(w *wanted, p string) {
	d := &decision{path: v.canonical(p), op: w.op, glob: true, rule: w.rule, source: w.source}
	if w.by != nil {
		w.hit, d.layer = true, w.by.place
	}
	v.tree.add(d)
	to := v.linked(p)
	if to == "" || !w.op.deny() || v.system(to) {
		return
	}
	twin := *d
	twin.path = to
	v.tree.add(&twin)
}

// builtInPaths adds the built-in decisions about paths.
func (v *resolver) builtInPaths() error {
	v.privateDirs()
	lists := [][]secret{secretsEverywhere, secretsLinux}
	if v.OS == "darwin" {
		lists[1] = secretsDarwin
	}
	for _, list := range lists {
		for _, s := range list {
			for _, p := range s.paths {
				v.secret(s, p)
			}
		}
	}
	v.otherHomes()
	v.writableDir()
	for _, p := range runPaths {
		if len(v.box.Private) > 0 && v.exists(p) {
			v.tree.add(&decision{path: v.real(p), op: readAllow, rule: "built-in: the system", source: "built-in"})
		}
	}
	if !v.tree.readDefault {
		for _, p := range systemPaths {
			if v.exists(p) {
				real := v.real(p)
				v.tree.system[real] = &decision{path: real, op: readAllow, rule: "built-in: the system", source: "built-in"}
			}
		}
	}
	for _, name := range environmentFiles {
		v.wanted = append(v.wanted, &wanted{pattern: name, op: readDeny, rule: "built-in: environment files", source: "built-in"})
	}
	for _, list := range [][]guarded{runLater, runLaterHome} {
		for _, g := range list {
			for _, name := range g.names {
				v.guardName(g, name)
			}
		}
	}
	v.ownPlaces()
	return nil
}

// systemPaths are readable even if reading is denied by default.
var systemPaths = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/nix", "/proc", "/sys", "/dev", "/System", "/Library", "/private/etc", "/private/var/db/timezone", "/private/var/select", "/usr/local"}

// runPaths are paths that programs need inside a directory that is otherwise the box's own: the
// resolver's configuration, NixOS's programs.
var runPaths = []string{"/run/systemd/resolve", "/run/resolvconf", "/run/current-system", "/run/opengl-driver"}

// secret closes one path of the list if it exists.
func (v *resolver) secret(s secret, p string) {
	if rest, ok := strings.CutPrefix(p, "~"); ok {
		p = v.home + rest
	}
	if v.inPrivate(p) {
		return // nothing of this machine is visible there
	}
	slash := strings.LastIndexByte(p, '/')
	dir, name := p[:max(slash, 1)], p[slash+1:]
	if v.gone(dir) {
		return
	}
	if strings.Contains(name, "*") {
		for _, e := range v.entries(dir) {
			if matchStars(name, e) {
				v.closeBuiltIn(dir+"/"+e, readDeny, s.rule, s.blank)
			}
		}
		return
	}
	if v.has(dir, name) {
		v.closeBuiltIn(p, readDeny, s.rule, s.blank)
	}
}

// inPrivate reports whether a path is in a directory of the box's own that does not contain the
// working directory.
func (v *resolver) inPrivate(p string) bool {
	for _, d := range v.box.Private {
		if inside(p, d) && !inside(p, v.dir) && !inside(p, v.home) {
			return true
		}
	}
	return false
}

// has reports whether a directory has an entry. A directory that is asked about often is listed
// once, if that is cheaper than asking for each name.
func (v *resolver) has(dir, name string) bool {
	if v.Exists != nil {
		return v.Exists(dir + "/" + name)
	}
	var names []string
	switch dir {
	case v.home, v.home + "/.config", v.home + "/.local/share", "/etc", "/var/lib", "/var/log":
		names = v.few(dir)
	}
	if names == nil {
		return v.exists(dir + "/" + name)
	}
	_, found := slices.BinarySearch(names, name)
	return found
}

// few returns fewNames of a directory, and remembers the result.
func (v *resolver) few(dir string) []string {
	names, listed := v.names[dir]
	if !listed {
		names = fewNames(dir)
		v.names[dir] = names
	}
	return names
}

// entries lists a directory of any size.
func (v *resolver) entries(dir string) []string {
	if v.Exists != nil {
		return nil
	}
	if names := v.few(dir); names != nil {
		return names
	}
	list, _ := v.readDir(dir)
	out := make([]string, len(list))
	for i, e := range list {
		out[i] = e.Name()
	}
	return out
}

// fewNames lists a directory, sorted. It returns nil if the directory is large or can't be listed.
func fewNames(dir string) []string {
	const few = 400
	f, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer f.Close()
	names, err := f.Readdirnames(few)
	if err != nil || len(names) == few {
		return nil
	}
	slices.Sort(names)
	return names
}

// gone reports whether a directory is missing. It asks the filesystem once for each directory.
func (v *resolver) gone(dir string) bool {
	if dir == "/" || dir == v.home {
		return false
	}
	gone, known := v.missing[dir]
	if !known {
		slash := max(strings.LastIndexByte(dir, '/'), 1)
		up := dir[:slash]
		if slash == 1 && dir[0] == '/' && strings.Count(dir, "/") == 1 {
			up = "/"
		}
		gone = v.gone(up) || !v.has(up, dir[strings.LastIndexByte(dir, '/')+1:])
		v.missing[dir] = gone
	}
	return gone
}

// maxHomes is how many homes are closed one by one. If there are more, their common directory is
// closed.
const maxHomes = 64

// otherHomes closes the homes of other users.
func (v *resolver) otherHomes() {
	const rule = "other users' homes"
	roots := []string{"/home", "/var/home", "/export/home"}
	if v.OS == "darwin" {
		roots = []string{"/Users"}
	} else if !inside(v.home, "/root") && v.exists("/root") {
		v.closeBuiltIn("/root", readDeny, rule, false)
	}
	for _, root := range roots {
		if v.Exists != nil || v.gone(root) {
			continue
		}
		list, _ := v.readDir(root)
		if len(list) > maxHomes {
			v.closeBuiltIn(root, readDeny, rule, false)
			if inside(v.home, root) && v.home != root {
				v.tree.add(&decision{path: v.home, op: readAllow, rule: "built-in: your home", source: "built-in"})
			}
			continue
		}
		for _, e := range list {
			p := root + "/" + e.Name()
			if e.IsDir() && !inside(v.home, p) && e.Name() != "Shared" {
				v.closeBuiltIn(p, readDeny, rule, false)
			}
		}
	}
}

// privateDirs sets the directories of the box's own. A path rule inside one of them is about this
// machine's files.
func (v *resolver) privateDirs() {
	if v.OS == "linux" && !v.box.Light {
		v.box.Private = []string{"/dev/shm", "/run", "/tmp", "/var/tmp"}
	}
}

// writableDir opens the working directory for writing, unless that would open files that programs
// outside run.
func (v *resolver) writableDir() {
	for _, l := range v.layers {
		if l.srt != nil {
			return // sandbox-runtime's settings name all writable paths
		}
	}
	switch {
	case inside(v.home, v.dir):
		v.note("!%s is your home directory or above it, and stays read-only: go to a project, or say --write .", v.short(v.dir))
	case v.systemDir(v.dir):
		v.note("!%s belongs to the system and stays read-only: go to a project, or say --write .", v.short(v.dir))
	default:
		v.tree.add(&decision{path: v.dir, op: writeAllow, rule: "built-in: the working directory", source: "built-in"})
	}
}

// systemDir reports whether a directory belongs to the system.
func (v *resolver) systemDir(p string) bool {
	for _, d := range []string{"/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", "/dev", "/proc", "/sys", "/boot", "/run", "/System", "/Library", "/Applications", "/private/etc"} {
		if inside(p, d) && !inside(p, "/usr/src") && !inside(p, "/usr/local/src") {
			return true
		}
	}
	return slices.Contains([]string{"/", "/var", "/opt", "/srv", "/mnt", "/media", "/home", "/tmp", "/var/tmp", "/var/lib", "/private", "/private/tmp", "/private/var", "/Users", "/Volumes"}, p)
}

// guardName adds a name that is never written.
func (v *resolver) guardName(g guarded, name string) {
	p := Protected{Pattern: name, Deep: true, Rule: "built-in: " + g.rule, Source: "built-in", Allow: "--write " + show(name)}
	if v.lifted(name) {
		return
	}
	if rest, ok := strings.CutPrefix(name, "~"); ok {
		p.Pattern, p.Deep = v.home+rest, false
		v.guarded = append(v.guarded, p)
		if dir := filepath.Dir(p.Pattern); !v.gone(dir) && v.has(dir, filepath.Base(p.Pattern)) {
			v.closeBuiltIn(p.Pattern, writeDeny, g.rule, false)
		}
		return
	}
	v.guarded = append(v.guarded, p)
	v.wanted = append(v.wanted, &wanted{pattern: name, op: writeDeny, rule: p.Rule, source: p.Source})
}

// lifted reports whether a layer lifts a protected name, or the directory that it is in.
func (v *resolver) lifted(name string) bool {
	for _, l := range v.layers {
		for _, u := range l.Write.Unprotect {
			if u = strings.TrimSuffix(strings.TrimPrefix(u, "./"), "/"); u == name || strings.HasPrefix(name, u+"/") {
				return true
			}
		}
		if strings.Contains(name, "*") && slices.Contains(l.Write.Allow, name) {
			return true
		}
	}
	return false
}

// real resolves a path, its last element included.
func (v *resolver) real(p string) string {
	if to := v.linked(p); to != "" {
		return to
	}
	return v.canonical(p)
}
