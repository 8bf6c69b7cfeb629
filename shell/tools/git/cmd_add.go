package git

import (
	"path"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/format/index"

	"github.com/carrel-dev/carrel/shell/vfs"
)

// stage records a file of the work tree in the index.
func (r *repo) stage(x *staging, name string, i vfs.Info) error {
	e := x.find(name, 0)
	if e != nil && !e.IntentToAdd {
		if h, err := r.hashOf(name, i, e); err == nil && h == e.Hash && e.Mode == modeOf(i) && len(x.unmerged()) == 0 {
			*e = *entryFor(name, i, h)
			return nil
		}
	}
	b, err := r.content(name, i)
	if err != nil {
		return err
	}
	h, err := r.putObject(plumbing.BlobObject, b)
	if err != nil {
		return err
	}
	x.Entries = slices.DeleteFunc(x.Entries, func(o *index.Entry) bool {
		if o.Name == name && o.Stage != 0 {
			x.at = nil
			return true
		}
		return false
	})
	x.put(entryFor(name, i, h))
	return nil
}

// stageTracked records changes and removals of files that are in the index.
func (r *repo) stageTracked(x *staging, spec *pathspec) error {
	changed, err := r.disk(x)
	if err != nil {
		return err
	}
	for _, c := range changed {
		if !spec.match(c.new) {
			continue
		}
		i, ok := r.lstat(c.new)
		if !ok || i.Mode.IsDir() {
			x.remove(c.new)
		} else if err := r.stage(x, c.new, i); err != nil {
			return err
		}
	}
	for _, e := range x.Entries {
		spec.match(e.Name) // so that it has been seen
	}
	return nil
}

// cmdAdd is git add.
func cmdAdd(g *git, r *repo) error {
	f, err := g.flags("AufnvNpie", "all=A", "update=u", "force=f", "dry-run=n", "verbose=v", "intent-to-add=N", "patch=p", "interactive=i", "edit=e",
		"no-all=\x80", "ignore-removal=\x80", "ignore-errors=\x81", "renormalize=\x82", "chmod=\x83:", "refresh=\x84", "sparse=\x81")
	if err != nil {
		return err
	}
	if err := r.needTree(); err != nil {
		return err
	}
	if f.Has('p') || f.Has('i') || f.Has('e') {
		return fatalf("git add -p and -i need somebody at a terminal; they are not available here")
	}
	if len(f.Args) == 0 && !f.Has('A') && !f.Has('u') {
		g.warnf("Nothing specified, nothing added.\nhint: git add . takes everything here")
		return nil
	}
	spec, err := r.pathspec(f.Args)
	if err != nil {
		return err
	}
	x, err := r.index()
	if err != nil {
		return err
	}
	before := x.snapshot()
	if !f.Has(0x80) {
		if err := r.stageTracked(x, spec); err != nil {
			return err
		}
	}
	if !f.Has('u') {
		if err := r.addNew(x, spec, f.Args, f.Has('f'), f.Has('N')); err != nil {
			return err
		}
	}
	if name, ok := spec.missed(f.Args); ok {
		if rel, _ := r.rel(name); !r.isDir(rel) {
			return fatalf("pathspec '%s' did not match any files", name)
		}
	}
	if mode := f.Value(0x83, ""); mode != "" {
		for _, e := range x.Entries {
			if spec.match(e.Name) && e.Mode.IsFile() {
				e.Mode = map[bool]filemode.FileMode{true: 0o100755, false: 0o100644}[mode == "+x"]
			}
		}
	}
	if f.Has('v') || f.Has('n') {
		for _, c := range changes(before, x.snapshot()) {
			verb := "add"
			if c.kind == 'D' {
				verb = "remove"
			}
			g.printf("%s '%s'\n", verb, c.new)
		}
	}
	if f.Has('n') {
		return nil
	}
	return r.save(x)
}

func (r *repo) isDir(name string) bool {
	i, err := r.FS().Stat(r.abs(name))
	return err == nil && i.Mode.IsDir()
}

// addNew records files that are not in the index.
func (r *repo) addNew(x *staging, spec *pathspec, args []string, force, intent bool) error {
	g := r.ignores()
	known := x.snapshot()
	var ignored []string
	for i, s := range spec.specs {
		if _, ok := known[s]; !ok && s != "" && !force && !strings.ContainsAny(s, "*?[") {
			if info, found := r.lstat(s); found && g.ignored(s, info.Mode.IsDir()) && !slices.ContainsFunc(x.Entries, func(e *index.Entry) bool { return strings.HasPrefix(e.Name, s+"/") }) {
				ignored = append(ignored, args[i])
				spec.hit[i] = true
			}
		}
	}
	skip := func(name string, dir bool) bool {
		if _, ok := known[name]; ok {
			return false
		}
		if dir && !spec.match(name) && !spec.below(name+"/") && !slices.ContainsFunc(spec.specs, func(s string) bool { return strings.ContainsAny(s, "*?[") }) {
			return true
		}
		return !force && g.match(name, dir)
	}
	hits := slices.Clone(spec.hit)
	err := r.walk("", skip, func(name string, i vfs.Info) error {
		if _, ok := known[name]; ok || !spec.match(strings.TrimSuffix(name, "/")) {
			return nil
		}
		if strings.HasSuffix(name, "/") {
			r.warnf("warning: adding embedded git repository: %s", strings.TrimSuffix(name, "/"))
			return nil
		}
		if intent {
			e := entryFor(name, i, emptyBlob)
			e.IntentToAdd = true
			x.put(e)
			return nil
		}
		return r.stage(x, name, i)
	})
	for i := range hits { // searching a directory does not count as a match
		if !hits[i] && spec.hit[i] {
			_, there := r.lstat(spec.specs[i])
			spec.hit[i] = there || slices.ContainsFunc(x.Entries, func(e *index.Entry) bool {
				return strings.HasPrefix(e.Name, spec.specs[i]+"/") || wild(spec.specs[i], e.Name)
			})
		}
	}
	if err == nil && len(ignored) > 0 {
		if serr := r.save(x); serr != nil {
			return serr
		}
		r.warnf("The following paths are ignored by one of your .gitignore files:\n%s\nhint: -f adds them all the same", strings.Join(ignored, "\n"))
		return exit(1)
	}
	return err
}

