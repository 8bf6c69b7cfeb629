package git

import (
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
)

// moveTree changes the index and the work tree from one tree to another. With force, local changes
// are lost. Without force, it changes nothing if local changes are in the way, and the error names
// them.
func (r *repo) moveTree(from, to snapshot, force bool, verb string) error {
	x, err := r.index()
	if err != nil {
		return err
	}
	cs := changes(from, to)
	if force {
		cs = changes(x.snapshot(), to)
		dirty, err := r.disk(x)
		if err != nil {
			return err
		}
		for _, c := range dirty {
			if e, ok := to[c.new]; ok && !slices.ContainsFunc(cs, func(o change) bool { return o.new == c.new }) {
				cs = append(cs, change{kind: 'M', old: c.new, new: c.new, from: c.from, to: e})
			}
		}
	} else if err := r.inTheWay(x, cs, to, verb); err != nil {
		return err
	}
	gone := map[string]bool{}
	for n := range x.unmerged() {
		gone[n] = force
		if _, ok := to[n]; !ok && force {
			if err := r.removeFile(n); err != nil {
				return err
			}
		}
	}
	if force {
		x.drop(gone)
	}
	gone = map[string]bool{}
	for _, c := range cs {
		if c.kind == 'D' {
			if err := r.removeFile(c.old); err != nil {
				return err
			}
			gone[c.old] = true
		}
	}
	x.drop(gone)
	for _, c := range cs {
		if c.kind == 'D' {
			continue
		}
		if e := x.find(c.new, 0); e != nil && !force && (entry{e.Mode, e.Hash}) == c.to {
			continue // it is so already
		}
		e, err := r.checkoutFile(c.new, c.to)
		if err != nil {
			return err
		}
		x.put(e)
	}
	return r.save(x)
}

// inTheWay returns an error if local changes would be lost.
func (r *repo) inTheWay(x *staging, cs []change, to snapshot, verb string) error {
	if len(x.unmerged()) > 0 {
		for n := range x.unmerged() {
			r.printf("%s: needs merge\n", n)
		}
		r.warnf("error: you need to resolve your current index first")
		return exit(1)
	}
	var changed, untracked []string
	for _, c := range cs {
		e := x.find(c.new, 0)
		i, there := r.lstat(c.new)
		if e == nil {
			if there && !i.Mode.IsDir() && c.kind != 'D' {
				if h, err := r.hashOf(c.new, i, nil); err != nil || h != c.to.hash {
					untracked = append(untracked, c.new)
				}
			}
			if c.kind == 'M' {
				changed = append(changed, c.new)
			}
			continue
		}
		now := entry{e.Mode, e.Hash}
		if now == c.to && c.kind != 'D' {
			continue
		}
		if now != c.from {
			changed = append(changed, c.new)
			continue
		}
		if there && !i.Mode.IsDir() {
			h, err := r.hashOf(c.new, i, e)
			if err != nil {
				return err
			}
			if h != e.Hash || modeOf(i) != e.Mode {
				changed = append(changed, c.new)
			}
		}
	}
	if len(changed)+len(untracked) == 0 {
		return nil
	}
	what := map[string]string{"checkout": "switch branches", "merge": "merge"}[verb]
	if len(changed) > 0 {
		r.warnf("error: Your local changes to the following files would be overwritten by %s:\n\t%s\nPlease commit your changes or stash them before you %s.", verb, strings.Join(changed, "\n\t"), what)
	}
	if len(untracked) > 0 {
		r.warnf("error: The following untracked working tree files would be overwritten by %s:\n\t%s\nPlease move or remove them before you %s.", verb, strings.Join(untracked, "\n\t"), what)
	}
	r.warnf("Aborting")
	return exit(1)
}

// switchTo checks out a commit and sets HEAD to a branch ("" for a detached HEAD).
func (r *repo) switchTo(branch string, to plumbing.Hash, force bool) error {
	old, at := r.head()
	from, err := r.treeOf(at)
	if err != nil {
		return err
	}
	target, err := r.treeOf(to)
	if err != nil {
		return err
	}
	if at != to || force {
		if err := r.moveTree(from, target, force, "checkout"); err != nil {
			return err
		}
	}
	leaving := strings.TrimPrefix(old, "refs/heads/")
	if old == "" {
		leaving = at.String()
	}
	if "refs/heads/"+branch != old {
		_ = r.write("carrel-previous", leaving+"\n") // for "git checkout -"
	}
	if branch == "" {
		return r.store.SetReference(plumbing.NewHashReference(plumbing.HEAD, to))
	}
	return r.store.SetReference(plumbing.NewSymbolicReference(plumbing.HEAD, plumbing.ReferenceName("refs/heads/"+branch)))
}

