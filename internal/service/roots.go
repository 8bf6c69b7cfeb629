package service

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/service/timeline"
)

// rootsDir holds hard links to the root images that sandboxes and snapshots need. A snapshot needs
// the exact image it was taken on. But templates are replaced and deleted, and the built-in one is
// packed anew when this machine's tools change.
const rootsDir = ".roots"

// youngRoot is how long a new link stays although nothing needs it yet. It is longer than any
// creation.
const youngRoot = time.Hour

// roots keeps the root images that are needed.
type roots struct {
	opts  *Options
	log   *slog.Logger
	table *table
	snaps *timeline.Index
	lost  *lostAndFound
}

func (r *roots) rootFile(name string) string {
	return filepath.Join(r.opts.Dir, rootsDir, name)
}

// keepRoot makes a link to a template's image. It returns the name of the link and the path to use.
// When no link can be made, as on another filesystem, the name is "" and the template itself must
// stay.
func (r *roots) keepRoot(img image.Image) (name, path string) {
	fi, err := os.Stat(img.Path)
	if err != nil || !fi.Mode().IsRegular() {
		return "", img.Path // no files, or an error that the driver reports
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return "", img.Path
	}
	// An inode number is not used again while a link to the inode exists.
	name = fmt.Sprintf("%s-%x-%x.erofs", filepath.Base(img.ID), st.Ino, fi.Size())
	path = r.rootFile(name)
	if have, err := os.Stat(path); err == nil && os.SameFile(have, fi) {
		// Do not touch it each time: drivers recognise a known image by its times, and would read
		// it again.
		if time.Since(time.Unix(st.Ctim.Unix())) > youngRoot/2 {
			touch(path)
		}
		return name, path
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", img.Path
	}
	if err := os.Link(img.Path, path); err != nil && !errors.Is(err, os.ErrExist) {
		r.log.Warn("a template's image can't be linked: its sandboxes can't resume after it changed", "template", img.ID, "err", err)
		return "", img.Path
	}
	return name, path
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

// sweepRoots removes links that nothing needs any more.
func (r *roots) sweepRoots() {
	need := map[string]bool{}
	for _, b := range r.table.snapshot() {
		b.mu.Lock()
		need[b.rec.Root] = true
		b.mu.Unlock()
	}
	for _, sr := range r.snaps.All() {
		need[sr.Record.Root] = true
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
		if st, ok := fi.Sys().(*syscall.Stat_t); ok && time.Since(time.Unix(st.Ctim.Unix())) > youngRoot {
			if err := os.Remove(r.rootFile(e.Name())); err != nil {
				r.log.Warn("remove an unused root image", "err", err)
			}
		}
	}
}
