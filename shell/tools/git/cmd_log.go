package git

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/carrel-dev/carrel/shell/tool"
)

// logOptions say which commits log shows, and in which format.
type logOptions struct {
	diffOptions
	format       string // "" is medium
	separator    bool   // format: rather than tformat:
	abbrev       bool
	graph        bool
	decorate     bool
	dates        string
	max, skip    int
	since, until time.Time
	author, grep *regexp.Regexp
	invert       bool
	noMerges     bool
	merges       bool
	firstParent  bool
	reverse      bool
	follow       bool
	pickaxe      string
	topo         bool
}

const logShort = "n:iES:G:cmg" + diffShort

var logLong = append([]string{"max-count=n", "oneline=\x80", "graph=\x81", "pretty=\x82::", "format=\x82:", "all=\x83", "author=\x84:", "grep=\x85:", "since=\x86:", "after=\x86:",
	"until=\x87:", "before=\x87:", "no-merges=\x88", "merges=\x89", "first-parent=\x8a", "reverse=\x8b", "skip=\x8c:", "decorate=\x8d::", "no-decorate=\x8e", "abbrev-commit=\x8f",
	"no-abbrev-commit=\x90", "date=\x91:", "follow=\x92", "branches=\x93::", "tags=\x94::", "remotes=\x95::", "topo-order=\x96", "date-order=\x97", "author-date-order=\x97",
	"regexp-ignore-case=i", "extended-regexp=E", "invert-grep=\x98", "abbrev=\x99::", "count=\x9a", "left-right=\x97", "cherry-pick=\x97", "no-notes=\x97", "source=\x97", "no-walk=\x9b", "full-history=\x97",
	"parents=\x9c", "committer=\x9d:", "show-signature=\x97", "walk-reflogs=g", "boundary=\x97", "not=\x9e", "objects=\x97", "stdin=\x97", "cc=c"}, diffLong...)

// take reads one option of log.
func (o *logOptions) take(r *repo, f tool.Flag, all *[]string) error {
	number := func() (int, error) {
		n, err := strconv.Atoi(f.Value)
		if err != nil {
			return 0, fatalf("'%s': not an integer", f.Value)
		}
		return n, nil
	}
	pattern := func() (*regexp.Regexp, error) {
		re, err := regexp.Compile("(?m)" + f.Value)
		if err != nil {
			return nil, fatalf("invalid pattern: %s", f.Value)
		}
		return re, nil
	}
	date := func() (time.Time, error) {
		t, ok := parseDate(f.Value, r.Now().UTC())
		if !ok {
			return t, fatalf("invalid date: %s", f.Value)
		}
		return t, nil
	}
	refs := func(prefix string) {
		for _, ref := range r.refs(prefix) {
			*all = append(*all, string(ref.Name()))
		}
	}
	var err error
	switch f.Letter {
	case 'n':
		o.max, err = number()
	case 0x80:
		o.format, o.abbrev = "oneline", true
	case 0x81:
		o.graph, o.topo = true, true
	case 0x82:
		return o.pretty(f)
	case 0x83:
		if _, at := r.head(); !at.IsZero() {
			*all = append(*all, "HEAD")
		}
		refs("refs/")
	case 0x84, 0x9d:
		o.author, err = pattern()
	case 0x85:
		o.grep, err = pattern()
	case 0x86:
		o.since, err = date()
	case 0x87:
		o.until, err = date()
	case 0x88:
		o.noMerges = true
	case 0x89:
		o.merges = true
	case 0x8a:
		o.firstParent = true
	case 0x8b:
		o.reverse = true
	case 0x8c:
		o.skip, err = number()
	case 0x8d:
		o.decorate = f.Value != "no" && f.Value != "auto"
	case 0x8e:
		o.decorate = false
	case 0x8f:
		o.abbrev = true
	case 0x90:
		o.abbrev = false
	case 0x91:
		o.dates = f.Value
	case 0x92:
		o.follow = true
	case 0x93:
		refs("refs/heads/")
	case 0x94:
		refs("refs/tags/")
	case 0x95:
		refs("refs/remotes/")
	case 0x96:
		o.topo = true
	case 0x98:
		o.invert = true
	case 0x9b:
		o.max = 1
	case 'S', 'G':
		o.pickaxe = f.Value
	case 'g':
		return fatalf("reflogs are not kept on this machine")
	case 'i', 'E', 'c', 'm', 0x97, 0x99, 0x9a, 0x9c, 0x9e:
	default:
		err = o.diffOptions.take(f)
	}
	return err
}

