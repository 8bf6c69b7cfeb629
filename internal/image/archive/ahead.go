package archive

import (
	"io"
	"sync"
)

const (
	aheadBuffers = 4
	aheadSize    = 256 << 10
)

// ahead reads a stream in a goroutine of its own, some buffers ahead of its reader. So a second
// processor unpacks while the first one writes. The stream must not block for long, because close
// waits for the read that is under way.
type ahead struct {
	full chan chunk
	free chan []byte
	quit chan struct{}
	wg   sync.WaitGroup

	now  chunk
	left []byte // of now
}

// chunk is a piece of a stream, and the error after it.
type chunk struct {
	buf []byte
	n   int
	err error
}

func readAhead(r io.Reader) *ahead {
	a := &ahead{full: make(chan chunk, aheadBuffers), free: make(chan []byte, aheadBuffers),
		quit: make(chan struct{})}
	for range aheadBuffers {
		a.free <- make([]byte, aheadSize)
	}
	a.wg.Go(func() {
		for {
			var buf []byte
			select {
			case buf = <-a.free:
			case <-a.quit:
				return
			}
			n, err := io.ReadFull(r, buf)
			if err == io.ErrUnexpectedEOF && n > 0 {
				// Either the end, or the stream's own complaint: the next read tells.
				err = nil
			}
			a.full <- chunk{buf, n, err} // there is room: one place for each buffer
			if err != nil {
				return
			}
		}
	})
	return a
}

// Read implements io.Reader.
func (a *ahead) Read(p []byte) (int, error) {
	for len(a.left) == 0 {
		if a.now.err != nil {
			return 0, a.now.err
		}
		if a.now.buf != nil {
			a.free <- a.now.buf
		}
		a.now = <-a.full
		a.left = a.now.buf[:a.now.n]
	}
	n := copy(p, a.left)
	a.left = a.left[n:]
	return n, nil
}

// close ends the goroutine.
func (a *ahead) close() {
	close(a.quit)
	a.wg.Wait()
}
