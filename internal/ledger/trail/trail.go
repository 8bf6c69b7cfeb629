package trail

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/atomicfile"
	"github.com/carrel-dev/carrel/internal/attempts"
)

const (
	// sealEvery is the longest time that a record waits for a signature, and sealRecords the
	// largest number of records that do.
	sealEvery   = 5 * time.Second
	sealRecords = 4096
	// syncEvery is the time between two forced writes.
	syncEvery = time.Second
	// maxPending bounds the bytes that wait for a disk that is full.
	maxPending = 8 << 20
	headName   = "head.json"
)

// Options configures a Trail. The zero value has sensible bounds.
type Options struct {
	// MaxBytes is how much is kept; 0 is 1 GiB.
	MaxBytes int64
	// MaxAge is how long records are kept; 0 keeps them until there are too many.
	MaxAge time.Duration
	// Version is the daemon's, for the record of its start.
	Version string
	Logger  *slog.Logger
	Now     func() time.Time // nil is time.Now

	maxFile int64                                            // 0 is a part of MaxBytes
	write   func(f *os.File, line []byte) (n int, err error) // nil is the real one
}

// files is how many files MaxBytes is spread over.
const spread = 16

func (o Options) withDefaults() Options {
	if o.MaxBytes <= 0 {
		o.MaxBytes = 1 << 30
	}
	if o.maxFile <= 0 {
		o.maxFile = max(o.MaxBytes/spread, 64<<10)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.write == nil {
		o.write = (*os.File).Write
	}
	return o
}

// head is the newest seal, in head.json.
type head struct {
	Seq  int64  `json:"seq"`
	Hash string `json:"hash"`
	Sig  string `json:"sig"`
}

// Trail is the audit trail in a directory. It is safe for concurrent use.
type Trail struct {
	dir  string
	opts Options
	key  ed25519.PrivateKey

	ticking sync.Mutex // one tick at a time; taken before mu

	mu       sync.Mutex
	out      *os.File
	list     []segment // oldest first; the last is written to
	seq      int64     // of the newest record
	hash     string    // of the newest record
	written  int64     // Seq of the newest record that the kernel has
	pending  []byte    // lines that could not be written
	lost     int       // records that could not even wait, and are not noted yet
	allLost  int       // since this process began
	torn     bool      // the file may end with a part of a line
	stalled  bool      // the last write failed: only ticks try again
	dirty    bool
	unsealed int
	sealed   time.Time
	egress   egressEnds
	shares   *attempts.Counter // of records, by caller
	folds    folds
	change   chan struct{} // closed when there is more to read
	closed   bool

	stop chan struct{}
	done sync.WaitGroup
	once sync.Once
	err  error
}

// segment is one file.
type segment struct {
	first int64
	size  int64
	since time.Time // of its first record; zero if it has none
}

// Open opens the trail in a directory, and makes the directory if it is missing. Only one Trail may
// be open for a directory. The caller closes it.
func Open(dir string, opts Options) (_ *Trail, err error) {
	t := &Trail{dir: dir, opts: opts.withDefaults(), change: make(chan struct{}), stop: make(chan struct{}), hash: zeroHash}
	t.shares = newShares(t.opts.MaxBytes)
	t.folds.init()
	defer func() {
		if err != nil {
			err = &carrel.Error{Op: "open audit trail", Kind: carrel.Internal, Err: err}
		}
	}()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if t.key, err = loadKey(dir); err != nil {
		return nil, err
	}
	torn, err := t.recover()
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	t.sealed = t.opts.Now()
	if torn > 0 {
		t.opts.Logger.Warn("the audit trail ended in an unfinished line; it was cut off", "bytes", torn)
		t.add(carrel.TrailRecord{Kind: carrel.TrailTorn, Bytes: torn, Text: "an unfinished line was cut off after a crash"})
	}
	t.add(carrel.TrailRecord{Kind: carrel.TrailStart, Text: t.opts.Version})
	t.mu.Unlock()
	t.tick(true)
	t.done.Go(t.tend)
	return t, nil
}

func fileName(first int64) string { return fmt.Sprintf("trail-%020d.jsonl", first) }

func (t *Trail) path(name string) string { return filepath.Join(t.dir, name) }

// recover finds the files and the end of the chain. It cuts off an unfinished last line and returns
// its length.
func (t *Trail) recover() (torn int64, err error) {
	firsts, err := listFiles(t.dir)
	if err != nil {
		return 0, err
	}
	for _, first := range firsts {
		info, err := os.Stat(t.path(fileName(first)))
		if err != nil {
			return 0, err
		}
		t.list = append(t.list, segment{first: first, size: info.Size(), since: firstTime(t.path(fileName(first)))})
	}
	// The newest file may be empty, after a crash at a rotation.
	sealed := false
	for i := len(t.list) - 1; i >= 0 && !(t.seq > 0 && sealed); i-- {
		end, err := scanEnd(t.path(fileName(t.list[i].first)))
		if err != nil {
			return 0, err
		}
		if i == len(t.list)-1 && end.size < t.list[i].size {
			torn = t.list[i].size - end.size
			if err := os.Truncate(t.path(fileName(t.list[i].first)), end.size); err != nil {
				return 0, err
			}
			t.list[i].size = end.size
		}
		if end.seq > t.seq {
			t.seq, t.hash = end.seq, end.hash
		}
		t.egress.note(end.egress)
		sealed = sealed || end.seal
	}
	if err := t.meetHead(); err != nil {
		return 0, err
	}
	t.written = t.seq
	if len(t.list) == 0 {
		t.list = []segment{{first: t.seq + 1}}
	}
	name := t.path(fileName(t.list[len(t.list)-1].first))
	if t.out, err = os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600); err != nil {
		return 0, err
	}
	return torn, atomicfile.SyncDir(t.dir)
}

