package sim

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/linux/cell"
	"github.com/carrel-dev/carrel/internal/reexec"
)

// PoolOptions configures a [Pool].
type PoolOptions struct {
	// Logger takes errors; nil discards them.
	Logger *slog.Logger
	// Local serves the requests of a sandbox's guest to its host, see Options.Local.
	Local func(id carrel.ID, c net.Conn)
	// Network makes the daemon's ends of links. If it is nil, there is no way out.
	Network driver.Network
	// Workers is the largest number of processes; 0 is one for each processor.
	Workers int
	// MemoryMB bounds the memory of each process; 0 is half of the host's.
	MemoryMB int
	// UID is the processes' host user, if this process is root; 0 is 2000500000.
	UID int
}

// Pool makes simulated sandboxes in worker processes, each in an empty place with no rights
// (package cell). If a script finds a fault in the interpreter, or in a library below it, it does
// not reach the daemon.
type Pool struct {
	opts     PoolOptions
	programs *programs // from the owners; their files are in the workers

	mu      sync.Mutex
	closed  bool
	workers []*crew
	running sync.WaitGroup
}

var (
	_ driver.Driver   = (*Pool)(nil)
	_ driver.Restorer = (*Pool)(nil)
	_ driver.Reporter = (*Pool)(nil)
)

// crew is the daemon's view of a worker.
type crew struct {
	pool *Pool
	line *line
	cmd  *exec.Cmd
	said *tail
	gone chan struct{} // closed when it has ended

	sandboxes map[carrel.ID]*remote // guarded by Pool.mu
	why       string                // how it ended; valid after gone is closed
}

// NewPool returns the driver. It starts a worker with the first sandbox. Error: Unsupported when
// the program's main does not call reexec.Run.
func NewPool(o PoolOptions) (*Pool, error) {
	if !reexec.Ready() {
		return nil, &carrel.Error{Op: "open sim driver", Kind: carrel.Unsupported, Err: errors.New("this program's main does not call reexec.Run")}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Workers <= 0 {
		o.Workers = runtime.NumCPU()
	}
	if o.MemoryMB <= 0 {
		var info unix.Sysinfo_t
		if err := unix.Sysinfo(&info); err != nil {
			return nil, &carrel.Error{Op: "open sim driver", Kind: carrel.Internal, Err: os.NewSyscallError("sysinfo", err)}
		}
		o.MemoryMB = int(info.Totalram * uint64(info.Unit) >> 21)
	}
	if o.UID == 0 {
		o.UID = 2000500000
	}
	if os.Geteuid() != 0 {
		o.UID = os.Geteuid()
	}
	return &Pool{opts: o, programs: newPrograms(nil)}, nil
}

// Info implements driver.Driver.
func (p *Pool) Info() driver.Info { return (*Driver)(nil).Info() }

// Probe implements driver.Driver. It starts a worker, which then serves the first sandbox.
func (p *Pool) Probe(context.Context) error {
	_, err := p.pick()
	return err
}

// Report implements driver.Reporter.
func (p *Pool) Report(ctx context.Context) []driver.Finding { return nil }

// Recover implements driver.Driver. A worker ends with its daemon, so no sandbox can be recovered.
func (p *Pool) Recover(ctx context.Context, h driver.Handle) (driver.Instance, error) {
	return (*Driver)(nil).Recover(ctx, h)
}

// start starts a worker.
func (p *Pool) start() (*crew, error) {
	const op = "start a worker of simulated sandboxes"
	fail := func(err error) (*crew, error) {
		return nil, &carrel.Error{Op: op, Kind: carrel.Unsupported, Err: err,
			Hint: "user namespaces are needed: sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns"}
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fail(os.NewSyscallError("socketpair", err))
	}
	theirs := os.NewFile(uintptr(fds[1]), "line")
	defer theirs.Close()
	l, err := newLine(os.NewFile(uintptr(fds[0]), "line"))
	if err != nil {
		return fail(err)
	}
	c := &crew{pool: p, line: l, said: &tail{}, gone: make(chan struct{}), sandboxes: map[carrel.ID]*remote{}}
	c.cmd = exec.Command("/proc/self/exe")
	c.cmd.Args = []string{workerName, strconv.Itoa(p.opts.MemoryMB << 20)}
	c.cmd.Env = []string{"GOTRACEBACK=single"}
	c.cmd.ExtraFiles = []*os.File{theirs}
	c.cmd.Stderr = c.said
	if err := cell.Start(c.cmd, p.opts.UID); err != nil {
		l.hangUp(err)
		return fail(err)
	}
	p.running.Go(c.run)
	return c, nil
}

// run serves a worker until it ends.
func (c *crew) run() {
	_ = c.line.serve(c.handle) // the line breaks when the worker or the pool ends
	_ = c.cmd.Process.Kill()   // perhaps only the line broke
	err := c.cmd.Wait()
	p := c.pool
	c.why = "its worker process ended"
	if words := c.said.String(); words != "" {
		c.why += ": " + words
	} else if err != nil {
		c.why += ": " + err.Error()
	}
	p.mu.Lock()
	p.workers = slices.DeleteFunc(p.workers, func(o *crew) bool { return o == c })
	left, closed := c.sandboxes, p.closed
	c.sandboxes = nil
	p.mu.Unlock()
	close(c.gone)
	for _, r := range left {
		r.end(driver.Exit{Reason: carrel.EndCrashed, Message: c.why, Time: time.Now()})
	}
	if !closed {
		p.opts.Logger.Error("a worker of simulated sandboxes has ended", "why", c.why, "sandboxes", len(left))
	}
}

// tail keeps the first and the last part of a worker's output.
type tail struct {
	mu    sync.Mutex
	first bytes.Buffer
}

// Write implements io.Writer.
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	const most = 4 << 10
	t.first.Write(b[:min(len(b), max(most-t.first.Len(), 0))])
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(t.first.String())
}

