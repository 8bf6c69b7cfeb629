package sim

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/guest/interpreter"
	"github.com/carrel-dev/carrel/internal/guest/interpreter/kernel"
	"github.com/carrel-dev/carrel/shell/interp"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// cells is the code interpreter of a sandbox. It starts with its first connection. Each context is
// a process of the simulated machine, so its state ends with the sandbox: snapshots hold files only.
type cells struct {
	i *instance

	mu     sync.Mutex
	closed bool
	link   *listener // nil before the first connection
	inside *interpreter.Server
	server *http.Server
	served chan struct{}
}

// open returns the interpreter's listener.
func (c *cells) open() (*listener, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return nil, net.ErrClosed
	case c.link != nil:
		return c.link, nil
	}
	log := c.i.log.With("sandbox", c.i.id)
	c.link, c.served = newListener(), make(chan struct{})
	c.inside = interpreter.New(interpreter.Config{Finder: cellFinder{c.i}, Dir: cellHome(c.i).Home,
		Environ: c.environ, Log: log})
	c.server = &http.Server{Handler: c.inside.Handler(), ReadHeaderTimeout: 10 * time.Second,
		MaxHeaderBytes: 64 << 10, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	go func() {
		defer close(c.served)
		_ = c.server.Serve(c.link) // ends with close
	}()
	return c.link, nil
}

// close ends the interpreter and its contexts.
func (c *cells) close() {
	c.mu.Lock()
	c.closed = true
	link, inside, server, served := c.link, c.inside, c.server, c.served
	c.mu.Unlock()
	if link == nil {
		return
	}
	_ = link.Close()
	_ = server.Close() // its cells are interrupted
	<-served
	inside.Close()
}

// environ asks the sandbox's guest for the environment, with the token of the interpreter's client.
func (c *cells) environ(ctx context.Context, token string) (map[string]string, error) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return c.i.link.dial(ctx) }}}
	return interpreter.Environ(ctx, client, "http://guest/envs", token)
}

const (
	// cellStart bounds the start of a kernel. The first one of a worker is compiled.
	cellStart = 2 * time.Minute
)

// cellHome is the account that cells run as: the usual user of a template, or root.
func cellHome(i *instance) interp.Account {
	all := i.machine.Accounts()
	at := slices.IndexFunc(all, func(a interp.Account) bool { return a.Name == "user" })
	if at < 0 {
		at = slices.IndexFunc(all, func(a interp.Account) bool { return a.UID == 0 })
	}
	if at < 0 {
		return interp.Account{Name: "root", Home: "/"}
	}
	return all[at]
}

// cellFinder starts kernels as processes of the simulated machine.
type cellFinder struct{ i *instance }

var _ interpreter.Finder = cellFinder{}

func (f cellFinder) view() vfs.View {
	a := cellHome(f.i)
	return f.i.machine.View(vfs.Cred{UID: a.UID, GID: a.GID})
}

// Check implements interpreter.Finder.
func (f cellFinder) Check(language string) error {
	_, err := kernel.StreamsRunner(language, "")
	return err
}

// Enter implements interpreter.Finder.
func (f cellFinder) Enter(dir string) error {
	v := f.view()
	if err := v.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return v.Access(dir, 0o1)
}

// Start implements interpreter.Finder.
func (f cellFinder) Start(ctx context.Context, o kernel.Options) (kernel.Kernel, error) {
	ctx, cancel := context.WithTimeout(ctx, cellStart)
	defer cancel()
	dir := "/tmp/.carrel-kernel-" + rand.Text()
	r, err := kernel.StreamsRunner(o.Language, dir)
	if err != nil {
		return nil, err
	}
	v := f.view()
	if err := v.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	for name, raw := range r.Files {
		if err := v.WriteFile(dir+"/"+name, raw, 0o600); err != nil {
			_ = v.RemoveAll(dir)
			return nil, err
		}
	}
	a := cellHome(f.i)
	p := &cellProgram{in: interp.NewPipe(), out: interp.NewPipe(), err: interp.NewPipe(),
		clean: func() { _ = v.RemoveAll(dir) }}
	p.p, err = f.i.machine.Start(interp.Spec{Path: r.Command[0], Args: r.Command[1:], Dir: o.Dir, UID: a.UID,
		GID: a.GID, Stdin: p.in, Out: p.out, Err: p.err,
		Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + a.Home, "USER=" + a.Name, "LANG=C.UTF-8"}})
	if err != nil {
		p.clean()
		return nil, err
	}
	return kernel.NewStreams(ctx, p, r)
}

// cellProgram is a kernel's process.
type cellProgram struct {
	p            *interp.Process
	in, out, err *interp.Pipe
	clean        func()
}

var _ kernel.Program = (*cellProgram)(nil)

func (p *cellProgram) PID() int              { return p.p.PID() }
func (p *cellProgram) Stdin() io.WriteCloser { return stdin{p.in} }
func (p *cellProgram) Stdout() io.Reader     { return p.out }
func (p *cellProgram) Stderr() io.Reader     { return p.err }
func (p *cellProgram) Kill()                 { _ = p.p.Signal(int(syscall.SIGKILL)) }

// Wait implements kernel.Program. It ends what the process left in the background, which would keep
// the pipes open.
func (p *cellProgram) Wait() string {
	e := p.p.Wait()
	p.p.End()
	p.in.CloseRead()
	p.clean()
	if e.Signal != 0 {
		return cmp.Or(e.Message, "it was ended by signal "+interp.SignalText(e.Signal))
	}
	return fmt.Sprintf("it exited with status %d", e.Code)
}

// door returns the listener of a port.
func (i *instance) door(port uint16) (*listener, error) {
	switch port {
	case carrel.GuestPort:
		return i.link, nil
	case carrel.InterpreterPort:
		if l, err := i.cells.open(); err == nil {
			return l, nil
		}
	}
	return nil, &carrel.Error{Op: "dial sandbox", Kind: carrel.Unavailable, ID: i.id,
		Err: fmt.Errorf("port %d: %w", port, syscall.ECONNREFUSED)}
}
