package refusal

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Bounds of one line's parts, in characters.
const (
	maxShown   = 160 // of a name
	maxProgram = 24
)

// Summary is the text for stderr. It has at most lines lines, each with a line end. It is "" when
// nothing was refused, except Minor attempts. The first line gives the number. Then comes one line
// for each thing, the most useful first:
//
//	carrel: 2 things were refused
//	  read ~/.ssh/id_ed25519 (cat, 3 times): built-in: ssh keys; allow with --read ~/.ssh
//	  connect example.com:443 (curl): no rule allows it; allow with --allow example.com
//
// If they don't fit, things that one rule refused share a line, and the last line counts the rest.
// Control characters in names are escaped, so that no file name can control the terminal.
func Summary(list []Refusal, dropped, lines int) string {
	shown := fold(list, func(r Refusal) key { return key{kind: r.Kind, what: r.What, rule: r.Rule} })
	if len(shown) == 0 && dropped == 0 || lines <= 0 {
		return ""
	}
	total := len(shown)
	if total > lines-1 {
		shown = fold(list, func(r Refusal) key { return key{kind: r.Kind, rule: r.Rule, what: r.Allow} })
	}
	slices.SortStableFunc(shown, func(a, b line) int { return a.weight() - b.weight() })

	var b strings.Builder
	things := " things were refused"
	if total == 1 {
		things = " thing was refused"
	}
	b.WriteString("carrel: " + strconv.Itoa(total) + things)
	if dropped > 0 {
		b.WriteString(", and " + strconv.Itoa(dropped) + " attempts that were not kept")
	}
	b.WriteByte('\n')
	room := lines - 1
	if len(shown) > room {
		room-- // for the count
	}
	rest := total
	for _, l := range shown[:max(0, min(room, len(shown)))] {
		b.WriteString("  " + l.text() + "\n")
		rest -= l.names
	}
	if rest > 0 && lines > 1 {
		b.WriteString("  and " + strconv.Itoa(rest) + " more\n")
	}
	return b.String()
}

// Abbreviate returns list with names below home written as "~/…", for Summary.
func Abbreviate(list []Refusal, home string) []Refusal {
	home = strings.TrimRight(home, "/")
	out := slices.Clone(list)
	for i := range out {
		if rest, ok := strings.CutPrefix(out[i].What, home); ok && home != "" && (rest == "" || rest[0] == '/') {
			out[i].What = "~" + rest
		}
	}
	return out
}

// line is one line of a summary: one thing, or several that one rule refused.
type line struct {
	Refusal
	names    int // different things
	programs []string
}

// fold makes one line of all records with the same key, in order, without the minor ones.
func fold(list []Refusal, by func(Refusal) key) []line {
	var out []line
	at := map[key]int{}
	seen := map[key]bool{}
	for _, r := range list {
		if r.Minor {
			continue
		}
		k := by(r)
		i, ok := at[k]
		if !ok {
			i = len(out)
			at[k] = i
			out = append(out, line{Refusal: r})
		} else {
			out[i].Count += r.Count
			out[i].Certain = out[i].Certain || r.Certain
		}
		thing := key{kind: r.Kind, what: r.What, rule: r.Rule}
		if !seen[thing] {
			seen[thing] = true
			out[i].names++
		}
		if r.Program != "" && !slices.Contains(out[i].programs, r.Program) {
			out[i].programs = append(out[i].programs, r.Program)
		}
	}
	return out
}

// weight orders lines. Limits come first, because they explain an end. Then come things that a
// person can allow, and last those that are not certain.
func (l line) weight() int {
	w := 2
	switch l.Kind {
	case Limit:
		return 0
	case Signal:
		w = 3
	case Syscall:
		w = 4
	}
	if l.Allow == "" {
		w += 2
	}
	if !l.Certain {
		w++
	}
	return w
}

// text is the line.
func (l line) text() string {
	var b strings.Builder
	b.WriteString(string(l.Kind) + " " + name(l.What))
	if l.names > 1 {
		b.WriteString(" and " + strconv.Itoa(l.names-1) + " more")
	}
	var about []string
	for i, p := range l.programs {
		if i == 2 {
			about = append(about, "…")
			break
		}
		about = append(about, name(shorten(p, maxProgram)))
	}
	if l.Count > 1 {
		about = append(about, strconv.Itoa(l.Count)+" times")
	}
	if len(about) > 0 {
		b.WriteString(" (" + strings.Join(about, ", ") + ")")
	}
	why := l.Rule
	if why == "" {
		why = l.Reason
	}
	if why != "" {
		b.WriteString(": " + escape(shorten(why, maxShown)))
	}
	if l.Allow != "" {
		b.WriteString("; allow with " + escape(shorten(l.Allow, 2*maxShown)))
	}
	return b.String()
}

// name formats a name for a terminal. It quotes the name as Go does if a person could mistake it
// for something else.
func name(s string) string {
	s = shorten(s, maxShown)
	if s == "" || strings.ContainsAny(s, " \"'`\\();:,") && !isAddress(s) || escape(s) != s {
		return strconv.Quote(s)
	}
	return s
}

// isAddress reports whether a text can stand without quotes, like host:port.
func isAddress(s string) bool { return !strings.ContainsAny(s, " \"'`\\();,") }

// escape writes unprintable characters as Go does: control characters, marks that change the
// direction of text, and broken UTF-8.
func escape(s string) string {
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if r == utf8.RuneError && n == 1 || !strconv.IsPrint(r) {
			q := strconv.Quote(s[:n])
			b.WriteString(q[1 : len(q)-1])
		} else {
			b.WriteString(s[:n])
		}
		s = s[n:]
	}
	return b.String()
}

// shorten removes the middle, because the ends of a path say most.
func shorten(s string, most int) string {
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	r := []rune(s)
	return string(r[:most/3]) + "…" + string(r[len(r)-(most-most/3-1):])
}
