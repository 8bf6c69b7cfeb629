package script

import (
	"errors"
	"io"
	"io/fs"
	"strings"
	"syscall"
	"time"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/tools/script/quickjs"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// in are the arguments of a call from a script. Each may be anything.
type in struct {
	vm   *quickjs.VM
	args []quickjs.Value
}

func (a in) has(i int) bool { return i < len(a.args) && !a.vm.Nil(a.args[i]) }
func (a in) str(i int) string {
	if i >= len(a.args) || !a.vm.IsString(a.args[i]) {
		return ""
	}
	return a.vm.String(a.args[i])
}
func (a in) num(i int) int64 {
	if i >= len(a.args) {
		return 0
	}
	return a.vm.Int(a.args[i])
}
func (a in) float(i int) float64 {
	if i >= len(a.args) {
		return 0
	}
	return a.vm.Float(a.args[i])
}
func (a in) flag(i int) bool { return i < len(a.args) && a.vm.Bool(a.args[i]) }
func (a in) bytes(i int) []byte {
	if i >= len(a.args) {
		return nil
	}
	return a.vm.Bytes(a.args[i])
}

// failure is an error number in the form for scripts: its name.
type failure string

// Error implements error.
func (f failure) Error() string { return string(f) }

var errnoNames = map[syscall.Errno]string{syscall.EPERM: "EPERM", syscall.ENOENT: "ENOENT", syscall.EINTR: "EINTR", syscall.EIO: "EIO", syscall.EBADF: "EBADF",
	syscall.EAGAIN: "EAGAIN", syscall.ENOMEM: "ENOMEM", syscall.EACCES: "EACCES", syscall.EEXIST: "EEXIST", syscall.EXDEV: "EXDEV", syscall.ENOTDIR: "ENOTDIR",
	syscall.EISDIR: "EISDIR", syscall.EINVAL: "EINVAL", syscall.EMFILE: "EMFILE", syscall.EFBIG: "EFBIG", syscall.ENOSPC: "ENOSPC", syscall.ESPIPE: "ESPIPE",
	syscall.EROFS: "EROFS", syscall.EPIPE: "EPIPE", syscall.ENAMETOOLONG: "ENAMETOOLONG", syscall.ENOTEMPTY: "ENOTEMPTY", syscall.ELOOP: "ELOOP",
	syscall.ENOTSUP: "ENOTSUP", syscall.ESRCH: "ESRCH"}

// fail converts any error to a failure.
func fail(err error) error {
	var no syscall.Errno
	switch {
	case err == nil:
		return nil
	case errors.As(err, &no) && errnoNames[no] != "":
		return failure(errnoNames[no])
	case errors.Is(err, fs.ErrNotExist):
		return failure("ENOENT")
	case errors.Is(err, fs.ErrExist):
		return failure("EEXIST")
	case errors.Is(err, fs.ErrPermission):
		return failure("EACCES")
	}
	return failure(err.Error())
}

// handle is an open file of a script.
type handle struct {
	tool.File
	append bool
}

// maxFiles bounds open files.
const maxFiles = 1024

// path makes a name absolute.
func (n *node) path(name string) string {
	if strings.HasPrefix(name, "/") {
		return name
	}
	return strings.TrimSuffix(n.dir, "/") + "/" + name
}

func (n *node) closeAll() {
	for _, h := range n.fds {
		_ = h.Close() // the process ends
	}
}

// openFlags converts Linux's flags to those of package vfs.
func openFlags(f int64) vfs.Flags {
	flags := [...]vfs.Flags{vfs.ReadOnly, vfs.WriteOnly, vfs.ReadWrite, vfs.ReadWrite}[f&3]
	for bit, to := range map[int64]vfs.Flags{64: vfs.CreateNew, 128: vfs.Exclusive, 512: vfs.Truncate, 1024: vfs.Append} {
		if f&bit != 0 {
			flags |= to
		}
	}
	return flags
}

func (n *node) open(a in) (any, error) {
	if len(n.fds) >= maxFiles {
		return nil, failure("EMFILE")
	}
	f, err := n.c.Open(n.path(a.str(0)), openFlags(a.num(1)), fs.FileMode(a.num(2))&0o7777)
	if err != nil {
		return nil, fail(err)
	}
	fd := 3
	for n.fds[fd] != nil {
		fd++
	}
	n.fds[fd] = &handle{File: f, append: a.num(1)&1024 != 0}
	return fd, nil
}

func (n *node) close(a in) (any, error) {
	fd := int(a.num(0))
	h := n.fds[fd]
	if h == nil {
		if fd >= 0 && fd < 3 {
			return nil, nil
		}
		return nil, failure("EBADF")
	}
	delete(n.fds, fd)
	return nil, fail(h.Close())
}

// reader returns a reader for one of the process's descriptors.
func (n *node) reader(fd int) (io.Reader, *handle, error) {
	if h := n.fds[fd]; h != nil {
		return h, h, nil
	}
	if fd == 0 {
		n.flush() // a person must see the question before answering
		return n.c.In, nil, nil
	}
	return nil, nil, failure("EBADF")
}

// maxRead bounds one read.
const maxRead = 64 << 20

func (n *node) read(a in) (any, error) {
	r, h, err := n.reader(int(a.num(0)))
	if err != nil {
		return nil, err
	}
	size, pos := a.num(1), a.num(2)
	if size < 0 || size > maxRead {
		return nil, failure("EINVAL")
	}
	if pos >= 0 && h != nil {
		old, err := h.Seek(0, io.SeekCurrent)
		if err != nil {
			return nil, fail(err)
		}
		if _, err := h.Seek(pos, io.SeekStart); err != nil {
			return nil, fail(err)
		}
		defer func() { _, _ = h.Seek(old, io.SeekStart) }() // it could be sought before
	}
	buf := make([]byte, size)
	got := 0
	for got < len(buf) {
		m, err := r.Read(buf[got:])
		got += m
		if err == io.EOF || m > 0 && h == nil {
			break
		}
		if err != nil {
			return nil, fail(err)
		}
		if m == 0 || !n.c.Step(1+m>>10) {
			break
		}
	}
	return buf[:got], nil
}

func (n *node) readAll(a in) (any, error) {
	r, _, err := n.reader(int(a.num(0)))
	if err != nil {
		return nil, err
	}
	return n.slurp(r)
}

// slurp reads everything. It then gives back the memory it paid for, because the script's own
// memory holds the data.
func (n *node) slurp(r io.Reader) (any, error) {
	b, err := n.c.ReadAll(r)
	_ = n.c.Pay(-int64(len(b)))
	if err != nil {
		return nil, fail(err)
	}
	return b, nil
}

func (n *node) readFile(a in) (any, error) {
	f, err := n.c.Open(n.path(a.str(0)), vfs.ReadOnly, 0)
	if err != nil {
		return nil, fail(err)
	}
	defer f.Close()
	return n.slurp(f)
}

func (n *node) writeFile(a in) (any, error) {
	data := a.bytes(1)
	f, err := n.c.Open(n.path(a.str(0)), openFlags(a.num(2)), fs.FileMode(a.num(3))&0o7777)
	if err != nil {
		return nil, fail(err)
	}
	_, err = f.Write(data)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	n.c.Step(1 + len(data)>>10)
	return nil, fail(err)
}

func (n *node) write(a in) (any, error) {
	data := a.bytes(1)
	_, err := n.put(int(a.num(0)), data)
	return nil, err
}

// put writes to a descriptor.
func (n *node) put(fd int, data []byte) (int, error) {
	if h := n.fds[fd]; h != nil {
		m, err := h.Write(data)
		return m, fail(err)
	}
	var m int
	var err error
	switch fd {
	case 1:
		if m, err = n.out.Write(data); err != nil {
			n.broken = true
			quickjs.End() // nobody reads any more
		}
		if _, _, tty := n.c.Terminal(1); tty {
			n.flush()
		}
	case 2:
		n.flush()
		m, err = n.c.Err.Write(data)
	default:
		err = syscall.EBADF
	}
	return m, fail(err)
}

func (n *node) pwrite(a in) (any, error) {
	fd, pos := int(a.num(0)), a.num(2)
	if h := n.fds[fd]; h != nil && pos >= 0 && !h.append {
		old, err := h.Seek(0, io.SeekCurrent)
		if err != nil {
			return nil, fail(err)
		}
		if _, err := h.Seek(pos, io.SeekStart); err != nil {
			return nil, fail(err)
		}
		defer func() { _, _ = h.Seek(old, io.SeekStart) }()
	}
	m, err := n.put(fd, a.bytes(1))
	return m, err
}

// statList returns the fields of a Stats object.
func statList(i vfs.Info) []any {
	return []any{int64(modeBits(i.Mode)), i.Size, int64(i.Ino), i.Links, int64(i.UID), int64(i.GID), float64(i.Modified.UnixNano()) / 1e6}
}

// modeBits returns a mode with Linux's bits.
func modeBits(m fs.FileMode) uint32 {
	bits := uint32(m.Perm())
	switch {
	case m.IsDir():
		bits |= 0o040000
	case m&fs.ModeSymlink != 0:
		bits |= 0o120000
	case m&fs.ModeNamedPipe != 0:
		bits |= 0o010000
	case m&fs.ModeDevice != 0:
		bits |= 0o020000
	default:
		bits |= 0o100000
	}
	for bit, to := range map[fs.FileMode]uint32{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000} {
		if m&bit != 0 {
			bits |= to
		}
	}
	return bits
}

func (n *node) stat(a in) (any, error) {
	stat := n.c.FS().Stat
	if !a.flag(1) {
		stat = n.c.FS().Lstat
	}
	if a.str(0) == "" {
		return nil, failure("ENOENT")
	}
	i, err := stat(n.path(a.str(0)))
	if err != nil {
		return nil, fail(err)
	}
	return statList(i), nil
}

func (n *node) fstat(a in) (any, error) {
	if h := n.fds[int(a.num(0))]; h != nil {
		i, err := h.Stat()
		return statList(i), fail(err)
	}
	if fd := a.num(0); fd < 0 || fd > 2 {
		return nil, failure("EBADF")
	}
	return statList(vfs.Info{Mode: fs.ModeNamedPipe | 0o600, Links: 1}), nil
}

func (n *node) ftruncate(a in) (any, error) {
	h := n.fds[int(a.num(0))]
	if h == nil {
		return nil, failure("EBADF")
	}
	return nil, fail(h.Truncate(a.num(1)))
}

func (n *node) readdir(a in) (any, error) {
	all, err := n.c.FS().ReadDir(n.path(a.str(0)))
	if err != nil {
		return nil, fail(err)
	}
	if !n.c.Step(len(all) + 1) {
		return nil, quickjs.ErrEnded
	}
	out := make([]any, len(all))
	for i, e := range all {
		kind := "f"
		switch m := e.Mode; {
		case m.IsDir():
			kind = "d"
		case m&fs.ModeSymlink != 0:
			kind = "l"
		case m&fs.ModeDevice != 0:
			kind = "c"
		case m&fs.ModeNamedPipe != 0:
			kind = "p"
		}
		out[i] = []any{e.Name, kind}
	}
	return out, nil
}

func (n *node) mkdir(a in) (any, error) {
	v, name, perm := n.c.FS(), n.path(a.str(0)), fs.FileMode(a.num(1))&0o7777&^n.c.Umask()
	if !a.flag(2) {
		return nil, fail(v.Mkdir(name, perm))
	}
	first := any(nil)
	at := ""
	for _, part := range strings.Split(name, "/") {
		if part == "" {
			continue
		}
		at += "/" + part
		if i, err := v.Stat(at); err == nil {
			if !i.Mode.IsDir() {
				return nil, failure("ENOTDIR")
			}
			continue
		}
		if err := v.Mkdir(at, perm); err != nil {
			return nil, fail(err)
		}
		if first == nil {
			first = at
		}
	}
	return first, nil
}

// removeOne removes a file, or an empty directory.
func (n *node) removeOne(name string, dir bool) error {
	i, err := n.c.FS().Lstat(name)
	switch {
	case err != nil:
		return fail(err)
	case dir && !i.Mode.IsDir():
		return failure("ENOTDIR")
	case !dir && i.Mode.IsDir():
		return failure("EISDIR")
	}
	return fail(n.c.FS().Remove(name))
}

func (n *node) access(a in) (any, error) {
	if _, err := n.c.FS().Stat(n.path(a.str(0))); err != nil {
		return nil, fail(err)
	}
	return nil, fail(n.c.FS().Access(n.path(a.str(0)), fs.FileMode(a.num(1)&7)))
}

func (n *node) chdir(a in) (any, error) {
	name, err := n.c.FS().EvalSymlinks(n.path(a.str(0)))
	if err != nil {
		return nil, fail(err)
	}
	i, err := n.c.FS().Stat(name)
	if err == nil && !i.Mode.IsDir() {
		err = syscall.ENOTDIR
	}
	if err == nil {
		err = n.c.FS().Access(name, vfs.MayExec)
	}
	if err != nil {
		return nil, fail(err)
	}
	n.dir = name
	return nil, nil
}

func (n *node) truncate(a in) (any, error) {
	f, err := n.c.Open(n.path(a.str(0)), vfs.WriteOnly, 0)
	if err != nil {
		return nil, fail(err)
	}
	err = f.Truncate(a.num(1))
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return nil, fail(err)
}

func millis(ms float64) time.Time { return time.UnixMicro(int64(ms * 1000)) }
