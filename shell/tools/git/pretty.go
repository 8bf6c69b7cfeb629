package git

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/carrel-dev/carrel/shell/tool"
)

// dateText returns a time in the style of --date.
func (r *repo) dateText(t time.Time, style string) string {
	style = strings.TrimSuffix(style, "-local")
	switch {
	case style == "iso" || style == "iso8601":
		return t.Format("2006-01-02 15:04:05 -0700")
	case style == "iso-strict" || style == "iso8601-strict":
		return t.Format("2006-01-02T15:04:05-07:00")
	case style == "short":
		return t.Format("2006-01-02")
	case style == "rfc" || style == "rfc2822":
		return t.Format("Mon, 2 Jan 2006 15:04:05 -0700")
	case style == "unix":
		return fmt.Sprint(t.Unix())
	case style == "raw":
		return fmt.Sprintf("%d %s", t.Unix(), t.Format("-0700"))
	case style == "relative":
		return ago(r.Now().Sub(t))
	case strings.HasPrefix(style, "format:"):
		return strftime(t, style[len("format:"):])
	}
	return gitDate(t)
}

func strftime(t time.Time, f string) string {
	return strings.NewReplacer("%Y", t.Format("2006"), "%m", t.Format("01"), "%d", t.Format("02"), "%H", t.Format("15"), "%M", t.Format("04"), "%S", t.Format("05"),
		"%y", t.Format("06"), "%b", t.Format("Jan"), "%B", t.Format("January"), "%a", t.Format("Mon"), "%A", t.Format("Monday"), "%z", t.Format("-0700"),
		"%F", t.Format("2006-01-02"), "%T", t.Format("15:04:05"), "%s", fmt.Sprint(t.Unix()), "%%", "%", "%e", t.Format("_2"), "%j", fmt.Sprintf("%03d", t.YearDay())).Replace(f)
}

// ago returns a duration in git's words.
func ago(d time.Duration) string {
	s := int64(d.Seconds())
	one := func(n int64, unit string) string {
		if n == 1 {
			return "1 " + unit + " ago"
		}
		return fmt.Sprintf("%d %ss ago", n, unit)
	}
	switch {
	case s < 0:
		return "in the future"
	case s < 90:
		return one(s, "second")
	case (s+30)/60 < 90:
		return one((s+30)/60, "minute")
	case (s+1800)/3600 < 36:
		return one((s+1800)/3600, "hour")
	}
	days := (s + 43200) / 86400
	switch {
	case days < 14:
		return one(days, "day")
	case days < 70:
		return one((days+3)/7, "week")
	case days < 365:
		return one((days+15)/30, "month")
	case days < 1825:
		months := (days*12*2 + 365) / (365 * 2)
		if months%12 != 0 {
			return fmt.Sprintf("%d year%s, %s", months/12, map[bool]string{true: "s"}[months/12 > 1], one(months%12, "month"))
		}
		return one(months/12, "year")
	}
	return one((days+183)/365, "year")
}

// body returns a message without its subject.
func body(message string) string {
	_, rest, _ := strings.Cut(strings.TrimLeft(message, "\n"), "\n\n")
	return strings.TrimLeft(rest, "\n")
}