func (o *logOptions) pretty(f tool.Flag) error {
	v := f.Value
	switch {
	case strings.HasPrefix(v, "format:"):
		o.format, o.separator = v, true
	case strings.HasPrefix(v, "tformat:"):
		o.format = "format:" + v[len("tformat:"):]
	case strings.Contains(v, "%"), v == "" && f.Long == "format":
		o.format = "format:" + v
	case slices.Contains([]string{"oneline", "short", "medium", "full", "fuller", "raw", "reference", ""}, v):
		o.format = v
	default:
		return fatalf("invalid --pretty format: %s", v)
	}
	return nil
}

// numbers converts -5 to -n5, because getopt doesn't know -5.
func numbers(args []string) []string {
	out := slices.Clone(args)
	for i, a := range out {
		if a == "--" {
			break
		}
		if len(a) > 1 && a[0] == '-' && strings.Trim(a[1:], "0123456789") == "" {
			out[i] = "-n" + a[1:]
		}
	}
	return out
}

// split separates revisions from paths.
func (r *repo) split(args, given []string) (revs, paths []string, err error) {
	if i := slices.Index(given, "--"); i >= 0 {
		n := len(given) - i - 1
		return args[:len(args)-n], args[len(args)-n:], nil
	}
	for i, a := range args {
		if _, _, err := r.span([]string{a}); err == nil {
			if _, there := r.lstatUser(a); there {
				return nil, nil, fatalf("ambiguous argument '%s': both revision and filename\nUse '--' to separate paths from revisions, like this:\n'git <command> [<revision>...] -- [<file>...]'", a)
			}
			revs = append(revs, a)
			continue
		}
		if _, there := r.lstatUser(a); !there && !strings.ContainsAny(a, "*?[") {
			if _, _, serr := r.span([]string{a}); serr != nil {
				return nil, nil, serr
			}
		}
		return revs, args[i:], nil
	}
	return revs, nil, nil
}

func (r *repo) lstatUser(name string) (string, bool) {
	_, err := r.FS().Lstat(r.path(name))
	return name, err == nil
}

// cmdLog is git log.
func cmdLog(g *git, r *repo) error {
	given := g.args
	g.args = numbers(g.args)
	f, err := g.flags(logShort, logLong...)
	if err != nil {
		return err
	}
	o := &logOptions{max: -1}
	o.context = 3
	var extra []string
	for _, x := range f.All {
		if err := o.take(r, x, &extra); err != nil {
			return err
		}
	}
	revs, paths, err := r.split(f.Args, given)
	if err != nil {
		return err
	}
	revs = append(revs, extra...)
	if len(revs) == 0 {
		if _, err := r.headCommit(); err != nil {
			return err
		}
		revs = []string{"HEAD"}
	}
	o.paths = paths
	return r.log(revs, o)
}

// log shows the commits of a range.
func (r *repo) log(revs []string, o *logOptions) error {
	from, without, err := r.span(revs)
	if err != nil {
		return err
	}
	spec, err := r.pathspec(o.paths)
	if err != nil {
		return err
	}
	var all []*object.Commit
	n := 0
	walk := r.history
	if o.firstParent {
		walk = r.firstParents
	}
	err = walk(from, without, func(c *object.Commit) error {
		ok, err := r.wanted(c, o, spec)
		if err != nil || !ok {
			return err
		}
		if n++; n <= o.skip {
			return nil
		}
		if o.max >= 0 && len(all) >= o.max {
			return errEnough
		}
		all = append(all, c)
		return nil
	})
	if err != nil && err != errEnough {
		return err
	}
	if o.topo {
		all = topological(all)
	}
	if o.reverse {
		slices.Reverse(all)
	}
	names := map[plumbing.Hash][]string{}
	if o.decorate || strings.Contains(o.format, "%d") || strings.Contains(o.format, "%D") {
		names = r.decorations()
	}
	var lanes *lanes
	if o.graph {
		lanes = newLanes(all)
	}
	for i, c := range all {
		if err := r.oneCommit(c, o, names, i == 0, i == len(all)-1, lanes); err != nil {
			return err
		}
	}
	return nil
}

var errEnough = fmt.Errorf("enough")

// firstParents walks history along first parents only.
func (r *repo) firstParents(from, without []plumbing.Hash, fn func(c *object.Commit) error) error {
	for _, h := range from {
		for !h.IsZero() && !slices.Contains(without, h) {
			c, err := r.commit(h)
			if err != nil {
				return err
			}
			if err := fn(c); err != nil {
				return err
			}
			h = plumbing.ZeroHash
			if len(c.ParentHashes) > 0 {
				h = c.ParentHashes[0]
			}
		}
	}
	return nil
}

