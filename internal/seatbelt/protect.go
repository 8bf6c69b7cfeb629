package seatbelt

import (
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/carrel-dev/carrel/internal/settings"
)

// Regular expressions are anchored at both ends, and "[^/]" is used in place of ".", which may not match a line end.
const (
	anyDirs = "(/[^/]*)*"
	rest    = "(/[^/]*)*$"
)

// group is a set of protected names with what is the same of them: what stands in front in an expression, and filters.
type group struct {
	head, also    string
	names, fronts []string
}

// protected writes the names that are never written, whether they exist or not: for each the name with all that is in it,
// and for a name of several elements (".git/hooks") the directories in front (".git"). Those are neither moved nor made: a
// directory that was filled under another name would else become one. Making and moving to a name are one operation to Seatbelt.
//
// What names a writable directory itself, or something above it, was opened with it. So the rules for everywhere leave out such
// directories, and each has rules of its own.
func (w *writer) protected() {
	if len(w.box.Protected) == 0 {
		return
	}
	opened := w.opened()
	w.comment("never written")
	w.groups(w.everywhere(opened))
	for _, root := range opened {
		w.groups(w.in(root, opened))
	}
	var pinned []string
	for _, g := range w.box.Protected {
		if p, ok := whole(g); ok {
			dir, _ := w.split(p)
			if w.writable(dir) {
				pinned = append(pinned, w.literal(dir))
			}
			pinned = append(pinned, w.above(dir)...)
		}
	}
	w.rules("deny", "file-write-unlink", unique(pinned))
}

// whole is the absolute form of a pattern that holds in one place. A deep one of one directory holds anywhere here: else what
// holds the name could be moved out, changed and moved back.
func whole(g settings.Protected) (string, bool) {
	switch {
	case strings.HasPrefix(g.Pattern, "/"):
		return g.Pattern, true
	case g.Dir != "" && !g.Deep:
		return strings.TrimSuffix(g.Dir, "/") + "/" + g.Pattern, true
	}
	return "", false
}

// opened are the writable directories that a pattern names, reaches into or holds, and those in them; the outermost first.
func (w *writer) opened() []string {
	var out []string
	for _, list := range w.byDepth() {
		for _, r := range list {
			if r.Access == settings.Writable && (slices.ContainsFunc(out, func(o string) bool { return below(r.Path, o) }) ||
				slices.ContainsFunc(w.box.Protected, func(g settings.Protected) bool { return touches(g, r.Path) })) {
				out = append(out, r.Path)
			}
		}
	}
	return out
}

// touches reports whether the first elements of a pattern match elements of a directory's path up to its end, or all of them match
// some of it.
func touches(g settings.Protected, dir string) bool {
	pattern, absolute := whole(g)
	elems := strings.Split(strings.TrimPrefix(dir, "/"), "/")
	if absolute { // what it names in the directory is in the directory
		all := strings.Split(pattern[1:], "/")
		return len(all) <= len(elems) && matchFront(all, elems)
	}
	for i := range elems {
		if matchFront(strings.Split(g.Pattern, "/"), elems[i:]) {
			return true
		}
	}
	return false
}

// matchFront matches elements as far as both go, in any case.
func matchFront(pattern, elems []string) bool {
	for i := range min(len(pattern), len(elems)) {
		if ok, err := path.Match(strings.ToLower(pattern[i]), strings.ToLower(elems[i])); err != nil || !ok && !strings.EqualFold(pattern[i], elems[i]) {
			return false
		}
	}
	return true
}

// everywhere are the names outside of the directories that were opened by theirs.
func (w *writer) everywhere(opened []string) []*group {
	var except []string
	for i, o := range opened {
		if !slices.ContainsFunc(opened[:i], func(p string) bool { return below(o, p) }) {
			except = append(except, "(require-not "+w.subpath(o)+")")
		}
	}
	also := strings.Join(except, " ")
	deep := &group{head: "^" + anyDirs + "/(", also: also}
	out := []*group{deep}
	for _, g := range w.box.Protected {
		if p, ok := whole(g); ok {
			out = w.place(out, p, also)
		} else {
			deep.add(g.Pattern)
		}
	}
	return out
}

