// Package remote stands between the snapshot store and blobs on another machine, which may be away
// or may be the wrong ones.
//
// # Away
//
// A store that was seen before may be away when the service starts. [Open] then succeeds, every
// call is Unavailable with a hint, and the next calls try to connect again. Nothing is deleted or
// forgotten meanwhile: a call that fails has no effect.
//
// # Unknown
//
// A store has an identity: a blob with a random name, which the first service writes. Each machine
// remembers it. A place without the remembered identity is another one, for example a bucket of
// almost the same name. It is refused: snapshots would seem to be gone, and new ones would go to a
// place that nobody looks for them in. Machines that write their identities at the same moment are
// no problem, because a store may have several.
package remote

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/atomicfile"
	"github.com/carrel-dev/carrel/internal/snapshot"
)

const (
	op = "open snapshot store"
	// identities begins the names of the blobs that are a store's identity.
	identities = "identity/"
	firstTry   = 15 * time.Second // for the connection at the start
	laterTry   = 10 * time.Second // for one later
	tryEvery   = 2 * time.Second  // least time between two later ones
)

// Options configure Blobs. All but Log are required.
type Options struct {
	// Connect opens the blobs. Error: Unavailable when they are away.
	Connect func(ctx context.Context) (snapshot.Blobs, error)
	// Where is the place, for people.
	Where string
	// File is where this machine remembers the identity.
	File string
	Log  *slog.Logger
}

// Blobs is a [snapshot.Blobs] that may be away.
type Blobs struct {
	opts Options

	connecting sync.Mutex // one connection is tried at a time

	mu     sync.Mutex
	blobs  snapshot.Blobs // nil before the first connection
	away   error          // why it is away now; nil when it is not
	wrong  error          // it is another store
	next   time.Time      // no try before this time
	closed bool
}

var _ snapshot.Blobs = (*Blobs)(nil)

// remembered is the content of Options.File.
type remembered struct {
	Where string `json:"where"`
	ID    string `json:"id"`
}

// Open connects to the store. If the store is away but was seen before, Open succeeds. Errors:
// those of Connect, Conflict when it is another store.
func Open(ctx context.Context, opts Options) (*Blobs, error) {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	b := &Blobs{opts: opts}
	known, err := b.remembered()
	if err != nil {
		return nil, err
	}
	tctx, cancel := context.WithTimeout(ctx, firstTry)
	defer cancel()
	_, err = b.connect(tctx)
	switch {
	case err == nil:
		return b, nil
	case ctx.Err() == nil && known != nil && isAway(err):
		opts.Log.Error("the snapshot store is away: snapshots in it can't be used until it answers",
			"store", opts.Where, "err", err)
		return b, nil
	}
	return nil, err
}

// isAway reports whether an error means that a store may come back by itself.
func isAway(err error) bool {
	k := carrel.KindOf(err)
	return k == carrel.Unavailable || k == carrel.TimedOut
}

// remembered reads the identity that this machine knows; nil is none.
func (b *Blobs) remembered() (*remembered, error) {
	raw, err := os.ReadFile(b.opts.File)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var r remembered
	if err == nil {
		err = json.Unmarshal(raw, &r)
	}
	if err == nil && r.ID == "" {
		err = errors.New("it names no identity")
	}
	if err != nil {
		return nil, &carrel.Error{Op: op, Kind: carrel.Internal,
			Err:  fmt.Errorf("the store's identity in %s: %w", b.opts.File, err),
			Hint: "it says which place has this machine's snapshots; remove it only if that place is certainly " + b.opts.Where}
	}
	return &r, nil
}

