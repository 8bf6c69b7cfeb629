package git

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"

	"github.com/carrel-dev/carrel/internal/sh/tool"
)

// change is one path that differs.
type change struct {
	kind     byte // A, D, M, T, R, U
	old, new string
	from, to entry
	score    int // of a rename, in percent
}

// side gives the contents of a version of the files.
type side func(name string, e entry) ([]byte, error)

func (r *repo) stored(_ string, e entry) ([]byte, error) {
	if e.mode == filemode.Submodule {
		return []byte("Subproject commit " + e.hash.String() + "\n"), nil
	}
	return r.blob(e.hash)
}

// onDisk reads files of the work tree.
func (r *repo) onDisk(name string, e entry) ([]byte, error) {
	i, ok := r.lstat(name)
	if !ok {
		return r.stored(name, e)
	}
	return r.content(name, i)
}

// changes compares two snapshots.
func changes(a, b snapshot) []change {
	var out []change
	for name, x := range a {
		y, ok := b[name]
		switch {
		case !ok:
			out = append(out, change{kind: 'D', old: name, new: name, from: x})
		case x != y:
			c := change{kind: 'M', old: name, new: name, from: x, to: y}
			if (x.mode == filemode.Symlink) != (y.mode == filemode.Symlink) || (x.mode == filemode.Submodule) != (y.mode == filemode.Submodule) {
				c.kind = 'T'
			}
			out = append(out, c)
		}
	}
	for name, y := range b {
		if _, ok := a[name]; !ok {
			out = append(out, change{kind: 'A', old: name, new: name, to: y})
		}
	}
	sortChanges(out)
	return out
}

func sortChanges(cs []change) {
	slices.SortFunc(cs, func(a, b change) int { return strings.Compare(a.new, b.new) })
}

const maxRenames = 1000 // pairs that are compared by contents

// renames joins files that went with files that came when they are much the same.
func (r *repo) renames(cs []change, old, new side) ([]change, error) {
	var gone, came []int
	for i, c := range cs {
		switch {
		case c.kind == 'D' && c.from.mode != filemode.Submodule:
			gone = append(gone, i)
		case c.kind == 'A' && c.to.mode != filemode.Submodule:
			came = append(came, i)
		}
	}
	if len(gone) == 0 || len(came) == 0 {
		return cs, nil
	}
	used := map[int]int{} // of came, by gone
	taken := map[int]bool{}
	join := func(g, c, score int) {
		used[c] = g
		taken[g] = true
		cs[c].kind, cs[c].old, cs[c].from, cs[c].score = 'R', cs[g].old, cs[g].from, score
	}
	for _, c := range came {
		best := -1
		for _, g := range gone {
			if !taken[g] && cs[g].from.hash == cs[c].to.hash && cs[g].from.hash != emptyBlob {
				if best < 0 || baseName(cs[g].old) == baseName(cs[c].new) && baseName(cs[best].old) != baseName(cs[c].new) {
					best = g
				}
			}
		}
		if best >= 0 {
			join(best, c, 100)
		}
	}
	if len(gone)*len(came) <= maxRenames {
		type pair struct{ g, c, score int }
		var pairs []pair
		for _, c := range came {
			if _, ok := used[c]; ok {
				continue
			}
			b, err := new(cs[c].new, cs[c].to)
			if err != nil {
				return nil, err
			}
			for _, g := range gone {
				if taken[g] {
					continue
				}
				a, err := old(cs[g].old, cs[g].from)
				if err != nil {
					return nil, err
				}
				if s := r.similar(a, b); s >= 50 {
					pairs = append(pairs, pair{g, c, s})
				}
			}
		}
		slices.SortStableFunc(pairs, func(a, b pair) int { return b.score - a.score })
		for _, p := range pairs {
			if _, ok := used[p.c]; !ok && !taken[p.g] {
				join(p.g, p.c, p.score)
			}
		}
	}
	var out []change
	for i, c := range cs {
		if !taken[i] {
			out = append(out, c)
		}
	}
	return out, nil
}

