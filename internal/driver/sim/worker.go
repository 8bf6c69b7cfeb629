package sim

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/linux/cell"
	"github.com/carrel-dev/carrel/internal/reexec"
)

// workerName is the name of a worker's part.
const workerName = "carrel-sim"

// lineFD is the worker's end of the line.
const lineFD = 3

// Parts returns the parts of this driver for [reexec.Run]. inside makes the sandboxes' ends of
// their links, as for [LinkBy].
func Parts(inside func(fd *os.File, mtu int) (Inside, error)) reexec.Parts {
	return reexec.Parts{workerName: func() {
		if err := work(inside); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}}
}

// worker is a process that holds only simulated sandboxes.
type worker struct {
	driver *Driver
	line   *line
	inside func(fd *os.File, mtu int) (Inside, error)

	mu        sync.Mutex
	sandboxes map[carrel.ID]*instance
}

// work is the whole run of a worker. It reads the files that it needs of the host, gives up all
// rights, and serves until the daemon has gone.
func work(inside func(fd *os.File, mtu int) (Inside, error)) error {
	time.Local = time.UTC // else its first use reads the host's time zone file
	memory, err := strconv.ParseUint(os.Args[1], 10, 64)
	if err != nil {
		return fmt.Errorf("memory limit: %w", err)
	}
	w := &worker{inside: inside, sandboxes: map[carrel.ID]*instance{}}
	roots, err := x509.SystemCertPool()
	if err == nil {
		roots = loaded(roots)
	}
	w.driver = New(Options{Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
		Local: w.local, Link: w.link, Roots: roots})
	if _, err := w.driver.template(); err != nil {
		return err
	}
	if w.line, err = newLine(os.NewFile(lineFD, "line")); err != nil {
		return err
	}
	if err := cell.Enter(cell.Limits{Memory: memory}); err != nil {
		return err
	}
	debug.SetMemoryLimit(int64(memory / 8 * 7))
	_ = w.line.serve(w.handle) // until the daemon has gone
	return nil
}

// loaded makes a pool read now the files that it would read later.
func loaded(pool *x509.CertPool) *x509.CertPool {
	c := pool.Clone()
	_ = c.Equal(x509.NewCertPool())
	return c
}

// handle serves one request of the daemon.
func (w *worker) handle(ctx context.Context, m message) message {
	defer func() { closeFiles(m.files) }()
	switch m.Op {
	case opCreate, opLoad:
		return message{Failed: failed(w.create(ctx, m))}
	case opFiles:
		return message{Failed: failed(w.files(ctx, &m))}
	}
	i := w.find(m.Sandbox)
	if i == nil {
		return message{Failed: failed(&carrel.Error{Op: m.Op, Kind: carrel.NotFound, ID: m.Sandbox, Err: errors.New("it has ended")})}
	}
	switch m.Op {
	case opDial:
		return message{Failed: failed(i.accept(ctx, &m))}
	case opStats:
		s, err := i.Stats(ctx)
		return message{Stats: &s, Failed: failed(err)}
	case opDestroy:
		err := i.Destroy(context.Background())
		w.forget(i)
		return message{Failed: failed(err)}
	case opPrograms:
		return message{Failed: failed(w.setPrograms(m.Sandbox, m.Names))}
	case opSnapshot:
		if len(m.files) != 1 {
			return message{Failed: failed(errors.New("no file for the snapshot"))}
		}
		info, err := i.snapshot(ctx, m.files[0])
		return message{Info: &info, Failed: failed(err)}
	}
	return message{Failed: failed(fmt.Errorf("unknown operation %q", m.Op))}
}

func (w *worker) find(id carrel.ID) *instance {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sandboxes[id]
}

// forget removes a sandbox, with its programs, from the books.
func (w *worker) forget(i *instance) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.sandboxes[i.id] == i {
		delete(w.sandboxes, i.id)
		_ = w.setPrograms(i.id, nil) // it adds none, so it can't fail
	}
}

