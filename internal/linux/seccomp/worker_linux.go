package seccomp

import (
	"runtime"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The kernel's structures.
type (
	notification struct {
		id    uint64
		pid   uint32
		flags uint32
		nr    int32
		arch  uint32
		ip    uint64
		args  [6]uint64
	}
	response struct {
		id    uint64
		val   int64
		error int32
		flags uint32
	}
	addFile struct {
		id         uint64
		flags      uint32
		srcfd      uint32
		newfd      uint32
		newfdFlags uint32
	}
)

// worker is one thread.
type worker struct {
	l   *Listener
	tid atomic.Int32
	in  notification
	out response
}

// interrupt makes the kernel return from the wait. Go restarts system calls after signals. But this
// call fails at its start if the memory for its result is not zero. So interrupt first writes to
// that memory.
func (w *worker) interrupt() {
	tid := w.tid.Load()
	if tid == 0 {
		return
	}
	atomic.StoreUint32(&w.in.flags, 1)                    // nobody reads this one
	_ = unix.Tgkill(unix.Getpid(), int(tid), unix.SIGURG) // Go's runtime uses this signal itself and always expects it
}

// run receives and answers until the end.
func (w *worker) run() {
	l := w.l
	defer l.running.Done()
	runtime.LockOSThread() // never unlocked: the thread ends with its goroutine
	w.tid.Store(int32(unix.Gettid()))
	for w.receive() {
		l.waiting.Add(-1)
		l.received.Add(1)
		if !l.ticking.Load() && l.ticking.CompareAndSwap(false, true) {
			select {
			case l.tick <- struct{}{}:
			default:
			}
		}
		w.answer()
		// This worker's handler took long, and in that time others began to wait.
		if l.waiting.Add(1) > spare {
			break
		}
	}
	l.waiting.Add(-1)
	l.mu.Lock()
	w.tid.Store(0)
	delete(l.workers, w)
	l.mu.Unlock()
}

// spare is the number of threads that may wait in the kernel.
const spare = 2

// receive waits for a call.
func (w *worker) receive() bool {
	for {
		w.in.id, w.in.pid, w.in.nr, w.in.arch, w.in.ip, w.in.args = 0, 0, 0, 0, 0, [6]uint64{}
		atomic.StoreUint32(&w.in.flags, 0)
		if w.l.done.Load() {
			return false
		}
		switch err := w.l.pointer(unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&w.in)); err {
		case nil:
			return true
		case unix.ENOENT: // the caller is gone, or all processes are
			if w.l.gone() {
				w.l.end()
				return false
			}
		case unix.EINTR, unix.EINVAL: // interrupted
		default:
			w.l.end()
			return false
		}
	}
}

// gone reports whether no process with the filter is left.
func (l *Listener) gone() bool {
	gone := true
	_ = l.raw.Control(func(fd uintptr) {
		fds := []unix.PollFd{{Fd: int32(fd)}}
		n, _ := unix.Poll(fds, 0)
		gone = n > 0
	})
	return gone
}

// answer calls the handler and sends its answer to the kernel.
func (w *worker) answer() {
	n := int(w.in.nr)
	v := verdict{errno: unix.ENOSYS}
	if w.in.arch == arch {
		v = w.l.reading.verdict(n, w.in.args)
	}
	c := Call{ID: w.in.id, PID: int(w.in.pid), Args: w.in.args, Denied: v.errno, listener: w.l}
	if n >= 0 && n < len(names) {
		c.Name = names[n]
	}
	a := w.l.handle(c)
	if v.errno != 0 {
		if a.File != nil {
			_ = a.File.Close()
		}
		a = Answer{Errno: v.errno}
	}
	w.send(a)
}

// send carries an answer out. By then the caller may be gone, or the Listener closed.
func (w *worker) send(a Answer) {
	w.out = response{id: w.in.id}
	switch {
	case a.File != nil && !a.Continue && a.Errno == 0:
		err := w.give(a)
		if err == nil {
			return
		}
		w.out.error = -int32(err.(unix.Errno))
	case a.Continue:
		w.out.flags = unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE
	case a.Errno != 0:
		w.out.error = -int32(a.Errno)
	default:
		w.out.val = a.Value
	}
	if a.File != nil {
		_ = a.File.Close()
	}
	_ = w.l.pointer(unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&w.out))
}

// give puts a descriptor into the caller and makes its number the call's result, in one step (Linux
// 5.14).
func (w *worker) give(a Answer) error {
	defer a.File.Close()
	add := addFile{id: w.in.id, flags: unix.SECCOMP_ADDFD_FLAG_SEND}
	if a.CloseOnExec {
		add.newfdFlags = unix.O_CLOEXEC
	}
	raw, err := a.File.SyscallConn()
	if err != nil {
		return unix.EBADF
	}
	errno := error(unix.EBADF)
	_ = raw.Control(func(fd uintptr) {
		add.srcfd = uint32(fd)
		errno = w.l.pointer(unix.SECCOMP_IOCTL_NOTIF_ADDFD, unsafe.Pointer(&add))
	})
	return errno
}
