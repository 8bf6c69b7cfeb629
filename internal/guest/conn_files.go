package guest

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"sync"

	"connectrpc.com/connect"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/guest/filesystem"
)

// Files returns the sandbox's filesystem as user sees it; "" is the default user.
func (c *Conn) Files(user string) carrel.Files { return &files{c: c, user: user} }

// files implements carrel.Files: contents over plain HTTP, all else over Connect.
type files struct {
	c    *Conn
	user string
}

var _ carrel.Files = (*files)(nil)

// request wraps a message and names the user.
func request[T any](f *files, msg *T) *connect.Request[T] {
	req := connect.NewRequest(msg)
	f.c.authorize(req.Header(), f.user)
	return req
}

// target returns the URL path of a file's contents.
func (f *files) target(name string) string {
	q := url.Values{"path": {name}}
	user := f.user
	if user == "" {
		user = f.c.opts.DefaultUser
	}
	if user != "" {
		q.Set("username", user)
	}
	return "/files?" + q.Encode()
}

func (f *files) Read(ctx context.Context, name string) (io.ReadCloser, error) {
	resp, err := f.c.roundTrip(ctx, "read file", http.MethodGet, f.target(name), nil, nil)
	if err != nil {
		return nil, err
	}
	return &body{ReadCloser: resp.Body, c: f.c}, nil
}

// body is a file's contents while they arrive. It returns errors of this package.
type body struct {
	io.ReadCloser
	c *Conn
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = b.c.fail("read file", err)
	}
	return n, err
}

func (f *files) Write(ctx context.Context, name string, r io.Reader) (carrel.FileInfo, error) {
	const op = "write file"
	h := http.Header{"Content-Type": {"application/octet-stream"}}
	src := &source{r: r}
	resp, err := f.c.roundTrip(ctx, op, http.MethodPost, f.target(name), h, src)
	if rerr := src.stop(); rerr != nil { // the caller's reader failed, not the guest
		err = &carrel.Error{Op: op, Kind: carrel.Invalid, ID: f.c.opts.ID, Err: rerr}
	}
	if err != nil {
		if resp != nil {
			_ = drain(resp.Body)
		}
		return carrel.FileInfo{}, err
	}
	if err := drain(resp.Body); err != nil {
		return carrel.FileInfo{}, f.c.fail(op, err)
	}
	return f.Stat(ctx, name)
}

// source remembers the error of the caller's reader, because net/http does not distinguish it from
// an error of the connection. If the guest answers early, the transport may hold the source a
// little longer than Write lasts. It then reads no more.
type source struct {
	r    io.Reader
	mu   sync.Mutex
	err  error
	over bool
}

func (s *source) Read(p []byte) (int, error) {
	s.mu.Lock()
	over := s.over
	s.mu.Unlock()
	if over {
		return 0, io.ErrUnexpectedEOF
	}
	n, err := s.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.mu.Lock()
		s.err = err
		s.mu.Unlock()
	}
	return n, err
}

// stop ends the reading and returns the error of the caller's reader.
func (s *source) stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	return s.err
}

func (f *files) Stat(ctx context.Context, name string) (carrel.FileInfo, error) {
	resp, err := f.c.files().Stat(ctx, request(f, &filesystem.StatRequest{Path: name}))
	if err != nil {
		return carrel.FileInfo{}, f.c.fail("stat file", err)
	}
	return fileInfo(resp.Msg.GetEntry()), nil
}

func (f *files) List(ctx context.Context, name string, depth int) ([]carrel.FileInfo, error) {
	const op = "list directory"
	if depth < 0 || depth > 1<<16 {
		return nil, f.c.invalid(op, "depth", "%d is not a depth", depth)
	}
	resp, err := f.c.files().ListDir(ctx, request(f, &filesystem.ListDirRequest{Path: name, Depth: uint32(max(depth, 1))}))
	if err != nil {
		return nil, f.c.fail(op, err)
	}
	out := make([]carrel.FileInfo, 0, len(resp.Msg.GetEntries()))
	for _, e := range resp.Msg.GetEntries() {
		out = append(out, fileInfo(e))
	}
	return out, nil
}

func (f *files) MakeDir(ctx context.Context, name string) error {
	_, err := f.c.files().MakeDir(ctx, request(f, &filesystem.MakeDirRequest{Path: name}))
	return f.c.fail("make directory", err)
}

func (f *files) Move(ctx context.Context, from, to string) error {
	_, err := f.c.files().Move(ctx, request(f, &filesystem.MoveRequest{Source: from, Destination: to}))
	return f.c.fail("move file", err)
}

func (f *files) Remove(ctx context.Context, name string) error {
	_, err := f.c.files().Remove(ctx, request(f, &filesystem.RemoveRequest{Path: name}))
	if err = f.c.fail("remove file", err); errors.Is(err, carrel.NotFound) {
		return nil
	}
	return err
}

func (f *files) Watch(ctx context.Context, name string, recursive bool, fn func(carrel.FileEvent)) error {
	const op = "watch directory"
	stream, err := f.c.files().WatchDir(ctx, request(f, &filesystem.WatchDirRequest{Path: name, Recursive: recursive}))
	if err != nil {
		return f.c.fail(op, err)
	}
	defer func() { _ = stream.Close() }() // the stream's own error has been seen
	for stream.Receive() {
		if ev := stream.Msg().GetFilesystem(); ev != nil {
			fn(carrel.FileEvent{Path: path.Join(name, ev.GetName()), Op: opName(ev.GetType())})
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	return f.c.fail(op, stream.Err())
}

// opName returns the word for a kind of change.
func opName(t filesystem.EventType) string {
	switch t {
	case filesystem.EventType_EVENT_TYPE_CREATE:
		return "create"
	case filesystem.EventType_EVENT_TYPE_WRITE:
		return "write"
	case filesystem.EventType_EVENT_TYPE_REMOVE:
		return "remove"
	case filesystem.EventType_EVENT_TYPE_RENAME:
		return "rename"
	case filesystem.EventType_EVENT_TYPE_CHMOD:
		return "chmod"
	}
	return "unknown"
}

// fileInfo turns the guest's description of a file into ours.
func fileInfo(e *filesystem.EntryInfo) carrel.FileInfo {
	mode := fs.FileMode(e.GetMode()).Perm()
	switch {
	case e.SymlinkTarget != nil, e.GetType() == filesystem.FileType_FILE_TYPE_SYMLINK:
		mode |= fs.ModeSymlink // the guest gives the type of the link's target
	case e.GetType() == filesystem.FileType_FILE_TYPE_DIRECTORY:
		mode |= fs.ModeDir
	case e.GetType() == filesystem.FileType_FILE_TYPE_UNSPECIFIED:
		mode |= fs.ModeIrregular // pipe, socket or device: reading it as a file could block for ever
	}
	return carrel.FileInfo{
		Name: e.GetName(), Path: e.GetPath(), Size: e.GetSize(), Mode: mode,
		Owner: e.GetOwner(), Group: e.GetGroup(), Modified: e.GetModifiedTime().AsTime(),
		Target: e.GetSymlinkTarget(), Metadata: e.GetMetadata(),
	}
}
