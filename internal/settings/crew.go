package settings

import (
	"io/fs"
	"runtime"
	"sync"
	"time"
)

// level is a directory that a crew will look through.
type level struct {
	dir   string
	depth int
	// shallow: search for protected names, too. They hold only to a certain depth, and not in
	// directories that programs fill.
	shallow bool
	// links: the directory is already closed. Search it for the targets of its links, and for its
	// files.
	links bool
	// flat: judge only its names, and do not enter its subdirectories.
	flat bool
}

// sight is an entry that a crew found and the search must judge.
type sight struct {
	level
	name string // "" is the directory itself, if it can't be listed
	typ  fs.FileMode
	ino  uint64
}

// path is where it lies.
func (s sight) path() string {
	if s.name == "" {
		return s.dir
	}
	if s.dir == "/" {
		return "/" + s.name
	}
	return s.dir + "/" + s.name
}

// crew looks through trees with as many workers as are useful. It looks only at names and types in
// the list of each directory, never at a file, so a large tree costs little.
type crew struct {
	// keep reports whether an entry must be judged. enter returns the level for a subdirectory, and
	// whether to enter it. All workers call both at once.
	keep  func(l level, name []byte, typ fs.FileMode, ino uint64) bool
	enter func(l level, name string) (level, bool)

	mu      sync.Mutex
	more    *sync.Cond
	queue   []level
	at      map[*worker]level // the directory of each busy worker
	workers int
	seen    []sight
	over    bool          // nobody waits for more
	done    chan struct{} // closed when there is nothing more to do
	end     time.Time     // when no further directory is begun; zero is never
}

// Bounds of a crew.
const (
	mostWorkers = 8
	// worthIt is how many directories must wait before one more worker starts.
	worthIt = 24
	// longestPath is the longest path that the walls can name. A longer path is closed with its
	// directory.
	longestPath = 3800
)

// run looks through the trees below the levels, for at most atMost (0: until it is done). The order
// of its results means nothing; left are the levels that it did not reach. A worker may hang in a
// directory on a network; run does not wait for it.
func (c *crew) run(levels []level, atMost time.Duration) (seen []sight, left []level) {
	c.more = sync.NewCond(&c.mu)
	c.queue = append(c.queue, levels...)
	c.at = map[*worker]level{}
	c.done = make(chan struct{})
	c.workers = 1
	if atMost == 0 {
		c.work()
		<-c.done
		return c.seen, nil
	}
	c.end = time.Now().Add(atMost)
	go c.work()
	late := time.NewTimer(atMost) // for a worker that hangs in one directory
	defer late.Stop()
	select {
	case <-c.done:
	case <-late.C:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	c.more.Broadcast()
	left = c.queue
	for _, l := range c.at {
		left = append(left, l)
	}
	return c.seen, left
}

// work takes directories until none are left and no other worker can find more.
func (c *crew) work() {
	w := &worker{crew: c}
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		for len(c.queue) == 0 && !c.over {
			if len(c.at) == 0 {
				c.over = true
				c.more.Broadcast()
				close(c.done)
				return
			}
			c.more.Wait()
		}
		if c.over {
			return
		}
		if !c.end.IsZero() && !time.Now().Before(c.end) {
			c.over = true
			c.more.Broadcast()
			close(c.done)
			return
		}
		l := c.queue[len(c.queue)-1]
		c.queue = c.queue[:len(c.queue)-1]
		c.at[w] = l
		c.mu.Unlock()
		w.look(l)
		c.mu.Lock()
		if c.over {
			return
		}
		delete(c.at, w)
		c.queue = append(c.queue, w.found...)
		c.seen = append(c.seen, w.seen...)
		w.found, w.seen = w.found[:0], w.seen[:0]
		if len(c.queue) > worthIt && c.workers < min(mostWorkers, runtime.GOMAXPROCS(0)) {
			c.workers++
			go c.work()
		}
		if len(c.queue) > 0 && c.workers > 1 {
			c.more.Signal()
		}
	}
}

// worker is one of a crew.
type worker struct {
	*crew
	buf   [16 << 10]byte
	found []level
	seen  []sight
}

// look looks through one directory.
func (w *worker) look(l level) {
	err := listDir(l.dir, w.buf[:], func(name []byte, typ fs.FileMode, ino uint64) {
		if w.keep(l, name, typ, ino) {
			w.seen = append(w.seen, sight{l, string(name), typ, ino})
		}
		if typ != fs.ModeDir || l.flat {
			return
		}
		next, in := w.enter(l, string(name))
		if !in {
			return
		}
		next.depth = l.depth + 1
		if next.dir = (sight{level: l, name: string(name)}).path(); len(next.dir) > longestPath {
			w.seen = append(w.seen, sight{level: l})
			return
		}
		w.found = append(w.found, next)
	})
	if err != nil && !l.links && entered(l.dir, err) {
		w.seen = append(w.seen, sight{level: l})
	}
}
