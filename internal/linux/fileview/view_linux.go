package fileview

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
)

// File is the file to show. Its methods are called by several goroutines at once.
type File interface {
	// ReadAt reads as io.ReaderAt. It may wait for the content, in bounded time.
	ReadAt(p []byte, off int64) (int, error)
	// Ready reports whether a read would not wait.
	Ready(off, n int64) bool
}

// Options describe the file.
type Options struct {
	Size     int64
	Inode    uint64
	Modified time.Time
}

const device = "/dev/fuse"

// Mount covers the existing file at path, in the caller's mount namespace. It returns before any
// process serves it. Error: Unsupported, with what is missing.
func Mount(path string) (*os.File, error) {
	fail := func(op, name string, err error) error {
		e := &carrel.Error{Op: "show a file by FUSE", Kind: carrel.Unsupported,
			Err: &fs.PathError{Op: op, Path: name, Err: err}}
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENXIO) {
			e.Hint = "load the kernel module fuse"
		}
		return e
	}
	fd, err := unix.Open(device, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fail("open", device, err)
	}
	options := fmt.Sprintf("fd=%d,rootmode=%o,user_id=%d,group_id=%d,allow_other", fd,
		unix.S_IFREG|0o444, os.Getuid(), os.Getgid())
	// Not MS_NOEXEC: a sentry maps the programs in an image as executable.
	flags := uintptr(unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV)
	if err := unix.Mount("carrel-view", path, "fuse", flags, options); err != nil {
		_ = unix.Close(fd)
		return nil, fail("mount", path, err)
	}
	return os.NewFile(uintptr(fd), device), nil
}

// Unmount takes the file out of the namespace. Programs that have it open go on.
func Unmount(path string) error {
	return os.NewSyscallError("umount", unix.Unmount(path, unix.MNT_DETACH))
}

// maxReads bounds the reads that wait for content.
const maxReads = 256

// Server answers the kernel.
type Server struct {
	dev   *os.File
	file  File
	opts  Options
	slots chan struct{}
	done  chan struct{}
	wg    sync.WaitGroup
}

// Serve answers the kernel in the background. It owns dev.
func Serve(dev *os.File, file File, opts Options) *Server {
	s := &Server{dev: dev, file: file, opts: opts, slots: make(chan struct{}, maxReads),
		done: make(chan struct{})}
	go s.serve()
	return s
}

// Done is closed when the file is unmounted and nobody has it open.
func (s *Server) Done() <-chan struct{} { return s.done }

