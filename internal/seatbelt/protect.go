package seatbelt

import (
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/carrel-dev/carrel/internal/settings"
)

// Parts of regular expressions. They are anchored at both ends. "[^/]" replaces ".", which may not
// match a line end.
const (
	anyDirs = "(/[^/]*)*"
	rest    = "(/[^/]*)*$"
)

// group is a set of protected names that share the front of their expressions and their filters.
type group struct {
	head, also    string
	names, fronts []string
}

// protected writes the rules for names that are never written, whether they exist or not. Each rule
// covers the name and everything in it. For a name of several elements (".git/hooks") rules also
// cover the directories in front (".git"): these are neither moved nor made. Otherwise a directory
// could be filled under another name and then moved. For Seatbelt, making a name and moving to it
// are one operation.
//
// A name that means a writable directory itself, or one above it, was opened with that directory.
// So the rules for all places leave out such directories, and each of these gets its own rules.
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

// whole returns the absolute form of a pattern that holds in one place. A deep pattern of one
// directory holds anywhere here. Otherwise a directory with the name could be moved out, changed
// and moved back.
func whole(g settings.Protected) (string, bool) {
	switch {
	case strings.HasPrefix(g.Pattern, "/"):
		return g.Pattern, true
	case g.Dir != "" && !g.Deep:
		return strings.TrimSuffix(g.Dir, "/") + "/" + g.Pattern, true
	}
	return "", false
}

// opened returns the writable directories that a pattern names, reaches into or contains, and the
// directories in them; the outermost first.
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

// touches reports whether the first elements of a pattern match the last elements of a directory's
// path, or the whole pattern matches some elements of it.
func touches(g settings.Protected, dir string) bool {
	pattern, absolute := whole(g)
	elems := strings.Split(strings.TrimPrefix(dir, "/"), "/")
	if absolute { // its matches in the directory are below it
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

// matchFront matches elements as far as both lists go, ignoring case.
func matchFront(pattern, elems []string) bool {
	for i := range min(len(pattern), len(elems)) {
		if ok, err := path.Match(strings.ToLower(pattern[i]), strings.ToLower(elems[i])); err != nil || !ok && !strings.EqualFold(pattern[i], elems[i]) {
			return false
		}
	}
	return true
}

// everywhere returns the names outside of the directories that were opened by name.
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

// in returns the names in one directory that was opened by name, without the opened directories in
// it.
func (w *writer) in(root string, opened []string) []*group {
	filters := []string{w.subpath(root)}
	for _, o := range opened {
		if o != root && below(o, root) {
			filters = append(filters, "(require-not "+w.subpath(o)+")")
		}
	}
	also := strings.Join(filters, " ")
	deep := &group{head: w.head(root, anyDirs), also: also}
	first := &group{head: w.head(root, ""), also: also} // the directory's own name is the first element
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

// head returns the front of an expression for names in a directory. If it is too long beside a
// name, a filter checks the directory instead.
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

// add adds a pattern, and the directories in front of its last element. If it has pattern
// characters, it is added as a literal name too.
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

// split divides an absolute pattern into the part that surely exists as written, and the part that
// may be spelled in other ways.
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

// literally escapes the special characters of a pattern.
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

// paths returns the paths of all rules.
func (w *writer) paths() (list []string) {
	for _, r := range w.box.Paths {
		list = append(list, r.Path)
	}
	return list
}

// filters joins expressions to as few filters as the maximum length of a string allows.
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

// expression turns a pattern into a regular expression. It matches every spelling that the
// filesystem may take for the same name.
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

// class copies a set such as [a-z] from a checked pattern. An unclosed bracket stands for itself.
func class(s string) (string, int) {
	end := strings.IndexByte(s[min(2, len(s)):], ']')
	if end < 0 {
		return `\[`, 1
	}
	return s[:end+3], end + 3
}

// fold returns an expression for one character in all its cases: "k" is also the sign for Kelvin.
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

// ligature returns how many letters at the front of s fold to the same text as one character, and
// that character.
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

// anyByte stands for a byte that is not valid text. Expressions are text, and macOS's filesystems
// have no such names.
const anyByte = "[^/]"

// escape escapes the special characters of a text.
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