// expand replaces the placeholders of a format.
func (r *repo) expand(format string, c *object.Commit, names []string, dates string) string {
	var b strings.Builder
	abbrev := func(hs []plumbing.Hash, short bool) string {
		var out []string
		for _, h := range hs {
			if short {
				out = append(out, r.short(h))
			} else {
				out = append(out, h.String())
			}
		}
		return strings.Join(out, " ")
	}
	person := func(s object.Signature, x byte) string {
		switch x {
		case 'n', 'N':
			return s.Name
		case 'e', 'E':
			return s.Email
		case 'l', 'L':
			name, _, _ := strings.Cut(s.Email, "@")
			return name
		case 'd':
			return r.dateText(s.When, dates)
		case 'D':
			return r.dateText(s.When, "rfc")
		case 'r':
			return ago(r.Now().Sub(s.When))
		case 't':
			return fmt.Sprint(s.When.Unix())
		case 'i':
			return r.dateText(s.When, "iso")
		case 'I':
			return r.dateText(s.When, "iso-strict")
		case 's':
			return r.dateText(s.When, "short")
		}
		return ""
	}
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 >= len(format) {
			b.WriteByte(format[i])
			continue
		}
		i++
		switch x := format[i]; {
		case x == 'H':
			b.WriteString(c.Hash.String())
		case x == 'h':
			b.WriteString(r.short(c.Hash))
		case x == 'T':
			b.WriteString(c.TreeHash.String())
		case x == 't':
			b.WriteString(r.short(c.TreeHash))
		case x == 'P':
			b.WriteString(abbrev(c.ParentHashes, false))
		case x == 'p':
			b.WriteString(abbrev(c.ParentHashes, true))
		case x == 's':
			b.WriteString(subject(c.Message))
		case x == 'f':
			b.WriteString(strings.Trim(strings.Map(func(q rune) rune {
				if q == '.' || q == '_' || q >= '0' && q <= '9' || q|0x20 >= 'a' && q|0x20 <= 'z' {
					return q
				}
				return '-'
			}, subject(c.Message)), "-"))
		case x == 'b':
			b.WriteString(body(c.Message))
		case x == 'B':
			b.WriteString(c.Message)
		case x == 'n':
			b.WriteByte('\n')
		case x == '%':
			b.WriteByte('%')
		case x == 'd':
			if len(names) > 0 {
				b.WriteString(" (" + strings.Join(names, ", ") + ")")
			}
		case x == 'D':
			b.WriteString(strings.Join(names, ", "))
		case (x == 'a' || x == 'c') && i+1 < len(format):
			i++
			who := c.Author
			if x == 'c' {
				who = c.Committer
			}
			b.WriteString(person(who, format[i]))
		case x == 'C':
			rest := format[i+1:]
			switch {
			case strings.HasPrefix(rest, "("):
				if end := strings.IndexByte(rest, ')'); end >= 0 {
					i += end + 1
				}
			default:
				for _, color := range []string{"reset", "red", "green", "blue", "yellow", "cyan", "magenta", "bold"} {
					if strings.HasPrefix(rest, color) {
						i += len(color)
						break
					}
				}
			}
		case x == 'x' && i+2 < len(format):
			var n byte
			if _, err := fmt.Sscanf(format[i+1:i+3], "%02x", &n); err == nil {
				b.WriteByte(n)
				i += 2
			}
		case x == 'G' || x == 'g':
			i++
		case x == 'N':
		default:
			b.WriteByte('%')
			b.WriteByte(x)
		}
	}
	return b.String()
}

