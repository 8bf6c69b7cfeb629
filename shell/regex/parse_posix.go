package regex

import (
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"
)

// GNU's messages for wrong expressions.
var (
	errBracket   = errors.New("Unmatched [, [^, [:, [., or [=")
	errOpen      = errors.New("Unmatched ( or \\(")
	errClose     = errors.New("Unmatched ) or \\)")
	errBrace     = errors.New("Unmatched \\{")
	errBraceBody = errors.New("Invalid content of \\{\\}")
	errRange     = errors.New("Invalid range end")
	errClass     = errors.New("Invalid character class name")
	errCollate   = errors.New("Invalid collation character")
	errPreceding = errors.New("Invalid preceding regular expression")
	errBackslash = errors.New("Trailing backslash")
	errBackRef   = errors.New("Invalid back reference")
	errTooBig    = errors.New("Regular expression too big")
)

// parser reads a pattern.
type parser struct {
	s      string
	pos    int
	flags  Flags
	groups int          // opened so far
	base   int          // before this pattern's own
	closed map[int]bool // those that may be referred to
	names  []string     // of the groups, from 1 on
	depth  int
	// Perl's modifiers at pos.
	fold, multi, dot, extended bool
	uni                        bool
}

func (p *parser) more() bool { return p.pos < len(p.s) }

func (p *parser) at(s string) bool { return strings.HasPrefix(p.s[p.pos:], s) }

func (p *parser) eat(s string) bool {
	if p.at(s) {
		p.pos += len(s)
		return true
	}
	return false
}

// char makes the node of one character, or of a byte that is not part of one.
func (p *parser) char() *node {
	r, n := utf8.DecodeRuneInString(p.s[p.pos:])
	b := p.s[p.pos]
	p.pos += n
	if r == utf8.RuneError && n == 1 {
		return &node{op: opRaw, raw: b}
	}
	return p.one(r)
}

func (p *parser) one(r rune) *node { return p.chars(set{r, r}) }

// chars makes the node of a set. It adds the other cases if case is ignored, and removes line ends
// if matching is by lines.
func (p *parser) chars(s set) *node {
	if p.fold {
		s = s.folded()
	}
	if p.flags&Lines != 0 {
		s = s.minus(set{'\n', '\n'})
	}
	return &node{op: opSet, set: s}
}

func (p *parser) ere() bool { return p.flags&Extended != 0 }

// special reports whether the operator c is next (\c in basic expressions). If so, it moves past
// it.
func (p *parser) special(c byte) bool {
	if p.ere() {
		return p.eat(string(c))
	}
	return p.eat("\\" + string(c))
}

func (p *parser) atSpecial(c byte) bool {
	if p.ere() {
		return p.at(string(c))
	}
	return p.at("\\" + string(c))
}

// posix reads alternatives up to the end or a closing parenthesis.
func (p *parser) posix() (*node, error) {
	if p.depth++; p.depth > maxDepth {
		return nil, errTooBig
	}
	defer func() { p.depth-- }()
	var alts []*node
	for {
		n, err := p.branch()
		if err != nil {
			return nil, err
		}
		alts = append(alts, n)
		if !p.special('|') && !(p.flags&NewlineAlt != 0 && p.eat("\n")) {
			return alt(alts...), nil
		}
	}
}

// branch reads a concatenation.
func (p *parser) branch() (*node, error) {
	var subs []*node
	for p.more() {
		if p.atSpecial('|') || p.flags&NewlineAlt != 0 && p.at("\n") {
			break
		}
		if p.atSpecial(')') {
			if p.depth > 1 {
				break
			}
			if p.ere() && p.flags&LooseParen != 0 {
				p.pos++
				subs = append(subs, p.one(')'))
				continue
			}
			return nil, errClose
		}
		n, err := p.atom(len(subs) == 0, len(subs) == 0 || subs[len(subs)-1].op == opAssert)
		if err != nil {
			return nil, err
		}
		if n, err = p.repeats(n); err != nil {
			return nil, err
		}
		subs = append(subs, n)
	}
	if len(subs) == 0 {
		return &node{op: opEmpty}, nil
	}
	return cat(subs...), nil
}

