package git

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
)

// cmdRevParse is git rev-parse.
func cmdRevParse(g *git, r *repo) error {
	short, abbrev, verify, quiet := 0, false, false, false
	for _, a := range g.args {
		name, value, has := strings.Cut(a, "=")
		switch name {
		case "--show-toplevel":
			if err := r.needTree(); err != nil {
				return err
			}
			g.printf("%s\n", r.top)
		case "--git-dir", "--absolute-git-dir", "--git-common-dir":
			dir := r.git_
			if name != "--absolute-git-dir" && path.Join(r.dir, ".git") == dir {
				dir = ".git"
			}
			g.printf("%s\n", dir)
		case "--is-inside-work-tree":
			g.printf("%v\n", r.top != "" && !strings.HasPrefix(r.dir+"/", r.git_+"/"))
		case "--is-inside-git-dir":
			g.printf("%v\n", strings.HasPrefix(r.dir+"/", r.git_+"/"))
		case "--is-bare-repository":
			g.printf("%v\n", r.top == "")
		case "--is-shallow-repository":
			s, _ := r.store.Shallow()
			g.printf("%v\n", len(s) > 0)
		case "--show-prefix":
			p, _ := r.rel(r.dir)
			if p != "" {
				p += "/"
			}
			g.printf("%s\n", p)
		case "--show-cdup":
			p, _ := r.rel(r.dir)
			if p == "" {
				g.printf("\n")
			} else {
				g.printf("%s\n", strings.Repeat("../", strings.Count(p, "/")+1))
			}
		case "--short":
			if short = 7; has {
				short, _ = strconv.Atoi(value)
				short = min(max(short, 4), 40)
			}
		case "--abbrev-ref":
			abbrev = true
		case "--verify":
			verify = true
		case "-q", "--quiet":
			quiet = true
		case "--symbolic-full-name", "--revs-only", "--no-revs", "--":
		case "--all":
			for _, ref := range r.refs("refs/") {
				h, _ := r.ref(string(ref.Name()))
				g.printf("%s\n", h)
			}
		default:
			if abbrev {
				name := a
				if a == "HEAD" || a == "@" {
					if b := r.branchName(); b != "" {
						name = strings.TrimPrefix(b, "refs/heads/")
						if _, at := r.head(); at.IsZero() {
							return fatalf("ambiguous argument 'HEAD': unknown revision or path not in the working tree.\nUse '--' to separate paths from revisions, like this:\n'git <command> [<revision>...] -- [<file>...]'")
						}
					} else {
						name = "HEAD"
					}
				} else if strings.HasSuffix(a, "@{u}") || strings.HasSuffix(a, "@{upstream}") {
					if _, err := r.object(a); err != nil {
						return err
					}
					b := strings.TrimSuffix(strings.TrimSuffix(a, "@{u}"), "@{upstream}")
					full := "refs/heads/" + b
					if b == "" || b == "HEAD" {
						full = r.branchName()
					}
					up, _ := r.upstream(full)
					name = strings.TrimPrefix(up, "refs/remotes/")
				} else if _, err := r.resolve(a); err != nil {
					return err
				}
				g.printf("%s\n", name)
				continue
			}
			mark := ""
			if rest, ok := strings.CutPrefix(a, "^"); ok {
				mark, a = "^", rest
			}
			if x, y, ok := strings.Cut(a, ".."); ok && !strings.Contains(a, "...") {
				p, err := r.resolve(orHead(x))
				if err != nil {
					return err
				}
				q, err := r.resolve(orHead(y))
				if err != nil {
					return err
				}
				g.printf("%s\n^%s\n", q, p)
				continue
			}
			h, err := r.resolve(a)
			if err == nil && verify && len(a) == 40 && r.store.HasEncodedObject(h) != nil && false {
				err = errBadRevision
			}
			if err != nil {
				if verify && quiet {
					return exit(1)
				}
				if verify {
					return fatalf("Needed a single revision")
				}
				if !quiet {
					g.printf("%s\n", a)
				}
				return err
			}
			if short > 0 {
				g.printf("%s%s\n", mark, h.String()[:short])
			} else {
				g.printf("%s%s\n", mark, h)
			}
		}
	}
	return nil
}

