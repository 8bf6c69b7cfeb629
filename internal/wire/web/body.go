package web

import (
	"bytes"
	"errors"
	"io"
)

// framing says how the length of a body is given.
type framing int

const (
	noBody framing = iota
	byLength
	byChunks
	untilClose
)

// body reads one body of HTTP/1 from a reader, and no byte more.
type body struct {
	r       *reader
	how     framing
	left    int64 // bytes left of the body, or of the present chunk
	lenient bool
	started bool // a chunk was read, but not yet the end of its line
	ended   bool
	trailer head // of a chunked body, after its end; valid until the next read
}

// ready reports whether a Read would return without waiting, as far as is known.
func (b *body) ready() bool {
	return b.ended || b.how == noBody || (b.how == byLength && b.left == 0) || b.r.r < b.r.w
}

// Read implements io.Reader. It returns the bytes that are there already, and waits only when there
// are none.
func (b *body) Read(p []byte) (int, error) {
	switch {
	case b.ended || b.how == noBody:
		b.ended = true
		return 0, io.EOF
	case b.how == untilClose:
		n, err := b.r.Read(p)
		b.ended = err == io.EOF
		return n, err
	case b.how == byLength:
		return b.readLeft(p)
	}
	n := 0
	for n < len(p) {
		if b.left == 0 {
			if n > 0 && !b.chunkThere() {
				return n, nil
			}
			if err := b.nextChunk(); err != nil {
				return n, err
			}
			if b.ended {
				return n, io.EOF
			}
		}
		if n > 0 && b.r.r == b.r.w {
			return n, nil
		}
		m := min(int64(len(p)-n), b.left)
		got, err := b.r.Read(p[n : n+int(m)])
		n += got
		b.left -= int64(got)
		if err != nil {
			return n, unexpected(err)
		}
	}
	return n, nil
}

// chunkThere reports whether the line before the next chunk is there.
func (b *body) chunkThere() bool {
	rest := b.r.buffered()
	i := bytes.IndexByte(rest, '\n') // after the chunk before it
	return i >= 0 && bytes.IndexByte(rest[i+1:], '\n') >= 0
}

func (b *body) readLeft(p []byte) (int, error) {
	if b.left == 0 {
		b.ended = true
		return 0, io.EOF
	}
	n, err := b.r.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	if b.left == 0 {
		b.ended = true
		return n, io.EOF
	}
	return n, unexpected(err)
}

// nextChunk reads the line before a chunk. After the last chunk it reads the trailer.
func (b *body) nextChunk() error {
	if b.started {
		end, err := b.r.line(b.lenient)
		if err != nil {
			return err
		}
		if len(end) > 0 {
			return errors.New("a chunk is longer than it says")
		}
	}
	line, err := b.r.line(b.lenient)
	if err != nil {
		return err
	}
	if b.left, err = chunkSize(line, b.lenient); err != nil {
		return err
	}
	b.started = true
	if b.left > 0 {
		return nil
	}
	t, err := b.r.head(b.lenient)
	if err != nil {
		return unexpected(err)
	}
	if err := b.trailer.parseFields(t, b.lenient); err != nil {
		return err
	}
	b.ended = true
	return nil
}

// chunkSize reads the size in a chunk's line. It ignores extensions.
func chunkSize(line []byte, lenient bool) (int64, error) {
	var n int64
	i := 0
	for ; i < len(line); i++ {
		d, ok := hexDigit(line[i])
		if !ok {
			break
		}
		if i >= 15 {
			return 0, errors.New("a chunk is too large")
		}
		n = n<<4 | int64(d)
	}
	rest := line[i:]
	if lenient {
		rest = trimSpace(rest)
	}
	if i == 0 || (len(rest) > 0 && rest[0] != ';') || !isValue(rest) {
		return 0, errors.New("a chunk's size is malformed")
	}
	return n, nil
}

func hexDigit(c byte) (byte, bool) {
	switch {
	case c >= '0' && c <= '9':
		return c - '0', true
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10, true
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}

// appendChunk frames data as a chunk. b ends with the data, which begins at from+chunkRoom. The
// chunkRoom bytes before the data are for the chunk's line.
func appendChunk(b []byte, from int) []byte {
	const digits = "0123456789abcdef"
	n := len(b) - from - chunkRoom
	for i := chunkRoom - 3; i >= 0; i-- {
		b[from+i] = digits[n&15] // leading zeros are allowed
		n >>= 4
	}
	b[from+chunkRoom-2], b[from+chunkRoom-1] = '\r', '\n'
	return append(b, '\r', '\n')
}

// chunkRoom is the length of a chunk's line with its line end.
const chunkRoom = 8