// repeats reads the repetition operators after an atom.
func (p *parser) repeats(n *node) (*node, error) {
	if n.op == opAssert {
		return n, nil // in glibc, conditions can't be repeated: an operator after one starts anew
	}
	for levels := 0; p.more(); levels++ {
		if levels > 0 && p.flags&NoTwice != 0 && !p.ere() && (p.at("*") || p.at(`\{`)) {
			return nil, errPreceding
		}
		lo, hi := 0, -1
		switch {
		case p.eat("*"):
		case p.special('+'):
			lo = 1
		case p.special('?'):
			hi = 1
		case p.atSpecial('{'):
			var ok bool
			var err error
			if lo, hi, ok, err = p.interval(); err != nil {
				return nil, err
			}
			if !ok {
				return n, nil
			}
		default:
			return n, nil
		}
		if levels > maxDepth {
			return nil, errTooBig
		}
		if n.op == opRepeat && n.min == 0 && n.max < 0 && lo <= 1 && (hi < 0 || hi == 1) {
			continue // a** is a*
		}
		n = &node{op: opRepeat, subs: []*node{n}, min: lo, max: hi}
	}
	return n, nil
}

// interval reads {n}, {n,}, {,m} or {n,m}. ok is false when the text is not an interval and so is
// literal.
func (p *parser) interval() (lo, hi int, ok bool, err error) {
	start := p.pos
	p.special('{')
	first := p.number()
	lo, hi = first, first
	comma := false
	if p.eat(",") {
		comma = true
		hi = p.number()
	}
	closed := p.special('}')
	switch {
	case closed && first < 0 && !comma && p.flags&(NewlineAlt|Awk) == NewlineAlt:
		return 0, 0, false, errBraceBody // grep's {} is no text
	case !closed && p.ere() && p.flags&LooseBrace != 0:
		p.pos = start
		return 0, 0, false, nil
	case !closed && !strings.Contains(p.s[p.pos:], "}"):
		return 0, 0, false, errBrace
	case !closed, first < 0 && !comma:
		if p.ere() && p.flags&LooseBrace != 0 {
			p.pos = start
			return 0, 0, false, nil
		}
		return 0, 0, false, errBraceBody
	}
	if lo < 0 {
		lo = 0
	}
	if lo > dupMax || hi > dupMax {
		return 0, 0, false, errTooBig
	}
	if comma && hi >= 0 && lo > hi {
		return 0, 0, false, errBraceBody
	}
	return lo, hi, true, nil
}

// number reads digits. It returns -1 when there are none.
func (p *parser) number() int {
	start := p.pos
	for p.more() && p.s[p.pos] >= '0' && p.s[p.pos] <= '9' {
		p.pos++
	}
	if start == p.pos {
		return -1
	}
	n, err := strconv.Atoi(p.s[start:p.pos])
	if err != nil {
		return dupMax + 1
	}
	return n
}

// begin and end return the conditions of ^ and $.
func (p *parser) begin() *node {
	if p.multi {
		return &node{op: opAssert, n: condBeginLine}
	}
	return &node{op: opAssert, n: condBeginText}
}

func (p *parser) end() *node {
	if p.multi {
		return &node{op: opAssert, n: condEndLine}
	}
	return &node{op: opAssert, n: condEndText}
}

func (p *parser) dotSet() set {
	if p.flags&Newline != 0 {
		return anySet.minus(set{'\n', '\n'})
	}
	return anySet
}

// atom reads one atom. first says that it begins a branch. bare says that there is nothing before
// it to repeat.
func (p *parser) atom(first, bare bool) (*node, error) {
	c := p.s[p.pos]
	switch {
	case c == '\\':
		return p.escape(bare)
	case c == '.':
		p.pos++
		return p.chars(p.dotSet()), nil
	case c == '[':
		return p.bracket()
	case c == '*' && bare && !p.ere():
		return p.char(), nil
	case c == '^' && (first || p.ere()):
		p.pos++
		return p.begin(), nil
	case c == '$' && (p.ere() || p.pos+1 == len(p.s) || strings.HasPrefix(p.s[p.pos+1:], `\)`) || strings.HasPrefix(p.s[p.pos+1:], `\|`) || p.flags&NewlineAlt != 0 && p.s[p.pos+1] == '\n'):
		p.pos++
		return p.end(), nil
	case p.ere() && bare && strings.IndexByte("*+?{", c) >= 0:
		return p.lonely()
	case p.ere() && c == '(':
		p.pos++
		return p.group()
	}
	return p.char(), nil
}

