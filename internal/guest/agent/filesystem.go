package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"syscall"

	"connectrpc.com/connect"

	"github.com/carrel-dev/carrel/internal/guest/filesystem"
	"github.com/carrel-dev/carrel/internal/guest/filesystem/filesystemconnect"
)

// maxFilesystemRequest bounds a request of filesystem.Filesystem, which holds two paths at most.
const maxFilesystemRequest = 64 << 10

// filesystemHandler serves filesystem.Filesystem.
func (a *Agent) filesystemHandler() (path string, h http.Handler) {
	s := &filesystemService{a: a, watchers: pollWatchers{byID: map[string]*pollWatcher{}}}
	path, h = filesystemconnect.NewFilesystemHandler(s, append(rpcOptions(), connect.WithReadMaxBytes(maxFilesystemRequest))...)
	return path, zeroTimeoutIsNone(h)
}

// filesystemService serves filesystem.Filesystem over a System. Its errors have envd's texts,
// because clients look at them. They have envd's codes too, except for invalid paths, where envd
// reports an error of its own.
type filesystemService struct {
	a        *Agent
	watchers pollWatchers
}

var _ filesystemconnect.FilesystemHandler = (*filesystemService)(nil)

// locate finds the account of a request and the path in it.
func (s *filesystemService) locate(h http.Header, field, name string) (User, string, error) {
	u, uerr := s.a.user(h)
	if uerr != nil {
		return User{}, "", uerr
	}
	resolved, err := s.a.resolve(field, name, u)
	if err != nil {
		return User{}, "", connect.NewError(connect.CodeInvalidArgument, err)
	}
	return u, resolved, nil
}

// Stat describes a file. It does not follow a symbolic link.
func (s *filesystemService) Stat(_ context.Context, req *connect.Request[filesystem.StatRequest]) (*connect.Response[filesystem.StatResponse], error) {
	_, name, err := s.locate(req.Header(), "path", req.Msg.GetPath())
	if err != nil {
		return nil, err
	}
	entry, err := s.a.describer().stat(name)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&filesystem.StatResponse{Entry: entry}), nil
}

// MakeDir makes a directory and its missing parents.
func (s *filesystemService) MakeDir(_ context.Context, req *connect.Request[filesystem.MakeDirRequest]) (*connect.Response[filesystem.MakeDirResponse], error) {
	u, dir, err := s.locate(req.Header(), "path", req.Msg.GetPath())
	if err != nil {
		return nil, err
	}
	switch e, err := s.a.sys.Stat(dir); {
	case err == nil && e.Mode.IsDir():
		return nil, connect.NewError(connect.CodeAlreadyExists, fmt.Errorf("directory already exists: %s", dir))
	case err == nil:
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("path already exists but it is not a directory: %s", dir))
	case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR):
		return nil, connectError("error getting file info", err)
	}
	if err := s.a.ensureDirs(dir, u); err != nil {
		return nil, connect.NewError(faultOf(err).code(), err)
	}
	entry, err := s.a.describer().stat(dir)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&filesystem.MakeDirResponse{Entry: entry}), nil
}

// Move renames a file or directory. It makes the destination's directory first.
func (s *filesystemService) Move(_ context.Context, req *connect.Request[filesystem.MoveRequest]) (*connect.Response[filesystem.MoveResponse], error) {
	u, from, err := s.locate(req.Header(), "source", req.Msg.GetSource())
	if err != nil {
		return nil, err
	}
	to, err := s.a.resolve("destination", req.Msg.GetDestination(), u)
	if err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, err)
	}
	if _, err := s.a.sys.Lstat(from); err != nil {
		return nil, moveError(err)
	}
	if err := s.a.ensureDirs(path.Dir(to), u); err != nil {
		return nil, connect.NewError(faultOf(err).code(), err)
	}
	if err := s.a.sys.Rename(from, to); err != nil {
		return nil, moveError(err)
	}
	entry, err := s.a.describer().stat(to)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&filesystem.MoveResponse{Entry: entry}), nil
}

// moveError returns the error for a failed move.
func moveError(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return connectError("source file not found", err)
	}
	return connectError("error renaming", err)
}

// Remove removes a file, or a directory with everything in it. If the path does not exist, it
// succeeds.
func (s *filesystemService) Remove(_ context.Context, req *connect.Request[filesystem.RemoveRequest]) (*connect.Response[filesystem.RemoveResponse], error) {
	_, name, err := s.locate(req.Header(), "path", req.Msg.GetPath())
	if err != nil {
		return nil, err
	}
	if name == "/" {
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("path is the root directory, which can't be removed"))
	}
	if err := s.a.sys.RemoveAll(name); err != nil && !errors.Is(err, syscall.ENOTDIR) {
		return nil, connectError("error removing file or directory", err)
	}
	return connect.NewResponse(&filesystem.RemoveResponse{}), nil
}

// ListDir describes the entries of a directory, and with a depth above 1 those of its
// subdirectories. If the listed directory is a link, the link is followed, and the entries appear
// below the link's path. Links inside are not followed.
func (s *filesystemService) ListDir(ctx context.Context, req *connect.Request[filesystem.ListDirRequest]) (*connect.Response[filesystem.ListDirResponse], error) {
	_, dir, err := s.locate(req.Header(), "path", req.Msg.GetPath())
	if err != nil {
		return nil, err
	}
	resolved, err := s.a.sys.EvalSymlinks(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, connectError("path not found", err)
	case errors.Is(err, syscall.ELOOP):
		return nil, connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("cyclic symlink or chain >255 links at %q", dir))
	case err != nil:
		return nil, connectError("error resolving symlink", err)
	}
	switch e, err := s.a.sys.Stat(resolved); {
	case errors.Is(err, fs.ErrNotExist):
		return nil, connectError("directory not found", err)
	case err != nil:
		return nil, connectError("error getting file info", err)
	case !e.Mode.IsDir():
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("path is not a directory: %s", resolved))
	}
	l := lister{ctx: ctx, a: s.a, d: s.a.describer()}
	if err := l.list(dir, resolved, max(req.Msg.GetDepth(), 1)); err != nil {
		return nil, err
	}
	return connect.NewResponse(&filesystem.ListDirResponse{Entries: l.entries}), nil
}

// lister gathers the entries of one listing.
type lister struct {
	ctx     context.Context
	a       *Agent
	d       *describer
	entries []*filesystem.EntryInfo
}

// list adds the entries of the directory really, under the path name.
func (l *lister) list(name, really string, depth uint32) error {
	if err := l.ctx.Err(); err != nil {
		return err
	}
	entries, err := l.a.sys.ReadDir(really)
	if err != nil {
		return connectError("error reading directory "+really, err)
	}
	for _, e := range entries {
		inner := path.Join(name, path.Base(e.Path))
		l.entries = append(l.entries, l.d.describe(inner, e))
		if depth == 1 || !e.Mode.IsDir() {
			continue
		}
		err := l.list(inner, e.Path, depth-1)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // gone since it was listed
			return err
		}
	}
	return nil
}