var emptyBlob = plumbing.ComputeHash(plumbing.BlobObject, nil)

func baseName(s string) string { return s[strings.LastIndexByte(s, '/')+1:] }

// similar is how much of two texts is the same, in percent.
func (r *repo) similar(a, b []byte) int {
	if len(a) == 0 || len(b) == 0 || min(len(a), len(b))*2 < max(len(a), len(b)) || !r.Step(10+(len(a)+len(b))>>4) {
		return 0
	}
	chunks := map[string]int{}
	each := func(text []byte, fn func(chunk string)) {
		for _, l := range splitLines(text) {
			for len(l) > 64 {
				fn(string(l[:64]))
				l = l[64:]
			}
			fn(string(l))
		}
	}
	each(a, func(c string) { chunks[c]++ })
	same := 0
	each(b, func(c string) {
		if chunks[c] > 0 {
			chunks[c]--
			same += len(c)
		}
	})
	return same * 100 / max(len(a), len(b))
}

// diffOptions is how differences are shown.
type diffOptions struct {
	patch, stat, numstat, shortstat, nameOnly, nameStatus, summary, raw, quiet bool
	context                                                                    int
	noRename, zero, color, wordless                                            bool
	ignoreSpace                                                                bool
	paths                                                                      []string
	filter                                                                     string
	noPrefix                                                                   bool
}

// want reports whether anything but a patch was asked for.
func (o *diffOptions) other() bool {
	return o.stat || o.numstat || o.shortstat || o.nameOnly || o.nameStatus || o.summary || o.raw || o.quiet
}

// diffFlags are the options of all commands that show differences; they are read by take.
const diffShort = "pusU:wbMz"

var diffLong = []string{"patch=p", "no-patch=s", "stat=\xa0::", "numstat=\xa1", "shortstat=\xa2", "name-only=\xa3", "name-status=\xa4", "summary=\xa5", "raw=\xa6",
	"unified=U", "no-renames=\xa7", "find-renames=M", "ignore-all-space=w", "ignore-space-change=b", "quiet=\xa8", "exit-code=\xa9", "color=\xaa::", "no-color=\xab",
	"diff-filter=\xac:", "no-prefix=\xad", "patch-with-stat=\xae", "no-ext-diff=\xab", "minimal=\xab", "patience=\xab", "histogram=\xab", "diff-algorithm=\xaf:",
	"word-diff=\xb0::", "full-index=\xab", "text=\xab", "binary=\xab", "no-textconv=\xab", "relative=\xb1::", "R=\xb2", "ignore-blank-lines=\xab", "check=\xab"}

func (o *diffOptions) take(f tool.Flag) error {
	switch f.Letter {
	case 'p', 'u':
		o.patch = true
	case 's':
		*o = diffOptions{context: o.context, quiet: false, wordless: true, paths: o.paths}
	case 0xa0:
		o.stat = true
	case 0xa1:
		o.numstat = true
	case 0xa2:
		o.shortstat = true
	case 0xa3:
		o.nameOnly = true
	case 0xa4:
		o.nameStatus = true
	case 0xa5:
		o.summary = true
	case 0xa6:
		o.raw = true
	case 0xa7:
		o.noRename = true
	case 0xa8:
		o.quiet = true
	case 0xac:
		o.filter = f.Value
	case 0xad:
		o.noPrefix = true
	case 0xae:
		o.patch, o.stat = true, true
	case 'z':
		o.zero = true
	case 'w', 'b':
		o.ignoreSpace = true
	case 0xaa:
		o.color = f.Value == "always"
	case 'U':
		n := 0
		for _, c := range f.Value {
			if c < '0' || c > '9' || n > 1e6 {
				return fatalf("--unified expects a number")
			}
			n = 10*n + int(c-'0')
		}
		o.context, o.patch = n, true
	case 0xb0:
		return fatalf("word differences are not available here")
	}
	return nil
}

