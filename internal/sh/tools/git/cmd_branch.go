package git

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
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
		name := current
		if len(args) > 0 {
			name = args[0]
		}
		up := f.Value('u', "")
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
		g.printf("branch '%s' set up to track '%s'.\n", name, f.Value('u', ""))
		return nil
	case f.Has(0x81):
		_, err := r.unset(r.git_+"/config", "branch", current, "")
		return err
	case len(args) > 0 && !f.Has('l') && !f.Has(0x82) && !f.Has(0x83) && !f.Has(0x84) && !f.Has('a') && !f.Has('r') && !f.Has('v'):
		return r.makeBranch(g, args, f)
	}
	prefixes := []string{"refs/heads/"}
	if f.Has('r') {
		prefixes = []string{"refs/remotes/"}
	} else if f.Has('a') {
		prefixes = append(prefixes, "refs/remotes/")
	}
	type row struct{ name, full string }
	var rows []row
	if branch == "" && !at.IsZero() && !f.Has('r') {
		rows = append(rows, row{"(HEAD detached at " + r.short(at) + ")", "HEAD"})
	}
	keep := func(h plumbing.Hash) (bool, error) {
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
			yes, err := keep(h)
			if err != nil {
				return err
			}
			if ok && yes {
				if ref.Type() == plumbing.SymbolicReference {
					name += " -> " + strings.TrimPrefix(string(ref.Target()), "refs/remotes/")
				}
				rows = append(rows, row{name, string(ref.Name())})
			}
		}
	}
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
			g.printf("%s\n", text)
			continue
		}
		mark := "  "
		if x.full == branch || x.full == "HEAD" {
			mark = "* "
		}
		if !f.Has('v') {
			g.printf("%s%s\n", mark, x.name)
			continue
		}
		h, _ := r.ref(x.full)
		c, err := r.commit(h)
		if err != nil {
			return err
		}
		extra := ""
		if up, _ := r.upstream(x.full); up != "" && strings.HasPrefix(x.full, "refs/heads/") {
			_, marks, _ := strings.Cut(r.tracking(x.full), " [")
			marks = strings.TrimSuffix(marks, "]")
			if n := count(f, 'v'); n > 1 {
				extra = strings.TrimPrefix(up, "refs/remotes/")
				if marks != "" {
					extra += ": " + marks
				}
			} else {
				extra = marks
			}
			if extra != "" {
				extra = "[" + extra + "] "
			}
		}
		g.printf("%s%-*s %s %s%s\n", mark, width, x.name, r.short(h), extra, subject(c.Message))
	}
	return nil
}

// separate gives --contains and its kin the argument that stands apart from them.
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

