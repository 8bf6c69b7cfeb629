package files

import (
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/carrel-dev/carrel/shell/tool"
)

// name returns a name as it is printed, quoted if requested.
func (l *lister) name(s string) string {
	switch l.quote {
	case "shell-escape":
		return shellQuote(s, false)
	case "shell-escape-always":
		return shellQuote(s, true)
	case "shell", "shell-always":
		if l.quote == "shell-always" || shellQuote(s, false) != s {
			return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
		}
		return s
	case "c":
		return quoteC(s, true)
	case "c-maybe":
		if q := quoteC(s, true); q != `"`+s+`"` {
			return q
		}
		return s
	case "escape":
		return quoteC(s, false)
	case "locale":
		return curly(s)
	}
	if l.literal {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 || !unicode.IsPrint(r) {
			b.WriteByte('?')
		} else {
			b.WriteString(s[i : i+n])
		}
		i += n
	}
	return b.String()
}

// quoteC quotes as in C. Without quotes it also escapes spaces.
func quoteC(s string, quotes bool) string {
	var b strings.Builder
	if quotes {
		b.WriteByte('"')
	}
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == '\\', r == '"' && quotes, r == ' ' && !quotes:
			b.WriteByte('\\')
			b.WriteByte(byte(r))
		case r == utf8.RuneError && n == 1 || !unicode.IsPrint(r):
			b.WriteString(escapeC(s[i : i+n]))
		default:
			b.WriteString(s[i : i+n])
		}
		i += n
	}
	if quotes {
		b.WriteByte('"')
	}
	return b.String()
}

// indicator returns the character that -F or -p prints after a name.
func (l *lister) indicator(m fs.FileMode) string {
	switch {
	case l.classes == 0 || l.classes == 'n':
	case m.IsDir():
		return "/"
	case l.classes == 'p':
	case isLink(m):
		return "@"
	case m&fs.ModeNamedPipe != 0:
		return "|"
	case m&fs.ModeSocket != 0:
		return "="
	case l.classes == 'F' && m.IsRegular() && m&0o111 != 0:
		return "*"
	}
	return ""
}

// width returns the width of a name on a terminal. A control character takes a column, because
// another character is printed in its place.
func width(s string) int {
	n := 0
	for _, r := range s {
		if unicode.IsControl(r) {
			n++
		} else {
			n += tool.RuneWidth(r)
		}
	}
	return n
}

// print prints items in the wanted format.
func (l *lister) print(items []item) {
	switch l.format {
	case 'l':
		l.long(items)
	case 'm':
		l.commas(items)
	case 'C', 'x':
		l.columns(items)
	default:
		pre := l.prefixes(items)
		for i, it := range items {
			if i%64 == 0 && !l.Step(64) {
				return
			}
			l.w.WriteString(pre(it))
			l.w.WriteString(l.shown(it))
			l.w.WriteByte(l.end())
		}
	}
}

// prefixes returns a function for the text before each name: inode and blocks, aligned.
func (l *lister) prefixes(items []item) func(item) string {
	if !l.inode && !l.blocks {
		return func(item) string { return "" }
	}
	ino, blk := 0, 0
	if l.format != 'm' {
		for _, it := range items {
			ino = max(ino, len(strconv.FormatUint(it.Ino, 10)))
			blk = max(blk, len(l.blockSize(blocks(it.Info)*512)))
		}
	}
	return func(it item) string {
		s := ""
		if l.inode {
			s = fmt.Sprintf("%*d ", ino, it.Ino)
		}
		if l.blocks {
			s += fmt.Sprintf("%*s ", blk, l.blockSize(blocks(it.Info)*512))
		}
		return s
	}
}

// shown returns a name with its color and indicator.
func (l *lister) shown(it item) string {
	name := l.name(it.said)
	if l.color != nil {
		name = l.colored(name, it.Mode, it)
	}
	return name + l.indicator(it.Mode)
}

func (l *lister) shownWidth(it item) int {
	return width(l.name(it.said)) + len(l.indicator(it.Mode))
}

