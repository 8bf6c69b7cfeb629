package cli

import (
	"sort"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// printable replaces characters that are not visible. Names, labels and commands come from outside,
// and a terminal obeys escape sequences. It also replaces marks that reverse the direction of
// writing, because one text could look like another. It limits combining characters, because many
// of them would cover the lines above.
func printable(s string) string {
	const zwj, mostMarks = '\u200d', 4
	marks := 0
	return strings.Map(func(r rune) rune {
		switch {
		case r == zwj || unicode.In(r, unicode.Mn, unicode.Me):
			if marks++; marks > mostMarks {
				return -1
			}
			return r
		case !unicode.IsPrint(r): // of spaces, only U+0020 is
			marks = 0
			return '?'
		}
		marks = 0
		return r
	}, s)
}

// quoted writes a text in quotes. No character of the text can end them.
func quoted(s string, ascii bool) string {
	if ascii {
		return strconv.QuoteToASCII(s)
	}
	s = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\t", `\t`).Replace(s)
	return `"` + printable(s) + `"`
}

// wide are ranges of characters that take two cells of a terminal: the East Asian wide and
// full-width ones and emoji (Unicode's EastAsianWidth, simplified).
var wide = [][2]rune{
	{0x1100, 0x115f}, {0x231a, 0x231b}, {0x23e9, 0x23ec}, {0x26a1, 0x26a1}, {0x2705, 0x2705}, {0x2728, 0x2728}, {0x274c, 0x274c},
	{0x2753, 0x2755}, {0x2757, 0x2757}, {0x2795, 0x2797}, {0x2b1b, 0x2b1c}, {0x2b50, 0x2b50}, {0x2e80, 0x303e}, {0x3041, 0x33ff},
	{0x3400, 0x4dbf}, {0x4e00, 0xa4cf}, {0xa960, 0xa97c}, {0xac00, 0xd7a3}, {0xf900, 0xfaff}, {0xfe10, 0xfe19}, {0xfe30, 0xfe6f},
	{0xff00, 0xff60}, {0xffe0, 0xffe6}, {0x17000, 0x18cff}, {0x1b000, 0x1b2ff}, {0x1f004, 0x1f004}, {0x1f0cf, 0x1f0cf}, {0x1f18e, 0x1f18e},
	{0x1f191, 0x1f19a}, {0x1f200, 0x1f320}, {0x1f32d, 0x1f64f}, {0x1f680, 0x1f6ff}, {0x1f7e0, 0x1f7eb}, {0x1f90c, 0x1f9ff},
	{0x1fa70, 0x1faff}, {0x20000, 0x3fffd},
}

// runeCells returns how many cells of a terminal a character takes.
func runeCells(r rune) int {
	if r < 0x300 {
		return 1
	}
	if r == '\u200d' || unicode.In(r, unicode.Mn, unicode.Me) {
		return 0
	}
	i := sort.Search(len(wide), func(i int) bool { return wide[i][1] >= r })
	if i < len(wide) && r >= wide[i][0] {
		return 2
	}
	return 1
}

// cells returns how many cells of a terminal a text takes.
func cells(s string) int {
	n := 0
	for _, r := range s {
		n += runeCells(r)
	}
	return n
}

// cut shortens a text to the given number of cells; more replaces the part that is left out.
func cut(s string, most int, more string) string {
	if cells(s) <= most {
		return s
	}
	room := most - cells(more)
	for i, r := range s {
		if room -= runeCells(r); room < 0 {
			return s[:i] + more
		}
	}
	return s
}

// pad adds blanks to a text up to width cells.
func pad(s string, width int) string {
	return s + strings.Repeat(" ", max(0, width-cells(s)))
}

// ago writes a past time for people.
func ago(now, t time.Time) string {
	d := now.Sub(t)
	unit := func(n time.Duration, name string) string {
		return strconv.FormatInt(int64(n), 10) + " " + name + " ago"
	}
	switch {
	case t.IsZero():
		return "–"
	case d < 2*time.Second: // also when clocks differ
		return "now"
	case d < 2*time.Minute:
		return unit(d/time.Second, "s")
	case d < 2*time.Hour:
		return unit(d/time.Minute, "min")
	case d < 48*time.Hour:
		return unit(d/time.Hour, "h")
	}
	return unit(d/(24*time.Hour), "d")
}

// plainTerminal reports whether to draw only ASCII: the locale's encoding is not UTF-8, or the
// terminal has no abilities.
func plainTerminal(getenv func(string) string) bool {
	if getenv("TERM") == "dumb" {
		return true
	}
	locale := strings.ToLower(first(getenv("LC_ALL"), getenv("LC_CTYPE"), getenv("LANG")))
	return !strings.Contains(locale, "utf-8") && !strings.Contains(locale, "utf8")
}

// pathText writes a file's name on one line. It quotes, as Go and C do, a name with characters that
// can't be shown or could be taken for the end of the name.
func pathText(name string) string {
	if !utf8.ValidString(name) || name != printable(name) || strings.ContainsAny(name, `"\`) || strings.Contains(name, "  ") || name != strings.TrimSpace(name) {
		return strconv.QuoteToGraphic(name)
	}
	return name
}
