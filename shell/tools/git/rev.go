package git

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/carrel-dev/carrel/shell/tool"
)

// resolve finds the object that a revision names.
func (r *repo) resolve(rev string) (plumbing.Hash, error) {
	h, err := r.object(rev)
	if err == errBadRevision {
		err = fatalf("ambiguous argument '%s': unknown revision or path not in the working tree.\n"+
			"Use '--' to separate paths from revisions, like this:\n'git <command> [<revision>...] -- [<file>...]'", rev)
	}
	return h, err
}

// resolveCommit finds the commit that a revision names.
func (r *repo) resolveCommit(rev string) (*object.Commit, error) {
	h, err := r.resolve(rev)
	if err != nil {
		return nil, err
	}
	if h, err = r.peel(h, plumbing.CommitObject); err != nil {
		return nil, err
	}
	return r.commit(h)
}

// peel follows tags to their target, and commits to their tree.
func (r *repo) peel(h plumbing.Hash, want plumbing.ObjectType) (plumbing.Hash, error) {
	for range 20 {
		o, err := r.store.EncodedObject(plumbing.AnyObject, h)
		if err != nil {
			return h, fatalf("bad object %s", h)
		}
		switch {
		case o.Type() == want:
			return h, nil
		case o.Type() == plumbing.TagObject:
			t, err := object.GetTag(r.store, h)
			if err != nil {
				return h, err
			}
			h = t.Target
		case o.Type() == plumbing.CommitObject && want == plumbing.TreeObject:
			c, err := r.commit(h)
			if err != nil {
				return h, err
			}
			return c.TreeHash, nil
		default:
			return h, fatalf("object %s is a %s, not a %s", h, o.Type(), want)
		}
	}
	return h, errBadRevision
}

// object finds the object of a revision: a base, and steps from it.
func (r *repo) object(rev string) (plumbing.Hash, error) {
	if i := strings.IndexByte(rev, ':'); i >= 0 && !strings.Contains(rev[:i], "{") {
		return r.inTree(rev[:i], rev[i+1:])
	}
	i := strings.IndexAny(rev, "^~")
	for at := strings.Index(rev, "@{"); at >= 0 && i >= 0 && i < at; at = -1 {
		i = -1
	}
	base, steps := rev, ""
	if i >= 0 {
		base, steps = rev[:i], rev[i:]
	}
	h, err := r.base(base)
	if err != nil {
		return h, err
	}
	for steps != "" {
		op := steps[0]
		steps = steps[1:]
		if op == '^' && strings.HasPrefix(steps, "{") {
			end := strings.IndexByte(steps, '}')
			if end < 0 {
				return h, errBadRevision
			}
			kind := steps[1:end]
			steps = steps[end+1:]
			want := map[string]plumbing.ObjectType{"commit": plumbing.CommitObject, "tree": plumbing.TreeObject, "": plumbing.CommitObject, "object": plumbing.AnyObject}[kind]
			if want == plumbing.AnyObject {
				continue
			}
			if h, err = r.peel(h, want); err != nil {
				return h, err
			}
			continue
		}
		digits := 0
		for digits < len(steps) && steps[digits] >= '0' && steps[digits] <= '9' {
			digits++
		}
		n := 1
		if digits > 0 {
			if n, err = strconv.Atoi(steps[:digits]); err != nil || n > 1<<20 {
				return h, errBadRevision
			}
		}
		steps = steps[digits:]
		if h, err = r.peel(h, plumbing.CommitObject); err != nil {
			return h, err
		}
		if op == '^' && n == 0 {
			continue
		}
		for k := n; k > 0; k-- {
			c, err := r.commit(h)
			if err != nil {
				return h, err
			}
			parent := 0
			if op == '^' {
				parent, k = n-1, 1
			}
			if parent >= len(c.ParentHashes) {
				return h, errBadRevision
			}
			h = c.ParentHashes[parent]
		}
	}
	return h, nil
}