// lonely reads a repetition operator with nothing to repeat in an extended expression. In awk the
// operator is literal. In grep it is ignored, and a closing parenthesis directly after it is
// literal. Elsewhere it is an error.
func (p *parser) lonely() (*node, error) {
	switch {
	case p.flags&Awk != 0:
		return p.char(), nil
	case p.flags&NewlineAlt == 0:
		return nil, errPreceding
	}
	if start := p.pos; p.at("{") {
		if _, _, ok, err := p.interval(); err != nil || ok {
			return &node{op: opEmpty}, err
		}
		p.pos = start
	}
	p.pos++
	switch {
	case !p.more() || p.atSpecial('|') || p.at("\n"):
		return &node{op: opEmpty}, nil
	case p.at(")"):
		return p.char(), nil
	}
	return p.atom(false, true)
}

// group reads the rest of a group after its opening parenthesis.
func (p *parser) group() (*node, error) {
	p.groups++
	n := p.groups
	sub, err := p.posix()
	if err != nil {
		return nil, err
	}
	if !p.special(')') {
		return nil, errOpen
	}
	p.closed[n] = true
	return &node{op: opGroup, n: n, subs: []*node{sub}}, nil
}

// escape reads an escape.
func (p *parser) escape(bare bool) (*node, error) {
	if p.pos+1 == len(p.s) {
		return nil, errBackslash
	}
	c := p.s[p.pos+1]
	assert := func(cond int) (*node, error) {
		p.pos += 2
		return &node{op: opAssert, n: cond}, nil
	}
	if p.flags&Awk != 0 {
		if n, ok := p.awkEscape(c); ok {
			return n, nil
		}
	} else if c == 'b' {
		return assert(condWord)
	}
	switch c {
	case 'w', 'W', 's', 'S':
		p.pos += 2
		s := class("word")
		if c|0x20 == 's' {
			s = class("space")
		}
		if c < 'a' {
			s = s.not()
		}
		return p.chars(s), nil
	case 'B':
		return assert(condNoWord)
	case '<':
		return assert(condWordStart)
	case '>':
		return assert(condWordEnd)
	case '`':
		return assert(condBeginText)
	case '\'':
		return assert(condEndText)
	}
	if !p.ere() {
		switch c {
		case '(':
			p.pos += 2
			return p.group()
		case '{':
			if bare && p.flags&NewlineAlt == 0 {
				return nil, errPreceding
			}
		case '+', '?':
			if bare { // nothing to repeat; in glibc it is literal
				p.pos++
				return p.char(), nil
			}
		}
	}
	if c >= '1' && c <= '9' && p.flags&Awk == 0 {
		n := p.base + int(c-'0')
		if !p.closed[n] {
			return nil, errBackRef
		}
		p.pos += 2
		return &node{op: opBack, n: n, fold: p.fold}, nil
	}
	p.pos++
	return p.char(), nil
}

// awkEscape reads an escape that has a different meaning in awk.
func (p *parser) awkEscape(c byte) (*node, bool) {
	if c == 'y' {
		p.pos += 2
		return &node{op: opAssert, n: condWord}, true
	}
	if b, n, ok := awkByte(p.s[p.pos:]); ok {
		p.pos += n
		if b >= utf8.RuneSelf {
			return &node{op: opRaw, raw: b}, true
		}
		return p.one(rune(b)), true
	}
	return nil, false
}

// awkByte reads \n, \t, \/, \101, \x41 and the like.
func awkByte(s string) (b byte, n int, ok bool) {
	if len(s) < 2 {
		return 0, 0, false
	}
	if i := strings.IndexByte("abfnrtv", s[1]); i >= 0 {
		return "\a\b\f\n\r\t\v"[i], 2, true
	}
	switch c := s[1]; {
	case c == '/' || c == '"':
		return c, 2, true
	case c >= '0' && c <= '7':
		v := 0
		for n = 1; n < 4 && n < len(s) && s[n] >= '0' && s[n] <= '7'; n++ {
			v = v*8 + int(s[n]-'0')
		}
		return byte(v), n, true
	case c == 'x':
		v := 0
		for n = 2; n < 4 && n < len(s); n++ {
			d := strings.IndexByte("0123456789abcdef", s[n]|0x20)
			if d < 0 || s[n] < '0' {
				break
			}
			v = v*16 + d
		}
		return byte(v), n, n > 2
	}
	return 0, 0, false
}

