package git

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// walkAll calls fn with all files of the work tree, including ignored ones.
func (r *repo) walkAll(fn func(name string) error) error {
	return r.walk("", nil, func(name string, _ vfs.Info) error { return fn(name) })
}

// cmdClean is git clean.
func cmdClean(g *git, r *repo) error {
	f, err := g.flags("fdnqxXe:i", "force=f", "dry-run=n", "quiet=q", "exclude=e", "interactive=i")
	if err != nil {
		return err
	}
	if !f.Has('f') && !f.Has('n') {
		if v, ok := r.conf.lookup("clean.requireForce"); !ok || truth(v) {
			return fatalf("clean.requireForce defaults to true and neither -i, -n, nor -f given; refusing to clean")
		}
	}
	spec, err := r.pathspec(f.Args)
	if err != nil {
		return err
	}
	x, err := r.index()
	if err != nil {
		return err
	}
	s := &condition{}
	if err := r.untracked(x, s, "normal", true); err != nil {
		return err
	}
	list := s.untracked
	if f.Has('x') {
		list = append(list, s.ignored...)
	}
	if f.Has('X') {
		list = s.ignored
	}
	slices.Sort(list)
	for _, n := range list {
		if strings.HasSuffix(n, "/") && !f.Has('d') || !spec.match(strings.TrimSuffix(n, "/")) && !spec.below(n) {
			continue
		}
		if slices.ContainsFunc(f.Values('e'), func(p string) bool { return wild(p, strings.TrimSuffix(n, "/")) || wild(p, path.Base(n)) }) {
			continue
		}
		switch {
		case f.Has('n'):
			g.printf("Would remove %s\n", quotePath(r.shown(n)))
			continue
		case !f.Has('q'):
			g.printf("Removing %s\n", quotePath(r.shown(n)))
		}
		if err := r.FS().RemoveAll(r.abs(n)); err != nil {
			return err
		}
	}
	return nil
}