// in are the names in one directory that was opened by its own, without those in it that were, too.
func (w *writer) in(root string, opened []string) []*group {
	filters := []string{w.subpath(root)}
	for _, o := range opened {
		if o != root && below(o, root) {
			filters = append(filters, "(require-not "+w.subpath(o)+")")
		}
	}
	also := strings.Join(filters, " ")
	deep := &group{head: w.head(root, anyDirs), also: also}
	first := &group{head: w.head(root, ""), also: also} // where the directory's own name is the first element
	out := []*group{deep, first}
	for _, g := range w.box.Protected {
		p, ok := whole(g)
		switch {
		case ok && depth(p) > depth(root):
			out = w.place(out, p, also)
		case !ok:
			deep.add(g.Pattern)
			if name, more, several := strings.Cut(g.Pattern, "/"); several && matchFront([]string{name}, []string{path.Base(root)}) {
				first.add(more)
			}
		}
	}
	return out
}

// head is what stands in front of a name in a directory. One that is too long beside a name is left to the filter.
func (w *writer) head(dir, between string) string {
	if h := "^" + escape(strings.TrimSuffix(dir, "/")) + between + "/("; len(h) <= maxString/2 {
		return h
	}
	return "^" + anyDirs + "/("
}

// place adds a pattern that holds in one place to the groups.
func (w *writer) place(list []*group, pattern, also string) []*group {
	dir, name := w.split(pattern)
	head := w.head(dir, "")
	if !strings.HasPrefix(head, "^"+escape(strings.TrimSuffix(dir, "/"))) {
		also = strings.TrimSpace(w.subpath(dir) + " " + also)
	}
	at := slices.IndexFunc(list, func(g *group) bool { return g.head == head && g.also == also })
	if at < 0 {
		list, at = append(list, &group{head: head, also: also}), len(list)
	}
	list[at].add(name)
	return list
}

