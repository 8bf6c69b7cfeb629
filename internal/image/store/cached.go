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
)

// cached is a built-in template. Its image is in the cache directory, in a directory whose name
// ends with a fingerprint. The stores of one user share it. A held directory is locked, so that
// nobody removes it.
type cached struct {
	dir      string          // the cache directory
	prefix   string          // of the directory's name, before the fingerprint
	former   string          // the prefix in older programs; "" is none
	template carrel.Template // before it is made
	log      *slog.Logger
	now      func() time.Time
	// print returns the fingerprint: 20 hexadecimal digits.
	print func() (string, error)
	// make makes the image in a directory. It has written it but not fsynced it.
	make func(ctx context.Context, dir string, created time.Time, meter *image.Meter) (*os.File,
		carrel.Template, error)
	turn chan struct{} // holds one token; its holder may make the image

	mu     sync.Mutex
	img    image.Image
	held   []*os.File // shared locks on the directories of img and of earlier images
	has    string     // the fingerprint of img
	closed bool
}

// printLen is the length of a fingerprint.
const printLen = 20

// listed is the entry for List, also before the image has been made.
func (b *cached) listed() image.Image {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.img.Path != "" {
		return b.img
	}
	return image.Image{Template: b.template}
}

// known reports whether the image has been made, although its file may be gone by now.
func (b *cached) known() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.img.Path != ""
}

// isCurrent reports whether the image has the present fingerprint.
func (b *cached) isCurrent() bool {
	print, err := b.print()
	b.mu.Lock()
	defer b.mu.Unlock()
	return err == nil && b.has == print
}

// ready returns the image if it has been made and is still on the disk.
func (b *cached) ready() (image.Image, bool) {
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
func (b *cached) get(ctx context.Context, check bool,
	progress func(carrel.Progress)) (image.Image, error) {
	if img, ok := b.ready(); ok && !check {
		return img, nil
	}
	select {
	case <-b.turn:
		defer func() { b.turn <- struct{}{} }()
	case <-ctx.Done():
		return image.Image{}, archive.Classify(opBuiltIn, ctx.Err())
	}
	have, ok := b.ready()
	if ok && !check {
		return have, nil
	}
	print, err := b.print()
	if err != nil {
		return image.Image{}, archive.Classify(opBuiltIn, err)
	}
	b.mu.Lock()
	same, closed := ok && b.has == print, b.closed
	b.mu.Unlock()
	switch {
	case closed:
		return image.Image{}, &carrel.Error{Op: opBuiltIn, Kind: carrel.Unavailable,
			Err: errors.New("the store is closed")}
	case same:
		return have, nil
	}
	img, held, err := b.shared(ctx, print, image.NewMeter(progress))
	if err != nil {
		return image.Image{}, archive.Classify(opBuiltIn, err)
	}
	b.keep(img, held, print)
	b.removeOthers()
	return img, nil
}

// hold takes the image of a fingerprint, which an earlier process has made.
func (b *cached) hold(ctx context.Context, print string) error {
	<-b.turn
	defer func() { b.turn <- struct{}{} }()
	img, held, err := b.shared(ctx, print, image.NewMeter(nil))
	if err != nil {
		return archive.Classify(opBuiltIn, err)
	}
	b.keep(img, held, print)
	return nil
}

// keep stores an image and the lock on it. The caller holds the turn, so close comes before or
// after.
func (b *cached) keep(img image.Image, held *os.File, print string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.img, b.has = img, print
	b.held = append(b.held, held) // a sandbox may be about to start from the earlier image
}

// shared returns the image of a fingerprint and a shared lock on its directory. The first process
// that comes makes the image; others wait.
func (b *cached) shared(ctx context.Context, print string,
	meter *image.Meter) (image.Image, *os.File, error) {
	dir := filepath.Join(b.dir, b.prefix+print)
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
		return &carrel.Error{Op: opBuiltIn, Kind: carrel.Forbidden, Field: "CacheDir",
			Err:  fmt.Errorf("%s belongs to another user or can be written by others", dir),
			Hint: "choose a cache directory of your own: chmod go-w " + dir}
	}
	return nil
}

