package git

import (
	"path"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
)

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

// cmdReflog is git reflog. It fails, because no history of references is stored.
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
