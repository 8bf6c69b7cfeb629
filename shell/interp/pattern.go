package interp

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"mvdan.cc/sh/v3/syntax"
)

// Shell patterns are matched by following all positions at once, forwards or backwards. The time is
// at most the length of the text times the length of the pattern, times the length of the text
// again for each level of !(…). One walk finds both the shortest and the longest match. Every walk
// costs steps.

// A part of a pattern.
type patKind uint8

const (
	patLit   patKind = iota // text
	patAny                  // ?
	patStar                 // *
	patSet                  // […]
	patGroup                // ?(…) *(…) +(…) @(…) !(…)
)

type patNode struct {
	kind patKind
	lit  string
	set  *charSet
	op   byte
	alts [][]patNode
}

// pattern is a compiled one.
type pattern struct {
	nodes  []patNode
	groups bool // it has groups
	lit    string
	isLit  bool // it is nothing but text
	fold   bool
}

// charSet is a bracket expression.
type charSet struct {
	not     bool
	ranges  [][2]rune
	classes []string
}

// maxPatDepth bounds the nesting of groups.
const maxPatDepth = 60

// compiled returns a pattern's compiled form.
func (r *runner) compiled(pat string, fold, ext bool) *pattern {
	key := pat
	if !ext {
		key = "\x01" + pat
	}
	if fold {
		key = "\x00" + key
	}
	if p, ok := r.pats[key]; ok {
		return p
	}
	p := &pattern{fold: fold}
	depth := 0
	if !ext {
		depth = maxPatDepth // no groups
	}
	p.nodes = parsePattern(pat, depth, &p.groups)
	switch {
	case len(p.nodes) == 0:
		p.isLit = true
	case len(p.nodes) == 1 && p.nodes[0].kind == patLit:
		p.isLit, p.lit = true, p.nodes[0].lit
	}
	const most = 128
	if r.pats == nil || len(r.pats) >= most {
		r.pats = make(map[string]*pattern)
	}
	r.pats[key] = p
	return p
}

// parsePattern parses a pattern. An incomplete group or bracket is ordinary text.
func parsePattern(pat string, depth int, groups *bool) []patNode {
	var out []patNode
	var lit []byte
	flush := func() {
		if len(lit) > 0 {
			out = append(out, patNode{kind: patLit, lit: string(lit)})
			lit = nil
		}
	}
	for i := 0; i < len(pat); {
		c := pat[i]
		if i+1 < len(pat) && pat[i+1] == '(' && strings.IndexByte("?*+@!", c) >= 0 && depth < maxPatDepth {
			if body, end, ok := group(pat, i+1); ok {
				flush()
				n := patNode{kind: patGroup, op: c}
				for _, alt := range alternatives(body) {
					n.alts = append(n.alts, parsePattern(alt, depth+1, groups))
				}
				*groups = true
				out = append(out, n)
				i = end
				continue
			}
		}
		switch c {
		case '*':
			flush()
			if len(out) == 0 || out[len(out)-1].kind != patStar {
				out = append(out, patNode{kind: patStar})
			}
			i++
		case '?':
			flush()
			out = append(out, patNode{kind: patAny})
			i++
		case '[':
			if set, end, ok := parseBracket(pat, i); ok {
				flush()
				out = append(out, patNode{kind: patSet, set: set})
				i = end
				continue
			}
			lit = append(lit, c)
			i++
		case '\\':
			if i+1 < len(pat) {
				i++
			}
			lit = append(lit, pat[i])
			i++
		default:
			lit = append(lit, c)
			i++
		}
	}
	flush()
	return out
}

// group returns the text inside the parentheses that open at i.
func group(pat string, i int) (body string, end int, ok bool) {
	depth := 0
	for j := i; j < len(pat); j++ {
		switch pat[j] {
		case '\\':
			j++
		case '[':
			if _, e, ok := parseBracket(pat, j); ok && j > i {
				j = e - 1
			}
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return pat[i+1 : j], j + 1, true
			}
		}
	}
	return "", 0, false
}

// alternatives splits a group at its bars, except those of inner groups.
func alternatives(body string) []string {
	var out []string
	depth, start := 0, 0
	for i := 0; i < len(body); i++ {
		switch body[i] {
		case '\\':
			i++
		case '[':
			if _, e, ok := parseBracket(body, i); ok {
				i = e - 1
			}
		case '(':
			depth++
		case ')':
			depth--
		case '|':
			if depth == 0 {
				out = append(out, body[start:i])
				start = i + 1
			}
		}
	}
	return append(out, body[start:])
}

