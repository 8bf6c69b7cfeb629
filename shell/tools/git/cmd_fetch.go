package git

import (
	"fmt"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
)

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

// fetch gets the objects and references of a remote that are missing here.
func (r *repo) fetch(name string, specs []string, f flagSet) error {
	url, remote := r.remoteOf(name, false)
	if remote == "" && !strings.ContainsAny(url, "/:.") {
		return fatalf("'%s' does not appear to be a git repository\nhint: git remote -v lists the remotes and where they are", name)
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
		for _, rs := range refspecs { // update the remote-tracking reference too
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

// tagTarget reports whether the target of a remote's tag exists here.
func (r *repo) tagTarget(has map[string]plumbing.Hash, name string) bool {
	h := has[name]
	if p, ok := has[name+"^{}"]; ok {
		h = p
	}
	return r.store.HasEncodedObject(h) == nil
}

// record stores and reports the fetched references.
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
