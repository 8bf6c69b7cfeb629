package git

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
)

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

// versionCompare compares names, and compares numbers in them by value.
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

// refText expands a format of for-each-ref.
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