// parseBracket parses the bracket expression that opens at i.
func parseBracket(pat string, i int) (set *charSet, end int, ok bool) {
	j := i + 1
	set = &charSet{}
	if j < len(pat) && (pat[j] == '!' || pat[j] == '^') {
		set.not = true
		j++
	}
	one := func() (rune, bool) { // a single element at j
		switch {
		case pat[j] == '\\' && j+1 < len(pat):
			j++
		case pat[j] == '[' && j+1 < len(pat) && (pat[j+1] == '.' || pat[j+1] == '='):
			e := strings.Index(pat[j+2:], string(pat[j+1])+"]")
			if e < 0 {
				break
			}
			c, n := utf8.DecodeRuneInString(pat[j+2:])
			if n != e {
				return 0, false
			}
			j += e + 4
			return c, true
		}
		c, n := utf8.DecodeRuneInString(pat[j:])
		if c == utf8.RuneError && n <= 1 {
			c, n = -rune(pat[j]), 1 // a byte that is no character
		}
		j += n
		return c, true
	}
	for first := true; j < len(pat); first = false {
		if pat[j] == ']' && !first {
			return set, j + 1, true
		}
		if strings.HasPrefix(pat[j:], "[:") {
			if e := strings.Index(pat[j:], ":]"); e > 0 {
				set.classes = append(set.classes, pat[j+2:j+e])
				j += e + 2
				continue
			}
		}
		lo, ok := one()
		if !ok {
			return nil, 0, false
		}
		hi := lo
		if j+1 < len(pat) && pat[j] == '-' && pat[j+1] != ']' {
			j++
			if hi, ok = one(); !ok {
				return nil, 0, false
			}
		}
		set.ranges = append(set.ranges, [2]rune{lo, hi})
	}
	return nil, 0, false
}

func (s *charSet) has(c rune, fold bool) bool {
	in := s.in(c)
	if !in && fold {
		in = s.in(unicode.ToLower(c)) || s.in(unicode.ToUpper(c))
	}
	return in != s.not
}

func (s *charSet) in(c rune) bool {
	for _, g := range s.ranges {
		if g[0] <= c && c <= g[1] {
			return true
		}
	}
	for _, name := range s.classes {
		if inCharClass(name, c) {
			return true
		}
	}
	return false
}

func inCharClass(name string, c rune) bool {
	switch name {
	case "alpha":
		return unicode.IsLetter(c)
	case "digit":
		return c >= '0' && c <= '9'
	case "alnum":
		return unicode.IsLetter(c) || unicode.IsDigit(c)
	case "upper":
		return unicode.IsUpper(c)
	case "lower":
		return unicode.IsLower(c)
	case "space":
		return c != 0xa0 && unicode.IsSpace(c)
	case "blank":
		return c == ' ' || c == '\t'
	case "punct":
		return c > ' ' && c < 0x7f && !unicode.IsLetter(c) && !unicode.IsDigit(c) || c > 0x7f && (unicode.IsPunct(c) || unicode.IsSymbol(c))
	case "print":
		return c >= ' ' && c != 0x7f && (c < 0x80 || printable(c))
	case "graph":
		return c > ' ' && c != 0x7f && (c < 0x80 || unicode.IsGraphic(c) && !unicode.IsSpace(c))
	case "cntrl":
		return c >= 0 && c < ' ' || c == 0x7f || c >= 0x80 && c < 0xa0
	case "xdigit":
		return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
	case "word":
		return c == '_' || unicode.IsLetter(c) || unicode.IsDigit(c)
	case "ascii":
		return c >= 0 && c < 0x80
	}
	return false
}

// decode reads the character at i. A byte that is not part of a character is returned as a negative
// number.
func decode(s string, i int) (rune, int) {
	if c := s[i]; c < utf8.RuneSelf {
		return rune(c), 1
	}
	c, n := utf8.DecodeRuneInString(s[i:])
	if c == utf8.RuneError && n <= 1 {
		return -rune(s[i]), 1
	}
	return c, n
}

// decodeLast reads the character before i.
func decodeLast(s string, i int) (rune, int) {
	if c := s[i-1]; c < utf8.RuneSelf {
		return rune(c), 1
	}
	c, n := utf8.DecodeLastRuneInString(s[:i])
	if c == utf8.RuneError && n <= 1 {
		return -rune(s[i-1]), 1
	}
	return c, n
}

// match reports whether a pattern matches all of s.
func (r *runner) match(pat, s string) bool { return r.matchFold(pat, s, r.opts.nocasematch) }