// connect opens the blobs if they are not open, and checks their identity.
func (b *Blobs) connect(ctx context.Context) (snapshot.Blobs, error) {
	b.connecting.Lock()
	defer b.connecting.Unlock()
	b.mu.Lock()
	blobs, wrong, closed := b.blobs, b.wrong, b.closed
	b.mu.Unlock()
	switch {
	case closed:
		return nil, &carrel.Error{Op: op, Kind: carrel.Unavailable, Err: errors.New("it is closed")}
	case wrong != nil:
		return nil, wrong
	case blobs != nil:
		return blobs, nil
	}
	blobs, err := b.opts.Connect(ctx)
	if err == nil {
		if err = b.identify(ctx, blobs); err != nil {
			err = errors.Join(err, blobs.Close())
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.next = time.Now().Add(tryEvery)
	if err != nil {
		if carrel.KindOf(err) == carrel.Conflict {
			b.wrong = err
			b.opts.Log.Error("the snapshot store is another one", "store", b.opts.Where, "err", err, "hint",
				carrel.HintOf(err))
		}
		b.away = err
		return nil, err
	}
	if b.away != nil {
		b.opts.Log.Info("the snapshot store is back", "store", b.opts.Where)
	}
	b.blobs, b.away = blobs, nil
	return blobs, nil
}

// identify compares the store's identities with the one that this machine remembers. Where there is
// none yet, it makes one.
func (b *Blobs) identify(ctx context.Context, blobs snapshot.Blobs) error {
	known, err := b.remembered()
	if err != nil {
		return err
	}
	var has []string
	err = blobs.List(ctx, identities, func(i snapshot.BlobInfo) error {
		has = append(has, strings.TrimPrefix(i.Name, identities))
		return nil
	})
	if err != nil {
		return err
	}
	if known != nil {
		if slices.Contains(has, known.ID) {
			return nil
		}
		return b.unknown(known, has)
	}
	if len(has) == 0 {
		id := strings.ToLower(rand.Text())
		if err := blobs.Put(ctx, identities+id, strings.NewReader(b.opts.Where),
			int64(len(b.opts.Where))); err != nil {
			return err
		}
		has = []string{id}
	}
	raw, err := json.Marshal(remembered{Where: b.opts.Where, ID: slices.Min(has)})
	if err == nil {
		err = os.MkdirAll(filepath.Dir(b.opts.File), 0o700)
	}
	if err == nil {
		err = atomicfile.Write(b.opts.File, append(raw, '\n'), 0o600)
	}
	if err != nil {
		return &carrel.Error{Op: op, Kind: carrel.Internal,
			Err: fmt.Errorf("remember the store's identity: %w", err)}
	}
	return nil
}

// unknown is the error for a store without the remembered identity.
func (b *Blobs) unknown(known *remembered, has []string) error {
	what := "is another snapshot store"
	if len(has) == 0 {
		what = "is no snapshot store, or an empty one"
	}
	return &carrel.Error{Op: op, Kind: carrel.Conflict, Field: "snapshot-store",
		Err: fmt.Errorf("%s %s: this machine's snapshots lie in %s, whose identity is %s", b.opts.Where,
			what, known.Where, known.ID),
		Hint: "name the right bucket and prefix; to give up the snapshots there and begin anew here, remove " + b.opts.File}
}

// use returns the blobs, and connects first if necessary. It does not try again at once after a
// failure.
func (b *Blobs) use(ctx context.Context) (snapshot.Blobs, error) {
	b.mu.Lock()
	blobs, wrong, away, wait := b.blobs, b.wrong, b.away, time.Until(b.next)
	b.mu.Unlock()
	switch {
	case blobs != nil:
		return blobs, nil
	case wrong != nil:
		return nil, wrong
	case wait <= 0:
		ctx, cancel := context.WithTimeout(ctx, laterTry)
		defer cancel()
		if blobs, away = b.connect(ctx); away == nil {
			return blobs, nil
		}
		if carrel.KindOf(away) == carrel.Conflict {
			return nil, away
		}
	}
	return nil, b.errAway(away)
}

// errAway is the error of calls while the store is away.
func (b *Blobs) errAway(cause error) error {
	return &carrel.Error{Op: "use snapshot store", Kind: carrel.Unavailable,
		Err:  fmt.Errorf("the snapshot store %s is away: %w", b.opts.Where, cause),
		Hint: "nothing in it is lost: try again when it answers"}
}

// note remembers whether a call reached the store, and explains its error.
func (b *Blobs) note(ctx context.Context, err error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case err == nil:
		b.away = nil
	case isAway(err) && ctx.Err() == nil:
		b.away = err
		return b.errAway(err)
	}
	return err
}

// Away returns why the store can't be used now, as far as the last call knows; nil when it can.
// While it is away, Away makes another try in the background.
func (b *Blobs) Away() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.away == nil {
		return b.wrong
	}
	if b.wrong == nil && time.Now().After(b.next) && !b.closed {
		b.next = time.Now().Add(tryEvery)
		go b.look()
	}
	return b.away
}

// look asks the store for a name.
func (b *Blobs) look() {
	ctx, cancel := context.WithTimeout(context.Background(), laterTry)
	defer cancel()
	blobs, err := b.connect(ctx)
	if err != nil {
		return
	}
	_ = b.note(ctx, blobs.List(ctx, identities, func(snapshot.BlobInfo) error { return nil }))
}

// Put implements [snapshot.Blobs].
func (b *Blobs) Put(ctx context.Context, name string, r io.Reader, size int64) error {
	blobs, err := b.use(ctx)
	if err != nil {
		return err
	}
	return b.note(ctx, blobs.Put(ctx, name, r, size))
}

// Get implements [snapshot.Blobs].
func (b *Blobs) Get(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	blobs, err := b.use(ctx)
	if err != nil {
		return nil, err
	}
	r, err := blobs.Get(ctx, name, offset, length)
	return r, b.note(ctx, err)
}

// List implements [snapshot.Blobs].
func (b *Blobs) List(ctx context.Context, prefix string, fn func(snapshot.BlobInfo) error) error {
	blobs, err := b.use(ctx)
	if err != nil {
		return err
	}
	return b.note(ctx, blobs.List(ctx, prefix, fn))
}

// Delete implements [snapshot.Blobs].
func (b *Blobs) Delete(ctx context.Context, name string) error {
	blobs, err := b.use(ctx)
	if err != nil {
		return err
	}
	return b.note(ctx, blobs.Delete(ctx, name))
}

// Close implements [snapshot.Blobs].
func (b *Blobs) Close() error {
	b.mu.Lock()
	blobs := b.blobs
	b.closed = true
	b.mu.Unlock()
	if blobs == nil {
		return nil
	}
	return blobs.Close()
}