// inTree resolves REV:PATH, or :PATH for the index.
func (r *repo) inTree(rev, name string) (plumbing.Hash, error) {
	name = strings.TrimPrefix(name, "./")
	if rev == "" {
		x, err := r.index()
		if err != nil {
			return plumbing.ZeroHash, err
		}
		if e := x.find(name, 0); e != nil {
			return e.Hash, nil
		}
		return plumbing.ZeroHash, fatalf("path '%s' does not exist (neither on disk nor in the index)", name)
	}
	h, err := r.object(rev)
	if err == nil {
		h, err = r.peel(h, plumbing.TreeObject)
	}
	if err == errBadRevision {
		return h, fatalf("invalid object name '%s'.", rev)
	}
	if err != nil || name == "" {
		return h, err
	}
	for _, part := range strings.Split(strings.Trim(name, "/"), "/") {
		t, err := object.GetTree(r.store, h)
		if err != nil {
			return h, fatalf("path '%s' does not exist in '%s'", name, rev)
		}
		i := slices.IndexFunc(t.Entries, func(e object.TreeEntry) bool { return e.Name == part })
		if i < 0 {
			return h, fatalf("path '%s' does not exist in '%s'", name, rev)
		}
		h = t.Entries[i].Hash
	}
	return h, nil
}

// base resolves a name without steps.
func (r *repo) base(name string) (plumbing.Hash, error) {
	if name == "@" || name == "" {
		name = "HEAD"
	}
	if rest, ok := strings.CutSuffix(name, "@{0}"); ok {
		name = rest
	}
	for _, s := range []string{"@{u}", "@{upstream}"} {
		if b, ok := strings.CutSuffix(name, s); ok {
			branch := "refs/heads/" + b
			if b == "" {
				branch, _ = r.head()
			}
			up, _ := r.upstream(branch)
			if h, ok := r.ref(up); ok && up != "" {
				return h, nil
			}
			return plumbing.ZeroHash, fatalf("no upstream configured for branch '%s'", strings.TrimPrefix(branch, "refs/heads/"))
		}
	}
	if name == "-" {
		name = "@{-1}"
	}
	if name == "@{-1}" {
		name = r.previous()
	}
	for _, prefix := range []string{"", "refs/", "refs/tags/", "refs/heads/", "refs/remotes/"} {
		if prefix == "" && !strings.HasPrefix(name, "refs/") && strings.ToUpper(name) != name {
			continue
		}
		if h, ok := r.ref(prefix + name); ok {
			return h, nil
		}
	}
	if h, ok := r.ref("refs/remotes/" + name + "/HEAD"); ok {
		return h, nil
	}
	switch name {
	case "FETCH_HEAD", "ORIG_HEAD", "MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD":
		if text := strings.Fields(r.read(name)); len(text) > 0 && len(text[0]) == 40 {
			return plumbing.NewHash(text[0]), nil
		}
	}
	if strings.HasPrefix(name, "stash@{") || name == "stash" {
		n := 0
		if name != "stash" {
			n, _ = strconv.Atoi(strings.Trim(name[len("stash@"):], "{}"))
		}
		if all := r.stashes(); n >= 0 && n < len(all) {
			return all[n].at, nil
		}
		return plumbing.ZeroHash, errBadRevision
	}
	// what describe prints
	if i := strings.LastIndex(name, "-g"); i > 0 {
		if h, err := r.abbreviated(name[i+2:]); err == nil {
			return h, nil
		}
	}
	return r.abbreviated(name)
}

// abbreviated finds an object by the beginning of its hash.
func (r *repo) abbreviated(s string) (plumbing.Hash, error) {
	s = strings.ToLower(s)
	if len(s) < 4 || len(s) > 40 || strings.Trim(s, "0123456789abcdef") != "" {
		return plumbing.ZeroHash, errBadRevision
	}
	if len(s) == 40 {
		h := plumbing.NewHash(s)
		return h, nil
	}
	even := s[:len(s)&^1]
	prefix := make([]byte, len(even)/2)
	for i := range prefix {
		n, _ := strconv.ParseUint(even[2*i:2*i+2], 16, 8)
		prefix[i] = byte(n)
	}
	all, err := r.store.HashesWithPrefix(prefix)
	if err != nil {
		return plumbing.ZeroHash, errBadRevision
	}
	var found []plumbing.Hash
	for _, h := range all {
		if strings.HasPrefix(h.String(), s) && !slices.Contains(found, h) && bytes.HasPrefix(h[:], prefix) {
			found = append(found, h)
		}
	}
	if len(found) != 1 {
		return plumbing.ZeroHash, errBadRevision
	}
	return found[0], nil
}