// show writes the differences.
func (r *repo) show(cs []change, old, new side, o *diffOptions) error {
	if !o.noRename {
		var err error
		if cs, err = r.renames(cs, old, new); err != nil {
			return err
		}
	}
	if o.filter != "" {
		cs = slices.DeleteFunc(cs, func(c change) bool { return strings.IndexByte(o.filter, c.kind) < 0 })
	}
	end := "\n"
	if o.zero {
		end = "\x00"
	}
	if o.raw {
		for _, c := range cs {
			name := quotePath(c.new)
			if c.kind == 'R' {
				name = quotePath(c.old) + "\t" + name
			}
			r.printf(":%06o %06o %s %s %s\t%s\n", uint32(c.from.mode), uint32(c.to.mode), abbreviate(c.from.hash), abbreviate(c.to.hash), c.letter(), name)
		}
	}
	for _, c := range cs {
		switch {
		case o.nameStatus && c.kind == 'R':
			r.printf("%s\t%s\t%s%s", c.letter(), quotePath(c.old), quotePath(c.new), end)
		case o.nameStatus:
			r.printf("%s\t%s%s", c.letter(), quotePath(c.new), end)
		case o.nameOnly:
			r.printf("%s%s", quotePath(c.new), end)
		}
	}
	if o.stat || o.numstat || o.shortstat {
		if err := r.stat(cs, old, new, o); err != nil {
			return err
		}
	}
	if o.summary {
		r.summary(cs)
	}
	if !o.patch {
		return nil
	}
	if o.stat || o.numstat || o.shortstat || o.raw {
		r.printf("\n")
	}
	for _, c := range cs {
		if err := r.patch(c, old, new, o); err != nil {
			return err
		}
	}
	return nil
}

func (c change) letter() string {
	if c.kind == 'R' {
		return fmt.Sprintf("R%03d", c.score)
	}
	return string(rune(c.kind))
}

func abbreviate(h plumbing.Hash) string { return h.String()[:7] }

