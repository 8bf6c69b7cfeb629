package agent

import (
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"path"
	"strings"
	"sync"
	"syscall"
	"time"
)

// asidePrefix begins the name of a file that is being uploaded. Watchers don't report such files.
const asidePrefix = ".carrel-upload-"

// aside is an upload's destination. The content goes into a new file in the same directory, which
// takes the destination's name when it is complete. So a connection that breaks off leaves the old
// file, or none.
//
// Some destinations can't be replaced: the directory may not be writable although the file is, the
// file may have other names, which must show the same content, or be a mount point. They are
// written in place.
type aside struct {
	a    *Agent
	user User
	name string // the destination, without links
	tmp  string // the new file; "" if the destination is written in place
	old  bool   // the destination exists
	file File
}

// openAside opens the file that an upload to name is written into. old describes the present file.
// Its Mode is 0 if there is none.
func (a *Agent) openAside(name string, old Entry, u User) (*aside, error) {
	d := &aside{a: a, user: u, name: name, old: old.Mode.IsRegular()}
	if real, err := a.sys.EvalSymlinks(name); err == nil {
		d.name = real
	} else if e, err := a.sys.Lstat(name); err == nil && e.Mode&fs.ModeSymlink != 0 {
		return d, d.inPlace() // a link to nothing: the file appears where the link points
	}
	if old.Links > 1 {
		return d, d.inPlace()
	}
	tmp := path.Join(path.Dir(d.name), asidePrefix+rand.Text())
	file, err := a.sys.Create(tmp, u)
	switch {
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return d, d.inPlace()
	case err != nil:
		return nil, err
	}
	d.file, d.tmp = file, tmp
	if d.old {
		switch err := a.sys.CopyMode(d.name, tmp); {
		case errors.Is(err, fs.ErrNotExist): // removed meanwhile
			d.old = false
		case err != nil:
			d.discard()
			return nil, err
		}
	}
	return d, nil
}

func (d *aside) inPlace() (err error) {
	d.file, err = d.a.sys.Create(d.name, d.user)
	return err
}

// path is the file that is written: its metadata is set before it takes its place.
func (d *aside) path() string {
	if d.tmp != "" {
		return d.tmp
	}
	return d.name
}

// discard removes the new file.
func (d *aside) discard() {
	_ = d.file.Close()
	if d.tmp != "" {
		if err := d.a.sys.Remove(d.tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
			d.a.log.Warn("remove an unfinished upload", "path", d.tmp, "err", err)
		}
	}
}

// commit puts the new file into its place. The file is closed already.
func (d *aside) commit() error {
	if d.tmp == "" {
		return nil
	}
	d.a.uploads.mark(d.name, d.old)
	err := d.a.sys.Rename(d.tmp, d.name)
	if errors.Is(err, syscall.EBUSY) || errors.Is(err, syscall.EXDEV) ||
		errors.Is(err, fs.ErrPermission) {
		err = d.copyOver()
	}
	return err
}

// copyOver writes the complete new file over a destination that can't be replaced.
func (d *aside) copyOver() (err error) {
	src, err := d.a.sys.Open(d.tmp)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := d.a.sys.Create(d.name, d.user)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src)
	if cerr := dst.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = d.a.sys.Remove(d.tmp)
	}
	return err
}

// uploads remembers for a short time which files were replaced by an upload. A watcher sees the
// rename only, and its client expects a write.
type uploads struct {
	mu   sync.Mutex
	done map[string]uploaded
}

type uploaded struct {
	at  time.Time
	old bool // there was a file before
}

// uploadSeen is how long an upload is remembered.
const uploadSeen = 10 * time.Second

func (u *uploads) mark(name string, old bool) {
	now := time.Now()
	u.mu.Lock()
	defer u.mu.Unlock()
	for n, up := range u.done {
		if now.Sub(up.at) > uploadSeen {
			delete(u.done, n)
		}
	}
	if u.done == nil {
		u.done = map[string]uploaded{}
	}
	u.done[name] = uploaded{now, old}
}

// changes translates a watcher's change into those that a client expects. A new file gives three:
// E2B's guest makes it, gives it its owner and writes it, and E2B's tests count these events.
func (u *uploads) changes(c Change) []Change {
	if strings.HasPrefix(path.Base(c.Path), asidePrefix) {
		return nil
	}
	if c.Op != OpCreate {
		return []Change{c}
	}
	u.mu.Lock()
	up, ok := u.done[c.Path]
	u.mu.Unlock()
	switch {
	case !ok || time.Since(up.at) > uploadSeen:
		return []Change{c}
	case up.old:
		return []Change{{c.Path, OpWrite}}
	}
	return []Change{c, {c.Path, OpChmod}, {c.Path, OpWrite}}
}