// bracket reads a bracket expression.
func (p *parser) bracket() (*node, error) {
	p.pos++
	neg := p.eat("^")
	var out set
	var raw []byte
	for start := true; ; start = false {
		if !p.more() {
			return nil, errBracket
		}
		if p.at("]") && !start {
			p.pos++
			break
		}
		if s, ok, err := p.bracketClass(); err != nil {
			return nil, err
		} else if ok {
			out = out.plus(s)
			continue
		}
		if p.at("-") && !start && p.flags&Awk == 0 && p.pos+1 < len(p.s) && p.s[p.pos+1] != ']' {
			return nil, errRange // only a set's first or last character may be a plain dash
		}
		lo, b, err := p.bracketChar()
		if err != nil {
			return nil, err
		}
		if lo < 0 {
			raw = append(raw, b)
			continue
		}
		hi := lo
		if p.at("-") && p.pos+1 < len(p.s) && p.s[p.pos+1] != ']' {
			p.pos++
			if hi, _, err = p.bracketChar(); err != nil {
				return nil, err
			}
			if hi < lo {
				return nil, errRange
			}
		}
		out = append(out, lo, hi)
	}
	out = setOf(out...)
	if p.fold {
		out = out.folded()
	}
	if neg {
		out = out.not()
		if p.flags&Newline != 0 {
			out = out.minus(set{'\n', '\n'})
		}
	}
	n := p.chars(out)
	if !neg {
		for _, b := range raw {
			n = alt(n, &node{op: opRaw, raw: b})
		}
	}
	return n, nil
}

// bracketClass reads [:name:]. bracketChar reads [=c=].
func (p *parser) bracketClass() (set, bool, error) {
	if !p.at("[:") {
		return nil, false, nil
	}
	end := strings.Index(p.s[p.pos+2:], ":]")
	if end < 0 {
		return nil, false, errBracket
	}
	name := p.s[p.pos+2 : p.pos+2+end]
	s := class(name)
	if s == nil || name == "word" {
		return nil, false, errClass
	}
	if p.fold && (name == "upper" || name == "lower") {
		s = class("alpha")
	}
	p.pos += end + 4
	return s, true, nil
}

// bracketChar reads one character of a bracket expression. r is -1 for a byte b that is not part of
// a character.
func (p *parser) bracketChar() (r rune, b byte, err error) {
	if !p.more() {
		return 0, 0, errBracket
	}
	for _, kind := range []string{".", "="} {
		if !p.at("[" + kind) {
			continue
		}
		end := strings.Index(p.s[p.pos+2:], kind+"]")
		if end < 0 {
			return 0, 0, errBracket
		}
		name := p.s[p.pos+2 : p.pos+2+end]
		r, n := utf8.DecodeRuneInString(name)
		if n == 0 || n != len(name) { // the locale has no names
			return 0, 0, errCollate
		}
		p.pos += end + 4
		return r, 0, nil
	}
	if p.flags&(Awk|BracketEscapes) != 0 && p.at("\\") && p.pos+1 < len(p.s) {
		if b, n, ok := awkByte(p.s[p.pos:]); ok && p.flags&Awk != 0 {
			p.pos += n
			return rune(b), 0, nil
		}
		if p.flags&Awk != 0 {
			p.pos++
		} else if i := strings.IndexByte("nt]\\", p.s[p.pos+1]); i >= 0 && i < 2 {
			p.pos += 2
			return rune("\n\t"[i]), 0, nil
		}
	}
	r, n := utf8.DecodeRuneInString(p.s[p.pos:])
	b = p.s[p.pos]
	p.pos += n
	if r == utf8.RuneError && n == 1 {
		return -1, b, nil
	}
	return r, 0, nil
}
