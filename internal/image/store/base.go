package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/atomicfile"
	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/image/archive"
	"github.com/carrel-dev/carrel/internal/image/erofs"
	"github.com/carrel-dev/carrel/internal/image/hostbase"
)

// base is the built-in template made from this machine.
type base struct {
	dir  string // the cache directory
	opts hostbase.Options
	log  *slog.Logger
	now  func() time.Time
	turn chan struct{} // holds one token; its holder may make the image

	mu     sync.Mutex
	img    image.Image
	held   []*os.File // shared locks on the directories of img and of earlier images
	print  string     // the fingerprint of img
	closed bool
}

func newBase(opts Options) *base {
	b := &base{dir: opts.CacheDir, opts: opts.Base, log: opts.Logger, now: opts.Now, turn: make(chan struct{}, 1)}
	b.turn <- struct{}{}
	return b
}

// listed is the entry for List, also before the image has been made.
func (b *base) listed() image.Image {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.img.Path != "" {
		return b.img
	}
	return image.Image{Template: carrel.Template{ID: BaseID, Name: image.Base, Source: baseSource, BuiltIn: true}}
}

const baseSource = "this machine's toolchain"

// ready returns the image if it has been made and is still on the disk.
func (b *base) ready() (image.Image, bool) {
	b.mu.Lock()
	img := b.img
	b.mu.Unlock()
	if img.Path == "" {
		return img, false
	}
	_, err := os.Stat(img.Path)
	return img, err == nil
}

// get returns the image. If there is none, it makes it first. With check set it makes it again if
// the machine has changed since. Without check the store keeps its image, so that installing a
// package does not make the next sandbox wait. Calls at the same time make the image once.
func (b *base) get(ctx context.Context, check bool, progress func(carrel.Progress)) (image.Image, error) {
	if img, ok := b.ready(); ok && !check {
		return img, nil
	}
	select {
	case <-b.turn:
		defer func() { b.turn <- struct{}{} }()
	case <-ctx.Done():
		return image.Image{}, archive.Classify("make base template", ctx.Err())
	}
	have, ok := b.ready()
	if ok && !check {
		return have, nil
	}
	print, err := hostbase.Fingerprint(b.opts)
	if err != nil {
		return image.Image{}, archive.Classify("make base template", err)
	}
	b.mu.Lock()
	same, closed := ok && b.print == print, b.closed
	b.mu.Unlock()
	switch {
	case closed:
		return image.Image{}, &carrel.Error{Op: "make base template", Kind: carrel.Unavailable, Err: errors.New("the store is closed")}
	case same:
		return have, nil
	}
	img, held, err := b.cached(ctx, print, image.NewMeter(progress))
	if err != nil {
		return image.Image{}, archive.Classify("make base template", err)
	}
	b.keep(img, held, print)
	b.removeOthers()
	return img, nil
}

// keep stores an image and the lock on it. The caller holds the turn, so close comes before or
// after.
func (b *base) keep(img image.Image, held *os.File, print string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.img, b.print = img, print
	b.held = append(b.held, held) // a sandbox may be about to start from the earlier image
}

// cached returns the image of a fingerprint and a shared lock on its directory. The first process
// that comes makes the image; others wait.
func (b *base) cached(ctx context.Context, print string, meter *image.Meter) (image.Image, *os.File, error) {
	dir := filepath.Join(b.dir, "base-"+print)
	for {
		if err := os.MkdirAll(b.dir, 0o700); err != nil {
			return image.Image{}, nil, err
		}
		if err := onlyOurs(b.dir); err != nil {
			return image.Image{}, nil, err
		}
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return image.Image{}, nil, err
		}
		held, err := os.Open(dir)
		if err != nil {
			return image.Image{}, nil, err
		}
		img, err := b.lockAndRead(ctx, held, dir, meter)
		if err == nil {
			return img, held, nil
		}
		_ = held.Close()
		if !errors.Is(err, errGone) {
			return image.Image{}, nil, err
		}
	}
}

// onlyOurs refuses a cache directory into which other users could put an image.
func onlyOurs(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || int(st.Uid) != os.Geteuid() || info.Mode().Perm()&0o022 != 0 {
		return &carrel.Error{Op: "make base template", Kind: carrel.Forbidden, Field: "CacheDir",
			Err: fmt.Errorf("%s belongs to another user or can be written by others", dir), Hint: "choose a cache directory of your own: chmod go-w " + dir}
	}
	return nil
}

// errGone means that another process removed the directory before we held its lock.
var errGone = errors.New("directory removed meanwhile")

// lockAndRead returns with a shared lock held. The process that made the image keeps such a lock as
// long as it lives. So a waiting process looks for the finished image as well as for the exclusive
// lock.
func (b *base) lockAndRead(ctx context.Context, held *os.File, dir string, meter *image.Meter) (image.Image, error) {
	var img image.Image
	err := poll(ctx, func() (bool, error) {
		if tryLock(held, false) {
			var err error
			if img, err = readBase(dir); err == nil {
				return true, nil
			}
		}
		unlockFile(held) // our shared lock would block the exclusive lock of others
		return tryLock(held, true), nil
	})
	if err != nil {
		return image.Image{}, err
	}
	if err := stillThere(held, dir); err != nil || img.Path != "" {
		return img, err
	}
	if img, err = readBase(dir); err != nil {
		if img, err = b.build(ctx, dir, meter); err != nil {
			return image.Image{}, err
		}
	}
	// From here on other processes may use it too. Changing the lock is not atomic.
	if err := lockFile(ctx, held, false); err != nil {
		return image.Image{}, err
	}
	return img, stillThere(held, dir)
}

