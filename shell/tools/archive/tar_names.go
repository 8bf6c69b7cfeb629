package archive

import (
	"archive/tar"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/carrel-dev/carrel/shell/regex"
)

// transform is one s/// of --transform.
type transform struct {
	re       *regex.Regexp
	with     []piece
	global   bool
	nth      int
	notLinks bool
	notNames bool
	notHard  bool
}

// piece is a part of a replacement: text or a group (0 is the whole match), with a change of case.
type piece struct {
	text  string
	group int
	fold  byte
}

var vcs = []string{"CVS", ".cvsignore", "RCS", "SCCS", ".svn", ".git", ".gitignore", ".gitattributes", ".gitmodules", ".arch-ids", "{arch}",
	"=RELEASE-ID", "=meta-update", "=update", ".bzr", ".bzrignore", ".bzrtags", ".hg", ".hgignore", ".hgtags", "_darcs"}

// parseTransform reads s/a/b/flags. Semicolons separate several.
func parseTransform(s string) (out []transform, err error) {
	for s != "" {
		if len(s) < 2 || s[0] != 's' {
			return nil, fmt.Errorf("Invalid transform expression")
		}
		delim := s[1]
		var parts [2]string
		rest := s[2:]
		for i := range parts {
			at := 0
			for at < len(rest) && rest[at] != delim {
				if rest[at] == '\\' {
					at++
				}
				at++
			}
			if at >= len(rest) {
				return nil, fmt.Errorf("Invalid transform expression")
			}
			parts[i], rest = rest[:at], rest[at+1:]
		}
		t := transform{nth: 1}
		flags := regex.Flags(0)
		i := 0
	flags:
		for ; i < len(rest); i++ {
			switch f := rest[i]; {
			case f == 'g':
				t.global = true
			case f == 'i':
				flags |= regex.IgnoreCase
			case f == 'x':
				flags |= regex.Extended
			case f == 'S':
				t.notLinks = true
			case f == 'R':
				t.notNames = true
			case f == 'H':
				t.notHard = true
			case f == 's', f == 'r', f == 'h':
			case f >= '1' && f <= '9':
				t.nth = int(f - '0')
			default:
				break flags
			}
		}
		rest = rest[i:]
		if rest != "" {
			if rest[0] != ';' {
				return nil, fmt.Errorf("Unknown flag in transform expression: %c", rest[0])
			}
			rest = rest[1:]
		}
		s = rest
		pattern := strings.ReplaceAll(parts[0], `\`+string(delim), string(delim))
		if t.re, err = regex.Compile(pattern, flags); err != nil {
			return nil, fmt.Errorf("Invalid transform expression: %v", err)
		}
		t.with = parseReplacement(strings.ReplaceAll(parts[1], `\`+string(delim), string(delim)))
		out = append(out, t)
		if len(out) > 100 {
			return nil, fmt.Errorf("Too many transform expressions")
		}
	}
	return out, nil
}

func parseReplacement(s string) (out []piece) {
	text := ""
	add := func() {
		if text != "" {
			out = append(out, piece{text: text, group: -1})
			text = ""
		}
	}
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '&':
			add()
			out = append(out, piece{})
		case s[i] == '\\' && i+1 < len(s):
			i++
			switch {
			case s[i] >= '0' && s[i] <= '9':
				add()
				out = append(out, piece{group: int(s[i] - '0')})
			case strings.IndexByte("ULulE", s[i]) >= 0:
				add()
				out = append(out, piece{group: -1, fold: s[i]})
			case s[i] == 'n':
				text += "\n"
			case s[i] == 't':
				text += "\t"
			default:
				text += s[i : i+1]
			}
		default:
			text += s[i : i+1]
		}
	}
	add()
	return out
}

// apply changes a name.
func (t transform) apply(name string) string {
	var b strings.Builder
	b2 := []byte(name)
	at, count := 0, 0
	for at <= len(b2) {
		loc := t.re.FindSubmatchIndex(b2, at)
		if loc == nil {
			break
		}
		count++
		if count < t.nth {
			end := max(loc[1], loc[0]+1)
			b.Write(b2[at:min(end, len(b2))])
			at = end
			continue
		}
		b.Write(b2[at:loc[0]])
		fold, once := byte(0), byte(0)
		for _, p := range t.with {
			text := p.text
			switch {
			case p.fold == 'u' || p.fold == 'l':
				once = p.fold
				continue
			case p.fold == 'E':
				fold = 0
				continue
			case p.fold != 0:
				fold = p.fold
				continue
			case p.group >= 0:
				text = ""
				if 2*p.group+1 < len(loc) && loc[2*p.group] >= 0 {
					text = string(b2[loc[2*p.group]:loc[2*p.group+1]])
				}
			}
			switch fold {
			case 'U':
				text = strings.ToUpper(text)
			case 'L':
				text = strings.ToLower(text)
			}
			if once != 0 && text != "" {
				if once == 'u' {
					text = strings.ToUpper(text[:1]) + text[1:]
				} else {
					text = strings.ToLower(text[:1]) + text[1:]
				}
				once = 0
			}
			b.WriteString(text)
		}
		if loc[1] == loc[0] {
			if loc[0] < len(b2) {
				b.WriteByte(b2[loc[0]])
			}
			at = loc[0] + 1
		} else {
			at = loc[1]
		}
		if !t.global || b.Len() > 1<<16 {
			break
		}
	}
	if at <= len(b2) {
		b.Write(b2[at:])
	}
	return b.String()
}

// renamed applies all transforms and --strip-components; ok is false when nothing is left.
func (t *tarRun) renamed(name string, kind byte) (string, bool) {
	for _, tr := range t.transforms {
		if tr.notNames && kind == 0 || tr.notLinks && kind == tar.TypeSymlink || tr.notHard && kind == tar.TypeLink {
			continue
		}
		name = tr.apply(name)
	}
	if t.strip > 0 && kind != tar.TypeSymlink {
		rest := name
		for range t.strip {
			at := strings.IndexByte(rest, '/')
			if at < 0 {
				return "", false
			}
			rest = strings.TrimLeft(rest[at:], "/")
		}
		if rest == "" {
			return "", false
		}
		name = rest
	}
	return name, name != ""
}

// stripped removes dangerous parts from the start of a name: slashes, and everything up to the last
// "..".
func (t *tarRun) stripped(name string, what string) string {
	if t.absolute {
		return name
	}
	cut := 0
	for i := 0; i+2 <= len(name); i++ {
		if name[i] == '.' && name[i+1] == '.' && (i == 0 || name[i-1] == '/') && (i+2 == len(name) || name[i+2] == '/') {
			cut = i + 2
		}
	}
	for cut < len(name) && name[cut] == '/' {
		cut++
	}
	if cut > 0 {
		prefix := name[:cut]
		if !t.said[what+prefix] {
			t.said[what+prefix] = true
			_ = t.out.Flush()
			t.Errorf(0, "Removing leading `%s' from %s", prefix, what)
		}
		if name = name[cut:]; name == "" {
			name = "./"
			if what != "member names" {
				name = "."
			}
		}
	}
	return name
}

