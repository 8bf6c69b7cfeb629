package oshost

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/guest/agent"
)

// sendFunc delivers one change.
type sendFunc func(path string, op agent.Op) error

// watchTree knows the directory of each inotify watch, and updates it while directories come, go
// and move. It is not safe for concurrent use.
//
// inotify watches inodes and knows nothing of trees. watchTree makes up for three things. A new
// directory may already hold files when its watch is added, so it is listed then. A moved directory
// keeps its watch but not its path. The two halves of a move come as separate events.
type watchTree struct {
	fd        int
	root      string
	recursive bool

	dirs map[int32]string // by watch descriptor

	// These hold only until the event queue is empty ([watchTree.settle]):
	listed map[string]bool   // reported from a listing; its own create event is still to come
	moving map[uint32]moving // by cookie: moved away and not yet arrived

	// fresh are the files created last; the oldest is overwritten first. If such a file is then
	// renamed, that was an atomic save: the file it replaced has new contents.
	fresh     [32]string
	freshNext int
}

// moving is a file or directory between the two halves of its move.
type moving struct {
	path  string
	dir   bool
	fresh bool
}

func newWatchTree(fd int, root string, recursive bool) *watchTree {
	return &watchTree{
		fd: fd, root: root, recursive: recursive,
		dirs: map[int32]string{}, listed: map[string]bool{}, moving: map[uint32]moving{},
	}
}

// start puts the first watches.
func (t *watchTree) start() error {
	if err := t.add(t.root); err != nil {
		return err
	}
	if !t.recursive {
		return nil
	}
	return t.list(t.root, nil)
}

// add puts a watch on a directory. If the directory already has one, add records its new path.
func (t *watchTree) add(dir string) error {
	mask := uint32(watchMask | unix.IN_DONT_FOLLOW)
	if dir == t.root {
		mask = watchRootMask // the root may be a link: the caller named it
	}
	n, err := unix.InotifyAddWatch(t.fd, dir, mask)
	if err != nil {
		return watchError(dir, err)
	}
	t.dirs[int32(n)] = dir
	return nil
}

// list puts watches on all directories below dir. With send it also reports existing files as
// created. It ignores files that vanish while it runs.
func (t *watchTree) list(dir string, send sendFunc) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !gone(err) {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if send != nil {
			if err := t.report(path, e, send); err != nil {
				return err
			}
		}
		if !e.IsDir() {
			continue
		}
		if err := t.add(path); err != nil {
			if gone(err) {
				continue
			}
			return err
		}
		if err := t.list(path, send); err != nil {
			return err
		}
	}
	return nil
}

// report reports a file that existed before the watch on its directory.
func (t *watchTree) report(path string, e fs.DirEntry, send sendFunc) error {
	t.listed[path] = true
	if err := send(path, agent.OpCreate); err != nil {
		return err
	}
	if info, err := e.Info(); err == nil && info.Mode().IsRegular() && info.Size() > 0 {
		return send(path, agent.OpWrite)
	}
	return nil
}

// gone reports whether an error means that a directory no longer exists, or is another kind of file
// now.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP)
}

// handle turns a buffer of events into changes.
func (t *watchTree) handle(buf []byte, send sendFunc) error {
	for len(buf) >= unix.SizeofInotifyEvent {
		// struct inotify_event: wd, mask, cookie, len, and the name padded with NULs.
		wd := int32(binary.NativeEndian.Uint32(buf))
		mask, cookie := binary.NativeEndian.Uint32(buf[4:]), binary.NativeEndian.Uint32(buf[8:])
		end := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(buf[12:]))
		if end > len(buf) {
			return errors.New("watch: the kernel's event is cut off")
		}
		name := strings.TrimRight(string(buf[unix.SizeofInotifyEvent:end]), "\x00")
		if err := t.event(wd, mask, cookie, name, send); err != nil {
			return err
		}
		buf = buf[end:]
	}
	return nil
}

