package search

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/carrel-dev/carrel/shell/regex"
)

// sedAddr is one address.
type sedAddr struct {
	kind byte // 'n' line, '/' expression, '$' last, '~' first~step, '+' more lines, '*' up to a multiple, '0' line zero
	n    int64
	step int64
	re   *sedRegex
}

// sedRegex is an expression. nil means the last one used.
type sedRegex struct {
	re *regex.Regexp
}

// sedCmd is one command.
type sedCmd struct {
	a1, a2 *sedAddr
	not    bool
	name   byte
	text   []byte // of a, i, c; file name; label
	num    int    // for q, Q, l, L: -1 none; target of jumps
	out    *sedOut
	sub    *sedSubst
	y      map[string]string
	y1     *[256]byte // used when y changes only single bytes
	// Where a range is.
	active bool
	closed bool // has ended; a range that begins at a line number does not begin again
	until  int64
}

// sedSubst is what s does.
type sedSubst struct {
	re     *sedRegex
	parts  []sedPart
	global bool
	print  int
	nth    int
	out    *sedOut
	eval   bool // the result is run
	cases  bool // has \U and the like
}

// sedPart is a piece of a replacement: text, then a submatch (-1: none), then a change of case (0:
// none).
type sedPart struct {
	text  []byte
	group int
	mode  byte
}

// sedParser reads a script.
type sedParser struct {
	s       string
	pos     int
	posix   bool
	strict  bool // POSIX's brackets
	bytes   bool // characters are bytes
	ext     bool
	cmds    []*sedCmd
	blocks  []int
	labels  map[string]int
	jumps   []int
	open    func(name string) (*sedOut, error)
	budget  func(int) bool
	memory  func(int64) error
	chunks  []sedChunk
	sandbox bool
}

// sedChunk is one -e or -f.
type sedChunk struct {
	start int
	name  string // of a file; "" for -e number
	num   int
}

// fail returns an error with its position in the script.
func (p *sedParser) fail(format string, args ...any) error {
	return p.failAt(p.pos, fmt.Sprintf(format, args...))
}

func (p *sedParser) failAt(pos int, msg string) error {
	c := p.chunks[0]
	for _, k := range p.chunks {
		if k.start <= pos {
			c = k
		}
	}
	if c.name != "" {
		line := 1 + strings.Count(p.s[c.start:min(pos, len(p.s))], "\n")
		return fmt.Errorf("file %s line %d: %s", c.name, line, msg)
	}
	return fmt.Errorf("-e expression #%d, char %d: %s", c.num, pos-c.start, msg)
}

func (p *sedParser) more() bool { return p.pos < len(p.s) }

// peek returns the next byte, or 0 at the end.
func (p *sedParser) peek() byte {
	if p.more() {
		return p.s[p.pos]
	}
	return 0
}

func (p *sedParser) blanks() {
	for p.more() && (p.s[p.pos] == ' ' || p.s[p.pos] == '\t') {
		p.pos++
	}
}

// parse reads the whole script.
func (p *sedParser) parse() error {
	p.labels = map[string]int{}
	for {
		for p.more() && strings.IndexByte(" \t\n;\r\v\f", p.s[p.pos]) >= 0 {
			p.pos++
		}
		if !p.more() {
			break
		}
		if err := p.command(); err != nil {
			return err
		}
	}
	if len(p.blocks) > 0 {
		return p.failAt(p.chunks[len(p.chunks)-1].start, "unmatched `{'")
	}
	for _, i := range p.jumps {
		c := p.cmds[i]
		if len(c.text) == 0 {
			c.num = len(p.cmds)
			continue
		}
		at, ok := p.labels[string(c.text)]
		if !ok {
			return &sedFatal{fmt.Errorf("can't find label for jump to `%s'", c.text)}
		}
		c.num = at
	}
	return nil
}

