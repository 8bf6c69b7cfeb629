package sim

import (
	"context"

	"github.com/carrel-dev/carrel/internal/guest/agent"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// entry converts a description from the filesystem to the agent's form. The agent wants the
// requested path, not the resolved one.
func entry(name string, i vfs.Info) agent.Entry {
	return agent.Entry{Path: name, Size: i.Size, Mode: i.Mode, UID: i.UID, GID: i.GID, Links: i.Links,
		Modified: i.Modified, LinkTarget: i.Target}
}

// Stat implements agent.Filesystem.
func (s *system) Stat(name string) (agent.Entry, error) {
	i, err := s.root().Stat(name)
	return entry(name, i), err
}

// Lstat implements agent.Filesystem.
func (s *system) Lstat(name string) (agent.Entry, error) {
	i, err := s.root().Lstat(name)
	return entry(name, i), err
}

// ReadDir implements agent.Filesystem.
func (s *system) ReadDir(name string) ([]agent.Entry, error) {
	infos, err := s.root().ReadDir(name)
	if err != nil {
		return nil, err
	}
	out := make([]agent.Entry, len(infos))
	for k, i := range infos {
		p := name + "/" + i.Name
		if name == "/" {
			p = "/" + i.Name
		}
		out[k] = entry(p, i)
	}
	return out, nil
}

// file is an open file in the agent's form.
type file struct {
	*vfs.File
	name string
}

func (f file) Stat() (agent.Entry, error) {
	i, err := f.File.Stat()
	return entry(f.name, i), err
}

// Open implements agent.Filesystem.
func (s *system) Open(name string) (agent.File, error) {
	f, err := s.root().Open(name)
	if err != nil {
		return nil, err
	}
	return file{f, name}, nil
}

// Create implements agent.Filesystem.
func (s *system) Create(name string, u agent.User) (agent.File, error) {
	root := s.root()
	_, missing := root.Stat(name)
	f, err := root.OpenFile(name, vfs.WriteOnly|vfs.CreateNew|vfs.Truncate, 0o644) // as with the usual mask
	if err != nil {
		return nil, err
	}
	if missing != nil {
		if err := root.Chown(name, u.UID, u.GID); err != nil {
			_ = f.Close() // a file in memory has no late errors
			return nil, err
		}
	}
	return file{f, name}, nil
}

// Mkdir implements agent.Filesystem.
func (s *system) Mkdir(name string, u agent.User) error {
	if err := s.root().Mkdir(name, 0o755); err != nil {
		return err
	}
	return s.root().Chown(name, u.UID, u.GID)
}

// Rename implements agent.Filesystem.
func (s *system) Rename(from, to string) error { return s.root().Rename(from, to) }

// Remove implements agent.Filesystem.
func (s *system) Remove(name string) error { return s.root().Remove(name) }

// RemoveAll implements agent.Filesystem.
func (s *system) RemoveAll(name string) error { return s.root().RemoveAll(name) }

// Chown implements agent.Filesystem.
func (s *system) Chown(name string, u agent.User) error { return s.root().Chown(name, u.UID, u.GID) }

// CopyMode implements agent.Filesystem. The new file also gets the owner: an upload does not change
// it here.
func (s *system) CopyMode(from, to string) error {
	i, err := s.root().Stat(from)
	if err != nil {
		return err
	}
	if err := s.root().Chmod(to, i.Mode.Perm()); err != nil {
		return err
	}
	if attrs, err := s.root().Attrs(from); err == nil && len(attrs) > 0 {
		if err := s.root().SetAttrs(to, attrs); err != nil {
			return err
		}
	}
	return s.root().Chown(to, i.UID, i.GID)
}

// SetAttrs implements agent.Filesystem.
func (s *system) SetAttrs(name string, attrs map[string]string) error {
	return s.root().SetAttrs(name, attrs)
}

// Attrs implements agent.Filesystem.
func (s *system) Attrs(name string) (map[string]string, error) { return s.root().Attrs(name) }

// EvalSymlinks implements agent.Filesystem.
func (s *system) EvalSymlinks(name string) (string, error) { return s.root().EvalSymlinks(name) }

// IsNetworkMount implements agent.Filesystem. There are no network mounts.
func (s *system) IsNetworkMount(name string) (bool, error) {
	_, err := s.root().Stat(name)
	return false, err
}

// watcher passes the filesystem's changes to the agent.
type watcher struct {
	w     *vfs.Watch
	c     chan agent.Change
	flush chan chan struct{} // of Flush; pass closes what it receives
	stop  chan struct{}
	done  chan struct{}
}

// Watch implements agent.Filesystem.
func (s *system) Watch(dir string, recursive bool) (agent.Watcher, error) {
	w, err := s.root().Watch(dir, recursive)
	if err != nil {
		return nil, err
	}
	a := &watcher{w: w, c: make(chan agent.Change), flush: make(chan chan struct{}), stop: make(chan struct{}),
		done: make(chan struct{})}
	go a.pass()
	return a, nil
}

// ops translates kinds of changes to the agent's kinds.
var ops = map[vfs.Op]agent.Op{vfs.Create: agent.OpCreate, vfs.Write: agent.OpWrite, vfs.Remove: agent.OpRemove,
	vfs.Rename: agent.OpRename, vfs.Chmod: agent.OpChmod}

func (a *watcher) pass() {
	defer close(a.done)
	defer close(a.c)
	for {
		select {
		case ch, ok := <-a.w.C():
			if !ok || !a.send(ch) {
				return
			}
		case done := <-a.flush:
			for range len(a.w.C()) {
				if ch, ok := <-a.w.C(); !ok || !a.send(ch) {
					return
				}
			}
			close(done)
		}
	}
}

// send delivers one change, or reports false when the watcher is closed.
func (a *watcher) send(ch vfs.Change) bool {
	select {
	case a.c <- agent.Change{Path: ch.Path, Op: ops[ch.Op]}:
		return true
	case <-a.stop:
		return false
	}
}

// Flush implements agent.Watcher.
func (a *watcher) Flush(ctx context.Context) {
	flushed := make(chan struct{})
	select {
	case a.flush <- flushed:
	case <-a.done:
		return
	case <-ctx.Done():
		return
	}
	select {
	case <-flushed:
	case <-a.done:
	case <-ctx.Done():
	}
}

func (a *watcher) C() <-chan agent.Change { return a.c }
func (a *watcher) Err() error             { return a.w.Err() }

func (a *watcher) Close() error {
	select {
	case <-a.stop:
	default:
		close(a.stop)
	}
	err := a.w.Close()
	<-a.done
	return err
}
