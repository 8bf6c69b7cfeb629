package git

import (
	"slices"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/index"
)

// hard sets the index and the work tree to a commit.
func (r *repo) hard(to plumbing.Hash) error {
	target, err := r.treeOf(to)
	if err != nil {
		return err
	}
	return r.moveTree(nil, target, true, "reset")
}

// cmdReset is git reset.
func cmdReset(g *git, r *repo) error {
	given := g.args
	f, err := g.flags("qpN", "soft=\x80", "mixed=\x81", "hard=\x82", "keep=\x83", "merge=\x84", "quiet=q", "patch=p", "no-refresh=\x85", "refresh=\x85")
	if err != nil {
		return err
	}
	if f.Has('p') {
		return fatalf("git reset -p needs somebody at a terminal; it is not available here")
	}
	args := f.Args
	rev := "HEAD"
	dashes := slices.Index(given, "--")
	if n := len(given) - dashes - 1; len(args) > 0 && (dashes < 0 || len(args) > n) {
		if _, err := r.object(args[0]); err == nil {
			rev, args = args[0], args[1:]
		} else if _, there := r.lstatUser(args[0]); !there && dashes < 0 {
			x, ierr := r.index()
			if name, rerr := r.rel(args[0]); ierr != nil || rerr != nil || x.find(name, 0) == nil {
				_, err = r.resolve(args[0])
				return err
			}
		}
	}
	_, at := r.head()
	var to plumbing.Hash
	if rev != "HEAD" || !at.IsZero() {
		c, err := r.resolveCommit(rev)
		if err != nil {
			return err
		}
		to = c.Hash
	}
	if len(args) > 0 {
		if f.Has(0x80) || f.Has(0x82) {
			return fatalf("Cannot do %s reset with paths.", map[bool]string{true: "soft", false: "hard"}[f.Has(0x80)])
		}
		return r.resetPaths(to, args, f.Has('q'))
	}
	switch {
	case f.Has(0x80):
	case f.Has(0x82), f.Has(0x84):
		if err := r.hard(to); err != nil {
			return err
		}
	case f.Has(0x83):
		from, err := r.treeOf(at)
		if err != nil {
			return err
		}
		target, err := r.treeOf(to)
		if err == nil {
			err = r.moveTree(from, target, false, "checkout")
		}
		if err != nil {
			return err
		}
	default:
		if err := r.resetPaths(to, nil, f.Has('q')); err != nil {
			return err
		}
	}
	if !to.IsZero() {
		if err := r.moveHead(to); err != nil {
			return err
		}
	}
	r.forget("MERGE_HEAD", "MERGE_MSG", "MERGE_MODE", "CHERRY_PICK_HEAD", "REVERT_HEAD")
	if f.Has(0x82) && !f.Has('q') && !to.IsZero() {
		c, err := r.commit(to)
		if err != nil {
			return err
		}
		g.printf("HEAD is now at %s %s\n", r.short(to), subject(c.Message))
	}
	return nil
}

// resetPaths sets the index, or some paths in it, to a commit, and reports the paths that are then
// unstaged.
func (r *repo) resetPaths(to plumbing.Hash, args []string, quiet bool) error {
	spec, err := r.pathspec(args)
	if err != nil {
		return err
	}
	target, err := r.treeOf(to)
	if err != nil {
		return err
	}
	x, err := r.index()
	if err != nil {
		return err
	}
	gone := map[string]bool{}
	for n := range x.unmerged() {
		gone[n] = spec.match(n)
	}
	for n := range x.snapshot() {
		if _, ok := target[n]; !ok && spec.match(n) {
			gone[n] = true
		}
	}
	x.drop(gone)
	for n, e := range target {
		if !spec.match(n) {
			continue
		}
		old := x.find(n, 0)
		if old == nil || (entry{old.Mode, old.Hash}) != e {
			x.put(&index.Entry{Name: n, Hash: e.hash, Mode: e.mode})
		}
	}
	if err := r.save(x); err != nil || quiet || r.top == "" {
		return err
	}
	changed, err := r.disk(x)
	if err != nil || len(changed) == 0 {
		return err
	}
	r.printf("Unstaged changes after reset:\n")
	for _, c := range changed {
		r.printf("%c\t%s\n", c.kind, c.new)
	}
	return nil
}