// number reads digits.
func (p *sedParser) number() int64 {
	start := p.pos
	for p.more() && p.s[p.pos] >= '0' && p.s[p.pos] <= '9' {
		p.pos++
	}
	n, err := strconv.ParseInt(p.s[start:p.pos], 10, 64)
	if err != nil {
		return 1<<62 - 1
	}
	return n
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// address reads one address. It returns nil when there is none.
func (p *sedParser) address(second bool) (*sedAddr, error) {
	c := p.peek()
	switch {
	case c == '/' || c == '\\':
		p.pos++
		delim := byte('/')
		if c == '\\' {
			if !p.more() {
				return nil, p.fail("unexpected `,'")
			}
			delim = p.s[p.pos]
			p.pos++
		}
		text, ok := p.delimited(delim, true)
		if !ok {
			return nil, p.fail("unterminated address regex")
		}
		var flags regex.Flags
		for p.more() && !p.posix {
			switch p.s[p.pos] {
			case ' ', '\t':
			case 'I':
				flags |= regex.IgnoreCase
			case 'M':
				flags |= regex.Multi
			default:
				re, err := p.regex(text, flags)
				return &sedAddr{kind: '/', re: re}, err
			}
			p.pos++
		}
		re, err := p.regex(text, flags)
		return &sedAddr{kind: '/', re: re}, err
	case isDigit(c):
		n := p.number()
		p.blanks()
		if p.peek() == '~' && !p.posix {
			p.pos++
			p.blanks()
			step := int64(0)
			if isDigit(p.peek()) {
				step = p.number()
			}
			if step > 0 {
				return &sedAddr{kind: '~', n: n, step: step}, nil
			}
			return &sedAddr{kind: 'n', n: n}, nil
		}
		return &sedAddr{kind: 'n', n: n}, nil
	case c == '$':
		p.pos++
		return &sedAddr{kind: '$'}, nil
	case !p.posix && (c == '+' || c == '~'):
		p.pos++
		p.blanks()
		if !isDigit(p.peek()) {
			return nil, p.fail("expected number")
		}
		n := p.number()
		if c == '~' {
			return &sedAddr{kind: '*', n: n}, nil
		}
		return &sedAddr{kind: '+', n: n}, nil
	}
	return nil, nil
}

// command reads one command with its addresses.
func (p *sedParser) command() error {
	c := &sedCmd{num: -1}
	var err error
	if c.a1, err = p.address(false); err != nil {
		return err
	}
	if c.a1 != nil {
		if c.a1.kind == '+' || c.a1.kind == '*' {
			return p.fail("invalid usage of +N or ~N as first address")
		}
		p.blanks()
		if p.peek() == ',' {
			p.pos++
			p.blanks()
			if c.a2, err = p.address(true); err != nil {
				return err
			}
			if c.a2 == nil {
				p.pos++
				return p.fail("unexpected `,'")
			}
		}
		if c.a1.kind == 'n' && c.a1.n == 0 {
			if c.a2 == nil && p.peek() == 'r' {
				c.a1.n = 1
				c.num = 0 // in front of the line
				c.name = 'r'
			} else if c.a2 == nil || c.a2.kind != '/' || p.posix {
				p.pos++
				return p.fail("invalid usage of line address 0")
			}
			if c.a1.n == 0 {
				c.a1.kind = '0'
			}
		}
	}
	p.blanks()
	if p.peek() == '!' {
		p.pos++
		c.not = true
		p.blanks()
		if p.peek() == '!' {
			p.pos++
			return p.fail("multiple `!'s")
		}
	}
	if !p.more() {
		return p.fail("missing command")
	}
	c.name = p.s[p.pos]
	p.pos++
	if p.posix {
		switch {
		case strings.IndexByte("eFvzLQTRW", c.name) >= 0:
			return p.fail("unknown command: `%c'", c.name)
		case c.a2 != nil && strings.IndexByte("ail=r", c.name) >= 0:
			return p.fail("command only uses one address")
		}
	}
	return p.body(c)
}

// end reads the end of a command.
func (p *sedParser) end() error {
	p.blanks()
	switch p.peek() {
	case '\n', ';':
		p.pos++
	case '}', '#', 0, '\r':
		if p.more() && p.s[p.pos] == 0 {
			return p.extra()
		}
	default:
		return p.extra()
	}
	return nil
}

func (p *sedParser) extra() error {
	p.pos++
	return p.fail("extra characters after command")
}

// body reads the part after a command's name.
func (p *sedParser) body(c *sedCmd) error {
	add := func() { p.cmds = append(p.cmds, c) }
	switch c.name {
	case '#':
		if c.a1 != nil {
			return p.fail("comments don't accept any addresses")
		}
		i := strings.IndexByte(p.s[p.pos:], '\n')
		if i < 0 {
			i = len(p.s) - p.pos
		}
		p.pos += i
		return nil
	case '{':
		p.blocks = append(p.blocks, len(p.cmds))
		add()
		return nil
	case '}':
		if len(p.blocks) == 0 {
			return p.fail("unexpected `}'")
		}
		if c.a1 != nil {
			return p.fail("`}' doesn't want any addresses")
		}
		p.cmds[p.blocks[len(p.blocks)-1]].num = len(p.cmds)
		p.blocks = p.blocks[:len(p.blocks)-1]
		return p.end()
	case ':':
		if c.a1 != nil {
			return p.fail(": doesn't want any addresses")
		}
		p.blanks()
		start := p.pos
		for p.more() && strings.IndexByte(" \t\n;}#", p.s[p.pos]) < 0 {
			p.pos++
		}
		label := p.s[start:p.pos]
		if label == "" {
			return p.fail("\":\" lacks a label")
		}
		p.labels[label] = len(p.cmds)
		return nil
	case 'b', 't', 'T':
		p.blanks()
		start := p.pos
		for p.more() && strings.IndexByte(" \t\n;}#", p.s[p.pos]) < 0 {
			p.pos++
		}
		c.text = []byte(p.s[start:p.pos])
		p.jumps = append(p.jumps, len(p.cmds))
		add()
		return nil
	case '=', 'd', 'D', 'F', 'g', 'G', 'h', 'H', 'n', 'N', 'p', 'P', 'x', 'z':
		add()
		return p.end()
	case 'q', 'Q', 'l', 'L':
		if c.a2 != nil && (c.name == 'q' || c.name == 'Q') {
			return p.fail("command only uses one address")
		}
		p.blanks()
		if isDigit(p.peek()) && !p.posix {
			c.num = int(min(p.number(), 1<<30))
		}
		add()
		return p.end()
	case 'a', 'i', 'c':
		add()
		return p.text(c)
	case 'r', 'R', 'w', 'W':
		if p.sandbox {
			return p.fail("e/r/w commands disabled in sandbox mode")
		}
		name, err := p.fileName()
		if err != nil {
			return err
		}
		c.text = []byte(name)
		add()
		return p.output(c.name == 'w' || c.name == 'W', name, &c.out)
	case 'e':
		if p.sandbox {
			return p.fail("e/r/w commands disabled in sandbox mode")
		}
		p.blanks()
		i := strings.IndexByte(p.s[p.pos:]+"\n", '\n')
		c.text = []byte(p.s[p.pos : p.pos+i])
		p.pos += i
		add()
		return nil
	case 's':
		add()
		return p.subst(c)
	case 'y':
		add()
		return p.transliterate(c)
	case 'v':
		p.blanks()
		start := p.pos
		for p.more() && strings.IndexByte(" \t\n;}#", p.s[p.pos]) < 0 {
			p.pos++
		}
		if newer(p.s[start:p.pos]) {
			return p.fail("expected newer version of sed")
		}
		p.posix, p.strict = false, false
		return nil
	case '\n', ';':
		return p.fail("missing command")
	}
	r, n := utf8.DecodeRuneInString(p.s[p.pos-1:])
	if n > 1 {
		return p.fail("unknown command: `%c'", r)
	}
	return p.fail("unknown command: `%c'", c.name)
}

// newer reports whether a version is above 4.9, the version that this sed imitates.
func newer(version string) bool {
	major, rest, _ := strings.Cut(version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	a, _ := strconv.Atoi(major) // what is no number is old
	b, _ := strconv.Atoi(minor)
	return a > 4 || a == 4 && b > 9
}

// output opens a file for writing.
func (p *sedParser) output(write bool, name string, to **sedOut) error {
	if p.sandbox {
		return p.fail("e/r/w commands disabled in sandbox mode")
	}
	if !write {
		return nil
	}
	out, err := p.open(name)
	if err != nil {
		return &sedFatal{err}
	}
	*to = out
	return nil
}

// sedFatal is an error with its own exit status and without a position.
type sedFatal struct{ error }
