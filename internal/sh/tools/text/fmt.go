package text

import (
	"bytes"
	"io"
	"math"
	"strings"

	"github.com/carrel-dev/carrel/internal/sh/tool"
	"github.com/carrel-dev/carrel/internal/sh/tools/text/usage"
)

// The weights of GNU fmt, which breaks a paragraph where the sum of these costs is least.
const (
	fmtLine     = 70 * 70
	fmtSentence = 50 * 50
	fmtNoBreak  = 600 * 600
	fmtParen    = 40 * 40
	fmtPunct    = 40 * 40
	fmtCredit   = 3 * 3
	fmtWords    = 1000 // a longer paragraph is broken in parts
)

func fmtShort(n int) int  { return n * 10 * n * 10 }
func fmtRagged(n int) int { return fmtShort(n) / 2 }

// fmtWord is a word of a paragraph.
type fmtWord struct {
	text                        []byte
	space                       int
	paren, period, punct, final bool
	lineLength, cost, next      int
}

// formatter is one run of fmt.
type formatter struct {
	w                              *strings.Builder
	out                            io.Writer
	width, goal                    int
	crown, split, tagged, uniform  bool
	prefix                         string
	lead                           int // blanks before the prefix
	words                          []fmtWord
	tabs                           bool
	firstIndent, otherIndent, last int
	prefixIndent                   int
}

// fmtIn is a line of the input: where its prefix stands, where its text begins and the text.
type fmtIn struct {
	prefixAt, col int
	text          []byte
	matched       bool // the whole prefix was there
	raw           []byte
	eof           bool
}

// look finds the prefix and the first column of text of a line.
func (t *formatter) look(l []byte) fmtIn {
	in := fmtIn{raw: l}
	skip := func(b []byte) []byte {
		for len(b) > 0 && (b[0] == ' ' || b[0] == '\t') {
			if b[0] == '\t' {
				t.tabs = true
				in.col += 8 - in.col%8
			} else {
				in.col++
			}
			b = b[1:]
		}
		return b
	}
	rest := skip(l)
	in.prefixAt = in.col
	if t.prefix == "" {
		in.prefixAt = min(in.col, t.lead)
		in.matched, in.text = true, rest
		return in
	}
	in.prefixAt = in.col
	if bytes.HasPrefix(rest, []byte(t.prefix)) {
		in.matched = true
		in.col += len(t.prefix)
		rest = skip(rest[len(t.prefix):])
	}
	in.text = rest
	return in
}

// read splits a line into words.
func (t *formatter) read(in fmtIn) {
	col, b := in.col, in.text
	for len(b) > 0 {
		n := 0
		for n < len(b) && !space[b[n]] {
			n++
		}
		w := fmtWord{text: b[:n:n]}
		w.check()
		col += n
		b = b[n:]
		start := col
		for len(b) > 0 && space[b[0]] {
			if b[0] == '\t' {
				t.tabs = true
				col += 8 - col%8
			} else {
				col++
			}
			b = b[1:]
		}
		w.space = col - start
		w.final = w.period && (len(b) == 0 || w.space > 1)
		if len(b) == 0 || t.uniform {
			w.space = 1
			if w.final {
				w.space = 2
			}
		}
		if n > 0 {
			t.words = append(t.words, w)
		}
		if len(t.words) >= fmtWords {
			t.otherFor(in, true)
			t.flushPart()
		}
	}
}

func (w *fmtWord) check() {
	if len(w.text) == 0 {
		return
	}
	end := len(w.text) - 1
	w.paren = strings.IndexByte("(['`\"", w.text[0]) >= 0
	fin := w.text[end]
	w.punct = fin > ' ' && fin < 0x7f && !alnum(fin)
	for end > 0 && strings.IndexByte(")]'\"", w.text[end]) >= 0 {
		end--
	}
	w.period = strings.IndexByte(".?!", w.text[end]) >= 0
}

// otherFor sets the indentation of the lines after the first.
func (t *formatter) otherFor(in fmtIn, same bool) {
	switch {
	case t.split:
		t.otherIndent = t.firstIndent
	case t.crown:
		t.otherIndent = t.firstIndent
		if same {
			t.otherIndent = in.col
		}
	case t.tagged:
		if same && in.col != t.firstIndent {
			t.otherIndent = in.col
		} else if t.otherIndent == t.firstIndent {
			t.otherIndent = 0
			if t.firstIndent == 0 {
				t.otherIndent = 3
			}
		}
	default:
		t.otherIndent = t.firstIndent
	}
}

// layout chooses the breaks.
func (t *formatter) layout() {
	n := len(t.words)
	t.words = append(t.words, fmtWord{}) // a sentinel
	for start := n - 1; start >= 0; start-- {
		best := math.MaxInt
		length := t.otherIndent
		if start == 0 {
			length = t.firstIndent
		}
		w := start
		length += len(t.words[w].text)
		for {
			w++
			cost := t.lineCost(w, n, length) + t.words[w].cost
			if start == 0 && t.last > 0 {
				cost += fmtRagged(length - t.last)
			}
			if cost < best {
				best = cost
				t.words[start].next, t.words[start].lineLength = w, length
			}
			if w == n {
				break
			}
			length += t.words[w-1].space + len(t.words[w].text)
			if length >= t.width {
				break
			}
		}
		t.words[start].cost = best + t.baseCost(start)
	}
	t.words = t.words[:n]
}

func (t *formatter) baseCost(i int) int {
	cost := fmtLine
	if i > 0 {
		switch p := &t.words[i-1]; {
		case p.period && p.final:
			cost -= fmtSentence
		case p.period:
			cost += fmtNoBreak
		case p.punct:
			cost -= fmtPunct
		case i > 1 && t.words[i-2].final:
			cost += 200 * 200 / (len(p.text) + 2)
		}
	}
	if w := &t.words[i]; w.paren {
		cost -= fmtParen
	} else if w.final {
		cost += 150 * 150 / (len(w.text) + 2)
	}
	return cost
}

