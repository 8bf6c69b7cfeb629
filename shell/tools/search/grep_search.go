package search

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"unicode/utf8"

	"github.com/carrel-dev/carrel/shell/tool"
)

// firstBlock is the part of a file that decides whether the file is binary. GNU's grep uses the
// same size.
const firstBlock = 96 << 10

// maxBuffer bounds a line.
const maxBuffer = tool.MaxLine

// scan is the search of one file. buf holds lines that may be needed as context, then lines to
// search.
type scan struct {
	*grep
	label string
	in    io.Reader

	buf    []byte
	paid   int64
	eof    bool
	base   int64 // offset of buf in the file
	from   int   // where unsearched lines begin
	shown  int   // end of the printed text, or start of the lines that may be context
	nlAt   int   // up to where lines are counted
	lines  int64 // how many
	after  int   // number of context lines still to print
	count  int64
	binary bool // contains a NUL
	broken bool // a selected line is no UTF-8
	done   bool
	width  int   // of numbers, with -T
	headed bool  // its name is printed
	over   bool  // enough lines were selected
	gap    bool  // lines between the printed text and buf were dropped
	read   int64 // bytes read
	stop   int64 // with -m, the end of the last selected line; -1 before
}

// search searches one input.
func (g *grep) search(name, label string, in io.Reader) {
	s := &scan{grep: g, label: label, in: in, gap: true, stop: -1}
	defer func() { _ = g.Pay(-s.paid) }()
	s.width = 19
	if f, ok := in.(tool.File); ok && g.opts.tab {
		if info, err := f.Stat(); err == nil && info.Mode.IsRegular() {
			s.width = len(strconv.FormatInt(info.Size, 10))
		}
	}
	quietly := g.opts.quiet || g.opts.list || g.opts.listNot || g.opts.count
	for !s.done && !g.failed && !g.never {
		if g.opts.multi && !s.eof {
			if err := s.slurp(); err != nil {
				g.complain(name, err)
				break
			}
		} else if err := s.fill(); err != nil {
			g.complain(name, err)
			break
		}
		if len(s.buf) == s.from {
			break
		}
		if s.binary && g.opts.binaryNoMatch && !g.opts.text {
			return
		}
		s.block()
	}
	g.any = g.any || s.count > 0
	switch {
	case g.opts.quiet:
		g.failed = g.failed || g.any
	case g.opts.list && s.count > 0 || g.opts.listNot && s.count == 0:
		s.filename()
		if g.opts.null {
			g.w.WriteByte(0)
		} else {
			g.w.WriteByte('\n')
		}
	case g.opts.list || g.opts.listNot:
	case g.opts.count && g.opts.rg && s.count == 0:
	case g.opts.count:
		if g.opts.names {
			s.filename()
			if g.opts.null {
				g.w.WriteByte(0)
			} else {
				s.sep(':')
			}
		}
		fmt.Fprintf(g.w, "%d\n", s.count)
	}
	if g.opts.rg && s.binary && !quietly && s.count > 0 {
		fmt.Fprintf(g.w, "Binary file matches (found \"\\0\" byte around offset %d)\n", bytes.IndexByte(s.buf, 0))
	} else if !quietly && !g.opts.binaryNoMatch && (s.broken || s.binary && !g.opts.text && s.count > 0) {
		g.flushed()
		fmt.Fprintf(g.Err, "grep: %s: binary file matches\n", label)
	}
	if g.opts.lineBuffered {
		g.flushed()
	}
	if f, ok := in.(io.Seeker); ok && name == "-" && g.opts.max > 0 && s.count >= g.opts.max && s.stop >= 0 {
		_, _ = f.Seek(s.stop-s.read, io.SeekCurrent) // a file's next reader continues after the last line; a pipe can't seek
	}
	if err := g.re.Err(); err != nil {
		g.status = 2
		if g.Ctx.Err() == nil && g.Step(1) {
			g.flushed()
			g.Errorf(2, "%s: %s", label, err)
		} else {
			g.failed = true
		}
	}
}

