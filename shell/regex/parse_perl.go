package regex

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

func (p *parser) perlError(format string, args ...any) error {
	return fmt.Errorf(format+" at offset %d", append(args, p.pos)...)
}

// perl reads alternatives up to the end or a closing parenthesis. Modifiers set inside are then
// reset.
func (p *parser) perl() (*node, error) {
	if p.depth++; p.depth > maxDepth {
		return nil, p.perlError("parentheses are too deeply nested")
	}
	fold, multi, dot, ext := p.fold, p.multi, p.dot, p.extended
	defer func() { p.depth--; p.fold, p.multi, p.dot, p.extended = fold, multi, dot, ext }()
	var alts []*node
	var subs []*node
	for {
		p.skip()
		if !p.more() || p.at(")") {
			return alt(append(alts, cat1(subs))...), nil
		}
		if p.eat("|") {
			alts, subs = append(alts, cat1(subs)), nil
			continue
		}
		n, err := p.perlAtom()
		if err != nil {
			return nil, err
		}
		if n == nil {
			continue
		}
		if n, err = p.perlRepeat(n); err != nil {
			return nil, err
		}
		subs = append(subs, n)
	}
}

func cat1(subs []*node) *node {
	if len(subs) == 0 {
		return &node{op: opEmpty}
	}
	return cat(subs...)
}

// skip skips comments, and white space in extended mode.
func (p *parser) skip() {
	for p.more() {
		switch {
		case p.at("(?#"):
			i := strings.IndexByte(p.s[p.pos:], ')')
			if i < 0 {
				return
			}
			p.pos += i + 1
		case p.extended && strings.IndexByte(" \t\n\r\f\v", p.s[p.pos]) >= 0:
			p.pos++
		case p.extended && p.at("#"):
			i := strings.IndexByte(p.s[p.pos:], '\n')
			if i < 0 {
				p.pos = len(p.s)
				return
			}
			p.pos += i + 1
		default:
			return
		}
	}
}

// perlRepeat reads a quantifier.
func (p *parser) perlRepeat(n *node) (*node, error) {
	for levels := 0; ; levels++ {
		p.skip()
		if !p.more() {
			return n, nil
		}
		lo, hi := 0, -1
		switch {
		case p.eat("*"):
		case p.eat("+"):
			lo = 1
		case p.eat("?"):
			hi = 1
		case p.at("{"):
			start := p.pos
			p.pos++
			lo = p.number()
			hi = lo
			if lo >= 0 && p.eat(",") {
				hi = p.number()
			}
			if lo < 0 || !p.eat("}") {
				p.pos = start
				return n, nil
			}
			if lo > dupMax || hi > dupMax {
				return nil, p.perlError("number too big in {} quantifier")
			}
			if hi >= 0 && lo > hi {
				return nil, p.perlError("numbers out of order in {} quantifier")
			}
		default:
			return n, nil
		}
		if levels > 0 && p.flags&Unicode == 0 {
			return nil, p.perlError("quantifier does not follow a repeatable item")
		}
		if levels > maxDepth {
			return nil, errTooBig
		}
		n = &node{op: opRepeat, subs: []*node{n}, min: lo, max: hi}
		switch {
		case p.eat("?"):
			n.lazy = true
		case p.eat("+"):
			n = &node{op: opAtomic, subs: []*node{n}}
		}
	}
}

// perlAtom reads one atom. It returns nil if there is none (modifiers).
func (p *parser) perlAtom() (*node, error) {
	switch c := p.s[p.pos]; c {
	case '\\':
		return p.perlEscape()
	case '.':
		p.pos++
		s := anySet
		if !p.dot {
			s = anySet.minus(set{'\n', '\n'})
		}
		return p.chars(s), nil
	case '[':
		return p.perlBracket()
	case '^':
		p.pos++
		return p.begin(), nil
	case '$':
		p.pos++
		if p.multi {
			return &node{op: opAssert, n: condEndLine}, nil
		}
		if p.flags&(Unicode|EndOnly) != 0 {
			return &node{op: opAssert, n: condEndText}, nil
		}
		return &node{op: opAssert, n: condEndTextNL}, nil
	case '*', '+', '?':
		return nil, p.perlError("quantifier does not follow a repeatable item")
	case '(':
		return p.perlGroup()
	}
	return p.char(), nil
}