func (r *runner) matchFold(pat, s string, fold bool) bool {
	return r.matchExt(pat, s, fold, r.opts.extglob)
}

func (r *runner) matchExt(pat, s string, fold, ext bool) bool {
	if !fold && !strings.ContainsAny(pat, "*?[\\+@!(") {
		return pat == s
	}
	p := r.compiled(pat, fold, ext)
	switch {
	case p.isLit && !fold:
		return p.lit == s
	case p.isLit:
		return litPrefix(s, p.lit, true) == len(s) && (len(s) > 0 || p.lit == "")
	case !p.groups:
		return p.simple(s)
	}
	w := walk{r: r, s: s, fold: fold}
	ends := w.forward(p.nodes, []int{0})
	return len(ends) > 0 && ends[len(ends)-1] == len(s)
}

// litPrefix returns the length of the part of s that lit matches at its start, or -1 if it does not
// match.
func litPrefix(s, lit string, fold bool) int {
	if !fold {
		if strings.HasPrefix(s, lit) {
			return len(lit)
		}
		return -1
	}
	i := 0
	for j := 0; j < len(lit); {
		if i >= len(s) {
			return -1
		}
		a, n := decode(s, i)
		b, m := decode(lit, j)
		if a != b && unicode.ToLower(a) != unicode.ToLower(b) {
			return -1
		}
		i, j = i+n, j+m
	}
	return i
}

func litSuffix(s, lit string, fold bool) int {
	if !fold {
		if strings.HasSuffix(s, lit) {
			return len(lit)
		}
		return -1
	}
	i := len(s)
	for j := len(lit); j > 0; {
		if i == 0 {
			return -1
		}
		a, n := decodeLast(s, i)
		b, m := decodeLast(lit, j)
		if a != b && unicode.ToLower(a) != unicode.ToLower(b) {
			return -1
		}
		i, j = i-n, j-m
	}
	return len(s) - i
}

// take returns the length of the part of s that a node matches at its start, or -1 if it does not
// match. The node must not be a star or a group.
func (n *patNode) take(s string, fold bool) int {
	switch {
	case n.kind == patLit:
		return litPrefix(s, n.lit, fold)
	case s == "":
		return -1
	}
	c, w := decode(s, 0)
	if n.kind == patSet && !n.set.has(c, fold) {
		return -1
	}
	return w
}

// simple matches all of s against a pattern without groups. In such a pattern only the last star
// must be tried again.
func (p *pattern) simple(s string) bool {
	i, j := 0, 0
	starAt, starFrom := -1, 0
	for {
		if j < len(p.nodes) {
			n := &p.nodes[j]
			if n.kind == patStar {
				starAt, starFrom = j, i
				j++
				continue
			}
			if w := n.take(s[i:], p.fold); w >= 0 {
				i, j = i+w, j+1
				continue
			}
		} else if i == len(s) {
			return true
		}
		if starAt < 0 || starFrom >= len(s) {
			return false
		}
		_, w := decode(s, starFrom)
		starFrom += w
		if next := starAt + 1; next < len(p.nodes) && p.nodes[next].kind == patLit && !p.fold {
			at := strings.Index(s[starFrom:], p.nodes[next].lit)
			if at < 0 {
				return false
			}
			starFrom += at
		}
		i, j = starFrom, starAt+1
	}
}

// walk follows a pattern from a set of positions.
type walk struct {
	r    *runner
	s    string
	fold bool
	paid int
}

// pay charges n steps of work, and reports whether to go on.
func (w *walk) pay(n int) bool {
	if w.paid += n; w.paid > 4096 {
		w.r.stepN(w.paid / 16)
		w.paid = 0
	}
	return w.r.flow == flowNone
}

// forward returns all positions, in order, where a match from one of the given positions can end.
func (w *walk) forward(nodes []patNode, from []int) []int {
	for i := range nodes {
		if len(from) == 0 {
			return nil
		}
		if from = w.node(&nodes[i], from, false); !w.pay(len(from) + 1) {
			return nil
		}
	}
	return from
}

// backward returns all positions where a match that ends at one of the given
// positions can begin.
func (w *walk) backward(nodes []patNode, from []int) []int {
	for i := len(nodes) - 1; i >= 0; i-- {
		if len(from) == 0 {
			return nil
		}
		if from = w.node(&nodes[i], from, true); !w.pay(len(from) + 1) {
			return nil
		}
	}
	return from
}