// fill reads more, and keeps lines that may be needed as context. Afterwards buf[from:] has whole
// lines, or the rest of the file.
func (s *scan) fill() error {
	if s.eof {
		s.from = len(s.buf)
		return nil
	}
	tail := s.buf[s.from:] // after block, this is an incomplete line
	keep := s.from
	for i := 0; i < s.opts.before && keep > s.shown; i++ {
		keep = bytes.LastIndexByte(s.buf[:keep-1], s.end) + 1
	}
	keep = max(keep, s.shown)
	s.countTo(keep)
	s.gap = s.gap || keep > s.shown
	s.base += int64(keep)
	kept := copy(s.buf, s.buf[keep:])
	s.nlAt -= keep
	s.shown = max(s.shown-keep, 0)
	s.from -= keep
	s.buf = s.buf[:kept]
	searched := s.from
	looked := s.from + len(tail)
	for {
		if len(s.buf)-searched > maxBuffer {
			return fmt.Errorf("line too long")
		}
		if cap(s.buf)-len(s.buf) < 32<<10 {
			size := max(2*cap(s.buf), firstBlock+32<<10)
			if err := s.Pay(int64(size - cap(s.buf))); err != nil {
				return err
			}
			s.paid += int64(size - cap(s.buf))
			s.buf = append(make([]byte, 0, size), s.buf...)
		}
		room := min(cap(s.buf)-len(s.buf), firstBlock)
		n, err := s.in.Read(s.buf[len(s.buf) : len(s.buf)+room])
		s.buf = s.buf[:len(s.buf)+n]
		s.read += int64(n)
		if !s.binary && !s.opts.text && s.end == '\n' && bytes.IndexByte(s.buf[len(s.buf)-n:], 0) >= 0 {
			s.binary = true
		}
		if !s.Step(1 + n>>8) {
			return tool.ErrStop
		}
		if err == io.EOF {
			s.eof = true
			return nil
		}
		if err != nil {
			return err
		}
		if n > 0 && bytes.IndexByte(s.buf[looked:], s.end) >= 0 {
			return nil
		}
		looked = len(s.buf)
	}
}

// countTo counts lines up to an offset of buf, if the count is needed.
func (s *scan) countTo(at int) {
	if s.opts.number && at > s.nlAt {
		s.lines += int64(bytes.Count(s.buf[s.nlAt:at], []byte{s.end}))
	}
	s.nlAt = max(at, s.nlAt)
}

// block searches the whole lines of buf.
func (s *scan) block() {
	end := len(s.buf)
	if !s.eof {
		end = bytes.LastIndexByte(s.buf, s.end) + 1
		if end <= s.from {
			return
		}
	}
	simple := s.opts.before < 0 && s.opts.after < 0
	for s.from < end && !s.done && !s.failed && !s.over {
		ls, le := s.next(end)
		if s.opts.invert {
			gap := ls
			if ls < 0 {
				gap = end
			}
			for s.from < gap && !s.done && !s.failed {
				e := end
				if i := bytes.IndexByte(s.buf[s.from:end], s.end); i >= 0 {
					e = s.from + i
				}
				at := s.from
				s.from = min(e+1, end)
				s.selected(at, e)
			}
			if ls < 0 {
				break
			}
			if s.done {
				break
			}
			s.from = min(le+1, end)
			continue
		}
		if ls < 0 {
			s.from = end
			break
		}
		s.from = min(le+1, end)
		s.selected(ls, le)
	}
	if s.opts.max > 0 && s.count >= s.opts.max {
		s.done, s.over = true, true
	}
	s.trailing(end)
	if s.over && s.after > 0 && !s.failed && !s.eof { // the next block may have context lines
		s.done, s.from = false, s.shown
	}
	if simple {
		s.countTo(s.from)
		s.shown = max(s.shown, s.from)
	}
}

// next finds the next matching line.
func (s *scan) next(end int) (ls, le int) {
	if s.none {
		return -1, -1
	}
	if s.end == '\n' {
		if s.opts.multi {
			return s.nextSpan(end)
		}
		return s.re.NextLine(s.buf[:end], s.from)
	}
	for at := s.from; at < end; {
		le = end
		if i := bytes.IndexByte(s.buf[at:end], s.end); i >= 0 {
			le = at + i
		}
		if !s.Step(1) || s.re.Match(s.buf[at:le]) {
			return at, le
		}
		at = le + 1
	}
	return -1, -1
}

