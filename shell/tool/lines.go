package tool

import (
	"bufio"
	"errors"
	"io"
	"sync"

	"github.com/carrel-dev/carrel/shell/vfs"
)

// MaxLine is the longest line that a program accepts, in bytes.
const MaxLine = 64 << 20

// bufSize is the size of one read or write.
const bufSize = 64 << 10

var readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, bufSize) }}

// Lines calls fn with every line of in, without the byte end that ends it ('\n' in most cases, 0
// for -z). whole is false for a last line without an end. The slice is valid only during the call.
// Lines returns fn's error, or the error of a read.
func (c *Call) Lines(in io.Reader, end byte, fn func(line []byte, whole bool) error) error {
	br := readers.Get().(*bufio.Reader)
	br.Reset(in)
	defer func() { br.Reset(nil); readers.Put(br) }()
	var long []byte
	paid := int64(0)
	defer func() { _ = c.Pay(-paid) }()
	const batch = 64
	for n := 0; ; n++ {
		part, err := br.ReadSlice(end)
		if err == bufio.ErrBufferFull {
			if perr := c.Pay(int64(len(part))); perr != nil {
				return perr
			}
			paid += int64(len(part))
			if long = append(long, part...); len(long) > MaxLine {
				return errors.New("line too long")
			}
			n--
			continue
		}
		line := part
		if len(long) > 0 {
			line = append(long, part...)
			long = long[:0]
		}
		if err != nil && (err != io.EOF || len(line) == 0) {
			if err == io.EOF {
				return nil
			}
			return err
		}
		whole := false
		if n := len(line); n > 0 && line[n-1] == end {
			line, whole = line[:n-1], true
		}
		if n%batch == 0 && !c.Step(batch+len(line)>>6) {
			return ErrStop
		}
		if ferr := fn(line, whole); ferr != nil {
			return ferr
		}
		if err == io.EOF {
			return nil
		}
	}
}

// ReadAll reads everything and pays for its memory. The memory is given back when the process ends.
func (c *Call) ReadAll(in io.Reader) ([]byte, error) {
	var out []byte
	buf := make([]byte, bufSize)
	for {
		n, err := in.Read(buf)
		if n > 0 {
			if perr := c.Pay(int64(n)); perr != nil {
				return nil, perr
			}
			if !c.Step(1 + n>>10) {
				return nil, ErrStop
			}
			out = append(out, buf[:n]...)
		}
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			return out, err
		}
	}
}

// input makes standard input a File that can only be read.
type input struct {
	io.Reader
	close func() error
}

// Close implements io.Closer.
func (i input) Close() error {
	if i.close == nil {
		return nil
	}
	return i.close()
}

// OpenIn opens a named input. "-" is standard input.
func (c *Call) OpenIn(name string) (io.ReadCloser, error) {
	if name == "-" {
		return input{Reader: c.In}, nil
	}
	f, err := c.Open(name, vfs.ReadOnly, 0)
	if err != nil {
		return nil, err
	}
	return input{f, f.Close}, nil
}

// Inputs calls fn with every named input, or with standard input if there are no names. If an input
// can't be opened or fn fails, it writes a message on Err, continues with the other inputs, and
// returns 1. fn ends the loop with [ErrStop].
func (c *Call) Inputs(names []string, fn func(name string, in io.Reader) error) int {
	if len(names) == 0 {
		names = []string{"-"}
	}
	status := 0
	for _, n := range names {
		in, err := c.OpenIn(n)
		if err == nil {
			err = fn(n, in)
			_ = in.Close() // it was read
		}
		switch {
		case err == nil:
		case c.Stopped(err):
			return max(status, 1)
		default:
			status = c.Errorf(1, "%s: %s", n, ErrText(err))
		}
	}
	return status
}

// Buffered returns a buffered Out. The caller flushes it before it returns. Errorf flushes it too,
// as error(3) of glibc does.
func (c *Call) Buffered() *bufio.Writer {
	c.buffered = bufio.NewWriterSize(c.Out, bufSize)
	return c.buffered
}

// Flush flushes a buffered Out, and returns the exit status: status, or 1 when the flush failed.
func (c *Call) Flush(w *bufio.Writer, status int) int {
	if err := w.Flush(); err != nil {
		if !c.Stopped(err) {
			c.Errorf(1, "write error: %s", ErrText(err))
		}
		return max(status, 1)
	}
	return status
}