// upstream returns the remote-tracking reference of a branch's upstream, and the remote's name.
func (r *repo) upstream(branch string) (ref, remote string) {
	short := strings.TrimPrefix(branch, "refs/heads/")
	remote, merge := r.conf.get("branch."+short+".remote"), r.conf.get("branch."+short+".merge")
	if remote == "" || merge == "" {
		return "", remote
	}
	if remote == "." {
		return merge, remote
	}
	return "refs/remotes/" + remote + "/" + strings.TrimPrefix(merge, "refs/heads/"), remote
}

// previous returns the branch that was checked out before the current one.
func (r *repo) previous() string {
	return strings.TrimSpace(r.read("carrel-previous"))
}

// history walks the commits reachable from some commits, without those reachable from others. The
// newest comes first.
func (r *repo) history(from, without []plumbing.Hash, fn func(c *object.Commit) error) error {
	hidden := map[plumbing.Hash]bool{}
	if len(without) > 0 {
		todo := slices.Clone(without)
		for len(todo) > 0 {
			h := todo[len(todo)-1]
			todo = todo[:len(todo)-1]
			if hidden[h] {
				continue
			}
			hidden[h] = true
			c, err := r.commit(h)
			if err != nil {
				continue // the history of a shallow repository ends here
			}
			todo = append(todo, c.ParentHashes...)
		}
	}
	seen := map[plumbing.Hash]bool{}
	var queue []*object.Commit
	push := func(h plumbing.Hash) error {
		if seen[h] || hidden[h] {
			return nil
		}
		seen[h] = true
		c, err := r.commit(h)
		if err != nil {
			if len(seen) > 1 {
				return nil
			}
			return fatalf("bad object %s", h)
		}
		if err := r.Pay(1000); err != nil {
			return err
		}
		at := len(queue)
		for at > 0 && queue[at-1].Committer.When.Before(c.Committer.When) {
			at--
		}
		queue = slices.Insert(queue, at, c)
		return nil
	}
	for _, h := range from {
		if err := push(h); err != nil {
			return err
		}
	}
	for len(queue) > 0 {
		c := queue[0]
		queue = queue[1:]
		if !r.Step(10) {
			return tool.ErrStop
		}
		if err := fn(c); err != nil {
			return err
		}
		for _, p := range c.ParentHashes {
			if err := push(p); err != nil {
				return err
			}
		}
	}
	return nil
}

// ancestors returns all commits that are reachable from a commit, including itself.
func (r *repo) ancestors(h plumbing.Hash) (map[plumbing.Hash]bool, error) {
	out := map[plumbing.Hash]bool{}
	err := r.history([]plumbing.Hash{h}, nil, func(c *object.Commit) error { out[c.Hash] = true; return nil })
	return out, err
}

// mergeBase returns the best common ancestor, zero when there is none.
func (r *repo) mergeBase(a, b plumbing.Hash) (plumbing.Hash, error) {
	of, err := r.ancestors(a)
	if err != nil {
		return plumbing.ZeroHash, err
	}
	var base plumbing.Hash
	err = r.history([]plumbing.Hash{b}, nil, func(c *object.Commit) error {
		if of[c.Hash] {
			base = c.Hash
			return tool.ErrStop
		}
		return nil
	})
	if err == tool.ErrStop && !base.IsZero() {
		err = nil
	}
	return base, err
}

// span reads revisions and ranges: the commits to show, and those to exclude.
func (r *repo) span(revs []string) (from, without []plumbing.Hash, err error) {
	one := func(rev string, to *[]plumbing.Hash) error {
		c, err := r.resolveCommit(rev)
		if err == nil {
			*to = append(*to, c.Hash)
		}
		return err
	}
	for _, rev := range revs {
		a, b, three := strings.Cut(rev, "...")
		if three {
			if err = one(a, &from); err == nil {
				err = one(b, &from)
			}
			if err == nil {
				var base plumbing.Hash
				if base, err = r.mergeBase(from[len(from)-2], from[len(from)-1]); err == nil && !base.IsZero() {
					without = append(without, base)
				}
			}
		} else if a, b, two := strings.Cut(rev, ".."); two {
			if err = one(a, &without); err == nil {
				err = one(b, &from)
			}
		} else if rest, ok := strings.CutPrefix(rev, "^"); ok {
			err = one(rest, &without)
		} else {
			err = one(rev, &from)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	return from, without, nil
}
