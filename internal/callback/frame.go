package callback

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
)

// maxFrame bounds a frame's contents. A whole file goes into one frame.
const maxFrame = 64 << 20

// maxChunk is the most of a stream that goes into one frame.
const maxChunk = 64 << 10

// errTurn is the error for an unexpected frame.
var errTurn = errors.New("a frame out of turn")

// stream is one end of a connection.
type stream struct {
	r *bufio.Reader

	mu sync.Mutex
	w  io.Writer
}

func newStream(c io.ReadWriter) *stream {
	return &stream{r: bufio.NewReaderSize(c, maxChunk), w: c}
}

// write sends a frame.
func (s *stream) write(kind byte, data []byte) error {
	if len(data) > maxFrame {
		return fmt.Errorf("a frame of %d bytes, at most %d may be", len(data), maxFrame)
	}
	head := make([]byte, 5, 5+len(data))
	head[0] = kind
	binary.BigEndian.PutUint32(head[1:], uint32(len(data)))
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := s.w.Write(append(head, data...))
	return err
}

// writeAll sends bytes in frames of one kind.
func (s *stream) writeAll(kind byte, b []byte) (int, error) {
	sent := 0
	for len(b) > 0 {
		part := b[:min(len(b), maxChunk)]
		if err := s.write(kind, part); err != nil {
			return sent, err
		}
		sent += len(part)
		b = b[len(part):]
	}
	return sent, nil
}

// read receives a frame.
func (s *stream) read() (kind byte, data []byte, err error) {
	kind, size, err := s.head()
	if err == nil {
		data, err = body(s.r, size)
	}
	return kind, data, err
}

// head receives the beginning of a frame: its kind and its length.
func (s *stream) head() (kind byte, size uint32, err error) { return head(s.r) }

func head(r io.Reader) (kind byte, size uint32, err error) {
	var b [5]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return 0, 0, err
	}
	if size = binary.BigEndian.Uint32(b[1:]); size > maxFrame {
		return 0, 0, fmt.Errorf("a frame of %d bytes, at most %d may be", size, maxFrame)
	}
	return b[0], size, nil
}

// body receives the contents of a frame. It allocates memory as the bytes arrive.
func body(r io.Reader, size uint32) ([]byte, error) {
	if size <= maxChunk {
		data := make([]byte, size)
		_, err := io.ReadFull(r, data)
		return data, err
	}
	data, err := io.ReadAll(io.LimitReader(r, int64(size)))
	if err == nil && uint32(len(data)) < size {
		err = io.ErrUnexpectedEOF
	}
	return data, err
}

// number returns the number in four bytes, and whether there are exactly four.
func number(b []byte) (uint32, bool) {
	if len(b) != 4 {
		return 0, false
	}
	return binary.BigEndian.Uint32(b), true
}

func fromNumber(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }
