package search

import "strings"

// grepColors are the colours of the output, by their names in GREP_COLORS.
type grepColors struct {
	match, file, line, offset, sep string
	selected, context              string // whole lines
	noErase, reverse               bool
}

// readColors reads GREP_COLORS, and the older GREP_COLOR.
func (g *grep) readColors() {
	g.colors = defaultColors
	c := &g.colors
	contextMatch := c.match
	if old := g.Getenv("GREP_COLOR"); old != "" && strings.Trim(old, "0123456789;") == "" {
		g.Errorf(0, "warning: GREP_COLOR='%s' is deprecated; use GREP_COLORS='mt=%s'", old, old)
		c.match, contextMatch = old, old
	}
	for part := range strings.SplitSeq(g.Getenv("GREP_COLORS"), ":") {
		name, value, _ := strings.Cut(part, "=")
		if strings.Trim(value, "0123456789;") != "" {
			break // as GNU's does, without a word
		}
		switch name {
		case "mt":
			c.match, contextMatch = value, value
		case "ms":
			c.match = value
		case "mc":
			contextMatch = value
		case "fn":
			c.file = value
		case "ln":
			c.line = value
		case "bn":
			c.offset = value
		case "se":
			c.sep = value
		case "sl":
			c.selected = value
		case "cx":
			c.context = value
		case "ne":
			c.noErase = true
		case "rv":
			c.reverse = true
		}
	}
	if g.opts.invert {
		c.match = contextMatch // with -v, the context lines contain the matches
		if c.reverse {
			c.selected, c.context = c.context, c.selected
		}
	}
}

var defaultColors = grepColors{match: "01;31", file: "35", line: "32", offset: "32", sep: "36"}

// paint prints text in a colour. "" is no colour.
func (g *grep) paint(color string, text []byte) {
	g.begin(color)
	g.w.Write(text)
	g.finish(color)
}

func (g *grep) begin(color string) {
	if color == "" || !g.opts.color {
		return
	}
	g.w.WriteString("\x1b[" + color + "m")
	g.erase()
}

func (g *grep) finish(color string) {
	if color == "" || !g.opts.color {
		return
	}
	g.w.WriteString("\x1b[m")
	g.erase()
}

func (g *grep) erase() {
	if !g.colors.noErase {
		g.w.WriteString("\x1b[K")
	}
}

// body prints a part of a line that does not match. It is the last part of the line, or it comes
// before a match.
func (s *scan) body(text []byte, sep byte, last bool) {
	color := s.colors.selected
	if sep != ':' {
		color = s.colors.context
	}
	if len(text) == 0 {
		return
	}
	s.begin(color)
	s.w.Write(text)
	if last {
		s.finish(color)
	}
}