// name reads a name up to end.
func (p *parser) name(end byte) (string, error) {
	i := strings.IndexByte(p.s[p.pos:], end)
	if i <= 0 {
		return "", p.perlError("syntax error in subpattern name (missing terminator?)")
	}
	name := p.s[p.pos : p.pos+i]
	for j, r := range name {
		if r != '_' && !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z') && (j == 0 || r < '0' || r > '9') {
			return "", p.perlError("subpattern name must start with a non-digit")
		}
	}
	p.pos += i + 1
	return name, nil
}

// perlGroup reads the construct that an opening parenthesis begins.
func (p *parser) perlGroup() (*node, error) {
	p.pos++
	finish := func(n *node) (*node, error) {
		sub, err := p.perl()
		if err != nil {
			return nil, err
		}
		if !p.eat(")") {
			return nil, p.perlError("missing closing parenthesis")
		}
		if n == nil {
			return sub, nil
		}
		n.subs = []*node{sub}
		if n.op == opLook && n.back {
			if _, hi := sub.width(); hi >= inf {
				return nil, p.perlError("lookbehind assertion is not fixed length")
			}
		}
		return n, nil
	}
	capture := func(name string) (*node, error) {
		p.groups++
		n := &node{op: opGroup, n: p.groups}
		for len(p.names) < p.groups {
			p.names = append(p.names, "")
		}
		p.names[p.groups-1] = name
		p.closed[n.n] = true
		return finish(n)
	}
	if !p.eat("?") {
		if p.eat("*") {
			if strings.HasPrefix(p.s[p.pos:], "UCP)") {
				p.pos += 4
				p.uni = true
				return nil, nil
			}
			if p.eat("UTF8)") || p.eat("UTF)") {
				return nil, nil
			}
			return nil, p.perlError("(*VERB) is not supported")
		}
		return capture("")
	}
	switch {
	case p.eat(":"):
		return finish(nil)
	case p.eat(">"):
		return finish(&node{op: opAtomic})
	case p.eat("="):
		return finish(&node{op: opLook})
	case p.eat("!"):
		return finish(&node{op: opLook, neg: true})
	case p.eat("<="):
		return finish(&node{op: opLook, back: true})
	case p.eat("<!"):
		return finish(&node{op: opLook, back: true, neg: true})
	case p.eat("P<"), p.eat("<"):
		name, err := p.name('>')
		if err != nil {
			return nil, err
		}
		return capture(name)
	case p.eat("'"):
		name, err := p.name('\'')
		if err != nil {
			return nil, err
		}
		return capture(name)
	case p.eat("P="):
		name, err := p.name(')')
		if err != nil {
			return nil, err
		}
		return p.namedBack(name)
	}
	return p.modifiers(finish)
}

// modifiers reads (?i), (?i-s:…) and the like.
func (p *parser) modifiers(finish func(*node) (*node, error)) (*node, error) {
	fold, multi, dot, ext := p.fold, p.multi, p.dot, p.extended
	on := true
	for p.more() {
		c := p.s[p.pos]
		p.pos++
		switch c {
		case '-':
			on = false
		case '^':
			fold, dot, ext = false, false, false
		case 'i':
			fold = on
		case 'm':
			multi = on || p.flags&Newline != 0
		case 's':
			dot = on && p.flags&Newline == 0
		case 'x':
			ext = on
		case 'u', 'U', 'J', 'n':
			if c != 'u' {
				return nil, p.perlError("modifier %c is not supported", c)
			}
			p.uni = on
		case ')':
			p.fold, p.multi, p.dot, p.extended = fold, multi, dot, ext
			return nil, nil
		case ':':
			f, m, d, e := p.fold, p.multi, p.dot, p.extended
			p.fold, p.multi, p.dot, p.extended = fold, multi, dot, ext
			n, err := finish(nil)
			p.fold, p.multi, p.dot, p.extended = f, m, d, e
			return n, err
		default:
			if c == 'R' || c == '(' || c == '|' || c == '&' || c >= '0' && c <= '9' {
				return nil, p.perlError("recursion, conditions and branch reset are not supported")
			}
			return nil, p.perlError("unrecognized character after (? or (?-")
		}
	}
	return nil, p.perlError("missing closing parenthesis")
}

