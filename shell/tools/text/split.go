package text

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/tools/text/usage"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// maxPieces is the most files of one split.
const maxPieces = 100000

// splitter writes pieces to files.
type splitter struct {
	c              *tool.Call
	prefix, extra  string
	digits         string // of suffixes
	width, n       int
	fixed, verbose bool
	filter         string
	elide          bool
	out            tool.File
}

// suffix returns the n-th suffix. Without a fixed width it grows as in GNU's split: zaaa follows
// yz.
func (s *splitter) suffix(n int) (string, error) {
	base, width := len(s.digits), s.width
	prefix := ""
	if !s.fixed {
		for {
			room := (base - 1)
			for range width - 1 {
				room *= base
			}
			if n < room {
				break
			}
			n -= room
			prefix += s.digits[base-1:]
			width++
		}
	}
	b := make([]byte, width)
	for i := width - 1; i >= 0; i-- {
		b[i] = s.digits[n%base]
		n /= base
	}
	if n > 0 {
		return "", errors.New("output file suffixes exhausted")
	}
	return prefix + string(b), nil
}

// next begins the next file.
func (s *splitter) next() error {
	if err := s.close(); err != nil {
		return err
	}
	if s.n >= maxPieces {
		return errors.New("too many output files")
	}
	suffix, err := s.suffix(s.n)
	if err != nil {
		return err
	}
	s.n++
	name := s.prefix + suffix + s.extra
	if s.verbose {
		fmt.Fprintf(s.c.Out, "creating file '%s'\n", name)
	}
	s.out, err = s.c.Open(name, vfs.WriteOnly|vfs.CreateNew|vfs.Truncate, 0o666)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func (s *splitter) close() error {
	if s.out == nil {
		return nil
	}
	err := s.out.Close()
	s.out = nil
	return err
}

func (s *splitter) write(b []byte) error {
	if !s.c.Step(1 + len(b)>>8) {
		return tool.ErrStop
	}
	if s.filter != "" {
		return s.piece(b)
	}
	_, err := s.out.Write(b)
	return err
}

// piece passes a whole piece to the filter's command.
func (s *splitter) piece(b []byte) error {
	suffix, err := s.suffix(s.n)
	if err != nil {
		return err
	}
	s.n++
	env := append(s.c.Environ(), "FILE="+s.prefix+suffix+s.extra)
	s.c.Run(tool.Child{Args: []string{"sh", "-c", s.filter}, Env: env, In: bytes.NewReader(b)})
	return nil
}

func split(c *tool.Call) int {
	for i, a := range c.Args { // split -100
		if len(a) > 1 && a[0] == '-' && strings.Trim(a[1:], "0123456789") == "" {
			c.Args = append(append(append([]string{}, c.Args[:i]...), "-l", a[1:]), c.Args[i+1:]...)
			break
		}
	}
	f, ok := c.Flags("a:b:C:del:n:t:ux\x81:\x82\x83:\x84::\x85::", "suffix-length=a", "bytes=b", "line-bytes=C", "numeric-suffixes=\x84", "hex-suffixes=\x85", "elide-empty-files=e",
		"lines=l", "number=n", "separator=t", "unbuffered=u", "filter=\x81", "verbose=\x82", "additional-suffix=\x83")
	if !ok {
		return 1
	}
	s := &splitter{c: c, prefix: "x", digits: "abcdefghijklmnopqrstuvwxyz", width: 2, extra: f.Value('\x83', ""), verbose: f.Has('\x82'), filter: f.Value('\x81', ""), elide: f.Has('e')}
	lines, size, lineBytes, chunks := int64(1000), int64(0), int64(0), ""
	kinds := 0
	end := byte('\n')
	for _, o := range f.All {
		var err error
		switch o.Letter {
		case 'a':
			s.width, err = atoi(o.Value)
			s.fixed = s.width > 0
			if s.width == 0 {
				s.width = 2
			}
			if s.width > 40 {
				err = errNumber
			}
		case 'b':
			size, err = parseSize(o.Value)
			kinds++
			if size == 0 {
				err = errNumber
			}
		case 'C':
			lineBytes, err = parseSize(o.Value)
			kinds++
		case 'l':
			lines, err = parseSize(o.Value)
			kinds++
			if lines == 0 {
				err = errNumber
			}
		case 'n':
			chunks = o.Value
			kinds++
		case 'd', '\x84':
			s.digits = "0123456789"
			if o.Value != "" {
				s.n, err = atoi(o.Value)
				s.fixed = true
			}
		case 'x', '\x85':
			s.digits = "0123456789abcdef"
			if o.Value != "" {
				var n int64
				n, err = strconv.ParseInt(o.Value, 16, 32)
				s.n, s.fixed = int(n), true
			}
		case 't':
			if o.Value == `\0` {
				end = 0
			} else if len(o.Value) != 1 {
				return c.Errorf(1, "multi-character separator ‘%s’", o.Value)
			} else {
				end = o.Value[0]
			}
		}
		if err != nil {
			what := map[byte]string{'a': "suffix length", 'b': "number of bytes", 'C': "number of bytes", 'l': "number of lines"}[o.Letter]
			if strings.Trim(o.Value, "0") == "" && o.Value != "" && o.Letter != 'a' {
				return c.Errorf(1, "invalid %s: ‘%s’: Numerical result out of range", what, o.Value)
			}
			return c.Errorf(1, "invalid %s: ‘%s’", what, o.Value)
		}
	}
	if kinds > 1 {
		c.Errorf(1, "cannot split in more than one way")
		return usage.Try(c, 1)
	}
	if len(f.Args) > 2 {
		return usage.Extra(c, 1, f.Args[2])
	}
	name := "-"
	if len(f.Args) > 0 {
		name = f.Args[0]
	}
	if len(f.Args) > 1 {
		s.prefix = f.Args[1]
	}
	in, err := usage.Open(c, name)
	if err != nil {
		return c.Errorf(1, "cannot open '%s' for reading: %s", name, tool.ErrText(err))
	}
	defer func() { _ = in.Close() }() // only read
	purse := usage.NewPurse(c)
	defer purse.Free()
	data, err := purse.ReadAll(in)
	if err == nil {
		switch {
		case chunks != "":
			err = s.chunks(data, chunks, end, f.Has('a'))
		case size > 0:
			err = s.pieces(data, func(d []byte) int { return int(min(size, int64(len(d)))) })
		case lineBytes > 0:
			err = s.pieces(data, func(d []byte) int {
				if int64(len(d)) <= lineBytes {
					return len(d)
				}
				if at := bytes.LastIndexByte(d[:lineBytes], end); at >= 0 {
					return at + 1
				}
				return int(lineBytes)
			})
		default:
			err = s.pieces(data, func(d []byte) int {
				n := 0
				for range lines {
					at := bytes.IndexByte(d[n:], end)
					if at < 0 {
						return len(d)
					}
					if n += at + 1; n == len(d) {
						break
					}
				}
				return n
			})
		}
	}
	if cerr := s.close(); err == nil {
		err = cerr
	}
	if err != nil {
		if c.Stopped(err) {
			return 1
		}
		return c.Errorf(1, "%v", err)
	}
	return 0
}

// pieces splits data into pieces of the sizes that size returns.
func (s *splitter) pieces(data []byte, size func([]byte) int) error {
	for len(data) > 0 {
		n := size(data)
		if s.filter == "" {
			if err := s.next(); err != nil {
				return err
			}
		}
		if err := s.write(data[:n]); err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

// chunks is -n: N, K/N, l/N, l/K/N, r/N, r/K/N.
func (s *splitter) chunks(data []byte, spec string, end byte, widthGiven bool) error {
	kind := byte('b')
	rest := spec
	if len(rest) > 2 && (rest[0] == 'l' || rest[0] == 'r') && rest[1] == '/' {
		kind, rest = rest[0], rest[2:]
	}
	k, n := 0, 0
	var err error
	a, b, two := strings.Cut(rest, "/")
	if two {
		if k, err = atoi(a); err != nil {
			return fmt.Errorf("invalid number of chunks: ‘%s’", rest)
		}
		a = b
	}
	n, err = atoi(a)
	switch {
	case err == nil && n == 0:
		return fmt.Errorf("invalid number of chunks: ‘%s’: Numerical result out of range", a)
	case err != nil || n > maxPieces:
		return fmt.Errorf("invalid number of chunks: ‘%s’", a)
	case two && (k == 0 || k > n):
		return fmt.Errorf("invalid chunk number: ‘%d’: Numerical result out of range", k)
	}
	if !widthGiven {
		room := len(s.digits) * len(s.digits)
		for room < n {
			room *= len(s.digits)
			s.width++
		}
		s.fixed = true
	}
	parts := make([][]byte, n)
	switch kind {
	case 'b':
		size := len(data) / n
		for i := range parts {
			extra := len(data) % n // as in 9.1, the last piece gets the rest
			if parts[i] = data[i*size : (i+1)*size]; i == n-1 {
				parts[i] = data[i*size : (i+1)*size+extra]
			}
		}
	case 'l':
		size := len(data) / n
		at := 0
		for i := range parts {
			limit := (i + 1) * size
			if i == n-1 {
				limit = len(data)
			}
			start := at
			if at < limit {
				next := bytes.IndexByte(data[max(limit-1, at):], end)
				if at = len(data); next >= 0 {
					at = max(limit-1, start) + next + 1
				}
			}
			parts[i] = data[start:at]
		}
	default:
		i := 0
		for len(data) > 0 {
			at := bytes.IndexByte(data, end) + 1
			if at == 0 {
				at = len(data)
			}
			parts[i%n] = append(parts[i%n], data[:at]...)
			data = data[at:]
			i++
		}
	}
	if k > 0 {
		_, err := s.c.Out.Write(parts[k-1])
		return err
	}
	for _, p := range parts {
		if s.elide && len(p) == 0 {
			continue
		}
		if s.filter == "" {
			if err := s.next(); err != nil {
				return err
			}
		}
		if err := s.write(p); err != nil {
			return err
		}
	}
	return nil
}

// csplitter is one run of csplit.
type csplitter struct {
	c                       *tool.Call
	lines                   [][]byte
	at                      int // next line to be written
	n                       int
	prefix, format          string
	silent, elide, suppress bool
	made                    []string
}

// write writes the lines up to end into the next file.
func (s *csplitter) write(end int) error {
	piece := bytes.Join(s.lines[s.at:end], nil)
	s.at = end
	if s.elide && len(piece) == 0 {
		return nil
	}
	name := s.prefix + fmt.Sprintf(s.format, s.n)
	s.n++
	if s.n > maxPieces {
		return errors.New("too many output files")
	}
	file, err := s.c.Open(name, vfs.WriteOnly|vfs.CreateNew|vfs.Truncate, 0o666)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	s.made = append(s.made, name)
	_, err = file.Write(piece)
	if cerr := file.Close(); err == nil {
		err = cerr
	}
	if err == nil && !s.silent {
		_, err = fmt.Fprintln(s.c.Out, len(piece))
	}
	return err
}

// step handles one pattern once. any is false when a repeated pattern finds nothing more.
func (s *csplitter) step(p string, repeat int) error {
	if p[0] != '/' && p[0] != '%' {
		n, err := atoi(p)
		if err != nil || n == 0 {
			return fmt.Errorf("‘%s’: invalid pattern", p)
		}
		n *= repeat + 1
		if n <= s.at && repeat == 0 && n != s.at+0 || n-1 > len(s.lines) {
			if n-1 > len(s.lines) {
				if err := s.write(len(s.lines)); err != nil {
					return err
				}
			}
			return fmt.Errorf("‘%s’: line number out of range", p)
		}
		if n-1 < s.at {
			return fmt.Errorf("‘%s’: line number out of range", p)
		}
		return s.write(n - 1)
	}
	end := strings.LastIndexByte(p, p[0])
	if end == 0 {
		return fmt.Errorf("%s: closing delimiter '%c' missing", p, p[0])
	}
	offset := 0
	if o := p[end+1:]; o != "" {
		n, err := strconv.Atoi(o)
		if err != nil {
			return fmt.Errorf("%s: integer expected after delimiter", p)
		}
		offset = n
	}
	re, err := compileBRE(p[1:end])
	if err != nil {
		return fmt.Errorf("%s: invalid regular expression: %v", p, err)
	}
	from := s.at
	if s.at > 0 || repeat > 0 {
		from++ // the search skips the line at which the last piece ended
	}
	for i := from; i < len(s.lines); i++ {
		if !s.c.Step(1 + len(s.lines[i])>>5) {
			return tool.ErrStop
		}
		if !re.match(bytes.TrimSuffix(s.lines[i], newline)) {
			continue
		}
		to := i + offset
		if to < s.at || to > len(s.lines) {
			return fmt.Errorf("‘%s’: line number out of range", p)
		}
		if p[0] == '%' {
			s.at = to
			return nil
		}
		return s.write(to)
	}
	if p[0] == '/' {
		return errNoMatch
	}
	s.at = len(s.lines)
	return errNoMatch
}

var errNoMatch = errors.New("match not found")

func csplit(c *tool.Call) int {
	f, ok := c.Flags("b:f:kmn:qsz", "suffix-format=b", "prefix=f", "keep-files=k", "suppress-matched=m", "digits=n", "quiet=q", "silent=s", "elide-empty-files=z")
	if !ok {
		return 1
	}
	switch len(f.Args) {
	case 0:
		return usage.Missing(c, 1)
	case 1:
		c.Errorf(1, "missing operand after ‘%s’", f.Args[0])
		return usage.Try(c, 1)
	}
	digits, err := atoi(f.Value('n', "2"))
	if err != nil || digits > 40 {
		return c.Errorf(1, "invalid number: ‘%s’", f.Value('n', ""))
	}
	s := &csplitter{c: c, prefix: f.Value('f', "xx"), format: "%0" + strconv.Itoa(digits) + "d", silent: f.Has('q') || f.Has('s'), elide: f.Has('z'), suppress: f.Has('m')}
	if b := f.Value('b', ""); b != "" {
		at := strings.IndexByte(b, '%')
		end := at + 1
		for at >= 0 && end < len(b) && strings.IndexByte("-0123456789 #+", b[end]) >= 0 {
			end++
		}
		if at < 0 || end-at > 6 || end >= len(b) || strings.IndexByte("diuoxX", b[end]) < 0 || strings.Contains(b[end:], "%") {
			return c.Errorf(1, "missing %% conversion specification in suffix")
		}
		verb := string(b[end])
		if verb == "i" || verb == "u" {
			verb = "d"
		}
		s.format = b[:end] + verb + b[end+1:]
	}
	if !checkNumbers(c, f.Args[1:]) {
		return 1
	}
	in, err := usage.Open(c, f.Args[0])
	if err != nil {
		return c.Errorf(1, "cannot open '%s' for reading: %s", f.Args[0], tool.ErrText(err))
	}
	purse := usage.NewPurse(c)
	defer purse.Free()
	data, err := purse.ReadAll(in)
	_ = in.Close() // only read
	if err != nil {
		return 1
	}
	if err := purse.Pay(24 * bytes.Count(data, newline)); err != nil {
		return 1
	}
	for l := range bytes.Lines(data) {
		s.lines = append(s.lines, l)
	}
	if err := s.run(f.Args[1:]); err != nil {
		if !f.Has('k') {
			for _, name := range s.made {
				_ = c.FS().Remove(c.Abs(name)) // it was made here
			}
		}
		if c.Stopped(err) || errors.Is(err, errNoMatch) {
			return 1
		}
		return c.Errorf(1, "%v", err)
	}
	return 0
}

// checkNumbers refuses line numbers in descending order before it writes anything.
func checkNumbers(c *tool.Call, patterns []string) bool {
	last, lastText := 0, ""
	for _, p := range patterns {
		n, err := atoi(p)
		switch {
		case err != nil:
			continue
		case n == 0:
			c.Errorf(1, "%s: line number must be greater than zero", p)
			return false
		case n < last:
			c.Errorf(1, "line number ‘%s’ is smaller than preceding line number, %s", p, lastText)
			return false
		case n == last:
			c.Errorf(0, "warning: line number ‘%s’ is the same as preceding line number", p)
		}
		last, lastText = n, p
	}
	return true
}

func (s *csplitter) run(patterns []string) error {
	for i, p := range patterns {
		if p == "" || p[0] == '{' {
			continue
		}
		times, forever := 0, false
		if i+1 < len(patterns) && strings.HasPrefix(patterns[i+1], "{") {
			t := strings.TrimSuffix(patterns[i+1][1:], "}")
			if forever = t == "*"; !forever {
				n, err := atoi(t)
				if err != nil {
					return fmt.Errorf("%s: invalid pattern", patterns[i+1])
				}
				times = n
			}
		}
		for r := 0; r <= times || forever; r++ {
			err := s.step(p, r)
			if err == nil && s.suppress && s.at < len(s.lines) {
				s.at++
			}
			if err == nil {
				continue
			}
			if forever && (errors.Is(err, errNoMatch) || strings.Contains(err.Error(), "out of range")) {
				if strings.Contains(err.Error(), "out of range") {
					return nil
				}
				break
			}
			if !errors.Is(err, errNoMatch) {
				return err
			}
			again := ""
			if r > 0 {
				again = fmt.Sprintf(" on repetition %d", r)
			}
			s.c.Errorf(1, "‘%s’: match not found%s", p, again)
			if p[0] == '/' {
				if werr := s.write(len(s.lines)); werr != nil {
					return werr
				}
			}
			return errNoMatch
		}
	}
	return s.write(len(s.lines))
}
