package git

import (
	"fmt"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
)

// cmdMerge is git merge.
func cmdMerge(g *git, r *repo) error {
	f, err := g.flags("m:F:qnes:X:vS::", "message=m", "file=F", "quiet=q", "no-ff=\x80", "ff=\x81", "ff-only=\x82", "squash=\x83", "no-commit=\x84", "commit=\x85", "abort=\x86", "continue=\x87",
		"no-edit=\x88", "edit=e", "strategy=s", "strategy-option=X", "allow-unrelated-histories=\x89", "no-stat=n", "stat=\x8a", "no-verify=\x8a", "log=\x8b::", "no-squash=\x8a", "verbose=v", "quit=\x8c")
	if err != nil {
		return err
	}
	switch {
	case f.Has(0x86):
		return r.abort("MERGE_HEAD", "There is no merge to abort (MERGE_HEAD missing).")
	case f.Has(0x87):
		g.args = nil
		return cmdCommit(g, r)
	}
	if r.read("MERGE_HEAD") != "" {
		return fatalf("You have not concluded your merge (MERGE_HEAD exists).\nPlease, commit your changes before you merge.")
	}
	args := f.Args
	if len(args) == 0 {
		up, _ := r.upstream(r.branchName())
		if up == "" {
			return fatalf("No remote for the current branch.")
		}
		args = []string{up}
	}
	if len(args) > 1 {
		return fatalf("merging more than one commit at once is not available here")
	}
	c, err := r.resolveCommit(args[0])
	if err != nil {
		g.warnf("merge: %s - not something we can merge", args[0])
		return exit(1)
	}
	return r.merge(c, args[0], f)
}

// merge merges a commit into HEAD.
func (r *repo) merge(c *object.Commit, name string, f flagSet) error {
	branch, at := r.head()
	if at.IsZero() {
		if err := r.moveTree(snapshot{}, mustTree(r, c), false, "merge"); err != nil {
			return err
		}
		return r.moveHead(c.Hash)
	}
	base, err := r.mergeBase(at, c.Hash)
	if err != nil {
		return err
	}
	ours, err := r.treeOf(at)
	if err != nil {
		return err
	}
	theirs, err := r.files(c.TreeHash)
	if err != nil {
		return err
	}
	quiet := f.Has('q')
	switch {
	case base == c.Hash:
		if !quiet {
			r.printf("Already up to date.%s\n", map[bool]string{true: " (nothing to squash)"}[f.Has(0x83)])
		}
		return nil
	case base.IsZero() && !f.Has(0x89):
		return fatalf("refusing to merge unrelated histories")
	case base == at && !f.Has(0x80):
		if !quiet {
			r.printf("Updating %s..%s\n", r.short(at), r.short(c.Hash))
		}
		if err := r.moveTree(ours, theirs, false, "merge"); err != nil {
			return err
		}
		if f.Has(0x83) {
			r.printf("Fast-forward\nSquash commit -- not updating HEAD\n")
			return r.write("MERGE_MSG", "Squashed commit of the following:\n\n")
		}
		if err := r.moveHead(c.Hash); err != nil {
			return err
		}
		if quiet {
			return nil
		}
		r.printf("Fast-forward\n")
		return r.mergeStat(ours, theirs)
	case f.Has(0x82):
		r.warnf("hint: both sides have commits of their own: join them with git merge --no-ff, or move yours with git rebase")
		return fatalf("Not possible to fast-forward, aborting.")
	}
	was, err := r.treeOf(base)
	if err != nil {
		return err
	}
	m, err := r.threeWay(was, ours, theirs, "HEAD", name)
	if err != nil {
		return err
	}
	if err := r.settle(ours, m); err != nil {
		return err
	}
	message := r.mergeMessage(name, branch, f)
	if len(m.conflicts) > 0 {
		names := make([]string, 0, len(m.conflicts))
		for n := range m.conflicts {
			names = append(names, n)
		}
		slices.Sort(names)
		_ = r.write("MERGE_MSG", message+"\n# Conflicts:\n#\t"+strings.Join(names, "\n#\t")+"\n")
		if !f.Has(0x83) {
			_ = r.write("MERGE_HEAD", c.Hash.String()+"\n")
		}
		_ = r.write("ORIG_HEAD", at.String()+"\n")
		r.printf("Automatic merge failed; fix conflicts and then commit the result.\n")
		return exit(1)
	}
	switch {
	case f.Has(0x83):
		r.printf("Squash commit -- not updating HEAD\nAutomatic merge went well; stopped before committing as requested\n")
		return r.write("MERGE_MSG", "Squashed commit of the following:\n\n")
	case f.Has(0x84):
		_ = r.write("MERGE_HEAD", c.Hash.String()+"\n")
		_ = r.write("MERGE_MSG", message)
		r.printf("Automatic merge went well; stopped before committing as requested\n")
		return nil
	}
	author, err := r.identity("AUTHOR")
	if err != nil {
		return err
	}
	committer, err := r.identity("COMMITTER")
	if err != nil {
		return err
	}
	tree, err := r.putTree(m.files)
	if err != nil {
		return err
	}
	h, err := r.putCommit(tree, []plumbing.Hash{at, c.Hash}, author, committer, tidy(message, false))
	if err == nil {
		err = r.moveHead(h)
	}
	if err != nil || quiet {
		return err
	}
	r.printf("Merge made by the 'ort' strategy.\n")
	return r.mergeStat(ours, m.files)
}

func mustTree(r *repo, c *object.Commit) snapshot {
	s, err := r.files(c.TreeHash)
	if err != nil {
		return snapshot{}
	}
	return s
}

func (r *repo) mergeStat(a, b snapshot) error {
	return r.changed(a, b, &diffOptions{stat: true})
}

// changed shows the differences between a and b in the format of the options, followed by modes and
// renames.
func (r *repo) changed(a, b snapshot, how *diffOptions) error {
	cs, err := r.renames(changes(a, b), r.stored, r.stored)
	if err != nil {
		return err
	}
	if err := r.stat(cs, r.stored, r.stored, how); err != nil {
		return err
	}
	r.summary(cs)
	return nil
}

// mergeMessage returns git's default message for a merge.
func (r *repo) mergeMessage(name, branch string, f flagSet) string {
	if f.Has('m') {
		return strings.Join(f.Values('m'), "\n\n") + "\n"
	}
	kind := "commit"
	if _, ok := r.ref("refs/heads/" + name); ok {
		kind = "branch"
	} else if _, ok := r.ref("refs/tags/" + name); ok {
		kind = "tag"
	} else if _, ok := r.ref("refs/remotes/" + strings.TrimPrefix(name, "refs/remotes/")); ok {
		kind, name = "remote-tracking branch", strings.TrimPrefix(name, "refs/remotes/")
	}
	s := fmt.Sprintf("Merge %s '%s'", kind, name)
	if b := strings.TrimPrefix(branch, "refs/heads/"); b != "master" && b != "main" && b != "" {
		s += " into " + b
	}
	return s + "\n"
}

// abort restores the state before a merge or pick.
func (r *repo) abort(marker, missing string) error {
	if r.read(marker) == "" {
		return fatalf("%s", missing)
	}
	_, at := r.head()
	if err := r.hard(at); err != nil {
		return err
	}
	r.forget("MERGE_HEAD", "MERGE_MSG", "MERGE_MODE", "CHERRY_PICK_HEAD", "REVERT_HEAD")
	return nil
}