// topological sorts children before their parents, and keeps lines of history together.
func topological(all []*object.Commit) []*object.Commit {
	in := map[plumbing.Hash]*object.Commit{}
	children := map[plumbing.Hash]int{}
	for _, c := range all {
		in[c.Hash] = c
	}
	for _, c := range all {
		for _, p := range c.ParentHashes {
			children[p]++
		}
	}
	var todo, out []*object.Commit
	for _, c := range slices.Backward(all) {
		if children[c.Hash] == 0 {
			todo = append(todo, c)
		}
	}
	for len(todo) > 0 {
		c := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		out = append(out, c)
		for _, p := range c.ParentHashes {
			if children[p]--; children[p] == 0 && in[p] != nil {
				todo = append(todo, in[p])
			}
		}
	}
	return out
}

// wanted reports whether a commit passes the filters.
func (r *repo) wanted(c *object.Commit, o *logOptions, spec *pathspec) (bool, error) {
	switch {
	case !o.since.IsZero() && c.Committer.When.Before(o.since), !o.until.IsZero() && c.Committer.When.After(o.until),
		o.noMerges && len(c.ParentHashes) > 1, o.merges && len(c.ParentHashes) < 2,
		o.author != nil && !o.author.MatchString(c.Author.Name+" <"+c.Author.Email+">"),
		o.grep != nil && o.grep.MatchString(c.Message) == o.invert:
		return false, nil
	}
	if spec.all() && o.pickaxe == "" {
		return true, nil
	}
	cs, err := r.commitChanges(c)
	if err != nil {
		return false, err
	}
	if len(c.ParentHashes) > 1 { // as in git's simplification, a merge that equals one parent doesn't count
		for _, p := range c.ParentHashes {
			same, err := r.sameUnder(c.Hash, p, spec)
			if err != nil || same {
				return false, err
			}
		}
	}
	for _, x := range cs {
		if !spec.match(x.new) && !spec.match(x.old) {
			continue
		}
		if o.pickaxe == "" {
			return true, nil
		}
		a, b, err := x.contents(r.stored, r.stored)
		if err != nil {
			return false, err
		}
		if strings.Count(string(a), o.pickaxe) != strings.Count(string(b), o.pickaxe) {
			return true, nil
		}
	}
	return false, nil
}

func (r *repo) sameUnder(a, b plumbing.Hash, spec *pathspec) (bool, error) {
	x, err := r.treeOf(a)
	if err != nil {
		return false, err
	}
	y, err := r.treeOf(b)
	if err != nil {
		return false, err
	}
	for _, c := range changes(y, x) {
		if spec.match(c.new) {
			return false, nil
		}
	}
	return true, nil
}

// commitChanges returns the changes of a commit relative to its first parent.
func (r *repo) commitChanges(c *object.Commit) ([]change, error) {
	parent := plumbing.ZeroHash
	if len(c.ParentHashes) > 0 {
		parent = c.ParentHashes[0]
	}
	was, err := r.treeOf(parent)
	if err != nil {
		return nil, err
	}
	now, err := r.files(c.TreeHash)
	if err != nil {
		return nil, err
	}
	return changes(was, now), nil
}

// decorations returns the reference names of commits.
func (r *repo) decorations() map[plumbing.Hash][]string {
	out := map[plumbing.Hash][]string{}
	branch, at := r.head()
	if !at.IsZero() {
		if branch == "" {
			out[at] = append(out[at], "HEAD")
		} else {
			out[at] = append(out[at], "HEAD -> "+strings.TrimPrefix(branch, "refs/heads/"))
		}
	}
	for _, kind := range []string{"refs/tags/", "refs/remotes/", "refs/heads/"} {
		for _, ref := range r.refs(kind) {
			h, ok := r.ref(string(ref.Name()))
			if p, err := r.peel(h, plumbing.CommitObject); ok && err == nil {
				h = p
			}
			name := strings.TrimPrefix(string(ref.Name()), kind)
			if kind == "refs/tags/" {
				name = "tag: " + name
			}
			if string(ref.Name()) != branch {
				out[h] = append(out[h], name)
			}
		}
	}
	if r.stashHead() != plumbing.ZeroHash {
		out[r.stashHead()] = append(out[r.stashHead()], "refs/stash")
	}
	return out
}
