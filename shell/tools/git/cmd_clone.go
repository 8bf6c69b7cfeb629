package git

import (
	"errors"
	"path"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/transport"
)

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
		// the branch of HEAD is not checked out in any work tree
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
