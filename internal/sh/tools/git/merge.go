package git

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/format/index"
	"github.com/go-git/go-git/v5/plumbing/object"
)

// merged is the result of a three-way merge.
type merged struct {
	files     snapshot
	conflicts map[string][3]entry // base, ours, theirs
	texts     map[string][]byte   // with markers
	messages  []string
}

// threeWay merges trees; names are those for conflict markers.
func (r *repo) threeWay(base, ours, theirs snapshot, nameOurs, nameTheirs string) (*merged, error) {
	m := &merged{files: snapshot{}, conflicts: map[string][3]entry{}, texts: map[string][]byte{}}
	base, err := r.followRenames(base, ours, theirs)
	if err != nil {
		return nil, err
	}
	all := map[string]bool{}
	for _, s := range []snapshot{base, ours, theirs} {
		for n := range s {
			all[n] = true
		}
	}
	names := make([]string, 0, len(all))
	for n := range all {
		names = append(names, n)
	}
	slices.Sort(names)
	for _, n := range names {
		b, o, t := base[n], ours[n], theirs[n]
		switch {
		case o == t:
			m.take(n, o)
		case o == b:
			m.take(n, t)
		case t == b:
			m.take(n, o)
		case o.mode == 0 || t.mode == 0:
			m.conflicts[n] = [3]entry{b, o, t}
			gone, kept, e := nameOurs, nameTheirs, t
			if t.mode == 0 {
				gone, kept, e = nameTheirs, nameOurs, o
			}
			m.files[n] = e
			m.messages = append(m.messages, fmt.Sprintf("CONFLICT (modify/delete): %s deleted in %s and modified in %s.  Version %s of %s left in tree.", n, gone, kept, kept, n))
		default:
			if err := r.mergeFile(m, n, b, o, t, nameOurs, nameTheirs); err != nil {
				return nil, err
			}
		}
	}
	return m, nil
}

func (m *merged) take(name string, e entry) {
	if e.mode != 0 {
		m.files[name] = e
	}
}

// followRenames makes a file that one side has renamed appear under its new name on all sides.
func (r *repo) followRenames(base, ours, theirs snapshot) (snapshot, error) {
	move := func(mine, other snapshot) error {
		cs, err := r.renames(changes(base, mine), r.stored, r.stored)
		if err != nil {
			return err
		}
		for _, c := range cs {
			if c.kind != 'R' {
				continue
			}
			e, ok := other[c.old]
			if _, taken := other[c.new]; !ok || taken {
				continue
			}
			base[c.new] = base[c.old]
			other[c.new] = e
			delete(base, c.old)
			delete(other, c.old)
		}
		return nil
	}
	err := move(ours, theirs)
	if err == nil {
		err = move(theirs, ours)
	}
	return base, err
}

// mergeFile merges the contents of one file.
func (r *repo) mergeFile(m *merged, name string, b, o, t entry, nameOurs, nameTheirs string) error {
	mode := o.mode
	if o.mode == b.mode {
		mode = t.mode
	}
	ours, err := r.stored(name, o)
	if err != nil {
		return err
	}
	theirs, err := r.stored(name, t)
	if err != nil {
		return err
	}
	var old []byte
	if b.mode != 0 {
		if old, err = r.stored(name, b); err != nil {
			return err
		}
	}
	if isBinary(ours) || isBinary(theirs) || isBinary(old) || !mode.IsFile() || mode == filemode.Symlink {
		m.conflicts[name] = [3]entry{b, o, t}
		m.files[name] = o
		m.messages = append(m.messages, fmt.Sprintf("warning: Cannot merge binary files: %s (%s vs. %s)", name, nameOurs, nameTheirs),
			"Auto-merging "+name, "CONFLICT (content): Merge conflict in "+name)
		return nil
	}
	text, clean, err := r.mergeText(old, ours, theirs, nameOurs, nameTheirs)
	if err != nil {
		return err
	}
	m.messages = append(m.messages, "Auto-merging "+name)
	h, err := r.putObject(plumbing.BlobObject, text)
	if err != nil {
		return err
	}
	m.files[name] = entry{mode, h}
	if !clean {
		kind := "content"
		if b.mode == 0 {
			kind = "add/add"
		}
		m.messages = append(m.messages, "CONFLICT ("+kind+"): Merge conflict in "+name)
		m.conflicts[name] = [3]entry{b, o, t}
		m.texts[name] = text
	}
	return nil
}

