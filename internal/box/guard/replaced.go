//go:build linux

package guard

import (
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/linux/seccomp"
)

// Some programs keep their state in a file of the home directory ("~/.claude.json"). To save it,
// they write a file beside it and rename that file. The home is not writable, and the kernel can't
// make single names in a directory writable. So the guard makes these calls itself. It uses a
// directory that it holds open and a name that it has copied, and it does so for those names only.
// The kernel never continues such a call, so no thread of the program can change the name in
// between.
//
// The program gets descriptors of regular files only. A descriptor of a directory would lead out of
// the box, because it belongs to this process's mounts.

// replaced is a directory with files that programs save by replacing them.
type replaced struct {
	dir   *os.File
	id    inode
	names []string
}

// openReplaced opens the directories of such files. It leaves out directories that the box may
// write anyway.
func (g *Guard) openReplaced() {
	by := map[string]*replaced{}
	for _, full := range g.rules.Replaced {
		dir := parent(full)
		if p := g.paths[full]; p != nil && !p.Writable || g.writable(dir) {
			continue
		}
		r := by[dir]
		if r == nil {
			fd, err := straight(dir)
			if err != nil {
				continue
			}
			var st unix.Stat_t
			if unix.Fstat(fd, &st) != nil {
				_ = unix.Close(fd)
				continue
			}
			r = &replaced{dir: os.NewFile(uintptr(fd), dir), id: identity(&st)}
			by[dir] = r
			g.replaced = append(g.replaced, r)
		}
		r.names = append(r.names, last(full))
	}
}

// covers reports whether a name is the file's own, or one beside it: "NAME.lock", "NAME.tmp.7",
// "NAME-journal".
func (r *replaced) covers(base string) bool {
	for _, name := range r.names {
		if rest, ok := strings.CutPrefix(base, name); ok && (rest == "" || rest[0] == '.' || rest[0] == '-') {
			return true
		}
	}
	return false
}

// replacing returns the directory of a place that may be written only because a file there is
// replaced. It returns nil for all other places.
func (g *Guard) replacing(p *place) *replaced {
	for _, r := range g.replaced {
		if !r.covers(p.base) {
			continue
		}
		var st unix.Stat_t
		if unix.Fstat(p.fd, &st) != nil || identity(&st) != r.id {
			continue
		}
		if rule := g.paths[p.full()]; rule == nil || rule.Writable {
			return r
		}
	}
	return nil
}

func (r *replaced) fd() int { return int(r.dir.Fd()) }

// outcome returns the answer to a call of ours that the kernel refused.
func outcome(err error) seccomp.Answer {
	var errno syscall.Errno
	if err == nil || !errors.As(err, &errno) {
		return seccomp.Answer{}
	}
	return seccomp.Answer{Errno: errno}
}

// openFlags are the flags that a program may choose.
const openFlags = unix.O_ACCMODE | unix.O_CREAT | unix.O_EXCL | unix.O_APPEND | unix.O_DSYNC | unix.O_SYNC | unix.O_NOATIME

// open opens a file for the caller.
func (r *replaced) open(c seccomp.Call, base string, flags int) seccomp.Answer {
	if flags&(unix.O_DIRECTORY|unix.O_PATH) != 0 || flags&unix.O_ACCMODE == unix.O_RDONLY && flags&unix.O_TRUNC != 0 {
		return refuse
	}
	mode := uint64(0)
	switch c.Name {
	case "creat":
		mode = c.Args[1]
	case "open":
		mode = c.Args[2]
	default:
		mode = c.Args[3]
	}
	// If the file is a pipe or a device, the open does not wait for another process, and the file
	// is not handed out.
	f, err := r.regular(base, flags&openFlags|unix.O_NONBLOCK, permissions(c, mode))
	if err != nil {
		return outcome(err)
	}
	if flags&unix.O_TRUNC != 0 {
		if err := unix.Ftruncate(int(f.Fd()), 0); err != nil {
			_ = f.Close()
			return outcome(err)
		}
	}
	if flags&unix.O_NONBLOCK == 0 {
		_, _ = unix.FcntlInt(f.Fd(), unix.F_SETFL, flags&(unix.O_APPEND|unix.O_NOATIME))
	}
	return seccomp.Answer{File: f, CloseOnExec: flags&unix.O_CLOEXEC != 0}
}

// regular opens a regular file.
func (r *replaced) regular(base string, flags int, mode uint32) (*os.File, error) {
	fd, err := unix.Openat(r.fd(), base, flags|unix.O_NOFOLLOW|unix.O_NOCTTY|unix.O_CLOEXEC, mode)
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		_ = unix.Close(fd)
		return nil, unix.EACCES
	}
	return os.NewFile(uintptr(fd), base), nil
}

