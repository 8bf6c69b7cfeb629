package git

import (
	"fmt"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/carrel-dev/carrel/shell/tool"
)

// cmdPush is git push.
func cmdPush(g *git, r *repo) error {
	f, err := g.flags("ufqdnv", "set-upstream=u", "force=f", "quiet=q", "delete=d", "dry-run=n", "tags=\x80", "all=\x81", "follow-tags=\x82", "force-with-lease=\x83::", "verbose=v", "mirror=\x84", "no-verify=\x85", "atomic=\x85", "porcelain=\x85", "progress=\x85", "prune=\x85", "push-option=\x86:", "verify=\x85")
	if err != nil {
		return err
	}
	branch := r.branchName()
	args := f.Args
	_, remote := r.upstream(branch)
	p := push{repo: r, f: f, name: "origin"}
	if len(args) > 0 {
		p.name, args = args[0], args[1:]
	} else if remote != "" {
		p.name = remote
	}
	p.url, p.known = r.remoteOf(p.name, true)
	if p.known == "" && !strings.ContainsAny(p.url, "/:.") {
		if len(f.Args) == 0 {
			return fatalf("No configured push destination.\nhint: name a URL, or keep one with git remote add <name> <url> and push to that name")
		}
		return fatalf("'%s' does not appear to be a git repository\nhint: git remote -v lists the remotes and where they are", p.name)
	}
	if args, err = p.names(args, branch); err != nil {
		return err
	}
	for _, a := range args {
		if err := p.want(a, strings.TrimPrefix(branch, "refs/heads/")); err != nil {
			return err
		}
	}
	if err := p.send(); err != nil {
		return err
	}
	if p.known != "" && !f.Has('n') && !p.rejected {
		if err := p.follow(); err != nil {
			return err
		}
	}
	if p.rejected {
		g.warnf("error: failed to push some refs to '%s'\nhint: it has commits there that you do not have: git pull brings them, then push again", p.url)
		return exit(1)
	}
	if (f.Has('u') || truth(r.conf.get("push.autosetupremote")) && len(f.Args) == 0) && p.known != "" {
		return p.setUpstreams()
	}
	return nil
}

// push is one run of git push.
type push struct {
	*repo
	f     tool.Flags
	name  string // the remote's name or URL from the command line
	url   string
	known string // its name in the configuration

	all      []pushed
	lines    []string // what is said of each
	rejected bool     // one was
}

// pushed is one reference to send. The remote's reference to gets the value of src here. If h is
// zero, the remote removes it.
type pushed struct {
	src   string
	h     plumbing.Hash
	to    string
	force bool
}