// quotePath writes a path as git does: in quotes when there is something unusual in it.
func quotePath(s string) string {
	plain := true
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' {
			plain = false
		}
	}
	if plain {
		return s
	}
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c == '\n':
			b.WriteString(`\n`)
		case c == '\t':
			b.WriteString(`\t`)
		case c < ' ' || c >= 0x7f:
			fmt.Fprintf(&b, `\%03o`, c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// contents reads both versions of a change.
func (c change) contents(old, new side) (a, b []byte, err error) {
	if c.kind != 'A' {
		if a, err = old(c.old, c.from); err != nil {
			return nil, nil, err
		}
	}
	if c.kind != 'D' {
		b, err = new(c.new, c.to)
	}
	return a, b, err
}

// patch writes one change as a patch.
func (r *repo) patch(c change, old, new side, o *diffOptions) error {
	if c.kind == 'U' {
		r.printf("* Unmerged path %s\n", c.new)
		return nil
	}
	if c.kind == 'T' {
		first, second := c, c
		first.kind, first.to = 'D', entry{}
		second.kind, second.from = 'A', entry{}
		if err := r.patch(first, old, new, o); err != nil {
			return err
		}
		return r.patch(second, old, new, o)
	}
	a, b, err := c.contents(old, new)
	if err != nil {
		return err
	}
	left, right := "a/", "b/"
	if o.noPrefix {
		left, right = "", ""
	}
	w := r.w
	fmt.Fprintf(w, "diff --git %s %s\n", quotePath(left+c.old), quotePath(right+c.new))
	switch {
	case c.kind == 'A':
		fmt.Fprintf(w, "new file mode %06o\n", uint32(c.to.mode))
	case c.kind == 'D':
		fmt.Fprintf(w, "deleted file mode %06o\n", uint32(c.from.mode))
	case c.from.mode != c.to.mode:
		fmt.Fprintf(w, "old mode %06o\nnew mode %06o\n", uint32(c.from.mode), uint32(c.to.mode))
	}
	if c.kind == 'R' {
		fmt.Fprintf(w, "similarity index %d%%\nrename from %s\nrename to %s\n", c.score, quotePath(c.old), quotePath(c.new))
	}
	ha, hb := c.from.hash, c.to.hash
	if c.kind != 'D' && hb.IsZero() {
		hb = plumbing.ComputeHash(plumbing.BlobObject, b)
	}
	if ha == hb {
		return nil
	}
	fmt.Fprintf(w, "index %s..%s", abbreviate(ha), abbreviate(hb))
	if c.kind != 'A' && c.kind != 'D' && c.from.mode == c.to.mode {
		fmt.Fprintf(w, " %06o", uint32(c.to.mode))
	}
	fmt.Fprint(w, "\n")
	from, to := quotePath(left+c.old), quotePath(right+c.new)
	if c.kind == 'A' {
		from = "/dev/null"
	}
	if c.kind == 'D' {
		to = "/dev/null"
	}
	if isBinary(a) || isBinary(b) {
		fmt.Fprintf(w, "Binary files %s and %s differ\n", from, to)
		return nil
	}
	if len(a) == 0 && len(b) == 0 {
		return nil
	}
	fmt.Fprintf(w, "--- %s%s\n+++ %s%s\n", from, tab(from), to, tab(to))
	return r.hunks(a, b, o)
}

// tab is what follows a name with a space.
func tab(name string) string {
	if strings.Contains(name, " ") && name[0] != '"' {
		return "\t"
	}
	return ""
}

// hunks writes the differences of two texts.
func (r *repo) hunks(old, new []byte, o *diffOptions) error {
	a, b := splitLines(old), splitLines(new)
	edits, err := r.compare(keyLines(a, o.ignoreSpace), keyLines(b, o.ignoreSpace))
	if err != nil {
		return err
	}
	n := o.context
	for i := 0; i < len(edits); {
		j := i + 1
		for j < len(edits) && edits[j].a1-edits[j-1].a2 <= 2*n {
			j++
		}
		first, last := edits[i], edits[j-1]
		a1, a2 := max(first.a1-n, 0), min(last.a2+n, len(a))
		b1, b2 := max(first.b1-n, 0), min(last.b2+n, len(b))
		fmt.Fprintf(r.w, "@@ -%s +%s @@%s\n", span(a1, a2), span(b1, b2), function(a, a1))
		at := a1
		for _, e := range edits[i:j] {
			for ; at < e.a1; at++ {
				r.line(' ', b[e.b1-(e.a1-at)])
			}
			for ; at < e.a2; at++ {
				r.line('-', a[at])
			}
			for k := e.b1; k < e.b2; k++ {
				r.line('+', b[k])
			}
		}
		for k := 0; at < a2; at, k = at+1, k+1 {
			r.line(' ', b[last.b2+k])
		}
		if !r.Step(20 + a2 - a1 + b2 - b1) {
			return tool.ErrStop
		}
		i = j
	}
	return nil
}

// keyLines is what lines are compared by.
func keyLines(lines [][]byte, noSpace bool) [][]byte {
	if !noSpace {
		return lines
	}
	out := make([][]byte, len(lines))
	for i, l := range lines {
		out[i] = bytes.Join(bytes.Fields(l), nil)
	}
	return out
}

func (r *repo) line(mark byte, l []byte) {
	fmt.Fprintf(r.w, "%c%s", mark, l)
	if len(l) == 0 || l[len(l)-1] != '\n' {
		fmt.Fprint(r.w, "\n\\ No newline at end of file\n")
	}
}

func span(from, to int) string {
	switch to - from {
	case 0:
		return fmt.Sprintf("%d,0", from)
	case 1:
		return fmt.Sprint(from + 1)
	}
	return fmt.Sprintf("%d,%d", from+1, to-from)
}

// function is the line above a hunk that begins something.
func function(lines [][]byte, at int) string {
	for i := at - 1; i >= 0 && i > at-10000; i-- {
		l := lines[i]
		if len(l) > 0 && (l[0]|0x20 >= 'a' && l[0]|0x20 <= 'z' || l[0] == '_' || l[0] == '$') {
			l = bytes.TrimRight(l[:min(len(l), 80)], " \t\r\n")
			return " " + string(l)
		}
	}
	return ""
}
