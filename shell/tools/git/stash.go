package git

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/carrel-dev/carrel/shell/vfs"
)

// cmdStash is git stash.
func cmdStash(g *git, r *repo) error {
	verb := "push"
	if len(g.args) > 0 && !strings.HasPrefix(g.args[0], "-") {
		verb, g.args = g.args[0], g.args[1:]
	}
	switch verb {
	case "push", "save":
		return r.stashPush(g, verb == "save")
	case "list":
		for i, s := range r.stashes() {
			_, text, _ := strings.Cut(s.line, "\t")
			g.printf("stash@{%d}: %s\n", i, text)
		}
		return nil
	case "clear":
		if len(r.stashes()) == 0 {
			return nil
		}
		return r.keepStashes(nil)
	case "pop", "apply", "drop", "show", "branch":
		return r.stashUse(g, verb)
	}
	return fatalf("subcommand '%s' of git stash is not available here", verb)
}

func (r *repo) stashPush(g *git, save bool) error {
	f, err := g.flags("m:ukqapS", "message=m", "include-untracked=u", "keep-index=k", "no-keep-index=\x80", "quiet=q", "all=a", "patch=p", "staged=S")
	if err != nil {
		return err
	}
	if f.Has('p') || f.Has('S') {
		return fatalf("git stash -p and -S are not available here")
	}
	message := f.Value('m', "")
	paths := f.Args
	if save {
		message, paths = strings.Join(f.Args, " "), nil
	}
	_, at := r.head()
	if at.IsZero() {
		g.warnf("You do not have the initial commit yet")
		return exit(1)
	}
	spec, err := r.pathspec(paths)
	if err != nil {
		return err
	}
	x, err := r.index()
	if err != nil {
		return err
	}
	mode := "no"
	if f.Has('u') || f.Has('a') {
		mode = "all"
	}
	s, err := r.condition(x, mode, false)
	if err != nil {
		return err
	}
	s.limit(spec)
	if len(s.staged)+len(s.unstaged)+len(s.untracked) == 0 {
		g.printf("No local changes to save\n")
		return nil
	}
	who, err := r.identity("AUTHOR")
	if err != nil {
		return err
	}
	committer, err := r.identity("COMMITTER")
	if err != nil {
		return err
	}
	head, err := r.treeOf(at)
	if err != nil {
		return err
	}
	h, text, err := r.stashCommit(x, s, spec, head, who, committer, message)
	if err != nil {
		return err
	}
	entryLine := stashed{h, fmt.Sprintf("%s %s %s\t%s", plumbing.ZeroHash, h, stamp(committer), text)}
	if err := r.keepStashes(append([]stashed{entryLine}, r.stashes()...)); err != nil {
		return err
	}
	if err := r.stashClean(x, s, spec, head, f.Has('k')); err != nil {
		return err
	}
	if !f.Has('q') {
		g.printf("Saved working directory and index state %s\n", text)
	}
	return nil
}

// stashCommit makes the commit that stores the changes. Its tree is the work tree. Its parents are
// HEAD, the index and, if there are any, the untracked files. text is its message.
func (r *repo) stashCommit(x *staging, s *condition, spec *pathspec, head snapshot, who, committer object.Signature, message string) (h plumbing.Hash, text string, err error) {
	branch, at := r.head()
	now := snapshot{}
	for n, e := range x.snapshot() {
		if spec.match(n) {
			now[n] = e
		}
	}
	for n, e := range head {
		if !spec.match(n) {
			now[n] = e
		}
	}
	indexTree, err := r.putTree(x.snapshot())
	if err != nil {
		return h, "", err
	}
	for _, c := range s.unstaged {
		if err := r.stashFile(now, c.new); err != nil {
			return h, "", err
		}
	}
	c, err := r.commit(at)
	if err != nil {
		return h, "", err
	}
	name := strings.TrimPrefix(branch, "refs/heads/")
	if branch == "" {
		name = "(no branch)"
	}
	about := fmt.Sprintf("%s: %s %s", name, r.short(at), subject(c.Message))
	parents := []plumbing.Hash{at}
	one, err := r.putCommit(indexTree, []plumbing.Hash{at}, who, committer, "index on "+about+"\n")
	if err != nil {
		return h, "", err
	}
	parents = append(parents, one)
	if len(s.untracked) > 0 {
		extra := snapshot{}
		for _, n := range s.untracked {
			if err := r.stashFile(extra, n); err != nil {
				return h, "", err
			}
		}
		tree, err := r.putTree(extra)
		if err != nil {
			return h, "", err
		}
		if one, err = r.putCommit(tree, nil, who, committer, "untracked files on "+about+"\n"); err != nil {
			return h, "", err
		}
		parents = append(parents, one)
	}
	text = "WIP on " + about
	if message != "" {
		text = "On " + name + ": " + message
	}
	tree, err := r.putTree(now)
	if err != nil {
		return h, "", err
	}
	h, err = r.putCommit(tree, parents, who, committer, text)
	return h, text, err
}

// stashFile adds a file of the work tree to a tree, or removes it from the tree when the file is
// gone.
func (r *repo) stashFile(into snapshot, name string) error {
	i, ok := r.lstat(name)
	if !ok {
		delete(into, name)
		return nil
	}
	b, err := r.content(name, i)
	if err != nil {
		return err
	}
	h, err := r.putObject(plumbing.BlobObject, b)
	into[name] = entry{modeOf(i), h}
	return err
}

