package sim

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/guest"
	"github.com/carrel-dev/carrel/shell/outside"
	"github.com/carrel-dev/carrel/shell/tool"
)

// Inside is the sandbox's end of its network link, and the only way out. Package wire implements
// it.
type Inside interface {
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
	Close() error
}

// linkMTU is the frame size of a simulated sandbox's link.
const linkMTU = 16000

// LinkBy makes links in this process. network takes the daemon's end of a link, and inside makes
// the sandbox's end.
func LinkBy(network driver.Network, inside func(fd *os.File, mtu int) (Inside, error)) func(context.Context, carrel.ID) (Inside, error) {
	return func(ctx context.Context, id carrel.ID) (Inside, error) {
		host, mine, err := linkPair()
		if err != nil {
			return nil, err
		}
		in, err := inside(mine, linkMTU)
		if err != nil {
			_ = host.Close()
			return nil, err
		}
		link, err := network.Attach(ctx, driver.LinkSpec{ID: id, MTU: linkMTU}, host)
		if err != nil {
			_ = in.Close()
			return nil, err
		}
		return attached{in, link}, nil
	}
}

// attached is a link with both its ends.
type attached struct {
	Inside
	link driver.Link
}

// Close closes both ends.
func (a attached) Close() error { return errors.Join(a.Inside.Close(), a.link.Close()) }

// linkPair makes the two ends of a link.
func linkPair() (host, inside *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	return os.NewFile(uintptr(fds[0]), "link"), os.NewFile(uintptr(fds[1]), "link"), nil
}

// way is a sandbox's way out. Its link is made at the first request, so most sandboxes have none.
type way struct {
	i     *instance
	link  func(context.Context, carrel.ID) (Inside, error)
	roots *x509.CertPool

	mu     sync.Mutex
	closed bool
	inside Inside
	via    *outside.HTTP
	own    []byte // the sandbox's authority that via now trusts
}

// newWay returns the way out that o allows; nil for none.
func newWay(i *instance, o Options) *way {
	if o.Link == nil {
		return nil
	}
	return &way{i: i, link: o.Link, roots: o.Roots}
}

// http returns the way out in the form that programs use.
func (w *way) http() tool.HTTP {
	if w == nil {
		return nil
	}
	return w
}

// Do implements tool.HTTP.
func (w *way) Do(ctx context.Context, r *tool.Request) (*tool.Response, error) {
	via, err := w.open(ctx)
	if err != nil {
		return nil, err
	}
	return via.Do(ctx, r)
}

// open makes the link if there is none. The sandbox's rules may have changed the trusted authority.
// Then open starts anew; running requests go on with the old one.
func (w *way) open(ctx context.Context) (*outside.HTTP, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil, net.ErrClosed
	}
	own, _ := w.i.fs.Root().ReadFile(guest.AuthorityFile) // no file means no authority
	if w.via != nil && bytes.Equal(own, w.own) {
		return w.via, nil
	}
	if w.inside == nil {
		in, err := w.link(ctx, w.i.id)
		if err != nil {
			return nil, err
		}
		w.inside = in
	}
	if w.via != nil {
		w.via.Close()
	}
	pool := x509.NewCertPool()
	if w.roots != nil {
		pool = w.roots.Clone()
	}
	pool.AppendCertsFromPEM(own)
	w.own = own
	w.via = outside.New(outside.Options{Dial: w.inside.DialContext, Roots: func() *x509.CertPool { return pool }, UserAgent: "carrel-sim"})
	return w.via, nil
}

// close ends the link.
func (w *way) close() {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	if w.via != nil {
		w.via.Close()
		_ = w.inside.Close() // open connections break
	}
}
