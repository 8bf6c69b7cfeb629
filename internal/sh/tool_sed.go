package sh

import (
	"bufio"
	"io"
	"regexp"
	"strconv"
	"strings"

	"github.com/carrel-dev/carrel/internal/sh/vfs"
)

// sedCmd is one command of a sed script.
type sedCmd struct {
	from, to *sedAddr
	not      bool
	verb     byte
	re       *regexp.Regexp
	with     string // of s; of y its table; of a, i, c their text
	all      bool
	print    bool
	nth      int
	active   bool // inside from,to
}

// sedAddr is a line number, $ or an expression.
type sedAddr struct {
	line int
	last bool
	re   *regexp.Regexp
}

func toolSed(c *call) int {
	var scripts []string
	args := c.args
	for i := 0; i < len(args); i++ {
		if (args[i] == "-e" || args[i] == "--expression") && i+1 < len(args) {
			scripts = append(scripts, args[i+1])
		}
	}
	f, ok := c.flags("nEris:e:", "quiet=n", "silent=n", "regexp-extended=E", "expression=e", "in-place=i", "separate=s")
	if !ok {
		return 1
	}
	if !f.has('e') {
		if len(f.args) == 0 {
			return c.complain(1, "usage: sed [OPTION]... {script} [input-file]...")
		}
		scripts, f.args = f.args[:1], f.args[1:]
	} else if len(scripts) == 0 {
		scripts = []string{f.val['e']}
	}
	p := &sedParser{src: strings.Join(scripts, "\n"), extended: f.has('E') || f.has('r')}
	cmds, err := p.parse()
	if err != nil {
		return c.complain(1, "-e expression #1: %s", err)
	}
	if f.has('i') {
		return c.sedInPlace(cmds, f)
	}
	w := c.buffered()
	s := &sed{c: c, cmds: cmds, quiet: f.has('n'), w: w}
	status := c.eachInput(f.args, s.file)
	s.finish()
	if err := w.Flush(); err != nil {
		return 1
	}
	if s.quit {
		return s.code
	}
	return status
}

func (c *call) sedInPlace(cmds []*sedCmd, f flags) int {
	status := 0
	for _, name := range f.args {
		var out strings.Builder
		w := bufio.NewWriter(&out)
		s := &sed{c: c, cmds: cmds, quiet: f.has('n'), w: w}
		if st := c.eachInput([]string{name}, s.file); st != 0 {
			status = st
			continue
		}
		s.finish()
		_ = w.Flush() // into memory
		d, err := c.r.openFile(name, vfs.WriteOnly|vfs.Truncate)
		if err == nil {
			_, err = d.Write(c.r.ctx, []byte(out.String()))
			d.drop()
		}
		if err != nil {
			status = c.complain(4, "couldn't edit %s: %s", name, errText(err))
		}
	}
	return status
}

// sed is a run of a script.
type sed struct {
	c     *call
	cmds  []*sedCmd
	quiet bool
	w     *bufio.Writer
	n     int
	quit  bool
	code  int
	held  []byte // a line is held back until it is known whether it is the last
	has   bool
}

func (s *sed) file(_ string, in io.Reader) error {
	return s.c.eachLine(in, func(l []byte) error {
		if s.has && !s.line(string(s.held), false) {
			s.has = false
			return errStop
		}
		s.held, s.has = append(s.held[:0], l...), true
		return nil
	})
}

func (s *sed) finish() {
	if s.has && !s.quit {
		s.line(string(s.held), true)
	}
}

func (a *sedAddr) matches(line string, n int, last bool) bool {
	return a.last && last || a.line > 0 && a.line == n || a.re != nil && a.re.MatchString(line)
}

func (c *sedCmd) selects(line string, n int, last bool) bool {
	switch {
	case c.from == nil:
		return true
	case c.to == nil:
		return c.from.matches(line, n, last)
	case c.active:
		if c.to.matches(line, n, last) || c.to.line > 0 && n >= c.to.line {
			c.active = false
		}
		return true
	case c.from.matches(line, n, last):
		c.active = !(c.to.line > 0 && c.to.line <= n)
		return true
	}
	return false
}

// line runs the script on one line; false means that it has quit.
func (s *sed) line(text string, last bool) bool {
	s.n++
	var after []string
	for _, c := range s.cmds {
		if c.selects(text, s.n, last) == c.not {
			continue
		}
		switch c.verb {
		case 'p':
			s.w.WriteString(text + "\n")
		case '=':
			s.w.WriteString(strconv.Itoa(s.n) + "\n")
		case 'd':
			return true
		case 'i':
			s.w.WriteString(c.with + "\n")
		case 'a':
			after = append(after, c.with)
		case 'c':
			s.w.WriteString(c.with + "\n")
			return true
		case 'y':
			half := len(c.with) / 2
			text = strings.Map(func(r rune) rune {
				if at := strings.IndexRune(c.with[:half], r); at >= 0 {
					return rune(c.with[half+at])
				}
				return r
			}, text)
		case 's':
			var hit bool
			if text, hit = c.substitute(text); hit && c.print {
				s.w.WriteString(text + "\n")
			}
		case 'q':
			s.quit, s.code = true, c.nth
		}
		if s.quit {
			break
		}
	}
	if !s.quiet {
		s.w.WriteString(text + "\n")
	}
	for _, a := range after {
		s.w.WriteString(a + "\n")
	}
	return !s.quit
}

// substitute replaces matches; & is the match and \1 … \9 its groups.
func (c *sedCmd) substitute(text string) (string, bool) {
	ms := c.re.FindAllStringSubmatchIndex(text, -1)
	if ms == nil {
		return text, false
	}
	var b strings.Builder
	at, hit := 0, false
	for i, m := range ms {
		if c.nth > 0 && i+1 < c.nth || !c.all && c.nth == 0 && i > 0 || !c.all && c.nth > 0 && i+1 > c.nth {
			continue
		}
		hit = true
		b.WriteString(text[at:m[0]])
		for j := 0; j < len(c.with); j++ {
			switch ch := c.with[j]; {
			case ch == '&':
				b.WriteString(text[m[0]:m[1]])
			case ch == '\\' && j+1 < len(c.with):
				j++
				d := c.with[j]
				switch {
				case d >= '0' && d <= '9':
					if g := int(d-'0') * 2; g+1 < len(m) && m[g] >= 0 {
						b.WriteString(text[m[g]:m[g+1]])
					}
				case d == 'n':
					b.WriteByte('\n')
				case d == 't':
					b.WriteByte('\t')
				default:
					b.WriteByte(d)
				}
			default:
				b.WriteByte(ch)
			}
		}
		at = m[1]
	}
	return b.String() + text[at:], hit
}
