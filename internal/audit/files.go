package audit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carrel-dev/carrel/internal/atomicfile"
)

const (
	activeName = "audit.jsonl"
	packedExt  = ".zst"
	// ageSteps is how many files MaxAge is spread over. The oldest file can then be removed when
	// its time has come.
	ageSteps = 8
)

// logFile is the file that is being written.
type logFile interface {
	Write(p []byte) (int, error)
	Truncate(size int64) error
	Sync() error
	Close() error
}

// openLogFile opens or makes the file to write.
func openLogFile(name string) (logFile, error) {
	return os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
}

// segment is one file and its range of decisions.
type segment struct {
	first, last  int64 // Seq of the first and last decision; last is first−1 if empty
	since, until time.Time
	size         int64 // readable bytes: whole lines only
	active       bool  // it is written to
	packed       bool
}

func (s segment) name() string {
	switch {
	case s.active:
		return activeName
	case s.packed:
		return rotatedName(s.first) + packedExt
	}
	return rotatedName(s.first)
}

func rotatedName(first int64) string { return fmt.Sprintf("audit-%020d.jsonl", first) }

// take notes what a batch adds.
func (s *segment) take(b batch) {
	s.last = b.last
	s.size += int64(len(b.lines))
	if s.since.IsZero() || b.since.Before(s.since) {
		s.since = b.since
	}
	if b.until.After(s.until) {
		s.until = b.until
	}
}

// files are the log's files. The writing goroutine changes them, and readers open them.
type files struct {
	dir  string
	opts Options

	out    logFile // of the newest segment; nil after an unfinished rotation
	torn   bool    // a failed write left a part of a line in the file
	packs  sync.WaitGroup
	stop   atomic.Bool // packing ends
	turn   sync.Mutex  // one file is packed at a time; taken before mu
	mu     sync.Mutex
	list   []*segment    // oldest first; the last is being written
	change chan struct{} // closed when there is more to read
}

// lastSeq returns the Seq of the newest decision.
func (f *files) lastSeq() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.newest().last
}

// newest is the segment that is being written. The caller holds f.mu.
func (f *files) newest() *segment { return f.list[len(f.list)-1] }

func (f *files) path(name string) string { return filepath.Join(f.dir, name) }

// append writes a whole batch, or nothing of it.
func (f *files) append(b batch, now time.Time) error {
	seg := f.newest() // only this goroutine changes it
	if f.out == nil || seg.last >= seg.first && (seg.size+int64(len(b.lines)) > f.opts.MaxFile || f.tooOld(seg, now)) {
		if err := f.rotate(b.first); err != nil {
			return err
		}
		seg = f.newest()
	}
	if f.torn {
		if err := f.out.Truncate(seg.size); err != nil {
			return err
		}
		f.torn = false
	}
	if _, err := f.out.Write(b.lines); err != nil {
		if terr := f.out.Truncate(seg.size); terr != nil {
			f.torn = true
			err = errors.Join(err, terr)
		}
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	seg.take(b)
	close(f.change)
	f.change = make(chan struct{})
	return nil
}

func (f *files) tooOld(seg *segment, now time.Time) bool {
	return f.opts.MaxAge > 0 && now.Sub(seg.since) > max(f.opts.MaxAge/ageSteps, time.Minute)
}

// rotate begins a new file. The number of its first decision will be first. The next call continues
// a rotation that failed halfway.
func (f *files) rotate(first int64) error {
	if f.out != nil {
		if err := f.out.Sync(); err != nil {
			return err
		}
		if err := f.setAside(); err != nil {
			return err
		}
	}
	out, err := f.opts.open(f.path(activeName))
	if err != nil {
		return err
	}
	if err := atomicfile.SyncDir(f.dir); err != nil {
		_ = out.Close() // empty
		return err
	}
	f.mu.Lock()
	f.out = out
	f.list = append(f.list, &segment{first: first, last: first - 1, active: true})
	f.mu.Unlock()
	f.sweep(f.opts.Now())
	f.packLater()
	return nil
}

// setAside gives a finished file its final name.
func (f *files) setAside() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	seg := f.newest()
	if err := os.Rename(f.path(activeName), f.path(rotatedName(seg.first))); err != nil {
		return err
	}
	seg.active = false
	_ = f.out.Close() // it was synced
	f.out = nil
	return nil
}

// sweep removes the oldest files beyond the bounds.
func (f *files) sweep(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(f.list) > 1 {
		oldest := f.list[0]
		old := f.opts.MaxAge > 0 && now.Sub(oldest.until) > f.opts.MaxAge
		if len(f.list) <= f.opts.MaxFiles && !old {
			return
		}
		if f.opts.Anchor != nil {
			f.opts.Anchor.EgressCut(oldest.last)
		}
		if err := os.Remove(f.path(oldest.name())); err != nil && !errors.Is(err, os.ErrNotExist) {
			f.opts.Logger.Warn("an old file of the audit log can't be removed", "err", err)
			return // tried again
		}
		f.list = f.list[1:]
	}
}

// sync forces the newest file to the disk.
func (f *files) sync() error {
	if f.out == nil {
		return nil // the last rotation synced everything
	}
	return f.out.Sync()
}

// close closes the newest file.
func (f *files) close() error {
	if f.out == nil {
		return nil
	}
	return f.out.Close()
}

// wait stops the packing and returns when it has ended. The next Log continues it.
func (f *files) wait() {
	f.stop.Store(true)
	f.packs.Wait()
}
