package sim

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/carrel-dev/carrel/internal/guest/agent"
	"github.com/carrel-dev/carrel/shell/interp"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// system is the simulated operating system, as the agent sees it.
type system struct{ i *instance }

var _ agent.System = (*system)(nil)

func (s *system) root() vfs.View { return s.i.machine.View(vfs.Cred{}) }

// User implements agent.Users from the sandbox's own /etc/passwd.
func (s *system) User(name string) (agent.User, error) {
	for _, a := range s.i.machine.Accounts() {
		if a.Name == name {
			return agent.User{Name: a.Name, UID: a.UID, GID: a.GID, Home: a.Home, Shell: a.Shell}, nil
		}
	}
	return agent.User{}, fmt.Errorf("user %q: %w", name, fs.ErrNotExist)
}

// Names implements agent.Users.
func (s *system) Names(uid, gid uint32) (owner, group string) {
	return s.i.machine.UserName(uid), s.i.machine.GroupName(gid)
}

// Start implements agent.System.
func (s *system) Start(cmd agent.Cmd) (agent.Proc, error) {
	spec := interp.Spec{Path: cmd.Path, Args: cmd.Args, Env: cmd.Env, Dir: cmd.Dir, UID: cmd.User.UID, GID: cmd.User.GID}
	p := &proc{}
	if cmd.TTY != nil {
		p.tty = s.i.machine.NewTTY(cmd.TTY.Cols, cmd.TTY.Rows)
		spec.TTY = p.tty
	} else {
		p.out, p.err = newOutput(interp.NewPipe()), newOutput(interp.NewPipe())
		spec.Out, spec.Err = p.out.pipe, p.err.pipe
		if cmd.Stdin {
			p.in = interp.NewPipe()
			spec.Stdin = p.in
		}
	}
	sp, err := s.i.machine.Start(spec)
	if err != nil {
		return nil, err
	}
	p.p = sp
	return p, nil
}

// DialLoopback implements agent.System. No program in a simulated sandbox can listen.
func (s *system) DialLoopback(_ context.Context, port uint16) (net.Conn, error) {
	return nil, fmt.Errorf("port %d: %w", port, syscall.ECONNREFUSED)
}

// Metrics implements agent.System.
func (s *system) Metrics() (agent.Metrics, error) {
	used, quota := s.i.fs.Usage()
	return agent.Metrics{CPUCount: int(max(s.i.limits.CPUs, 1)), MemTotal: int64(s.i.limits.MemoryMB) << 20,
		MemUsed: s.i.machine.Usage().Memory, DiskTotal: quota, DiskUsed: used}, nil
}

// Identify implements agent.System. The clock is the host's, so it is right already.
func (s *system) Identify(hostname string, _ time.Time) error {
	if hostname != "" {
		s.i.machine.SetHostname(hostname)
	}
	return nil
}

// proc is a process of the simulated shell, in the agent's form.
type proc struct {
	p        *interp.Process
	in       *interp.Pipe // may be nil
	out, err *output
	tty      *interp.TTY // instead of the three
	release  sync.Once
}

var _ agent.Proc = (*proc)(nil)

func (p *proc) PID() int { return p.p.PID() }

// stdin is the writing end of a pipe.
type stdin struct{ p *interp.Pipe }

func (s stdin) Write(b []byte) (int, error) { return s.p.Write(b) }
func (s stdin) Close() error                { s.p.CloseWrite(); return nil }

func (p *proc) Stdin() io.WriteCloser {
	switch {
	case p.tty != nil:
		return p.tty
	case p.in != nil:
		return stdin{p.in}
	}
	return nil
}

func (p *proc) Stdout() io.Reader {
	if p.tty != nil {
		return p.tty
	}
	return p.out
}

func (p *proc) Stderr() io.Reader {
	if p.tty != nil {
		return nil
	}
	return p.err
}

func (p *proc) Resize(s agent.Size) error {
	if p.tty == nil {
		return syscall.ENOTTY
	}
	p.tty.Resize(s.Cols, s.Rows)
	return nil
}

func (p *proc) Signal(sig int) error { return p.p.Signal(sig) }

func (p *proc) Wait() agent.ExitStatus {
	e := p.p.Wait()
	if e.Signal == 0 {
		out := agent.ExitStatus{Code: e.Code, Status: fmt.Sprintf("exit status %d", e.Code)}
		if e.Code != 0 {
			out.ErrorMsg = out.Status
		}
		return out
	}
	out := agent.ExitStatus{Code: -1, Signal: e.Signal, Status: "signal: " + interp.SignalText(e.Signal)}
	if out.ErrorMsg = out.Status; e.Message != "" {
		out.ErrorMsg += " (" + e.Message + ")"
	}
	return out
}

// Release implements agent.Proc.
func (p *proc) Release() {
	p.release.Do(func() {
		if p.tty != nil {
			_ = p.tty.Close() // never fails
			return
		}
		if p.in != nil {
			p.in.CloseWrite()
		}
		p.out.close()
		p.err.close()
	})
}
