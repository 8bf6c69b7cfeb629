package git

import (
	"path"
	"strconv"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/object"
)

// cmdRevParse is git rev-parse.
func cmdRevParse(g *git, r *repo) error {
	var o revOptions
	abbrev := false
	for _, a := range g.args {
		name, value, has := strings.Cut(a, "=")
		switch name {
		case "--show-toplevel":
			if err := r.needTree(); err != nil {
				return err
			}
			g.printf("%s\n", r.top)
		case "--git-dir", "--absolute-git-dir", "--git-common-dir":
			dir := r.git_
			if name != "--absolute-git-dir" && path.Join(r.dir, ".git") == dir {
				dir = ".git"
			}
			g.printf("%s\n", dir)
		case "--is-inside-work-tree":
			g.printf("%v\n", r.top != "" && !strings.HasPrefix(r.dir+"/", r.git_+"/"))
		case "--is-inside-git-dir":
			g.printf("%v\n", strings.HasPrefix(r.dir+"/", r.git_+"/"))
		case "--is-bare-repository":
			g.printf("%v\n", r.top == "")
		case "--is-shallow-repository":
			s, _ := r.store.Shallow()
			g.printf("%v\n", len(s) > 0)
		case "--show-prefix":
			p, _ := r.rel(r.dir)
			if p != "" {
				p += "/"
			}
			g.printf("%s\n", p)
		case "--show-cdup":
			p, _ := r.rel(r.dir)
			if p == "" {
				g.printf("\n")
			} else {
				g.printf("%s\n", strings.Repeat("../", strings.Count(p, "/")+1))
			}
		case "--short":
			if o.short = 7; has {
				o.short, _ = strconv.Atoi(value)
				o.short = min(max(o.short, 4), 40)
			}
		case "--abbrev-ref":
			abbrev = true
		case "--verify":
			o.verify = true
		case "-q", "--quiet":
			o.quiet = true
		case "--symbolic-full-name", "--revs-only", "--no-revs", "--":
		case "--all":
			for _, ref := range r.refs("refs/") {
				h, _ := r.ref(string(ref.Name()))
				g.printf("%s\n", h)
			}
		default:
			if abbrev {
				name, err := r.abbrevRef(a)
				if err != nil {
					return err
				}
				g.printf("%s\n", name)
				continue
			}
			if err := r.printRevision(a, o); err != nil {
				return err
			}
		}
	}
	return nil
}

// revOptions say how revisions are printed.
type revOptions struct {
	short         int // how many digits; 0 is all
	verify, quiet bool
}

// abbrevRef returns the short name of HEAD's branch or of an upstream. It returns other names
// unchanged.
func (r *repo) abbrevRef(a string) (string, error) {
	name := a
	if a == "HEAD" || a == "@" {
		if b := r.branchName(); b != "" {
			name = strings.TrimPrefix(b, "refs/heads/")
			if _, at := r.head(); at.IsZero() {
				return "", fatalf("ambiguous argument 'HEAD': unknown revision or path not in the working tree.\nUse '--' to separate paths from revisions, like this:\n'git <command> [<revision>...] -- [<file>...]'")
			}
		} else {
			name = "HEAD"
		}
	} else if strings.HasSuffix(a, "@{u}") || strings.HasSuffix(a, "@{upstream}") {
		if _, err := r.object(a); err != nil {
			return "", err
		}
		b := strings.TrimSuffix(strings.TrimSuffix(a, "@{u}"), "@{upstream}")
		full := "refs/heads/" + b
		if b == "" || b == "HEAD" {
			full = r.branchName()
		}
		up, _ := r.upstream(full)
		name = strings.TrimPrefix(up, "refs/remotes/")
	} else if _, err := r.resolve(a); err != nil {
		return "", err
	}
	return name, nil
}

// printRevision prints the hashes for a revision, a negated revision or a range.
func (r *repo) printRevision(a string, o revOptions) error {
	mark := ""
	if rest, ok := strings.CutPrefix(a, "^"); ok {
		mark, a = "^", rest
	}
	if x, y, ok := strings.Cut(a, ".."); ok && !strings.Contains(a, "...") {
		p, err := r.resolve(orHead(x))
		if err != nil {
			return err
		}
		q, err := r.resolve(orHead(y))
		if err != nil {
			return err
		}
		r.printf("%s\n^%s\n", q, p)
		return nil
	}
	h, err := r.resolve(a)
	if err != nil {
		if o.verify && o.quiet {
			return exit(1)
		}
		if o.verify {
			return fatalf("Needed a single revision")
		}
		if !o.quiet {
			r.printf("%s\n", a)
		}
		return err
	}
	if o.short > 0 {
		r.printf("%s%s\n", mark, h.String()[:o.short])
	} else {
		r.printf("%s%s\n", mark, h)
	}
	return nil
}

// cmdRevList is git rev-list.
func cmdRevList(g *git, r *repo) error {
	given := g.args
	g.args = numbers(g.args)
	f, err := g.flags(logShort, logLong...)
	if err != nil {
		return err
	}
	o := &logOptions{max: -1, format: "format:%H"}
	var extra []string
	for _, x := range f.All {
		if err := o.take(r, x, &extra); err != nil {
			return err
		}
	}
	if o.format == "oneline" && o.abbrev {
		o.abbrev = false
	}
	revs, paths, err := r.split(f.Args, given)
	if err != nil {
		return err
	}
	o.paths = paths
	if revs = append(revs, extra...); len(revs) == 0 {
		g.warnf("usage: git rev-list [<options>] <commit>...")
		return exit(129)
	}
	if !f.Has(0x9a) {
		return r.log(revs, o)
	}
	from, without, err := r.span(revs)
	if err != nil {
		return err
	}
	spec, err := r.pathspec(paths)
	if err != nil {
		return err
	}
	n := 0
	err = r.history(from, without, func(c *object.Commit) error {
		ok, err := r.wanted(c, o, spec)
		if ok && (o.max < 0 || n < o.max) {
			n++
		}
		return err
	})
	if err == nil {
		g.printf("%d\n", n)
	}
	return err
}
