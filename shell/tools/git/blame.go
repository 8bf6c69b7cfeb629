package git

import (
	"slices"
	"strconv"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/object"
)

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
	pending := carry(edits, len(now), len(lines), identityLines(len(lines))) // maps a line of the current text to a line of the final text
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

// carry maps knowledge about the lines of a text to the lines of the previous text.
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

// before returns the first parent, with the text of a file in it. It returns nil when the parent
// did not have the file.
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

// blamed writes the lines with their authors.
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
