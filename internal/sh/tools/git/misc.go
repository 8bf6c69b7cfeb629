package git

import (
	"bytes"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/carrel-dev/carrel/internal/sh/tool"
	"github.com/carrel-dev/carrel/internal/sh/vfs"
)

// walkAll names all files of the work tree, ignored ones too.
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

// cmdApply is git apply: patch does the work.
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
			return nil // git reads a log from standard input then
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

// cmdGrep is git grep.
func cmdGrep(g *git, r *repo) error {
	f, err := g.flags("nilcvwEFPGLhHqoe:A:B:C:rI", "line-number=n", "ignore-case=i", "files-with-matches=l", "name-only=l", "count=c", "invert-match=v", "word-regexp=w", "extended-regexp=E", "fixed-strings=F", "perl-regexp=P", "files-without-match=L", "cached=\x80", "untracked=\x81", "quiet=q", "only-matching=o", "no-color=\x82", "color=\x83::", "recursive=r", "heading=\x84", "break=\x84", "text=\x82")
	if err != nil {
		return err
	}
	args := f.Args
	patterns := f.Values('e')
	if len(patterns) == 0 {
		if len(args) == 0 {
			return fatalf("no pattern given")
		}
		patterns, args = args[:1], args[1:]
	}
	for i, p := range patterns {
		switch {
		case f.Has('F'):
			p = regexp.QuoteMeta(p)
		case !f.Has('E') && !f.Has('P'):
			p = strings.NewReplacer(`\|`, `|`, `\+`, `+`, `\?`, `?`, `\(`, `(`, `\)`, `)`, `\{`, `{`, `\}`, `}`, `|`, `\|`, `+`, `\+`, `?`, `\?`, `(`, `\(`, `)`, `\)`, `{`, `\{`, `}`, `\}`).Replace(p)
		}
		if f.Has('w') {
			p = `\b(?:` + p + `)\b`
		}
		patterns[i] = p
	}
	src := strings.Join(patterns, "|")
	if f.Has('i') {
		src = "(?i)" + src
	}
	re, err := regexp.Compile(src)
	if err != nil {
		return fatalf("command line, '%s': invalid pattern", strings.Join(patterns, "|"))
	}
	x, err := r.index()
	if err != nil {
		return err
	}
	from, read, prefix := x.snapshot(), r.onDisk, ""
	if len(args) > 0 {
		if _, there := r.lstatUser(args[0]); !there {
			if c, err := r.resolveCommit(args[0]); err == nil {
				if from, err = r.files(c.TreeHash); err != nil {
					return err
				}
				read, prefix, args = r.stored, args[0]+":", args[1:]
			}
		}
	}
	if f.Has(0x80) {
		read = r.stored
	}
	spec, err := r.pathspec(args)
	if err != nil {
		return err
	}
	if len(args) == 0 {
		if here, _ := r.rel(r.dir); here != "" {
			spec.specs, spec.hit = []string{here}, []bool{false}
		}
	}
	found := false
	for _, n := range from.names() {
		if !spec.match(n) {
			continue
		}
		b, err := read(n, from[n])
		if err != nil {
			continue // gone from the disk
		}
		name := prefix + r.shown(n)
		if f.Has('h') {
			name = ""
		}
		hits := 0
		binary := isBinary(b)
		for i, l := range splitLines(b) {
			if i&63 == 0 && !r.Step(64+len(b)>>12) {
				return tool.ErrStop
			}
			l = bytes.TrimSuffix(l, []byte("\n"))
			if re.Match(l) == f.Has('v') {
				continue
			}
			hits++
			if f.Has('l') || f.Has('L') || f.Has('q') || f.Has('c') || binary {
				continue
			}
			head := ""
			if name != "" {
				head = name + ":"
			}
			if f.Has('n') {
				head += fmt.Sprintf("%d:", i+1)
			}
			if f.Has('o') {
				for _, m := range re.FindAll(l, -1) {
					g.printf("%s%s\n", head, m)
				}
				continue
			}
			g.printf("%s%s\n", head, l)
		}
		found = found || hits > 0
		switch {
		case f.Has('q'):
		case f.Has('l') && hits > 0, f.Has('L') && hits == 0:
			g.printf("%s\n", name)
		case f.Has('c') && hits > 0:
			g.printf("%s:%d\n", name, hits)
		case binary && hits > 0 && !f.Has('l') && !f.Has('L'):
			g.printf("Binary file %s matches\n", name)
		}
	}
	if !found {
		return exit(1)
	}
	return nil
}