func (l *lister) commas(items []item) {
	pre := l.prefixes(items)
	at := 0
	for i, it := range items {
		w := len(pre(it)) + l.shownWidth(it)
		if i > 0 {
			if at+w+2 < l.width {
				l.w.WriteString(", ")
				at += 2
			} else {
				l.w.WriteString(",\n")
				at = 0
			}
		}
		l.w.WriteString(pre(it) + l.shown(it))
		at += w
	}
	if len(items) > 0 {
		l.w.WriteByte('\n')
	}
}

// long prints items in the long format.
func (l *lister) long(items []item) {
	type row struct{ links, owner, group, size, minor string }
	rows := make([]row, len(items))
	var wLinks, wOwner, wGroup, wSize, wMajor, wMinor int
	names := map[uint32]string{}
	groups := map[uint32]string{}
	for i, it := range items {
		if i%16 == 0 && !l.Step(48) {
			return
		}
		r := row{links: strconv.Itoa(it.Links)}
		if l.numeric {
			r.owner, r.group = strconv.Itoa(int(it.UID)), strconv.Itoa(int(it.GID))
		} else {
			r.owner, r.group = cached(names, it.UID, l.Machine().UserName), cached(groups, it.GID, l.Machine().GroupName)
		}
		if it.Mode&fs.ModeDevice != 0 {
			major, minor := device(it.Info)
			r.size, r.minor = strconv.Itoa(major), strconv.Itoa(minor)
			wMajor, wMinor = max(wMajor, len(r.size)), max(wMinor, len(r.minor))
		} else {
			switch {
			case l.human > 0:
				r.size = human(it.Size, l.human)
			case l.unit > 0:
				r.size = strconv.FormatInt(inUnits(it.Size, l.unit), 10)
			default:
				r.size = strconv.FormatInt(it.Size, 10)
			}
			wSize = max(wSize, len(r.size))
		}
		wLinks, wOwner, wGroup = max(wLinks, len(r.links)), max(wOwner, len(r.owner)), max(wGroup, len(r.group))
		rows[i] = r
	}
	if wMajor > 0 {
		wSize = max(wSize, wMajor+2+wMinor)
	}
	pre := l.prefixes(items)
	for i, it := range items {
		if i%16 == 0 && !l.Step(48) {
			return
		}
		r := rows[i]
		fmt.Fprintf(l.w, "%s%s %*s ", pre(it), modeString(it.Mode), wLinks, r.links)
		if !l.noOwner {
			fmt.Fprintf(l.w, "%-*s ", wOwner, r.owner)
		}
		if !l.noGroup {
			fmt.Fprintf(l.w, "%-*s ", wGroup, r.group)
		}
		if l.author {
			fmt.Fprintf(l.w, "%-*s ", wOwner, r.owner)
		}
		if r.minor != "" {
			fmt.Fprintf(l.w, "%*s, %*s ", wSize-2-wMinor, r.size, wMinor, r.minor)
		} else {
			fmt.Fprintf(l.w, "%*s ", wSize, r.size)
		}
		l.w.WriteString(l.stamp(l.time(it)) + " ")
		name := l.name(it.said)
		if l.color != nil {
			name = l.colored(name, it.Mode, it)
		}
		l.w.WriteString(name)
		if isLink(it.Mode) {
			l.w.WriteString(" -> ")
			target := l.name(it.Target)
			if it.target != nil {
				if l.color != nil {
					t := it
					t.Info, t.target = *it.target, nil
					target = l.colored(target, t.Mode, t)
				}
				target += l.indicator(it.target.Mode)
			}
			l.w.WriteString(target)
		} else {
			l.w.WriteString(l.indicator(it.Mode))
		}
		l.w.WriteByte(l.end())
	}
}

func cached(names map[uint32]string, id uint32, look func(uint32) string) string {
	s, ok := names[id]
	if !ok {
		s = look(id)
		names[id] = s
	}
	return s
}

