//go:build linux

package guard

import (
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// watcher is the second line: it is told what appears in the directories that hold protected names.
type watcher struct {
	events *os.File
	done   chan struct{}

	mu      sync.Mutex
	watches map[int32]*watched // by the kernel's number
	round   int                // of sweeps
	held    []*held
	moved   int
}

// watched is a directory.
type watched struct {
	always bool // it is there as long as the guard is; others may be replaced by the box, and are found again in each round
	round  int
	any    bool // a pattern means any name in it
}

// maxWatches bounds what a box can make us watch, by making directories.
const maxWatches = 1000

// held is a directory whose moving would carry a protected name away. It is kept open, so that
// it is found wherever it is moved.
type held struct {
	path string
	id   inode
	file *os.File
	by   *pattern
}

// watchFor is what makes a name appear or go.
const watchFor = unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_MOVED_FROM | unix.IN_DELETE | unix.IN_ONLYDIR | unix.IN_DONT_FOLLOW | unix.IN_EXCL_UNLINK

// startWatching watches the directories that hold protected names, and those on the way to them. Somebody has to serve it.
func (g *Guard) startWatching() (*watcher, error) {
	w := &watcher{done: make(chan struct{}), watches: map[int32]*watched{}}
	if len(g.names.top) == 0 {
		close(w.done)
		return w, nil
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("inotify_init1", err)
	}
	w.events = os.NewFile(uintptr(fd), "inotify")
	for dir, p := range g.names.holds {
		w.hold(dir, p)
		w.add(parent(dir), true, false)
	}
	slices.SortFunc(w.held, func(a, b *held) int { return len(a.path) - len(b.path) })
	for dir, patterns := range g.names.top {
		w.add(dir, true, false)
		for _, p := range patterns {
			w.addWay(dir, p.parts)
		}
	}
	return w, nil
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

// add watches a directory in this round, or always; for any name, or for interesting ones. One that is not there, or a limit of the machine,
// leaves it to Check.
func (w *watcher) add(dir string, always, anyName bool) {
	raw, err := w.events.SyscallConn()
	if err != nil || len(w.watches) >= maxWatches {
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

// forget ends a round: what was not found in it is watched no more.
func (w *watcher) forget() {
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

// addWay watches the directories that lead to a pattern.
func (w *watcher) addWay(at string, parts []string) {
	if len(parts) < 2 {
		return
	}
	for _, name := range candidates(at, parts[0]) {
		dir := join(at, name)
		var st unix.Stat_t
		if unix.Lstat(dir, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
			w.add(dir, false, parts[1] == "*")
			w.addWay(dir, parts[1:])
		}
	}
}

// candidates are the names in a directory that a part of a pattern stands for.
func candidates(dir, part string) []string {
	if !strings.Contains(part, "*") {
		return []string{part}
	}
	d, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1)
	return slices.DeleteFunc(names, func(n string) bool { return !match(part, n) })
}

// serve looks whenever an interesting name appeared or went.
func (g *Guard) serve(w *watcher) {
	defer close(w.done)
	buf := make([]byte, 64<<10)
	for idle := 0; ; {
		n, err := w.events.Read(buf)
		if err != nil {
			return
		}
		if !g.tells(buf[:n]) {
			continue
		}
		if g.sweep() {
			idle = 0
		} else if idle++; idle > 100 {
			time.Sleep(time.Millisecond) // somebody makes and removes names to keep us busy
		}
	}
}

// tells reports whether events are about an interesting name, or some were lost.
func (g *Guard) tells(b []byte) bool {
	for len(b) >= unix.SizeofInotifyEvent {
		watch := int32(binary.NativeEndian.Uint32(b))
		mask := binary.NativeEndian.Uint32(b[4:])
		size := int(binary.NativeEndian.Uint32(b[12:]))
		b = b[unix.SizeofInotifyEvent:]
		if size > len(b) {
			return true
		}
		name := strings.TrimRight(string(b[:size]), "\x00")
		b = b[size:]
		if mask&(unix.IN_Q_OVERFLOW|unix.IN_IGNORED) != 0 || g.names.interesting(name) || g.anyName(watch) {
			return true
		}
	}
	return false
}

// anyName reports whether any name means something in a watched directory.
func (g *Guard) anyName(watch int32) bool {
	g.watch.mu.Lock()
	defer g.watch.mu.Unlock()
	d := g.watch.watches[watch]
	return d != nil && d.any
}

// Check moves away what is protected and appeared all the same, and back what was carried away. Close calls it.
func (g *Guard) Check() error {
	if g.watch.events == nil {
		return nil
	}
	for range 100 { // what is moved may uncover another
		if !g.sweep() {
			return nil
		}
	}
	return errors.New("protected names keep appearing: something still makes them")
}

// Close stops watching directories, after a last Check.
func (g *Guard) Close() error {
	if g.closed.Swap(true) || g.watch.events == nil {
		return nil
	}
	err := g.Check()
	if e := g.watch.events.Close(); err == nil {
		err = e
	}
	<-g.watch.done
	for _, h := range g.watch.held {
		_ = h.file.Close()
	}
	return err
}
