package overlay

import (
	"errors"
	"fmt"
	"path"
	"slices"

	"golang.org/x/sys/unix"
)

// commit renames everything into place. If a step fails it undoes the earlier ones.
func (a *apply) commit() (err error) {
	defer func() {
		if a.undone = err != nil; a.undone {
			for _, undo := range slices.Backward(a.undo) {
				err = errors.Join(err, undo())
			}
		}
		for _, last := range slices.Backward(a.last) {
			err = errors.Join(err, last())
		}
	}()
	for _, s := range slices.Backward(a.steps) { // the content of a directory before the directory
		if s.Kind == Removed || (s.low != nil && s.low.isDir() != s.up.isDir()) {
			if err := a.take(s); err != nil {
				return fmt.Errorf("%s: %w", quotePath(s.Path), err)
			}
		}
	}
	for _, s := range a.steps {
		if err := a.bring(s); err != nil {
			return fmt.Errorf("%s: %w", quotePath(s.Path), err)
		}
	}
	for _, s := range slices.Backward(a.steps) { // a directory may lose its own write permission here
		if s.Kind != Removed && s.up.isDir() {
			if err := a.dirMode(s); err != nil {
				return fmt.Errorf("%s: %w", quotePath(s.Path), err)
			}
		}
	}
	return nil
}

// take moves the old file at a path into the stage.
func (a *apply) take(s *step) error {
	if err := a.unchanged(s); err != nil {
		return err
	}
	dir, err := a.parent(s.Path)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	base, old := path.Base(s.Path), s.new.in.fresh()
	err = unix.Renameat(dir, base, old.in.fd, old.name)
	switch {
	case err == nil:
		a.undoRename(old, s.Path)
		if !s.low.isDir() {
			return nil
		}
		// If somebody put a file into the directory since the plan, it must not be removed with it.
		if err := unix.Unlinkat(old.in.fd, old.name, unix.AT_REMOVEDIR); err != nil {
			return err
		}
		a.undo = a.undo[:len(a.undo)-1]
	case s.low.isDir(): // some filesystems can't move directories
		if err := unix.Unlinkat(dir, base, unix.AT_REMOVEDIR); err != nil {
			return err
		}
	default:
		return err
	}
	a.undo = append(a.undo, func() error { return a.mkdir(s.Path, s.low) })
	return nil
}

// bring puts the new file at a path.
func (a *apply) bring(s *step) error {
	switch {
	case s.Kind == Removed:
		return nil
	case s.Kind == Mode && !s.up.isDir():
		return a.fileMode(s)
	case s.up.isDir() && s.low.isDir():
		return nil // dirMode
	}
	if err := a.needParent(path.Dir(s.Path)); err != nil {
		return err
	}
	if s.up.isDir() {
		if err := a.mkdir(s.Path, nil); err != nil {
			return err
		}
		a.undo = append(a.undo, func() error { return a.rmdir(s.Path) })
		return nil
	}
	dir, err := a.parent(s.Path)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	base := path.Base(s.Path)
	if s.low == nil || s.low.isDir() { // a directory was taken away
		return a.put(s, dir, base)
	}
	if err := a.unchanged(s); err != nil {
		return err
	}
	err = unix.Renameat2(s.new.in.fd, s.new.name, dir, base, unix.RENAME_EXCHANGE)
	if err == nil {
		a.undo = append(a.undo, func() error { return a.exchange(s) })
		return nil
	}
	if !unsupported(err) {
		return err
	}
	old := s.new.in.fresh()
	if err := unix.Renameat(dir, base, old.in.fd, old.name); err != nil {
		return err
	}
	a.undoRename(old, s.Path)
	return a.put(s, dir, base)
}

// unsupported reports whether a filesystem or kernel lacks a kind of rename.
func unsupported(err error) bool {
	return err == unix.EINVAL || err == unix.ENOSYS || err == unix.EOPNOTSUPP
}

// put renames a staged file to an empty place.
func (a *apply) put(s *step, dir int, base string) error {
	err := unix.Renameat2(s.new.in.fd, s.new.name, dir, base, unix.RENAME_NOREPLACE)
	if unsupported(err) {
		var st unix.Stat_t
		if unix.Fstatat(dir, base, &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
			return unix.EEXIST
		}
		err = unix.Renameat(s.new.in.fd, s.new.name, dir, base)
	}
	if err == unix.EEXIST && !a.o.Force {
		return conflictError([]string{quotePath(s.Path)})
	}
	if err == unix.EEXIST { // it was made just now
		err = unix.Renameat(s.new.in.fd, s.new.name, dir, base)
	}
	if err != nil {
		return err
	}
	a.undo = append(a.undo, func() error {
		dir, err := a.lower.dir(path.Dir(s.Path))
		if err != nil {
			return err
		}
		defer unix.Close(dir)
		return unix.Renameat(dir, base, s.new.in.fd, s.new.name)
	})
	return nil
}

// exchange swaps a staged file with the file in its place.
func (a *apply) exchange(s *step) error {
	dir, err := a.lower.dir(path.Dir(s.Path))
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	return unix.Renameat2(s.new.in.fd, s.new.name, dir, path.Base(s.Path), unix.RENAME_EXCHANGE)
}