// pick returns the worker for a new sandbox. While there may be more workers it returns a new one,
// else the one with the fewest sandboxes.
func (p *Pool) pick() (*crew, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, &carrel.Error{Op: "create simulated sandbox", Kind: carrel.Unavailable, Err: net.ErrClosed}
	}
	least := p.leastBusy()
	if least != nil && (len(least.sandboxes) == 0 || len(p.workers) >= p.opts.Workers) {
		return least, nil
	}
	c, err := p.start()
	if err != nil {
		if least != nil {
			return least, nil
		}
		return nil, err
	}
	p.workers = append(p.workers, c)
	return c, nil
}

func (p *Pool) leastBusy() *crew {
	if len(p.workers) == 0 {
		return nil
	}
	return slices.MinFunc(p.workers, func(a, b *crew) int { return cmp.Compare(len(a.sandboxes), len(b.sandboxes)) })
}

// Create implements driver.Driver.
func (p *Pool) Create(ctx context.Context, spec driver.Spec) (driver.Instance, error) {
	return p.make(ctx, message{Op: opCreate, Spec: &spec})
}

// make makes a sandbox in a worker.
func (p *Pool) make(ctx context.Context, m message) (driver.Instance, error) {
	spec := m.Spec
	fail := func(kind carrel.Kind, err error) (driver.Instance, error) {
		return nil, &carrel.Error{Op: "create simulated sandbox", Kind: kind, ID: spec.ID, Err: err}
	}
	if err := ctx.Err(); err != nil {
		closeFiles(m.files)
		return fail(carrel.Unavailable, err)
	}
	h, err := json.Marshal(handle{Version: 1, Driver: "sim", ID: spec.ID})
	if err != nil {
		closeFiles(m.files)
		return fail(carrel.Internal, err)
	}
	c, err := p.pick()
	if err != nil {
		closeFiles(m.files)
		return nil, err
	}
	r := &remote{id: spec.ID, handle: h, crew: c, done: make(chan struct{}), links: map[driver.Link]struct{}{}}
	p.mu.Lock()
	if c.sandboxes == nil {
		p.mu.Unlock()
		closeFiles(m.files)
		return fail(carrel.Unavailable, errGone)
	}
	c.sandboxes[spec.ID] = r
	r.provided.Lock() // Provide waits until the worker has the sandbox
	p.mu.Unlock()
	defer r.provided.Unlock()
	m.Names = p.programs.names(spec.ID)
	if _, err := c.line.ask(ctx.Done(), m); err != nil {
		if errors.Is(err, errAway) {
			go func() { _ = r.Destroy(context.Background()) }() // it may be made yet
			return fail(carrel.TimedOut, context.Cause(ctx))
		}
		c.forget(r)
		if errors.Is(err, errGone) {
			<-c.gone
			return fail(carrel.Unavailable, errors.New(c.why))
		}
		return nil, err
	}
	return r, nil
}

// forget removes a sandbox from the books.
func (c *crew) forget(r *remote) {
	c.pool.mu.Lock()
	defer c.pool.mu.Unlock()
	if c.sandboxes[r.id] == r {
		delete(c.sandboxes, r.id)
	}
}