// Close ends the server. Reads of the file fail from then on. It waits for reads under way.
func (s *Server) Close() error {
	err := s.dev.Close()
	<-s.done
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

// The operations that need an answer of their own, from linux/fuse.h.
const (
	opForget      = 2
	opGetattr     = 3
	opOpen        = 14
	opRead        = 15
	opStatfs      = 17
	opRelease     = 18
	opFlush       = 25
	opInit        = 26
	opAccess      = 34
	opInterrupt   = 36
	opDestroy     = 38
	opBatchForget = 42
)

const (
	inSize  = 40 // struct fuse_in_header
	outSize = 16 // struct fuse_out_header
	// bufferSize holds each request that the kernel may send: none brings content.
	bufferSize = 16 << 10
	maxRead    = 128 << 10
	forever    = 10 * 365 * 24 * 3600 // seconds
)

// serve is the loop.
func (s *Server) serve() {
	defer close(s.done)
	defer s.wg.Wait()
	defer s.dev.Close()
	in := make([]byte, bufferSize)
	for {
		n, err := s.dev.Read(in)
		switch {
		case err == nil:
		case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
			continue // the kernel withdrew the request
		default: // ENODEV: unmounted; os.ErrClosed
			return
		}
		le := binary.LittleEndian
		if n < inSize || int(le.Uint32(in)) != n {
			return // unknown protocol: no answer is better than a wrong one
		}
		s.handle(le.Uint32(in[4:]), le.Uint64(in[8:]), in[inSize:n])
	}
}

// handle answers one request.
func (s *Server) handle(op uint32, unique uint64, body []byte) {
	le := binary.LittleEndian
	switch op {
	case opForget, opBatchForget, opInterrupt:
	case opInit:
		out := make([]byte, 64)
		le.PutUint32(out, 7)
		le.PutUint32(out[4:], 31)
		le.PutUint32(out[8:], maxRead) // read ahead
		const asyncReads, maxPages = 1 << 0, 1 << 22
		le.PutUint32(out[12:], asyncReads|maxPages)
		le.PutUint16(out[16:], maxReads) // requests in the background
		le.PutUint16(out[18:], maxReads)
		le.PutUint32(out[20:], 4096) // the smallest write
		le.PutUint32(out[24:], 1)
		le.PutUint16(out[28:], maxRead/4096)
		s.answer(unique, 0, out)
	case opGetattr:
		out := make([]byte, 104)
		le.PutUint64(out, forever)
		s.attributes(out[16:])
		s.answer(unique, 0, out)
	case opOpen:
		out := make([]byte, 16)
		const keepCache = 1 << 1
		le.PutUint32(out[8:], keepCache)
		s.answer(unique, 0, out)
	case opRead:
		if len(body) < 20 {
			s.answer(unique, unix.EINVAL, nil)
			return
		}
		s.read(unique, int64(le.Uint64(body[8:])), int64(min(le.Uint32(body[16:]), 1<<20)))
	case opStatfs:
		out := make([]byte, 80)
		le.PutUint32(out[40:], 4096)
		le.PutUint32(out[44:], 255)
		le.PutUint32(out[48:], 4096)
		s.answer(unique, 0, out)
	case opRelease, opFlush, opAccess, opDestroy:
		s.answer(unique, 0, nil)
	default:
		s.answer(unique, unix.ENOSYS, nil)
	}
}

// attributes fills a struct fuse_attr.
func (s *Server) attributes(b []byte) {
	le := binary.LittleEndian
	le.PutUint64(b, s.opts.Inode)
	le.PutUint64(b[8:], uint64(s.opts.Size))
	le.PutUint64(b[16:], uint64(s.opts.Size+511)/512)
	for i := range 3 { // access, modification, change
		le.PutUint64(b[24+8*i:], uint64(s.opts.Modified.Unix()))
		le.PutUint32(b[48+4*i:], uint32(s.opts.Modified.Nanosecond()))
	}
	le.PutUint32(b[60:], unix.S_IFREG|0o444)
	le.PutUint32(b[64:], 1)
	le.PutUint32(b[80:], 4096)
}

// read answers a read. One that has to wait does so in a goroutine, so that others pass it.
func (s *Server) read(unique uint64, off, n int64) {
	n = min(n, s.opts.Size-off)
	if off < 0 || n <= 0 {
		s.answer(unique, 0, nil)
		return
	}
	if s.file.Ready(off, n) {
		s.readNow(unique, off, n)
		return
	}
	s.slots <- struct{}{}
	s.wg.Go(func() {
		defer func() { <-s.slots }()
		s.readNow(unique, off, n)
	})
}

func (s *Server) readNow(unique uint64, off, n int64) {
	out := make([]byte, outSize+n)
	got, err := s.file.ReadAt(out[outSize:], off)
	if err != nil && !(err == io.EOF && int64(got) == n) {
		s.answer(unique, unix.EIO, nil)
		return
	}
	s.send(unique, 0, out)
}

// answer sends an answer.
func (s *Server) answer(unique uint64, errno unix.Errno, body []byte) {
	out := make([]byte, outSize, outSize+len(body))
	s.send(unique, errno, append(out, body...))
}

// send fills the head of an answer and sends it. If the kernel has withdrawn the request or the
// mount, nobody waits for it.
func (s *Server) send(unique uint64, errno unix.Errno, out []byte) {
	le := binary.LittleEndian
	le.PutUint32(out, uint32(len(out)))
	le.PutUint32(out[4:], uint32(-int32(errno)))
	le.PutUint64(out[8:], unique)
	_, _ = s.dev.Write(out)
}
