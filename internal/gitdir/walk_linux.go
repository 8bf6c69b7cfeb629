package gitdir

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// walk examines every directory below the roots, on several processors.
func (a *Audit) walk() {
	w := &walk{a: a}
	w.idle.L = &w.mu
	roots := slices.Clone(a.Roots)
	slices.Sort(roots)
	w.todo = append(w.todo, slices.Compact(roots)...)
	w.roots = map[string]bool{}
	for _, r := range w.todo {
		w.roots[r] = true
	}
	var workers sync.WaitGroup
	for range min(4, runtime.GOMAXPROCS(0)) {
		workers.Go(w.work)
	}
	workers.Wait()
}

// walk is the state of one walk.
type walk struct {
	a     *Audit
	roots map[string]bool // they are in the list from the start

	mu   sync.Mutex // guards the fields below, and the audit's results
	idle sync.Cond
	todo []string
	busy int
}

// work examines directories until there are none left.
func (w *walk) work() {
	buf := make([]byte, 32<<10)
	var below []string
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		for len(w.todo) == 0 {
			if w.busy == 0 {
				w.idle.Broadcast()
				return
			}
			w.idle.Wait()
		}
		dir := w.todo[len(w.todo)-1]
		w.todo = w.todo[:len(w.todo)-1]
		w.busy++
		w.mu.Unlock()
		below = w.look(dir, buf, below[:0])
		w.mu.Lock()
		w.busy--
		w.todo = append(w.todo, below...)
		if len(below) > 1 || w.busy == 0 {
			w.idle.Broadcast()
		}
	}
}

// look lists a directory and returns the directories in it.
func (w *walk) look(dir string, buf []byte, below []string) []string {
	fd, err := w.open(dir)
	if err != nil {
		if err != unix.ENOENT && err != unix.ENOTDIR && err != unix.ELOOP {
			w.fail(dir, err)
		}
		return below
	}
	defer unix.Close(fd)
	var head, objects, refs, common bool
	for {
		n, err := unix.Getdents(fd, buf)
		if n <= 0 {
			if err != nil {
				w.fail(dir, err)
			}
			break
		}
		for b := buf[:n]; len(b) > 0; {
			name, kind, rest := entry(b)
			b = rest
			switch strings.ToLower(name) {
			case ".", "..":
				continue
			case "head":
				head = true
			case "objects":
				objects = true
			case "refs":
				refs = true
			case "commondir":
				common = true
			case ".git":
				w.found(fd, dir, name)
			}
			if kind == unix.DT_DIR || kind == unix.DT_UNKNOWN && isDir(fd, name) {
				below = w.enter(fd, dir, name, below)
			}
		}
	}
	if objects && refs || head && common {
		w.mu.Lock()
		w.a.walked[dir] = true
		w.mu.Unlock()
	}
	return below
}

// found notes a .git.
func (w *walk) found(fd int, dir, name string) {
	full := join(dir, name)
	is := isDir(fd, name)
	w.mu.Lock()
	defer w.mu.Unlock()
	if is {
		w.a.walked[full] = true
	} else {
		w.a.pointers = append(w.a.pointers, full)
	}
}

// enter adds a directory to the list of directories to examine. If its path is longer than the
// system allows, it moves the directory away.
func (w *walk) enter(fd int, dir, name string, below []string) []string {
	full := join(dir, name)
	if w.roots[full] || w.a.Closed != nil && w.a.Closed(full) {
		return below
	}
	if len(full) < unix.PathMax-256 { // names are joined to it
		return append(below, full)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.a.stayed(full) {
		return below // the program did not make it
	}
	if where, err := w.a.Seize(fd, full); err != nil {
		w.a.fail(full, err)
	} else {
		w.a.fail(full[:80]+"…", errors.New("its path is too long to be looked at: it was moved to "+where))
	}
	return below
}

func (w *walk) fail(path string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.a.fail(path, err)
}

// open opens a directory. If the program took the owner's permissions away, open restores them.
func (w *walk) open(dir string) (int, error) {
	fd, err := straight(dir)
	if err != unix.EACCES {
		return fd, err
	}
	var st unix.Stat_t
	at, perr := openat2(unix.AT_FDCWD, dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW)
	if perr != nil {
		if perr == unix.EACCES { // a directory above is closed, and was reported
			return -1, unix.ENOENT
		}
		return -1, perr
	}
	defer unix.Close(at)
	if unix.Fstat(at, &st) != nil {
		return -1, err
	}
	name := "/proc/self/fd/" + itoa(at)
	if int(st.Uid) != os.Geteuid() {
		if !w.a.fresh(&st) && unix.Faccessat(unix.AT_FDCWD, name, unix.W_OK, 0) != nil {
			return -1, unix.ENOENT // the program could not write to it either
		}
		return -1, err
	}
	if cerr := unix.Chmod(name, st.Mode&0o7777|0o700); cerr != nil {
		return -1, err
	}
	// It stays open for its owner, because its content is examined later.
	return straight(dir)
}

// entry reads one record of getdents64: inode, offset, size, kind, name.
func entry(b []byte) (name string, kind byte, rest []byte) {
	size := int(binary.NativeEndian.Uint16(b[16:]))
	text := b[19:size]
	for i, c := range text {
		if c == 0 {
			text = text[:i]
			break
		}
	}
	return string(text), b[18], b[size:]
}

// isDir reports whether a name is a directory and not a link to one.
func isDir(fd int, name string) bool {
	var st unix.Stat_t
	return unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR
}

// straight opens a directory. Its path must have no links.
func straight(dir string) (int, error) {
	return openat2(unix.AT_FDCWD, dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOATIME)
}

func openat2(at int, name string, flags uint64) (int, error) {
	for {
		fd, err := unix.Openat2(at, name, &unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS})
		switch {
		case err == unix.EPERM && flags&unix.O_NOATIME != 0: // somebody else's
			flags &^= unix.O_NOATIME
		case err != unix.EAGAIN && err != unix.EINTR:
			return fd, err
		}
	}
}

// maxFile is the size of the largest configuration or list that is read, in bytes.
const maxFile = 1 << 20

// readAt reads a small regular file.
func readAt(dir int, name string) (data []byte, exists, ok bool) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err != unix.ENOENT, false
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return nil, true, false
	}
	data, err = io.ReadAll(io.LimitReader(f, maxFile))
	return data, true, err == nil && len(data) < maxFile
}

// join appends a name to a directory's path.
func join(dir, name string) string { return strings.TrimSuffix(dir, "/") + "/" + name }
