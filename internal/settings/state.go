package settings

import (
	"os"
	"path/filepath"
	"slices"
)

// stateKeeper is the part of a resolver that handles the saved state of programs.
type stateKeeper struct{ *resolver }

// add adds the directories that must exist for a profile's program, and the files that the program
// replaces. With an overlay that is thrown away, and with a copy of the working directory, neither
// is needed.
func (v stateKeeper) add(l *layer) {
	if !l.profile || v.box.Overlay || v.box.Tier != tierOf("") || v.Exists != nil {
		return
	}
	for _, m := range l.Write.Made {
		if t, err := v.target(l, m.Path, false); err == nil && !v.exists(t.path) && (m.Program == "" || v.installed(m.Program)) {
			v.box.Missing = append(v.box.Missing, t.path)
		}
	}
	for i, name := range l.Write.Replaced {
		t, err := v.target(l, name, false)
		if err != nil || t.path == "" {
			continue
		}
		r := Replaced{Path: v.canonical(t.path), Rule: l.at("write.replaced", i), Source: l.Source}
		if to := v.linked(r.Path); to != "" {
			r.Path = to
		}
		v.box.Replaced = append(v.box.Replaced, r)
	}
}

// installed reports whether PATH has a program.
func (v stateKeeper) installed(program string) bool {
	for _, dir := range filepath.SplitList(v.getenv("PATH")) {
		if info, err := os.Stat(filepath.Join(dir, program)); err == nil && !info.IsDir() && filepath.IsAbs(dir) {
			return true
		}
	}
	return false
}

// replaced reports whether a path is a file that a program replaces, even if the file does not
// exist.
func (v stateKeeper) replaced(p string) bool {
	return slices.ContainsFunc(v.box.Replaced, func(r Replaced) bool { return r.Path == p })
}

// finish drops files that a setting closes by name, and files in directories that may be written
// anyway.
func (v stateKeeper) finish() {
	v.box.Replaced = slices.DeleteFunc(v.box.Replaced, func(r Replaced) bool {
		if a, _ := v.tree.access(filepath.Dir(r.Path)); a != Readable {
			return true
		}
		if a, _ := v.tree.access(r.Path); a != Writable && v.exists(r.Path) {
			return true
		}
		return slices.ContainsFunc(v.guarded, func(g Protected) bool { return g.Pattern == r.Path })
	})
}

// CacheProfiles maps each directory that a built-in profile opens for writing to the profile's
// name. The directories are absolute paths below home.
func CacheProfiles(home string) map[string]string {
	out := map[string]string{}
	for _, p := range tools() {
		for _, name := range slices.Concat(p.Settings.Write.Allow, p.Settings.Write.Replaced) {
			if len(name) > 2 && name[:2] == "~/" {
				out[filepath.Join(home, name[2:])] = p.Name
			}
		}
	}
	return out
}

// keepApart closes single files that were opened for writing, if changes are kept apart. An overlay
// covers directories, not single files.
func (v stateKeeper) keepApart() {
	if !v.box.Overlay || v.Exists != nil {
		return
	}
	for i := range v.box.Paths {
		r := &v.box.Paths[i]
		info, err := os.Stat(r.Path)
		if r.Access != Writable || err != nil || !info.Mode().IsRegular() || v.layered(r.Path) {
			continue
		}
		r.Access, r.Allow = Readable, "--write "+v.short(filepath.Dir(r.Path))
		if r.Source == "flags" {
			v.note("!%s stays as it is: --overlay keeps the changes of directories apart", v.short(r.Path))
		}
	}
}

// layered reports whether a directory above a path is written.
func (v stateKeeper) layered(p string) bool {
	for p != "/" {
		p = filepath.Dir(p)
		if i := slices.IndexFunc(v.box.Paths, func(r PathRule) bool { return r.Path == p }); i >= 0 {
			return v.box.Paths[i].Access == Writable
		}
	}
	return false
}
