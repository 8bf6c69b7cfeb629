package service

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/guest"
)

// Computer implements carrel.Sandboxes. The result is valid for the sandbox's whole life. Each use
// of it is a visit of its own, and wakes a sandbox that has automatic wake-up.
func (m *moments) Computer(ctx context.Context, id carrel.ID) (carrel.Computer, error) {
	_, _, done, err := m.visit(ctx, id, false)
	if err != nil {
		return nil, err
	}
	done()
	return &computer{moments: m, id: id}, nil
}

// computer gives access to the inside of a sandbox. Each use goes to the instance that the sandbox
// has at that time.
type computer struct {
	moments *moments
	id      carrel.ID
}

// visit runs fn with a connection to the guest.
func visit[T any](ctx context.Context, c *computer, fn func(*guest.Conn) (T, error)) (T, error) {
	conn, done, err := c.moments.Visit(ctx, c.id)
	if err != nil {
		var none T
		return none, err
	}
	defer done()
	return fn(conn)
}

// Run implements carrel.Computer.
func (c *computer) Run(ctx context.Context, cmd carrel.Command) (*carrel.Result, error) {
	return visit(ctx, c, func(g *guest.Conn) (*carrel.Result, error) { return g.Run(ctx, cmd) })
}

// Start implements carrel.Computer.
func (c *computer) Start(ctx context.Context, cmd carrel.Command) (carrel.Process, error) {
	return c.process(ctx, func(g *guest.Conn) (carrel.Process, error) { return g.Start(ctx, cmd) })
}

// Attach implements carrel.Computer.
func (c *computer) Attach(ctx context.Context, pid int, stdout, stderr io.Writer) (carrel.Process, error) {
	return c.process(ctx, func(g *guest.Conn) (carrel.Process, error) { return g.Attach(ctx, pid, stdout, stderr) })
}

// process opens a connection to a process. The visit ends when the connection is closed.
func (c *computer) process(ctx context.Context, open func(*guest.Conn) (carrel.Process, error)) (carrel.Process, error) {
	conn, done, err := c.moments.Visit(ctx, c.id)
	if err != nil {
		return nil, err
	}
	p, err := open(conn)
	if err != nil {
		done()
		return nil, err
	}
	return &process{Process: p, done: done}, nil
}

// process is a carrel.Process that counts as a visit until it is closed or the process has ended.
type process struct {
	carrel.Process
	done func()
}

// Wait implements carrel.Process.
func (p *process) Wait(ctx context.Context) (*carrel.Result, error) {
	res, err := p.Process.Wait(ctx)
	if ctx.Err() == nil { // the process or its connection has ended
		p.done()
	}
	return res, err
}

// Close implements carrel.Process.
func (p *process) Close() error {
	defer p.done()
	return p.Process.Close()
}

// Processes implements carrel.Computer.
func (c *computer) Processes(ctx context.Context) ([]carrel.ProcessInfo, error) {
	return visit(ctx, c, func(g *guest.Conn) ([]carrel.ProcessInfo, error) { return g.Processes(ctx) })
}

// Listen implements carrel.Computer. The visit lasts until the listener is closed.
func (c *computer) Listen(ctx context.Context, port uint16) (net.Listener, error) {
	conn, done, err := c.moments.Visit(ctx, c.id)
	if err != nil {
		return nil, err
	}
	l, err := conn.Listen(ctx, port)
	if err != nil {
		done()
		return nil, err
	}
	return &visitListener{Listener: l, done: sync.OnceFunc(done)}, nil
}

// visitListener is a listener that is a visit until it is closed.
type visitListener struct {
	net.Listener
	done func()
}

func (v *visitListener) Close() error {
	defer v.done()
	return v.Listener.Close()
}

// Records implements carrel.KeptOutput.
func (c *computer) Records(ctx context.Context) ([]carrel.ProcessRecord, error) {
	return visit(ctx, c, func(g *guest.Conn) ([]carrel.ProcessRecord, error) { return g.Records(ctx) })
}

