package git

import (
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/storage/memory"
)

// cmdPull is git pull.
func cmdPull(g *git, r *repo) error {
	f, err := g.flags("qrvns:X:tpf", "quiet=q", "rebase=r", "ff-only=\x82", "ff=\x81", "no-ff=\x80", "no-rebase=\x90", "all=\x91", "tags=t", "prune=p", "depth=\x92:", "allow-unrelated-histories=\x89", "no-edit=\x88", "squash=\x83", "no-commit=\x84", "verbose=v", "force=f", "progress=\x93", "autostash=\x93", "no-stat=n", "stat=\x93", "set-upstream=\x93", "no-tags=\x93", "strategy=s", "strategy-option=X")
	if err != nil {
		return err
	}
	branch := r.branchName()
	_, remote := r.upstream(branch)
	args := f.Args
	if len(args) == 0 && remote == "" {
		if branch == "" {
			return fatalf("You are not currently on a branch.")
		}
		g.warnf("There is no tracking information for the current branch.\nhint: name one, git pull <remote> <branch>, or keep it: git branch --set-upstream-to=origin/<branch> %s", strings.TrimPrefix(branch, "refs/heads/"))
		return exit(1)
	}
	name := "origin"
	if len(args) > 0 {
		name, args = args[0], args[1:]
	} else {
		name = remote
	}
	if err := r.fetch(name, args, f); err != nil {
		return err
	}
	head := strings.Fields(r.read("FETCH_HEAD"))
	if len(head) == 0 {
		if len(args) == 0 && len(f.Args) > 0 {
			return fatalf("You asked to pull from the remote '%s', but did not specify\na branch.", name)
		}
		g.printf("Already up to date.\n")
		return nil
	}
	c, err := r.commit(plumbing.NewHash(head[0]))
	if err != nil {
		return err
	}
	line, _, _ := strings.Cut(r.read("FETCH_HEAD"), "\n")
	_, about, _ := strings.Cut(line, "\t\t")
	rebase := f.Has('r') || truth(r.conf.get("pull.rebase")) && !f.Has(0x90)
	_, at := r.head()
	if !at.IsZero() {
		base, err := r.mergeBase(at, c.Hash)
		if err != nil {
			return err
		}
		if base != at && base != c.Hash {
			_, set := r.conf.lookup("pull.rebase")
			_, ffset := r.conf.lookup("pull.ff")
			if !rebase && !set && !ffset && !f.Has(0x90) && !f.Has(0x80) && !f.Has(0x81) && !f.Has(0x82) {
				g.warnf("hint: both sides have commits of their own. --no-rebase merges them, --rebase moves yours, --ff-only gives up;\nhint: pull.rebase (false or true) and pull.ff (only) in the configuration say it for every pull")
				return fatalf("Need to specify how to reconcile divergent branches.")
			}
			if rebase {
				g.args = []string{c.Hash.String()}
				return cmdRebase(g, r)
			}
		}
	}
	f.All = append(f.All, flag('m', "Merge "+about))
	return r.merge(c, c.Hash.String(), f)
}

// cmdLsRemote is git ls-remote.
func cmdLsRemote(g *git, r *repo) error {
	f, err := g.flags("htq", "heads=h", "tags=t", "refs=\x80", "quiet=q", "exit-code=\x81", "symref=\x82", "get-url=\x83", "sort=\x84:")
	if err != nil {
		return err
	}
	name := "origin"
	if len(f.Args) > 0 {
		name = f.Args[0]
	}
	url := name
	if r != nil {
		url, _ = r.remoteOf(name, false)
	}
	l, err := g.dial(memory.NewStorage(), url)
	if err != nil {
		return err
	}
	refs, err := l.advertised()
	if err != nil {
		return err
	}
	lines := map[string]string{}
	for _, ref := range refs {
		name, h := string(ref.Name()), ref.Hash()
		if ref.Type() == plumbing.SymbolicReference {
			for _, t := range refs {
				if t.Name() == ref.Target() {
					h = t.Hash()
				}
			}
		}
		lines[name] = h.String()
	}
	var names []string
	for n := range lines {
		tag, head := strings.HasPrefix(n, "refs/tags/"), strings.HasPrefix(n, "refs/heads/")
		if f.Has('t') && f.Has('h') && !tag && !head || f.Has('t') && !f.Has('h') && !tag || f.Has('h') && !f.Has('t') && !head || f.Has(0x80) && (n == "HEAD" || strings.HasSuffix(n, "^{}")) {
			continue
		}
		if len(f.Args) > 1 && !slices.ContainsFunc(f.Args[1:], func(p string) bool { return wild("*/"+p, "/"+n) }) {
			continue
		}
		names = append(names, n)
	}
	slices.Sort(names)
	for _, n := range names {
		g.printf("%s\t%s\n", lines[n], n)
	}
	if len(names) == 0 && f.Has(0x81) {
		return exit(2)
	}
	return nil
}