// stamp returns a time in the selected style.
func (l *lister) stamp(t time.Time) string {
	t = t.In(l.now.Location())
	age := l.now.Sub(t)
	recent := age >= 0 && age < 31556952*time.Second/2
	switch {
	case l.style == "full-iso":
		return fullTime(t)
	case l.style == "long-iso":
		return t.Format("2006-01-02 15:04")
	case l.style == "iso" && recent:
		return t.Format("01-02 15:04")
	case l.style == "iso":
		return t.Format("2006-01-02 ")
	case strings.HasPrefix(l.style, "+"):
		old, new, two := strings.Cut(l.style[1:], "\n")
		if two && recent {
			return strftime(new, t)
		}
		return strftime(old, t)
	case recent:
		return t.Format("Jan _2 15:04")
	}
	return t.Format("Jan _2  2006")
}

// defaultColors are the colors of ls without LS_COLORS.
const defaultColors = "di=01;34:ln=01;36:pi=33:so=01;35:bd=01;33:cd=01;33:ex=01;32:su=37;41:sg=30;43:tw=30;42:ow=34;42:st=37;44:do=01;35"

// colors returns the colors to use. There are none if LS_COLORS is unset and the terminal is not
// known to have colors.
func (l *lister) colors() map[string]string {
	spec := l.Getenv("LS_COLORS")
	if spec == "" && l.Getenv("COLORTERM") == "" {
		term, known := l.Getenv("TERM"), false
		for _, p := range []string{"*color*", "*direct*", "ansi", "*[ck]on*[0-9]*", "cygwin", "dtterm", "gnome", "hurd", "jfbterm", "linux*", "putty*", "rxvt*", "screen*", "st", "terminator", "tmux*", "vt[12][02]*", "xterm*", "alacritty*", "Eterm"} {
			known = known || globMatch(p, term, 0)
		}
		if !known {
			return nil
		}
	}
	return colors(spec)
}

// colors reads LS_COLORS.
func colors(spec string) map[string]string {
	out := map[string]string{}
	for _, s := range []string{defaultColors, spec} {
		for part := range strings.SplitSeq(s, ":") {
			if key, value, ok := strings.Cut(part, "="); ok {
				out[key] = value
			}
		}
	}
	return out
}

// colorKey returns the entry of LS_COLORS for a file.
func (l *lister) colorKey(m fs.FileMode, it item) string {
	switch {
	case isLink(m) && it.target == nil && l.color["or"] != "":
		return "or"
	case isLink(m):
		return "ln"
	case m.IsDir():
		sticky, ow := m&fs.ModeSticky != 0, m&0o002 != 0
		switch {
		case sticky && ow:
			return "tw"
		case ow:
			return "ow"
		case sticky:
			return "st"
		}
		return "di"
	case m&fs.ModeNamedPipe != 0:
		return "pi"
	case m&fs.ModeSocket != 0:
		return "so"
	case m&fs.ModeCharDevice != 0:
		return "cd"
	case special(m, fs.ModeSetuid):
		return "su"
	case special(m, fs.ModeSetgid):
		return "sg"
	case m&0o111 != 0:
		return "ex"
	}
	name := strings.ToLower(it.Name)
	for at := strings.IndexByte(name, '.'); at >= 0; {
		if _, ok := l.color["*"+name[at:]]; ok {
			return "*" + name[at:]
		}
		more := strings.IndexByte(name[at+1:], '.')
		if more < 0 {
			break
		}
		at += 1 + more
	}
	return "fi"
}

// colored puts the color's codes around a name.
func (l *lister) colored(name string, m fs.FileMode, it item) string {
	code := l.color[l.colorKey(m, it)]
	if code == "target" && it.target != nil {
		code = l.color[l.colorKey(it.target.Mode, item{Info: *it.target})]
	}
	if code == "" {
		return name
	}
	reset := ""
	if !l.blankColor {
		reset, l.blankColor = "\x1b[0m", true
	}
	return reset + "\x1b[" + code + "m" + name + "\x1b[0m"
}
