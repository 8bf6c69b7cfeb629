package interp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// host gives the programs of package tool access to the process of a runner.
type host struct {
	r   *runner
	env []string
}

var _ tool.Host = (*host)(nil)

// runCommand runs a program of package tool.
func (r *runner) runCommand(run tool.Command, args, env []string) int {
	r.execing = false // the program has replaced the shell: a program that it runs is its child
	return run(&tool.Call{Host: &host{r, env}, Ctx: r.ctx, Name: args[0], Args: args[1:],
		In: fdReader{r.ctx, r.fds.get(0)}, Out: fdWriter{r, 1}, Err: fdWriter{r, 2}})
}

func (h *host) FS() vfs.View               { return h.r.view }
func (h *host) Dir() string                { return h.r.dir }
func (h *host) Abs(name string) string     { return h.r.abs(name) }
func (h *host) Umask() fs.FileMode         { return fs.FileMode(h.r.umask) }
func (h *host) Environ() []string          { return slices.Clone(h.env) }
func (h *host) Now() time.Time             { return h.r.m.now() }
func (h *host) Sleep(d time.Duration) bool { return h.r.nap(d) }
func (h *host) Machine() tool.Machine      { return machine{h.r.m} }
func (h *host) HTTP() tool.HTTP            { return h.r.m.http }
func (h *host) Random(b []byte)            { h.r.m.Random(b) }
func (h *host) Step(n int) bool            { return h.r.stepN(n) }
func (h *host) Terminal(n int) (int, int, bool) {
	t := h.r.ttyOf(n)
	if t == nil {
		return 0, 0, false
	}
	cols, rows := t.Size()
	return int(cols), int(rows), true
}

func (h *host) Getenv(name string) string {
	for _, kv := range slices.Backward(h.env) {
		if value, ok := strings.CutPrefix(kv, name+"="); ok {
			return value
		}
	}
	return ""
}

func (h *host) Pay(n int64) error {
	h.r.pay(int(n))
	if h.r.flow != flowNone {
		return syscall.ENOMEM
	}
	return nil
}

func (h *host) Open(name string, flags vfs.Flags, perm fs.FileMode) (tool.File, error) {
	d, err := h.r.openFile(name, flags)
	if err != nil {
		return nil, err
	}
	if perm != 0 && perm != 0o666 {
		if f, ok := d.stream.(fileStream); ok && flags&vfs.CreateNew != 0 {
			if i, serr := f.f.Stat(); serr == nil && i.Size == 0 {
				_ = h.r.view.Chmod(h.r.abs(name), perm&^fs.FileMode(h.r.umask)) // its own new file
			}
		}
	}
	return openFile{h.r.ctx, d}, nil
}

// openFile gives a program access to an open file description.
type openFile struct {
	ctx context.Context
	d   *desc
}

func (f openFile) Read(b []byte) (int, error)  { return f.d.Read(f.ctx, b) }
func (f openFile) Write(b []byte) (int, error) { return f.d.Write(f.ctx, b) }
func (f openFile) Close() error                { f.d.drop(); return nil }

func (f openFile) Seek(offset int64, whence int) (int64, error) {
	if s, ok := f.d.stream.(fileStream); ok {
		return s.f.Seek(offset, whence)
	}
	return 0, syscall.ESPIPE
}

func (f openFile) Stat() (vfs.Info, error) {
	if s, ok := f.d.stream.(fileStream); ok {
		return s.f.Stat()
	}
	return vfs.Info{Mode: fs.ModeNamedPipe | 0o600, Links: 1}, nil
}

func (f openFile) Truncate(size int64) error {
	if s, ok := f.d.stream.(fileStream); ok {
		return s.f.Truncate(size)
	}
	return syscall.EINVAL
}

// readerStream and writerStream make a program's own streams usable by a child.
type readerStream struct{ io.Reader }

func (s readerStream) Read(_ context.Context, b []byte) (int, error) { return s.Reader.Read(b) }
func (readerStream) Write(context.Context, []byte) (int, error)      { return 0, syscall.EBADF }
func (readerStream) Close() error                                    { return nil }

type writerStream struct{ io.Writer }

func (writerStream) Read(context.Context, []byte) (int, error)        { return 0, syscall.EBADF }
func (s writerStream) Write(_ context.Context, b []byte) (int, error) { return s.Writer.Write(b) }
func (writerStream) Close() error                                     { return nil }

// Pipe implements tool.Host.
func (h *host) Pipe() (r, w tool.File) {
	p := NewPipe()
	return openFile{h.r.ctx, newDesc(readEnd{p})}, openFile{h.r.ctx, newDesc(writeEnd{p})}
}