// cmdApply is git apply. The program patch does the work.
func cmdApply(g *git, r *repo) error {
	f, err := g.flags("p:Rv3C:q", "reverse=R", "check=\x80", "stat=\x81", "index=\x82", "cached=\x83", "verbose=v", "whitespace=\x84:", "3way=3", "directory=\x85:", "ignore-whitespace=\x86", "unidiff-zero=\x86", "reject=\x86", "quiet=q", "numstat=\x87", "summary=\x87", "allow-empty=\x86", "recount=\x86")
	if err != nil {
		return err
	}
	if f.Has(0x83) || f.Has('3') || f.Has(0x81) || f.Has(0x87) {
		return fatalf("that way to apply a patch is not available here")
	}
	names := f.Args
	if len(names) == 0 {
		names = []string{"-"}
	}
	dir := g.dir
	if r != nil && r.top != "" {
		dir = r.top
	}
	for _, n := range names {
		in := n
		if n != "-" {
			in = g.path(n)
		}
		file, err := g.OpenIn(in)
		if err != nil {
			return fatalf("can't open patch '%s': No such file or directory", n)
		}
		b, err := g.ReadAll(file)
		_ = file.Close() // it was read
		if err != nil {
			return err
		}
		if !bytes.Contains(b, []byte("--- ")) && !bytes.Contains(b, []byte("diff --git")) {
			g.warnf("error: No valid patches in input (allow with \"--allow-empty\")")
			return exit(128)
		}
		args := []string{"patch", "-p" + f.Value('p', "1"), "-s", "-f", "-N", "--no-backup-if-mismatch"}
		if f.Has('R') {
			args = append(args, "-R")
		}
		// all or nothing: it is tried first
		var said strings.Builder
		if g.Run(tool.Child{Args: append(slices.Clone(args), "--dry-run"), Dir: dir, In: bytes.NewReader(b), Out: &said, Err: &said}) != 0 {
			for _, l := range strings.Split(string(b), "\n") {
				if name, ok := strings.CutPrefix(l, "+++ b/"); ok {
					g.warnf("error: %s: patch does not apply", strings.TrimSpace(name))
				}
			}
			return exit(1)
		}
		if f.Has(0x80) {
			continue
		}
		if g.Run(tool.Child{Args: args, Dir: dir, In: bytes.NewReader(b), Out: discard{}}) != 0 {
			return exit(1)
		}
		if f.Has(0x82) && r != nil {
			x, err := r.index()
			if err == nil {
				all, _ := r.pathspec(nil)
				err = r.stageTracked(x, all)
			}
			if err == nil {
				err = r.save(x)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// cmdDescribe is git describe.
func cmdDescribe(g *git, r *repo) error {
	f, err := g.flags("", "tags=\x80", "always=\x81", "dirty=\x82::", "abbrev=\x83:", "long=\x84", "match=\x85:", "all=\x86", "exact-match=\x87", "contains=\x88", "first-parent=\x89", "exclude=\x8a:", "candidates=\x8b:")
	if err != nil {
		return err
	}
	rev := "HEAD"
	if len(f.Args) > 0 {
		rev = f.Args[0]
	}
	c, err := r.resolveCommit(rev)
	if err != nil && len(r.refs("refs/tags/")) == 0 {
		return fatalf("No names found, cannot describe anything.")
	}
	if err != nil {
		return fatalf("Not a valid object name %s", rev)
	}
	abbrev := 7
	if a := f.Value(0x83, ""); a != "" {
		abbrev, _ = strconv.Atoi(a)
	}
	names := map[plumbing.Hash]string{}
	for _, ref := range r.refs("refs/tags/") {
		h, ok := r.ref(string(ref.Name()))
		p, err := r.peel(h, plumbing.CommitObject)
		name := ref.Name().Short()
		if !ok || err != nil || p == h && !f.Has(0x80) && !f.Has(0x86) || f.Has(0x85) && !wild(f.Value(0x85, ""), name) {
			continue
		}
		names[p] = name
	}
	dirty := ""
	if f.Has(0x82) {
		x, err := r.index()
		if err != nil {
			return err
		}
		s, err := r.condition(x, "no", false)
		if err != nil {
			return err
		}
		if len(s.staged)+len(s.unstaged) > 0 {
			if dirty = f.Value(0x82, ""); dirty == "" {
				dirty = "-dirty"
			}
		}
	}
	var found *object.Commit
	err = r.history([]plumbing.Hash{c.Hash}, nil, func(x *object.Commit) error {
		if names[x.Hash] != "" {
			found = x
			return errEnough
		}
		if f.Has(0x87) {
			return errEnough
		}
		return nil
	})
	if err != nil && err != errEnough {
		return err
	}
	if found == nil {
		if f.Has(0x81) {
			g.printf("%s%s\n", c.Hash.String()[:max(abbrev, 4)], dirty)
			return nil
		}
		if f.Has(0x87) {
			return fatalf("no tag exactly matches '%s'", c.Hash)
		}
		return fatalf("No names found, cannot describe anything.")
	}
	of, err := r.ancestors(found.Hash)
	if err != nil {
		return err
	}
	n := 0
	err = r.history([]plumbing.Hash{c.Hash}, nil, func(x *object.Commit) error {
		if !of[x.Hash] {
			n++
		}
		return nil
	})
	if err != nil {
		return err
	}
	name := names[found.Hash]
	if (n > 0 || f.Has(0x84)) && abbrev > 0 {
		name = fmt.Sprintf("%s-%d-g%s", name, n, c.Hash.String()[:min(max(abbrev, 4), 40)])
	}
	g.printf("%s%s\n", name, dirty)
	return nil
}

// cmdShortlog is git shortlog.
func cmdShortlog(g *git, r *repo) error {
	f, err := g.flags("snec", "summary=s", "numbered=n", "email=e", "committer=c", "all=\x80", "no-merges=\x81")
	if err != nil {
		return err
	}
	revs := f.Args
	if f.Has(0x80) {
		for _, ref := range r.refs("refs/heads/") {
			revs = append(revs, string(ref.Name()))
		}
	}
	if len(revs) == 0 {
		if _, _, tty := g.Terminal(0); !tty {
			return nil // without a terminal, git reads a log from standard input
		}
		revs = []string{"HEAD"}
	}
	from, without, err := r.span(revs)
	if err != nil {
		return err
	}
	by := map[string][]string{}
	err = r.history(from, without, func(c *object.Commit) error {
		if f.Has(0x81) && len(c.ParentHashes) > 1 {
			return nil
		}
		who := c.Author.Name
		if f.Has('e') {
			who += " <" + c.Author.Email + ">"
		}
		by[who] = append(by[who], subject(c.Message))
		return nil
	})
	if err != nil {
		return err
	}
	var names []string
	for n := range by {
		names = append(names, n)
	}
	slices.Sort(names)
	if f.Has('n') {
		slices.SortStableFunc(names, func(a, b string) int { return len(by[b]) - len(by[a]) })
	}
	for _, n := range names {
		if f.Has('s') {
			g.printf("%6d\t%s\n", len(by[n]), n)
			continue
		}
		g.printf("%s (%d):\n", n, len(by[n]))
		for _, s := range slices.Backward(by[n]) {
			g.printf("      %s\n", s)
		}
		g.printf("\n")
	}
	return nil
}