func (p *parser) namedBack(name string) (*node, error) {
	for i, n := range p.names {
		if n == name {
			return p.backRef(i + 1)
		}
	}
	return nil, p.perlError("reference to non-existent subpattern")
}

func (p *parser) backRef(n int) (*node, error) {
	if !p.closed[n] {
		return nil, p.perlError("reference to non-existent subpattern")
	}
	return &node{op: opBack, n: n, fold: p.fold}, nil
}

// perlClass returns the set of \d and similar classes.
func (p *parser) perlClass(c byte) (set, bool) {
	var s set
	switch c | 0x20 {
	case 'd':
		if s = digitSet; p.uni {
			s = tableSet(unicode.Nd)
		}
	case 'w':
		if s = asciiWord; p.uni {
			s = class("word")
		}
	case 's':
		if s = spaceSet; p.uni {
			s = tableSet(unicode.White_Space)
		}
	case 'h':
		s = tableSet(unicode.Zs).plus(set{'\t', '\t'})
	case 'v':
		s = set{'\n', '\r', 0x85, 0x85, 0x2028, 0x2029}
	case 'n':
		if c == 'N' {
			return anySet.minus(set{'\n', '\n'}), true
		}
		return nil, false
	default:
		return nil, false
	}
	if c < 'a' {
		s = s.not()
	}
	return s, true
}

// property reads the name after \p or \P.
func (p *parser) property(neg bool) (set, error) {
	var name string
	if p.eat("{") {
		i := strings.IndexByte(p.s[p.pos:], '}')
		if i < 0 {
			return nil, p.perlError("malformed \\P or \\p sequence")
		}
		name = p.s[p.pos : p.pos+i]
		p.pos += i + 1
	} else if p.more() {
		name = p.s[p.pos : p.pos+1]
		p.pos++
	}
	if strings.HasPrefix(name, "^") {
		name, neg = name[1:], !neg
	}
	var s set
	long := map[string]string{"Letter": "L", "Number": "N", "Punctuation": "P", "Symbol": "S", "Separator": "Z", "Mark": "M", "Lowercase": "Ll", "Uppercase": "Lu",
		"Lowercase_Letter": "Ll", "Uppercase_Letter": "Lu", "Alphabetic": "L", "Decimal_Number": "Nd"}
	if l, ok := long[name]; ok {
		name = l
	}
	switch {
	case name == "Any":
		s = anySet
	case name == "L&":
		s = tableSet(unicode.Lu, unicode.Ll, unicode.Lt)
	case name == "Xan":
		s = tableSet(unicode.L, unicode.N)
	case name == "Xwd":
		s = tableSet(unicode.L, unicode.N).plus(set{'_', '_'})
	case name == "Xsp" || name == "Xps":
		s = tableSet(unicode.White_Space)
	case unicode.Categories[name] != nil:
		s = tableSet(unicode.Categories[name])
	case unicode.Scripts[name] != nil:
		s = tableSet(unicode.Scripts[name])
	case unicode.Properties[name] != nil:
		s = tableSet(unicode.Properties[name])
	default:
		return nil, p.perlError("unknown property after \\P or \\p")
	}
	if neg {
		s = s.not()
	}
	return s, nil
}

