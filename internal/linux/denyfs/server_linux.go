package denyfs

import (
	"bytes"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Server answers the kernel.
type Server struct {
	masks   []Mask
	touched func(Touch)
	dev     *os.File
	done    chan struct{}
	// uid and gid own all files. They are those of the first caller of a lookup.
	uid, gid uint32
	known    bool
}

// Serve answers the kernel until the filesystem is unmounted (its namespace has ended). The
// touching program waits for touched, so touched must not block. It may be nil. Serve owns dev. It
// returns at once and serves in the background; Close waits for its end.
func Serve(dev *os.File, masks []Mask, touched func(Touch)) *Server {
	s := &Server{masks: masks, touched: touched, dev: pollable(dev), done: make(chan struct{})}
	if s.touched == nil {
		s.touched = func(Touch) {}
	}
	go s.serve()
	return s
}

// pollable returns the same descriptor, registered with Go's poller. A read of it then ends when it
// is closed, and costs no thread.
func pollable(dev *os.File) *os.File {
	raw, err := dev.SyscallConn()
	if err != nil {
		return dev
	}
	fd := -1
	_ = raw.Control(func(old uintptr) {
		_ = unix.SetNonblock(int(old), true)
		if n, err := unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 3); err == nil {
			fd = n
		}
	})
	if fd < 0 {
		return dev
	}
	_ = dev.Close()
	return os.NewFile(uintptr(fd), "/dev/fuse")
}

// Close ends the server. Later operations on the mount fail with ENOTCONN.
func (s *Server) Close() error {
	err := s.dev.Close()
	<-s.done
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

// serve is the loop. ENOENT, from a read or a write, means that the kernel withdrew the request.
func (s *Server) serve() {
	defer close(s.done)
	defer s.dev.Close()
	in, out := make([]byte, bufferSize), make([]byte, 256)
	for {
		n, err := s.dev.Read(in)
		switch {
		case err == nil:
		case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EINTR):
			continue
		default: // ENODEV: unmounted; os.ErrClosed; io.EOF
			return
		}
		h, body, ok := parse(in[:n])
		if !ok {
			return // unknown protocol: no answer is better than a wrong one
		}
		reply := s.answer(out, h, body)
		if reply == nil {
			continue
		}
		if _, err := s.dev.Write(reply); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EINTR) {
			if errors.Is(err, os.ErrClosed) || errors.Is(err, unix.ENODEV) || errors.Is(err, io.ErrClosedPipe) {
				return
			}
		}
	}
}

// answer returns the answer for the kernel; nil means no answer.
func (s *Server) answer(out []byte, h header, body []byte) []byte {
	if !s.known && (h.op == opLookup || h.op == opGetattr || h.op == opOpendir) {
		s.uid, s.gid, s.known = h.uid, h.gid, true
	}
	dir := h.node == rootNode
	mask := -1
	if h.node >= firstMask && h.node-firstMask < uint64(len(s.masks)) {
		mask = int(h.node - firstMask)
		dir = s.masks[mask].Dir
	}
	switch h.op {
	case opInit:
		return welcome(out, h)
	case opForget, opBatchForget, opInterrupt:
		return nil
	case opDestroy:
		return answer(out, h, 0, 0)
	case opStatfs:
		return statfs(out, h)
	case opGetxattr, opListxattr, opStatx: // unknown here: the kernel does not ask again
		return answer(out, h, unix.ENOSYS, 0)
	case opGetattr:
		return stat(out, h, dir, s.uid, s.gid)
	case opLookup:
		return s.lookup(out, h, mask, body)
	}
	if h.node == rootNode { // whoever lays the masks lists them, which spares it a question for each
		switch h.op {
		case opOpendir:
			return answer(out, h, 0, 16)
		case opReaddirplus:
			return list(h, body, s.masks, s.uid, s.gid)
		case opReleasedir:
			return answer(out, h, 0, 0)
		}
	}
	s.tell(h, mask, "")
	return answer(out, h, unix.EACCES, 0)
}

// lookup finds the masks in the root directory, and nothing below them.
func (s *Server) lookup(out []byte, h header, mask int, body []byte) []byte {
	name, _, _ := bytes.Cut(body, []byte{0})
	if h.node != rootNode {
		s.tell(h, mask, "/"+string(name))
		return answer(out, h, unix.EACCES, 0)
	}
	i, ok := index(string(name), len(s.masks))
	if !ok {
		return answer(out, h, unix.ENOENT, 0)
	}
	return entry(out, h, uint64(firstMask+i), s.masks[i].Dir, s.uid, s.gid)
}

// tell reports an attempt on a mask. It does not report requests on the root directory, which no
// program sees.
func (s *Server) tell(h header, mask int, below string) {
	if mask < 0 {
		return
	}
	op := "open"
	switch h.op {
	case opLookup:
		op = "look up"
	case opOpendir:
		op = "list"
	case opAccess:
		op = "stat"
	case opSetattr, opSetxattr, opRemovexattr:
		op = "change"
	}
	s.touched(Touch{Mask: mask, Path: s.masks[mask].Path + below, Op: op, PID: int(h.pid)})
}
