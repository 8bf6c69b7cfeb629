package text

import (
	"bufio"
	"bytes"
	"io"
	"strings"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/tools/text/usage"
)

// taggedIndent is the indentation of the second line with -t, for a paragraph of one line that is
// not indented.
const taggedIndent = 3

// formatter is one run of fmt.
type formatter struct {
	filler
	purse  *usage.Purse
	out    *bufio.Writer
	crown  bool   // -c
	split  bool   // -s
	tagged bool   // -t
	even   bool   // -u
	prefix string // -p
	tabs   bool   // the input has tabs in its blanks, so the output gets some

	paragraph []fmtLine
	held      int // bytes paid for the paragraph
}

// fmtLine is a line that may be part of a paragraph.
type fmtLine struct {
	prefixAt int // the column of the prefix; 0 without one
	textAt   int // the column of the text
	text     []byte
}

// blankTable has the bytes between words.
const blankTable = " \t"

// blanks returns the column after the blanks at the beginning of b, and the rest of b.
func (t *formatter) blanks(b []byte, column int) (int, []byte) {
	for len(b) > 0 {
		switch b[0] {
		case '\t':
			t.tabs = true
			column += 8 - column%8
		case ' ':
			column++
		default:
			return column, b
		}
		b = b[1:]
	}
	return column, b
}

// parse analyzes a line. ok is false if it lacks the prefix. A line without text is not part of a
// paragraph.
func (t *formatter) parse(line []byte) (l fmtLine, ok bool) {
	prefix := strings.TrimLeft(t.prefix, blankTable)
	indent := len(t.prefix) - len(prefix)
	at, rest := t.blanks(line, 0)
	if len(rest) == 0 {
		return l, true
	}
	if at < indent {
		return l, false
	}
	l.textAt = at
	if prefix != "" {
		l.prefixAt = at
		if !bytes.HasPrefix(rest, []byte(prefix)) {
			return l, false
		}
		// Blanks at the end of the prefix count as blanks before the text.
		prefix = strings.TrimRight(prefix, blankTable)
		l.textAt, rest = t.blanks(rest[len(prefix):], at+len(prefix))
	}
	l.text = bytes.TrimRight(rest, blankTable)
	return l, true
}

// joins reports whether a line belongs to the current paragraph.
func (t *formatter) joins(l fmtLine) bool {
	n := len(t.paragraph)
	if n == 0 {
		return true
	}
	first := t.paragraph[0]
	switch {
	case t.split || l.prefixAt != first.prefixAt:
		return false
	case n == 1 && t.tagged:
		return l.textAt != first.textAt
	case n == 1 && t.crown:
		return true
	}
	return l.textAt == t.paragraph[n-1].textAt
}

// line handles a line of the input.
func (t *formatter) line(line []byte) error {
	l, ok := t.parse(line)
	if ok && len(l.text) > 0 {
		if !t.joins(l) {
			if err := t.flush(); err != nil {
				return err
			}
		}
		return t.hold(l)
	}
	if err := t.flush(); err != nil {
		return err
	}
	if ok {
		line = bytes.TrimRight(line, blankTable)
	}
	_, _ = t.out.Write(line) // the writer keeps its first error
	return t.out.WriteByte('\n')
}

// hold adds a line to the paragraph.
func (t *formatter) hold(l fmtLine) error {
	const perByte = 32 // a word of one byte and its share of the tables
	size := len(l.text)*perByte + 64
	if err := t.purse.Pay(size); err != nil {
		return err
	}
	t.held += size
	l.text = bytes.Clone(l.text)
	t.paragraph = append(t.paragraph, l)
	return nil
}

// flush writes the paragraph.
func (t *formatter) flush() error {
	if len(t.paragraph) == 0 {
		return nil
	}
	var words []fillWord
	for _, l := range t.paragraph {
		words = t.wordsOf(words, l)
	}
	first, other := t.indents()
	starts, ok := t.fill(words, first, other)
	if !ok {
		return tool.ErrStop
	}
	indent := first
	for i := range starts[1:] {
		if err := t.put(words[starts[i]:starts[i+1]], indent); err != nil {
			return err
		}
		indent = other
	}
	t.paragraph = t.paragraph[:0]
	err := t.purse.Pay(-t.held)
	t.held = 0
	return err
}