// selected counts and prints a line.
func (s *scan) selected(ls, le int) {
	if s.opts.max > 0 && s.count >= s.opts.max {
		s.done = true
		return
	}
	s.count++
	s.stop = s.base + int64(min(le+1, len(s.buf)))
	o := &s.opts
	if o.quiet || o.list || o.listNot {
		s.done = true
		return
	}
	if o.max > 0 && s.count >= o.max {
		s.done = true
	}
	if o.count {
		if o.countAll && !o.invert {
			s.count--
			for at := ls; at <= le; {
				m, e := s.re.FindIndex(s.buf[ls:le], at-ls)
				if m < 0 || !s.Step(1) {
					break
				}
				s.count++
				if at = ls + e; m == e {
					at++
				}
			}
		}
		return
	}
	if s.binary && !o.text {
		s.done = true
		return
	}
	if o.before >= 0 || o.after >= 0 {
		s.leading(ls)
	}
	for s.opts.multi && !o.only {
		i := bytes.IndexByte(s.buf[ls:le], '\n')
		if i < 0 {
			break
		}
		s.line(ls, ls+i, ':')
		ls += i + 1
	}
	s.line(ls, le, ':')
	s.shown, s.gap = min(le+1, len(s.buf)), false
	s.after = max(o.after, 0)
}

// leading prints the context before a selected line, and the separator.
func (s *scan) leading(ls int) {
	s.trailing(ls)
	at := ls
	for i := 0; i < s.opts.before && at > s.shown; i++ {
		at = max(bytes.LastIndexByte(s.buf[:at-1], s.end)+1, s.shown)
	}
	if (at > s.shown || s.gap) && s.printed && !s.opts.noGroupSep {
		s.paint(s.colors.sep, []byte(s.opts.groupSep))
		s.w.WriteByte('\n')
	}
	for at < ls {
		e := at + bytes.IndexByte(s.buf[at:], s.end)
		s.line(at, e, '-')
		at = e + 1
	}
}

// trailing prints the context after a selected line, up to an offset.
func (s *scan) trailing(end int) {
	for s.after > 0 && s.shown < end && !s.failed {
		e := end
		if i := bytes.IndexByte(s.buf[s.shown:end], s.end); i >= 0 {
			e = s.shown + i
		}
		s.line(s.shown, e, '-')
		s.shown = min(e+1, len(s.buf))
		s.after--
	}
}

func (s *scan) filename() { s.paint(s.colors.file, []byte(s.label)) }

func (s *scan) sep(c byte) { s.paint(s.colors.sep, []byte{c}) }

// numeral prints a line number or an offset.
func (s *scan) numeral(n int64, color string) {
	var number [20]byte
	text := strconv.AppendInt(number[:0], n, 10)
	if s.opts.tab && len(text) < s.width {
		text = fmt.Appendf(nil, "%*d", s.width, n)
	}
	s.paint(color, text)
}

// head prints the prefix of a line or of a match. It returns false when the text is binary.
func (s *scan) head(at, end int, sep byte) bool {
	if !s.opts.text && !s.opts.rg && !valid(s.buf[at:end]) {
		s.broken = true
		return false
	}
	o := &s.opts
	if o.headed && !s.headed {
		if s.headings > 0 {
			s.w.WriteByte('\n')
		}
		s.headings++
		s.headed = true
		s.w.WriteString(s.label + "\n")
	}
	if o.names && !o.headed {
		s.filename()
		if o.null {
			s.w.WriteByte(0)
		} else {
			s.sep(sep)
		}
	}
	if o.number {
		s.countTo(at)
		s.numeral(s.lines+1, s.colors.line)
		s.sep(sep)
	}
	if o.column && sep == ':' {
		le := at + max(bytes.IndexByte(append(s.buf[at:len(s.buf):len(s.buf)], s.end), s.end), 0)
		ls := bytes.LastIndexByte(s.buf[:at], s.end) + 1
		col := at - ls
		if !o.only {
			col, _ = s.re.FindIndex(s.buf[ls:le], 0)
		}
		s.numeral(int64(max(col, 0)+1), s.colors.line)
		s.sep(sep)
	}
	if o.offset {
		s.numeral(s.base+int64(at), s.colors.offset)
		s.sep(sep)
	}
	if o.tab && (o.names || o.number || o.offset) && end > at {
		s.w.WriteByte('\t')
	}
	return true
}

// valid reports whether text is UTF-8. Most text is ASCII.
func valid(text []byte) bool { return utf8.Valid(text) }

// line prints one line.
func (s *scan) line(ls, le int, sep byte) {
	s.printed = true
	if s.opts.only {
		if (sep == ':') != s.opts.invert {
			s.matches(ls, le, sep)
		}
	} else {
		if !s.head(ls, le, sep) {
			return
		}
		if s.opts.color && (sep == ':') != s.opts.invert {
			s.colored(ls, le, sep)
		} else if s.opts.replace != nil && sep == ':' {
			s.replaced(s.buf[ls:le])
		} else if s.opts.color && !s.opts.rg {
			s.body(s.buf[ls:le], sep, true)
		} else if s.opts.trim {
			s.w.Write(bytes.TrimLeft(s.buf[ls:le], " \t"))
		} else {
			s.w.Write(s.buf[ls:le])
		}
		s.w.WriteByte(s.end)
	}
	if s.opts.lineBuffered {
		s.flushed()
	}
	if s.w.Buffered() > 60<<10 {
		if !s.Step(1) {
			s.failed = true
			return
		}
		s.flushed()
	}
}

