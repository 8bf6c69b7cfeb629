package search

import (
	"bufio"
	"errors"
	"io"
	"io/fs"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// sedInput is the stream of input lines.
type sedInput struct {
	names []string
	r     *bufio.Reader
	spare *bufio.Reader
	f     io.Closer
	name  string // of the open file
	line  int64
	// For a file that is edited in place.
	target, tmp string
	mode        fs.FileMode
}

// next opens the next file. It returns false when there is none.
func (s *sed) next() bool {
	in := &s.input
	for len(in.names) > 0 {
		name := in.names[0]
		in.names = in.names[1:]
		if name == "-" && !s.inPlace {
			in.f = nil
			in.name = "-"
			if s.unbuf {
				in.reset(oneByte{s.In})
			} else {
				in.reset(s.In)
			}
			s.begun()
			return true
		}
		if s.follow && name != "-" {
			real, err := s.resolve(name)
			if err != nil {
				s.err = err
				return false
			}
			name = real
		}
		f, err := s.openInput(name)
		if err != nil {
			if s.Stopped(err) {
				return false
			}
			s.flush()
			s.Errorf(2, "%s", err)
			s.status = max(s.status, 2)
			if s.inPlace && s.status < 4 && s.notRegular {
				s.status, s.notRegular = 4, false
			}
			continue
		}
		in.f, in.name = f, name
		in.reset(f)
		s.begun()
		return true
	}
	return false
}

// oneByte reads no further than necessary, so that the next program gets the input that sed -u
// leaves.
type oneByte struct{ r io.Reader }

// Read implements io.Reader.
func (o oneByte) Read(p []byte) (int, error) { return o.r.Read(p[:min(1, len(p))]) }

func (in *sedInput) reset(r io.Reader) {
	if in.spare == nil {
		in.spare = bufio.NewReaderSize(r, 64<<10)
	} else {
		in.spare.Reset(r)
	}
	in.r = in.spare
}

// begun restarts the line count if files are separate.
func (s *sed) begun() {
	if !s.separate {
		return
	}
	s.input.line = 0
	s.hold.b = s.hold.b[:0]
	clear(s.readers) // they begin anew
	for _, c := range s.cmds {
		c.active, c.closed = c.a1 != nil && c.a1.kind == '0', false
	}
}

func (s *sed) openInput(name string) (tool.File, error) {
	if s.inPlace {
		info, err := s.FS().Stat(s.Abs(name))
		if err != nil {
			return nil, errors.New("can't read " + name + ": " + tool.ErrText(err))
		}
		if !info.Mode.IsRegular() {
			s.notRegular = true
			return nil, errors.New("couldn't edit " + name + ": not a regular file")
		}
	} else if info, err := s.FS().Stat(s.Abs(name)); err == nil && info.Mode.IsDir() {
		s.err = errors.New("read error on " + name + ": Is a directory")
		return nil, tool.ErrStop
	}
	f, err := s.Open(name, vfs.ReadOnly, 0)
	if err != nil {
		if s.Stopped(err) {
			return nil, err
		}
		return nil, errors.New("can't read " + name + ": " + tool.ErrText(err))
	}
	if s.inPlace {
		if err := s.beginFile(name); err != nil {
			_ = f.Close()
			return nil, err
		}
	}
	return f, nil
}

// close ends the open file.
func (s *sed) close() error {
	in := &s.input
	in.r = nil
	if in.f != nil {
		_ = in.f.Close() // it was read
		in.f = nil
	}
	return s.endFile()
}

// atEnd reports whether the open file has no further line.
func (s *sed) atEnd() bool {
	if s.input.r == nil {
		return true
	}
	_, err := s.input.r.Peek(1)
	return err != nil
}

// last reports whether this is the last line ($).
func (s *sed) last() bool {
	for s.atEnd() {
		if s.separate || len(s.input.names) == 0 {
			return true
		}
		if s.input.r != nil && s.close() != nil {
			return true
		}
		if !s.next() {
			return true
		}
	}
	return false
}

// more reports whether there is another line in any file.
func (s *sed) more() bool {
	for s.atEnd() {
		if s.input.r == nil && len(s.input.names) == 0 {
			return false
		}
		if s.separate && s.input.r != nil && len(s.input.names) == 0 {
			return false
		}
		if s.separate {
			return s.input.r != nil && len(s.input.names) > 0 || s.input.r == nil
		}
		if s.input.r != nil && s.close() != nil {
			return false
		}
		if !s.next() {
			return false
		}
	}
	return true
}

// readLine appends the next line to b. chomped says whether the line had an end. The error io.EOF
// is the end of all input.
func (s *sed) readLine(b []byte) (line []byte, chomped bool, err error) {
	in := &s.input
	s.replaced = false
	for {
		if in.r == nil {
			if !s.next() {
				if s.err != nil {
					return b, false, s.err
				}
				return b, false, io.EOF
			}
		}
		start := len(b)
		for {
			part, err := in.r.ReadSlice(s.end)
			if len(part) > 1024 && s.grow(len(b)+len(part)) != nil || len(b) > tool.MaxLine {
				return b, false, tool.ErrStop
			}
			b = append(b, part...)
			if err == nil {
				in.line++
				return b[:len(b)-1], true, nil
			}
			if err == bufio.ErrBufferFull {
				if !s.Step(64) {
					return b, false, tool.ErrStop
				}
				continue
			}
			if err != io.EOF {
				if s.Stopped(err) {
					return b, false, err
				}
				s.Errorf(2, "read error on %s: %s", in.name, tool.ErrText(err))
				s.status = 2
			}
			break
		}
		if len(b) > start {
			in.line++
			return b, false, nil
		}
		if err := s.close(); err != nil {
			return b, false, err
		}
	}
}
