package overlay

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strconv"

	"golang.org/x/sys/unix"
)

// stage is a directory for new files, on the filesystem of the files that they replace.
type stage struct {
	parent string
	name   string
	fd     int
	next   int
}

// staged is a name in a stage.
type staged struct {
	in   *stage
	name string
}

// stageFor returns the stage for a path. It is at the top of the lower directory. If that can't be
// written or is on another filesystem, the stage is in the path's own directory.
func (a *apply) stageFor(p string) (*stage, error) {
	dir := a.existing(path.Dir(p))
	for _, at := range []string{".", dir} {
		if s := a.stages[at]; s != nil && (at == dir || a.sameDevice(at, dir)) {
			return s, nil
		}
	}
	at := "."
	if !a.sameDevice(at, dir) {
		at = dir
	}
	s, err := a.newStage(at)
	if (errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM)) && at != dir {
		at = dir
		if err := a.makeWritable(dir); err != nil {
			return nil, err
		}
		s, err = a.newStage(at)
	}
	if err != nil {
		return nil, err
	}
	if a.stages == nil {
		a.stages = map[string]*stage{}
	}
	a.stages[at] = s
	return s, nil
}

// existing returns the nearest directory at or above dir that exists in the lower directory.
func (a *apply) existing(dir string) string {
	for dir != "." {
		if n, err := a.lower.stat(dir); err == nil && n.isDir() {
			break
		}
		dir = path.Dir(dir)
	}
	return dir
}

// sameDevice reports whether two directories lie on one filesystem.
func (a *apply) sameDevice(x, y string) bool {
	m, err := a.lower.stat(x)
	if err != nil || m == nil {
		return false
	}
	n, err := a.lower.stat(y)
	return err == nil && n != nil && m.Dev == n.Dev
}

// newStage makes a stage.
func (a *apply) newStage(at string) (*stage, error) {
	dir, err := a.lower.dir(at)
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	s := &stage{parent: at, name: ".carrel-apply-" + rand.Text()[:10]}
	if err := unix.Mkdirat(dir, s.name, 0o700); err != nil {
		return nil, fmt.Errorf("write to %s: %w", path.Join(a.lower.name, at), err)
	}
	if s.fd, err = unix.Openat(dir, s.name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0); err != nil {
		_ = unix.Unlinkat(dir, s.name, unix.AT_REMOVEDIR)
		return nil, err
	}
	return s, nil
}

// dropStages removes the stages and the replaced files in them.
func (a *apply) dropStages() {
	for _, s := range a.stages {
		_ = unix.Close(s.fd)
		_ = Remove(path.Join(a.lower.name, s.parent, s.name))
	}
	a.stages = nil
}

// fresh returns an unused name in s.
func (s *stage) fresh() staged {
	s.next++
	return staged{s, strconv.Itoa(s.next)}
}

// stageAll writes all new files and links.
func (a *apply) stageAll() error {
	a.linked = map[uint64]staged{}
	for _, s := range a.steps {
		if err := a.ctx.Err(); err != nil {
			return err
		}
		in, err := a.stageFor(s.Path)
		if err != nil {
			return err
		}
		s.new = in.fresh()
		if s.Kind == Removed || s.Kind == Mode || s.up.isDir() {
			continue
		}
		if s.up.isLink() {
			err = a.stageLink(s)
		} else {
			err = a.stageFile(s)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", quotePath(s.Path), err)
		}
	}
	return nil
}

// stageLink makes a symbolic link.
func (a *apply) stageLink(s *step) error {
	target, err := a.upper.link(s.Path)
	if err != nil {
		return err
	}
	return unix.Symlinkat(target, s.new.in.fd, s.new.name)
}

// stageFile copies a file: content, permissions, time, and the owner of the lower file.
func (a *apply) stageFile(s *step) error {
	if at, ok := a.linked[s.up.Ino]; ok && at.in == s.new.in {
		return unix.Linkat(at.in.fd, at.name, s.new.in.fd, s.new.name, 0)
	}
	src, err := a.upper.file(s.Path)
	if err != nil {
		return err
	}
	defer src.Close()
	if err := whole(src); err != nil {
		return err
	}
	fd, err := unix.Openat(s.new.in.fd, s.new.name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	dst := os.NewFile(uintptr(fd), s.Path)
	defer dst.Close()
	if err := copyContent(dst, src); err != nil {
		return err
	}
	owner := s.up
	if s.low.isRegular() {
		owner = s.low
	}
	// Only root can give files away. For other users the file is their own, as after any rewrite.
	_ = unix.Fchown(fd, int(owner.Uid), int(owner.Gid))
	if err := unix.Fchmod(fd, newMode(s.up, s.low)&0o7777); err != nil {
		return err
	}
	times := []unix.Timespec{s.up.Atim, s.up.Mtim}
	if err := unix.UtimesNanoAt(fd, "", times, unix.AT_EMPTY_PATH); err != nil {
		_ = unix.Futimes(fd, []unix.Timeval{{Sec: s.up.Atim.Sec}, {Sec: s.up.Mtim.Sec}})
	}
	if s.up.Nlink > 1 {
		a.linked[s.up.Ino] = s.new
	}
	return dst.Close()
}

// copyContent copies a file and leaves its holes out.
func copyContent(dst, src *os.File) error {
	st, err := src.Stat()
	if err != nil {
		return err
	}
	size := st.Size()
	for at := int64(0); at < size; {
		data, err := unix.Seek(int(src.Fd()), at, unix.SEEK_DATA)
		if err == unix.ENXIO {
			break // a hole up to the end
		}
		if err != nil { // not supported on this filesystem
			data = at
		}
		end, err := unix.Seek(int(src.Fd()), data, unix.SEEK_HOLE)
		if err != nil || end <= data {
			end = size
		}
		end = min(end, size)
		if _, err := src.Seek(data, io.SeekStart); err != nil {
			return err
		}
		if _, err := dst.Seek(data, io.SeekStart); err != nil {
			return err
		}
		if _, err := io.CopyN(dst, src, end-data); err != nil && err != io.EOF {
			return err
		}
		at = end
	}
	return dst.Truncate(size)
}