// leftovers reports local changes that a switch has kept.
func (r *repo) leftovers() error {
	x, err := r.index()
	if err != nil {
		return err
	}
	s, err := r.condition(x, "no", false)
	if err != nil {
		return err
	}
	seen := map[string]byte{}
	for _, c := range append(s.staged, s.unstaged...) {
		if c.kind == 'R' {
			seen[c.old], seen[c.new] = 'D', 'A'
		} else if seen[c.new] == 0 {
			seen[c.new] = c.kind
		}
	}
	var names []string
	for n := range seen {
		names = append(names, n)
	}
	slices.Sort(names)
	for _, n := range names {
		r.printf("%c\t%s\n", seen[n], n)
	}
	return nil
}

// cmdCheckout is git checkout.
func cmdCheckout(g *git, r *repo) error { return r.checkout(g, false) }

// cmdSwitch is git switch.
func cmdSwitch(g *git, r *repo) error { return r.checkout(g, true) }

func (r *repo) checkout(g *git, isSwitch bool) error {
	given := g.args
	for i, a := range given {
		if a == "-" { // "-" is the previous branch, not a file name
			given = slices.Clone(given)
			given[i] = "@{-1}"
		}
	}
	g.args = given
	short, long := "b:B:fqtdlp", []string{"force=f", "quiet=q", "track=t", "no-track=\x80", "detach=d", "orphan=\x81:", "ours=\x82", "theirs=\x83", "patch=p", "progress=\x84", "no-progress=\x84", "guess=\x84", "no-guess=\x84", "conflict=\x85:", "merge=\x86"}
	if isSwitch {
		short, long = "c:C:fqtd", []string{"create=c", "force-create=C", "force=f", "discard-changes=f", "quiet=q", "track=t", "no-track=\x80", "detach=d", "orphan=\x81:", "guess=\x84", "no-guess=\x84", "progress=\x84", "no-progress=\x84"}
	}
	f, err := g.flags(short, long...)
	if err != nil {
		return err
	}
	if err := r.needTree(); err != nil {
		return err
	}
	if f.Has('p') && !isSwitch {
		return fatalf("git checkout -p needs somebody at a terminal; it is not available here")
	}
	fresh := f.Value('b', f.Value('B', ""))
	reset := f.Has('B')
	if isSwitch {
		fresh, reset = f.Value('c', f.Value('C', "")), f.Has('C')
	}
	dashes := slices.Index(given, "--")
	args := f.Args
	if orphan := f.Value(0x81, ""); orphan != "" {
		if _, ok := r.ref("refs/heads/" + orphan); ok {
			return fatalf("a branch named '%s' already exists", orphan)
		}
		g.warnf("Switched to a new branch '%s'", orphan)
		return r.store.SetReference(plumbing.NewSymbolicReference(plumbing.HEAD, plumbing.ReferenceName("refs/heads/"+orphan)))
	}
	if fresh != "" {
		start := "HEAD"
		if len(args) > 0 {
			start = args[0]
		}
		return r.newAndSwitch(g, fresh, start, reset, f)
	}
	if len(args) == 0 {
		if isSwitch {
			return fatalf("missing branch or commit argument")
		}
		if up := r.upstreamText(r.branchName()); up != "" {
			if err := r.leftovers(); err != nil {
				return err
			}
			g.printf("%s", up)
			return nil
		}
		return r.leftovers()
	}
	if !isSwitch && dashes == 0 || dashes > 0 && !isSwitch || len(args) > 1 {
		rev, paths := "", args
		if n := len(given) - dashes - 1; dashes >= 0 && len(args) > n {
			rev, paths = args[0], args[1:]
		} else if dashes < 0 {
			if _, err := r.object(args[0]); err == nil {
				rev, paths = args[0], args[1:]
			}
		}
		return r.checkoutPaths(g, rev, paths, f.Has(0x82), f.Has(0x83))
	}
	name := args[0]
	if name == "@{-1}" {
		if name = r.previous(); name == "" {
			return fatalf("invalid reference: @{-1}")
		}
	}
	if h, ok := r.ref("refs/heads/" + name); ok && !f.Has('d') {
		old, _ := r.head()
		if old == "refs/heads/"+name && !f.Has('f') {
			g.warnf("Already on '%s'", name)
			if err := r.leftovers(); err != nil {
				return err
			}
			g.printf("%s", r.upstreamText(old))
			return nil
		}
		if err := r.switchTo(name, h, f.Has('f')); err != nil {
			return err
		}
		if err := r.leftovers(); err != nil {
			return err
		}
		if !f.Has('q') {
			g.warnf("Switched to branch '%s'", name)
			g.printf("%s", r.upstreamText("refs/heads/"+name))
		}
		return nil
	}
	if _, err := r.object(name); err != nil {
		// remote branches with that name
		var found []*plumbing.Reference
		for _, ref := range r.refs("refs/remotes/") {
			if _, b, ok := strings.Cut(strings.TrimPrefix(string(ref.Name()), "refs/remotes/"), "/"); ok && b == name && b != "HEAD" {
				found = append(found, ref)
			}
		}
		if len(found) == 1 {
			return r.newAndSwitch(g, name, strings.TrimPrefix(string(found[0].Name()), "refs/remotes/"), false, f)
		}
		if isSwitch {
			return fatalf("invalid reference: %s", name)
		}
		return r.checkoutPaths(g, "", args, f.Has(0x82), f.Has(0x83))
	}
	c, err := r.resolveCommit(name)
	if err != nil {
		return err
	}
	if isSwitch && !f.Has('d') {
		return fatalf("a branch is expected, got commit '%s'\nhint: --detach goes to a commit", name)
	}
	if err := r.switchTo("", c.Hash, f.Has('f')); err != nil {
		return err
	}
	if !f.Has('q') {
		if !f.Has('d') {
			g.warnf("Note: switching to '%s'.\n\nHEAD is on no branch now. Commits that you make here belong to none, and are lost from sight\n"+
				"when you switch away: git switch -c <name> makes a branch of them. git switch - goes back.\n", name)
		}
		g.warnf("HEAD is now at %s %s", r.short(c.Hash), subject(c.Message))
	}
	return r.leftovers()
}