// child makes the process for a tool.Child.
func (h *host) child(c tool.Child, sync bool) (*runner, []string, error) {
	s, err := h.r.fork(sync)
	if err != nil {
		return nil, nil, err
	}
	if f, ok := c.In.(openFile); ok {
		s.fds.set(0, f.d.hold())
	} else if c.In != nil {
		s.fds.set(0, newDesc(readerStream{c.In}))
	}
	if f, ok := c.Out.(openFile); ok {
		s.fds.set(1, f.d.hold())
	} else if c.Out != nil {
		s.fds.set(1, newDesc(writerStream{c.Out}))
	}
	if c.Err != nil {
		s.fds.set(2, newDesc(writerStream{c.Err}))
	}
	if c.Dir != "" {
		s.dir = c.Dir
	}
	if c.User != nil {
		s.view = s.m.fs.As(*c.User).For(s)
	}
	env := c.Env
	if env == nil {
		env = h.env
	}
	s.p.is(c.Args, s.cred().UID)
	return s, env, nil
}

// Run implements tool.Host.
func (h *host) Run(c tool.Child) int {
	if c.In == nil && c.Out == nil && c.Err == nil && c.Dir == "" && c.User == nil {
		env := c.Env
		if env == nil {
			env = h.env
		}
		return h.r.runTool(c.Args, func() []string { return env })
	}
	s, env, err := h.child(c, true)
	if err != nil {
		h.r.forkFailed(err)
		return 254
	}
	s.status = s.runTool(c.Args, func() []string { return env })
	s.end(s.status)
	return s.p.code
}

// Start implements tool.Host.
func (h *host) Start(c tool.Child) (tool.Process, error) {
	s, env, err := h.child(c, false)
	if err != nil {
		return nil, fmt.Errorf("fork: %w", err)
	}
	h.r.m.work(s.p, func() {
		s.contain(func() { s.status = s.runTool(c.Args, func() []string { return env }) })
		s.end(s.status)
	})
	return started{s.p, h.r}, nil
}

// started is a running child.
type started struct {
	p *proc
	r *runner // of the starter
}

func (s started) PID() int              { return s.p.pid }
func (s started) Signal(sig int)        { s.p.deliver(sig) }
func (s started) Done() <-chan struct{} { return s.p.done }

// Ended implements tool.Process.
func (s started) Ended(within time.Duration) bool {
	if within == 0 || s.p.ended() {
		return s.p.ended()
	}
	ctx := s.r.ctx
	if within > 0 {
		var cancel context.CancelFunc
		ctx, cancel = s.r.m.deadline(ctx, within)
		defer cancel()
	}
	s.r.m.pause(ctx, s.p.done)
	return s.p.ended()
}

func (s started) Wait() (status, signal int) {
	s.p.m.await(s.r.p, s.p)
	return s.p.code, s.p.signum
}

// machine gives programs access to the computer.
type machine struct{ m *Machine }

func (m machine) Hostname() string           { return m.m.Hostname() }
func (m machine) SetHostname(name string)    { m.m.SetHostname(name) }
func (m machine) CPUs() int                  { return m.m.cpus }
func (m machine) Memory() (int64, int64)     { return m.m.mem.Load(), m.m.limits.Memory }
func (m machine) Started() time.Time         { return m.m.started }
func (m machine) UserName(uid uint32) string { return m.m.UserName(uid) }
func (m machine) GroupName(g uint32) string  { return m.m.GroupName(g) }
func (m machine) Kill(pid, sig int, uid uint32) error {
	return m.m.signal(pid, sig, uid)
}

func (m machine) User(name string) (tool.Account, bool) {
	for _, a := range m.m.Accounts() {
		if a.Name == name {
			return tool.Account(a), true
		}
	}
	return tool.Account{}, false
}

func (m machine) Processes() []tool.ProcessInfo {
	var out []tool.ProcessInfo
	for _, p := range m.m.table() {
		args, uid := p.who()
		out = append(out, tool.ProcessInfo{PID: p.pid, PPID: p.ppid, PGID: p.pgid, UID: uid, Args: args, Started: p.started, TTY: p.tree.tty != nil})
	}
	return out
}

func (m machine) Commands() []string {
	return m.m.names()
}

func (m machine) Token(ctx context.Context, name, audience string) (string, error) {
	if m.m.token == nil {
		return "", errors.New("this machine has no host to ask")
	}
	return m.m.token(ctx, name, audience)
}
