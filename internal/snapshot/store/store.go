package store

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/atomicfile"
	"github.com/carrel-dev/carrel/internal/snapshot"
)

// Options configures a Store. Dir and Blobs are required.
type Options struct {
	Dir   string         // made if missing
	Blobs snapshot.Blobs // storage of packs and manifests; the caller closes it after the Store
	// Shared says that stores of other machines use Blobs, too.
	Shared bool
	// Quota is the largest number of bytes of hot copies and packs; 0 is no limit.
	Quota int64
	// HotBytes is the largest number of bytes of hot copies of packed snapshots; 0 is 8 GiB, −1
	// none.
	HotBytes int64
	// Reserve is the number of bytes of the disk to keep free. For that the store drops hot copies
	// of packed snapshots. 0 is 1 GiB, −1 none.
	Reserve int64
	// Grace is the time for which a GC leaves an unused pack of another machine alone; 0 is a day.
	Grace time.Duration
	// Settle is the time before a new snapshot is packed. Many snapshots are soon replaced or
	// deleted, and the process that took one may need the processor. 0 is 3 s, −1 none.
	Settle time.Duration
	// Workers is the number of goroutines that verify and unpack; 0 is one for each processor, at
	// most 8.
	Workers int
	// Manual turns off packing in the background. Only Flush packs then.
	Manual bool
	Log    *slog.Logger
}

// Store keeps snapshots. See the package's comment.
type Store struct {
	Moving
	opts    Options
	log     *slog.Logger
	lock    *os.File
	machine string
	boot    string // ID of this boot of the operating system, set by load

	bg    chan struct{} // holds one token: packing or GC
	packs *packIndex    // guarded by bg
	check *packCheck

	ctx  context.Context // of the background work
	stop context.CancelFunc
	wg   sync.WaitGroup
	wake chan struct{}
	junk chan struct{} // gets a value when content has become unused

	mu      sync.Mutex
	closed  bool
	entries map[carrel.SnapshotID]*entry
	drafts  map[carrel.SnapshotID]bool
	claims  map[string]int64           // room on the disk that drafts have asked for, by their names
	gone    map[carrel.SnapshotID]bool // deleted, even if an object store still lists it
	packing *packing                   // the snapshot being packed now
	pending []carrel.SnapshotID        // to be packed, oldest first
	hot     int64                      // bytes of hot copies
	packed  int64                      // bytes of packs
	unused  int64                      // bytes of packs that deletions have left, at most

	collections Collections
}

var _ snapshot.Store = (*Store)(nil)

// entry is the record of a snapshot in memory.
type entry struct {
	size    int64 // of its files
	added   int64 // bytes that packing it added; −1 when it is not packed
	used    int64 // time of the last use or the creation, Unix nanoseconds
	made    int64 // time of its creation; 0 when that is not known
	line    string
	opened  bool  // since its creation, or since this store was opened
	holders int32 // open Files, and the packer
	hot     bool
	packed  bool
	deleted bool  // Delete has begun
	marked  bool  // and the deletion is durable
	damaged bool  // its hot copy is damaged
	again   bool  // it lies on a damaged pack, and must be packed again from its hot copy
	fill    *fill // being unpacked
}

// The directories of a store.
const (
	dirDrafts  = "drafts"
	dirHot     = "hot"
	dirPacked  = "packed"
	dirDeleted = "deleted"
	dirIndex   = "index"
	dirTrash   = "trash"

	manifestFile = "manifest.json"
	filesDir     = "files"
)

// Open opens or makes a store, finishes work that a crash interrupted, and starts packing unpacked
// snapshots in the background. Errors: Invalid, Conflict when the directory is in use by another
// Store, Exhausted, Internal.
func Open(ctx context.Context, opts Options) (*Store, error) {
	const op = "open snapshot store"
	if opts.Dir == "" || opts.Blobs == nil {
		return nil, &carrel.Error{Op: op, Kind: carrel.Invalid, Field: "Options", Err: errors.New("a directory and blobs are needed")}
	}
	dir, err := filepath.Abs(opts.Dir)
	if err != nil {
		return nil, classify(op, "", err)
	}
	opts.Dir = dir
	opts.HotBytes = cmp.Or(opts.HotBytes, 8<<30)
	opts.Reserve = cmp.Or(opts.Reserve, 1<<30)
	opts.Grace = cmp.Or(opts.Grace, 24*time.Hour)
	opts.Settle = max(0, cmp.Or(opts.Settle, 3*time.Second))
	opts.Workers = cmp.Or(opts.Workers, min(runtime.GOMAXPROCS(0), 8))
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	s := &Store{
		opts: opts, log: opts.Log, bg: make(chan struct{}, 1), wake: make(chan struct{}, 1),
		junk:    make(chan struct{}, 1),
		entries: map[carrel.SnapshotID]*entry{}, drafts: map[carrel.SnapshotID]bool{},
		claims: map[string]int64{},
		gone:   map[carrel.SnapshotID]bool{},
	}
	s.Moving = Moving{s}
	s.check = newPackCheck(opts.Blobs, s.wakePacker)
	for _, d := range []string{"", dirDrafts, dirHot, dirPacked, dirDeleted, dirIndex, dirTrash,
		dirAgain} {
		if err := os.MkdirAll(s.path(d), 0o700); err != nil {
			return nil, classify(op, "", err)
		}
	}
	if err := s.takeLock(); err != nil {
		return nil, err
	}
	if err := s.load(ctx); err != nil {
		_ = s.lock.Close()
		return nil, classify(op, "", err)
	}
	// The background work belongs to the store, not to the caller's ctx.
	s.ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	if !opts.Manual {
		s.wg.Add(1)
		go s.packAll()
	}
	return s, nil
}