// errGone means that another process removed the directory before we held its lock.
var errGone = errors.New("directory removed meanwhile")

// lockAndRead returns with a shared lock held. The process that made the image keeps such a lock as
// long as it lives. So a waiting process looks for the finished image as well as for the exclusive
// lock.
func (b *cached) lockAndRead(ctx context.Context, held *os.File, dir string,
	meter *image.Meter) (image.Image, error) {
	var img image.Image
	err := poll(ctx, func() (bool, error) {
		if tryLock(held, false) {
			var err error
			if img, err = readCached(dir); err == nil {
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
	if img, err = readCached(dir); err != nil {
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

func readCached(dir string) (image.Image, error) {
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

// build makes the image, or adopts an older program's. The directory is locked, so the files in it
// are of an earlier attempt.
func (b *cached) build(ctx context.Context, dir string, meter *image.Meter) (image.Image, error) {
	if img, ok := b.adopt(dir); ok {
		return img, nil
	}
	return b.buildAt(ctx, dir, b.now(), meter)
}

// remake makes a damaged image again, in the same place. It has the same time of creation: on a
// machine that has not changed, the new image has the same content as the old one had, and
// snapshots that lie on it can still be restored.
func (b *cached) remake(ctx context.Context, bad image.Image) (image.Image, error) {
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
	if img, err := readCached(dir); err == nil && fresh.whole(ctx, dir, 0) == nil {
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
func (b *cached) buildAt(ctx context.Context, dir string, created time.Time,
	meter *image.Meter) (image.Image, error) {
	start := time.Now()
	if err := removeParts(dir); err != nil {
		return image.Image{}, err
	}
	defer func() { _ = removeParts(dir) }() // the next attempt tries again
	writing, stop := keepRoom(ctx, dir)
	defer stop()
	f, t, err := b.make(writing, dir, created, meter)
	if err != nil {
		return image.Image{}, roomError(writing, err)
	}
	meter.Stage(image.StageWrite, 0)
	size, err := keepFile(f, filepath.Join(dir, imageFile))
	if err != nil {
		return image.Image{}, err
	}
	meter.Add(size)
	t.Created, t.Size = created.UTC(), size
	sums, err := writeSums(ctx, dir)
	if err != nil {
		return image.Image{}, err
	}
	raw, err := encodeManifest(t, sums)
	if err != nil {
		return image.Image{}, err
	}
	if err := atomicfile.Write(filepath.Join(dir, manifestFile), append(raw, '\n'),
		0o644); err != nil {
		return image.Image{}, err
	}
	b.log.Info("made the "+t.Name+" template", "bytes", size, "took",
		time.Since(start).Round(time.Millisecond))
	return image.Image{Path: filepath.Join(dir, imageFile), Template: t}, nil
}

// removeParts removes the files of an attempt to make an image.
func removeParts(dir string) error {
	parts, err := filepath.Glob(filepath.Join(dir, "part*"))
	if err != nil {
		return err
	}
	var errs []error
	for _, p := range parts {
		if err := os.Remove(p); !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// removeOthers removes images of other fingerprints that no process holds. An older program's image
// of the same fingerprint stays: it is a link to this one.
func (b *cached) removeOthers() {
	b.mu.Lock()
	mine, theirs := b.prefix+b.has, b.former+b.has
	b.mu.Unlock()
	entries, err := os.ReadDir(b.dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if !e.IsDir() || e.Name() == mine || e.Name() == theirs || !b.owns(e.Name()) {
			continue
		}
		if err := removeUnheld(filepath.Join(b.dir, e.Name())); err != nil {
			b.log.Warn("removing an old built-in template", "dir", e.Name(), "err", err)
		}
	}
}

// owns reports whether a name in the cache is one of this template's directories.
func (b *cached) owns(name string) bool {
	print, ok := strings.CutPrefix(name, b.prefix)
	if !ok && b.former != "" {
		print, ok = strings.CutPrefix(name, b.former)
	}
	return ok && len(print) == printLen && strings.Trim(print, "0123456789abcdef") == ""
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

func (b *cached) close() error {
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
