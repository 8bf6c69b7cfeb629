package seccomp

import (
	"context"
	"errors"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Answer is the result of a Call. The zero value is the result 0.
type Answer struct {
	Continue    bool          // the kernel runs the call, with the memory's content of that moment
	Errno       syscall.Errno // else this error
	Value       int64         // else this result
	File        *os.File      // else the result is a new descriptor of this file; the Listener closes File
	CloseOnExec bool          // of File
}

// Listener reads the calls of one filter.
//
// One thread at a time waits in the kernel, because each call wakes all waiting threads. That
// thread answers the call itself, so that caller and listener take turns on one processor. If an
// answer takes longer than a tick, or calls keep coming, another thread begins to wait in the
// kernel.
type Listener struct {
	file    *os.File
	raw     syscall.RawConn
	reading *reading
	handle  func(Call) Answer
	hangs   bool // this kernel does not end the wait after the filter's last process

	done     atomic.Bool   // no more calls are received
	waiting  atomic.Int32  // threads that wait in the kernel
	received atomic.Uint64 // calls so far
	ticking  atomic.Bool
	tick     chan struct{} // starts the ticks again
	stop     chan struct{} // closed with done
	once     sync.Once

	mu      sync.Mutex
	workers map[*worker]struct{}
	wake    int // eventfd that ends hangup's wait; -1 if none
	running sync.WaitGroup
}

// Listen serves the descriptor that Install returned, here or in another process. filter is the
// installed filter: a call that it denies stays denied whatever the handler answers.
func Listen(f *os.File, filter Filter) *Listener {
	raw, err := f.SyscallConn()
	l := &Listener{file: f, raw: raw, reading: read(filter), tick: make(chan struct{}, 1), stop: make(chan struct{}), workers: map[*worker]struct{}{}, wake: -1, hangs: !tellsEnd()}
	if err != nil {
		l.end()
		return l
	}
	// Kernels before 6.6 don't know this flag and choose the processor themselves.
	_ = l.control(unix.SECCOMP_IOCTL_NOTIF_SET_FLAGS, unix.SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP)
	return l
}

// control makes an ioctl on the listener. It fails when the listener is closed.
func (l *Listener) control(request, arg uintptr) error {
	errno := unix.EBADF
	_ = l.raw.Control(func(fd uintptr) {
		_, _, errno = unix.Syscall(unix.SYS_IOCTL, fd, request, arg)
	})
	if errno != 0 {
		return errno
	}
	return nil
}

// pointer is control with a pointer to a structure. The structure does not move during the call.
func (l *Listener) pointer(request uintptr, arg unsafe.Pointer) error {
	errno := unix.EBADF
	_ = l.raw.Control(func(fd uintptr) {
		_, _, errno = unix.Syscall(unix.SYS_IOCTL, fd, request, uintptr(arg))
	})
	runtime.KeepAlive(arg)
	if errno != 0 {
		return errno
	}
	return nil
}

// Serve answers calls with handle until the filter's last process has ended (then it returns nil),
// ctx has ended, or Close is called. It calls handle from several goroutines at once, each on a
// thread of its own. While handle runs, the caller can only be killed. So handle should not wait
// for something that the caller may block. Serve asks the kernel to wake caller and listener on one
// processor if it can (SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP), which makes answers fast. A call that
// ends before its answer is no error. Serve is called once.
func (l *Listener) Serve(ctx context.Context, handle func(Call) Answer) error {
	if l.done.Load() {
		return os.ErrClosed
	}
	l.handle = handle
	defer context.AfterFunc(ctx, l.end)()
	if l.hangs {
		l.running.Add(1)
		go l.hangup()
	}
	l.start()
	l.ticks()
	l.running.Wait()
	return ctx.Err()
}

// Close ends Serve. Waiting calls get ENOSYS. Serve waits for handlers that still run; Close does
// not.
func (l *Listener) Close() error {
	l.end()
	err := l.file.Close()
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

// end stops all workers.
func (l *Listener) end() {
	l.once.Do(func() {
		l.done.Store(true)
		close(l.stop)
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.wake >= 0 {
		_, _ = unix.Write(l.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	}
	for w := range l.workers {
		w.interrupt()
	}
}

// start adds a worker.
func (l *Listener) start() {
	w := &worker{l: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.done.Load() || len(l.workers) >= maxWorkers {
		return
	}
	l.workers[w] = struct{}{}
	l.waiting.Add(1)
	l.running.Add(1)
	go w.run()
}

// maxWorkers bounds the threads, and so the number of handlers that run at once.
const maxWorkers = 128

// ticks checks the workers once a millisecond while calls come. It returns when the Listener ends.
func (l *Listener) ticks() {
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	idle, before := 0, uint64(0)
	for {
		select {
		case <-l.stop:
			l.finish()
			return
		case <-ticker.C:
		}
		now := l.received.Load()
		l.look(now != before)
		if idle++; now != before {
			idle = 0
		}
		before = now
		if idle < 20 || l.busy() {
			continue
		}
		ticker.Stop()
		l.ticking.Store(false)
		if l.received.Load() == now { // else a call came in between without starting the ticks
			select {
			case <-l.stop:
				l.finish()
				return
			case <-l.tick:
			}
		}
		l.ticking.Store(true)
		ticker.Reset(time.Millisecond)
		idle = 0
	}
}

// busy reports whether a handler runs.
func (l *Listener) busy() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return int(l.waiting.Load()) < len(l.workers)
}

// look starts a worker if none waits in the kernel and there is need for one: handlers have run for
// a tick, or calls keep coming.
func (l *Listener) look(active bool) {
	if active || l.busy() {
		if l.waiting.Load() == 0 {
			l.start()
		}
	}
}

// finish interrupts the workers until they have ended. It repeats that, because a worker may begin
// to wait just after an interrupt.
func (l *Listener) finish() {
	for {
		l.mu.Lock()
		n := len(l.workers)
		for w := range l.workers {
			w.interrupt()
		}
		l.mu.Unlock()
		if n == 0 {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// hangup ends the Listener when the filter's last process has ended. It is for kernels that do not
// end the wait of other threads then. A call does not wake it.
func (l *Listener) hangup() {
	defer l.running.Done()
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return
	}
	l.mu.Lock()
	l.wake = wake
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.wake = -1
		_ = unix.Close(wake)
	}()
	_ = l.raw.Control(func(fd uintptr) {
		for !l.done.Load() {
			fds := []unix.PollFd{{Fd: int32(fd)}, {Fd: int32(wake), Events: unix.POLLIN}}
			if n, err := unix.Poll(fds, -1); n > 0 || err != nil && err != unix.EINTR {
				l.end()
			}
		}
	})
}

// tellsEnd reports whether this kernel ends the wait for calls when the last process has ended.
// Kernels from 6.11 on do.
func tellsEnd() bool {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return false
	}
	var version [2]int
	field := 0
	for _, b := range u.Release {
		switch {
		case b >= '0' && b <= '9':
			version[field] = version[field]*10 + int(b-'0')
		case b == '.' && field == 0:
			field = 1
		default:
			return version[0] > 6 || version[0] == 6 && version[1] >= 11
		}
	}
	return false
}
