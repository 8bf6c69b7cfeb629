package sshdoor

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/accept"
	"github.com/carrel-dev/carrel/internal/request"
)

// Sandboxes is the part of the service that the door needs.
type Sandboxes interface {
	Get(ctx context.Context, id carrel.ID) (carrel.Sandbox, error)
	// Computer gives access to a sandbox. It wakes a sandbox with automatic wake-up.
	Computer(ctx context.Context, id carrel.ID) (carrel.Computer, error)
}

// Options configures a Door. Sandboxes and HostKey are required, and Keys or Only.
type Options struct {
	Sandboxes Sandboxes
	HostKey   ssh.Signer
	// Keys are those that may pass.
	Keys Finder
	// Caller returns the context for work on behalf of a key's holder; nil leaves it unchanged.
	Caller func(ctx context.Context, key carrel.SSHKey) context.Context
	// Only makes this a door to one sandbox, for the holder of the connection, without a key. It is
	// for a pipe to a process that the caller started.
	Only carrel.ID

	MaxConnections int             // open at once after the handshake; 0 is 1024
	MaxHandshakes  int             // under way at once; 0 is 128, and 16 for each address
	MaxChannels    int             // sessions and forwards of one connection at once; 0 is 64
	MaxTries       int             // keys that a client may offer; 0 is 6
	HandshakeTime  time.Duration   // 0 is 20 s
	IdleTime       time.Duration   // without any channel; 0 is 10 min
	AliveEvery     time.Duration   // how often a silent client is probed; 0 is 30 s
	Journal        request.Journal // takes what clients did; nil is none
	Log            *slog.Logger
}

// Door serves SSH. New makes it, Serve and ServeConn use it, Close ends it.
type Door struct {
	opts Options
	cfg  *ssh.ServerConfig
	ctx  context.Context // ends with Close
	stop context.CancelFunc

	mu      sync.Mutex
	shaking map[string]int // handshakes by address
	total   int            // of them
	open    int            // connections after the handshake
	closed  bool
	wg      sync.WaitGroup // of connections
}

// New returns a door that serves nothing yet.
func New(opts Options) *Door {
	number := func(field *int, value int) {
		if *field <= 0 {
			*field = value
		}
	}
	span := func(field *time.Duration, value time.Duration) {
		if *field <= 0 {
			*field = value
		}
	}
	number(&opts.MaxConnections, 1024)
	number(&opts.MaxHandshakes, 128)
	number(&opts.MaxChannels, 64)
	number(&opts.MaxTries, 6)
	span(&opts.HandshakeTime, 20*time.Second)
	span(&opts.IdleTime, 10*time.Minute)
	span(&opts.AliveEvery, 30*time.Second)
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	d := &Door{opts: opts, shaking: map[string]int{}}
	d.ctx, d.stop = context.WithCancel(context.Background())
	d.cfg = d.serverConfig()
	return d
}

// Serve accepts connections until the listener is closed, by Close or otherwise. Then it returns
// nil.
func (d *Door) Serve(l net.Listener) error {
	defer context.AfterFunc(d.ctx, func() { _ = l.Close() })()
	err := accept.All(d.ctx, l, d.start)
	if d.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// start serves a connection in a goroutine of its own, unless there are too many.
func (d *Door) start(c net.Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		_ = c.Close()
		return
	}
	d.wg.Go(func() { d.ServeConn(c) })
}

// ServeConn serves one connection until it ends or Close is called.
func (d *Door) ServeConn(c net.Conn) {
	defer c.Close()
	leave, ok := d.enterHandshake(c.RemoteAddr())
	if !ok {
		d.opts.Log.Debug("ssh: too many handshakes at once", "from", c.RemoteAddr())
		return
	}
	defer context.AfterFunc(d.ctx, func() { _ = c.Close() })()
	late := time.AfterFunc(d.opts.HandshakeTime, func() { _ = c.Close() })
	conn, channels, requests, err := ssh.NewServerConn(c, d.cfg)
	leave()
	if !late.Stop() && err == nil {
		err = errors.New("the handshake took too long")
	}
	if err != nil {
		d.opts.Log.Debug("ssh: no handshake", "from", c.RemoteAddr(), "err", err)
		return
	}
	defer conn.Close()
	if !d.enter() {
		d.opts.Log.Warn("ssh: too many connections", "most", d.opts.MaxConnections)
		return
	}
	defer d.leave()
	t, ok := d.target(conn.User())
	if !ok {
		return
	}
	key := keyOf(conn.Permissions)
	d.opts.Log.Info("ssh: connected", "sandbox", t.id, "key", key.Name, "project", key.Project, "from", c.RemoteAddr())
	(&client{door: d, conn: conn, target: t, key: key}).serve(channels, requests)
}

// Close ends all connections and waits until none is served any more.
func (d *Door) Close() error {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.stop()
	d.wg.Wait()
	return nil
}

// enterHandshake counts a handshake. ok is false when there are too many from this address or in
// all.
func (d *Door) enterHandshake(addr net.Addr) (leave func(), ok bool) {
	host, _, err := net.SplitHostPort(addr.String())
	if err != nil {
		host = ""
	}
	const mostOfOne = 16
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.total >= d.opts.MaxHandshakes || d.shaking[host] >= mostOfOne {
		return nil, false
	}
	d.total++
	d.shaking[host]++
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.total--
		if d.shaking[host]--; d.shaking[host] == 0 {
			delete(d.shaking, host)
		}
	}, true
}

func (d *Door) enter() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open >= d.opts.MaxConnections {
		return false
	}
	d.open++
	return true
}

func (d *Door) leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open--
}
