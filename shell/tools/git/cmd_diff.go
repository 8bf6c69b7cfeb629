package git

import (
	"fmt"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
)

// cmdDiff is git diff.
func cmdDiff(g *git, r *repo) error {
	given := g.args
	f, err := g.flags(diffShort+"R", append([]string{"cached=\x80", "staged=\x80", "no-index=\x81", "merge-base=\x82"}, diffLong...)...)
	if err != nil {
		return err
	}
	o := &diffOptions{context: 3}
	for _, x := range f.All {
		if err := o.take(x); err != nil {
			return err
		}
	}
	if !o.other() && !o.wordless || o.stat && false {
		o.patch = true
	}
	if f.Has(0x81) || r == nil {
		return g.diffFiles(f.Args, o)
	}
	revs, paths, err := r.split(f.Args, given)
	if err != nil {
		return err
	}
	var cs []change
	old, new := side(r.stored), side(r.stored)
	tree := func(rev string) (snapshot, error) {
		h, err := r.resolve(rev)
		if err == nil {
			h, err = r.peel(h, plumbing.TreeObject)
		}
		if err != nil {
			return nil, err
		}
		return r.files(h)
	}
	x, err := r.index()
	if err != nil {
		return err
	}
	if len(revs) == 1 {
		if a, b, ok := strings.Cut(revs[0], "..."); ok {
			p, err1 := r.resolveCommit(a)
			q, err2 := r.resolveCommit(b)
			if err1 != nil || err2 != nil {
				return fatalf("bad revision '%s'", revs[0])
			}
			base, err := r.mergeBase(p.Hash, q.Hash)
			if err != nil {
				return err
			}
			revs = []string{base.String(), q.Hash.String()}
		} else if a, b, ok := strings.Cut(revs[0], ".."); ok {
			revs = []string{orHead(a), orHead(b)}
		}
	}
	switch {
	case len(revs) == 2:
		a, err := tree(revs[0])
		if err != nil {
			return err
		}
		b, err := tree(revs[1])
		if err != nil {
			return err
		}
		cs = changes(a, b)
	case f.Has(0x80):
		a := snapshot{}
		if _, at := r.head(); len(revs) == 1 || !at.IsZero() {
			if a, err = tree(orHead(strings.Join(revs, ""))); err != nil {
				return err
			}
		}
		bad := x.unmerged()
		for n := range bad {
			delete(a, n)
		}
		cs = changes(a, x.snapshot())
		for n := range bad {
			cs = append(cs, change{kind: 'U', old: n, new: n})
		}
		sortChanges(cs)
	case len(revs) == 1:
		a, err := tree(revs[0])
		if err != nil {
			return err
		}
		now := x.snapshot()
		disk, err := r.disk(x)
		if err != nil {
			return err
		}
		for _, c := range disk {
			if c.kind == 'D' {
				delete(now, c.new)
			} else if c.kind != 'U' {
				now[c.new] = c.to
			}
		}
		cs, new = changes(a, now), r.onDisk
	default:
		if cs, err = r.disk(x); err != nil {
			return err
		}
		new = r.onDisk
	}
	if f.Has(0xb2) || f.Has('R') {
		old, new = new, old
		for i := range cs {
			c := &cs[i]
			c.from, c.to, c.old, c.new = c.to, c.from, c.new, c.old
			c.kind = map[byte]byte{'A': 'D', 'D': 'A'}[c.kind]
			if c.kind == 0 {
				c.kind = 'M'
			}
		}
	}
	spec, err := r.pathspec(paths)
	if err != nil {
		return err
	}
	cs = slices.DeleteFunc(cs, func(c change) bool { return !spec.match(c.new) })
	if len(cs) > 0 {
		if !o.quiet {
			if err := r.show(cs, old, new, o); err != nil {
				return err
			}
		}
		if o.quiet || f.Has(0xa9) {
			return exit(1)
		}
	}
	return nil
}

func orHead(s string) string {
	if s == "" {
		return "HEAD"
	}
	return s
}

// diffFiles compares two files, which may be outside of a repository.
func (g *git) diffFiles(args []string, o *diffOptions) error {
	if len(args) != 2 {
		g.warnf("warning: Not a git repository. Use --no-index to compare two paths outside a working tree\nusage: git diff --no-index [<options>] <path> <path>")
		return exit(129)
	}
	r := &repo{git: g}
	read := func(name string, _ entry) ([]byte, error) {
		i, err := g.FS().Stat(g.path(name))
		if err != nil {
			return nil, fmt.Errorf("error: Could not access '%s'", name)
		}
		if i.Mode.IsDir() || i.Size > maxBlob {
			return nil, fatalf("only files can be compared with --no-index")
		}
		return g.FS().ReadFile(g.path(name))
	}
	var e [2]entry
	for k, a := range args {
		b, err := read(a, entry{})
		if err != nil {
			g.warnf("%v", err)
			return exit(1)
		}
		i, _ := g.FS().Stat(g.path(a))
		e[k] = entry{modeOf(i), plumbing.ComputeHash(plumbing.BlobObject, b)}
	}
	if e[0] == e[1] {
		return nil
	}
	trim := func(s string) string { return strings.TrimPrefix(s, "/") }
	c := change{kind: 'M', old: trim(args[0]), new: trim(args[1]), from: e[0], to: e[1]}
	by := func(name string) side {
		return func(string, entry) ([]byte, error) { return read(name, entry{}) }
	}
	o.noRename = true
	if err := r.show([]change{c}, by(args[0]), by(args[1]), o); err != nil {
		return err
	}
	return exit(1)
}