// stashClean resets the work tree and the index to HEAD after a stash. With keepIndex, it resets
// them to the staged state.
func (r *repo) stashClean(x *staging, s *condition, spec *pathspec, head snapshot, keepIndex bool) error {
	target := head
	if keepIndex {
		target = x.snapshot()
	}
	if !spec.all() {
		target = snapshot{}
		for n, e := range x.snapshot() {
			if !spec.match(n) {
				target[n] = e
			}
		}
		for n, e := range head {
			if spec.match(n) {
				target[n] = e
			}
		}
		for _, c := range s.unstaged {
			if e, ok := target[c.new]; ok && spec.match(c.new) {
				if _, err := r.checkoutFile(c.new, e); err != nil {
					return err
				}
			}
		}
		if err := r.moveTree(x.snapshot(), target, false, "checkout"); err != nil {
			return err
		}
	} else if err := r.moveTree(nil, target, true, "reset"); err != nil {
		return err
	}
	for _, n := range s.untracked {
		if err := r.removeFile(n); err != nil {
			return err
		}
	}
	return nil
}

// stashUse is git stash pop, apply, drop, show and branch.
func (r *repo) stashUse(g *git, verb string) error {
	f, err := g.flags("q"+diffShort, append([]string{"index=\x80", "quiet=q", "include-untracked=\x81"}, diffLong...)...)
	if err != nil {
		return err
	}
	args := f.Args
	branch := ""
	if verb == "branch" {
		if len(args) == 0 {
			return fatalf("No branch name specified")
		}
		branch, args = args[0], args[1:]
	}
	all := r.stashes()
	n, name := 0, "stash@{0}"
	if len(args) > 0 {
		t := strings.TrimSuffix(strings.TrimPrefix(args[0], "stash@{"), "}")
		if n, err = strconv.Atoi(t); err != nil || n < 0 {
			return fatalf("'%s' is not a stash reference", args[0])
		}
		name = fmt.Sprintf("stash@{%d}", n)
	}
	if len(all) == 0 && len(args) == 0 {
		g.warnf("No stash entries found.")
		return exit(1)
	}
	if n >= len(all) {
		g.warnf("error: %s is not a valid reference", name)
		return exit(1)
	}
	s := all[n]
	drop := func() error {
		if err := r.keepStashes(slices.Delete(slices.Clone(all), n, n+1)); err != nil {
			return err
		}
		if !f.Has('q') {
			ref := name
			if len(args) == 0 || verb == "pop" && n == 0 {
				ref = "refs/stash@{" + strconv.Itoa(n) + "}"
			}
			g.printf("Dropped %s (%s)\n", ref, s.at)
		}
		return nil
	}
	if verb == "drop" {
		return drop()
	}
	c, err := r.commit(s.at)
	if err != nil || len(c.ParentHashes) < 2 {
		return fatalf("'%s' is not a stash-like commit", name)
	}
	base, err := r.treeOf(c.ParentHashes[0])
	if err != nil {
		return err
	}
	theirs, err := r.files(c.TreeHash)
	if err != nil {
		return err
	}
	if verb == "show" {
		o := &diffOptions{context: 3}
		for _, x := range f.All {
			if err := o.take(x); err != nil {
				return err
			}
		}
		if !o.other() && !o.patch {
			o.stat = true
		}
		return r.show(changes(base, theirs), r.stored, r.stored, o)
	}
	if verb == "branch" {
		if err := r.newAndSwitch(g, branch, c.ParentHashes[0].String(), false, f); err != nil {
			return err
		}
	}
	if len(changes(base, theirs)) == 0 {
		g.printf("Already up to date.\n")
	}
	if err := r.unstash(c.ParentHashes, base, theirs); err != nil {
		if _, ok := err.(exit); ok {
			if x, xerr := r.index(); xerr == nil && len(x.unmerged()) > 0 && !f.Has('q') {
				if st, serr := r.condition(x, "normal", false); serr == nil {
					r.longStatus(g.w.Write, st, "normal", "", false)
				}
			}
		}
		if _, ok := err.(exit); ok && verb == "pop" {
			g.printf("The stash entry is kept in case you need it again.\n")
		}
		return err
	}
	if !f.Has('q') {
		x, err := r.index()
		if err != nil {
			return err
		}
		st, err := r.condition(x, "normal", false)
		if err != nil {
			return err
		}
		r.longStatus(g.w.Write, st, "normal", "", false)
	}
	if verb == "apply" {
		return nil
	}
	return drop()
}

// unstash merges a stash into the work tree. It adds new files to the index, and does not change
// the index otherwise.
func (r *repo) unstash(parents []plumbing.Hash, base, theirs snapshot) error {
	x, err := r.index()
	if err != nil {
		return err
	}
	before := x.snapshot()
	m, err := r.threeWay(base, before, theirs, "Updated upstream", "Stashed changes")
	if err != nil {
		return err
	}
	if err := r.settle(before, m); err != nil {
		return err
	}
	if len(m.conflicts) > 0 {
		return exit(1)
	}
	if x, err = r.index(); err != nil {
		return err
	}
	for _, e := range x.Entries {
		if old, ok := before[e.Name]; ok && e.Stage == 0 && old.hash != e.Hash {
			e.Hash, e.Mode, e.Size = old.hash, old.mode, 0 // the change is not staged
			e.ModifiedAt, e.Inode = e.ModifiedAt.Add(-1), 0
		}
	}
	for n, e := range before { // removed, but not in the index
		if _, ok := m.files[n]; !ok {
			x.put(entryFor(n, vfs.Info{}, e.hash))
			x.find(n, 0).Mode = e.mode
		}
	}
	if err := r.save(x); err != nil || len(parents) < 3 {
		return err
	}
	extra, err := r.treeOf(parents[2])
	if err != nil {
		return err
	}
	for n, e := range extra {
		if _, err := r.checkoutFile(n, e); err != nil {
			return err
		}
	}
	return nil
}