// add adds a pattern with the directories in front of its last element. One with characters that make a pattern is
// also meant as it is.
func (g *group) add(pattern string) {
	g.names = append(g.names, expression(pattern))
	if strings.ContainsAny(pattern, `?[\`) {
		g.names = append(g.names, expression(literally(pattern)))
	}
	for front := path.Dir(pattern); front != "."; front = path.Dir(front) {
		g.fronts = append(g.fronts, expression(front))
	}
}

// groups writes the rules of groups.
func (w *writer) groups(list []*group) {
	for _, g := range list {
		for _, f := range w.filters(g, unique(g.names), rest) {
			w.rule("deny", "file-write*", f)
		}
	}
	for _, g := range list {
		for _, f := range w.filters(g, unique(g.fronts), "$") {
			w.rule("deny", "file-write-unlink file-write-create", f)
		}
	}
}

// split divides an absolute pattern: what is surely there, as it is written, and what may be spelled otherwise.
func (w *writer) split(pattern string) (dir, name string) {
	whole := pattern
	if meta := strings.IndexAny(pattern, `*?[\`); meta >= 0 {
		whole = pattern[:meta] + "x"
	}
	whole = path.Dir(whole)
	dir = "/"
	for _, base := range append([]string{w.box.Home, w.box.Dir}, w.paths()...) {
		if base != "" && below(whole, base) && len(base) > len(dir) {
			dir = base
		}
	}
	return w.real(dir), strings.TrimPrefix(pattern[len(dir):], "/")
}

// literally takes the meaning from a pattern's characters.
func literally(pattern string) string {
	var b strings.Builder
	for i := range len(pattern) {
		if strings.IndexByte(`?[\`, pattern[i]) >= 0 {
			b.WriteByte('\\')
		}
		b.WriteByte(pattern[i])
	}
	return b.String()
}

// paths are those that rules are about.
func (w *writer) paths() (list []string) {
	for _, r := range w.box.Paths {
		list = append(list, r.Path)
	}
	return list
}

// filters joins expressions to as few filters as the length of a string allows.
func (w *writer) filters(g *group, list []string, end string) []string {
	var out, batch []string
	flush := func() {
		f := "(regex " + w.quoted(g.head+strings.Join(batch, "|")+")"+end) + ")"
		if g.also != "" {
			f = "(require-all " + f + " " + g.also + ")"
		}
		out, batch = append(out, f), nil
	}
	size := 0
	for _, e := range list {
		if len(batch) > 0 && len(g.head)+size+len(e)+1+len(end) >= maxString-10 {
			flush()
			size = 0
		}
		batch, size = append(batch, e), size+len(e)+1
	}
	if len(batch) > 0 {
		flush()
	}
	return out
}

// expression is a pattern as a regular expression that matches each spelling the filesystem may take for the same name.
func expression(pattern string) string {
	var b strings.Builder
	for i := 0; i < len(pattern); {
		if pair, other := ligature(pattern[i:]); pair > 0 {
			b.WriteString("(" + fold(rune(pattern[i])) + fold(rune(pattern[i+1])) + "|" + other + ")")
			i += pair
			continue
		}
		r, n := utf8.DecodeRuneInString(pattern[i:])
		switch {
		case r == '*':
			b.WriteString("[^/]*")
		case r == '?':
			b.WriteString("[^/]")
		case r == '[':
			class, size := class(pattern[i:])
			b.WriteString(class)
			n = size
		case r == '\\' && i+1 < len(pattern):
			i++
			r, n = utf8.DecodeRuneInString(pattern[i:])
			b.WriteString(fold(r))
		case r == utf8.RuneError && n == 1:
			b.WriteString(anyByte)
		default:
			b.WriteString(fold(r))
		}
		i += n
	}
	return b.String()
}

// class copies a set such as [a-z] of a pattern that was checked. What is not closed stands for itself.
func class(s string) (string, int) {
	end := strings.IndexByte(s[min(2, len(s)):], ']')
	if end < 0 {
		return `\[`, 1
	}
	return s[:end+3], end + 3
}

// fold is one character in all its cases: "k" is also the sign for Kelvin.
func fold(r rune) string {
	var all []rune
	for o := r; ; {
		all = append(all, o)
		if o = unicode.SimpleFold(o); o == r {
			break
		}
	}
	slices.Sort(all)
	var plain, long []string
	for _, o := range all {
		if o < utf8.RuneSelf {
			plain = append(plain, string(o))
		} else {
			long = append(long, string(o))
		}
	}
	switch {
	case len(all) == 1:
		return escape(string(r))
	case len(long) == 0:
		return "[" + strings.Join(plain, "") + "]"
	case len(plain) > 0:
		long = append([]string{"[" + strings.Join(plain, "") + "]"}, long...)
	}
	return "(" + strings.Join(long, "|") + ")"
}

// ligature returns how many letters at the front of s fold to the same as one character, and that one.
func ligature(s string) (int, string) {
	if len(s) >= 2 {
		switch strings.ToLower(s[:2]) {
		case "ff":
			return 2, "ﬀ"
		case "fi":
			return 2, "ﬁ"
		case "fl":
			return 2, "ﬂ"
		case "ss":
			return 2, "ß|ẞ"
		case "st":
			return 2, "ﬆ|ﬅ"
		}
	}
	return 0, ""
}

// anyByte stands for a byte that is no text: expressions are text, and macOS's filesystems know no such names.
const anyByte = "[^/]"

// escape takes the meaning from a text's characters.
func escape(s string) string {
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], "\uFFFD"):
			b.WriteString(anyByte)
		case strings.ContainsRune(`\.+*?()|[]{}^$`, r):
			b.WriteByte('\\')
			fallthrough
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