// cmdRevList is git rev-list.
func cmdRevList(g *git, r *repo) error {
	given := g.args
	g.args = numbers(g.args)
	f, err := g.flags(logShort, logLong...)
	if err != nil {
		return err
	}
	o := &logOptions{max: -1, format: "format:%H"}
	var extra []string
	for _, x := range f.All {
		if err := o.take(r, x, &extra); err != nil {
			return err
		}
	}
	if o.format == "oneline" && o.abbrev {
		o.abbrev = false
	}
	revs, paths, err := r.split(f.Args, given)
	if err != nil {
		return err
	}
	o.paths = paths
	if revs = append(revs, extra...); len(revs) == 0 {
		g.warnf("usage: git rev-list [<options>] <commit>...")
		return exit(129)
	}
	if !f.Has(0x9a) {
		return r.log(revs, o)
	}
	from, without, err := r.span(revs)
	if err != nil {
		return err
	}
	spec, err := r.pathspec(paths)
	if err != nil {
		return err
	}
	n := 0
	err = r.history(from, without, func(c *object.Commit) error {
		ok, err := r.wanted(c, o, spec)
		if ok && (o.max < 0 || n < o.max) {
			n++
		}
		return err
	})
	if err == nil {
		g.printf("%d\n", n)
	}
	return err
}

// cmdLsFiles is git ls-files.
func cmdLsFiles(g *git, r *repo) error {
	f, err := g.flags("cdmoiszutx:", "cached=c", "deleted=d", "modified=m", "others=o", "ignored=i", "stage=s", "exclude-standard=\x80", "unmerged=u", "error-unmatch=\x81", "full-name=\x82", "directory=\x83", "abbrev=\x84::", "exclude=x", "no-empty-directory=\x82")
	if err != nil {
		return err
	}
	x, err := r.index()
	if err != nil {
		return err
	}
	here, err := r.rel(r.dir)
	if err != nil {
		return err
	}
	args := f.Args
	if len(args) == 0 && here != "" {
		args = []string{"."}
	}
	spec, err := r.pathspec(args)
	if err != nil {
		return err
	}
	end := "\n"
	name := func(s string) string {
		if !f.Has(0x82) {
			s = r.shown(s)
		}
		return quotePath(s)
	}
	if f.Has('z') {
		end = "\x00"
		name = func(s string) string { return s }
	}
	if f.Has('o') {
		s := &condition{}
		if !f.Has(0x80) && !f.Has('i') {
			known := x.snapshot()
			err = r.walkAll(func(n string) error {
				if _, ok := known[n]; !ok {
					s.untracked = append(s.untracked, n)
				}
				return nil
			})
		} else {
			mode := "all"
			if f.Has(0x83) {
				mode = "normal"
			}
			err = r.untracked(x, s, mode, f.Has('i'))
		}
		if err != nil {
			return err
		}
		list := s.untracked
		if f.Has('i') {
			list = s.ignored
		}
		for _, n := range list {
			if spec.match(n) {
				g.printf("%s%s", name(n), end)
			}
		}
	}
	if f.Has('m') || f.Has('d') {
		cs, err := r.disk(x)
		if err != nil {
			return err
		}
		for _, c := range cs {
			if spec.match(c.new) && (f.Has('m') || c.kind == 'D') {
				g.printf("%s%s", name(c.new), end)
			}
		}
	}
	if f.Has('c') || !f.Has('o') && !f.Has('m') && !f.Has('d') {
		for _, e := range x.Entries {
			if !spec.match(e.Name) || f.Has('u') && e.Stage == 0 {
				continue
			}
			if f.Has('s') || f.Has('u') {
				g.printf("%06o %s %d\t", uint32(e.Mode), e.Hash, e.Stage)
			}
			g.printf("%s%s", name(e.Name), end)
		}
	}
	if n, ok := spec.missed(args); ok && f.Has(0x81) {
		g.warnf("error: pathspec '%s' did not match any file(s) known to git\nDid you forget to 'git add'?", n)
		return exit(1)
	}
	return nil
}