// stillThere returns errGone if dir is no longer the locked directory.
func stillThere(held *os.File, dir string) error {
	a, err := held.Stat()
	if err != nil {
		return err
	}
	c, err := os.Stat(dir)
	if errors.Is(err, os.ErrNotExist) || err == nil && !os.SameFile(a, c) {
		return errGone
	}
	return err
}

func readBase(dir string) (image.Image, error) {
	raw, err := os.ReadFile(filepath.Join(dir, manifestFile))
	if err != nil {
		return image.Image{}, err
	}
	img := image.Image{Path: filepath.Join(dir, imageFile)}
	if err := json.Unmarshal(raw, &img.Template); err != nil {
		return image.Image{}, err
	}
	if _, err := os.Stat(img.Path); err != nil {
		return image.Image{}, err
	}
	return img, nil
}

// build makes the image. The directory is locked, so it may overwrite the files of an earlier
// attempt.
func (b *base) build(ctx context.Context, dir string, meter *image.Meter) (image.Image, error) {
	return b.buildAt(ctx, dir, b.now(), meter)
}

// remake makes a damaged image again, in the same place. It has the same time of creation: on a
// machine that has not changed, the new image has the same content as the old one had, and
// snapshots that lie on it can still be restored.
func (b *base) remake(ctx context.Context, bad image.Image) (image.Image, error) {
	select {
	case <-b.turn:
		defer func() { b.turn <- struct{}{} }()
	case <-ctx.Done():
		return image.Image{}, ctx.Err()
	}
	dir := filepath.Dir(bad.Path)
	lock, err := os.OpenFile(filepath.Join(b.dir, "remake.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return image.Image{}, err
	}
	defer lock.Close()
	if err := lockFile(ctx, lock, true); err != nil {
		return image.Image{}, err
	}
	// Another call or daemon may have made it while this one waited.
	var fresh checks
	if img, err := readBase(dir); err == nil && fresh.whole(ctx, dir, 0) == nil {
		return img, nil
	}
	img, err := b.buildAt(ctx, dir, bad.Created, image.NewMeter(nil))
	if err != nil {
		return image.Image{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.img = img
	return img, nil
}

// buildAt makes the image with a time of creation.
func (b *base) buildAt(ctx context.Context, dir string, created time.Time, meter *image.Meter) (image.Image, error) {
	start := time.Now()
	part := filepath.Join(dir, "part")
	f, err := os.OpenFile(part, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return image.Image{}, err
	}
	done := false
	defer func() {
		if !done {
			_ = f.Close()
			_ = os.Remove(part)
		}
	}()
	w := erofs.NewWriter(f)
	writing, stop := keepRoom(ctx, dir)
	defer stop()
	made, err := hostbase.Build(writing, w, b.opts, meter)
	if err != nil {
		return image.Image{}, roomError(writing, err)
	}
	meter.Stage(image.StageWrite, 0)
	if _, err := w.Finish(made.Root, created); err != nil {
		return image.Image{}, err
	}
	size, err := keepFile(f, filepath.Join(dir, imageFile))
	if err != nil {
		return image.Image{}, err
	}
	done = true
	meter.Add(size)
	img := image.Image{Path: filepath.Join(dir, imageFile), Template: carrel.Template{ID: BaseID, Name: image.Base,
		Created: created.UTC(), Size: size, Source: baseSource, Env: made.Env, User: "user", BuiltIn: true}}
	sums, err := writeSums(ctx, dir)
	if err != nil {
		return image.Image{}, err
	}
	raw, err := encodeManifest(img.Template, sums)
	if err != nil {
		return image.Image{}, err
	}
	if err := atomicfile.Write(filepath.Join(dir, manifestFile), append(raw, '\n'), 0o644); err != nil {
		return image.Image{}, err
	}
	b.log.Info("made the base template", "files", made.Files, "bytes", size, "took", time.Since(start).Round(time.Millisecond))
	return img, nil
}

// removeOthers removes bases of other fingerprints that no process holds.
func (b *base) removeOthers() {
	b.mu.Lock()
	mine := "base-" + b.print
	b.mu.Unlock()
	entries, err := os.ReadDir(b.dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if !e.IsDir() || e.Name() == mine || !strings.HasPrefix(e.Name(), "base-") {
			continue
		}
		if err := removeUnheld(filepath.Join(b.dir, e.Name())); err != nil {
			b.log.Warn("removing an old base template", "dir", e.Name(), "err", err)
		}
	}
}

func removeUnheld(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	defer f.Close()
	if !tryLock(f, true) {
		return nil
	}
	return removeTemplate(dir)
}

func (b *base) close() error {
	// Wait until nobody is making the image.
	<-b.turn
	defer func() { b.turn <- struct{}{} }()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil
	}
	b.closed = true
	var errs []error
	for _, f := range b.held {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}