// Output implements carrel.KeptOutput.
func (c *computer) Output(ctx context.Context, q carrel.OutputQuery) (carrel.ProcessOutput, error) {
	return visit(ctx, c, func(g *guest.Conn) (carrel.ProcessOutput, error) { return g.Output(ctx, q) })
}

// Dial implements carrel.Computer.
func (c *computer) Dial(ctx context.Context, port uint16) (net.Conn, error) {
	conn, done, err := c.moments.Visit(ctx, c.id)
	if err != nil {
		return nil, err
	}
	nc, err := conn.Dial(ctx, port)
	if err != nil {
		done()
		return nil, err
	}
	return &visitConn{Conn: nc, done: done}, nil
}

// visitConn is a connection that counts as a visit until it is closed.
type visitConn struct {
	net.Conn
	done func()
}

func (v *visitConn) Close() error {
	defer v.done()
	return v.Conn.Close()
}

// CloseWrite ends the stream towards the port. The other direction stays open.
func (v *visitConn) CloseWrite() error {
	if half, ok := v.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// Files implements carrel.Computer.
func (c *computer) Files(user string) carrel.Files { return &files{c, user} }

// files is the filesystem of a sandbox. Each use goes to the instance that the sandbox has at that
// time.
type files struct {
	c    *computer
	user string
}

// Read implements carrel.Files. The visit lasts until the file is closed.
func (f *files) Read(ctx context.Context, name string) (io.ReadCloser, error) {
	conn, done, err := f.c.moments.Visit(ctx, f.c.id)
	if err != nil {
		return nil, err
	}
	r, err := conn.Files(f.user).Read(ctx, name)
	if err != nil {
		done()
		return nil, err
	}
	return &visitReader{ReadCloser: r, done: done}, nil
}

// visitReader is an open file that counts as a visit until it is closed.
type visitReader struct {
	io.ReadCloser
	done func()
}

func (v *visitReader) Close() error {
	defer v.done()
	return v.ReadCloser.Close()
}

// Write implements carrel.Files.
func (f *files) Write(ctx context.Context, name string, r io.Reader) (carrel.FileInfo, error) {
	return visit(ctx, f.c, func(g *guest.Conn) (carrel.FileInfo, error) { return g.Files(f.user).Write(ctx, name, r) })
}

// Stat implements carrel.Files.
func (f *files) Stat(ctx context.Context, name string) (carrel.FileInfo, error) {
	return visit(ctx, f.c, func(g *guest.Conn) (carrel.FileInfo, error) { return g.Files(f.user).Stat(ctx, name) })
}

// List implements carrel.Files.
func (f *files) List(ctx context.Context, name string, depth int) ([]carrel.FileInfo, error) {
	return visit(ctx, f.c, func(g *guest.Conn) ([]carrel.FileInfo, error) { return g.Files(f.user).List(ctx, name, depth) })
}

// MakeDir implements carrel.Files.
func (f *files) MakeDir(ctx context.Context, name string) error {
	return f.do(ctx, func(fs carrel.Files) error { return fs.MakeDir(ctx, name) })
}

// Move implements carrel.Files.
func (f *files) Move(ctx context.Context, from, to string) error {
	return f.do(ctx, func(fs carrel.Files) error { return fs.Move(ctx, from, to) })
}

// Remove implements carrel.Files.
func (f *files) Remove(ctx context.Context, name string) error {
	return f.do(ctx, func(fs carrel.Files) error { return fs.Remove(ctx, name) })
}

// Watch implements carrel.Files.
func (f *files) Watch(ctx context.Context, name string, recursive bool, fn func(carrel.FileEvent)) error {
	return f.do(ctx, func(fs carrel.Files) error { return fs.Watch(ctx, name, recursive, fn) })
}

// do is visit for functions that return only an error.
func (f *files) do(ctx context.Context, fn func(carrel.Files) error) error {
	_, err := visit(ctx, f.c, func(g *guest.Conn) (struct{}, error) { return struct{}{}, fn(g.Files(f.user)) })
	return err
}