// meetHead compares the records with the newest seal. If they differ, the chain goes on from the
// seal, so that every later verification tells of it.
func (t *Trail) meetHead() error {
	h, ok, err := readHead(t.dir, t.key.Public().(ed25519.PublicKey))
	if err != nil || !ok { // there is one as long as there is a key
		t.opts.Logger.Error("the head of the audit trail is missing or damaged", "err", err)
		t.seq, t.hash = max(t.seq, 1), zeroHash // what comes next does not follow
		return nil
	}
	const hint = "carrel audit verify tells more"
	switch {
	case h.Seq == 0:
	case h.Seq > t.seq:
		t.opts.Logger.Error("the end of the audit trail is missing", "first", t.seq+1, "last", h.Seq, "hint", hint)
		t.seq, t.hash = h.Seq, h.Hash
	default:
		found, err := t.hashOf(h.Seq)
		if err != nil {
			return err
		}
		if found != h.Hash {
			t.opts.Logger.Error("the audit trail was changed", "record", h.Seq, "hint", hint)
			t.hash = h.Hash
		}
	}
	return nil
}

// hashOf returns the hash of a record; "" if it is not there.
func (t *Trail) hashOf(seq int64) (hash string, err error) {
	for _, seg := range slices.Backward(t.list) {
		if seg.first > seq {
			continue
		}
		in, err := os.Open(t.path(fileName(seg.first)))
		if err != nil {
			return "", err
		}
		_, err = eachLine(in, func(line []byte, _ int64) error {
			if !bytes.HasPrefix(line, fmt.Appendf(nil, `{"seq":%d,`, seq)) {
				return nil
			}
			if r, _, ok := parse(line); ok && r.Seq == seq {
				hash = r.Hash
			}
			return nil
		})
		_ = in.Close()
		return hash, err
	}
	return "", nil
}

