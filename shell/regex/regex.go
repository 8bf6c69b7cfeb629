package regex

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"unicode/utf8"
)

// Flags say how a pattern is read and matched. Without Extended, Perl or Literal it is a basic
// expression.
type Flags uint32

// The flags.
const (
	Extended       Flags = 1 << iota // POSIX extended expressions
	Perl                             // Perl's
	Literal                          // the text itself
	IgnoreCase                       // letters of any case
	Newline                          // ^ and $ match at lines; . and [^x] match no line end
	Lines                            // the text has lines: no match contains a line end, and each line is matched on its own
	Awk                              // escapes as in awk: \y, \n, \/, also in brackets
	Unicode                          // Perl: \w, \d and \b know all scripts, as in Rust's expressions
	Multi                            // ^ and $ match at lines
	Words                            // no word characters next to a match (grep -w)
	Whole                            // a match is a whole line (grep -x) with Lines, or else the whole text
	LooseBrace                       // Extended: a { that begins no count is literal
	LooseParen                       // Extended: a ) that closes no group is literal
	NewlineAlt                       // a newline in a pattern separates alternatives, as in grep; also grep's other special rules
	BracketEscapes                   // \n and \t mean newline and tab in brackets, as in sed
	DotAll                           // Perl: . matches a newline
	EndOnly                          // Perl: $ does not match before a newline at the end
	NoTwice                          // basic: a repetition can't be repeated, as in sed
)

// Errors of searches; see [Regexp.Err].
var (
	ErrTooHard = errors.New("expression needs too much backtracking")
	ErrStopped = errors.New("stopped")
)

// Regexp is a compiled pattern. One goroutine at a time may use it.
type Regexp struct {
	prog   *prog
	flags  Flags
	groups int
	names  []string
	hard   bool
	first  bool   // leftmost-first; otherwise leftmost-longest
	lit    []byte // all of the pattern
	isLit  bool
	prefix []byte // what every match begins with
	must   []byte // what every match contains
	begin  bool   // matches only at the beginning of the text
	bytes1 *[256]bool

	scan, anchor *dfa
	visited      []uint64
	jobs         []job
	loc          []int
	pike         pikeState
	bt           backtracker
	budget       func(int) bool
	memory       func(int64) error
	held         int64 // what memory was asked for
	work         int
	err          error
}

// Compile compiles a pattern. Its errors have the words of GNU or PCRE.
func Compile(pattern string, flags Flags) (*Regexp, error) {
	return CompileAll([]string{pattern}, flags)
}

// CompileAll makes one expression that matches the texts that any of the patterns matches.
func CompileAll(patterns []string, flags Flags) (*Regexp, error) {
	return CompileFor(nil, patterns, flags)
}

// CompileFor is CompileAll with a budget. The budget works as in [Regexp.Budget], and also pays for
// later searches. When it returns false, the error is ErrStopped.
func CompileFor(budget func(n int) bool, patterns []string, flags Flags) (*Regexp, error) {
	size := 0
	for _, s := range patterns {
		size += len(s)
	}
	if budget != nil && !budget(20+size>>2) {
		return nil, ErrStopped
	}
	if flags&Lines != 0 {
		flags |= Newline
	}
	re := &Regexp{flags: flags, first: flags&Perl != 0, budget: budget}
	var root *node
	if flags&Literal != 0 {
		root = literals(patterns, flags)
	} else {
		var alts []*node
		for _, s := range patterns {
			p := &parser{s: s, flags: flags, groups: re.groups, closed: map[int]bool{}, fold: flags&IgnoreCase != 0, multi: flags&(Newline|Multi) != 0, uni: flags&Unicode != 0, dot: flags&DotAll != 0}
			n, err := p.parse()
			if err != nil {
				return nil, err
			}
			alts = append(alts, n)
			re.groups = p.groups
			for len(re.names) < p.groups {
				re.names = append(re.names, "")
			}
			for i, name := range p.names {
				if name != "" {
					re.names[i] = name
				}
			}
		}
		root = alt(alts...)
	}
	if len(patterns) == 0 {
		root = &node{op: opSet} // nothing matches
	}
	re.lit, re.isLit = root.literal()
	re.must = root.must()
	if flags&Words != 0 {
		root = cat(&node{op: opAssert, n: condNoWordBefore}, root, &node{op: opAssert, n: condNoWordAfter})
		re.isLit = false
	}
	if flags&Whole != 0 {
		begin, end := condBeginLine, condEndLine
		if flags&(Perl|Lines) == Perl {
			begin, end = condBeginText, condEndText
		}
		root = cat(&node{op: opAssert, n: begin}, root, &node{op: opAssert, n: end})
		re.isLit = false
	}
	re.hard = root.hard()
	var err error
	if re.prog, err = compile(root, re.groups, budget); err != nil {
		return nil, err
	}
	re.prefix = prefixOf(root)
	re.begin = flags&Lines == 0 && beginsText(root)
	re.bytes1 = re.prog.firstBytes()
	re.loc = make([]int, re.prog.caps)
	return re, nil
}

