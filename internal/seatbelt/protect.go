package seatbelt

import (
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/carrel-dev/carrel/internal/settings"
)

// place is where a set of protected names holds, and what is excepted from it.
type place struct {
	dir    string // that it is right in; "" for anywhere
	except string // filters
}

// Regular expressions are anchored at both ends, and "[^/]" is used in place of ".", which may not match a line end.
const (
	anyDirs = "(/[^/]*)*"
	rest    = "(/[^/]*)*$"
)

// protected writes the names that are never written, whether they exist or not: for each the name with all that is in it,
// and for a name of several elements (".git/hooks") the directories in front (".git"). Those are neither moved nor made: a
// directory that was filled under another name would else become one. Making and moving to a name are one operation to Seatbelt.
func (w *writer) protected() {
	names, fronts := map[place][]string{}, map[place][]string{}
	var order []place
	for _, g := range w.box.Protected {
		at := place{}
		pattern := g.Pattern
		switch {
		case strings.HasPrefix(pattern, "/"):
			at.dir, pattern = w.split(pattern)
			if !strings.Contains(g.Pattern, "*") {
				pattern = literally(pattern)
			}
		case g.Dir != "" && !g.Deep: // a deep one holds anywhere: else what holds the name is moved out, changed and moved back
			at.dir = w.real(g.Dir)
		}
		at.except = w.exceptions(g)
		if _, known := names[at]; !known {
			order = append(order, at)
		}
		names[at] = append(names[at], expression(pattern))
		for front := path.Dir(pattern); front != "."; front = path.Dir(front) {
			fronts[at] = append(fronts[at], expression(front))
		}
	}
	if len(order) == 0 {
		return
	}
	w.comment("never written")
	for _, at := range order {
		for _, f := range w.filters(at, names[at], rest) {
			w.rule("deny", "file-write*", f)
		}
	}
	for _, at := range order {
		for _, f := range w.filters(at, unique(fronts[at]), "$") {
			w.rule("deny", "file-write-unlink file-write-create", f)
		}
	}
	w.pinPlaces(order)
}

// split divides an absolute pattern: what is surely there, as it is written, and what may be spelled otherwise.
func (w *writer) split(pattern string) (dir, name string) {
	whole := pattern
	if star := strings.IndexByte(pattern, '*'); star >= 0 {
		whole = pattern[:star] + "x"
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

// literally takes the meaning from a pattern's characters: an absolute one has none but stars.
func literally(pattern string) string {
	var b strings.Builder
	for i := range len(pattern) {
		if strings.IndexByte(`*?[\`, pattern[i]) >= 0 {
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

// pinPlaces keeps the directories in place that bound a pattern.
func (w *writer) pinPlaces(order []place) {
	var pinned []string
	for _, at := range order {
		if at.dir == "" {
			continue
		}
		if w.writable(at.dir) {
			pinned = append(pinned, w.literal(at.dir))
		}
		pinned = append(pinned, w.above(at.dir)...)
	}
	w.rules("deny", "file-write-unlink", unique(pinned))
}

// exceptions are filters of what a pattern matches and somebody opened by naming it.
func (w *writer) exceptions(g settings.Protected) string {
	var out []string
	for _, p := range g.Except {
		out = append(out, "(require-not "+w.subpath(w.real(p))+")")
	}
	slices.Sort(out)
	return strings.Join(unique(out), " ")
}

// filters joins expressions to as few filters as the length of a string allows.
func (w *writer) filters(at place, list []string, end string) []string {
	head := "^" + anyDirs + "/("
	if at.dir != "" {
		head = "^" + escape(strings.TrimSuffix(at.dir, "/")) + "/("
	}
	also := at.except
	if len(head) > maxString/2 { // too long beside a name: the directory is a filter of its own
		head, also = "^"+anyDirs+"/(", strings.TrimSpace(w.subpath(at.dir)+" "+also)
	}
	var out []string
	add := func(group []string) {
		f := "(regex " + w.quoted(head+strings.Join(group, "|")+")"+end) + ")"
		if also != "" {
			f = "(require-all " + f + " " + also + ")"
		}
		out = append(out, f)
	}
	var group []string
	size := 0
	for _, e := range list {
		if n := len(e) + 1; len(head)+size+n+len(end) >= maxString-10 && len(group) > 0 {
			add(group)
			group, size = nil, n
		} else {
			size += n
		}
		group = append(group, e)
	}
	if len(group) > 0 {
		add(group)
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
			b.WriteByte(pattern[i])
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

// escape takes the meaning from a text's characters.
func escape(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if strings.IndexByte(`\.+*?()|[]{}^$`, s[i]) >= 0 {
			b.WriteByte('\\')
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