// readHead reads the newest seal. ok is false if there is none.
func readHead(dir string, pub ed25519.PublicKey) (h head, ok bool, err error) {
	raw, err := os.ReadFile(filepath.Join(dir, headName))
	if errors.Is(err, os.ErrNotExist) {
		return h, false, nil
	}
	if err != nil {
		return h, false, err
	}
	if err := json.Unmarshal(raw, &h); err != nil {
		return h, false, err
	}
	if !signed(carrel.TrailRecord{Hash: h.Hash, Sig: h.Sig}, pub) || h.Seq < 0 {
		return h, false, errors.New("its signature is wrong")
	}
	return h, true, nil
}

// Figures are counts of a trail, for metrics.
type Figures struct {
	Records int64 // since the trail was begun
	Pending int   // bytes that wait for a full disk
	Lost    int   // records that could not even wait, since this process began
}

// Figures counts.
func (t *Trail) Figures() Figures {
	t.mu.Lock()
	defer t.mu.Unlock()
	return Figures{Records: t.seq, Pending: len(t.pending), Lost: t.allLost}
}

// add appends a record. The caller holds t.mu, and fills in everything but Seq, Time and the hashes.
func (t *Trail) add(r carrel.TrailRecord) {
	if t.lost > 0 || len(t.pending) > maxPending {
		t.lost++
		t.allLost++
		return
	}
	r.Seq, r.Prev, r.Time = t.seq+1, t.hash, stamp(t.opts.Now())
	var key ed25519.PrivateKey
	if r.Kind == carrel.TrailSeal || r.Kind == carrel.TrailCut {
		key = t.key
	}
	line, hash, err := seal(bound(r), key)
	if err != nil { // our own type can be marshalled, but for a year beyond 9999
		t.opts.Logger.Error("a record of the audit trail can't be made", "err", err)
		return
	}
	t.seq, t.hash = r.Seq, hash
	t.pending = append(t.pending, line...)
	t.unsealed++
	if !t.stalled {
		t.flush()
	}
}

// flush hands what is pending to the kernel. What it does not take waits.
func (t *Trail) flush() {
	if len(t.pending) == 0 {
		return
	}
	seg := &t.list[len(t.list)-1]
	if t.torn {
		if err := t.out.Truncate(seg.size); err != nil {
			return // tried again
		}
		t.torn = false
	}
	n, err := t.opts.write(t.out, t.pending)
	if err != nil {
		// A part of a line must not stay before the next line.
		if n > 0 {
			t.torn = true
		}
		if !t.stalled {
			t.opts.Logger.Error("the audit trail can't be written; records wait", "err", err)
		}
		t.stalled = true
		return
	}
	t.stalled = false
	if seg.since.IsZero() {
		seg.since = t.opts.Now()
	}
	seg.size += int64(len(t.pending))
	t.pending, t.dirty, t.written = t.pending[:0], true, t.seq
	if cap(t.pending) > 1<<20 {
		t.pending = nil
	}
	close(t.change)
	t.change = make(chan struct{})
}

// tend does the regular work until Close.
func (t *Trail) tend() {
	tick := time.NewTicker(syncEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			t.tick(false)
		case <-t.stop:
			return
		}
	}
}

// tick writes counts and a seal if they are due, and forces everything to the disk.
func (t *Trail) tick(all bool) {
	t.ticking.Lock()
	defer t.ticking.Unlock()
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return
	}
	now := t.opts.Now()
	t.flush()
	if t.lost > 0 && len(t.pending) == 0 {
		n := t.lost
		t.lost = 0
		t.add(carrel.TrailRecord{Kind: carrel.TrailLost, Repeats: n, Text: "they came while the disk was full"})
	}
	for _, r := range t.folds.due(now, all, func(id string) bool { return t.shares.TakeAt(id, now) == 0 }) {
		t.add(r)
	}
	var h head
	if t.unsealed > 0 && (all || now.Sub(t.sealed).Abs() >= sealEvery || t.unsealed >= sealRecords) {
		h = t.seal(now)
	}
	t.rotate(now)
	out, dirty := t.out, t.dirty
	t.dirty = false
	t.mu.Unlock()
	// The records that a head names must be on the disk before it.
	if dirty {
		if err := out.Sync(); err != nil {
			t.opts.Logger.Error("the audit trail can't be forced to the disk", "err", err)
			t.err = err
			return
		}
	}
	if h.Seq > 0 {
		t.writeHead(h)
	}
}

