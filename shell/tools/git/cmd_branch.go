package git

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/carrel-dev/carrel/shell/tool"
)

// cmdBranch is git branch.
func cmdBranch(g *git, r *repo) error {
	f, err := g.flags("adDmMvrfcCqlu:t", "all=a", "delete=d", "move=m", "copy=c", "verbose=v", "remotes=r", "force=f", "quiet=q", "list=l", "show-current=\x80", "set-upstream-to=u:",
		"unset-upstream=\x81", "contains=\x82::", "merged=\x83::", "no-merged=\x84::", "format=\x85:", "sort=\x86:", "track=t", "no-track=\x87", "no-color=\x88", "color=\x89::", "column=\x89::", "points-at=\x8a:")
	if err != nil {
		return err
	}
	branch, at := r.head()
	current := strings.TrimPrefix(branch, "refs/heads/")
	args := separate(&f)
	switch {
	case f.Has(0x80):
		if current != "" {
			g.printf("%s\n", current)
		}
		return nil
	case f.Has('d') || f.Has('D'):
		return r.deleteBranches(g, args, f.Has('D') || f.Has('f'), f.Has('r'), f.Has('q'), current)
	case f.Has('m') || f.Has('M') || f.Has('c') || f.Has('C'):
		return r.renameBranch(g, args, f.Has('M') || f.Has('C') || f.Has('f'), f.Has('c') || f.Has('C'), current)
	case f.Has('u'):
		return r.setUpstream(f.Value('u', ""), current, args)
	case f.Has(0x81):
		_, err := r.unset(r.git_+"/config", "branch", current, "")
		return err
	case len(args) > 0 && !f.Has('l') && !f.Has(0x82) && !f.Has(0x83) && !f.Has(0x84) && !f.Has('a') && !f.Has('r') && !f.Has('v'):
		return r.makeBranch(g, args, f)
	}
	rows, err := r.branchRows(f, args, branch, at)
	if err != nil {
		return err
	}
	return r.printBranches(f, rows, branch)
}

// setUpstream sets up as the upstream of the named branch, or of the current one.
func (r *repo) setUpstream(up, current string, args []string) error {
	name := current
	if len(args) > 0 {
		name = args[0]
	}
	given := up
	_, remote := r.ref("refs/remotes/" + up)
	_, local := r.ref("refs/heads/" + up)
	if !remote && !local {
		return fatalf("the requested upstream branch '%s' does not exist", up)
	}
	if !remote {
		up = "./" + up
	}
	if err := r.track(name, up); err != nil {
		return err
	}
	r.printf("branch '%s' set up to track '%s'.\n", name, given)
	return nil
}

// branchRow is one line of git branch.
type branchRow struct{ name, full string }

// branchRows returns the branches to list.
func (r *repo) branchRows(f tool.Flags, args []string, branch string, at plumbing.Hash) ([]branchRow, error) {
	prefixes := []string{"refs/heads/"}
	if f.Has('r') {
		prefixes = []string{"refs/remotes/"}
	} else if f.Has('a') {
		prefixes = append(prefixes, "refs/remotes/")
	}
	var rows []branchRow
	if branch == "" && !at.IsZero() && !f.Has('r') {
		rows = append(rows, branchRow{"(HEAD detached at " + r.short(at) + ")", "HEAD"})
	}
	for _, p := range prefixes {
		for _, ref := range r.refs(p) {
			h, ok := r.ref(string(ref.Name()))
			name := strings.TrimPrefix(string(ref.Name()), p)
			if len(prefixes) == 2 && p == "refs/remotes/" {
				name = "remotes/" + name
			}
			if len(args) > 0 && !slices.ContainsFunc(args, func(a string) bool { return wild(a, name) }) {
				continue
			}
			yes, err := r.keepsBranch(f, h)
			if err != nil {
				return nil, err
			}
			if ok && yes {
				if ref.Type() == plumbing.SymbolicReference {
					name += " -> " + strings.TrimPrefix(string(ref.Target()), "refs/remotes/")
				}
				rows = append(rows, branchRow{name, string(ref.Name())})
			}
		}
	}
	return rows, nil
}

// keepsBranch reports whether a branch passes --contains, --merged and --no-merged.
func (r *repo) keepsBranch(f tool.Flags, h plumbing.Hash) (bool, error) {
	for _, o := range f.All {
		if o.Letter < 0x82 || o.Letter > 0x84 {
			continue
		}
		c, err := r.resolveCommit(orHead(o.Value))
		if err != nil {
			return false, err
		}
		a, b := c.Hash, h // contains: c is in h
		if o.Letter != 0x82 {
			a, b = h, c.Hash
		}
		of, err := r.ancestors(b)
		if err != nil {
			return false, err
		}
		if of[a] == (o.Letter == 0x84) {
			return false, nil
		}
	}
	return true, nil
}

// printBranches lists branches in the format of the options.
func (r *repo) printBranches(f tool.Flags, rows []branchRow, branch string) error {
	width := 0
	for _, x := range rows {
		width = max(width, utf8.RuneCountInString(x.name))
	}
	for _, x := range rows {
		if format := f.Value(0x85, ""); format != "" {
			text, err := r.refText(format, x.full)
			if err != nil {
				return err
			}
			r.printf("%s\n", text)
			continue
		}
		mark := "  "
		if x.full == branch || x.full == "HEAD" {
			mark = "* "
		}
		if !f.Has('v') {
			r.printf("%s%s\n", mark, x.name)
			continue
		}
		h, _ := r.ref(x.full)
		c, err := r.commit(h)
		if err != nil {
			return err
		}
		extra := r.trackingText(x.full, count(f, 'v') > 1)
		r.printf("%s%-*s %s %s%s\n", mark, width, x.name, r.short(h), extra, subject(c.Message))
	}
	return nil
}