// cmdLsTree is git ls-tree.
func cmdLsTree(g *git, r *repo) error {
	f, err := g.flags("rtdlz", "name-only=\x80", "name-status=\x80", "long=l", "full-tree=\x81", "full-name=\x81", "abbrev=\x82::", "object-only=\x83")
	if err != nil {
		return err
	}
	if len(f.Args) == 0 {
		g.warnf("usage: git ls-tree [<options>] <tree-ish> [<path>...]")
		return exit(129)
	}
	h, err := r.resolve(f.Args[0])
	if err == nil {
		h, err = r.peel(h, plumbing.TreeObject)
	}
	if err != nil {
		return fatalf("Not a valid object name %s", f.Args[0])
	}
	paths := f.Args[1:]
	var list func(h plumbing.Hash, prefix string, depth int) error
	list = func(h plumbing.Hash, prefix string, depth int) error {
		t, err := object.GetTree(r.store, h)
		if err != nil || depth > maxTreeDepth {
			return fatalf("unable to read tree %s", h)
		}
		for _, e := range t.Entries {
			name := prefix + e.Name
			dir := e.Mode == filemode.Dir
			match, inside := len(paths) == 0, false
			for _, p := range paths {
				clean := strings.TrimSuffix(p, "/")
				match = match || name == clean && !(dir && strings.HasSuffix(p, "/")) || strings.HasPrefix(name, clean+"/")
				inside = inside || strings.HasPrefix(p, name+"/")
			}
			if dir && (inside || f.Has('r') && match) {
				if f.Has('t') && match {
					r.treeLine(e, name, f)
				}
				if err := list(e.Hash, name+"/", depth+1); err != nil {
					return err
				}
				continue
			}
			if match && (!f.Has('d') || dir) {
				r.treeLine(e, name, f)
			}
		}
		return nil
	}
	return list(h, "", 0)
}

func (r *repo) treeLine(e object.TreeEntry, name string, f flagSet) {
	kind := "blob"
	switch e.Mode {
	case filemode.Dir:
		kind = "tree"
	case filemode.Submodule:
		kind = "commit"
	}
	if !f.Has('z') {
		name = quotePath(name)
	}
	switch {
	case f.Has(0x80):
		r.printf("%s", name)
	case f.Has(0x83):
		r.printf("%s", e.Hash)
	case f.Has('l'):
		size := "-"
		if b, err := object.GetBlob(r.store, e.Hash); err == nil {
			size = fmt.Sprint(b.Size)
		}
		r.printf("%06o %s %s %7s\t%s", uint32(e.Mode), kind, e.Hash, size, name)
	default:
		r.printf("%06o %s %s\t%s", uint32(e.Mode), kind, e.Hash, name)
	}
	if f.Has('z') {
		r.printf("\x00")
	} else {
		r.printf("\n")
	}
}

// cmdCatFile is git cat-file.
func cmdCatFile(g *git, r *repo) error {
	f, err := g.flags("tspe", "batch=\x80::", "batch-check=\x81::", "textconv=\x82")
	if err != nil {
		return err
	}
	if f.Has(0x80) || f.Has(0x81) {
		return r.catBatch(f.Has(0x80))
	}
	if len(f.Args) == 0 {
		g.warnf("usage: git cat-file <type> <object>")
		return exit(129)
	}
	h, err := r.object(f.Args[len(f.Args)-1])
	if err == errBadRevision {
		err = fatalf("Not a valid object name %s", f.Args[len(f.Args)-1])
	}
	var o plumbing.EncodedObject
	if err == nil {
		if o, err = r.store.EncodedObject(plumbing.AnyObject, h); err != nil {
			err = fatalf("Not a valid object name %s", f.Args[len(f.Args)-1])
		}
	}
	if err != nil {
		if f.Has('e') && len(f.Args[len(f.Args)-1]) == 40 {
			return exit(1)
		}
		return err
	}
	switch {
	case f.Has('e'):
		return nil
	case f.Has('t'):
		g.printf("%s\n", o.Type())
		return nil
	case f.Has('s'):
		g.printf("%d\n", o.Size())
		return nil
	case !f.Has('p'):
		want, err := plumbing.ParseObjectType(f.Args[0])
		if err != nil {
			return fatalf("invalid object type \"%s\"", f.Args[0])
		}
		if h, err = r.peel(h, want); err != nil {
			return err
		}
	case o.Type() == plumbing.TreeObject:
		t, err := object.GetTree(r.store, h)
		if err != nil {
			return err
		}
		for _, e := range t.Entries {
			r.treeLine(e, e.Name, flagSet{})
		}
		return nil
	}
	return r.raw(h)
}

