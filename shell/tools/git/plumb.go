package git

import (
	"fmt"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
)

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
