package git

import (
	"fmt"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
)

// cmdRebase is git rebase for a linear history. It never stops in the middle: after a conflict it
// restores the old state.
func cmdRebase(g *git, r *repo) error {
	f, err := g.flags("iqm", "onto=\x80:", "interactive=i", "quiet=q", "abort=\x81", "continue=\x82", "skip=\x82", "autostash=\x83", "no-autostash=\x83", "root=\x84", "merge=m", "keep-empty=\x83")
	if err != nil {
		return err
	}
	switch {
	case f.Has('i') || f.Has(0x84):
		return fatalf("git rebase -i and --root are not available here")
	case f.Has(0x81), f.Has(0x82):
		return fatalf("No rebase in progress?")
	}
	up := ""
	if len(f.Args) > 0 {
		up = f.Args[0]
	} else if ref, _ := r.upstream(r.branchName()); ref != "" {
		up = ref
	} else {
		return fatalf("there is no tracking information for the current branch")
	}
	if len(f.Args) > 1 {
		g.args = []string{f.Args[1]}
		if err := cmdCheckout(g, r); err != nil {
			return err
		}
	}
	x, err := r.index()
	if err != nil {
		return err
	}
	s, err := r.condition(x, "no", false)
	if err != nil {
		return err
	}
	if len(s.unstaged) > 0 || len(s.staged) > 0 {
		what := "You have unstaged changes."
		if len(s.unstaged) == 0 {
			what = "Your index contains uncommitted changes."
		}
		g.warnf("error: cannot rebase: %s\nerror: Please commit or stash them.", what)
		return exit(1)
	}
	upstream, err := r.resolveCommit(up)
	if err != nil {
		return fatalf("invalid upstream '%s'", up)
	}
	onto := upstream
	if o := f.Value(0x80, ""); o != "" {
		if onto, err = r.resolveCommit(o); err != nil {
			return err
		}
	}
	branch, at := r.head()
	var list []*object.Commit
	err = r.history([]plumbing.Hash{at}, []plumbing.Hash{upstream.Hash}, func(c *object.Commit) error {
		if len(c.ParentHashes) < 2 {
			list = append(list, c)
		}
		return nil
	})
	if err != nil {
		return err
	}
	list = topological(list)
	slices.Reverse(list)
	name := strings.TrimPrefix(branch, "refs/heads/")
	if base, err := r.mergeBase(at, onto.Hash); err == nil && base == onto.Hash && !f.Has(0x80) {
		g.printf("Current branch %s is up to date.\n", name)
		return nil
	}
	head := onto.Hash
	now, err := r.files(onto.TreeHash)
	if err != nil {
		return err
	}
	committer, err := r.identity("COMMITTER")
	if err != nil {
		return err
	}
	for _, c := range list {
		base := snapshot{}
		if len(c.ParentHashes) > 0 {
			if base, err = r.treeOf(c.ParentHashes[0]); err != nil {
				return err
			}
		}
		theirs, err := r.files(c.TreeHash)
		if err != nil {
			return err
		}
		m, err := r.threeWay(base, now, theirs, "HEAD", fmt.Sprintf("%s (%s)", r.short(c.Hash), subject(c.Message)))
		if err != nil {
			return err
		}
		if len(m.conflicts) > 0 {
			for _, s := range m.messages {
				g.printf("%s\n", s)
			}
			g.warnf("error: could not apply %s... %s\nThe rebase was undone: stopping in the middle is not available here. Use git merge, or git cherry-pick commit by commit.", r.short(c.Hash), subject(c.Message))
			return exit(1)
		}
		before := now
		now = m.files
		if len(changes(before, now)) == 0 {
			g.warnf("dropping %s %s -- patch contents already upstream", c.Hash, subject(c.Message))
			continue
		}
		tree, err := r.putTree(now)
		if err != nil {
			return err
		}
		if head, err = r.putCommit(tree, []plumbing.Hash{head}, c.Author, committer, c.Message); err != nil {
			return err
		}
	}
	was, err := r.treeOf(at)
	if err != nil {
		return err
	}
	if err := r.moveTree(was, now, false, "checkout"); err != nil {
		return err
	}
	if err := r.moveHead(head); err != nil {
		return err
	}
	if !f.Has('q') {
		g.warnf("Successfully rebased and updated %s.", branch)
	}
	return nil
}