// node follows one part of a pattern from positions in order.
func (w *walk) node(n *patNode, from []int, back bool) []int {
	switch n.kind {
	case patStar:
		if back {
			return w.all(0, from[len(from)-1])
		}
		return w.all(from[0], len(w.s))
	case patGroup:
		return w.group(n, from, back)
	}
	out := make([]int, 0, len(from))
	for _, at := range from {
		if to := w.one(n, at, back); to >= 0 {
			out = append(out, to)
		}
	}
	return out
}

// one follows a text, ? or […] from one position. It returns -1 if it does not match.
func (w *walk) one(n *patNode, at int, back bool) int {
	if n.kind == patLit {
		if back {
			if k := litSuffix(w.s[:at], n.lit, w.fold); k >= 0 {
				return at - k
			}
			return -1
		}
		if k := litPrefix(w.s[at:], n.lit, w.fold); k >= 0 {
			return at + k
		}
		return -1
	}
	if back {
		if at == 0 {
			return -1
		}
		c, k := decodeLast(w.s, at)
		if n.kind == patSet && !n.set.has(c, w.fold) {
			return -1
		}
		return at - k
	}
	if at == len(w.s) {
		return -1
	}
	c, k := decode(w.s, at)
	if n.kind == patSet && !n.set.has(c, w.fold) {
		return -1
	}
	return at + k
}

// all lists the positions between characters, from lo to hi.
func (w *walk) all(lo, hi int) []int {
	out := make([]int, 0, hi-lo+1)
	for i := lo; i < hi; {
		out = append(out, i)
		_, n := decode(w.s, i)
		i += n
	}
	return append(out, hi)
}

func (w *walk) alternatives(n *patNode, from []int, back bool) []int {
	var out []int
	for _, alt := range n.alts {
		if back {
			out = merge(out, w.backward(alt, from))
		} else {
			out = merge(out, w.forward(alt, from))
		}
	}
	return out
}

func (w *walk) group(n *patNode, from []int, back bool) []int {
	switch n.op {
	case '@':
		return w.alternatives(n, from, back)
	case '?':
		return merge(from, w.alternatives(n, from, back))
	case '*', '+':
		seen := from
		if n.op == '+' {
			seen = nil
		}
		for next := from; len(next) > 0; {
			reached := w.alternatives(n, next, back)
			next = remove(reached, seen)
			seen = merge(seen, next)
			if !w.pay(len(reached) + 1) {
				return nil
			}
		}
		return seen
	}
	var out []int
	for _, at := range from { // !(…): all texts that no alternative matches
		taken := w.alternatives(n, []int{at}, back)
		var rest []int
		if back {
			rest = w.all(0, at)
		} else {
			rest = w.all(at, len(w.s))
		}
		out = merge(out, remove(rest, taken))
		if !w.pay(len(rest) + 1) {
			return nil
		}
	}
	return out
}

// merge merges two ordered lists.
func merge(a, b []int) []int {
	switch {
	case len(a) == 0:
		return b
	case len(b) == 0:
		return a
	}
	out := make([]int, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		switch {
		case a[0] < b[0]:
			out, a = append(out, a[0]), a[1:]
		case a[0] > b[0]:
			out, b = append(out, b[0]), b[1:]
		default:
			out, a, b = append(out, a[0]), a[1:], b[1:]
		}
	}
	return append(append(out, a...), b...)
}

// remove returns the elements of a that are not in b. Both are in order.
func remove(a, b []int) []int {
	out := make([]int, 0, len(a))
	for _, x := range a {
		for len(b) > 0 && b[0] < x {
			b = b[1:]
		}
		if len(b) == 0 || b[0] != x {
			out = append(out, x)
		}
	}
	return out
}

// trimPattern removes a matching prefix or suffix.
func (r *runner) trimPattern(s, pat string, op syntax.ParExpOperator) string {
	p := r.compiled(pat, false, r.opts.extglob)
	prefix := op == syntax.RemSmallPrefix || op == syntax.RemLargePrefix
	if p.isLit {
		if prefix {
			return strings.TrimPrefix(s, p.lit)
		}
		return strings.TrimSuffix(s, p.lit)
	}
	if len(p.nodes) == 2 { // the usual cases: */ and .*
		a, b := p.nodes[0], p.nodes[1]
		at := -2
		switch {
		case a.kind == patStar && b.kind == patLit && op == syntax.RemSmallPrefix:
			at = strings.Index(s, b.lit)
		case a.kind == patStar && b.kind == patLit && op == syntax.RemLargePrefix:
			at = strings.LastIndex(s, b.lit)
		case a.kind == patLit && b.kind == patStar && op == syntax.RemSmallSuffix:
			at = strings.LastIndex(s, a.lit)
		case a.kind == patLit && b.kind == patStar && op == syntax.RemLargeSuffix:
			at = strings.Index(s, a.lit)
		}
		switch {
		case at == -1:
			return s
		case at >= 0 && prefix:
			return s[at+len(b.lit):]
		case at >= 0:
			return s[:at]
		}
	}
	w := walk{r: r, s: s}
	if prefix {
		ends := w.forward(p.nodes, []int{0})
		switch {
		case len(ends) == 0:
			return s
		case op == syntax.RemSmallPrefix:
			return s[ends[0]:]
		}
		return s[ends[len(ends)-1]:]
	}
	starts := w.backward(p.nodes, []int{len(s)})
	switch {
	case len(starts) == 0:
		return s
	case op == syntax.RemSmallSuffix:
		return s[:starts[len(starts)-1]]
	}
	return s[:starts[0]]
}

