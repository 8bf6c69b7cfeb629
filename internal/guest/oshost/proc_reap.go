package oshost

import (
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// reaper waits for child processes.
//
// As process 1 it waits for any child, because orphans become ours. It passes the status of a child
// that we started to the goroutine that waits for it. In any other process it waits for each of its
// own children by id. It touches no other child, because those belong to the rest of the program.
type reaper struct {
	any bool // we are process 1

	// starting is held for reading from before a fork until the child is in waiting, and for
	// writing while children are collected. So no child is collected before it is known.
	starting sync.RWMutex

	mu      sync.Mutex
	waiting map[int]chan syscall.WaitStatus

	signals chan os.Signal
	wg      sync.WaitGroup
}

// newReaper starts to collect orphans if this is process 1.
func newReaper() *reaper {
	r := &reaper{any: os.Getpid() == 1, waiting: map[int]chan syscall.WaitStatus{}, signals: make(chan os.Signal, 1)}
	if r.any {
		signal.Notify(r.signals, unix.SIGCHLD)
		r.wg.Go(r.loop)
	}
	return r
}

// close stops the collecting. Except in process 1, it returns when the last child has ended.
func (r *reaper) close() {
	signal.Stop(r.signals)
	close(r.signals)
	r.wg.Wait()
}

// loop collects on each SIGCHLD. Signals merge, so one signal stands for any number of children.
func (r *reaper) loop() {
	for range r.signals {
		r.collect()
	}
}

// collect takes the status of every child that has ended.
func (r *reaper) collect() {
	r.starting.Lock()
	defer r.starting.Unlock()
	for r.reap(-1) {
	}
}

// reap takes the status of one ended child (any for -1) and passes it to the goroutine that waits
// for it. It drops the status of an orphan. It reports whether there was an ended child. It holds
// mu, so that signalGroup never uses an id that is free already.
func (r *reaper) reap(child int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	var status syscall.WaitStatus
	pid, err := syscall.Wait4(child, &status, syscall.WNOHANG, nil)
	for err == syscall.EINTR {
		pid, err = syscall.Wait4(child, &status, syscall.WNOHANG, nil)
	}
	if err != nil || pid <= 0 { // no children at all, or none has ended
		return false
	}
	if ch, ok := r.waiting[pid]; ok {
		delete(r.waiting, pid)
		ch <- status // has room for one
	}
	return true
}

// start runs fork, which returns the id of a new child. start returns a channel for the child's
// status.
func (r *reaper) start(fork func() (int, error)) (int, <-chan syscall.WaitStatus, error) {
	r.starting.RLock()
	defer r.starting.RUnlock()
	pid, err := fork()
	if err != nil {
		return 0, nil, err
	}
	ch := make(chan syscall.WaitStatus, 1)
	r.mu.Lock()
	r.waiting[pid] = ch
	r.mu.Unlock()
	if !r.any {
		r.wg.Go(func() {
			// WNOWAIT only looks; reap takes the status under its lock.
			for unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
			}
			r.reap(pid)
		})
	}
	return pid, ch, nil
}

// signalGroup sends a signal to the process group of a child, unless the child has been collected:
// another process may have its number by then.
func (r *reaper) signalGroup(pid int, sig syscall.Signal) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.waiting[pid]; !ok {
		return os.ErrProcessDone
	}
	err := syscall.Kill(-pid, sig)
	if err == syscall.ESRCH {
		return os.ErrProcessDone
	}
	return err
}