// handle serves a worker's request. The worker may have been taken over. It gets only rights that
// its sandboxes have.
func (c *crew) handle(ctx context.Context, m message) message {
	defer closeFiles(m.files)
	c.pool.mu.Lock()
	r := c.sandboxes[m.Sandbox]
	c.pool.mu.Unlock()
	if r == nil || len(m.files) != 1 {
		return message{Failed: failed(errors.New("no such sandbox"))}
	}
	switch m.Op {
	case opLocal:
		if c.pool.opts.Local == nil {
			return message{Failed: failed(refused("dial host", r.id, unix.ECONNREFUSED))}
		}
		conn, err := fileConn(m.files[0])
		if err != nil {
			return message{Failed: failed(err)}
		}
		if !r.serve(func() { c.pool.opts.Local(r.id, conn) }, conn, &r.dials, maxLocal) {
			_ = conn.Close()
			return message{Failed: failed(refused("dial host", r.id, unix.ECONNREFUSED))}
		}
	case opRun:
		conn, err := fileConn(m.files[0])
		if err != nil {
			return message{Failed: failed(err)}
		}
		if err := r.call(conn, m.Name); err != nil {
			_ = conn.Close()
			return message{Failed: failed(err)}
		}
	case opLink:
		if c.pool.opts.Network == nil {
			return message{Failed: failed(refused("attach link", r.id, unix.ENETUNREACH))}
		}
		// Attach owns its file, so give it a copy.
		fd, err := unix.FcntlInt(m.files[0].Fd(), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			return message{Failed: failed(os.NewSyscallError("dup", err))}
		}
		l, err := c.pool.opts.Network.Attach(ctx, driver.LinkSpec{ID: r.id, MTU: linkMTU}, os.NewFile(uintptr(fd), "link"))
		if err != nil {
			return message{Failed: failed(err)}
		}
		if !r.keep(l) {
			_ = l.Close()
			return message{Failed: failed(refused("attach link", r.id, unix.ENETUNREACH))}
		}
	default:
		return message{Failed: failed(fmt.Errorf("unknown operation %q", m.Op))}
	}
	return message{}
}

// CanRestore implements driver.Restorer.
func (p *Pool) CanRestore(info driver.SnapshotInfo, _ driver.RestoreOptions) error {
	return canRestore(info)
}

// Restore implements driver.Restorer. Only the worker reads the snapshot.
func (p *Pool) Restore(ctx context.Context, dir string, info driver.SnapshotInfo, spec driver.Spec, _ driver.RestoreOptions) (driver.Instance, error) {
	if err := canRestore(info); err != nil {
		return nil, err
	}
	f, err := openSnapshot(dir)
	if err != nil {
		return nil, err
	}
	return p.make(ctx, message{Op: opLoad, Spec: &spec, files: []*os.File{f}})
}

// SnapshotFiles implements driver.Restorer.
func (p *Pool) SnapshotFiles(ctx context.Context, dir string, info driver.SnapshotInfo, spec driver.Spec) (io.ReadCloser, error) {
	if err := canRestore(info); err != nil {
		return nil, err
	}
	f, err := openSnapshot(dir)
	if err != nil {
		return nil, err
	}
	c, err := p.pick()
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	out, theirs, err := os.Pipe()
	if err != nil {
		_ = f.Close()
		return nil, &carrel.Error{Op: opRestore, Kind: carrel.Internal, Err: err}
	}
	if _, err := c.line.ask(ctx.Done(), message{Op: opFiles, Spec: &spec, files: []*os.File{f, theirs}}); err != nil {
		_ = out.Close()
		return nil, err
	}
	return &stream{r: out}, nil
}

// streamEnd is the mark that a worker writes after a complete stream. Without it the worker ended
// before the stream was complete.
const streamEnd = "carrel: the end\n"

// stream is a worker's stream without its end mark.
type stream struct {
	r    *os.File
	held []byte // possibly a part of the mark
	over bool

	once   sync.Once
	closed atomic.Bool
	err    error
}

// Read implements io.Reader.
func (s *stream) Read(b []byte) (int, error) {
	if s.closed.Load() {
		return 0, os.ErrClosed
	}
	for !s.over && len(s.held) <= len(streamEnd) {
		buf := make([]byte, 64<<10)
		n, err := s.r.Read(buf)
		s.held = append(s.held, buf[:n]...)
		if err == io.EOF {
			s.over = true
		} else if err != nil {
			return 0, err
		}
	}
	if n := len(s.held) - len(streamEnd); n > 0 && len(b) > 0 {
		n = copy(b, s.held[:n])
		s.held = s.held[n:]
		return n, nil
	}
	switch {
	case len(b) == 0:
		return 0, nil
	case string(s.held) != streamEnd:
		return 0, &carrel.Error{Op: opRestore, Kind: carrel.Unavailable, Err: fmt.Errorf("%w on the way: %w", errGone, io.ErrUnexpectedEOF)}
	}
	return 0, io.EOF
}

// Close implements io.Closer.
func (s *stream) Close() error {
	s.once.Do(func() { s.closed.Store(true); s.err = s.r.Close() })
	return s.err
}

// Close implements driver.Driver. It ends the workers and their sandboxes.
func (p *Pool) Close() error {
	p.mu.Lock()
	p.closed = true
	workers := slices.Clone(p.workers)
	p.mu.Unlock()
	for _, c := range workers {
		c.line.hangUp(net.ErrClosed)
	}
	p.running.Wait()
	return nil
}
