//go:build linux

package tier

import (
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// input is the command's standard input. It reads from a file only while the command runs, because
// keys pressed later belong to the next reader of the terminal.
type input struct {
	r      io.Reader
	file   *os.File
	wake   *os.File // the readable end of a pipe; Close closes it
	closer *os.File
	once   sync.Once
}

// newInput returns the input of a request, nil for none.
func newInput(r *Request) *input {
	in := &input{r: r.Stdin}
	in.file, _ = r.Stdin.(*os.File)
	if r.Terminal != nil {
		in.r, in.file = r.Terminal, r.Terminal
	}
	if in.r == nil || (in.r == io.Reader(in.file) && in.file == nil) {
		return nil
	}
	if in.file != nil {
		var err error
		if in.wake, in.closer, err = os.Pipe(); err != nil {
			in.file = nil // reads of this file can't be interrupted
		}
	}
	return in
}

// Read implements io.Reader.
func (in *input) Read(p []byte) (int, error) {
	if in.file == nil {
		return in.r.Read(p)
	}
	fds := []unix.PollFd{{Fd: int32(in.file.Fd()), Events: unix.POLLIN}, {Fd: int32(in.wake.Fd()), Events: unix.POLLIN}}
	for {
		_, err := unix.Poll(fds, -1)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return 0, err
		case fds[1].Revents != 0:
			return 0, io.EOF
		}
		n, err := unix.Read(int(in.file.Fd()), p)
		switch {
		case err == unix.EINTR || err == unix.EAGAIN:
			continue
		case err != nil:
			return 0, err
		case n == 0:
			return 0, io.EOF
		}
		return n, nil
	}
}

// Close ends reading.
func (in *input) Close() {
	if in == nil || in.closer == nil {
		return
	}
	in.once.Do(func() { _ = in.closer.Close() })
}