// cmdTag is git tag.
func cmdTag(g *git, r *repo) error {
	f, err := g.flags("am:F:dlfn::sv", "annotate=a", "message=m", "file=F", "delete=d", "list=l", "force=f", "sort=\x80:", "contains=\x81::", "format=\x82:", "points-at=\x83:", "merged=\x84::", "sign=s", "verify=v", "no-column=\x85", "column=\x86::")
	if err != nil {
		return err
	}
	if f.Has('s') || f.Has('v') {
		return fatalf("there are no keys to sign with on this machine")
	}
	args := separate(&f)
	if f.Has('d') {
		status := error(nil)
		for _, name := range args {
			h, ok := r.ref("refs/tags/" + name)
			if !ok {
				g.warnf("error: tag '%s' not found.", name)
				status = exit(1)
				continue
			}
			if err := r.store.RemoveReference(plumbing.ReferenceName("refs/tags/" + name)); err != nil {
				return err
			}
			g.printf("Deleted tag '%s' (was %s)\n", name, r.short(h))
		}
		return status
	}
	if len(args) == 0 || f.Has('l') || f.Has('n') {
		refs := r.refs("refs/tags/")
		if strings.Contains(f.Value(0x80, ""), "version") || strings.Contains(f.Value(0x80, ""), "v:") {
			slices.SortStableFunc(refs, func(a, b *plumbing.Reference) int { return versionCompare(a.Name().Short(), b.Name().Short()) })
		}
		if strings.HasPrefix(f.Value(0x80, ""), "-") {
			slices.Reverse(refs)
		}
		for _, ref := range refs {
			name := ref.Name().Short()
			if len(args) > 0 && !slices.ContainsFunc(args, func(a string) bool { return wild(a, name) }) {
				continue
			}
			if f.Has(0x81) || f.Has(0x83) || f.Has(0x84) {
				h, err := r.peel(ref.Hash(), plumbing.CommitObject)
				if err != nil {
					continue
				}
				c, err := r.resolveCommit(orHead(f.Value(0x81, f.Value(0x83, f.Value(0x84, "")))))
				if err != nil {
					return err
				}
				a, b := c.Hash, h
				if f.Has(0x84) {
					a, b = h, c.Hash
				}
				of, err := r.ancestors(b)
				if err != nil {
					return err
				}
				if f.Has(0x83) && a != b || !of[a] {
					continue
				}
			}
			switch {
			case f.Has(0x82):
				text, err := r.refText(f.Value(0x82, ""), string(ref.Name()))
				if err != nil {
					return err
				}
				g.printf("%s\n", text)
			case f.Has('n'):
				g.printf("%-15s %s\n", name, r.tagSubject(ref.Hash()))
			default:
				g.printf("%s\n", name)
			}
		}
		return nil
	}
	name, target := args[0], "HEAD"
	if len(args) > 1 {
		target = args[1]
	}
	if !goodBranch(name) {
		return fatalf("'%s' is not a valid tag name.", name)
	}
	old, exists := r.ref("refs/tags/" + name)
	if exists && !f.Has('f') {
		return fatalf("tag '%s' already exists", name)
	}
	h, err := r.resolve(target)
	if err != nil {
		return fatalf("Failed to resolve '%s' as a valid ref.", target)
	}
	if f.Has('a') || f.Has('m') || f.Has('F') {
		who, err := r.identity("COMMITTER")
		if err != nil {
			return err
		}
		message := strings.Join(f.Values('m'), "\n\n")
		if !f.Has('m') {
			if message, err = r.message(f, nil, ""); err != nil {
				return err
			}
		}
		o, err := r.store.EncodedObject(plumbing.AnyObject, h)
		if err != nil {
			return err
		}
		var b bytes.Buffer
		fmt.Fprintf(&b, "object %s\ntype %s\ntag %s\ntagger %s\n\n%s", h, o.Type(), name, stamp(who), tidy(message, false))
		if h, err = r.putObject(plumbing.TagObject, b.Bytes()); err != nil {
			return err
		}
	}
	if err := r.setRef(plumbing.ReferenceName("refs/tags/"+name), h); err != nil {
		return err
	}
	if exists && old != h {
		g.printf("Updated tag '%s' (was %s)\n", name, r.short(old))
	}
	return nil
}

func (r *repo) tagSubject(h plumbing.Hash) string {
	if t, err := object.GetTag(r.store, h); err == nil {
		return subject(t.Message)
	}
	if c, err := r.commit(h); err == nil {
		return subject(c.Message)
	}
	return ""
}

// versionCompare orders names with numbers in them by the numbers.
func versionCompare(a, b string) int {
	for a != "" && b != "" {
		da, db := digits(a), digits(b)
		if da > 0 && db > 0 {
			x, y := strings.TrimLeft(a[:da], "0"), strings.TrimLeft(b[:db], "0")
			if len(x) != len(y) {
				return len(x) - len(y)
			}
			if x != y {
				return strings.Compare(x, y)
			}
			a, b = a[da:], b[db:]
			continue
		}
		if a[0] != b[0] {
			return int(a[0]) - int(b[0])
		}
		a, b = a[1:], b[1:]
	}
	return len(a) - len(b)
}

func digits(s string) int {
	n := 0
	for n < len(s) && s[n] >= '0' && s[n] <= '9' {
		n++
	}
	return n
}

// refText fills a format of for-each-ref.
func (r *repo) refText(format, full string) (string, error) {
	h, ok := r.ref(full)
	if !ok {
		return "", nil
	}
	o, err := r.store.EncodedObject(plumbing.AnyObject, h)
	if err != nil {
		return "", err
	}
	ch, _ := r.peel(h, plumbing.CommitObject)
	c, cerr := r.commit(ch)
	var b strings.Builder
	for {
		i := strings.Index(format, "%(")
		if i < 0 {
			return b.String() + strings.ReplaceAll(format, "%%", "%"), nil
		}
		end := strings.IndexByte(format[i:], ')')
		if end < 0 {
			return "", fatalf("malformed format string %s", format)
		}
		b.WriteString(strings.ReplaceAll(format[:i], "%%", "%"))
		name, arg, _ := strings.Cut(format[i+2:i+end], ":")
		format = format[i+end+1:]
		switch strings.TrimPrefix(name, "*") {
		case "refname":
			if arg == "short" {
				b.WriteString(plumbing.ReferenceName(full).Short())
			} else {
				b.WriteString(full)
			}
		case "objectname":
			if arg == "short" {
				b.WriteString(r.short(h))
			} else {
				b.WriteString(h.String())
			}
		case "objecttype":
			b.WriteString(o.Type().String())
		case "HEAD":
			if full == r.branchName() {
				b.WriteByte('*')
			} else {
				b.WriteByte(' ')
			}
		case "upstream":
			up, _ := r.upstream(full)
			if arg == "short" {
				up = strings.TrimPrefix(up, "refs/remotes/")
			}
			b.WriteString(up)
		case "subject", "contents":
			if t := r.tagSubject(h); arg == "" || arg == "subject" {
				b.WriteString(t)
			}
		case "authorname", "authoremail", "committerdate", "authordate", "creatordate", "committername", "taggerdate":
			if cerr != nil {
				break
			}
			switch {
			case name == "authorname":
				b.WriteString(c.Author.Name)
			case name == "committername":
				b.WriteString(c.Committer.Name)
			case name == "authoremail":
				b.WriteString("<" + c.Author.Email + ">")
			case name == "authordate":
				b.WriteString(r.dateText(c.Author.When, arg))
			default:
				b.WriteString(r.dateText(c.Committer.When, arg))
			}
		default:
			return "", fatalf("unknown field name: %s", name)
		}
	}
}

// cmdForEachRef is git for-each-ref.
func cmdForEachRef(g *git, r *repo) error {
	f, err := g.flags("", "format=\x80:", "sort=\x81:", "count=\x82:")
	if err != nil {
		return err
	}
	refs := r.refs("refs/")
	if strings.Contains(f.Value(0x81, ""), "date") {
		when := func(ref *plumbing.Reference) int64 {
			h, err := r.peel(ref.Hash(), plumbing.CommitObject)
			if err != nil {
				return 0
			}
			c, err := r.commit(h)
			if err != nil {
				return 0
			}
			return c.Committer.When.Unix()
		}
		slices.SortStableFunc(refs, func(a, b *plumbing.Reference) int { return int(when(a) - when(b)) })
	}
	if strings.HasPrefix(f.Value(0x81, ""), "-") {
		slices.Reverse(refs)
	}
	for _, ref := range refs {
		name := string(ref.Name())
		if len(f.Args) > 0 && !slices.ContainsFunc(f.Args, func(a string) bool {
			return name == a || strings.HasPrefix(name, strings.TrimSuffix(a, "/")+"/") || wild(a, name)
		}) {
			continue
		}
		text, err := r.refText(f.Value(0x80, "%(objectname) %(objecttype)\t%(refname)"), name)
		if err != nil {
			return err
		}
		g.printf("%s\n", text)
	}
	return nil
}