// takeLock makes sure that no other Store uses the directory.
func (s *Store) takeLock() error {
	const op = "open snapshot store"
	f, err := os.OpenFile(s.path("lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return classify(op, "", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		return &carrel.Error{Op: op, Kind: carrel.Conflict, Err: fmt.Errorf("%s is in use by another process", s.opts.Dir),
			Hint: "one daemon at a time may use a snapshot directory"}
	}
	s.lock = f
	return nil
}

// load reads the directory and removes leftovers.
func (s *Store) load(ctx context.Context) error {
	if err := s.loadMachine(); err != nil {
		return err
	}
	if err := s.sweepLeftovers(); err != nil {
		return err
	}
	cache := s.readCache()
	if err := s.loadEntries(ctx, cache); err != nil {
		return err
	}
	s.packs = newPackIndex(s.path(dirIndex), s.log)
	return s.loadPackSizes(cache)
}

// loadMachine reads or makes the store's own name.
func (s *Store) loadMachine() error {
	b, err := os.ReadFile(s.path("machine"))
	if name := strings.TrimSpace(string(b)); err == nil && validMachine(name) {
		s.machine = name
		return nil
	}
	s.machine = "m" + strings.ToLower(rand.Text())[:16]
	return atomicfile.Write(s.path("machine"), []byte(s.machine+"\n"), 0o600)
}

// Separate gives the copy of a store's directory a name of its own. Otherwise two stores would take
// each other's packs in shared blobs for their own. No Store may be open on the directory.
func Separate(dir string) error {
	for _, name := range []string{"machine", rewritingFile} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !os.IsNotExist(err) {
			return classify("separate snapshot store", "", err)
		}
	}
	return nil
}

func validMachine(name string) bool {
	return len(name) == 17 && name[0] == 'm' && !strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9')
	})
}

// Close stops the background work and waits for it.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.mu.Unlock()
	s.stop()
	s.wg.Wait()
	// A Flush that packs at the moment sees the end of s.ctx, too.
	s.bg <- struct{}{}
	s.saveCache()
	return s.lock.Close()
}

// path returns a path in the store's directory.
func (s *Store) path(parts ...string) string {
	return filepath.Join(append([]string{s.opts.Dir}, parts...)...)
}

// List implements [snapshot.Store].
func (s *Store) List(ctx context.Context) ([]carrel.SnapshotID, error) {
	const op = "list snapshots"
	if err := ctx.Err(); err != nil {
		return nil, classify(op, "", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errClosed(op)
	}
	ids := make([]carrel.SnapshotID, 0, len(s.entries))
	for id, e := range s.entries {
		if !e.deleted {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids, nil
}

// Stat implements [snapshot.Store].
func (s *Store) Stat(ctx context.Context, id carrel.SnapshotID) (snapshot.Stat, error) {
	const op = "stat snapshot"
	if err := ctx.Err(); err != nil {
		return snapshot.Stat{}, classify(op, id, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return snapshot.Stat{}, errClosed(op)
	}
	e := s.entries[id]
	if e == nil || e.deleted {
		return snapshot.Stat{}, errNotFound(op, id)
	}
	st := snapshot.Stat{Size: e.size, New: e.added, Packed: e.spare(), Hot: e.hot}
	if a, ok := s.opts.Blobs.(snapshot.Awayer); ok && !e.hot {
		st.Away = a.Away()
	}
	return st, nil
}

// Usage implements [snapshot.Store].
func (s *Store) Usage(ctx context.Context) (snapshot.Usage, error) {
	const op = "measure snapshots"
	if err := ctx.Err(); err != nil {
		return snapshot.Usage{}, classify(op, "", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return snapshot.Usage{}, errClosed(op)
	}
	u := snapshot.Usage{Hot: s.hot, Packs: s.packed, Quota: s.opts.Quota}
	for _, e := range s.entries {
		if !e.deleted {
			u.Snapshots++
			u.Size += e.size
		}
	}
	return u, nil
}
