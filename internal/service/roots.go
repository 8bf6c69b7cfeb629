package service

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/atomicfile"
	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/service/timeline"
	"github.com/carrel-dev/carrel/internal/state"
)

// rootsDir holds the root images that sandboxes and snapshots need. A snapshot needs the exact
// image it was taken on. But templates are replaced and deleted, and the built-in one is packed
// anew when this machine's tools change. An image here is a hard link. On another filesystem, such
// as that of the cache directory, it is a copy.
const rootsDir = ".roots"

// youngRoot is how long a new image stays although nothing needs it yet. It is longer than any
// creation.
const youngRoot = time.Hour

// partPrefix begins the names of copies that are not complete.
const partPrefix = ".part-"

// roots keeps the root images that are needed.
type roots struct {
	opts  *Options
	log   *slog.Logger
	table *table
	snaps *timeline.Index
	lost  *lostAndFound
	young time.Duration // youngRoot, except in tests

	copying sync.Mutex // one copy at a time
	mu      sync.Mutex
	sums    map[fileVersion]string // of images that can't be linked
}

// fileVersion is a version of a file.
type fileVersion struct {
	dev, ino uint64
	size     int64
	mtime    syscall.Timespec
}

func (r *roots) rootFile(name string) string {
	return filepath.Join(r.opts.Dir, rootsDir, name)
}

// keepRoot keeps a template's image for the sandboxes made from it. It returns the name under which
// the image is kept, and the path to use. The name is "" for a template without files.
func (r *roots) keepRoot(img image.Image) (name, path string, err error) {
	if img.Path == "" {
		return "", "", nil
	}
	fi, err := os.Stat(img.Path)
	if err == nil && !fi.Mode().IsRegular() {
		err = errors.New("it is no regular file")
	}
	if err != nil {
		return "", "", r.keepError(img, err)
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return "", img.Path, nil
	}
	own := !img.BuiltIn && !img.Lent
	if own {
		name = ownRoot(img.Template)
	} else {
		// It is made anew under its ID. An inode number is not used again while a link to the inode
		// exists.
		name = fmt.Sprintf("%s-%x-%x.erofs", filepath.Base(img.ID), st.Ino, fi.Size())
	}
	path = r.rootFile(name)
	if r.isKept(path, fi) {
		return name, path, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", "", r.keepError(img, err)
	}
	err = os.Link(img.Path, path)
	if own && errors.Is(err, fs.ErrExist) {
		// The template's file was made again. It has the same content, or it replaces a damaged one.
		err = replaceLink(img.Path, path)
	}
	if err == nil || r.isKept(path, fi) { // another creation was faster
		return name, path, nil
	}
	if img.View != "" {
		return "", "", r.keepError(img, fmt.Errorf("it is not whole, and can't be linked: %w", err))
	}
	// It lies on another filesystem. Or another image has the name, because the directory is a copy
	// and inode numbers of its original's mean nothing here.
	name, err = r.keepCopy(img, fi, st)
	if err != nil {
		return "", "", r.keepError(img, err)
	}
	return name, r.rootFile(name), nil
}

// ownRoot is the name under which the image of a template that is not built in is kept. Such an
// image never changes, so its ID names its content.
func ownRoot(t carrel.Template) string { return filepath.Base(t.ID) + ".erofs" }

// replaceLink makes path a link to an image, in one step.
func replaceLink(img, path string) error {
	part := filepath.Join(filepath.Dir(path), partPrefix+rand.Text())
	if err := os.Link(img, part); err != nil {
		return err
	}
	err := os.Rename(part, path)
	_ = os.Remove(part) // it stays if both were links to one file
	return err
}

// isKept reports whether path is a link to an image.
func (r *roots) isKept(path string, img os.FileInfo) bool {
	have, err := os.Stat(path)
	if err != nil || !os.SameFile(have, img) {
		return false
	}
	r.renew(path, have)
	return true
}

// isWhole refuses what needs the whole image of a sandbox while that is being filled.
func (r *roots) isWhole(rec state.Record) error {
	path, ok := r.rootPath(rec.Root)
	if !ok {
		return nil // it has no files of its own, or home finds that they are missing
	}
	whole, err := image.IsWhole(path)
	if err != nil || whole {
		return err
	}
	return &carrel.Error{Kind: carrel.Conflict, Field: "template",
		Err: fmt.Errorf("the image of its template %s was pulled lazily and is not whole yet",
			rec.Sandbox.Alias),
		Hint: "try again when 'carrel template show " + rec.Sandbox.Alias + "' no longer shows it as lazy; " +
			"if its fill has failed, copy what you need out of the sandbox"}
}

// renew keeps a file from being swept for a while. It does not touch the file each time: drivers
// recognise a known image by its times, and would read it again.
func (r *roots) renew(path string, fi os.FileInfo) {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok && time.Since(time.Unix(st.Ctim.Unix())) > r.young/2 {
		touch(path)
	}
}

// keepCopy copies an image, unless the copy is there. The name holds a digest of the content,
// because the numbers of another filesystem's inodes are used again.
func (r *roots) keepCopy(img image.Image, fi os.FileInfo, st *syscall.Stat_t) (string, error) {
	v := fileVersion{uint64(st.Dev), st.Ino, st.Size, st.Mtim}
	r.mu.Lock()
	sum, known := r.sums[v]
	r.mu.Unlock()
	r.copying.Lock()
	defer r.copying.Unlock()
	if !known {
		var err error
		if sum, err = image.Digest(img.Path); err != nil {
			return "", err
		}
		r.mu.Lock()
		if r.sums == nil {
			r.sums = map[fileVersion]string{}
		}
		r.sums[v] = sum
		r.mu.Unlock()
	}
	name := fmt.Sprintf("%s-%s.erofs", filepath.Base(img.ID), sum)
	path := r.rootFile(name)
	if have, err := os.Stat(path); err == nil && have.Size() == fi.Size() {
		r.renew(path, have)
		return name, nil
	}
	r.log.Info("a template's image lies on another filesystem: it is copied, so that its sandboxes can always resume", "template", img.ID, "bytes", fi.Size())
	return name, copyImage(img.Path, path, fi)
}

