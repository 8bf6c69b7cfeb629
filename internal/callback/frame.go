package callback

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
)

// maxFrame bounds a frame's contents; a file goes whole into one.
const maxFrame = 64 << 20

// maxChunk is how much of a stream goes into one frame.
const maxChunk = 64 << 10

// errTurn is the error of a frame that has no business to come.
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

// read receives a frame. Memory is taken as the bytes come.
func (s *stream) read() (kind byte, data []byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(s.r, head[:]); err != nil {
		return 0, nil, err
	}
	size := binary.BigEndian.Uint32(head[1:])
	if size > maxFrame {
		return 0, nil, fmt.Errorf("a frame of %d bytes, at most %d may be", size, maxFrame)
	}
	if size <= maxChunk {
		data = make([]byte, size)
		_, err = io.ReadFull(s.r, data)
		return head[0], data, err
	}
	data, err = io.ReadAll(io.LimitReader(s.r, int64(size)))
	if err == nil && uint32(len(data)) < size {
		err = io.ErrUnexpectedEOF
	}
	return head[0], data, err
}

// number is what four bytes say, and whether they are four.
func number(b []byte) (uint32, bool) {
	if len(b) != 4 {
		return 0, false
	}
	return binary.BigEndian.Uint32(b), true
}

func fromNumber(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }
