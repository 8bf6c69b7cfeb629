package search

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// sedSpace is the pattern space or the hold space.
type sedSpace struct {
	b       []byte
	chomped bool // a newline is printed after it
}

// sedState is the state of a running script.
type sedState struct {
	ps, hold   sedSpace
	buf        []byte
	queue      []*sedCmd // a, r, R of this cycle
	queued     [][]byte  // the lines of R
	replaced   bool
	lastRE     *sedRegex
	quit       bool
	code       int
	paid       int64
	steps      int
	notRegular bool
	err        error
}

// run runs the script over all lines and returns the exit status.
func (s *sed) run() int {
	s.hold.chomped = true
	for _, c := range s.cmds {
		c.active, c.closed = c.a1 != nil && c.a1.kind == '0', false
	}
	restart := false
	for s.err == nil && !s.quit {
		if !restart {
			var err error
			s.ps.b, s.ps.chomped, err = s.readLine(s.ps.b[:0])
			if err == io.EOF {
				break
			}
			if err != nil {
				s.err = err
				break
			}
		}
		var print bool
		print, restart = s.cycle()
		if s.err != nil {
			break
		}
		if print && !s.quiet {
			s.print(s.out, s.ps.b, s.ps.chomped)
		}
		s.appended()
		if s.unbuf {
			s.flush()
		}
	}
	if err := s.close(); err != nil && s.err == nil {
		s.err = err
	}
	switch {
	case s.err == nil:
	case s.Stopped(s.err):
		return 1
	default:
		s.flush()
		s.Errorf(1, "%s", tool.ErrText(s.err))
		if strings.HasPrefix(s.err.Error(), "-e ") {
			return 1
		}
		return max(s.status, 4)
	}
	if s.code != 0 {
		return s.code
	}
	return s.status
}

// grow pays for a buffer of n bytes.
func (s *sed) grow(n int) error {
	want := int64(n) * 3
	if want <= s.paid {
		return nil
	}
	if n > 4*tool.MaxLine {
		s.err = fmt.Errorf("pattern space too long")
		return s.err
	}
	want *= 2
	if err := s.Pay(want - s.paid); err != nil {
		s.err = err
		return err
	}
	s.paid = want
	return nil
}

// step pays for n commands.
func (s *sed) step(n int) bool {
	if s.steps += n; s.steps < 64 {
		return true
	}
	n, s.steps = s.steps, 0
	if !s.Step(n) {
		s.err = tool.ErrStop
		return false
	}
	return true
}

// print prints a text and a newline.
func (s *sed) print(o *sedOut, b []byte, newline bool) {
	s.missing(o)
	o.w.Write(b)
	if newline {
		o.w.WriteByte(s.end)
	} else {
		o.missing = true
	}
	if o.w.Buffered() > 60<<10 || len(b) > 60<<10 {
		s.check(o)
	}
}

// check flushes an output, and records whether that failed because nobody reads it.
func (s *sed) check(o *sedOut) {
	if err := o.w.Flush(); err != nil && s.err == nil {
		s.err = err
	}
}

// missing prints the newline that was missing after the last line.
func (s *sed) missing(o *sedOut) {
	if o.missing {
		o.w.WriteByte(s.end)
		o.missing = false
	}
}

// appended prints the texts that a, r and R have queued.
func (s *sed) appended() {
	for i, c := range s.queue {
		switch c.name {
		case 'a':
			s.missing(s.out)
			s.out.w.Write(c.text)
		case 'R':
			s.print(s.out, s.queued[i], true)
		case 'r':
			s.copyFile(string(c.text))
		}
	}
	s.queue, s.queued = s.queue[:0], s.queued[:0]
	if s.out.w.Buffered() > 60<<10 {
		s.check(s.out)
	}
}

// copyFile prints a file.
func (s *sed) copyFile(name string) {
	var in io.Reader = s.In
	if name != "/dev/stdin" {
		f, err := s.Open(name, vfs.ReadOnly, 0)
		if err != nil {
			return
		}
		defer f.Close()
		in = f
	} else if s.input.r != nil && s.input.name == "-" {
		in = s.input.r
	}
	s.missing(s.out)
	buf := make([]byte, 32<<10)
	for {
		n, err := in.Read(buf)
		if _, werr := s.out.w.Write(buf[:n]); werr != nil {
			s.err = werr
			return
		}
		if err != nil || !s.step(64) {
			return
		}
	}
}

// selects reports whether a command's addresses select the current line. A range that begins with a
// line number begins once: at that line, or at the first later line that the command sees.
func (s *sed) selects(c *sedCmd) bool {
	if c.a1 == nil {
		return true
	}
	if c.a2 == nil {
		return s.matches(c.a1)
	}
	line := s.input.line
	if !c.active {
		if c.a1.kind == 'n' || c.a1.kind == '0' {
			if c.closed || line < c.a1.n {
				return false
			}
		} else if !s.matches(c.a1) {
			return false
		}
		c.active = true
		switch c.a2.kind {
		case '/':
			return true
		case 'n':
			c.active = line < c.a2.n
			c.closed = !c.active
			return line <= c.a2.n || s.matches(c.a1)
		case '+':
			c.until = line + c.a2.n
		case '*':
			c.until = line
			if c.a2.n > 0 {
				c.until = (line/c.a2.n + 1) * c.a2.n
			}
		}
		c.active = c.a2.kind == '$' && !s.last() || c.a2.kind != '$' && line < c.until
		c.closed = !c.active
		return true
	}
	switch c.a2.kind {
	case '/', '$':
		c.active = !s.matches(c.a2)
		c.closed = !c.active
		return true
	case 'n':
		c.active = line < c.a2.n
		c.closed = !c.active
		return line <= c.a2.n
	}
	c.active = line < c.until
	c.closed = !c.active
	return true
}

// matches reports whether one address matches the current line.
func (s *sed) matches(a *sedAddr) bool {
	switch a.kind {
	case 'n':
		return s.input.line == a.n
	case '~':
		return s.input.line >= a.n && (s.input.line-a.n)%a.step == 0
	case '$':
		return s.last()
	case '/':
		re := s.regex(a.re)
		if re == nil {
			return false
		}
		ok := re.re.Match(s.ps.b)
		s.broken(re)
		return ok
	}
	return false
}

// regex returns an expression, or the last one used.
func (s *sed) regex(re *sedRegex) *sedRegex {
	if re.re == nil {
		if s.lastRE == nil {
			s.err = fmt.Errorf("-e expression #1, char 0: no previous regular expression")
			return nil
		}
		return s.lastRE
	}
	s.lastRE = re
	return re
}

// broken records that a search has reached its limit.
func (s *sed) broken(re *sedRegex) {
	if err := re.re.Err(); err != nil && s.err == nil {
		if s.err = err; !s.Step(1) {
			s.err = tool.ErrStop
		}
	}
}

// cycle runs the script on the pattern space. print says whether to print the pattern space.
// restart says to run again without reading a line.
func (s *sed) cycle() (print, restart bool) {
	for pc := 0; pc < len(s.cmds); pc++ {
		if !s.step(1) {
			return false, false
		}
		c := s.cmds[pc]
		if c.a1 != nil || c.not {
			if s.selects(c) == c.not {
				if s.err != nil {
					return false, false
				}
				if c.name == '{' {
					pc = c.num - 1
				}
				continue
			}
			if s.err != nil {
				return false, false
			}
		}
		switch c.name {
		case 's':
			s.substitute(c.sub)
		case 'p':
			s.print(s.out, s.ps.b, s.ps.chomped)
		case 'd':
			return false, false
		case 'D':
			i := bytes.IndexByte(s.ps.b, s.end)
			if i < 0 {
				return false, false
			}
			s.ps.b = append(s.ps.b[:0], s.ps.b[i+1:]...)
			return false, true
		case 'b':
			pc = c.num - 1
		case 't':
			if s.replaced {
				s.replaced = false
				pc = c.num - 1
			}
		case 'T':
			if !s.replaced {
				pc = c.num - 1
			}
			s.replaced = false
		case 'n', 'N':
			if done, print := s.another(c.name); done {
				return print, false
			}
		case 'q':
			s.quit, s.code = true, max(c.num, 0)&0xff
			return true, false
		case 'Q':
			s.quit, s.code = true, max(c.num, 0)&0xff
			return false, false
		case 'c':
			if c.a2 == nil || !c.active || c.not {
				s.missing(s.out)
				s.out.w.Write(c.text)
			}
			return false, false
		default:
			s.simple(c)
		}
		if s.err != nil {
			return false, false
		}
	}
	return true, false
}

// another reads the next line for n and N. done is true when there is none.
func (s *sed) another(name byte) (done, print bool) {
	if !s.more() || s.separate && s.atEnd() && len(s.input.names) == 0 {
		s.quit = true
		return true, !(s.strict && name == 'N')
	}
	if name == 'n' {
		if !s.quiet {
			s.print(s.out, s.ps.b, s.ps.chomped)
		}
		s.ps.b = s.ps.b[:0]
	} else {
		if s.grow(len(s.ps.b)+1) != nil {
			return true, false
		}
		s.ps.b = append(s.ps.b, s.end)
	}
	s.appended()
	var err error
	if s.ps.b, s.ps.chomped, err = s.readLine(s.ps.b); err != nil {
		if err == io.EOF {
			s.quit = true
			return true, false
		}
		s.err = err
		return true, false
	}
	return false, false
}