// excluded reports whether --exclude matches a name or one of its directories.
func (t *tarRun) excluded(name string) bool {
	name = strings.TrimRight(name, "/")
	if t.excludeVCS {
		last := name[strings.LastIndexByte(name, '/')+1:]
		for _, v := range vcs {
			if last == v {
				return true
			}
		}
	}
	for _, p := range t.exclude {
		p = strings.TrimRight(p, "/")
		if wildMatch(p, name) {
			return true
		}
		for i := range len(name) {
			if name[i] == '/' && (!t.anchored && i+1 < len(name) && name[i+1] != '/' && wildMatch(p, name[i+1:]) || wildMatch(p, name[:i])) {
				return true
			}
		}
	}
	return false
}

// wildMatch matches a pattern in which * and ? match slashes too.
func wildMatch(p, s string) bool {
	star, at := -1, 0
	i, j := 0, 0
	for j < len(s) || i < len(p) {
		if i < len(p) && p[i] == '*' {
			star, at = i, j
			i++
			continue
		}
		if i < len(p) && j < len(s) {
			if n, ok := oneMatch(p[i:], s[j]); ok {
				i, j = i+n, j+1
				continue
			}
		}
		if star < 0 || at >= len(s) {
			return false
		}
		at++
		i, j = star+1, at
	}
	return true
}

