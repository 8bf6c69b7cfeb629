package git

import (
	"fmt"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
)

// cmdPick is git cherry-pick and git revert.
func cmdPick(g *git, r *repo) error {
	f, err := g.flags("xnem:sX:", "no-commit=n", "edit=e", "mainline=m", "signoff=s", "abort=\x80", "continue=\x81", "skip=\x82", "no-edit=\x83", "allow-empty=\x84", "keep-redundant-commits=\x84", "strategy=\x85:", "strategy-option=X", "quit=\x86")
	if err != nil {
		return err
	}
	revert := g.cmd == "revert"
	marker := "CHERRY_PICK_HEAD"
	if revert {
		marker = "REVERT_HEAD"
	}
	switch {
	case f.Has(0x80), f.Has(0x82):
		return r.abort(marker, "no cherry-pick or revert in progress")
	case f.Has(0x81):
		g.args = nil
		return cmdCommit(g, r)
	case len(f.Args) == 0:
		g.warnf("usage: git %s [<options>] <commit-ish>...", g.cmd)
		return exit(129)
	}
	var list []*object.Commit
	for _, a := range f.Args {
		if !strings.Contains(a, "..") {
			c, err := r.resolveCommit(a)
			if err != nil {
				return fatalf("bad revision '%s'", a)
			}
			list = append(list, c)
			continue
		}
		from, without, err := r.span([]string{a})
		if err != nil {
			return err
		}
		n := len(list)
		err = r.history(from, without, func(c *object.Commit) error { list = append(list, c); return nil })
		if err != nil {
			return err
		}
		if !revert {
			slices.Reverse(list[n:])
		}
	}
	for _, c := range list {
		if err := r.pick(c, revert, marker, f); err != nil {
			return err
		}
	}
	return nil
}

// pick applies the changes of a commit, or reverts them.
func (r *repo) pick(c *object.Commit, revert bool, marker string, f flagSet) error {
	if len(c.ParentHashes) > 1 && !f.Has('m') {
		r.warnf("error: commit %s is a merge but no -m option was given.\nfatal: %s failed", c.Hash, map[bool]string{true: "revert", false: "cherry-pick"}[revert])
		return exit(128)
	}
	parent := plumbing.ZeroHash
	if len(c.ParentHashes) > 0 {
		parent = c.ParentHashes[0]
	}
	base, err := r.treeOf(parent)
	if err != nil {
		return err
	}
	theirs, err := r.files(c.TreeHash)
	if err != nil {
		return err
	}
	branch, at := r.head()
	ours, err := r.treeOf(at)
	if err != nil {
		return err
	}
	label := fmt.Sprintf("%s (%s)", r.short(c.Hash), subject(c.Message))
	message := c.Message
	if revert {
		base, theirs = theirs, base
		label = "parent of " + label
		message = fmt.Sprintf("Revert \"%s\"\n\nThis reverts commit %s.\n", subject(c.Message), c.Hash)
	} else if f.Has('x') {
		message = strings.TrimRight(message, "\n") + fmt.Sprintf("\n\n(cherry picked from commit %s)\n", c.Hash)
	}
	m, err := r.threeWay(base, ours, theirs, "HEAD", label)
	if err != nil {
		return err
	}
	if err := r.settle(ours, m); err != nil {
		return err
	}
	if len(m.conflicts) > 0 {
		_ = r.write(marker, c.Hash.String()+"\n")
		_ = r.write("MERGE_MSG", message)
		verb := "apply"
		if revert {
			verb = "revert"
		}
		r.warnf("error: could not %s %s... %s\nhint: settle the conflicts, tell with git add or git rm which files are done, and run git %s --continue", verb, r.short(c.Hash), subject(c.Message), map[bool]string{true: "revert", false: "cherry-pick"}[revert])
		return exit(1)
	}
	if f.Has('n') {
		return nil
	}
	if len(changes(ours, m.files)) == 0 && !f.Has(0x84) {
		r.warnf("hint: nothing is left of this commit: git commit --allow-empty makes it all the same, git cherry-pick --skip leaves it out")
		return exit(1)
	}
	author := c.Author
	if revert {
		if author, err = r.identity("AUTHOR"); err != nil {
			return err
		}
	}
	committer, err := r.identity("COMMITTER")
	if err != nil {
		return err
	}
	tree, err := r.putTree(m.files)
	if err != nil {
		return err
	}
	h, err := r.putCommit(tree, []plumbing.Hash{at}, author, committer, message)
	if err == nil {
		err = r.moveHead(h)
	}
	if err != nil {
		return err
	}
	return r.announce(branch, h, ours, m.files, author, committer, message, false, true)
}