// undoRename records how the old file is put back.
func (a *apply) undoRename(old staged, p string) {
	a.undo = append(a.undo, func() error {
		dir, err := a.lower.dir(path.Dir(p))
		if err != nil {
			return err
		}
		defer unix.Close(dir)
		return unix.Renameat(old.in.fd, old.name, dir, path.Base(p))
	})
}

// unchanged is the last check before a file is replaced: it must be the file that the plan saw.
func (a *apply) unchanged(s *step) error {
	if a.o.Force || s.low.isDir() {
		return nil
	}
	now, err := a.lower.stat(s.Path)
	if err != nil {
		return err
	}
	// Not the ctime: for a file with several names it changes when another name is replaced.
	if now == nil || now.Ino != s.low.Ino || now.Mtim != s.low.Mtim || now.Size != s.low.Size || now.Mode != s.low.Mode ||
		(now.Nlink == 1 && s.low.Nlink == 1 && now.Ctim != s.low.Ctim) {
		return conflictError([]string{quotePath(s.Path)})
	}
	return nil
}

// needParent makes directories above a path that are not in the list of changes.
func (a *apply) needParent(dir string) error {
	if dir == "." {
		return nil
	}
	if n, err := a.lower.stat(dir); err != nil {
		return err
	} else if n.isDir() {
		return nil
	} else if n != nil {
		return fmt.Errorf("%s is no directory", quotePath(dir))
	}
	if err := a.needParent(path.Dir(dir)); err != nil {
		return err
	}
	up, err := a.upper.stat(dir)
	if err != nil || !up.isDir() {
		return fmt.Errorf("%s is no directory of the layer: %w", quotePath(dir), err)
	}
	if err := a.mkdir(dir, up); err != nil {
		return err
	}
	a.undo = append(a.undo, func() error { return a.rmdir(dir) })
	return nil
}

// mkdir makes a directory. Unless like is nil, it gets the permissions of like.
func (a *apply) mkdir(p string, like *node) error {
	dir, err := a.parent(p)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	if err := unix.Mkdirat(dir, path.Base(p), 0o700); err != nil {
		return err
	}
	if like == nil {
		return nil
	}
	return a.lower.chmod(p, like.Mode&^(unix.S_ISUID|unix.S_ISGID))
}

// rmdir undoes mkdir.
func (a *apply) rmdir(p string) error {
	dir, err := a.lower.dir(path.Dir(p))
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	return unix.Unlinkat(dir, path.Base(p), unix.AT_REMOVEDIR)
}

// fileMode changes a file's permissions.
func (a *apply) fileMode(s *step) error {
	if err := a.unchanged(s); err != nil {
		return err
	}
	if s.up.isLink() {
		return nil
	}
	a.undo = append(a.undo, func() error { return a.lower.chmod(s.Path, s.low.Mode) })
	return a.lower.chmod(s.Path, newMode(s.up, s.low))
}

// dirMode sets a directory's permissions, after its content is complete. A new directory keeps the
// group bit that its parent gave it.
func (a *apply) dirMode(s *step) error {
	now, err := a.lower.stat(s.Path)
	if err != nil || !now.isDir() {
		return fmt.Errorf("it is no directory any more: %w", errors.Join(err, unix.ENOTDIR))
	}
	mode := newMode(s.up, s.low)
	if !s.low.isDir() {
		mode |= now.Mode & unix.S_ISGID
	} else {
		a.undo = append(a.undo, func() error { return a.lower.chmod(s.Path, s.low.Mode) })
	}
	if a.modes == nil {
		a.modes = map[string]bool{}
	}
	a.modes[s.Path] = true
	return a.lower.chmod(s.Path, mode)
}

// parent opens the directory of a path for renames in it.
func (a *apply) parent(p string) (int, error) {
	dir := path.Dir(p)
	if err := a.makeWritable(dir); err != nil {
		return -1, err
	}
	return a.lower.dir(dir)
}

// makeWritable lets this user write in a directory of their own until the end. The program inside
// could have done the same.
func (a *apply) makeWritable(dir string) error {
	if a.opened[dir] {
		return nil
	}
	if a.opened == nil {
		a.opened = map[string]bool{}
	}
	a.opened[dir] = true
	fd, err := a.lower.dir(dir)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&0o300 == 0o300 || int(st.Uid) != unix.Geteuid() {
		return nil
	}
	if err := chmodFD(fd, st.Mode|0o300); err != nil {
		return err
	}
	a.last = append(a.last, func() error { return a.restoreMode(dir, st.Mode) })
	return nil
}

// restoreMode undoes makeWritable, unless the directory is gone or its permissions have changed.
func (a *apply) restoreMode(dir string, mode uint32) error {
	now, err := a.lower.stat(dir)
	if err != nil || !now.isDir() || now.Mode != mode|0o300 || (a.modes[dir] && !a.undone) {
		return err
	}
	return a.lower.chmod(dir, mode)
}
