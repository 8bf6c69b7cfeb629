package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/carrel-dev/carrel/internal/guest/filesystem"
)

// watchRequest is the common part of both kinds of watch requests.
type watchRequest interface {
	GetPath() string
	GetRecursive() bool
	GetIncludeEntry() bool
	GetAllowNetworkMounts() bool
}

// watch is one watched directory.
type watch struct {
	a       *Agent
	dir     string
	entries bool // events also describe the file
	w       Watcher
}

// openWatch checks a request and starts to watch. The caller closes w.
func (s *filesystemService) openWatch(h http.Header, req watchRequest) (*watch, error) {
	_, dir, err := s.locate(h, "path", req.GetPath())
	if err != nil {
		return nil, err
	}
	switch e, err := s.a.sys.Stat(dir); {
	case errors.Is(err, fs.ErrNotExist):
		return nil, connectError(fmt.Sprintf("path %s not found", dir), err)
	case err != nil:
		return nil, connectError(fmt.Sprintf("error statting path %s", dir), err)
	case !e.Mode.IsDir():
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("path %s not a directory", dir))
	}
	if !req.GetAllowNetworkMounts() {
		remote, err := s.a.sys.IsNetworkMount(dir)
		if err != nil {
			return nil, connectError("error checking mount status", err)
		}
		if remote {
			return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("cannot watch path on network filesystem: %s", dir))
		}
	}
	w, err := s.a.sys.Watch(dir, req.GetRecursive())
	if err != nil {
		return nil, connectError(fmt.Sprintf("error adding path %s to watcher", dir), err)
	}
	return &watch{a: s.a, dir: dir, entries: req.GetIncludeEntry(), w: w}, nil
}

// event returns the client's event for a change.
func (w *watch) event(c Change) *filesystem.FilesystemEvent {
	name := "."
	if c.Path != w.dir {
		name = strings.TrimPrefix(strings.TrimPrefix(c.Path, w.dir), "/")
	}
	e := &filesystem.FilesystemEvent{Name: text(name), Type: eventType(c.Op)}
	// After a removal or a rename, another file may be at the path.
	if w.entries && c.Op != OpRemove && c.Op != OpRename {
		if entry, err := w.a.describer().stat(c.Path); err == nil { // else: gone again
			e.Entry = entry
		}
	}
	return e
}

// ended returns the error of a watcher that ended by itself.
func (w *watch) ended() error {
	if err := w.w.Err(); err != nil {
		return connect.NewError(connect.CodeInternal, fmt.Errorf("watcher error: %w", err))
	}
	return connect.NewError(connect.CodeInternal, errors.New("watcher event channel closed"))
}

// eventType returns the protocol's word for a kind of change.
func eventType(op Op) filesystem.EventType {
	switch op {
	case OpCreate:
		return filesystem.EventType_EVENT_TYPE_CREATE
	case OpWrite:
		return filesystem.EventType_EVENT_TYPE_WRITE
	case OpRemove:
		return filesystem.EventType_EVENT_TYPE_REMOVE
	case OpRename:
		return filesystem.EventType_EVENT_TYPE_RENAME
	case OpChmod:
		return filesystem.EventType_EVENT_TYPE_CHMOD
	}
	return filesystem.EventType_EVENT_TYPE_UNSPECIFIED
}

// WatchDir streams the changes in a directory until the client leaves. The first event says that
// watching has begun. All later changes are seen.
func (s *filesystemService) WatchDir(ctx context.Context, req *connect.Request[filesystem.WatchDirRequest], stream *connect.ServerStream[filesystem.WatchDirResponse]) error {
	w, err := s.openWatch(req.Header(), req.Msg)
	if err != nil {
		return err
	}
	defer func() { _ = w.w.Close() }() // nobody needs its error
	send := func(what string, r *filesystem.WatchDirResponse) error {
		extendWrite(ctx)
		if err := stream.Send(r); err != nil {
			return connect.NewError(connect.CodeUnknown, fmt.Errorf("error sending %s: %w", what, err))
		}
		return nil
	}
	start := &filesystem.WatchDirResponse{Event: &filesystem.WatchDirResponse_Start{Start: &filesystem.WatchDirResponse_StartEvent{}}}
	if err := send("start event", start); err != nil {
		return err
	}
	interval := s.a.keepAlive(req.Header())
	keepalive := time.NewTicker(interval)
	defer keepalive.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.a.ctx.Done():
			return connect.NewError(connect.CodeUnavailable, errClosing)
		case <-keepalive.C:
			alive := &filesystem.WatchDirResponse{Event: &filesystem.WatchDirResponse_Keepalive{Keepalive: &filesystem.WatchDirResponse_KeepAlive{}}}
			if err := send("keepalive", alive); err != nil {
				return err
			}
		case c, ok := <-w.w.C():
			if !ok {
				return w.ended()
			}
			for _, c := range s.a.uploads.changes(c) {
				change := &filesystem.WatchDirResponse{Event: &filesystem.WatchDirResponse_Filesystem{Filesystem: w.event(c)}}
				if err := send("filesystem event", change); err != nil {
					return err
				}
			}
			keepalive.Reset(interval)
		}
	}
}
