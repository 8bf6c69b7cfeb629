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
	if len(g.args) == 0 {
		r.listRemotes(verbose)
		return nil
	}
	verb := g.args[0]
	g.args = g.args[1:]
	f, err := g.flags("ft:m:n", "push=\x80", "all=\x81", "add=\x82", "delete=\x83")
	if err != nil {
		return err
	}
	a := f.Args
	need := map[string]int{"add": 2, "remove": 1, "rm": 1, "rename": 2, "set-url": 2, "get-url": 1}[verb]
	if len(a) < need {
		g.warnf("usage: git remote %s", verb)
		return exit(129)
	}
	if need > 0 && verb != "add" && !slices.Contains(r.remotes(), a[0]) {
		g.warnf("error: No such remote '%s'", a[0])
		return exit(2)
	}
	file := path.Join(r.git_, "config")
	switch verb {
	case "add":
		return r.addRemote(file, a[0], a[1])
	case "remove", "rm":
		return r.removeRemote(file, a[0])
	case "rename":
		return r.renameRemote(file, a[0], a[1])
	case "set-url":
		key := "url"
		if f.Has(0x80) {
			key = "pushurl"
		}
		return r.set(file, "remote."+a[0]+"."+key, a[1], f.Has(0x82))
	case "get-url":
		g.printf("%s\n", r.conf.get("remote."+a[0]+".url"))
		return nil
	case "show":
		return r.showRemotes(a)
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

// listRemotes lists the remotes, with their addresses if verbose.
func (r *repo) listRemotes(verbose bool) {
	for _, n := range r.remotes() {
		if !verbose {
			r.printf("%s\n", n)
			continue
		}
		url := r.conf.get("remote." + n + ".url")
		push := r.conf.get("remote." + n + ".pushurl")
		if push == "" {
			push = url
		}
		r.printf("%s\t%s (fetch)\n%s\t%s (push)\n", n, url, n, push)
	}
}

// addRemote adds a remote.
func (r *repo) addRemote(file, name, url string) error {
	if slices.Contains(r.remotes(), name) {
		r.warnf("error: remote %s already exists.", name)
		return exit(3)
	}
	if !goodBranch(name) {
		return fatalf("'%s' is not a valid remote name", name)
	}
	if err := r.set(file, "remote."+name+".url", url, false); err != nil {
		return err
	}
	return r.set(file, "remote."+name+".fetch", "+refs/heads/*:refs/remotes/"+name+"/*", false)
}

// removeRemote removes a remote with its branches, and the settings of branches that track it.
func (r *repo) removeRemote(file, name string) error {
	for _, ref := range r.refs("refs/remotes/" + name + "/") {
		if err := r.store.RemoveReference(ref.Name()); err != nil {
			return err
		}
	}
	for _, s := range r.conf.all {
		if b, ok := strings.CutPrefix(s.key, "branch."); ok && strings.HasSuffix(b, ".remote") && s.value == name {
			if _, err := r.unset(file, "branch", strings.TrimSuffix(b, ".remote"), ""); err != nil {
				return err
			}
		}
	}
	_, err := r.unset(file, "remote", name, "")
	return err
}

// renameRemote renames a remote and its branches.
func (r *repo) renameRemote(file, name, fresh string) error {
	url := r.conf.get("remote." + name + ".url")
	for _, ref := range r.refs("refs/remotes/" + name + "/") {
		moved := plumbing.ReferenceName("refs/remotes/" + fresh + "/" + strings.TrimPrefix(string(ref.Name()), "refs/remotes/"+name+"/"))
		if ref.Type() == plumbing.HashReference {
			if err := r.setRef(moved, ref.Hash()); err != nil {
				return err
			}
		}
		if err := r.store.RemoveReference(ref.Name()); err != nil {
			return err
		}
	}
	if _, err := r.unset(file, "remote", name, ""); err != nil {
		return err
	}
	if err := r.set(file, "remote."+fresh+".url", url, false); err != nil {
		return err
	}
	return r.set(file, "remote."+fresh+".fetch", "+refs/heads/*:refs/remotes/"+fresh+"/*", false)
}

// showRemotes describes the named remotes, or lists all.
func (r *repo) showRemotes(names []string) error {
	if len(names) == 0 {
		r.listRemotes(false)
	}
	for _, n := range names {
		if !slices.Contains(r.remotes(), n) {
			return fatalf("'%s' does not appear to be a git repository", n)
		}
		url := r.conf.get("remote." + n + ".url")
		r.printf("* remote %s\n  Fetch URL: %s\n  Push  URL: %s\n", n, url, url)
	}
	return nil
}

// remoteOf returns a remote's URL and name. For a URL it returns the URL itself.
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
