package keeper

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
)

// Client is a connection to the keeper. It is safe for concurrent use. Requests go one after
// another. The keeper does not end while a Client is open.
type Client struct {
	path string

	mu     sync.Mutex
	conn   *net.UnixConn // nil after a failed request: the next one dials again
	closed bool

	alive context.Context // until Close
	end   context.CancelFunc
	// Of Revive:
	start   func(context.Context) error
	told    func(int, error)
	copies  map[string]int // our own descriptors of all kept files
	lost    bool           // the keeper may be a new one without these files
	keepers int            // how many came after the first
}

// Dial connects to the keeper at socketPath. Error: Unavailable when no keeper serves it.
func Dial(ctx context.Context, socketPath string) (*Client, error) {
	c := &Client{path: socketPath}
	c.alive, c.end = context.WithCancel(context.Background())
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.dial(ctx); err != nil {
		c.end()
		return nil, err
	}
	return c, nil
}

// dial is called with mu held.
func (c *Client) dial(ctx context.Context) (err error) {
	c.drop()
	c.conn, err = dial(ctx, c.path)
	return err
}

// drop ends the connection. The caller holds mu.
func (c *Client) drop() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}

// dial connects to the keeper at a path. The keeper must run as our user.
func dial(ctx context.Context, path string) (*net.UnixConn, error) {
	var conn net.Conn
	err := withShortPath(path, func(short string) (err error) {
		conn, err = (&net.Dialer{}).DialContext(ctx, "unixpacket", short)
		return err
	})
	if err != nil {
		return nil, &carrel.Error{Op: "dial keeper", Kind: carrel.Unavailable, Err: err}
	}
	u := conn.(*net.UnixConn)
	if err := checkPeer(u); err != nil {
		_ = u.Close()
		return nil, err
	}
	return u, nil
}

// Put keeps a copy of f under name, in place of an earlier one. The caller keeps f and must close
// it.
func (c *Client) Put(ctx context.Context, name string, f *os.File) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return requestError("put", carrel.Invalid, err)
	}
	fd := -1
	cerr := raw.Control(func(s uintptr) { fd, err = unix.FcntlInt(s, unix.F_DUPFD_CLOEXEC, 0) })
	if err = errors.Join(cerr, err); err != nil {
		return requestError("put", carrel.Invalid, err)
	}
	defer unix.Close(fd)
	_, got, err := c.request(ctx, "put", opPut, name, fd)
	closeAll(got)
	return err
}

// Get returns a copy of the file that is kept under name. Error: NotFound.
func (c *Client) Get(ctx context.Context, name string) (*os.File, error) {
	_, fds, err := c.request(ctx, "get", opGet, name, -1)
	if err != nil {
		closeAll(fds)
		return nil, err
	}
	if len(fds) != 1 {
		closeAll(fds)
		return nil, requestError("get", carrel.Internal, errors.New("the answer came without a file"))
	}
	return os.NewFile(uintptr(fds[0]), name), nil
}

// Delete closes the file that is kept under name. It is no error if there is none.
func (c *Client) Delete(ctx context.Context, name string) error {
	_, fds, err := c.request(ctx, "delete", opDelete, name, -1)
	closeAll(fds)
	return err
}

// List returns the names of all kept files, sorted.
func (c *Client) List(ctx context.Context) ([]string, error) {
	var names []string
	after := ""
	for {
		text, fds, err := c.request(ctx, "list", opList, after, -1)
		closeAll(fds)
		if err != nil {
			return nil, err
		}
		if text == "" {
			return names, nil
		}
		names = append(names, strings.Split(text, "\n")...)
		after = names[len(names)-1]
	}
}

// Close drops the connection. The files stay with the keeper.
func (c *Client) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.end()
	for name := range c.copies {
		c.hold(name, -1)
	}
	if c.conn == nil {
		return nil
	}
	err := c.conn.Close()
	c.conn = nil
	return err
}

// request sends one request and reads its answer. A connection that fails halfway is dropped,
// because an answer may still come. A request that a retired keeper did not see is sent once more.
func (c *Client) request(ctx context.Context, what string, op byte, name string, fd int) (string, []int, error) {
	if op != opList || name != "" {
		if err := checkName(name); err != nil {
			return "", nil, &carrel.Error{Op: "keeper " + what, Kind: carrel.Invalid, Field: "name", Err: err}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for attempt := 0; ; attempt++ {
		if c.closed {
			return "", nil, requestError(what, carrel.Unavailable, net.ErrClosed)
		}
		if err := ctx.Err(); err != nil {
			return "", nil, requestError(what, carrel.TimedOut, err)
		}
		if err := c.connect(ctx); err != nil {
			return "", nil, err
		}
		msg, fds, err := c.exchange(ctx, op, name, fd)
		if err == nil {
			text, fds, err := msg.outcome(what, fds)
			if err == nil {
				c.note(op, name, fd, fds)
			}
			return text, fds, err
		}
		closeAll(fds)
		c.drop()
		if ctx.Err() != nil {
			return "", nil, requestError(what, carrel.TimedOut, ctx.Err())
		}
		if attempt > 0 {
			return "", nil, requestError(what, carrel.Unavailable, err)
		}
	}
}

// note records the effect of a successful request on the keeper's files.
func (c *Client) note(op byte, name string, fd int, fds []int) {
	switch {
	case op == opPut:
		c.hold(name, fd)
	case op == opGet && len(fds) == 1:
		c.hold(name, fds[0])
	case op == opDelete:
		c.hold(name, -1)
	}
}

type message []byte

// replies holds memory for one reply each.
var replies = sync.Pool{New: func() any { return new([maxMessage]byte) }}

func (c *Client) exchange(ctx context.Context, op byte, name string, fd int) (message, []int, error) {
	conn := c.conn
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	var oob []byte
	if fd >= 0 {
		oob = unix.UnixRights(fd)
	}
	var fds []int
	var n int
	_, _, err := conn.WriteMsgUnix(append([]byte{op}, name...), oob, nil)
	buf := replies.Get().(*[maxMessage]byte)
	defer replies.Put(buf)
	if err == nil {
		n, fds, err = receive(conn, buf[:])
	}
	if err == nil && n == 0 {
		err = errors.New("the keeper closed the connection")
	}
	if !stop() && err == nil {
		// A deadline may still be set after this, but the connection is no longer used.
		_ = conn.Close()
		c.conn = nil
	}
	runtime.KeepAlive(conn)
	return bytes.Clone(buf[:n]), fds, err
}

func (m message) outcome(what string, fds []int) (string, []int, error) {
	text := string(m[1:])
	kind := carrel.Internal
	switch m[0] {
	case okay:
		return text, fds, nil
	case notFound:
		kind = carrel.NotFound
	case invalid:
		kind = carrel.Invalid
	case full:
		kind = carrel.Exhausted
	}
	return "", fds, requestError(what, kind, errors.New(text))
}

func requestError(what string, k carrel.Kind, err error) error {
	return &carrel.Error{Op: "keeper " + what, Kind: k, Err: err}
}