// mergeText merges lines; where both sides changed the same ones it leaves markers.
func (r *repo) mergeText(base, ours, theirs []byte, nameOurs, nameTheirs string) ([]byte, bool, error) {
	b, o, t := splitLines(base), splitLines(ours), splitLines(theirs)
	eo, err := r.compare(b, o)
	if err != nil {
		return nil, false, err
	}
	et, err := r.compare(b, t)
	if err != nil {
		return nil, false, err
	}
	var out bytes.Buffer
	clean := true
	at := 0 // in base
	shiftO, shiftT := 0, 0
	write := func(lines [][]byte) {
		for _, l := range lines {
			out.Write(l)
		}
	}
	for len(eo) > 0 || len(et) > 0 {
		// The next region of base that anybody changed, with all changes that touch it.
		start, end := 1<<62, -1
		if len(eo) > 0 {
			start = eo[0].a1
		}
		if len(et) > 0 {
			start = min(start, et[0].a1)
		}
		end = start
		no, nt := 0, 0
		for {
			before := no + nt
			for no < len(eo) && eo[no].a1 <= end && (eo[no].a1 < end || eo[no].a1 == start || nt > 0 || no > 0) {
				end = max(end, eo[no].a2)
				no++
			}
			for nt < len(et) && et[nt].a1 <= end && (et[nt].a1 < end || et[nt].a1 == start || no > 0 || nt > 0) {
				end = max(end, et[nt].a2)
				nt++
			}
			if no+nt == before {
				break
			}
		}
		write(b[at:start])
		o1, o2 := start+shiftO, end+shiftO
		for _, e := range eo[:no] {
			o2 += (e.b2 - e.b1) - (e.a2 - e.a1)
		}
		t1, t2 := start+shiftT, end+shiftT
		for _, e := range et[:nt] {
			t2 += (e.b2 - e.b1) - (e.a2 - e.a1)
		}
		mine, other := o[o1:o2], t[t1:t2]
		switch {
		case nt == 0:
			write(mine)
		case no == 0:
			write(other)
		case equalLines(mine, other):
			write(mine)
		default:
			clean = false
			head, tail := 0, 0
			for head < len(mine) && head < len(other) && bytes.Equal(mine[head], other[head]) {
				head++
			}
			for tail < len(mine)-head && tail < len(other)-head && bytes.Equal(mine[len(mine)-1-tail], other[len(other)-1-tail]) {
				tail++
			}
			write(mine[:head])
			out.WriteString("<<<<<<< " + nameOurs + "\n")
			write(mine[head : len(mine)-tail])
			endLine(&out)
			out.WriteString("=======\n")
			write(other[head : len(other)-tail])
			endLine(&out)
			out.WriteString(">>>>>>> " + nameTheirs + "\n")
			write(mine[len(mine)-tail:])
		}
		shiftO, shiftT = o2-end, t2-end
		at = end
		eo, et = eo[no:], et[nt:]
	}
	write(b[at:])
	return out.Bytes(), clean, nil
}

func endLine(b *bytes.Buffer) {
	if n := b.Len(); n > 0 && b.Bytes()[n-1] != '\n' {
		b.WriteByte('\n')
	}
}

func equalLines(a, b [][]byte) bool { return slices.EqualFunc(a, b, bytes.Equal) }

// settle puts the result of a merge into index and work tree.
func (r *repo) settle(from snapshot, m *merged) error {
	clean := snapshot{}
	for n, e := range m.files {
		clean[n] = e
	}
	if err := r.moveTree(from, clean, false, "merge"); err != nil {
		return err
	}
	for _, s := range m.messages {
		r.printf("%s\n", s)
	}
	if len(m.conflicts) == 0 {
		return nil
	}
	x, err := r.index()
	if err != nil {
		return err
	}
	for n, c := range m.conflicts {
		x.remove(n)
		for i, e := range c {
			if e.mode != 0 {
				x.Entries = append(x.Entries, &index.Entry{Name: n, Hash: e.hash, Mode: e.mode, Stage: index.Stage(i + 1)})
			}
		}
	}
	return r.save(x)
}

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

