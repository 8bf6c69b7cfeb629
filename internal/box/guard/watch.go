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
	events  *os.File // nil if the machine's limit is reached: then poll looks
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

// watchFor are the events by which a name appears or disappears.
const watchFor = unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_MOVED_FROM | unix.IN_DELETE | unix.IN_ONLYDIR | unix.IN_DONT_FOLLOW | unix.IN_EXCL_UNLINK

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
		if fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK); err == nil {
			w.events = os.NewFile(uintptr(fd), "inotify")
		}
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
	if w.events == nil || len(w.watches) >= maxWatches {
		return
	}
	raw, err := w.events.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		n, err := unix.InotifyAddWatch(int(fd), dir, watchFor)
		if err != nil {
			return
		}
		old := w.watches[int32(n)]
		if old == nil {
			old = &watched{}
			w.watches[int32(n)] = old
		}
		old.always, old.any, old.round = old.always || always, old.any || anyName, w.round
	})
}

// forget ends a round: directories that the round did not find are no longer watched.
func (w *watcher) forget() {
	if w.events == nil {
		return
	}
	raw, err := w.events.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		for n, d := range w.watches {
			if !d.always && d.round != w.round {
				_, _ = unix.InotifyRmWatch(int(fd), uint32(n))
				delete(w.watches, n)
			}
		}
	})
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

// serve sweeps whenever an interesting name has appeared or disappeared.
func (g *Guard) serve(w *watcher) {
	if w.events == nil {
		g.poll(w)
		return
	}
	buf := make([]byte, 64<<10)
	for idle := 0; ; {
		n, err := w.events.Read(buf)
		if err != nil {
			return
		}
		names, all := g.tells(buf[:n])
		if len(names) == 0 && !all {
			continue
		}
		if all {
			names = nil
		}
		if g.sweep(names) {
			idle = 0
		} else if idle++; idle > 100 {
			time.Sleep(time.Millisecond) // in case the box makes and removes names to keep us busy
		}
	}
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
	w.once.Do(func() {}) // from here on begin does nothing
	w.mu.Lock()
	started := w.started
	w.mu.Unlock()
	if !started {
		return g.lastAudit()
	}
	err := g.Check()
	close(w.stop)
	if w.events != nil {
		if e := w.events.Close(); err == nil {
			err = e
		}
	}
	w.serving.Wait()
	for _, h := range w.held {
		_ = h.file.Close()
	}
	return errors.Join(err, g.lastAudit()) // unwatched: it makes new files
}