// parse reads the whole pattern.
func (p *parser) parse() (*node, error) {
	p.base = p.groups
	if p.flags&Perl != 0 {
		n, err := p.perl()
		if err == nil && p.more() {
			err = p.perlError("unmatched closing parenthesis")
		}
		return n, err
	}
	return p.posix()
}

// literals makes a node from texts. Texts with the same beginning share it.
func literals(patterns []string, flags Flags) *node {
	sorted := slices.Clone(patterns)
	slices.Sort(sorted)
	sorted = slices.Compact(sorted)
	p := &parser{flags: flags, fold: flags&IgnoreCase != 0}
	return p.shared(sorted, 0)
}

func (p *parser) shared(texts []string, depth int) *node {
	if len(texts) == 1 || depth > 64 {
		alts := make([]*node, len(texts))
		for i, t := range texts {
			q := &parser{s: t, flags: p.flags, fold: p.fold}
			var subs []*node
			for q.more() {
				subs = append(subs, q.char())
			}
			alts[i] = cat1(subs)
		}
		return alt(alts...)
	}
	var alts []*node
	for i := 0; i < len(texts); {
		if texts[i] == "" {
			alts = append(alts, &node{op: opEmpty})
			i++
			continue
		}
		_, n := utf8.DecodeRuneInString(texts[i])
		head := texts[i][:n]
		var tails []string
		for ; i < len(texts) && strings.HasPrefix(texts[i], head); i++ {
			tails = append(tails, texts[i][n:])
		}
		q := &parser{s: head, flags: p.flags, fold: p.fold}
		alts = append(alts, cat(q.char(), p.shared(tails, depth+1)))
	}
	return alt(alts...)
}

// prefixOf returns the bytes with which every match of a pattern begins.
func prefixOf(n *node) []byte {
	switch n.op {
	case opSet, opRaw:
		b, _ := n.literal()
		return b
	case opGroup:
		return prefixOf(n.subs[0])
	case opCat:
		var out []byte
		for _, s := range n.subs {
			b, ok := s.literal()
			if !ok {
				return append(out, prefixOf(s)...)
			}
			out = append(out, b...)
		}
		return out
	}
	return nil
}

func beginsText(n *node) bool {
	switch n.op {
	case opAssert:
		return n.n == condBeginText
	case opGroup:
		return beginsText(n.subs[0])
	case opCat:
		return beginsText(n.subs[0])
	case opAlt:
		for _, s := range n.subs {
			if !beginsText(s) {
				return false
			}
		}
		return true
	}
	return false
}

// Budget sets the function that pays for searches. f is called with a number of steps, of about a
// hundred nanoseconds each, and returns false to stop a search.
func (re *Regexp) Budget(f func(n int) bool) { re.budget = f }

// Memory sets the function that pays for the memory of the expression, beginning with its present
// memory. When f returns an error, a search ends with ErrStopped. Memory(nil) gives all memory
// back.
func (re *Regexp) Memory(f func(n int64) error) {
	if re.memory != nil && re.held != 0 {
		_ = re.memory(-re.held) // giving back does not fail
	}
	re.memory, re.held = f, 0
	re.hold()
}