// merge joins a commit into HEAD.
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
		r.warnf("hint: Diverging branches can't be fast-forwarded, you need to either:\nhint:\nhint: \tgit merge --no-ff\nhint:\nhint: or:\nhint:\nhint: \tgit rebase\nhint:\nhint: Disable this message with \"git config advice.diverging false\"")
		return fatalf("Not possible to fast-forward, aborting.")
	}
	was, err := r.treeOf(base)
	if err != nil {
		return err
	}
	first := snapshot{}
	for n, e := range ours {
		first[n] = e
	}
	m, err := r.threeWay(was, ours, theirs, "HEAD", name)
	if err != nil {
		return err
	}
	if err := r.settle(first, m); err != nil {
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
	return r.mergeStat(first, m.files)
}

func mustTree(r *repo, c *object.Commit) snapshot {
	s, err := r.files(c.TreeHash)
	if err != nil {
		return snapshot{}
	}
	return s
}

func (r *repo) mergeStat(a, b snapshot) error {
	cs, err := r.renames(changes(a, b), r.stored, r.stored)
	if err != nil {
		return err
	}
	if err := r.stat(cs, r.stored, r.stored, &diffOptions{stat: true}); err != nil {
		return err
	}
	r.summary(cs)
	return nil
}

// mergeMessage is git's text for a merge.
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

// abort goes back to before a merge or pick.
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

// hard makes index and work tree those of a commit.
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

// resetPaths makes the index, or some paths of it, those of a commit, and tells what is unstaged then.
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

// pick applies what a commit changed, or undoes it.
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
	first := snapshot{}
	for n, e := range ours {
		first[n] = e
	}
	m, err := r.threeWay(base, ours, theirs, "HEAD", label)
	if err != nil {
		return err
	}
	if err := r.settle(first, m); err != nil {
		return err
	}
	if len(m.conflicts) > 0 {
		_ = r.write(marker, c.Hash.String()+"\n")
		_ = r.write("MERGE_MSG", message)
		verb := "apply"
		if revert {
			verb = "revert"
		}
		r.warnf("error: could not %s %s... %s\nhint: After resolving the conflicts, mark them with\nhint: \"git add/rm <pathspec>\", then run\nhint: \"git %s --continue\".", verb, r.short(c.Hash), subject(c.Message), map[bool]string{true: "revert", false: "cherry-pick"}[revert])
		return exit(1)
	}
	if f.Has('n') {
		return nil
	}
	if len(changes(first, m.files)) == 0 && !f.Has(0x84) {
		r.warnf("The previous cherry-pick is now empty, possibly due to conflict resolution.\nIf you wish to commit it anyway, use:\n\n    git commit --allow-empty\n\nOtherwise, please use 'git cherry-pick --skip'")
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
	return r.announce(branch, h, first, m.files, author, committer, message, false, true)
}

// cmdRebase is git rebase of a line of commits. It stops for nothing: with a conflict all is put back.
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
		first := snapshot{}
		for n, e := range now {
			first[n] = e
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
		now = m.files
		if len(changes(first, now)) == 0 {
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

// stashed is one entry of the stash.
type stashed struct {
	at   plumbing.Hash
	line string // of the log
}

const stashLog = "logs/refs/stash"

// stashes lists the stash, the youngest first.
func (r *repo) stashes() []stashed {
	var out []stashed
	for _, l := range strings.Split(r.read(stashLog), "\n") {
		if f := strings.Fields(l); len(f) > 2 && len(f[1]) == 40 {
			out = append(out, stashed{plumbing.NewHash(f[1]), l})
		}
	}
	slices.Reverse(out)
	return out
}

func (r *repo) stashHead() plumbing.Hash {
	h, _ := r.ref("refs/stash")
	return h
}

// keepStashes writes the list back.
func (r *repo) keepStashes(all []stashed) error {
	if len(all) == 0 {
		r.forget(stashLog)
		return r.store.RemoveReference("refs/stash")
	}
	var b strings.Builder
	old := plumbing.ZeroHash
	for _, s := range slices.Backward(all) {
		f := strings.SplitN(s.line, " ", 3)
		fmt.Fprintf(&b, "%s %s %s\n", old, s.at, f[2])
		old = s.at
	}
	if err := r.FS().MkdirAll(path.Dir(path.Join(r.git_, stashLog)), 0o777&^r.Umask()); err != nil {
		return err
	}
	if err := r.write(stashLog, b.String()); err != nil {
		return err
	}
	return r.setRef("refs/stash", all[0].at)
}