func (t *formatter) lineCost(next, n, length int) int {
	if next == n {
		return 0
	}
	cost := fmtShort(t.goal - length)
	if t.words[next].next != n {
		cost += fmtRagged(length - t.words[next].lineLength)
	}
	return cost
}

// put prints the lines up to a word.
func (t *formatter) put(end int) error {
	indent := t.firstIndent
	for i := 0; i < end; i = t.words[i].next {
		if err := t.putLine(i, indent); err != nil {
			return err
		}
		indent = t.otherIndent
	}
	return nil
}

func (t *formatter) putLine(i, indent int) error {
	t.w.Reset()
	col := 0
	spaces := func(n int) {
		target := col + n
		if t.tabs {
			if tab := target / 8 * 8; col+1 < tab {
				for col < tab {
					t.w.WriteByte('\t')
					col = (col/8 + 1) * 8
				}
			}
		}
		for ; col < target; col++ {
			t.w.WriteByte(' ')
		}
	}
	spaces(t.prefixIndent)
	t.w.WriteString(t.prefix)
	col += len(t.prefix)
	spaces(indent - col)
	end := t.words[i].next
	for ; i < end; i++ {
		t.w.Write(t.words[i].text)
		col += len(t.words[i].text)
		if i < end-1 {
			spaces(t.words[i].space)
		}
	}
	t.last = col
	t.w.WriteByte('\n')
	_, err := io.WriteString(t.out, t.w.String())
	return err
}

// flushPart prints part of a paragraph that is too long to be kept.
func (t *formatter) flushPart() {
	t.layout()
	n := len(t.words)
	split, best := n, math.MaxInt
	for w := t.words[0].next; w < n; w = t.words[w].next {
		nextCost := 0
		if k := t.words[w].next; k < n {
			nextCost = t.words[k].cost
		}
		if d := t.words[w].cost - nextCost; d < best {
			split, best = w, d
		}
		if best <= math.MaxInt-fmtCredit {
			best += fmtCredit
		}
	}
	_ = t.put(split) // the last write reports
	t.words = append(t.words[:0], t.words[split:]...)
	t.firstIndent = t.otherIndent
}

// run formats one input.
func (t *formatter) run(c *tool.Call, in io.Reader) error {
	p := newPuller(c, in, '\n')
	var failed error
	next := func() fmtIn {
		l, _, err := p.next()
		if err != nil {
			if err != io.EOF {
				failed = err
			}
			return fmtIn{eof: true}
		}
		return t.look(bytes.Clone(l))
	}
	t.tabs, t.otherIndent = false, 0
	cur := next()
	for !cur.eof {
		if len(cur.text) == 0 || !cur.matched || cur.prefixAt < t.lead {
			out := cur.raw
			if len(cur.text) == 0 && cur.matched {
				out = bytes.TrimRight([]byte(strings.Repeat(" ", min(cur.prefixAt, 1<<16))+t.prefix), " \t")
				if t.prefix == "" {
					out = nil
				}
			}
			if _, err := t.out.Write(append(out[:len(out):len(out)], '\n')); err != nil {
				return err
			}
			cur = next()
			continue
		}
		t.prefixIndent, t.firstIndent, t.last = cur.prefixAt, cur.col, 0
		t.words = t.words[:0]
		t.read(cur)
		cur = next()
		same := func() bool { return !cur.eof && cur.matched && len(cur.text) > 0 && cur.prefixAt == t.prefixIndent }
		t.otherFor(cur, same())
		if !t.split && (!t.tagged || cur.col != t.firstIndent) {
			first := t.crown
			for same() && (first || cur.col == t.otherIndent) {
				t.read(cur)
				cur = next()
				first = false
			}
		}
		if k := len(t.words); k > 0 {
			t.words[k-1].period, t.words[k-1].final = true, true
			t.layout()
			if err := t.put(k); err != nil {
				return err
			}
		}
	}
	return failed
}

func fmtCommand(c *tool.Call) int {
	c.Args = oldWidth(c.Args, "-w")
	f, ok := c.Flags("cstuw:g:p:", "crown-margin=c", "split-only=s", "tagged-paragraph=t", "uniform-spacing=u", "width=w", "goal=g", "prefix=p")
	if !ok {
		return 1
	}
	t := &formatter{w: &strings.Builder{}, crown: f.Has('c'), split: f.Has('s'), tagged: f.Has('t'), uniform: f.Has('u'), width: 75}
	var err error
	if f.Has('w') {
		if t.width, err = atoi(f.Value('w', "")); err == nil && t.width > 2500 {
			return c.Errorf(1, "invalid width: ‘%s’: Numerical result out of range", f.Value('w', ""))
		}
		if err != nil {
			return c.Errorf(1, "invalid width: ‘%s’", f.Value('w', ""))
		}
	}
	t.goal = t.width * 187 / 200
	if f.Has('g') {
		if t.goal, err = atoi(f.Value('g', "")); err != nil || f.Has('w') && t.goal > t.width {
			return c.Errorf(1, "invalid width: ‘%s’", f.Value('g', ""))
		}
		if !f.Has('w') {
			t.width = t.goal + 10
		}
	}
	if p := f.Value('p', ""); p != "" {
		t.prefix = strings.Trim(p, " ")
		t.lead = len(p) - len(strings.TrimLeft(p, " "))
	}
	w := c.Buffered()
	t.out = w
	status := usage.Inputs(c, f.Args, "cannot open '%s' for reading", 1, func(_ string, in io.Reader) error { return t.run(c, in) })
	return c.Flush(w, status)
}
