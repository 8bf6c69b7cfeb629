package sim

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
)

// remote is a sandbox in a worker.
type remote struct {
	id     carrel.ID
	handle driver.Handle
	crew   *crew

	once sync.Once
	done chan struct{} // closed at its end
	exit driver.Exit   // valid once done is closed

	provided sync.Mutex // held while the worker is told of programs; may be taken under Pool.mu, never the reverse

	mu    sync.Mutex
	ended bool
	links map[driver.Link]struct{}
	conns map[net.Conn]struct{} // to the host, being served
	dials int                   // of these, connections that ask the host
	calls int                   // and those that run programs
	local sync.WaitGroup
}

var (
	_ driver.Instance    = (*remote)(nil)
	_ driver.Snapshotter = (*remote)(nil)
)

// Handle implements driver.Instance.
func (r *remote) Handle() driver.Handle { return r.handle }

// streamPair makes a connection and returns both ends.
func streamPair() (a, b *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	return os.NewFile(uintptr(fds[0]), "sim"), os.NewFile(uintptr(fds[1]), "sim"), nil
}

// ask sends the worker a request about this sandbox.
func (r *remote) ask(ctx context.Context, op string, m message) (message, error) {
	select {
	case <-r.done:
		closeFiles(m.files)
		return message{}, &carrel.Error{Op: op, Kind: carrel.NotFound, ID: r.id, Err: errors.New("it has ended")}
	default:
	}
	m.Sandbox = r.id
	got, err := r.crew.line.ask(ctx.Done(), m)
	switch {
	case errors.Is(err, errAway):
		return got, &carrel.Error{Op: op, Kind: carrel.TimedOut, ID: r.id, Err: context.Cause(ctx)}
	case errors.Is(err, errGone):
		return got, &carrel.Error{Op: op, Kind: carrel.Unavailable, ID: r.id, Err: err}
	}
	return got, err
}

// Dial implements driver.Instance.
func (r *remote) Dial(ctx context.Context, port uint16) (net.Conn, error) {
	const op = "dial sandbox"
	if err := ctx.Err(); err != nil {
		return nil, &carrel.Error{Op: op, Kind: carrel.TimedOut, ID: r.id, Err: err}
	}
	mine, theirs, err := socketPair()
	if err != nil {
		return nil, &carrel.Error{Op: op, Kind: carrel.Internal, ID: r.id, Err: err}
	}
	if _, err := r.ask(ctx, op, message{Op: opDial, Port: port, files: []*os.File{theirs}}); err != nil {
		_ = mine.Close()
		if carrel.KindOf(err) == carrel.NotFound {
			err = &carrel.Error{Op: op, Kind: carrel.Unavailable, ID: r.id, Err: unix.ECONNREFUSED}
		}
		return nil, err
	}
	return mine, nil
}

// Stats implements driver.Instance.
func (r *remote) Stats(ctx context.Context) (driver.Stats, error) {
	got, err := r.ask(ctx, "measure sandbox", message{Op: opStats})
	if err != nil || got.Stats == nil {
		return driver.Stats{}, err
	}
	return *got.Stats, nil
}

// Snapshot implements driver.Snapshotter.
func (r *remote) Snapshot(ctx context.Context, dir string, _ driver.SnapshotOptions) (driver.SnapshotInfo, error) {
	select {
	case <-r.done:
		return driver.SnapshotInfo{}, &carrel.Error{Op: opSnap, Kind: carrel.Unavailable, ID: r.id, Err: errors.New("it has ended")}
	default:
	}
	return newSnapshot(ctx, r.id, dir, func(f *os.File) (driver.SnapshotInfo, error) {
		fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			return driver.SnapshotInfo{}, &carrel.Error{Op: opSnap, Kind: carrel.Internal, ID: r.id, Err: os.NewSyscallError("dup", err)}
		}
		got, err := r.ask(ctx, opSnap, message{Op: opSnapshot, files: []*os.File{os.NewFile(uintptr(fd), "snapshot")}})
		if err != nil || got.Info == nil {
			return driver.SnapshotInfo{}, err
		}
		return *got.Info, nil
	})
}

// Wait implements driver.Instance.
func (r *remote) Wait(ctx context.Context) (driver.Exit, error) {
	select {
	case <-r.done:
		return r.exit, nil
	case <-ctx.Done():
		return driver.Exit{}, &carrel.Error{Op: "wait for sandbox", Kind: carrel.TimedOut, ID: r.id, Err: ctx.Err()}
	}
}

// Destroy implements driver.Instance.
func (r *remote) Destroy(ctx context.Context) error {
	_, err := r.ask(ctx, "destroy sandbox", message{Op: opDestroy})
	switch carrel.KindOf(err) {
	case "", carrel.NotFound: // NotFound: another call destroyed it, or its worker ended
	case carrel.Unavailable:
		select {
		case <-r.crew.gone:
		case <-ctx.Done():
			return err
		}
	default:
		return err
	}
	r.crew.forget(r)
	r.end(driver.Exit{Reason: carrel.EndKilled, Message: "destroyed on request", Time: time.Now()})
	return nil
}

// end marks the sandbox's end and closes its connections to the daemon.
func (r *remote) end(e driver.Exit) {
	r.once.Do(func() {
		r.mu.Lock()
		r.ended = true
		links, conns := r.links, r.conns
		r.links, r.conns = nil, nil
		r.mu.Unlock()
		for l := range links {
			_ = l.Close()
		}
		for c := range conns {
			_ = c.Close()
		}
		r.local.Wait()
		r.exit = e
		close(r.done)
	})
	<-r.done
}

// keep records a link, which end closes. It returns false after the end. A new link replaces the
// old one.
func (r *remote) keep(l driver.Link) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return false
	}
	r.links = map[driver.Link]struct{}{l: {}} // Attach has closed the earlier one
	return true
}

// serve runs fn, which serves a connection to the host. It returns false after the end, or when
// there are already most connections of this sort.
func (r *remote) serve(fn func(), c net.Conn, sort *int, most int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended || *sort >= most {
		return false
	}
	if r.conns == nil {
		r.conns = map[net.Conn]struct{}{}
	}
	r.conns[c] = struct{}{}
	*sort++
	r.local.Go(func() {
		fn()
		_ = c.Close()
		r.mu.Lock()
		delete(r.conns, c)
		*sort--
		r.mu.Unlock()
	})
	return true
}
