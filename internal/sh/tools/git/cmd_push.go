package git

import (
	"fmt"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
)

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