// cmdBlame is git blame.
func cmdBlame(g *git, r *repo) error {
	f, err := g.flags("L:swelptM::C::", "porcelain=p", "show-email=e", "root=\x80", "line-porcelain=\x81", "date=\x82:")
	if err != nil {
		return err
	}
	if len(f.Args) == 0 {
		g.warnf("usage: git blame [<options>] [<rev-opts>] [<rev>] [--] <file>")
		return exit(129)
	}
	rev, file := "", f.Args[len(f.Args)-1]
	if len(f.Args) > 1 {
		rev = f.Args[0]
	}
	name, err := r.rel(file)
	if err != nil {
		return err
	}
	c, err := r.resolveCommit(orHead(rev))
	if err != nil {
		return err
	}
	tree, err := r.files(c.TreeHash)
	if err != nil {
		return err
	}
	e, ok := tree[name]
	if !ok {
		return fatalf("no such path '%s' in %s", name, orHead(rev))
	}
	text, err := r.blob(e.hash)
	if err != nil {
		return err
	}
	lines := splitLines(text)
	if rev == "" {
		if i, there := r.lstat(name); there {
			b, err := r.content(name, i)
			if err != nil {
				return err
			}
			lines = splitLines(b)
		}
	}
	who := make([]*object.Commit, len(lines))
	now := splitLines(text)
	edits, err := r.compare(now, lines)
	if err != nil {
		return err
	}
	pending := carry(edits, len(now), len(lines), identityLines(len(lines))) // index into the current text → line of the final
	for {
		parent, old, err := r.before(c, name)
		if err != nil {
			return err
		}
		if parent == nil {
			for _, l := range pending {
				if l >= 0 {
					who[l] = c
				}
			}
			break
		}
		edits, err := r.compare(old, now)
		if err != nil {
			return err
		}
		for _, e := range edits {
			for j := e.b1; j < e.b2; j++ {
				if pending[j] >= 0 {
					who[pending[j]] = c
				}
			}
		}
		pending = carry(edits, len(old), len(now), pending)
		c, now = parent, old
	}
	from, to := 1, len(lines)
	if v := f.Value('L', ""); v != "" {
		a, b, _ := strings.Cut(v, ",")
		from, _ = strconv.Atoi(a)
		if n, ok := strings.CutPrefix(b, "+"); ok {
			k, _ := strconv.Atoi(n)
			to = from + k - 1
		} else if b != "" {
			to, _ = strconv.Atoi(b)
		}
		if from < 1 || from > len(lines) {
			return fatalf("file %s has only %s", name, plural(len(lines), "line"))
		}
		to = min(to, len(lines))
	}
	return r.blamed(lines, who, from, to, f)
}

func identityLines(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// carry moves what is known of lines of a text to the lines of the text before it.
func carry(edits []edit, old, now int, known []int) []int {
	out := make([]int, old)
	i, j := 0, 0
	for _, e := range append(slices.Clone(edits), edit{old, old, now, now}) {
		for ; i < e.a1; i, j = i+1, j+1 {
			out[i] = known[j]
		}
		for ; i < e.a2; i++ {
			out[i] = -1
		}
		j = e.b2
	}
	return out
}

// before is the first parent, with the text that a file had there; nil when it wasn't there.
func (r *repo) before(c *object.Commit, name string) (*object.Commit, [][]byte, error) {
	for _, h := range c.ParentHashes {
		p, err := r.commit(h)
		if err != nil {
			return nil, nil, err
		}
		tree, err := r.files(p.TreeHash)
		if err != nil {
			return nil, nil, err
		}
		e, ok := tree[name]
		if !ok {
			continue
		}
		b, err := r.blob(e.hash)
		return p, splitLines(b), err
	}
	return nil, nil, nil
}

// blamed writes the lines with who wrote them.
func (r *repo) blamed(lines [][]byte, who []*object.Commit, from, to int, f flagSet) error {
	width, digits := 0, len(strconv.Itoa(to))
	label := func(c *object.Commit) (hash, author, date string) {
		if c == nil {
			return "00000000", "Not Committed Yet", r.Now().UTC().Format("2006-01-02 15:04:05 -0700")
		}
		hash = c.Hash.String()[:8]
		if len(c.ParentHashes) == 0 && !f.Has(0x80) {
			hash = "^" + hash[:7]
		}
		author = c.Author.Name
		if f.Has('e') {
			author = "<" + c.Author.Email + ">"
		}
		return hash, author, c.Author.When.Format("2006-01-02 15:04:05 -0700")
	}
	for i := from - 1; i < to; i++ {
		_, a, _ := label(who[i])
		width = max(width, len([]rune(a)))
	}
	for i := from - 1; i < to; i++ {
		h, a, d := label(who[i])
		l := strings.TrimSuffix(string(lines[i]), "\n")
		if f.Has('s') {
			r.printf("%s %*d) %s\n", h, digits, i+1, l)
		} else {
			r.printf("%s (%s%s %s %*d) %s\n", h, a, strings.Repeat(" ", width-len([]rune(a))), d, digits, i+1, l)
		}
	}
	return nil
}