func (r *repo) branchName() string {
	b, _ := r.head()
	return b
}

// newAndSwitch makes a branch and switches to it.
func (r *repo) newAndSwitch(g *git, name, start string, reset bool, f flagSet) error {
	if !goodBranch(name) {
		return fatalf("'%s' is not a valid branch name", name)
	}
	_, exists := r.ref("refs/heads/" + name)
	if exists && !reset {
		return fatalf("a branch named '%s' already exists", name)
	}
	_, at := r.head()
	if at.IsZero() && start == "HEAD" {
		g.warnf("Switched to a new branch '%s'", name)
		return r.store.SetReference(plumbing.NewSymbolicReference(plumbing.HEAD, plumbing.ReferenceName("refs/heads/"+name)))
	}
	c, err := r.resolveCommit(start)
	if err != nil {
		return fatalf("'%s' is not a commit and a branch '%s' cannot be created from it", start, name)
	}
	if err := r.switchTo(name, c.Hash, f.Has('f')); err != nil {
		return err
	}
	if err := r.setRef(plumbing.ReferenceName("refs/heads/"+name), c.Hash); err != nil {
		return err
	}
	tracked := ""
	if _, ok := r.ref("refs/remotes/" + start); ok && !f.Has(0x80) {
		tracked = start
		if err := r.track(name, start); err != nil {
			return err
		}
	}
	if err := r.leftovers(); err != nil {
		return err
	}
	if f.Has('q') {
		return nil
	}
	if exists {
		g.warnf("Reset branch '%s'", name)
	} else {
		g.warnf("Switched to a new branch '%s'", name)
	}
	if tracked != "" {
		g.printf("branch '%s' set up to track '%s'.\n", name, tracked)
	}
	return nil
}

// track makes a branch follow REMOTE/BRANCH.
func (r *repo) track(name, upstream string) error {
	file := r.git_ + "/config"
	remote, branch, ok := strings.Cut(upstream, "/")
	if !ok {
		remote, branch = ".", upstream
	}
	if err := r.set(file, "branch."+name+".remote", remote, false); err != nil {
		return err
	}
	err := r.set(file, "branch."+name+".merge", "refs/heads/"+branch, false)
	r.conf = r.config(r)
	return err
}