// commitText returns a commit's text without its changes.
func (r *repo) commitText(c *object.Commit, o *logOptions, names []string) string {
	var b strings.Builder
	h := c.Hash.String()
	if o.abbrev {
		h = r.short(c.Hash)
	}
	deco := ""
	if len(names) > 0 {
		deco = " (" + strings.Join(names, ", ") + ")"
	}
	switch {
	case strings.HasPrefix(o.format, "format:"):
		return r.expand(o.format[len("format:"):], c, names, o.dates)
	case o.format == "oneline":
		return h + deco + " " + subject(c.Message)
	case o.format == "reference":
		return fmt.Sprintf("%s (%s, %s)", r.short(c.Hash), subject(c.Message), c.Author.When.Format("2006-01-02"))
	}
	fmt.Fprintf(&b, "commit %s%s\n", h, deco)
	if o.format == "raw" {
		fmt.Fprintf(&b, "tree %s\n", c.TreeHash)
		for _, p := range c.ParentHashes {
			fmt.Fprintf(&b, "parent %s\n", p)
		}
		fmt.Fprintf(&b, "author %s\ncommitter %s\n\n%s", stamp(c.Author), stamp(c.Committer), indent(c.Message))
		return b.String()
	}
	if len(c.ParentHashes) > 1 {
		b.WriteString("Merge:")
		for _, p := range c.ParentHashes {
			b.WriteString(" " + r.short(p))
		}
		b.WriteByte('\n')
	}
	author := fmt.Sprintf("%s <%s>", c.Author.Name, c.Author.Email)
	committer := fmt.Sprintf("%s <%s>", c.Committer.Name, c.Committer.Email)
	switch o.format {
	case "short":
		fmt.Fprintf(&b, "Author: %s\n\n    %s\n", author, subject(c.Message))
		return strings.TrimSuffix(b.String(), "\n")
	case "full":
		fmt.Fprintf(&b, "Author: %s\nCommit: %s\n", author, committer)
	case "fuller":
		fmt.Fprintf(&b, "Author:     %s\nAuthorDate: %s\nCommit:     %s\nCommitDate: %s\n", author, r.dateText(c.Author.When, o.dates), committer, r.dateText(c.Committer.When, o.dates))
	default:
		fmt.Fprintf(&b, "Author: %s\nDate:   %s\n", author, r.dateText(c.Author.When, o.dates))
	}
	if strings.TrimSpace(c.Message) != "" {
		b.WriteString("\n" + indent(c.Message))
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// oneCommit writes a commit as log and show do.
func (r *repo) oneCommit(c *object.Commit, o *logOptions, names map[plumbing.Hash][]string, first, last bool, l *lanes) error {
	text := r.commitText(c, o, names[c.Hash])
	oneline := o.format == "oneline" || o.format == "reference"
	custom := strings.HasPrefix(o.format, "format:")
	if l != nil {
		return r.graphed(c, text, l, last, oneline || custom)
	}
	diff := (o.patch || o.other()) && (len(c.ParentHashes) < 2 || o.firstParent)
	switch {
	case first:
	case custom && o.separator, !custom && !oneline:
		r.printf("\n")
	}
	r.printf("%s", text)
	switch {
	case custom && text == "" && o.format == "format:" && !o.separator: // nothing at all
	case !(custom && o.separator), diff:
		r.printf("\n")
	}
	if !diff {
		if !r.Step(20) {
			return tool.ErrStop
		}
		return nil
	}
	cs, err := r.commitChanges(c)
	if err != nil {
		return err
	}
	if len(o.paths) > 0 {
		spec, err := r.pathspec(o.paths)
		if err != nil {
			return err
		}
		kept := cs[:0]
		for _, x := range cs {
			if spec.match(x.new) {
				kept = append(kept, x)
			}
		}
		cs = kept
	}
	if len(cs) == 0 {
		return nil
	}
	if !oneline && !(custom && text == "") {
		if o.patch && o.stat {
			r.printf("---\n")
		} else {
			r.printf("\n")
		}
	}
	return r.show(cs, r.stored, r.stored, &o.diffOptions)
}

// lanes are the open lines of a history graph.
type lanes struct {
	open []plumbing.Hash // what each column waits for
	in   map[plumbing.Hash]bool
}

func newLanes(all []*object.Commit) *lanes {
	l := &lanes{in: map[plumbing.Hash]bool{}}
	for _, c := range all {
		l.in[c.Hash] = true
	}
	return l
}

// graphed draws one commit, with its text beside the lines of the graph. For simple histories the
// lines are the same as git's.
func (r *repo) graphed(c *object.Commit, text string, l *lanes, last, compact bool) error {
	col := -1
	for i, h := range l.open {
		if h == c.Hash {
			col = i
			break
		}
	}
	if col < 0 {
		l.open = append(l.open, c.Hash)
		col = len(l.open) - 1
	}
	// Other columns that wait for this commit join from the right.
	for i := len(l.open) - 1; i > col; i-- {
		if l.open[i] != c.Hash {
			continue
		}
		var b strings.Builder
		for k := range l.open {
			switch {
			case k < i:
				b.WriteByte('|')
			case k == i:
			}
			if k == i-1 {
				b.WriteByte('/')
			} else if k < i-1 {
				b.WriteByte(' ')
			}
		}
		io.WriteString(r.w, strings.TrimRight(b.String(), " ")+"  \n")
		l.open = append(l.open[:i], l.open[i+1:]...)
	}
	line := func(mark byte) string {
		var b strings.Builder
		for k := range l.open {
			if k == col {
				b.WriteByte(mark)
			} else {
				b.WriteByte('|')
			}
			b.WriteByte(' ')
		}
		return b.String()
	}
	lines := strings.Split(text, "\n")
	wide := ""
	if len(c.ParentHashes) > 1 {
		wide = "  "
	}
	fmt.Fprintf(r.w, "%s%s%s\n", line('*'), wide, lines[0])
	var parents []plumbing.Hash
	for _, p := range c.ParentHashes {
		if l.in[p] {
			parents = append(parents, p)
		}
	}
	under := byte('|')
	if len(parents) == 0 {
		under = ' '
	}
	if len(parents) > 1 {
		var b strings.Builder
		for k := range l.open {
			b.WriteByte('|')
			if k == col {
				b.WriteByte('\\')
			} else {
				b.WriteByte(' ')
			}
		}
		rest := lines[1:]
		if len(rest) > 0 {
			fmt.Fprintf(r.w, "%s  %s\n", b.String(), rest[0])
			lines = append(lines[:1], rest[1:]...)
		} else {
			fmt.Fprintf(r.w, "%s  \n", b.String())
		}
	}
	switch len(parents) {
	case 0:
		if len(lines) > 1 {
			for _, t := range lines[1:] {
				fmt.Fprintf(r.w, "%s%s\n", line(under), t)
			}
		}
		l.open = append(l.open[:col], l.open[col+1:]...)
		return nil
	default:
		l.open[col] = parents[0]
		tail := append([]plumbing.Hash{}, l.open[col+1:]...)
		l.open = append(append(l.open[:col+1], parents[1:]...), tail...)
	}
	for _, t := range lines[1:] {
		fmt.Fprintf(r.w, "%s%s\n", line('|'), t)
	}
	if !compact && !last {
		fmt.Fprintf(r.w, "%s\n", line('|'))
	}
	return nil
}
