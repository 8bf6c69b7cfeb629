//go:build linux

package hosted

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"golang.org/x/sys/unix"
)

// FDKeeper holds open files under names while the daemon is away. Package keeper's
// client is one.
type FDKeeper interface {
	// Put keeps a copy of f under name, in place of an earlier one.
	Put(ctx context.Context, name string, f *os.File) error
	// Get returns a copy of the file under name. Error: NotFound.
	Get(ctx context.Context, name string) (*os.File, error)
	// Delete closes the file under name. If there is none, that is no error.
	Delete(ctx context.Context, name string) error
}

// Links makes the daemon's ends of a driver's links.
type Links struct {
	Network driver.Network
	Keeper  FDKeeper // nil keeps none
	Driver  string   // Info.Name: the start of the names at the keeper

	// Checksums is that of all links, see [driver.LinkSpec].
	Checksums bool
}

// Links returns the links of the driver with this name.
func (o *Options) Links(name string) Links {
	return Links{Network: o.Network, Keeper: o.Keeper, Driver: name}
}

// Name is the name of a sandbox's link at the keeper.
func (k Links) Name(id carrel.ID) string { return k.Driver + "/" + string(id) }

// Open connects the daemon's end of a new link. It gives a copy to the keeper, and host to the
// network. It owns host, also on error. [Links.Drop] removes the keeper's copy.
func (k Links) Open(ctx context.Context, l *Life, r *Record, mtu int, host *os.File) error {
	if err := k.hold(ctx, r, host); err != nil {
		host.Close()
		return err
	}
	return k.attach(ctx, l, r, mtu, host)
}

// Reopen takes a link back from the keeper and connects it. Error: NotFound when the keeper has
// none.
func (k Links) Reopen(ctx context.Context, l *Life, r *Record, mtu int) error {
	host, err := k.held(ctx, r)
	if err != nil {
		return err
	}
	return k.attach(ctx, l, r, mtu, host)
}

// OpenStream is Open for a link that is a stream (see driver.Network.Attach). Such a connection
// can't go on after a crash of the daemon. So the keeper gets the listening socket: the sandbox's
// side finds its connection closed and connects again. OpenStream waits for the first connection.
// It owns listener, also on error. The directory of the socket must be closed to all but the
// sandbox's first process, because every process that reaches the socket may connect.
func (k Links) OpenStream(ctx context.Context, l *Life, r *Record, mtu int, listener *os.File) error {
	defer listener.Close()
	if err := k.hold(ctx, r, listener); err != nil {
		return err
	}
	return k.acceptStream(ctx, l, r, mtu, listener)
}

// ReopenStream is Reopen for a link that OpenStream opened.
func (k Links) ReopenStream(ctx context.Context, l *Life, r *Record, mtu int) error {
	listener, err := k.held(ctx, r)
	if err != nil {
		return err
	}
	defer listener.Close()
	return k.acceptStream(ctx, l, r, mtu, listener)
}

// acceptStream waits for a connection that is still open, and attaches it. The sandbox's side may
// have given up older waiting connections.
func (k Links) acceptStream(ctx context.Context, l *Life, r *Record, mtu int, listener *os.File) error {
	ln, err := net.FileListener(listener)
	if err != nil {
		return fmt.Errorf("the link's listener: %w", err)
	}
	defer ln.Close()
	u, ok := ln.(*net.UnixListener)
	if !ok {
		return errors.New("the link's listener is no Unix socket")
	}
	u.SetUnlinkOnClose(false) // the next daemon's, too
	defer context.AfterFunc(ctx, func() { _ = u.SetDeadline(time.Unix(1, 0)) })()
	for {
		c, err := u.AcceptUnix()
		if err != nil {
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			return fmt.Errorf("wait for the link: %w", err)
		}
		host, err := c.File()
		c.Close()
		if err != nil {
			return err
		}
		if hungUp(host) {
			host.Close()
			continue
		}
		return k.attach(ctx, l, r, mtu, host)
	}
}

// hungUp reports whether the other end of a socket is closed.
func hungUp(f *os.File) bool {
	fds := []unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLRDHUP}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0 && fds[0].Revents&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR) != 0
}

// hold gives the keeper a copy of a file, under the name of a sandbox's link.
func (k Links) hold(ctx context.Context, r *Record, f *os.File) error {
	if k.Keeper == nil {
		return nil
	}
	if err := k.Keeper.Put(ctx, r.Link, f); err != nil {
		return fmt.Errorf("keep the link: %w", err)
	}
	return nil
}

// held takes back the file that hold gave. Error: NotFound.
func (k Links) held(ctx context.Context, r *Record) (*os.File, error) {
	if k.Keeper == nil {
		return nil, Lost("no keeper held its link")
	}
	f, err := k.Keeper.Get(ctx, r.Link)
	if err != nil {
		return nil, fmt.Errorf("its link: %w", err)
	}
	return f, nil
}

// attach gives host to the network, and stores the resulting link in the sandbox's Life.
func (k Links) attach(ctx context.Context, l *Life, r *Record, mtu int, host *os.File) error {
	link, err := k.Network.Attach(ctx, driver.LinkSpec{ID: r.ID, MTU: mtu, Checksums: k.Checksums}, host)
	if err != nil {
		return fmt.Errorf("attach the link: %w", err)
	}
	l.SetLink(link)
	return nil
}

// Drop makes the keeper forget a link by its name.
func (k Links) Drop(ctx context.Context, name string) error {
	if k.Keeper == nil {
		return nil
	}
	return k.Keeper.Delete(ctx, name)
}