// codeEscape reads an escape of one character: \n, \x41, \x{263a}, \101, \cA, or an escaped symbol.
// pos is at the character after the backslash.
func (p *parser) codeEscape() (rune, error) {
	c := p.s[p.pos]
	if i := strings.IndexByte("aefnrt", c); i >= 0 {
		p.pos++
		return rune("\a\x1b\f\n\r\t"[i]), nil
	}
	base, digits := 16, ""
	switch {
	case c == 'x' && strings.HasPrefix(p.s[p.pos:], "x{"), c == 'o' && strings.HasPrefix(p.s[p.pos:], "o{"), c == 'u' && strings.HasPrefix(p.s[p.pos:], "u{"):
		i := strings.IndexByte(p.s[p.pos:], '}')
		if i < 0 {
			return 0, p.perlError("missing terminating } for \\x or \\o")
		}
		digits = p.s[p.pos+2 : p.pos+i]
		if c == 'o' {
			base = 8
		}
		p.pos += i + 1
	case c == 'x':
		p.pos++
		start := p.pos
		for p.pos-start < 2 && p.more() && isHex(p.s[p.pos]) {
			p.pos++
		}
		digits = p.s[start:p.pos]
		if digits == "" {
			return 0, nil
		}
	case c == '0':
		start := p.pos
		for p.pos-start < 3 && p.more() && p.s[p.pos] >= '0' && p.s[p.pos] <= '7' {
			p.pos++
		}
		digits, base = p.s[start:p.pos], 8
	case c == 'c' && p.pos+1 < len(p.s):
		p.pos += 2
		return rune(p.s[p.pos-1]&^0x20) ^ 0x40, nil
	default:
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' {
			return 0, p.perlError("unrecognized character follows \\")
		}
		r, n := utf8.DecodeRuneInString(p.s[p.pos:])
		p.pos += n
		return r, nil
	}
	v, err := strconv.ParseUint(digits, base, 32)
	if err != nil || v > unicode.MaxRune {
		return 0, p.perlError("character code point value in \\x{} or \\o{} is too large")
	}
	return rune(v), nil
}

func isHex(c byte) bool { return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'f' }

// perlEscape reads an escape outside of brackets.
func (p *parser) perlEscape() (*node, error) {
	p.pos++
	if !p.more() {
		return nil, p.perlError("\\ at end of pattern")
	}
	c := p.s[p.pos]
	if s, ok := p.perlClass(c); ok {
		p.pos++
		return p.chars(s), nil
	}
	if cond, ok := map[byte]int{'b': condWord, 'B': condNoWord, 'A': condBeginText, 'z': condEndText, 'Z': condEndTextNL, '<': condWordStart, '>': condWordEnd}[c]; ok && (c != '<' && c != '>' || p.flags&Unicode != 0) {
		p.pos++
		return &node{op: opAssert, n: cond}, nil
	}
	switch {
	case c == 'p' || c == 'P':
		p.pos++
		s, err := p.property(c == 'P')
		if err != nil {
			return nil, err
		}
		return p.chars(s), nil
	case c == 'K':
		p.pos++
		return &node{op: opKeep}, nil
	case c == 'R':
		p.pos++
		crlf := cat(p.one('\r'), p.one('\n'))
		return &node{op: opAtomic, subs: []*node{alt(crlf, p.chars(set{'\n', '\r', 0x85, 0x85, 0x2028, 0x2029}))}}, nil
	case c == 'X':
		p.pos++
		rest := &node{op: opRepeat, subs: []*node{p.chars(tableSet(unicode.M))}, max: -1}
		return cat(p.chars(tableSet(unicode.M).not()), rest), nil
	case c == 'Q':
		p.pos++
		lit, _, found := strings.Cut(p.s[p.pos:], `\E`)
		q := &parser{s: lit, flags: p.flags, fold: p.fold}
		var subs []*node
		for q.more() {
			subs = append(subs, q.char())
		}
		p.pos += len(lit)
		if found {
			p.pos += len(`\E`)
		}
		return cat1(subs), nil
	case c == 'E':
		p.pos++
		return nil, nil
	case c == 'G':
		return nil, p.perlError("\\G is not supported")
	case c >= '1' && c <= '9':
		start := p.pos
		n := p.number()
		if n >= 10 && n > p.groups { // an octal code
			p.pos = start
			if c > '7' {
				return nil, p.perlError("reference to non-existent subpattern")
			}
			v := 0
			for p.pos-start < 3 && p.more() && p.s[p.pos] >= '0' && p.s[p.pos] <= '7' {
				v = v*8 + int(p.s[p.pos]-'0')
				p.pos++
			}
			return p.one(rune(v)), nil
		}
		return p.backRef(n)
	case c == 'k' || c == 'g':
		return p.longBack(c)
	}
	r, err := p.codeEscape()
	if err != nil {
		return nil, err
	}
	return p.one(r), nil
}