// create makes a sandbox, fresh or from a snapshot.
func (w *worker) create(ctx context.Context, m message) error {
	if m.Spec == nil {
		return errors.New("no spec")
	}
	var in driver.Instance
	err := w.setPrograms(m.Spec.ID, m.Names) // there is no disk yet: attach writes their files later
	if err != nil {
		return err
	}
	if m.Op == opCreate {
		in, err = w.driver.Create(ctx, *m.Spec)
	} else if len(m.files) == 1 {
		in, err = w.driver.restore(ctx, m.files[0], *m.Spec)
	} else {
		err = errors.New("no snapshot")
	}
	if err != nil {
		_ = w.setPrograms(m.Spec.ID, nil)
		return err
	}
	w.mu.Lock()
	w.sandboxes[m.Spec.ID] = in.(*instance)
	w.mu.Unlock()
	return nil
}

// files writes a snapshot's files as a tar stream.
func (w *worker) files(ctx context.Context, m *message) error {
	if m.Spec == nil || len(m.files) != 2 {
		return errors.New("no snapshot")
	}
	files, template, err := w.driver.load(ctx, m.files[0], *m.Spec)
	if err != nil {
		return err
	}
	out := m.files[1]
	m.files = m.files[:1]
	go func() { // the answer reports the start; streamEnd reports completeness
		defer out.Close()
		stream := newTarStream(files.Delta(template))
		defer stream.Close()
		if _, err := io.Copy(out, stream); err == nil {
			_, _ = io.WriteString(out, streamEnd) // a reader that has gone needs no mark
		}
	}()
	return nil
}

// accept hands a connection to a sandbox's guest or code interpreter.
func (i *instance) accept(ctx context.Context, m *message) error {
	if len(m.files) != 1 {
		return errors.New("no connection")
	}
	link, err := i.door(m.Port)
	if err != nil {
		return err
	}
	c, err := fileConn(m.files[0])
	if err != nil {
		return err
	}
	served := hostConn{UnixConn: c}
	letGo := link.hold(c)
	served.closed = letGo
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := link.give(ctx, &served); err != nil {
		_ = served.Close()
		return err
	}
	return nil
}

// fileConn makes a connection from a socket's file. The file stays open.
func fileConn(f *os.File) (*net.UnixConn, error) {
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		_ = c.Close()
		return nil, errors.New("no unix socket")
	}
	return u, nil
}

// hostConn is a connection from the daemon. The guest trusts it.
type hostConn struct {
	*net.UnixConn
	closed func()
	once   sync.Once
}

// RemoteAddr returns the daemon's address.
func (c *hostConn) RemoteAddr() net.Addr { return hostAddr }

// Close closes it.
func (c *hostConn) Close() error {
	c.once.Do(c.closed)
	return c.UnixConn.Close()
}

// socketPair makes a connection. One end is for another process.
func socketPair() (mine *net.UnixConn, theirs *os.File, err error) {
	a, b, err := streamPair()
	if err != nil {
		return nil, nil, err
	}
	defer a.Close()
	if mine, err = fileConn(a); err != nil {
		_ = b.Close()
		return nil, nil, err
	}
	return mine, b, nil
}

// local asks the daemon to serve a sandbox's request to its host.
func (w *worker) local(id carrel.ID, c net.Conn) {
	mine, theirs, err := socketPair()
	if err != nil {
		return
	}
	defer mine.Close()
	if _, err := w.line.ask(nil, message{Op: opLocal, Sandbox: id, files: []*os.File{theirs}}); err != nil {
		return
	}
	var both sync.WaitGroup
	both.Go(func() {
		_, _ = io.Copy(mine, c) // an error ends both directions
		_ = mine.CloseWrite()
	})
	_, _ = io.Copy(c, mine)
	_ = c.Close()
	_ = mine.Close()
	both.Wait()
}

// link asks the daemon to attach a sandbox's link.
func (w *worker) link(ctx context.Context, id carrel.ID) (Inside, error) {
	host, mine, err := linkPair()
	if err != nil {
		return nil, err
	}
	in, err := w.inside(mine, linkMTU)
	if err != nil {
		_ = host.Close()
		return nil, err
	}
	if _, err := w.line.ask(ctx.Done(), message{Op: opLink, Sandbox: id, files: []*os.File{host}}); err != nil {
		_ = in.Close()
		return nil, err
	}
	return in, nil
}