// indents returns the indentation of the first line and of the other lines of the paragraph.
func (t *formatter) indents() (first, other int) {
	first = t.paragraph[0].textAt
	switch {
	case len(t.paragraph) > 1:
		return first, t.paragraph[1].textAt
	case !t.tagged || t.split:
		return first, first
	}
	// There is no second line to copy the indentation from. It must differ from the first.
	start := t.paragraph[0].prefixAt + len(strings.Trim(t.prefix, blankTable))
	if first == start {
		return first, first + taggedIndent
	}
	return first, start
}

// wordsOf appends the words of a line.
func (t *formatter) wordsOf(words []fillWord, l fmtLine) []fillWord {
	column, rest := l.textAt, l.text
	for len(rest) > 0 {
		n := bytes.IndexAny(rest, blankTable)
		if n < 0 {
			n = len(rest)
		}
		w := fillWord{text: rest[:n:n]}
		column += n
		end := column
		column, rest = t.blanks(rest[n:], column)
		stop := sentenceStop(w.text)
		w.gap = column - end
		w.endSentence = stop && (w.gap != 1)
		if t.even || w.gap == 0 { // 0 is the line's end
			w.gap = 1
			if w.endSentence {
				w.gap = 2
			}
		}
		words = append(words, w)
	}
	return words
}

// sentenceStop reports whether a word can end a sentence: it ends with a full stop, a question mark
// or an exclamation mark, which closing brackets and quotes may follow.
func sentenceStop(word []byte) bool {
	word = bytes.TrimRight(word, `)]'"`)
	return len(word) > 0 && bytes.IndexByte([]byte(".?!"), word[len(word)-1]) >= 0
}

// put writes a line.
func (t *formatter) put(words []fillWord, indent int) error {
	at := t.paragraph[0].prefixAt
	column := t.space(0, at)
	prefix := strings.Trim(t.prefix, blankTable)
	_, _ = t.out.WriteString(prefix) // the writer keeps its first error
	column = t.space(column+len(prefix), indent)
	for i, w := range words {
		_, _ = t.out.Write(w.text)
		if column += len(w.text); i+1 < len(words) {
			column = t.space(column, column+w.gap)
		}
	}
	return t.out.WriteByte('\n')
}

// space writes blanks from one column to another. It uses tabs if the input has some.
func (t *formatter) space(from, to int) int {
	if t.tabs && to-from > 1 {
		for stop := from/8*8 + 8; stop <= to; stop += 8 {
			_ = t.out.WriteByte('\t')
			from = stop
		}
	}
	for ; from < to; from++ {
		_ = t.out.WriteByte(' ')
	}
	return to
}

// run formats an input.
func (t *formatter) run(c *tool.Call, in io.Reader) error {
	t.tabs = false
	p := newPuller(c, in, '\n')
	for {
		line, _, err := p.next()
		if err == io.EOF {
			return t.flush()
		}
		if err == nil {
			err = t.line(line)
		}
		if err != nil {
			t.paragraph = nil // the next input has its own
			return err
		}
	}
}

// fmtCommand fills paragraphs. If a paragraph can be filled in several ways, the result may differ
// from that of other fmt programs.
func fmtCommand(c *tool.Call) int {
	c.Args = oldWidth(c.Args, "-w")
	f, ok := c.Flags("cstuw:g:p:", "crown-margin=c", "split-only=s", "tagged-paragraph=t", "uniform-spacing=u", "width=w", "goal=g", "prefix=p")
	if !ok {
		return 1
	}
	t := &formatter{filler: filler{width: 75, step: c.Step}, purse: usage.NewPurse(c), crown: f.Has('c') || f.Has('t'),
		split: f.Has('s'), tagged: f.Has('t'), even: f.Has('u'), prefix: f.Value('p', "")}
	defer t.purse.Free()
	var err error
	if f.Has('w') {
		if t.width, err = atoi(f.Value('w', "")); err == nil && t.width > 2500 {
			return c.Errorf(1, "invalid width: ‘%s’: Numerical result out of range", f.Value('w', ""))
		}
		if err != nil {
			return c.Errorf(1, "invalid width: ‘%s’", f.Value('w', ""))
		}
	}
	t.goal = (t.width*93 + 50) / 100
	if f.Has('g') {
		if t.goal, err = atoi(f.Value('g', "")); err != nil || f.Has('w') && t.goal > t.width {
			return c.Errorf(1, "invalid width: ‘%s’", f.Value('g', ""))
		}
		if !f.Has('w') {
			t.width = t.goal + 10
		}
	}
	w := c.Buffered()
	t.out = w
	status := usage.Inputs(c, f.Args, "cannot open '%s' for reading", 1, func(_ string, in io.Reader) error { return t.run(c, in) })
	return c.Flush(w, status)
}
