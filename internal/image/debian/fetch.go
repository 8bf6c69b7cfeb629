package debian

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/image"
)

// StageFetch is the stage of a [carrel.Progress] in which packages are downloaded.
const StageFetch = "fetch"

// Fetcher brings packages from a mirror into a cache. [NewFetcher] makes it with the usual bounds.
// It is safe for concurrent use, also by several processes with one cache.
type Fetcher struct {
	Mirror Mirror
	Dir    string // the cache; made if missing
	// Stall is the longest time without a byte.
	Stall time.Duration
	// MinRate is the least average speed in bytes per second. A package may take Grace longer.
	MinRate int64
	Grace   time.Duration
	// Attempts is how often a package is asked for before the mirror counts as away.
	Attempts int
	// Pause is the pause before the second attempt. It doubles each time.
	Pause time.Duration

	client http.Client
}

// parallelFetches is the number of downloads at a time.
const parallelFetches = 6

// NewFetcher returns a Fetcher with the usual bounds.
func NewFetcher(m Mirror, dir string) *Fetcher {
	return &Fetcher{Mirror: m, Dir: dir, Stall: 30 * time.Second, MinRate: 8 << 10, Grace: time.Minute,
		Attempts: 4, Pause: time.Second, client: newClient()}
}

// errRefused is a fault for which another attempt is useless.
type errRefused struct{ error }

func (e errRefused) Unwrap() error { return e.error }

// Fetch puts all packages into the cache that are not there yet.
func (f *Fetcher) Fetch(ctx context.Context, pins []Pin, meter *image.Meter) error {
	if err := os.MkdirAll(f.Dir, 0o700); err != nil {
		return err
	}
	var missing []Pin
	var total int64
	for _, p := range pins {
		if info, err := os.Stat(f.path(p)); err == nil && info.Size() == p.Size {
			continue
		}
		missing = append(missing, p)
		total += p.Size
	}
	if len(missing) == 0 {
		return nil
	}
	if f.Mirror.Main == "" {
		return errNoMirror(len(missing))
	}
	meter.Stage(StageFetch, total)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallelFetches)
	for _, p := range missing {
		g.Go(func() error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return f.one(ctx, p, meter)
		})
	}
	err := g.Wait()
	meter.Flush()
	return err
}

func errNoMirror(missing int) error {
	return &carrel.Error{Op: opMake, Kind: carrel.Unavailable,
		Err: fmt.Errorf("%d packages are needed, and no Debian mirror is known on this machine",
			missing),
		Hint: "name one with 'carrel serve --debian-mirror http://…/debian'"}
}

// path is the place of a package in the cache.
func (f *Fetcher) path(p Pin) string { return filepath.Join(f.Dir, p.SHA256+".deb") }

// Open opens a package of the cache after it has checked its sum.
func (f *Fetcher) Open(p Pin) (io.ReadCloser, error) {
	file, err := os.Open(f.path(p))
	if err != nil {
		return nil, err
	}
	if err := checkSum(file, p); err != nil {
		_ = file.Close()
		_ = os.Remove(f.path(p)) // the next making fetches it again
		return nil, err
	}
	return file, nil
}

// checkSum compares a file with a pin and goes back to the file's beginning.
func checkSum(file *os.File, p Pin) error {
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	h := sha256.New()
	if _, err := io.Copy(h, file); err != nil {
		return err
	}
	if hex.EncodeToString(h.Sum(nil)) != p.SHA256 {
		return errors.New("its SHA-256 is not the pinned one")
	}
	_, err := file.Seek(0, io.SeekStart)
	return err
}

