package ns

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// templates are the images of sandboxes, prepared once for all sandboxes. As root an image is
// mounted in a namespace without processes. Otherwise it is unpacked.
type templates struct {
	d *Driver

	mu   sync.Mutex
	ns   *os.File // namespace of the mounts; nil before the first
	dir  string   // the scratch directory there
	next int
	used map[string]*template // by image
}

// template is one prepared image.
type template struct {
	dir   string
	users int
}

// take prepares an image. The caller gives it back with drop. As root the directory is in the
// namespace t.ns, which never changes.
func (t *templates) take(ctx context.Context, name string) (dir, key string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var st unix.Stat_t
	if err := unix.Stat(name, &st); err != nil {
		return "", "", &os.PathError{Op: "open", Path: name, Err: err}
	}
	// One image may have several names, and a name may mean another image tomorrow.
	key = imageKey(st)
	u := t.used[key]
	if u == nil {
		u = &template{}
		if t.d.full {
			u.dir, err = t.mount(name)
		} else {
			u.dir, err = t.d.unpack(ctx, name, key)
		}
		if err != nil {
			return "", "", err
		}
		t.used[key] = u
	}
	u.users++
	return u.dir, key, nil
}

// imageKey identifies an image by its file.
func imageKey(st unix.Stat_t) string {
	return fmt.Sprintf("%x-%x-%x-%x.%x", st.Dev, st.Ino, st.Size, st.Mtim.Sec, st.Mtim.Nsec)
}

// drop gives a template back. The last user's drop unmounts it: its sandboxes have mounts of their
// own.
func (t *templates) drop(key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	u := t.used[key]
	if u == nil {
		return
	}
	if u.users--; u.users > 0 {
		return
	}
	delete(t.used, key)
	if t.ns == nil {
		return
	}
	_ = apart(func() error {
		if err := enter(t.ns); err != nil {
			return err
		}
		_ = unix.Unmount(u.dir, unix.MNT_DETACH)
		return os.Remove(u.dir)
	})
}

// open makes the namespace. The caller holds t.mu.
func (t *templates) open() error {
	if t.ns != nil {
		return nil
	}
	return apart(func() error {
		err := ownMounts()
		if err == nil {
			t.dir, err = scratch()
		}
		if err == nil {
			t.ns, err = namespaceOf()
		}
		return err
	})
}

// mount mounts an image in the namespace. The caller holds t.mu.
func (t *templates) mount(name string) (string, error) {
	if err := t.open(); err != nil {
		return "", err
	}
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	t.next++
	dir := filepath.Join(t.dir, fmt.Sprint("image", t.next))
	err = apart(func() error {
		if err := enter(t.ns); err != nil {
			return err
		}
		if err := makeOpen(dir); err != nil {
			return err
		}
		m, err := mountImage(f, dir+".loop")
		if err == nil {
			err = place(m, dir)
		}
		if err != nil {
			_ = os.Remove(dir)
		}
		return err
	})
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	return dir, nil
}

// close releases the namespace.
func (t *templates) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ns != nil {
		_ = t.ns.Close()
		t.ns = nil
	}
}

// prepare makes the mount namespace of one sandbox. Below the returned directory it puts everything
// that the stage needs: the template and the guest, mapped to the sandbox's ids, and its disk.
func (d *Driver) prepare(l *launch) (ns *os.File, dir string, err error) {
	var users *os.File
	if users, err = userNamespace(l.first); err != nil {
		return nil, "", err
	}
	defer users.Close()
	err = apart(func() error {
		if err := enter(d.templates.ns); err != nil {
			return err
		}
		seenLower, err := through(l.lower, users)
		if err != nil {
			return err
		}
		seenGuest, err := through(l.guest, users)
		if err != nil {
			unix.Close(seenLower)
			return err
		}
		if err = ownMounts(); err == nil {
			dir, err = d.lay(l, seenLower, seenGuest)
		}
		if err == nil {
			ns, err = namespaceOf()
		}
		return err
	})
	return ns, dir, err
}

// lay mounts the parts of a sandbox in the namespace of the calling thread.
func (d *Driver) lay(l *launch, lower, guest int) (string, error) {
	dir, err := scratch()
	if err != nil {
		unix.Close(lower)
		unix.Close(guest)
		return "", err
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{lowerName, guestName, diskName, rootName} {
		err = errors.Join(err, makeOpen(at(name)))
	}
	err = errors.Join(err, place(lower, at(lowerName)), place(guest, at(guestName)))
	if err == nil {
		err = mountDisk(l.disk, at(diskName), at("loop"))
	}
	if err != nil {
		return "", err
	}
	for _, name := range []string{upperName, workName} {
		name = filepath.Join(at(diskName), name)
		// If the disk is a directory, these exist already.
		if err := makeOpen(name); err != nil && !errors.Is(err, os.ErrExist) {
			return "", err
		}
		if err := os.Chown(name, int(l.first), int(l.first)); err != nil {
			return "", err
		}
	}
	if l.fill == nil {
		return dir, nil
	}
	if err := l.fill(filepath.Join(at(diskName), upperName), l.first); err != nil {
		return "", err
	}
	return dir, syncDisk(at(diskName))
}

// syncDisk makes a newly filled filesystem allocate its blocks in its file. Stats measures those.
func syncDisk(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return os.NewSyscallError("syncfs", unix.Syncfs(int(f.Fd())))
}