// cmdRm is git rm.
func cmdRm(g *git, r *repo) error {
	f, err := g.flags("rfqn", "cached=\x80", "force=f", "quiet=q", "dry-run=n", "ignore-unmatch=\x81")
	if err != nil {
		return err
	}
	if len(f.Args) == 0 {
		return fatalf("No pathspec was given. Which files should I remove?")
	}
	x, err := r.index()
	if err != nil {
		return err
	}
	_, at := r.head()
	head, err := r.treeOf(at)
	if err != nil {
		return err
	}
	gone := map[string]bool{}
	var names []string
	for _, a := range f.Args {
		s, err := r.rel(a)
		if err != nil {
			return err
		}
		n := len(names)
		for _, e := range x.Entries {
			under := s == "" || strings.HasPrefix(e.Name, s+"/")
			if under && !f.Has('r') {
				return fatalf("not removing '%s' recursively without -r", a)
			}
			if (under || e.Name == s || wild(s, e.Name)) && !gone[e.Name] {
				gone[e.Name] = true
				names = append(names, e.Name)
			}
		}
		if len(names) == n && !f.Has(0x81) {
			return fatalf("pathspec '%s' did not match any files", a)
		}
	}
	if !f.Has('f') {
		var staged, local []string
		for _, n := range names {
			e := x.find(n, 0)
			if e == nil {
				continue
			}
			i, ok := r.lstat(n)
			changed := false
			if ok && !i.Mode.IsDir() {
				h, err := r.hashOf(n, i, nil)
				if err != nil {
					return err
				}
				changed = h != e.Hash
			}
			inHead := head[n].hash == e.Hash
			switch {
			case !inHead && changed:
				local = append(local, n)
				staged = append(staged, n)
			case !inHead && !f.Has(0x80):
				staged = append(staged, n)
			case changed && !f.Has(0x80):
				local = append(local, n)
			}
		}
		if len(staged)+len(local) > 0 {
			list, what, how := staged, "changes staged in the index", "(use --cached to keep the file, or -f to force removal)"
			if len(staged) == 0 {
				list, what = local, "local modifications"
			}
			noun := "file has"
			if len(list) > 1 {
				noun = "files have"
			}
			g.warnf("error: the following %s %s:\n    %s\n%s", noun, what, strings.Join(list, "\n    "), how)
			return exit(1)
		}
	}
	for _, n := range names {
		if !f.Has('q') {
			g.printf("rm '%s'\n", n)
		}
		if !f.Has('n') && !f.Has(0x80) {
			if err := r.removeFile(n); err != nil {
				return err
			}
		}
	}
	if f.Has('n') {
		return nil
	}
	x.drop(gone)
	return r.save(x)
}

// cmdMv is git mv.
func cmdMv(g *git, r *repo) error {
	f, err := g.flags("fknv", "force=f", "dry-run=n", "verbose=v")
	if err != nil {
		return err
	}
	if len(f.Args) < 2 {
		g.warnf("usage: git mv [<options>] <source>... <destination>")
		return exit(129)
	}
	x, err := r.index()
	if err != nil {
		return err
	}
	dest := f.Args[len(f.Args)-1]
	to, err := r.rel(dest)
	if err != nil {
		return err
	}
	into := r.isDir(to)
	if len(f.Args) > 2 && !into {
		return fatalf("destination '%s' is not a directory", dest)
	}
	for _, a := range f.Args[:len(f.Args)-1] {
		from, err := r.rel(a)
		if err != nil {
			return err
		}
		target := to
		if into {
			target = path.Join(to, path.Base(from))
		}
		if _, ok := r.lstat(from); !ok {
			return fatalf("bad source, source=%s, destination=%s", from, target)
		}
		moved := 0
		for _, e := range x.Entries {
			if e.Name == from || strings.HasPrefix(e.Name, from+"/") {
				moved++
			}
		}
		if moved == 0 {
			return fatalf("not under version control, source=%s, destination=%s", from, target)
		}
		if _, ok := r.lstat(target); ok && !f.Has('f') {
			return fatalf("destination exists, source=%s, destination=%s", from, target)
		}
		if f.Has('n') || f.Has('v') {
			g.printf("Renaming %s to %s\n", from, target)
		}
		if f.Has('n') {
			continue
		}
		if err := r.FS().Rename(r.abs(from), r.abs(target)); err != nil {
			return err
		}
		x.remove(target)
		for _, e := range x.Entries {
			if rest, ok := strings.CutPrefix(e.Name, from); ok && (rest == "" || rest[0] == '/') {
				e.Name = target + rest
			}
		}
		x.at = nil
	}
	return r.save(x)
}