// one downloads a package. A part that is there already is continued.
func (f *Fetcher) one(ctx context.Context, p Pin, meter *image.Meter) error {
	part, err := f.openPart(p)
	if err != nil {
		return err
	}
	defer part.Close() // frees the lock
	pause := f.Pause
	for attempt := 1; ; attempt++ {
		if err = f.attempt(ctx, part, p, meter); err == nil {
			return f.keep(part, p)
		}
		var no errRefused
		if errors.As(err, &no) || attempt >= max(1, f.Attempts) || ctx.Err() != nil {
			break
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause *= 2
	}
	return f.fail(ctx, p, err)
}

func (f *Fetcher) fail(ctx context.Context, p Pin, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var ce *carrel.Error
	if errors.As(err, &ce) {
		return err
	}
	return &carrel.Error{Op: opMake, Kind: carrel.Unavailable,
		Err:  fmt.Errorf("package %s: %w", p.Name, err),
		Hint: "the Debian mirror may be away: try again, or name another one with 'carrel serve --debian-mirror URL'"}
}

// openPart opens the file that a package is downloaded into, and locks it. If another process holds
// the lock, it opens a file of its own.
func (f *Fetcher) openPart(p Pin) (*os.File, error) {
	part, err := os.OpenFile(filepath.Join(f.Dir, p.SHA256+".part"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if unix.Flock(int(part.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
		return part, nil
	}
	_ = part.Close()
	return os.CreateTemp(f.Dir, p.SHA256+"-*.part")
}

// keep gives a whole package its name.
func (f *Fetcher) keep(part *os.File, p Pin) error {
	if err := part.Sync(); err != nil {
		return err
	}
	return os.Rename(part.Name(), f.path(p))
}

// attempt asks the mirror once for the rest of a package, and checks the whole.
func (f *Fetcher) attempt(ctx context.Context, part *os.File, p Pin, meter *image.Meter) error {
	have, err := part.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if have > p.Size {
		if err := part.Truncate(0); err != nil {
			return err
		}
		have = 0
	}
	if have < p.Size {
		if err := f.download(ctx, part, p, have, meter); err != nil {
			return err
		}
	}
	if err := checkSum(part, p); err != nil {
		_ = part.Truncate(0)
		return fmt.Errorf("the mirror gave other bits: %w", err)
	}
	return nil
}

// download appends the rest of a package to part.
func (f *Fetcher) download(ctx context.Context, part *os.File, p Pin, have int64,
	meter *image.Meter) error {
	allowed := f.Grace + time.Duration(p.Size/f.MinRate)*time.Second
	ctx, cancel := context.WithTimeoutCause(ctx, allowed, errors.New("the mirror is too slow"))
	defer cancel()
	ctx, stalled := context.WithCancelCause(ctx)
	defer stalled(nil)
	watch := time.AfterFunc(f.Stall, func() {
		stalled(
			fmt.Errorf("the mirror sent nothing for %v", f.Stall))
	})
	defer watch.Stop()
	resp, err := f.get(ctx, f.Mirror.url(p), have)
	if err != nil {
		return causeOf(ctx, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusPartialContent && have > 0 { // it began anew
		if err := part.Truncate(0); err != nil {
			return err
		}
		have = 0
	}
	if _, err := part.Seek(have, io.SeekStart); err != nil {
		return err
	}
	body := &watchedReader{r: io.LimitReader(resp.Body, p.Size-have+1), progress: func(n int) {
		watch.Reset(f.Stall)
		meter.Add(int64(n))
	}}
	n, err := io.Copy(part, body)
	switch {
	case n > p.Size-have:
		return errors.Join(errors.New("the mirror sent more than the package has"), part.Truncate(0))
	case err != nil:
		return causeOf(ctx, err)
	case n < p.Size-have:
		return fmt.Errorf("the mirror sent %d of %d bytes", have+n, p.Size)
	}
	return nil
}

// causeOf returns the reason for which a context ended, or err.
func causeOf(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// watchedReader reports each read.
type watchedReader struct {
	r        io.Reader
	progress func(n int)
}

func (w *watchedReader) Read(p []byte) (int, error) {
	n, err := w.r.Read(p)
	if n > 0 {
		w.progress(n)
	}
	return n, err
}

// maxCacheAge is how long an unused file stays in the cache.
const maxCacheAge = 30 * 24 * time.Hour

// Prune removes packages that are not pinned and were fetched long ago, and old parts.
func (f *Fetcher) Prune(pins []Pin, now time.Time) {
	keep := map[string]bool{}
	for _, p := range pins {
		keep[p.SHA256+".deb"] = true
	}
	entries, _ := os.ReadDir(f.Dir) // without a cache there is nothing to remove
	for _, e := range entries {
		info, err := e.Info()
		age := maxCacheAge
		if filepath.Ext(e.Name()) == ".part" {
			age = 24 * time.Hour
		}
		if err == nil && info.Mode().Type() == fs.FileMode(0) && !keep[e.Name()] &&
			now.Sub(info.ModTime()) > age {
			_ = os.Remove(filepath.Join(f.Dir, e.Name())) // the next Prune tries again
		}
	}
}