// Size returns the approximate memory of the expression, in bytes.
func (re *Regexp) Size() int {
	n := 512 + 40*len(re.prog.insts) + 12*re.prog.size
	for _, d := range []*dfa{re.scan, re.anchor} {
		if d != nil {
			n += 1024 + 4*len(d.mark) + 4*cap(d.trans) + d.held
		}
	}
	return n
}

// hold pays for memory added since the last call, if it is enough to be worth a call.
func (re *Regexp) hold() bool {
	if re.memory == nil {
		return true
	}
	more := int64(re.Size()) - re.held
	if more < 4096 && re.held > 0 {
		return true
	}
	if err := re.memory(more); err != nil {
		re.err = ErrStopped
		return false
	}
	re.held += more
	return true
}

// Err returns the error that ended a search early: ErrTooHard or ErrStopped. The next search clears
// it.
func (re *Regexp) Err() error { return re.err }

// NumSubexp returns the number of submatches.
func (re *Regexp) NumSubexp() int { return re.groups }

// SubexpNames returns the names of the submatches, "" for a submatch without a name. The name of
// submatch i is at i-1.
func (re *Regexp) SubexpNames() []string { return re.names }

// LiteralText returns the text of a pattern that matches exactly one text.
func (re *Regexp) LiteralText() ([]byte, bool) { return re.lit, re.isLit }

// pay pays for n units of about a nanosecond each.
func (re *Regexp) pay(n int) bool {
	if re.work += n; re.work < 1<<16 || re.budget == nil {
		return true
	}
	steps := re.work >> 7
	re.work = 0
	if !re.budget(steps) {
		re.err = ErrStopped
		return false
	}
	return true
}

// Match reports whether the text has a match.
func (re *Regexp) Match(b []byte) bool {
	re.err = nil
	if re.isLit {
		re.pay(len(b) / 16)
		return bytes.Contains(b, re.lit)
	}
	if re.hard || re.begin || re.prog.conds&condEndTextNL != 0 {
		s, _ := re.find(b, 0)
		return s >= 0
	}
	if re.must != nil && !bytes.Contains(b, re.must) {
		return false
	}
	end, ok := re.scanner().search(re, b, 0)
	if !ok {
		return re.simulate(b, 0, false, nil) && re.err == nil
	}
	return end >= 0
}

// MatchString is Match for a string.
func (re *Regexp) MatchString(s string) bool { return re.Match([]byte(s)) }

// FindIndex returns the position of the leftmost match that begins at from or later. The text
// before from is context. Both numbers are -1 when there is no match.
func (re *Regexp) FindIndex(b []byte, from int) (start, end int) {
	re.err = nil
	return re.find(b, from)
}

// MayGrow reports whether the match that begins at start and ends at end could be a longer one if
// more came behind b. A reader of a stream asks that before it takes a match. With only one byte
// behind the match it says so without need.
func (re *Regexp) MayGrow(b []byte, start, end int) bool {
	if end == len(b) {
		return true
	}
	if re.hard {
		return false
	}
	_, at, ok := re.anchored().longest(re, b, start)
	return !ok || at == len(b)
}

// FindSubmatchIndex returns the positions of the match and of its submatches as pairs, or nil
// without a match. A pair is -1 for a submatch that took no part. The slice is valid until the next
// search.
func (re *Regexp) FindSubmatchIndex(b []byte, from int) []int {
	re.err = nil
	for i := range re.loc {
		re.loc[i] = -1
	}
	if re.hard {
		if !re.backtrack(b, from) {
			return nil
		}
		return re.loc
	}
	s, e := re.find(b, from)
	if s < 0 {
		return nil
	}
	re.loc[0], re.loc[1] = s, e
	if re.groups > 0 {
		if !re.submatches(b, s, e) && !re.simulate(b, s, true, re.loc) {
			return nil
		}
		re.loc[0], re.loc[1] = s, e
	}
	return re.loc
}