// cmdShow is git show.
func cmdShow(g *git, r *repo) error {
	given := g.args
	g.args = numbers(g.args)
	f, err := g.flags(logShort, logLong...)
	if err != nil {
		return err
	}
	o := &logOptions{max: -1}
	o.context = 3
	for _, x := range f.All {
		var none []string
		if err := o.take(r, x, &none); err != nil {
			return err
		}
	}
	if !o.other() && !o.wordless {
		o.patch = true
	}
	names := map[plumbing.Hash][]string{}
	if o.decorate || strings.Contains(o.format, "%d") || strings.Contains(o.format, "%D") {
		names = r.decorations()
	}
	revs, paths := f.Args, []string(nil)
	if i := slices.Index(given, "--"); i >= 0 {
		n := len(given) - i - 1
		revs, paths = f.Args[:len(f.Args)-n], f.Args[len(f.Args)-n:]
	}
	o.paths = paths
	if len(revs) == 0 {
		if _, err := r.headCommit(); err != nil {
			return err
		}
		revs = []string{"HEAD"}
	}
	for i, rev := range revs {
		if strings.Contains(rev, "..") && !strings.Contains(rev, ":") {
			if err := r.log([]string{rev}, o); err != nil {
				return err
			}
			continue
		}
		h, err := r.resolve(rev)
		if err != nil {
			return err
		}
		if err := r.showObject(rev, h, o, names, i == 0); err != nil {
			return err
		}
	}
	return nil
}

func (r *repo) showObject(rev string, h plumbing.Hash, o *logOptions, names map[plumbing.Hash][]string, first bool) error {
	obj, err := r.store.EncodedObject(plumbing.AnyObject, h)
	if err != nil {
		return fatalf("bad object %s", rev)
	}
	switch obj.Type() {
	case plumbing.BlobObject:
		b, err := r.blob(h)
		if err != nil {
			return err
		}
		_, err = r.w.Write(b)
		return err
	case plumbing.TreeObject:
		r.printf("tree %s\n\n", rev)
		t, err := object.GetTree(r.store, h)
		if err != nil {
			return err
		}
		for _, e := range t.Entries {
			if e.Mode == 0o040000 {
				e.Name += "/"
			}
			r.printf("%s\n", e.Name)
		}
		return nil
	case plumbing.TagObject:
		t, err := object.GetTag(r.store, h)
		if err != nil {
			return err
		}
		r.printf("tag %s\nTagger: %s <%s>\nDate:   %s\n\n%s\n", t.Name, t.Tagger.Name, t.Tagger.Email, r.dateText(t.Tagger.When, o.dates), t.Message)
		return r.showObject(t.Target.String(), t.Target, o, names, true)
	}
	c, err := r.commit(h)
	if err != nil {
		return err
	}
	if len(c.ParentHashes) > 1 {
		r.printf("%s\n", r.commitText(c, o, names[h]))
		if o.patch {
			r.printf("\n")
		}
		return nil
	}
	return r.oneCommit(c, o, names, first, false, nil)
}

// cmdDiffTree is git diff-tree.
func cmdDiffTree(g *git, r *repo) error {
	f, err := g.flags(diffShort+"rtmc", append([]string{"no-commit-id=\x80", "root=\x81", "stdin=\x82"}, diffLong...)...)
	if err != nil {
		return err
	}
	o := &diffOptions{context: 3, noRename: true}
	for _, x := range f.All {
		if err := o.take(x); err != nil {
			return err
		}
	}
	if !o.other() && !o.patch {
		o.raw = true
	}
	if len(f.Args) == 0 {
		return fatalf("usage: git diff-tree [<options>] <commit> [<commit>]")
	}
	c, err := r.resolveCommit(f.Args[0])
	if err != nil {
		return err
	}
	var cs []change
	if len(f.Args) > 1 {
		d, err := r.resolveCommit(f.Args[1])
		if err != nil {
			return err
		}
		a, err := r.files(c.TreeHash)
		if err != nil {
			return err
		}
		b, err := r.files(d.TreeHash)
		if err != nil {
			return err
		}
		cs = changes(a, b)
	} else {
		if len(c.ParentHashes) == 0 && !f.Has(0x81) {
			return nil
		}
		if cs, err = r.commitChanges(c); err != nil {
			return err
		}
		if !f.Has(0x80) {
			g.printf("%s\n", c.Hash)
		}
	}
	return r.show(cs, r.stored, r.stored, o)
}
