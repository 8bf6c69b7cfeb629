package git

import (
	"github.com/go-git/go-git/v5/plumbing/format/index"
	"github.com/go-git/go-git/v5/plumbing/object"
)

// checkoutPaths copies files from the index or a tree to the work tree.
func (r *repo) checkoutPaths(g *git, rev string, paths []string, ours, theirs bool) error {
	spec, err := r.pathspec(paths)
	if err != nil {
		return err
	}
	x, err := r.index()
	if err != nil {
		return err
	}
	from := x.snapshot()
	if ours || theirs {
		stage := index.OurMode
		if theirs {
			stage = index.TheirMode
		}
		from = snapshot{}
		for _, e := range x.Entries {
			if e.Stage == stage {
				from[e.Name] = entry{e.Mode, e.Hash}
			}
		}
	}
	if rev != "" {
		c, err := r.resolveCommit(rev)
		if err != nil {
			return err
		}
		if from, err = r.files(c.TreeHash); err != nil {
			return err
		}
	}
	n := 0
	for _, name := range from.names() {
		if !spec.match(name) {
			continue
		}
		if rev == "" && !ours && !theirs {
			e := x.find(name, 0)
			if i, ok := r.lstat(name); ok && e != nil && !i.Mode.IsDir() {
				if h, err := r.hashOf(name, i, e); err == nil && h == e.Hash && modeOf(i) == e.Mode {
					continue
				}
			}
		}
		e, err := r.checkoutFile(name, from[name])
		if err != nil {
			return err
		}
		n++
		if !ours && !theirs {
			if rev != "" {
				x.remove(name)
			}
			x.put(e)
		}
	}
	if name, ok := spec.missed(paths); ok {
		g.warnf("error: pathspec '%s' did not match any file(s) known to git", name)
		return exit(1)
	}
	if rev != "" {
		if c, err := r.resolveCommit(rev); err == nil {
			g.warnf("Updated %s from %s", plural(n, "path"), r.short(c.TreeHash))
		}
	} else if !ours && !theirs {
		g.warnf("Updated %s from the index", plural(n, "path"))
	}
	return r.save(x)
}

// cmdRestore is git restore.
func cmdRestore(g *git, r *repo) error {
	f, err := g.flags("SWs:qp", "staged=S", "worktree=W", "source=s", "quiet=q", "ours=\x80", "theirs=\x81", "patch=p", "ignore-unmerged=\x82", "progress=\x82", "no-progress=\x82")
	if err != nil {
		return err
	}
	if len(f.Args) == 0 {
		return fatalf("you must specify path(s) to restore")
	}
	spec, err := r.pathspec(f.Args)
	if err != nil {
		return err
	}
	x, err := r.index()
	if err != nil {
		return err
	}
	staged, work := f.Has('S'), f.Has('W') || !f.Has('S')
	from := x.snapshot()
	if f.Has('s') || staged {
		if _, at := r.head(); f.Has('s') || !at.IsZero() {
			var c *object.Commit
			if c, err = r.resolveCommit(f.Value('s', "HEAD")); err != nil {
				return fatalf("could not resolve %s", f.Value('s', "HEAD"))
			}
			if from, err = r.files(c.TreeHash); err != nil {
				return err
			}
		} else {
			from = snapshot{}
		}
	}
	now := x.snapshot()
	names := map[string]bool{}
	for n := range from {
		names[n] = spec.match(n)
	}
	for n := range now {
		names[n] = spec.match(n)
	}
	for n := range x.unmerged() {
		names[n] = spec.match(n)
	}
	if name, ok := spec.missed(f.Args); ok {
		g.warnf("error: pathspec '%s' did not match any file(s) known to git", name)
		return exit(1)
	}
	for n, yes := range names {
		if !yes {
			continue
		}
		e, there := from[n]
		var fresh *index.Entry
		if work {
			if !there {
				if f.Has('s') || staged {
					err = r.removeFile(n)
				}
			} else {
				fresh, err = r.checkoutFile(n, e)
			}
			if err != nil {
				return err
			}
		}
		switch {
		case !staged && fresh != nil && now[n] == e:
			x.put(fresh)
		case !staged:
		case !there:
			x.remove(n)
		default:
			if fresh == nil {
				fresh = &index.Entry{Name: n, Hash: e.hash, Mode: e.mode}
			}
			if len(x.unmerged()) > 0 {
				x.remove(n)
			}
			x.put(fresh)
		}
	}
	return r.save(x)
}