// trackingText returns the text of git branch -v about a branch and its upstream. With named it
// includes the upstream's name.
func (r *repo) trackingText(full string, named bool) string {
	up, _ := r.upstream(full)
	if up == "" || !strings.HasPrefix(full, "refs/heads/") {
		return ""
	}
	_, marks, _ := strings.Cut(r.tracking(full), " [")
	text := strings.TrimSuffix(marks, "]")
	if named {
		marks, text = text, strings.TrimPrefix(up, "refs/remotes/")
		if marks != "" {
			text += ": " + marks
		}
	}
	if text == "" {
		return ""
	}
	return "[" + text + "] "
}

// separate moves the argument of --contains and the like from the operands to the option.
func separate(f *flagSet) []string {
	args := f.Args
	for i, o := range f.All {
		if !o.Has && len(args) > 0 && slices.Contains([]string{"contains", "merged", "no-merged", "points-at"}, o.Long) {
			f.All[i].Value, f.All[i].Has = args[0], true
			args = args[1:]
		}
	}
	return args
}

func count(f flagSet, letter byte) (n int) {
	for _, o := range f.All {
		if o.Letter == letter {
			n++
		}
	}
	return n
}

func (r *repo) makeBranch(g *git, args []string, f flagSet) error {
	name, start := args[0], "HEAD"
	if len(args) > 1 {
		start = args[1]
	}
	if !goodBranch(name) {
		return fatalf("'%s' is not a valid branch name", name)
	}
	if _, ok := r.ref("refs/heads/" + name); ok && !f.Has('f') {
		return fatalf("a branch named '%s' already exists", name)
	}
	c, err := r.resolveCommit(start)
	if err != nil {
		return fatalf("not a valid object name: '%s'", start)
	}
	if err := r.setRef(plumbing.ReferenceName("refs/heads/"+name), c.Hash); err != nil {
		return err
	}
	if _, ok := r.ref("refs/remotes/" + start); ok && !f.Has(0x87) {
		if err := r.track(name, start); err != nil {
			return err
		}
		g.printf("branch '%s' set up to track '%s'.\n", name, start)
	}
	return nil
}

func (r *repo) deleteBranches(g *git, args []string, force, remote, quiet bool, current string) error {
	if len(args) == 0 {
		return fatalf("branch name required")
	}
	status := error(nil)
	for _, name := range args {
		prefix, kind := "refs/heads/", "branch"
		if remote {
			prefix, kind = "refs/remotes/", "remote-tracking branch"
		}
		h, ok := r.ref(prefix + name)
		if !ok {
			g.warnf("error: branch '%s' not found.", name)
			status = exit(1)
			continue
		}
		if name == current && !remote {
			g.warnf("error: Cannot delete branch '%s' checked out at '%s'", name, r.top)
			status = exit(1)
			continue
		}
		if !force && !remote {
			_, at := r.head()
			of, err := r.ancestors(at)
			if err != nil {
				return err
			}
			if !of[h] {
				g.warnf("error: The branch '%s' is not fully merged.\nIf you are sure you want to delete it, run 'git branch -D %s'.", name, name)
				status = exit(1)
				continue
			}
		}
		if err := r.store.RemoveReference(plumbing.ReferenceName(prefix + name)); err != nil {
			return err
		}
		if !remote {
			if _, err := r.unset(r.git_+"/config", "branch", name, ""); err != nil {
				return err
			}
		}
		if !quiet {
			g.printf("Deleted %s %s (was %s).\n", kind, name, r.short(h))
		}
	}
	return status
}

func (r *repo) renameBranch(g *git, args []string, force, duplicate bool, current string) error {
	from, to := current, ""
	switch len(args) {
	case 1:
		to = args[0]
	case 2:
		from, to = args[0], args[1]
	default:
		return fatalf("branch name required")
	}
	if !goodBranch(to) {
		return fatalf("'%s' is not a valid branch name", to)
	}
	h, ok := r.ref("refs/heads/" + from)
	if !ok && from != current {
		return fatalf("no branch named '%s'", from)
	}
	if _, exists := r.ref("refs/heads/" + to); exists && !force {
		return fatalf("a branch named '%s' already exists", to)
	}
	if ok {
		if err := r.setRef(plumbing.ReferenceName("refs/heads/"+to), h); err != nil {
			return err
		}
	}
	if duplicate {
		return nil
	}
	if from == current {
		if err := r.store.SetReference(plumbing.NewSymbolicReference(plumbing.HEAD, plumbing.ReferenceName("refs/heads/"+to))); err != nil {
			return err
		}
	}
	if ok && from != to {
		if err := r.store.RemoveReference(plumbing.ReferenceName("refs/heads/" + from)); err != nil {
			return err
		}
	}
	for _, k := range []string{"remote", "merge"} {
		if v := r.conf.get("branch." + from + "." + k); v != "" {
			if err := r.set(r.git_+"/config", "branch."+to+"."+k, v, false); err != nil {
				return err
			}
		}
	}
	_, err := r.unset(r.git_+"/config", "branch", from, "")
	return err
}