// raw writes an object's contents.
func (r *repo) raw(h plumbing.Hash) error {
	o, err := r.store.EncodedObject(plumbing.AnyObject, h)
	if err != nil {
		return err
	}
	in, err := o.Reader()
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // it was read
	buf := make([]byte, 32<<10)
	for {
		n, err := in.Read(buf)
		if !r.Step(1 + n>>6) {
			return exit(1)
		}
		if n > 0 {
			if _, werr := r.w.Write(buf[:n]); werr != nil {
				return werr
			}
		}
		if err != nil {
			return nil
		}
	}
}

func (r *repo) catBatch(contents bool) error {
	return r.Lines(r.In, '\n', func(b []byte, _ bool) error {
		name := strings.TrimSpace(string(b))
		h, err := r.object(name)
		var o plumbing.EncodedObject
		if err == nil {
			o, err = r.store.EncodedObject(plumbing.AnyObject, h)
		}
		if err != nil {
			r.printf("%s missing\n", name)
			return nil
		}
		r.printf("%s %s %d\n", h, o.Type(), o.Size())
		if contents {
			if err := r.raw(h); err != nil {
				return err
			}
			r.printf("\n")
		}
		return nil
	})
}

// cmdHashObject is git hash-object.
func cmdHashObject(g *git, r *repo) error {
	f, err := g.flags("wt:", "stdin=\x80", "path=\x81:", "no-filters=\x82", "literally=\x82", "stdin-paths=\x83")
	if err != nil {
		return err
	}
	kind, err := plumbing.ParseObjectType(f.Value('t', "blob"))
	if err != nil {
		return fatalf("invalid object type \"%s\"", f.Value('t', ""))
	}
	names := f.Args
	if f.Has(0x80) {
		names = append([]string{"-"}, names...)
	}
	for _, n := range names {
		in := n
		if n != "-" {
			in = g.path(n)
		}
		file, err := g.OpenIn(in)
		if err != nil {
			return fatalf("could not open '%s' for reading: No such file or directory", n)
		}
		b, err := g.ReadAll(file)
		_ = file.Close() // it was read
		if err != nil {
			return err
		}
		h := plumbing.ComputeHash(kind, b)
		if f.Has('w') {
			if r == nil {
				return fatalf("not a git repository (or any of the parent directories): .git")
			}
			if h, err = r.putObject(kind, b); err != nil {
				return err
			}
		}
		g.printf("%s\n", h)
	}
	return nil
}

// cmdShowRef is git show-ref.
func cmdShowRef(g *git, r *repo) error {
	f, err := g.flags("qdsh", "heads=\x80", "tags=\x81", "verify=\x82", "quiet=q", "dereference=d", "hash=s", "head=h")
	if err != nil {
		return err
	}
	n := 0
	for _, ref := range r.refs("refs/") {
		name := string(ref.Name())
		tag, head := strings.HasPrefix(name, "refs/tags/"), strings.HasPrefix(name, "refs/heads/")
		if (f.Has(0x80) || f.Has(0x81)) && !(f.Has(0x80) && head) && !(f.Has(0x81) && tag) {
			continue
		}
		if len(f.Args) > 0 && !slices.ContainsFunc(f.Args, func(a string) bool {
			return name == a || !f.Has(0x82) && strings.HasSuffix(name, "/"+a)
		}) {
			continue
		}
		h, ok := r.ref(name)
		if !ok {
			continue
		}
		if n++; !f.Has('q') {
			if f.Has('s') {
				g.printf("%s\n", h)
			} else {
				g.printf("%s %s\n", h, name)
			}
		}
		if p, err := r.peel(h, plumbing.CommitObject); f.Has('d') && err == nil && p != h {
			g.printf("%s %s^{}\n", p, name)
		}
	}
	if n == 0 {
		if f.Has(0x82) && !f.Has('q') {
			return fatalf("'%s' - not a valid ref", strings.Join(f.Args, " "))
		}
		return exit(1)
	}
	return nil
}

