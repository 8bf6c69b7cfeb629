package oshost

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/guest/agent"
)

// The inotify events of a watch: changes to the names in a directory, to contents and to
// attributes, and the end of the watched directory itself.
const (
	watchMask = unix.IN_CREATE | unix.IN_MODIFY | unix.IN_ATTRIB | unix.IN_DELETE |
		unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_ONLYDIR
	watchRootMask = watchMask | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF
)

// errWatchOverflow says that events were lost, because they came faster than they were read.
var errWatchOverflow = errors.New("watch: too many changes at once, some were lost")

// Watch reports changes in dir. With recursive it also reports changes in all directories below it,
// including new ones.
func (*System) Watch(dir string, recursive bool) (agent.Watcher, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("inotify_init: %w", err)
	}
	w := &watcher{
		file: os.NewFile(uintptr(fd), "inotify"),
		c:    make(chan agent.Change),
		stop: make(chan struct{}),
		done: make(chan struct{}),
		tree: newWatchTree(fd, dir, recursive),
	}
	if err := w.tree.start(); err != nil {
		_ = w.file.Close() // nothing was read from it
		return nil, err
	}
	go w.run()
	return w, nil
}

// watcher reads inotify events and turns them into changes.
type watcher struct {
	file *os.File
	tree *watchTree // used by run alone
	c    chan agent.Change

	asking  sync.Mutex
	asked   []chan struct{} // of Flush; run takes them
	waiting []chan struct{} // taken, and closed when the kernel has no more; used by run alone

	once     sync.Once
	closeErr error

	stop chan struct{} // closed by Close
	done chan struct{} // closed when run has returned
	err  error         // written before c is closed
}

// C delivers the changes; it is closed when the watcher ends.
func (w *watcher) C() <-chan agent.Change { return w.c }

// Err returns the reason why C was closed; nil after Close.
func (w *watcher) Err() error {
	select {
	case <-w.done:
		return w.err
	default:
		return nil
	}
}

// Close ends the watcher and returns when it has ended.
func (w *watcher) Close() error {
	w.once.Do(func() {
		close(w.stop)
		// The deadline wakes run. Do not close the descriptor here: run may be adding watches, and
		// another file could get its number.
		w.closeErr = w.file.SetReadDeadline(time.Unix(1, 0))
		<-w.done
		w.closeErr = errors.Join(w.closeErr, w.file.Close())
	})
	return w.closeErr
}

// Flush returns when the kernel had no more events and all were received, or when the watcher or ctx
// has ended.
func (w *watcher) Flush(ctx context.Context) {
	done := make(chan struct{})
	w.asking.Lock()
	w.asked = append(w.asked, done)
	w.asking.Unlock()
	// The deadline wakes run, as in Close. An error says that the watcher has ended.
	_ = w.file.SetReadDeadline(time.Unix(1, 0))
	select {
	case <-done:
	case <-w.done:
	case <-ctx.Done():
	}
}

// take adds to waiting who has asked since the last call.
func (w *watcher) take() {
	w.asking.Lock()
	defer w.asking.Unlock()
	w.waiting, w.asked = append(w.waiting, w.asked...), nil
}

// answer tells all that wait.
func (w *watcher) answer() {
	for _, done := range w.waiting {
		close(done)
	}
	w.waiting = nil
}

// wake goes on after a deadline. It reports false if Close has set it.
func (w *watcher) wake() bool {
	if err := w.file.SetReadDeadline(time.Time{}); err != nil {
		return false
	}
	select { // after the deadline is gone: Close may have set it in between
	case <-w.stop:
		return false
	default:
		return true
	}
}

// run reads until Close or an error.
func (w *watcher) run() {
	defer close(w.c)
	defer close(w.done) // runs before c is closed: a reader of c may then call Err
	conn, err := w.file.SyscallConn()
	if err != nil {
		w.err = err
		return
	}
	buf := make([]byte, 64<<10)
	for {
		n, err := w.read(conn.Read, buf)
		if err != nil {
			if !errors.Is(err, os.ErrClosed) {
				w.err = err
			}
			return
		}
		if w.err = w.tree.handle(buf[:n], w.send); w.err != nil {
			if errors.Is(w.err, os.ErrClosed) {
				w.err = nil
			}
			return
		}
	}
}

// read waits for events. If there are none at the moment, it answers those who wait for that, and
// tells the tree, which then forgets what it kept to understand pending events.
func (w *watcher) read(wait func(func(fd uintptr) bool) error, buf []byte) (n int, err error) {
	ready := func(fd uintptr) bool {
		for {
			w.take() // before the read, which then speaks for them, too
			n, err = unix.Read(int(fd), buf)
			switch err {
			case unix.EINTR:
				continue
			case unix.EAGAIN:
				w.tree.settle()
				w.answer()
				return false
			}
			return true
		}
	}
	for wait(ready) != nil {
		if !w.wake() {
			return 0, os.ErrClosed
		}
	}
	if err != nil {
		return 0, err
	}
	return n, nil
}

// send delivers one change, or gives up when the watcher is closed. It waits for a slow reader: the
// kernel's queue is the buffer, and that is bounded.
func (w *watcher) send(path string, op agent.Op) error {
	select {
	case w.c <- agent.Change{Path: path, Op: op}:
		return nil
	case <-w.stop:
		return os.ErrClosed
	}
}

// watchError returns an error with the directory that could not be watched.
func watchError(dir string, err error) error {
	if errors.Is(err, unix.ENOSPC) { // inotify(7): the user's limit of watches, not the disk
		return fmt.Errorf("inotify_add_watch %s: too many directories to watch (fs.inotify.max_user_watches)", dir)
	}
	return &fs.PathError{Op: "inotify_add_watch", Path: dir, Err: err}
}