// longBack reads \k<name>, \g{n}, \g{-1}, \g1.
func (p *parser) longBack(c byte) (*node, error) {
	p.pos++
	if !p.more() {
		return nil, p.perlError("a numbered reference must not be zero")
	}
	open := p.s[p.pos]
	closing := map[byte]byte{'<': '>', '{': '}', '\'': '\''}[open]
	if closing == 0 {
		if c == 'g' {
			if n := p.number(); n > 0 {
				return p.backRef(n)
			}
		}
		return nil, p.perlError("\\k is not followed by a braced, angle-bracketed, or quoted name")
	}
	if c == 'g' && open != '{' {
		return nil, p.perlError("subroutine calls are not supported")
	}
	i := strings.IndexByte(p.s[p.pos+1:], closing)
	if i < 0 {
		return nil, p.perlError("syntax error in subpattern name (missing terminator?)")
	}
	name := p.s[p.pos+1 : p.pos+1+i]
	p.pos += i + 2
	if n, err := strconv.Atoi(name); err == nil && c == 'g' {
		if n < 0 {
			n += p.groups + 1
		}
		return p.backRef(n)
	}
	return p.namedBack(name)
}

// perlBracket reads a bracket expression.
func (p *parser) perlBracket() (*node, error) {
	open := p.pos
	p.pos++
	neg := p.eat("^")
	var out set
	for start := true; ; start = false {
		if !p.more() {
			p.pos = open
			return nil, p.perlError("missing terminating ] for character class")
		}
		if p.at("]") && !start {
			p.pos++
			break
		}
		lo, s, err := p.perlBracketItem()
		if err != nil {
			return nil, err
		}
		if s != nil {
			out = append(out, s...)
			continue
		}
		hi := lo
		if p.at("-") && p.pos+1 < len(p.s) && p.s[p.pos+1] != ']' {
			p.pos++
			if hi, s, err = p.perlBracketItem(); err != nil {
				return nil, err
			}
			if s != nil {
				out = append(out, lo, lo, '-', '-')
				out = append(out, s...)
				continue
			}
			if hi < lo {
				return nil, errors.New("range out of order in character class at offset " + strconv.Itoa(p.pos-1))
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
	}
	return p.chars(out), nil
}

// perlBracketItem reads one character, or a class (then s is not nil).
func (p *parser) perlBracketItem() (r rune, s set, err error) {
	if p.at("[:") {
		if end := strings.Index(p.s[p.pos:], ":]"); end > 1 {
			name := p.s[p.pos+2 : p.pos+end]
			neg := strings.HasPrefix(name, "^")
			name = strings.TrimPrefix(name, "^")
			s := asciiClasses[name]
			if p.uni && class(name) != nil {
				s = class(name)
			}
			if s == nil {
				return 0, nil, p.perlError("unknown POSIX class name")
			}
			p.pos += end + 2
			if neg {
				s = s.not()
			}
			return 0, s, nil
		}
	}
	if p.flags&Unicode != 0 && p.at("[") {
		n, err := p.nested()
		return 0, n, err
	}
	if !p.eat("\\") {
		r, n := utf8.DecodeRuneInString(p.s[p.pos:])
		p.pos += n
		return r, nil, nil
	}
	if !p.more() {
		return 0, nil, p.perlError("\\ at end of pattern")
	}
	c := p.s[p.pos]
	if s, ok := p.perlClass(c); ok {
		p.pos++
		return 0, s, nil
	}
	switch {
	case c == 'p' || c == 'P':
		p.pos++
		s, err := p.property(c == 'P')
		return 0, s, err
	case c == 'b':
		p.pos++
		return '\b', nil, nil
	case c >= '1' && c <= '7':
		p.s = p.s[:p.pos] + "0" + p.s[p.pos:]
	}
	r, err = p.codeEscape()
	return r, nil, err
}

// nested reads a class inside a class, as in Rust's expressions.
func (p *parser) nested() (set, error) {
	if p.depth++; p.depth > maxDepth {
		return nil, errTooBig
	}
	defer func() { p.depth-- }()
	n, err := p.perlBracket()
	if err != nil {
		return nil, err
	}
	if n.set == nil {
		return set{}, nil
	}
	return n.set, nil
}