// cmdMergeBase is git merge-base.
func cmdMergeBase(g *git, r *repo) error {
	f, err := g.flags("a", "is-ancestor=\x80", "all=a", "fork-point=\x81")
	if err != nil {
		return err
	}
	if len(f.Args) < 2 {
		g.warnf("usage: git merge-base [-a | --all] <commit> <commit>...")
		return exit(129)
	}
	a, err := r.resolveCommit(f.Args[0])
	if err != nil {
		return fatalf("Not a valid object name %s", f.Args[0])
	}
	b, err := r.resolveCommit(f.Args[1])
	if err != nil {
		return fatalf("Not a valid object name %s", f.Args[1])
	}
	if f.Has(0x80) {
		of, err := r.ancestors(b.Hash)
		if err == nil && !of[a.Hash] {
			err = exit(1)
		}
		return err
	}
	base, err := r.mergeBase(a.Hash, b.Hash)
	if err != nil {
		return err
	}
	if base.IsZero() {
		return exit(1)
	}
	g.printf("%s\n", base)
	return nil
}

// cmdWriteTree is git write-tree.
func cmdWriteTree(g *git, r *repo) error {
	x, err := r.index()
	if err != nil {
		return err
	}
	h, err := r.putTree(x.snapshot())
	if err == nil {
		g.printf("%s\n", h)
	}
	return err
}

// cmdUpdateRef is git update-ref.
func cmdUpdateRef(g *git, r *repo) error {
	f, err := g.flags("dm:", "no-deref=\x80", "create-reflog=\x80")
	if err != nil {
		return err
	}
	if f.Has('d') && len(f.Args) > 0 {
		return r.store.RemoveReference(plumbing.ReferenceName(f.Args[0]))
	}
	if len(f.Args) < 2 {
		g.warnf("usage: git update-ref [<options>] <ref> <new-oid> [<old-oid>]")
		return exit(129)
	}
	h, err := r.resolve(f.Args[1])
	if err != nil {
		return err
	}
	if f.Args[0] == "HEAD" {
		return r.moveHead(h)
	}
	if !strings.HasPrefix(f.Args[0], "refs/") || strings.Contains(f.Args[0], "..") {
		return fatalf("update_ref failed for ref '%s': refusing to update ref with bad name", f.Args[0])
	}
	return r.setRef(plumbing.ReferenceName(f.Args[0]), h)
}

// cmdCheckIgnore is git check-ignore.
func cmdCheckIgnore(g *git, r *repo) error {
	f, err := g.flags("qvn", "quiet=q", "verbose=v", "no-index=\x80", "non-matching=n", "stdin=\x81")
	if err != nil {
		return err
	}
	ig := r.ignores()
	status := error(exit(1))
	for _, a := range f.Args {
		s, err := r.rel(a)
		if err != nil {
			return err
		}
		if s != "" && ig.ignored(s, strings.HasSuffix(a, "/") || r.isDir(s)) {
			status = nil
			if !f.Has('q') {
				g.printf("%s\n", a)
			}
		}
	}
	return status
}

// cmdReflog is git reflog: no history of references is kept.
func cmdReflog(_ *git, _ *repo) error {
	return fatalf("reflogs are not kept on this machine")
}

// cmdCountObjects is git count-objects.
func cmdCountObjects(g *git, r *repo) error {
	n, size := 0, int64(0)
	dirs, err := r.FS().ReadDir(path.Join(r.git_, "objects"))
	if err != nil {
		return err
	}
	for _, d := range dirs {
		if len(d.Name) != 2 {
			continue
		}
		files, err := r.FS().ReadDir(path.Join(r.git_, "objects", d.Name))
		if err != nil || !r.Step(1+len(files)) {
			return err
		}
		for _, i := range files {
			n++
			size += (i.Size + 4095) >> 12 << 2
		}
	}
	g.printf("%d objects, %d kilobytes\n", n, size)
	return nil
}
