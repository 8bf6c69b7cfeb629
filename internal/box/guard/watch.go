//go:build linux

package guard

import (
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// watcher is the second line of defence. It is told of new names in the directories that hold
// protected names.
type watcher struct {
	once    sync.Once
	events  int // inotify, -1 where the machine has no more to give: then we look again and again
	wake    int // an eventfd that ends the wait for events
	stop    chan struct{}
	serving sync.WaitGroup
	closed  atomic.Bool

	mu      sync.Mutex
	started bool
	watches map[int32]*watched // by the kernel's number
	round   int                // of sweeps
	held    []*held
	moved   int
}

// watched is a directory.
type watched struct {
	always bool // it exists as long as the guard; the box may replace others, which each round finds again
	round  int
	any    bool // a pattern matches any name in it
}

// maxWatches bounds the watches that a box can cause by making directories.
const maxWatches = 1000

// held is a directory that holds a protected name; moving it would carry the name away. It is kept
// open, so that it can be found wherever it is moved.
type held struct {
	path string
	id   inode
	file *os.File
	by   *pattern
}

// watchFor is what makes a name appear, and what carries one away. A name that is removed is of no
// interest: if it comes back it is made, and the kernel itself ends the watch of a directory that
// is gone.
const watchFor = unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_MOVED_FROM | unix.IN_ONLYDIR | unix.IN_DONT_FOLLOW | unix.IN_EXCL_UNLINK

// begin starts the second line of defence, before the first call goes on that could make a name. A
// program that makes no name does not pay for it (the kernel takes milliseconds to end it).
func (g *Guard) begin() {
	if len(g.names.top) == 0 {
		return
	}
	g.watch.once.Do(func() {
		w := g.watch
		w.mu.Lock()
		defer w.mu.Unlock()
		w.open()
		for dir, p := range g.names.holds {
			w.hold(dir, p)
			w.add(parent(dir), true, false)
		}
		slices.SortFunc(w.held, func(a, b *held) int { return len(a.path) - len(b.path) })
		list := listing{}
		for dir, patterns := range g.names.top {
			w.add(dir, true, false)
			for _, p := range patterns {
				w.addWay(list, dir, p.parts)
			}
		}
		w.started = true
		w.serving.Go(func() { g.serve(w) })
	})
}

// open makes what events are read from. It is no os.File: Go's poller would wake up for each event,
// also while nobody waits for one.
func (w *watcher) open() {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return
	}
	if w.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC); err != nil {
		_ = unix.Close(fd)
		return
	}
	w.events = fd
}

// hold opens a directory.
func (w *watcher) hold(dir string, by *pattern) {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_CLOEXEC|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return
	}
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		_ = unix.Close(fd)
		return
	}
	w.held = append(w.held, &held{dir, identity(&st), os.NewFile(uintptr(fd), dir), by})
}

// add watches a directory, in this round or always, for any name or for interesting ones. If the
// directory does not exist, or a limit of the machine is reached, only Check looks at it.
func (w *watcher) add(dir string, always, anyName bool) {
	if w.events < 0 || len(w.watches) >= maxWatches {
		return
	}
	n, err := unix.InotifyAddWatch(w.events, dir, watchFor)
	if err != nil {
		return
	}
	old := w.watches[int32(n)]
	if old == nil {
		old = &watched{}
		w.watches[int32(n)] = old
	}
	old.always, old.any, old.round = old.always || always, old.any || anyName, w.round
}

// forget ends a round: directories that the round did not find are no longer watched.
func (w *watcher) forget() {
	if w.events < 0 {
		return
	}
	for n, d := range w.watches {
		if !d.always && d.round != w.round {
			_, _ = unix.InotifyRmWatch(w.events, uint32(n))
			delete(w.watches, n)
		}
	}
}

// addWay watches the directories on the way to a pattern.
func (w *watcher) addWay(list listing, at string, parts []string) {
	if len(parts) < 2 {
		return
	}
	for _, name := range list.candidates(at, parts[0]) {
		dir := join(at, name)
		var st unix.Stat_t
		if unix.Lstat(dir, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
			w.add(dir, false, parts[1] == "*")
			w.addWay(list, dir, parts[1:])
		}
	}
}

// listing reads each directory only once.
type listing map[string][]string

// candidates returns the names in a directory that match a part of a pattern.
func (l listing) candidates(dir, part string) []string {
	if !strings.Contains(part, "*") {
		return []string{part}
	}
	names, known := l[dir]
	if !known {
		if d, err := os.Open(dir); err == nil {
			names, _ = d.Readdirnames(-1)
			_ = d.Close()
		}
		l[dir] = names
	}
	var out []string
	for _, n := range names {
		if match(part, n) {
			out = append(out, n)
		}
	}
	return out
}