// change makes a call that changes one name. It leaves other calls (links, devices, owners) to the
// kernel, which refuses them.
func (r *replaced) change(c seccomp.Call, s shape, base string) (a seccomp.Answer, done bool) {
	next := c.Args[s.path+1] // the argument after the name
	switch c.Name {
	case "mkdir", "mkdirat":
		return outcome(unix.Mkdirat(r.fd(), base, permissions(c, next))), true
	case "unlink":
		return outcome(unix.Unlinkat(r.fd(), base, 0)), true
	case "rmdir":
		return outcome(unix.Unlinkat(r.fd(), base, unix.AT_REMOVEDIR)), true
	case "unlinkat":
		return outcome(unix.Unlinkat(r.fd(), base, int(next)&unix.AT_REMOVEDIR)), true
	case "truncate":
		f, err := r.regular(base, unix.O_WRONLY|unix.O_NONBLOCK, 0)
		if err == nil {
			err = unix.Ftruncate(int(f.Fd()), int64(next))
			_ = f.Close()
		}
		return outcome(err), true
	case "chmod", "fchmodat", "fchmodat2":
		return outcome(r.chmod(base, uint32(next)&0o777)), true
	case "utimensat", "utimes":
		times, err := timesOf(c, next)
		if err == nil {
			err = unix.UtimesNanoAt(r.fd(), base, times, unix.AT_SYMLINK_NOFOLLOW)
		}
		return outcome(err), true
	}
	return a, false
}

// removing returns the shape of calls that are watched only because of replaced files.
func removing(name string) (shape, bool) {
	switch name {
	case "unlink", "rmdir", "utimes":
		return shape{dir: -1, path: 0}, true
	case "utimensat":
		return shape{dir: 0, path: 1}, true
	}
	return shape{}, false
}

// remove answers those calls. It makes the call for a replaced file, and leaves all others to the
// kernel.
func (g *Guard) remove(c seccomp.Call, s shape) seccomp.Answer {
	name, ok := text(c, s.path)
	if !ok || !slices.ContainsFunc(g.replaced, func(r *replaced) bool { return r.covers(last(name)) }) || !c.Waits() {
		return goOn
	}
	p, err := g.locate(c, s.dir, name)
	if err != nil {
		return goOn
	}
	defer p.close()
	if r := g.replacing(p); r != nil {
		if a, done := r.change(c, s, p.base); done {
			return a
		}
	}
	return goOn
}

// chmod changes the mode of a file or directory, never through a link.
func (r *replaced) chmod(base string, mode uint32) error {
	fd, err := unix.Openat(r.fd(), base, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT == unix.S_IFLNK {
		return unix.EACCES
	}
	return unix.Chmod(self(fd), mode)
}

// rename renames within the directory.
func (r *replaced) rename(from, to string, flags uint32) seccomp.Answer {
	if flags&^(unix.RENAME_NOREPLACE|unix.RENAME_EXCHANGE) != 0 {
		return seccomp.Answer{Errno: unix.EINVAL}
	}
	return outcome(unix.Renameat2(r.fd(), from, r.fd(), to, uint(flags)))
}

// permissions returns the mode that the caller asks for, after the caller's own umask.
func permissions(c seccomp.Call, mode uint64) uint32 {
	umask := uint64(0o077)
	if status, err := os.ReadFile(process(c, "status")); err == nil {
		for line := range strings.Lines(string(status)) {
			if value, ok := strings.CutPrefix(line, "Umask:"); ok {
				if n, err := strconv.ParseUint(strings.TrimSpace(value), 8, 12); err == nil {
					umask = n
				}
			}
		}
	}
	return uint32(mode & 0o777 &^ umask)
}

// timesOf reads the two times of utimensat or utimes; none means now.
func timesOf(c seccomp.Call, addr uint64) ([]unix.Timespec, error) {
	if addr == 0 {
		now := unix.Timespec{Nsec: unix.UTIME_NOW}
		return []unix.Timespec{now, now}, nil
	}
	b, err := c.Bytes(addr, 32)
	if err != nil {
		return nil, unix.EFAULT
	}
	times := make([]unix.Timespec, 2)
	for i := range times {
		sec, fraction := binary.NativeEndian.Uint64(b[16*i:]), binary.NativeEndian.Uint64(b[16*i+8:])
		if c.Name == "utimes" {
			fraction *= 1000 // of microseconds
		}
		times[i] = unix.Timespec{Sec: int64(sec), Nsec: int64(fraction)}
	}
	return times, nil
}