// copyImage makes a durable copy that appears whole or not at all.
func copyImage(from, to string, fi os.FileInfo) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.CreateTemp(filepath.Dir(to), partPrefix)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(out.Name())
		}
	}()
	n, err := io.Copy(out, in) // shares the blocks where the filesystem can
	if err == nil && n != fi.Size() {
		err = fmt.Errorf("%s changed while it was copied", from)
	}
	for _, step := range []func() error{
		func() error { return out.Chmod(fi.Mode().Perm()) }, out.Sync, out.Close,
		func() error { return os.Chtimes(out.Name(), time.Time{}, fi.ModTime()) },
		func() error { return os.Rename(out.Name(), to) },
	} {
		if err == nil {
			err = step()
		}
	}
	if err != nil {
		_ = out.Close()
		return err
	}
	return atomicfile.SyncDir(filepath.Dir(to))
}

// keepError is the error for an image that can't be kept. Without it, a sandbox could be paused and
// never resumed.
func (r *roots) keepError(img image.Image, err error) error {
	out := &carrel.Error{Op: "keep template", Kind: carrel.KindOf(err), Field: "template",
		Err: fmt.Errorf("the image of template %s can't be kept for its sandboxes: %w", img.ID, err),
		Hint: fmt.Sprintf("make room in %s, or put the cache directory on the same filesystem",
			r.opts.Dir)}
	lacking(out)
	return out
}

// missing explains that a snapshot's root image is not there. digest names the image.
func (r *roots) missing(rec state.Record, digest string, err error) error {
	name, where := rec.Root, "under any name of a template"
	if name != "" {
		where = "as " + r.rootFile(name)
	}
	if digest == "" {
		digest = "unknown"
	}
	hint := fmt.Sprintf(
		"put exactly this image back %s: a backup of this data directory holds it, and so does the directory sandboxes/%s of "+
			"another one with such a sandbox; then resume again", where, rootsDir)
	if t, ok := r.opts.Images.ByID(rec.Sandbox.Template); ok && t.StandIn != "" {
		hint = "make it: carrel template get " + t.Name + "; or " + hint
	}
	return &carrel.Error{Kind: carrel.Unavailable, Field: "template",
		Err: fmt.Errorf("the image under it is missing: template %s (%s) with the digest %s: %w",
			rec.Sandbox.Template, rec.Sandbox.Alias, digest, err),
		Hint: hint}
}

// isOtherRoot reports whether a driver refused a snapshot because it lies on another image.
func isOtherRoot(err error) bool {
	for ; err != nil; err = errors.Unwrap(err) {
		if e, ok := err.(*carrel.Error); ok && e.Field == "root" {
			return true
		}
	}
	return false
}

// touch renews a file's change time and keeps its modification time. sweepRoots spares files that
// changed lately, because their sandboxes may not be in the table yet.
func touch(path string) {
	_ = unix.UtimesNanoAt(unix.AT_FDCWD, path, []unix.Timespec{{Nsec: unix.UTIME_NOW}, {Nsec: unix.UTIME_OMIT}}, 0)
}

// rootPath finds a kept image.
func (r *roots) rootPath(name string) (string, bool) {
	if name == "" || name != filepath.Base(name) {
		return "", false
	}
	path := r.rootFile(name)
	_, err := os.Stat(path)
	return path, err == nil
}

// isLinkedAgain reports whether the image under a snapshot gets its link again when it is needed.
// That is so under the own start of a template that is here, because a creation from the template
// keeps its root first. Without the link, the store of templates may make the image thin.
func (r *roots) isLinkedAgain(sr state.SnapshotRecord) bool {
	if sr.Snapshot.Cause != carrel.CauseTemplate {
		return false
	}
	t, ok := r.opts.Images.ByID(sr.Record.Sandbox.Template)
	return ok && !t.BuiltIn && sr.Record.Root == ownRoot(t)
}

// sweepRoots removes links that nothing needs any more.
func (r *roots) sweepRoots() {
	need := map[string]bool{}
	recs, err := r.opts.Store.Sandboxes(r.table.ctx) // also those that are kept ready
	if err != nil {
		return
	}
	for _, rec := range recs {
		need[rec.Root] = true
	}
	for _, b := range r.table.snapshot() {
		b.mu.Lock()
		need[b.rec.Root] = true
		b.mu.Unlock()
	}
	for _, sr := range r.snaps.All() {
		if !r.isLinkedAgain(sr) {
			need[sr.Record.Root] = true
		}
	}
	if r.lost.roots(need) {
		return
	}
	entries, err := os.ReadDir(filepath.Join(r.opts.Dir, rootsDir))
	if err != nil {
		return
	}
	for _, e := range entries {
		fi, err := e.Info()
		if err != nil || need[e.Name()] {
			continue
		}
		if st, ok := fi.Sys().(*syscall.Stat_t); ok && time.Since(time.Unix(st.Ctim.Unix())) > r.young {
			if err := os.Remove(r.rootFile(e.Name())); err != nil {
				r.log.Warn("remove an unused root image", "err", err)
			}
		}
	}
}