// pause is how long names are left to gather after some that meant nothing. A program that makes
// thousands of files does not wake us for each, and a name that means something waits so long at
// most. The first name after a pause wakes us at once.
const pause = time.Millisecond

// serve sweeps whenever an interesting name has appeared or disappeared.
func (g *Guard) serve(w *watcher) {
	if w.events < 0 {
		g.poll(w)
		return
	}
	buf := make([]byte, 64<<10)
	for idle := 0; ; {
		if !w.wait(-1, w.events) {
			return
		}
		n, err := unix.Read(w.events, buf)
		if err == unix.EINTR || err == unix.EAGAIN {
			continue
		}
		if err != nil {
			return
		}
		names, all := g.tells(buf[:n])
		if all {
			names = nil
		}
		if (all || len(names) > 0) && g.sweep(names) {
			idle = 0
			continue
		}
		// Nothing came of it. Names that mean something are looked at without a pause, unless
		// somebody makes and removes them to keep us busy.
		if all || len(names) > 0 {
			if idle++; idle <= 100 {
				continue
			}
		}
		if !w.wait(pause) {
			return
		}
	}
}

// wait waits for one of these descriptors, for so long at most (-1: for ever), and reports whether
// the guard goes on.
func (w *watcher) wait(most time.Duration, fds ...int) bool {
	ms := -1
	if most >= 0 {
		ms = int(most.Milliseconds())
	}
	list := []unix.PollFd{{Fd: int32(w.wake), Events: unix.POLLIN}}
	for _, fd := range fds {
		list = append(list, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	_, _ = unix.Poll(list, ms) // interrupted, it is as if the time were over
	return list[0].Revents == 0
}

// poll sweeps ten times a second.
func (g *Guard) poll(w *watcher) {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-w.stop:
			return
		case <-ticker.C:
			g.sweep(nil)
		}
	}
}

// tells lists the interesting names in events. all says that events were lost, so every name must
// be checked.
func (g *Guard) tells(b []byte) (names []string, all bool) {
	for len(b) >= unix.SizeofInotifyEvent {
		watch := int32(binary.NativeEndian.Uint32(b))
		mask := binary.NativeEndian.Uint32(b[4:])
		size := int(binary.NativeEndian.Uint32(b[12:]))
		b = b[unix.SizeofInotifyEvent:]
		if size > len(b) {
			return nil, true
		}
		name := strings.TrimRight(string(b[:size]), "\x00")
		b = b[size:]
		if mask&(unix.IN_Q_OVERFLOW|unix.IN_IGNORED) != 0 {
			return nil, true
		}
		if g.names.interesting(name) || g.anyName(watch) {
			names = append(names, name)
		}
	}
	return names, false
}

// anyName reports whether every name in a watched directory is interesting.
func (g *Guard) anyName(watch int32) bool {
	g.watch.mu.Lock()
	defer g.watch.mu.Unlock()
	d := g.watch.watches[watch]
	return d != nil && d.any
}

// Check moves protected files that appeared away, and moved directories back. Close calls it.
func (g *Guard) Check() error {
	for range 100 { // each move may uncover another file
		if !g.sweep(nil) {
			return nil
		}
	}
	return errors.New("protected names keep appearing: something still makes them")
}

// Close stops watching directories, after a last Check. If the box may have written, it then calls
// [Guard.Audit]. Call Close when nothing runs in the box any more.
func (g *Guard) Close() error {
	w := g.watch
	if w.closed.Swap(true) {
		return nil
	}
	for _, r := range g.replaced {
		_ = r.dir.Close()
	}
	w.once.Do(func() {}) // from here on begin does nothing
	w.mu.Lock()
	started := w.started
	w.mu.Unlock()
	if !started {
		return g.lastAudit()
	}
	err := g.Check()
	close(w.stop)
	w.end()
	for _, h := range w.held {
		_ = h.file.Close()
	}
	return errors.Join(err, g.lastAudit()) // unwatched: it makes new files
}

// end ends the wait for events, and closes what they come from.
func (w *watcher) end() {
	if w.events < 0 {
		w.serving.Wait()
		return
	}
	_, _ = unix.Write(w.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	w.serving.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = unix.Close(w.events)
	_ = unix.Close(w.wake)
	w.events = -1
}
