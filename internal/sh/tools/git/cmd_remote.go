package git

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/transport"
	"github.com/go-git/go-git/v5/storage/memory"
)

// remotes lists the names of remotes, in order.
func (r *repo) remotes() []string {
	var out []string
	for _, s := range r.conf.all {
		if rest, ok := strings.CutPrefix(s.key, "remote."); ok {
			name := rest[:strings.LastIndexByte(rest, '.')]
			if !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	}
	slices.Sort(out)
	return out
}

// cmdRemote is git remote.
func cmdRemote(g *git, r *repo) error {
	verbose := false
	for len(g.args) > 0 && (g.args[0] == "-v" || g.args[0] == "--verbose") {
		verbose, g.args = true, g.args[1:]
	}
	file := path.Join(r.git_, "config")
	if len(g.args) == 0 {
		for _, n := range r.remotes() {
			if !verbose {
				g.printf("%s\n", n)
				continue
			}
			url := r.conf.get("remote." + n + ".url")
			push := r.conf.get("remote." + n + ".pushurl")
			if push == "" {
				push = url
			}
			g.printf("%s\t%s (fetch)\n%s\t%s (push)\n", n, url, n, push)
		}
		return nil
	}
	verb := g.args[0]
	g.args = g.args[1:]
	f, err := g.flags("ft:m:n", "push=\x80", "all=\x81", "add=\x82", "delete=\x83")
	if err != nil {
		return err
	}
	a := f.Args
	exists := func(name string) bool { return slices.Contains(r.remotes(), name) }
	missing := func(name string) error {
		g.warnf("error: No such remote '%s'", name)
		return exit(2)
	}
	need := func(n int) error {
		if len(a) < n {
			g.warnf("usage: git remote %s", verb)
			return exit(129)
		}
		return nil
	}
	switch verb {
	case "add":
		if err := need(2); err != nil {
			return err
		}
		if exists(a[0]) {
			g.warnf("error: remote %s already exists.", a[0])
			return exit(3)
		}
		if !goodBranch(a[0]) {
			return fatalf("'%s' is not a valid remote name", a[0])
		}
		if err := r.set(file, "remote."+a[0]+".url", a[1], false); err != nil {
			return err
		}
		return r.set(file, "remote."+a[0]+".fetch", "+refs/heads/*:refs/remotes/"+a[0]+"/*", false)
	case "remove", "rm":
		if err := need(1); err != nil {
			return err
		}
		if !exists(a[0]) {
			return missing(a[0])
		}
		for _, ref := range r.refs("refs/remotes/" + a[0] + "/") {
			if err := r.store.RemoveReference(ref.Name()); err != nil {
				return err
			}
		}
		for _, s := range r.conf.all {
			if b, ok := strings.CutPrefix(s.key, "branch."); ok && strings.HasSuffix(b, ".remote") && s.value == a[0] {
				if _, err := r.unset(file, "branch", strings.TrimSuffix(b, ".remote"), ""); err != nil {
					return err
				}
			}
		}
		_, err := r.unset(file, "remote", a[0], "")
		return err
	case "rename":
		if err := need(2); err != nil {
			return err
		}
		if !exists(a[0]) {
			return missing(a[0])
		}
		url := r.conf.get("remote." + a[0] + ".url")
		for _, ref := range r.refs("refs/remotes/" + a[0] + "/") {
			fresh := plumbing.ReferenceName("refs/remotes/" + a[1] + "/" + strings.TrimPrefix(string(ref.Name()), "refs/remotes/"+a[0]+"/"))
			if ref.Type() == plumbing.HashReference {
				if err := r.setRef(fresh, ref.Hash()); err != nil {
					return err
				}
			}
			if err := r.store.RemoveReference(ref.Name()); err != nil {
				return err
			}
		}
		if _, err := r.unset(file, "remote", a[0], ""); err != nil {
			return err
		}
		if err := r.set(file, "remote."+a[1]+".url", url, false); err != nil {
			return err
		}
		return r.set(file, "remote."+a[1]+".fetch", "+refs/heads/*:refs/remotes/"+a[1]+"/*", false)
	case "set-url":
		if err := need(2); err != nil {
			return err
		}
		if !exists(a[0]) {
			return missing(a[0])
		}
		key := "url"
		if f.Has(0x80) {
			key = "pushurl"
		}
		return r.set(file, "remote."+a[0]+"."+key, a[1], f.Has(0x82))
	case "get-url":
		if err := need(1); err != nil {
			return err
		}
		if !exists(a[0]) {
			return missing(a[0])
		}
		g.printf("%s\n", r.conf.get("remote."+a[0]+".url"))
		return nil
	case "show":
		for _, n := range r.remotes() {
			if len(a) == 0 {
				g.printf("%s\n", n)
			}
		}
		for _, n := range a {
			if !exists(n) {
				return fatalf("'%s' does not appear to be a git repository", n)
			}
			url := r.conf.get("remote." + n + ".url")
			g.printf("* remote %s\n  Fetch URL: %s\n  Push  URL: %s\n", n, url, url)
		}
		return nil
	case "prune", "update":
		g.args = append([]string{"--prune"}, a...)
		if verb == "update" {
			g.args = a
		}
		return cmdFetch(g, r)
	}
	g.warnf("error: Unknown subcommand: %s", verb)
	return exit(129)
}

// remoteOf finds a remote's URL and name; a URL stands for itself.
func (r *repo) remoteOf(name string, push bool) (url, remote string) {
	if push {
		if u := r.conf.get("remote." + name + ".pushurl"); u != "" {
			return u, name
		}
	}
	if u := r.conf.get("remote." + name + ".url"); u != "" {
		if !strings.Contains(u, "://") && !scpLike(u) && !strings.HasPrefix(u, "/") && r.top != "" {
			u = path.Join(r.top, u)
		}
		return u, name
	}
	return name, ""
}

// cmdFetch is git fetch.
func cmdFetch(g *git, r *repo) error {
	f, err := g.flags("qptfavnkj:46u", "quiet=q", "prune=p", "tags=t", "force=f", "all=\x80", "append=a", "verbose=v", "no-tags=n", "depth=\x81:", "unshallow=\x82", "progress=\x83", "dry-run=\x84", "jobs=j", "no-progress=\x83", "no-recurse-submodules=\x83", "recurse-submodules=\x85::", "update-shallow=\x83", "set-upstream=\x83", "deepen=\x81:", "keep=k", "update-head-ok=u", "prune-tags=\x83")
	if err != nil {
		return err
	}
	args := f.Args
	var names []string
	switch {
	case f.Has(0x80):
		names = r.remotes()
	case len(args) > 0:
		names, args = args[:1], args[1:]
	default:
		_, remote := r.upstream(r.branchName())
		if remote == "" || remote == "." {
			remote = "origin"
		}
		names = []string{remote}
	}
	for _, n := range names {
		if err := r.fetch(n, args, f); err != nil {
			return err
		}
	}
	return nil
}

// fetch gets what a remote has and we have not.
func (r *repo) fetch(name string, specs []string, f flagSet) error {
	url, remote := r.remoteOf(name, false)
	if remote == "" && !strings.ContainsAny(url, "/:.") {
		return fatalf("'%s' does not appear to be a git repository\nfatal: Could not read from remote repository.\n\nPlease make sure you have the correct access rights\nand the repository exists.", name)
	}
	var refspecs []string
	for _, s := range r.conf.values("remote." + name + ".fetch") {
		refspecs = append(refspecs, s.value)
	}
	l, err := r.dial(r.store, url)
	if err != nil {
		return err
	}
	refs, err := l.advertised()
	if err != nil {
		return err
	}
	has := map[string]plumbing.Hash{}
	for _, ref := range refs {
		if ref.Type() == plumbing.HashReference {
			has[string(ref.Name())] = ref.Hash()
		}
	}
	type wanted struct {
		from, to string
		force    bool
		head     bool // for FETCH_HEAD
	}
	var want []wanted
	add := func(spec string, head bool) error {
		force := strings.HasPrefix(spec, "+")
		from, to, _ := strings.Cut(strings.TrimPrefix(spec, "+"), ":")
		if a, b, star := strings.Cut(from, "*"); star {
			for n := range has {
				if len(n) >= len(a)+len(b) && !strings.HasSuffix(n, "^{}") && strings.HasPrefix(n, a) && strings.HasSuffix(n, b) {
					want = append(want, wanted{n, strings.Replace(to, "*", n[len(a):len(n)-len(b)], 1), force, head})
				}
			}
			return nil
		}
		full := ""
		for _, p := range []string{"", "refs/", "refs/heads/", "refs/tags/"} {
			if _, ok := has[p+from]; ok {
				full = p + from
				break
			}
		}
		if from == "HEAD" && full == "" {
			for _, ref := range refs {
				if ref.Name() == plumbing.HEAD {
					full = string(ref.Target())
				}
			}
		}
		if full == "" {
			return fatalf("couldn't find remote ref %s", from)
		}
		if to != "" && !strings.HasPrefix(to, "refs/") {
			to = "refs/heads/" + to
		}
		want = append(want, wanted{full, to, force, head})
		return nil
	}
	if len(specs) == 0 {
		for _, s := range refspecs {
			if err := add(s, false); err != nil {
				return err
			}
		}
		if len(refspecs) == 0 {
			if err := add("HEAD", true); err != nil {
				return err
			}
		}
	}
	for _, s := range specs {
		if err := add(s, true); err != nil {
			return err
		}
		full := want[len(want)-1].from
		for _, rs := range refspecs { // what it is called here is brought up to date, too
			if a, b, ok := strings.Cut(strings.TrimPrefix(rs, "+"), ":"); ok && strings.HasSuffix(a, "*") && strings.HasPrefix(full, strings.TrimSuffix(a, "*")) {
				want = append(want, wanted{full, strings.TrimSuffix(b, "*") + strings.TrimPrefix(full, strings.TrimSuffix(a, "*")), true, false})
			}
		}
	}
	slices.SortFunc(want, func(a, b wanted) int { return strings.Compare(a.from+"\x00"+a.to, b.from+"\x00"+b.to) })
	var get []string
	seen := map[plumbing.Hash]bool{}
	ask := func(from string) {
		if h := has[from]; !seen[h] && r.store.HasEncodedObject(h) != nil {
			seen[h] = true
			get = append(get, from)
		}
	}
	for _, w := range want {
		ask(w.from)
	}
	if f.Has('t') {
		for n := range has {
			if strings.HasPrefix(n, "refs/tags/") && !strings.HasSuffix(n, "^{}") {
				ask(n)
			}
		}
	}
	if len(get) > 0 {
		depth := 0
		if d := f.Value(0x81, ""); d != "" {
			if _, err := fmt.Sscan(d, &depth); err != nil || depth < 1 {
				return fatalf("depth %s is not a positive number", d)
			}
		}
		if err := l.get(get, has, depth); err != nil {
			return err
		}
	}
	if !f.Has('n') {
		for n, h := range has { // tags of what is here now
			if rest, ok := strings.CutPrefix(n, "refs/tags/"); ok && !strings.HasSuffix(rest, "^{}") {
				if _, have := r.ref(n); !have && r.tagTarget(has, n) && (r.store.HasEncodedObject(h) == nil || l.get([]string{n}, has, 0) == nil) {
					want = append(want, wanted{n, n, false, false})
				}
			}
		}
	}
	return r.record(f, l.url, func(each func(from, to string, force, head bool) error) error {
		for _, w := range want {
			if err := each(w.from, w.to, w.force, w.head); err != nil {
				return err
			}
		}
		return nil
	}, has, name)
}

// tagTarget reports whether what a tag of the remote leads to is here.
func (r *repo) tagTarget(has map[string]plumbing.Hash, name string) bool {
	h := has[name]
	if p, ok := has[name+"^{}"]; ok {
		h = p
	}
	return r.store.HasEncodedObject(h) == nil
}

// record writes down what was fetched, and tells of it.
func (r *repo) record(f flagSet, url string, each func(fn func(from, to string, force, head bool) error) error, has map[string]plumbing.Hash, name string) error {
	var heads, lines []string
	rejected := false
	err := each(func(from, to string, force, head bool) error {
		h := has[from]
		short := plumbing.ReferenceName(from).Short()
		if head {
			heads = append(heads, fmt.Sprintf("%s\t\tbranch '%s' of %s\n", h, short, url))
		}
		if to == "" {
			lines = append(lines, fmt.Sprintf(" * %-17s %-10s -> FETCH_HEAD", "branch", short))
			return nil
		}
		old, ok := r.ref(to)
		shown := plumbing.ReferenceName(to).Short()
		switch {
		case !ok:
			kind := "[new branch]"
			if strings.HasPrefix(from, "refs/tags/") {
				kind = "[new tag]"
			}
			lines = append(lines, fmt.Sprintf(" * %-17s %-10s -> %s", kind, short, shown))
		case old == h:
			return nil
		default:
			of, err := r.ancestors(h)
			if err != nil {
				return err
			}
			switch {
			case of[old]:
				lines = append(lines, fmt.Sprintf("   %-17s %-10s -> %s", r.short(old)+".."+r.short(h), short, shown))
			case force || f.Has('f'):
				lines = append(lines, fmt.Sprintf(" + %-17s %-10s -> %s  (forced update)", r.short(old)+"..."+r.short(h), short, shown))
			default:
				lines = append(lines, fmt.Sprintf(" ! %-17s %-10s -> %s  (non-fast-forward)", "[rejected]", short, shown))
				rejected = true
				return nil
			}
		}
		if to == r.branchName() && r.top != "" {
			return fatalf("refusing to fetch into branch '%s' checked out at '%s'", to, r.top)
		}
		return r.setRef(plumbing.ReferenceName(to), h)
	})
	if err != nil {
		return err
	}
	if len(heads) == 0 {
		branch := r.branchName()
		merge := r.conf.get("branch." + strings.TrimPrefix(branch, "refs/heads/") + ".merge")
		if h, ok := has[merge]; ok {
			heads = append(heads, fmt.Sprintf("%s\t\tbranch '%s' of %s\n", h, plumbing.ReferenceName(merge).Short(), url))
		}
	}
	if f.Has('p') {
		for _, ref := range r.refs("refs/remotes/" + name + "/") {
			short := strings.TrimPrefix(string(ref.Name()), "refs/remotes/"+name+"/")
			if _, ok := has["refs/heads/"+short]; !ok && short != "HEAD" {
				lines = append(lines, fmt.Sprintf(" - %-17s %-10s -> %s", "[deleted]", "(none)", ref.Name().Short()))
				if err := r.store.RemoveReference(ref.Name()); err != nil {
					return err
				}
			}
		}
	}
	if err := r.write("FETCH_HEAD", strings.Join(heads, "")); err != nil {
		return err
	}
	if len(lines) > 0 && !f.Has('q') {
		r.warnf("From %s\n%s", strings.TrimSuffix(url, ".git"), strings.Join(lines, "\n"))
	}
	if rejected {
		return exit(1)
	}
	return nil
}

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
		g.warnf("There is no tracking information for the current branch.\nPlease specify which branch you want to merge with.\nSee git-pull(1) for details.\n\n    git pull <remote> <branch>\n\nIf you wish to set tracking information for this branch you can do so with:\n\n    git branch --set-upstream-to=origin/<branch> %s\n", strings.TrimPrefix(branch, "refs/heads/"))
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
				g.warnf("hint: You have divergent branches and need to specify how to reconcile them.\nhint: You can do so by running one of the following commands sometime before\nhint: your next pull:\nhint: \nhint:   git config pull.rebase false  # merge\nhint:   git config pull.rebase true   # rebase\nhint:   git config pull.ff only       # fast-forward only\nhint: \nhint: You can replace \"git config\" with \"git config --global\" to set a default\nhint: preference for all repositories. You can also pass --rebase, --no-rebase,\nhint: or --ff-only on the command line to override the configured default per\nhint: invocation.")
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

// cmdClone is git clone.
func cmdClone(g *git, _ *repo) error {
	f, err := g.flags("qb:no:vlsj:c:", "quiet=q", "branch=b", "bare=\x80", "no-checkout=n", "origin=o", "depth=\x81:", "single-branch=\x82", "no-single-branch=\x83", "no-tags=\x84", "recursive=\x85", "recurse-submodules=\x85", "progress=\x83", "verbose=v", "mirror=\x86", "no-hardlinks=\x83", "local=l", "shared=s", "no-local=\x83", "filter=\x87:", "jobs=j", "config=c", "template=\x87:", "shallow-submodules=\x83", "sparse=\x88")
	if err != nil {
		return err
	}
	if len(f.Args) == 0 {
		return fatalf("You must specify a repository to clone.")
	}
	url := f.Args[0]
	dir := strings.TrimSuffix(strings.TrimRight(url, "/"), "/.git")
	dir = strings.TrimSuffix(dir[strings.LastIndexAny(dir, "/:")+1:], ".git")
	bare := f.Has(0x80) || f.Has(0x86)
	if bare {
		dir += ".git"
	}
	if len(f.Args) > 1 {
		dir = f.Args[1]
	}
	at := g.path(dir)
	if all, err := g.FS().ReadDir(at); err == nil && len(all) > 0 {
		return fatalf("destination path '%s' already exists and is not an empty directory.", dir)
	}
	local := !strings.Contains(url, "://") && !scpLike(url)
	if local {
		url = g.path(url)
		if i, err := g.FS().Stat(url); err != nil || !i.Mode.IsDir() {
			return fatalf("repository '%s' does not exist", f.Args[0])
		}
	}
	if !f.Has('q') {
		if bare {
			g.warnf("Cloning into bare repository '%s'...", dir)
		} else {
			g.warnf("Cloning into '%s'...", dir)
		}
	}
	_, existed := g.FS().Stat(at)
	quiet := *g
	quiet.settings = append(slices.Clone(g.settings), "init.defaultBranch="+orMaster(g.config(nil).get("init.defaultBranch")))
	r, _, err := quiet.create(at, bare, orMaster(g.config(nil).get("init.defaultBranch")))
	if err != nil {
		return err
	}
	r.git = g
	if err := r.fill(g, url, local, bare, f); err != nil {
		if existed != nil {
			_ = g.FS().RemoveAll(at) // its own
		}
		return err
	}
	if !f.Has('q') && local {
		g.warnf("done.")
	}
	return nil
}

func orMaster(s string) string {
	if s == "" {
		return "master"
	}
	return s
}

// fill fetches into a new repository and checks out.
func (r *repo) fill(g *git, url string, local, bare bool, f flagSet) error {
	origin := f.Value('o', "origin")
	file := path.Join(r.git_, "config")
	if err := r.set(file, "remote."+origin+".url", url, false); err != nil {
		return err
	}
	for _, kv := range f.Values('c') {
		k, v, _ := strings.Cut(kv, "=")
		if err := r.set(file, k, v, false); err != nil {
			return err
		}
	}
	l, err := g.dial(r.store, url)
	if err != nil {
		return err
	}
	refs, err := l.advertised()
	if err != nil {
		return err
	}
	head := ""
	has := map[string]plumbing.Hash{}
	for _, ref := range refs {
		if ref.Name() == plumbing.HEAD && ref.Type() == plumbing.SymbolicReference {
			head = string(ref.Target())
		}
		has[string(ref.Name())] = ref.Hash()
	}
	if head == "" || has[head].IsZero() {
		for _, n := range []string{"refs/heads/main", "refs/heads/master"} {
			if has[n] == has["HEAD"] && !has[n].IsZero() {
				head = n
			}
		}
	}
	detached := plumbing.ZeroHash
	if b := f.Value('b', ""); b != "" {
		switch {
		case !has["refs/heads/"+b].IsZero():
			head = "refs/heads/" + b
		case !has["refs/tags/"+b].IsZero():
			detached = has["refs/tags/"+b]
		default:
			return fatalf("Remote branch %s not found in upstream %s", b, origin)
		}
	}
	spec := "+refs/heads/*:refs/remotes/" + origin + "/*"
	if (f.Has(0x82) || f.Has(0x81)) && !f.Has(0x83) && head != "" {
		b := strings.TrimPrefix(head, "refs/heads/")
		spec = "+refs/heads/" + b + ":refs/remotes/" + origin + "/" + b
	}
	if bare {
		spec = "+refs/heads/*:refs/heads/*"
		if f.Has(0x86) {
			spec = "+refs/*:refs/*"
		}
		// the branch that HEAD leads to is not checked out anywhere
	}
	if !bare || f.Has(0x86) {
		if err := r.set(file, "remote."+origin+".fetch", spec, false); err != nil {
			return err
		}
	}
	r.conf = r.config(r)
	if len(refs) == 0 {
		g.warnf("warning: You appear to have cloned an empty repository.")
		if err := r.set(file, "branch."+orMaster("")+".remote", origin, false); err != nil {
			return err
		}
		return r.set(file, "branch."+orMaster("")+".merge", "refs/heads/"+orMaster(""), false)
	}
	quiet := f
	quiet.All = append(slices.Clone(f.All), flag('q', ""))
	if f.Has(0x84) {
		quiet.All = append(quiet.All, flag('n', ""))
	} else {
		quiet.All = slices.DeleteFunc(quiet.All, func(o flagType) bool { return o.Letter == 'n' })
	}
	if bare {
		r.conf.all = append(r.conf.all, setting{"remote." + origin + ".fetch", spec, ""})
	}
	if err := r.fetch(origin, nil, quiet); err != nil {
		return err
	}
	r.forget("FETCH_HEAD")
	if bare {
		if head != "" {
			return r.store.SetReference(plumbing.NewSymbolicReference(plumbing.HEAD, plumbing.ReferenceName(head)))
		}
		return nil
	}
	if !detached.IsZero() {
		h, err := r.peel(detached, plumbing.CommitObject)
		if err != nil {
			return err
		}
		return r.switchTo("", h, true)
	}
	if head == "" {
		g.warnf("warning: remote HEAD refers to nonexistent ref, unable to checkout.")
		return nil
	}
	b := strings.TrimPrefix(head, "refs/heads/")
	if err := r.store.SetReference(plumbing.NewSymbolicReference(plumbing.ReferenceName("refs/remotes/"+origin+"/HEAD"), plumbing.ReferenceName("refs/remotes/"+origin+"/"+b))); err != nil {
		return err
	}
	if err := r.setRef(plumbing.ReferenceName(head), has[head]); err != nil {
		return err
	}
	if err := r.track(b, origin+"/"+b); err != nil {
		return err
	}
	if f.Has('n') {
		return r.store.SetReference(plumbing.NewSymbolicReference(plumbing.HEAD, plumbing.ReferenceName(head)))
	}
	if err := r.store.SetReference(plumbing.NewSymbolicReference(plumbing.HEAD, plumbing.ReferenceName(head))); err != nil {
		return err
	}
	err = r.hard(has[head])
	if errors.Is(err, transport.ErrEmptyRemoteRepository) {
		return nil
	}
	return err
}

// cmdPush is git push.
func cmdPush(g *git, r *repo) error {
	f, err := g.flags("ufqdnv", "set-upstream=u", "force=f", "quiet=q", "delete=d", "dry-run=n", "tags=\x80", "all=\x81", "follow-tags=\x82", "force-with-lease=\x83::", "verbose=v", "mirror=\x84", "no-verify=\x85", "atomic=\x85", "porcelain=\x85", "progress=\x85", "prune=\x85", "push-option=\x86:", "verify=\x85")
	if err != nil {
		return err
	}
	branch := r.branchName()
	short := strings.TrimPrefix(branch, "refs/heads/")
	args := f.Args
	_, remote := r.upstream(branch)
	name := "origin"
	if len(args) > 0 {
		name, args = args[0], args[1:]
	} else if remote != "" {
		name = remote
	}
	url, known := r.remoteOf(name, true)
	if known == "" && !strings.ContainsAny(url, "/:.") {
		if len(f.Args) == 0 {
			return fatalf("No configured push destination.\nEither specify the URL from the command-line or configure a remote repository using\n\n    git remote add <name> <url>\n\nand then push using the remote name\n\n    git push <name>\n")
		}
		return fatalf("'%s' does not appear to be a git repository\nfatal: Could not read from remote repository.\n\nPlease make sure you have the correct access rights\nand the repository exists.", name)
	}
	type push struct {
		src   string
		h     plumbing.Hash
		to    string
		force bool
	}
	var all []push
	if len(args) == 0 && !f.Has(0x80) && !f.Has(0x81) && !f.Has(0x84) {
		up, _ := r.upstream(branch)
		switch {
		case branch == "":
			return fatalf("You are not currently on a branch.")
		case up == "" && !f.Has('u') && r.conf.get("push.default") != "current" && !truth(r.conf.get("push.autosetupremote")):
			return fatalf("The current branch %s has no upstream branch.\nTo push the current branch and set the remote as upstream, use\n\n    git push --set-upstream %s %s\n\nTo have this happen automatically for branches without a tracking\nupstream, see 'push.autoSetupRemote' in 'git help config'.\n", short, name, short)
		}
		args = []string{short}
	}
	if f.Has(0x81) || f.Has(0x84) {
		for _, ref := range r.refs("refs/heads/") {
			args = append(args, ref.Name().Short())
		}
	}
	if f.Has(0x80) || f.Has(0x84) {
		for _, ref := range r.refs("refs/tags/") {
			args = append(args, string(ref.Name()))
		}
	}
	for _, a := range args {
		p := push{force: strings.HasPrefix(a, "+") || f.Has('f') || f.Has(0x83)}
		src, to, has := strings.Cut(strings.TrimPrefix(a, "+"), ":")
		if f.Has('d') {
			src, to, has = "", src, true
		}
		if src != "" {
			if src == "@" || src == "HEAD" && !has {
				src, to = short, short
			}
			h, err := r.object(src)
			if err != nil {
				g.warnf("error: src refspec %s does not match any\nerror: failed to push some refs to '%s'", src, url)
				return exit(1)
			}
			p.h, p.src = h, src
		}
		if !has && to == "" {
			to = src
		}
		if !strings.HasPrefix(to, "refs/") {
			kind := "refs/heads/"
			if _, ok := r.ref("refs/tags/" + src); ok && src != "" {
				if _, head := r.ref("refs/heads/" + src); !head {
					kind = "refs/tags/"
				}
			}
			to = kind + to
		}
		p.to = to
		all = append(all, p)
	}
	l, err := g.dial(r.store, url)
	if err != nil {
		return err
	}
	refs, err := l.advertised()
	if err != nil {
		return err
	}
	theirs := map[string]plumbing.Hash{}
	for _, ref := range refs {
		theirs[string(ref.Name())] = ref.Hash()
	}
	send := map[string]plumbing.Hash{}
	var lines []string
	rejected := false
	for _, p := range all {
		old, exists := theirs[p.to]
		shown := plumbing.ReferenceName(p.to).Short()
		from := plumbing.ReferenceName(p.src).Short()
		switch {
		case p.h.IsZero() && !exists:
			g.warnf("error: unable to delete '%s': remote ref does not exist\nerror: failed to push some refs to '%s'", shown, url)
			return exit(1)
		case p.h.IsZero():
			lines = append(lines, fmt.Sprintf(" - %-17s %s", "[deleted]", shown))
			send[p.to] = plumbing.ZeroHash
			continue
		case old == p.h:
			continue
		case !exists:
			kind := "[new branch]"
			if strings.HasPrefix(p.to, "refs/tags/") {
				kind = "[new tag]"
			}
			lines = append(lines, fmt.Sprintf(" * %-17s %s -> %s", kind, from, shown))
		default:
			of, err := r.ancestors(p.h)
			if strings.HasPrefix(p.to, "refs/tags/") {
				of, err = nil, nil
			}
			if err != nil {
				return err
			}
			switch {
			case of[old]:
				lines = append(lines, fmt.Sprintf("   %s..%s  %s -> %s", r.short(old), r.short(p.h), from, shown))
			case p.force:
				lines = append(lines, fmt.Sprintf(" + %s...%s %s -> %s (forced update)", r.short(old), r.short(p.h), from, shown))
			default:
				why := "fetch first"
				if r.store.HasEncodedObject(old) == nil {
					why = "non-fast-forward"
				}
				if strings.HasPrefix(p.to, "refs/tags/") {
					why = "already exists"
				}
				lines = append(lines, fmt.Sprintf(" ! %-17s %s -> %s (%s)", "[rejected]", from, shown, why))
				rejected = true
				continue
			}
		}
		send[p.to] = p.h
	}
	if len(send) > 0 && !f.Has('n') {
		if err := l.put(send); err != nil {
			if strings.Contains(err.Error(), "command error") {
				g.warnf("To %s\n ! [remote rejected] (%v)\nerror: failed to push some refs to '%s'", url, err, url)
				return exit(1)
			}
			return l.words(err)
		}
	}
	if !f.Has('q') {
		if len(lines) == 0 {
			g.warnf("Everything up-to-date")
		} else {
			g.warnf("To %s\n%s", url, strings.Join(lines, "\n"))
		}
	}
	if known != "" && !f.Has('n') {
		for _, p := range all {
			b, ok := strings.CutPrefix(p.to, "refs/heads/")
			if !ok || rejected {
				continue
			}
			ref := plumbing.ReferenceName("refs/remotes/" + known + "/" + b)
			if p.h.IsZero() {
				_ = r.store.RemoveReference(ref) // it may not be here
			} else if err := r.setRef(ref, p.h); err != nil {
				return err
			}
		}
	}
	if rejected {
		g.warnf("error: failed to push some refs to '%s'\nhint: Updates were rejected because the remote contains work that you do\nhint: not have locally. This is usually caused by another repository pushing\nhint: to the same ref. You may want to first integrate the remote changes\nhint: (e.g., 'git pull ...') before pushing again.\nhint: See the 'Note about fast-forwards' in 'git push --help' for details.", url)
		return exit(1)
	}
	if f.Has('u') || truth(r.conf.get("push.autosetupremote")) && len(f.Args) == 0 {
		for _, p := range all {
			if b, ok := strings.CutPrefix(p.to, "refs/heads/"); ok && !p.h.IsZero() && known != "" {
				if err := r.track(plumbing.ReferenceName(p.src).Short(), known+"/"+b); err != nil {
					return err
				}
				if !f.Has('q') {
					g.printf("branch '%s' set up to track '%s/%s'.\n", plumbing.ReferenceName(p.src).Short(), known, b)
				}
			}
		}
	}
	return nil
}
