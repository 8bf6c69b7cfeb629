package oshost

import (
	"io/fs"

	"golang.org/x/sys/unix"
)

// The guest's own files are small and on plain filesystems. Package os offers each file to the
// poller first, which does not accept it. That costs five more system calls, and inside a sandbox
// each of them goes to another process.

// plainBuffer is large enough for most such files.
const plainBuffer = 4 << 10

// openPlain opens a file as a bare descriptor.
func openPlain(name string, flags int, mode uint32) (int, error) {
	for {
		fd, err := unix.Open(name, flags|unix.O_CLOEXEC, mode)
		if err == nil {
			return fd, nil
		}
		if err != unix.EINTR {
			return -1, &fs.PathError{Op: "open", Path: name, Err: err}
		}
	}
}

// readPlain reads a whole file. A read that did not fill the buffer has reached the end. This is
// true for files, and for files of /proc that fit into one buffer.
func readPlain(name string) ([]byte, error) {
	fd, err := openPlain(name, unix.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	buf := make([]byte, 0, plainBuffer)
	for {
		n, err := unix.Read(fd, buf[len(buf):cap(buf)])
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return nil, &fs.PathError{Op: "read", Path: name, Err: err}
		}
		full := n == cap(buf)-len(buf)
		buf = buf[:len(buf)+n]
		if !full {
			return buf, nil
		}
		buf = append(buf, make([]byte, cap(buf))...)[:len(buf)]
	}
}

// writePlain replaces the contents of a file. It makes a missing file.
func writePlain(name, text string, mode uint32) error {
	fd, err := openPlain(name, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC, mode)
	if err != nil {
		return err
	}
	for data := []byte(text); len(data) > 0; {
		n, err := unix.Write(fd, data)
		switch {
		case err == unix.EINTR:
		case err != nil:
			_ = unix.Close(fd) // what was written is of no use
			return &fs.PathError{Op: "write", Path: name, Err: err}
		default:
			data = data[n:]
		}
	}
	if err := unix.Close(fd); err != nil && err != unix.EINTR {
		return &fs.PathError{Op: "close", Path: name, Err: err}
	}
	return nil
}
