package git

import (
	"path"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
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