func (re *Regexp) find(b []byte, from int) (int, int) {
	if from > len(b) {
		return -1, -1
	}
	switch {
	case re.isLit:
		re.pay((len(b) - from) / 16)
		i := bytes.Index(b[from:], re.lit)
		if i < 0 {
			return -1, -1
		}
		return from + i, from + i + len(re.lit)
	case re.must != nil && !bytes.Contains(b[from:], re.must):
		re.pay((len(b) - from) / 16)
		return -1, -1
	case re.hard:
		if !re.backtrack(b, from) {
			return -1, -1
		}
		return re.loc[0], re.loc[1]
	case re.begin && from > 0:
		return -1, -1
	case re.prog.conds&condEndTextNL == 0:
		if s, e, ok := re.trials(b, from); ok {
			return s, e
		}
	}
	loc := [2]int{-1, -1}
	if !re.simulate(b, from, false, loc[:]) {
		return -1, -1
	}
	return loc[0], loc[1]
}

// trials finds the first position of a match by trying the likely ones. ok is false when this takes
// too long or the automaton can't decide.
func (re *Regexp) trials(b []byte, from int) (start, end int, ok bool) {
	d := re.anchored()
	spent, allowed, known := 0, 512, false
	for i := from; ; i++ {
		switch {
		case len(re.prefix) > 0:
			k := bytes.Index(b[i:], re.prefix)
			if k < 0 {
				return -1, -1, true
			}
			i += k
		case re.bytes1 != nil:
			for i < len(b) && !re.bytes1[b[i]] {
				i++
			}
			if i == len(b) {
				return -1, -1, true
			}
		}
		e, at, ok := d.longest(re, b, i)
		if !ok {
			return 0, 0, false
		}
		if e >= 0 {
			return i, e, re.pay(i - from)
		}
		if i >= len(b) || re.begin {
			return -1, -1, true
		}
		if spent += at - i; spent > allowed+4*(i-from) {
			if known {
				return 0, 0, false
			}
			known = true
			allowed = spent + 16*len(b)
			if e, ok := re.scanner().search(re, b, i+1); !ok {
				return 0, 0, false
			} else if e < 0 {
				return -1, -1, true
			}
		}
	}
}

func (re *Regexp) scanner() *dfa {
	if re.scan == nil {
		re.scan = newDFA(re.prog, re.flags&Lines != 0, true, false)
	}
	return re.scan
}

func (re *Regexp) anchored() *dfa {
	if re.anchor == nil {
		re.anchor = newDFA(re.prog, re.flags&Lines != 0, false, re.first)
	}
	return re.anchor
}

// NextLine returns the first matching line at from or later, without its newline. from is the
// beginning of a line. The pattern must have been compiled with Lines. start is -1 when no line
// matches.
func (re *Regexp) NextLine(b []byte, from int) (start, end int) {
	re.err = nil
	text := b
	if n := len(b); n > from && b[n-1] == '\n' {
		text = b[:n-1]
	}
	for from < len(b) && from <= len(text) && re.err == nil {
		at := -1
		sure := re.isLit
		switch {
		case re.must != nil:
			if at = bytes.Index(text[from:], re.must); at >= 0 {
				at += from
			}
			re.pay((len(text) - from) / 64)
		case !re.hard && !re.isLit:
			var ok bool
			at, ok = re.scanner().search(re, text, from)
			if sure = ok; !ok {
				at = re.scan.quitAt
			}
		default:
			at = from
		}
		if at < 0 || !re.pay(0) {
			return -1, -1
		}
		ls := bytes.LastIndexByte(text[from:at], '\n') + 1 + from
		le := len(text)
		if i := bytes.IndexByte(text[at:], '\n'); i >= 0 {
			le = at + i
		}
		if sure || re.matchLine(text[ls:le]) {
			return ls, le
		}
		from = le + 1
	}
	return -1, -1
}

// matchLine is Match, but does not clear the error.
func (re *Regexp) matchLine(line []byte) bool {
	if !re.pay(20) {
		return false
	}
	if re.hard {
		return re.backtrack(line, 0)
	}
	end, ok := re.scanner().search(re, line, 0)
	if !ok {
		return re.simulate(line, 0, false, nil)
	}
	return end >= 0
}