// The places where replacePattern replaces.
const (
	replaceFirst = iota
	replaceAll
	replaceFront
	replaceBack
)

// replacement replaces a match. It is a list of texts, and the match itself is inserted between
// them.
type replacement []string

func (rep replacement) write(b *strings.Builder, match string) {
	for i, s := range rep {
		if i > 0 {
			b.WriteString(match)
		}
		b.WriteString(s)
	}
}

func (rep replacement) size(match int) int {
	n := match * (len(rep) - 1)
	for _, s := range rep {
		n += len(s)
	}
	return n
}

// replacePattern replaces the longest match of a pattern.
func (r *runner) replacePattern(s, pat string, rep replacement, mode int) string {
	fold := r.opts.nocasematch
	p := r.compiled(pat, fold, r.opts.extglob)
	if len(p.nodes) == 0 {
		switch mode {
		case replaceFront:
			return strings.Join(rep, "") + s
		case replaceBack:
			return s + strings.Join(rep, "")
		}
		return s
	}
	var b strings.Builder
	switch mode {
	case replaceFront:
		end := r.longestAt(p, s, 0)
		if end < 0 {
			return s
		}
		rep.write(&b, s[:end])
		return b.String() + s[end:]
	case replaceBack:
		w := walk{r: r, s: s, fold: fold}
		starts := w.backward(p.nodes, []int{len(s)})
		if len(starts) == 0 {
			return s
		}
		b.WriteString(s[:starts[0]])
		rep.write(&b, s[starts[0]:])
		return b.String()
	}
	at := 0
	for i := 0; i < len(s) || len(s) == 0; {
		if p.nodes[0].kind == patLit && !fold {
			k := strings.Index(s[i:], p.nodes[0].lit)
			if k < 0 {
				break
			}
			i += k
		}
		end := r.longestAt(p, s, i)
		if r.flow != flowNone {
			return ""
		}
		if end < 0 {
			if i == len(s) || p.nodes[0].kind == patStar {
				break // a pattern that begins with a star and fails here fails everywhere
			}
			_, n := decode(s, i)
			i += n
			continue
		}
		b.WriteString(s[at:i])
		if n := rep.size(end - i); b.Len()+n > 1<<16 {
			if r.pay(n); r.flow != flowNone {
				return ""
			}
		}
		rep.write(&b, s[i:end])
		at = end
		if mode == replaceFirst || end == len(s) {
			break
		}
		if end == i { // after an empty match, copy one character
			_, n := decode(s, i)
			b.WriteString(s[i : i+n])
			at += n
		}
		i = at
	}
	b.WriteString(s[at:])
	return b.String()
}

// longestAt returns the end of the longest match that begins at i, or -1 if there is none.
func (r *runner) longestAt(p *pattern, s string, i int) int {
	if last := len(p.nodes) - 1; last > 0 && p.nodes[last].kind == patLit && !p.fold && !strings.Contains(s[i:], p.nodes[last].lit) {
		return -1
	}
	at := i
	for j := range p.nodes { // before the first star or group there is only one way to match
		n := &p.nodes[j]
		if n.kind == patStar && j == len(p.nodes)-1 {
			return len(s)
		}
		if n.kind == patStar || n.kind == patGroup {
			w := walk{r: r, s: s, fold: p.fold}
			ends := w.forward(p.nodes[j:], []int{at})
			r.stepN(w.paid / 16)
			if len(ends) == 0 {
				return -1
			}
			return slices.Max(ends)
		}
		k := n.take(s[at:], p.fold)
		if k < 0 {
			return -1
		}
		at += k
	}
	return at
}