// matches prints the matches of a line (-o).
func (s *scan) matches(ls, le int, sep byte) {
	text := s.buf[ls:le]
	for at := 0; at <= len(text); {
		m, e := s.re.FindIndex(text, at)
		if m < 0 || s.re.Err() != nil || !s.Step(1) {
			return
		}
		if e == m {
			at = m + 1
			continue
		}
		if !s.head(ls+m, ls+e, sep) {
			return
		}
		if s.opts.color {
			s.paint(s.colors.match, text[m:e])
		} else if s.opts.replace != nil {
			s.expand(text, s.re.FindSubmatchIndex(text, m))
		} else {
			s.w.Write(text[m:e])
		}
		s.w.WriteByte(s.end)
		at = e
	}
}

// colored prints a line with its matches in colour.
func (s *scan) colored(ls, le int, sep byte) {
	text := s.buf[ls:le]
	at, last := 0, 0
	for at <= len(text) {
		m, e := s.re.FindIndex(text, at)
		if m < 0 || s.re.Err() != nil || !s.Step(1) {
			break
		}
		if e == m {
			at = m + 1
			continue
		}
		s.body(text[last:m], sep, false)
		s.paint(s.colors.match, text[m:e])
		at, last = e, e
	}
	s.body(text[last:], sep, true)
}

// slurp reads the whole file, for matches of several lines.
func (s *scan) slurp() error {
	data, err := s.ReadAll(s.in)
	s.paid += int64(len(data))
	s.buf, s.eof = data, true
	if !s.opts.text && bytes.IndexByte(data, 0) >= 0 {
		s.binary = true
	}
	return err
}

// nextSpan finds the next match, which may have several lines.
func (s *scan) nextSpan(end int) (ls, le int) {
	m, e := s.re.FindIndex(s.buf[:end], s.from)
	if m < 0 || m == e && m == end && end > 0 {
		return -1, -1
	}
	ls = bytes.LastIndexByte(s.buf[:m], '\n') + 1
	if e > m && s.buf[e-1] == '\n' {
		e--
	}
	le = end
	if i := bytes.IndexByte(s.buf[e:end], '\n'); i >= 0 {
		le = e + i
	}
	return ls, le
}

// replaced prints a line with its matches replaced (rg -r).
func (s *scan) replaced(text []byte) {
	last := 0
	for at := 0; at <= len(text); {
		loc := s.re.FindSubmatchIndex(text, at)
		if loc == nil || !s.Step(1) {
			break
		}
		s.w.Write(text[last:loc[0]])
		s.expand(text, loc)
		last = loc[1]
		if at = loc[1]; loc[0] == loc[1] {
			at++
		}
	}
	s.w.Write(text[last:])
}

// expand prints a replacement: $1, ${name}, $$.
func (s *scan) expand(text []byte, loc []int) {
	t := *s.opts.replace
	for i := 0; i < len(t); i++ {
		if t[i] != '$' || i+1 == len(t) {
			s.w.WriteByte(t[i])
			continue
		}
		if t[i+1] == '$' {
			s.w.WriteByte('$')
			i++
			continue
		}
		j := i + 1
		braced := t[j] == '{'
		if braced {
			j++
		}
		k := j
		for k < len(t) && (t[k] == '_' || t[k] >= '0' && t[k] <= '9' || t[k]|0x20 >= 'a' && t[k]|0x20 <= 'z') {
			k++
		}
		name := t[j:k]
		if name == "" || braced && (k == len(t) || t[k] != '}') {
			s.w.WriteByte('$')
			continue
		}
		n, err := strconv.Atoi(name)
		if err != nil {
			n = -1
			for g, gn := range s.re.SubexpNames() {
				if gn == name {
					n = g + 1
				}
			}
		}
		if n >= 0 && 2*n+1 < len(loc) && loc[2*n] >= 0 {
			s.w.Write(text[loc[2*n]:loc[2*n+1]])
		}
		if i = k - 1; braced {
			i = k
		}
	}
}