// seal appends a seal, and returns it as the new head. It returns the zero head if the seal could
// not be written.
func (t *Trail) seal(now time.Time) head {
	t.add(carrel.TrailRecord{Kind: carrel.TrailSeal, First: t.egress.cut, Last: t.egress.last})
	if t.written != t.seq {
		return head{} // the disk is full: the next tick tries again
	}
	t.unsealed, t.sealed = 0, now
	sum := carrel.TrailRecord{Hash: t.hash}
	return head{Seq: t.seq, Hash: t.hash, Sig: sign(t.key, sum.Hash)}
}

// putHead writes a head.
func putHead(dir string, h head) error {
	raw, err := json.Marshal(h)
	if err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(dir, headName), append(raw, '\n'), 0o600)
}

func (t *Trail) writeHead(h head) {
	if err := putHead(t.dir, h); err != nil {
		t.opts.Logger.Error("the head of the audit trail can't be written", "err", err)
	}
}

// rotate begins a new file when the present one is large enough, and removes old files. The caller
// holds t.mu.
func (t *Trail) rotate(now time.Time) {
	if last := t.list[len(t.list)-1]; last.size >= t.opts.maxFile && len(t.pending) == 0 {
		if err := t.next(); err != nil {
			t.opts.Logger.Error("the audit trail can't begin a new file", "err", err)
			return
		}
	}
	for len(t.list) > 1 {
		var total int64
		for _, s := range t.list {
			total += s.size
		}
		old := t.opts.MaxAge > 0 && now.Sub(t.list[1].since) > t.opts.MaxAge && !t.list[1].since.IsZero()
		if total <= t.opts.MaxBytes && !old || !t.cut() {
			return
		}
	}
}

// next begins a new file.
func (t *Trail) next() error {
	if err := t.out.Sync(); err != nil {
		return err
	}
	out, err := os.OpenFile(t.path(fileName(t.seq+1)), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	if err := atomicfile.SyncDir(t.dir); err != nil {
		return errors.Join(err, out.Close())
	}
	_ = t.out.Close() // it was synced
	t.out = out
	t.list = append(t.list, segment{first: t.seq + 1})
	return nil
}

// cut appends a cut and removes the oldest file. The cut is on the disk before the file goes.
func (t *Trail) cut() bool {
	name := t.path(fileName(t.list[0].first))
	end, err := scanEnd(name)
	if err == nil && end.seq > 0 {
		t.add(carrel.TrailRecord{Kind: carrel.TrailCut, First: t.list[0].first, Last: end.seq, Digest: end.hash})
		if t.written != t.seq {
			return false
		}
		err = t.out.Sync()
	}
	if err == nil {
		err = os.Remove(name)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.opts.Logger.Error("an old file of the audit trail can't be removed", "err", err)
		return false
	}
	t.list = t.list[1:]
	return true
}

// Close writes what is counted, seals the trail and closes it. It returns an error if something
// could not be written.
func (t *Trail) Close() error {
	t.once.Do(func() {
		close(t.stop)
		t.done.Wait()
		t.tick(true)
		t.mu.Lock()
		defer t.mu.Unlock()
		t.closed = true
		close(t.change)
		t.change = make(chan struct{})
		if len(t.pending) > 0 || t.lost > 0 {
			t.err = errors.Join(t.err, errors.New("records of the audit trail could not be written"))
		}
		t.err = errors.Join(t.err, t.out.Close())
	})
	return t.err
}

// Sync returns when every record so far is signed and on the disk.
func (t *Trail) Sync() { t.tick(true) }

// Verify checks this trail, with the newest records. lines reads the wire's audit log; nil does not
// check it.
func (t *Trail) Verify(ctx context.Context, lines Lines) (carrel.TrailReport, error) {
	t.tick(true)
	return Verify(ctx, t.dir, VerifyOptions{Lines: lines})
}