// oneMatch matches one byte and returns the length of its pattern.
func oneMatch(p string, b byte) (int, bool) {
	switch p[0] {
	case '?':
		return 1, true
	case '[':
		i := 1
		not := i < len(p) && (p[i] == '!' || p[i] == '^')
		if not {
			i++
		}
		match, first := false, true
		for i < len(p) && (p[i] != ']' || first) {
			first = false
			lo := p[i]
			hi := lo
			if i+2 < len(p) && p[i+1] == '-' && p[i+2] != ']' {
				hi = p[i+2]
				i += 2
			}
			match = match || b >= lo && b <= hi
			i++
		}
		if i < len(p) {
			return i + 1, match != not
		}
	case '\\':
		if len(p) > 1 {
			return 2, p[1] == b
		}
	}
	return 1, p[0] == b
}

// modeText returns a member's mode in the format of ls -l.
func modeText(h *tar.Header) string {
	kinds := map[byte]byte{tar.TypeDir: 'd', tar.TypeSymlink: 'l', tar.TypeLink: 'h', tar.TypeFifo: 'p', tar.TypeChar: 'c', tar.TypeBlock: 'b'}
	first := byte('-')
	if k, ok := kinds[h.Typeflag]; ok {
		first = k
	} else if strings.HasSuffix(h.Name, "/") {
		first = 'd'
	}
	b := []byte{first}
	m := h.FileInfo().Mode()
	for i, l := range []byte("rwxrwxrwx") {
		if m&(0o400>>i) == 0 {
			l = '-'
		}
		b = append(b, l)
	}
	set := func(bit fs.FileMode, at int, with, without byte) {
		if m&bit != 0 {
			if b[at] = without; m&(0o100>>(at-3)) != 0 {
				b[at] = with
			}
		}
	}
	set(fs.ModeSetuid, 3, 's', 'S')
	set(fs.ModeSetgid, 6, 's', 'S')
	set(fs.ModeSticky, 9, 't', 'T')
	return string(b)
}

// say lists one member. With long it writes the long format, as for -vv and -tv.
func (t *tarRun) say(h *tar.Header, name string, long bool) {
	w := t.list()
	if !long {
		fmt.Fprintln(w, quoteName(name))
		return
	}
	user, group := h.Uname, h.Gname
	if user == "" || t.numeric {
		user = strconv.Itoa(h.Uid)
	}
	if group == "" || t.numeric {
		group = strconv.Itoa(h.Gid)
	}
	size := strconv.FormatInt(h.Size, 10)
	if h.Typeflag == tar.TypeChar || h.Typeflag == tar.TypeBlock {
		size = fmt.Sprintf("%d,%d", h.Devmajor, h.Devminor)
	}
	ug := user + "/" + group
	pad := len(ug) + len(size) + 1
	t.width = max(t.width, pad)
	layout := "2006-01-02 15:04"
	if t.fullTime {
		layout = "2006-01-02 15:04:05"
	}
	link := ""
	switch h.Typeflag {
	case tar.TypeSymlink:
		link = " -> " + quoteName(h.Linkname)
	case tar.TypeLink:
		link = " link to " + quoteName(h.Linkname)
	}
	fmt.Fprintf(w, "%s %s %*s %s %s%s\n", modeText(h), ug, t.width-pad+len(size), size, h.ModTime.In(t.Now().Location()).Format(layout), quoteName(name), link)
}

// quoteName escapes characters that would break a list of names.
func quoteName(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return r < 0x20 || r == '\\' || r == 0x7f || r == 0xfffd }) {
		return s
	}
	var b strings.Builder
	for i := range len(s) {
		switch at := strings.IndexByte("\a\b\t\n\v\f\r", s[i]); {
		case at >= 0:
			b.WriteString(`\` + "abtnvfr"[at:at+1])
		case s[i] == '\\':
			b.WriteString(`\\`)
		case s[i] < 0x20 || s[i] == 0x7f:
			fmt.Fprintf(&b, `\%03o`, s[i])
		default:
			b.WriteByte(s[i])
		}
	}
	return b.String()
}