// simple runs a command that does not jump and does not end the cycle.
func (s *sed) simple(c *sedCmd) {
	switch c.name {
	case '=':
		s.missing(s.out)
		s.out.w.Write(append(strconv.AppendInt(s.out.w.AvailableBuffer(), s.input.line, 10), s.end))
	case 'e':
		s.evaluate(string(c.text))
	case 'a', 'r':
		if c.name == 'r' && c.num == 0 {
			s.copyFile(string(c.text))
			return
		}
		s.queue, s.queued = append(s.queue, c), append(s.queued, nil)
	case 'R':
		if line, ok := s.fileLine(string(c.text)); ok {
			s.queue, s.queued = append(s.queue, c), append(s.queued, line)
		}
	case 'i':
		s.missing(s.out)
		s.out.w.Write(c.text)
	case 'F':
		s.missing(s.out)
		s.out.w.WriteString(s.input.name + string(s.end))
	case 'g':
		s.ps.b, s.ps.chomped = append(s.ps.b[:0], s.hold.b...), s.hold.chomped
	case 'G':
		if s.grow(len(s.ps.b)+len(s.hold.b)) == nil {
			s.ps.b, s.ps.chomped = append(append(s.ps.b, s.end), s.hold.b...), s.hold.chomped
		}
	case 'h':
		s.hold.b, s.hold.chomped = append(s.hold.b[:0], s.ps.b...), s.ps.chomped
	case 'H':
		if s.grow(len(s.ps.b)+len(s.hold.b)) == nil {
			s.hold.b, s.hold.chomped = append(append(s.hold.b, s.end), s.ps.b...), s.ps.chomped
		}
	case 'x':
		s.ps, s.hold = s.hold, s.ps
	case 'l':
		s.list(c.num)
	case 'P':
		if i := bytes.IndexByte(s.ps.b, s.end); i >= 0 {
			s.print(s.out, s.ps.b[:i], true)
		} else {
			s.print(s.out, s.ps.b, true)
		}
	case 'w':
		s.print(c.out, s.ps.b, s.ps.chomped)
	case 'W':
		b := s.ps.b
		if i := bytes.IndexByte(b, s.end); i >= 0 {
			b = b[:i]
		}
		s.print(c.out, b, true)
	case 'y':
		s.translate(c)
	case 'z':
		s.ps.b = s.ps.b[:0]
	}
	if n := len(s.ps.b); n > 1024 {
		s.step(n >> 8)
	}
}

// evaluate runs a command and prints its output. Without a command it runs the pattern space, and
// replaces it with the output.
func (s *sed) evaluate(command string) {
	text := command
	if command == "" {
		text = string(s.ps.b)
	}
	out := &sedCapture{s: s}
	s.Run(tool.Child{Args: []string{"sh", "-c", text}, In: strings.NewReader(""), Out: out})
	_ = s.Pay(-out.paid) // the pattern space pays for the part that is kept
	if command != "" {
		s.missing(s.out)
		s.out.w.Write(out.b)
		return
	}
	if s.grow(len(out.b)) == nil {
		if n := len(out.b); n > 0 && out.b[n-1] == s.end {
			out.b = out.b[:n-1]
		}
		s.ps.b, s.ps.chomped = append(s.ps.b[:0], out.b...), true
	}
}

// sedCapture stores the output of a command.
type sedCapture struct {
	s    *sed
	b    []byte
	paid int64
}

// Write implements io.Writer.
func (o *sedCapture) Write(b []byte) (int, error) {
	if err := o.s.Pay(int64(len(b))); err != nil {
		return 0, err
	}
	o.paid += int64(len(b))
	o.b = append(o.b, b...)
	return len(b), nil
}

// fileLine reads the next line of a file (R).
func (s *sed) fileLine(name string) ([]byte, bool) {
	r := s.readers[name]
	if r == nil {
		f, err := s.Open(name, vfs.ReadOnly, 0)
		if err != nil {
			s.readers[name] = bufio.NewReader(bytes.NewReader(nil))
			return nil, false
		}
		s.closers = append(s.closers, f)
		r = bufio.NewReader(f)
		s.readers[name] = r
	}
	var line []byte
	for {
		part, err := r.ReadSlice(s.end)
		line = append(line, part...)
		if err == nil {
			return line[:len(line)-1], true
		}
		if err != bufio.ErrBufferFull {
			return line, len(line) > 0
		}
		if s.grow(len(line)) != nil || !s.step(64) {
			return nil, false
		}
	}
}

// translate runs y.
func (s *sed) translate(c *sedCmd) {
	if c.y1 != nil {
		for i, b := range s.ps.b {
			s.ps.b[i] = c.y1[b]
		}
		return
	}
	s.buf = s.buf[:0]
	for i := 0; i < len(s.ps.b); {
		n := runeSize(s.ps.b[i:])
		if to, ok := c.y[string(s.ps.b[i:i+n])]; ok {
			s.buf = append(s.buf, to...)
		} else {
			s.buf = append(s.buf, s.ps.b[i:i+n]...)
		}
		i += n
	}
	s.ps.b, s.buf = s.buf, s.ps.b
}

// list runs l.
func (s *sed) list(width int) {
	if width < 0 {
		width = s.wrap
	}
	s.missing(s.out)
	w, col := s.out.w, 0
	for _, c := range s.ps.b {
		var e string
		switch i := bytes.IndexByte([]byte("\a\b\f\n\r\t\v\\"), c); {
		case i >= 0:
			e = "\\" + string("abfnrtv\\"[i])
		case c < ' ' || c > '~':
			e = fmt.Sprintf("\\%03o", c)
		default:
			e = string(c)
		}
		if width > 0 && col+len(e) > width-1 {
			w.WriteString("\\" + string(s.end))
			col = 0
		}
		w.WriteString(e)
		col += len(e)
	}
	w.WriteString("$" + string(s.end))
}