// event handles one event.
func (t *watchTree) event(wd int32, mask, cookie uint32, name string, send sendFunc) error {
	if mask&unix.IN_Q_OVERFLOW != 0 {
		return errWatchOverflow
	}
	dir, ok := t.dirs[wd]
	if !ok {
		return nil // from a watch that was removed after these events
	}
	if mask&unix.IN_IGNORED != 0 {
		delete(t.dirs, wd)
		return nil
	}
	if name == "" {
		return t.selfEvent(dir, mask, send)
	}
	path := filepath.Join(dir, name)
	isDir := mask&unix.IN_ISDIR != 0
	switch {
	case mask&unix.IN_CREATE != 0:
		return t.created(path, isDir, send)
	case mask&unix.IN_MOVED_FROM != 0:
		t.moving[cookie] = moving{path: path, dir: isDir, fresh: t.isFresh(path)}
		delete(t.listed, path)
		return send(path, agent.OpRename)
	case mask&unix.IN_MOVED_TO != 0:
		return t.arrived(path, isDir, cookie, send)
	case mask&unix.IN_DELETE != 0:
		delete(t.listed, path)
		return send(path, agent.OpRemove)
	case mask&unix.IN_MODIFY != 0:
		return send(path, agent.OpWrite)
	case mask&unix.IN_ATTRIB != 0:
		return send(path, agent.OpChmod)
	}
	return nil
}

// selfEvent handles an event about a watched directory itself. For inner directories the parent
// sends the same event; it is reported once.
func (t *watchTree) selfEvent(dir string, mask uint32, send sendFunc) error {
	if dir != t.root {
		return nil
	}
	switch {
	case mask&unix.IN_DELETE_SELF != 0:
		return send(dir, agent.OpRemove)
	case mask&unix.IN_MOVE_SELF != 0:
		return send(dir, agent.OpRename)
	case mask&unix.IN_ATTRIB != 0:
		return send(dir, agent.OpChmod)
	}
	return nil
}

// created handles a new name.
func (t *watchTree) created(path string, isDir bool, send sendFunc) error {
	if t.listed[path] {
		delete(t.listed, path) // told already
		return nil
	}
	if isDir && t.recursive {
		return t.adopt(path, send)
	}
	if !isDir {
		t.fresh[t.freshNext] = path
		t.freshNext = (t.freshNext + 1) % len(t.fresh)
	}
	return send(path, agent.OpCreate)
}

// adopt watches a directory that has come into the tree and reports it with everything in it. It
// adds the watch first, so the listing contains whatever the watch missed.
func (t *watchTree) adopt(path string, send sendFunc) error {
	err := t.add(path)
	if err != nil && !gone(err) {
		return err
	}
	if serr := send(path, agent.OpCreate); serr != nil || err != nil {
		return serr
	}
	return t.list(path, send)
}

// arrived handles the second half of a move, or a move from outside into the tree.
func (t *watchTree) arrived(path string, isDir bool, cookie uint32, send sendFunc) error {
	from, paired := t.moving[cookie]
	delete(t.moving, cookie)
	switch {
	case isDir && t.recursive && !paired:
		return t.adopt(path, send)
	case isDir && t.recursive:
		t.relocate(from.path, path)
	}
	if err := send(path, agent.OpCreate); err != nil {
		return err
	}
	if paired && from.fresh && !isDir {
		return send(path, agent.OpWrite)
	}
	return nil
}

// relocate changes the paths of the watches at and below one path.
func (t *watchTree) relocate(from, to string) {
	for wd, dir := range t.dirs {
		if rest, ok := strings.CutPrefix(dir, from); ok && (rest == "" || rest[0] == '/') {
			t.dirs[wd] = to + rest
		}
	}
}

// settle is called when no event is waiting. Directories that moved away and did not arrive have
// left the tree, so their watches end.
func (t *watchTree) settle() {
	clear(t.listed)
	for _, m := range t.moving {
		if m.dir && t.recursive {
			t.drop(m.path)
		}
	}
	clear(t.moving)
}

// drop removes the watches at and below a path.
func (t *watchTree) drop(path string) {
	for wd, dir := range t.dirs {
		if rest, ok := strings.CutPrefix(dir, path); ok && (rest == "" || rest[0] == '/') {
			_, _ = unix.InotifyRmWatch(t.fd, uint32(wd)) // gone already: what was wanted
			delete(t.dirs, wd)
		}
	}
}

// isFresh reports whether a file was created a moment ago.
func (t *watchTree) isFresh(path string) bool {
	return slices.Contains(t.fresh[:], path)
}
