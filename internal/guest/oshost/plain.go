package oshost

import (
	"io/fs"

	"golang.org/x/sys/unix"
)

// The files that the guest reads and writes for itself are small and lie on plain
// filesystems. Package os offers each to the poller first, which wants none of them:
// five system calls more, and inside a sandbox each is a trip to another process.

// plainBuffer holds most such files whole.
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

// readPlain reads a whole file. A read that did not fill the buffer has come to its
// end: so it is with files, and with those of /proc that fit into one buffer.
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

// writePlain replaces the content of a file, which is made if it is missing.
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