// names returns the references to push: the given ones or the current branch, and those that --all
// and --tags add.
func (p *push) names(args []string, branch string) ([]string, error) {
	r, f := p.repo, p.f
	if len(args) == 0 && !f.Has(0x80) && !f.Has(0x81) && !f.Has(0x84) {
		short := strings.TrimPrefix(branch, "refs/heads/")
		up, _ := r.upstream(branch)
		switch {
		case branch == "":
			return nil, fatalf("You are not currently on a branch.")
		case up == "" && !f.Has('u') && r.conf.get("push.default") != "current" && !truth(r.conf.get("push.autosetupremote")):
			return nil, fatalf("The current branch %s has no upstream branch.\nhint: git push --set-upstream %s %s makes one; with push.autoSetupRemote set, every push does", short, p.name, short)
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
	return args, nil
}

// want adds the references of an argument [+]SRC[:DST]. HEAD is the current branch.
func (p *push) want(a, current string) error {
	f := p.f
	one := pushed{force: strings.HasPrefix(a, "+") || f.Has('f') || f.Has(0x83)}
	src, to, has := strings.Cut(strings.TrimPrefix(a, "+"), ":")
	if f.Has('d') {
		src, to, has = "", src, true
	}
	if src != "" {
		if src == "@" || src == "HEAD" && !has {
			src, to = current, current
		}
		h, err := p.object(src)
		if err != nil {
			p.warnf("error: src refspec %s does not match any\nerror: failed to push some refs to '%s'", src, p.url)
			return exit(1)
		}
		one.h, one.src = h, src
	}
	if !has && to == "" {
		to = src
	}
	if !strings.HasPrefix(to, "refs/") {
		kind := "refs/heads/"
		if _, ok := p.ref("refs/tags/" + src); ok && src != "" {
			if _, head := p.ref("refs/heads/" + src); !head {
				kind = "refs/tags/"
			}
		}
		to = kind + to
	}
	one.to = to
	p.all = append(p.all, one)
	return nil
}

// send compares with the remote's references, sends the new ones, and reports the result for each.
func (p *push) send() error {
	l, err := p.dial(p.store, p.url)
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
	for _, one := range p.all {
		old, exists := theirs[one.to]
		wanted, err := p.judge(one, old, exists)
		if err != nil {
			return err
		}
		if wanted {
			send[one.to] = one.h
		}
	}
	if len(send) > 0 && !p.f.Has('n') {
		if err := l.put(send); err != nil {
			if strings.Contains(err.Error(), "command error") {
				p.warnf("To %s\n ! [remote rejected] (%v)\nerror: failed to push some refs to '%s'", p.url, err, p.url)
				return exit(1)
			}
			return l.words(err)
		}
	}
	switch {
	case p.f.Has('q'):
	case len(p.lines) == 0:
		p.warnf("Everything up-to-date")
	default:
		p.warnf("To %s\n%s", p.url, strings.Join(p.lines, "\n"))
	}
	return nil
}

// judge decides whether to send one reference, given the remote's current value. It also records
// the line about it.
func (p *push) judge(one pushed, old plumbing.Hash, exists bool) (wanted bool, err error) {
	r := p.repo
	shown := plumbing.ReferenceName(one.to).Short()
	from := plumbing.ReferenceName(one.src).Short()
	tag := strings.HasPrefix(one.to, "refs/tags/")
	say := func(format string, args ...any) { p.lines = append(p.lines, fmt.Sprintf(format, args...)) }
	switch {
	case one.h.IsZero() && !exists:
		p.warnf("error: unable to delete '%s': remote ref does not exist\nerror: failed to push some refs to '%s'", shown, p.url)
		return false, exit(1)
	case one.h.IsZero():
		say(" - %-17s %s", "[deleted]", shown)
		return true, nil
	case old == one.h:
		return false, nil
	case !exists:
		kind := "[new branch]"
		if tag {
			kind = "[new tag]"
		}
		say(" * %-17s %s -> %s", kind, from, shown)
		return true, nil
	}
	var of map[plumbing.Hash]bool
	if !tag {
		if of, err = r.ancestors(one.h); err != nil {
			return false, err
		}
	}
	switch {
	case of[old]:
		say("   %s..%s  %s -> %s", r.short(old), r.short(one.h), from, shown)
		return true, nil
	case one.force:
		say(" + %s...%s %s -> %s (forced update)", r.short(old), r.short(one.h), from, shown)
		return true, nil
	}
	why := "fetch first"
	if r.store.HasEncodedObject(old) == nil {
		why = "non-fast-forward"
	}
	if tag {
		why = "already exists"
	}
	say(" ! %-17s %s -> %s (%s)", "[rejected]", from, shown, why)
	p.rejected = true
	return false, nil
}

// follow updates the remote-tracking branches here.
func (p *push) follow() error {
	for _, one := range p.all {
		b, ok := strings.CutPrefix(one.to, "refs/heads/")
		if !ok {
			continue
		}
		ref := plumbing.ReferenceName("refs/remotes/" + p.known + "/" + b)
		if one.h.IsZero() {
			_ = p.store.RemoveReference(ref) // it may not be here
		} else if err := p.setRef(ref, one.h); err != nil {
			return err
		}
	}
	return nil
}

// setUpstreams makes the remote's branches the upstreams of the pushed branches.
func (p *push) setUpstreams() error {
	for _, one := range p.all {
		b, ok := strings.CutPrefix(one.to, "refs/heads/")
		if !ok || one.h.IsZero() {
			continue
		}
		from := plumbing.ReferenceName(one.src).Short()
		if err := p.track(from, p.known+"/"+b); err != nil {
			return err
		}
		if !p.f.Has('q') {
			p.printf("branch '%s' set up to track '%s/%s'.\n", from, p.known, b)
		}
	}
	return nil
}
