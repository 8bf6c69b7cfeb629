package guest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"strconv"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/guest/process"
)

// killGrace bounds the work of Run after its context has ended.
const killGrace = 2 * time.Second

// Run starts cmd, waits for its end and returns its output, except output that went to cmd.Stdout
// and cmd.Stderr. If ctx ends first, Run kills the process, because nobody else knows of it. With
// an error there may also be a result; it holds the output up to that point.
func (c *Conn) Run(ctx context.Context, cmd carrel.Command) (*carrel.Result, error) {
	var stdout, stderr bytes.Buffer
	out, errw := cmd.Stdout, cmd.Stderr
	if out == nil {
		cmd.Stdout = &stdout
	}
	if errw == nil {
		cmd.Stderr = &stderr
	}
	p, err := c.start(ctx, cmd)
	if err != nil {
		return nil, err
	}
	defer p.cancel()
	over := false // ctx ended before the command
	select {
	case <-p.done:
	case <-ctx.Done():
		over = true
		kctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killGrace)
		defer cancel()
		_ = p.Signal(kctx, sigKill) // best effort: it may have ended by now
		select {
		case <-p.done: // the stream ends with ctx, so this is soon
		case <-kctx.Done(): // cmd's own writer is stuck
			return nil, c.fail("run command", context.Cause(ctx))
		}
	}
	res := p.result
	res.Stdout, res.Stderr = stdout.Bytes(), stderr.Bytes()
	if over && p.err == nil {
		// Our kill ended the command before the stream ended. That is not the command's own end.
		return &res, c.fail("run command", context.Cause(ctx))
	}
	return &res, p.err
}

// Start starts cmd and returns once it runs. The end of ctx disconnects from the process, and so
// does Close. Neither kills it.
func (c *Conn) Start(ctx context.Context, cmd carrel.Command) (carrel.Process, error) {
	p, err := c.start(ctx, cmd)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// start opens the stream of a new process and reads up to its start event.
func (c *Conn) start(ctx context.Context, cmd carrel.Command) (*remote, error) {
	const op = "start process"
	msg, err := c.startRequest(op, cmd)
	if err != nil {
		return nil, err
	}
	req := connect.NewRequest(msg)
	c.authorize(req.Header(), cmd.User)
	if cmd.Keep {
		req.Header().Set(KeepHeader, "1")
	}
	if cmd.Timeout > 0 {
		// The guest uses this header as the limit of the process's life, not of the call.
		req.Header().Set("Connect-Timeout-Ms", strconv.FormatInt(max(cmd.Timeout.Milliseconds(), 1), 10))
	}
	p := c.newRemote(ctx, cmd.Stdout, cmd.Stderr)
	p.tty, p.limit = cmd.TTY != nil, cmd.Timeout
	stream, err := c.process().Start(p.ctx, req)
	if err != nil {
		p.cancel()
		return nil, c.startError(ctx, op, err)
	}
	err = p.follow(ctx, op, startEvents{stream})
	if err != nil {
		return nil, err
	}
	if cmd.Stdin != nil {
		go p.pumpStdin(cmd.Stdin)
	}
	return p, nil
}

// startRequest checks cmd and turns it into a message of the protocol.
func (c *Conn) startRequest(op string, cmd carrel.Command) (*process.StartRequest, error) {
	cfg := &process.ProcessConfig{Envs: maps.Clone(cmd.Env)}
	switch {
	case cmd.Shell != "" && len(cmd.Args) > 0:
		return nil, c.invalid(op, "cmd", "give either a shell line or arguments, not both")
	case cmd.Shell != "":
		cfg.Cmd, cfg.Args = "/bin/bash", []string{"-l", "-c", cmd.Shell}
	case len(cmd.Args) > 0 && cmd.Args[0] != "":
		cfg.Cmd, cfg.Args = cmd.Args[0], cmd.Args[1:]
	default:
		return nil, c.invalid(op, "cmd", "no command given")
	}
	if cmd.Timeout < 0 {
		return nil, c.invalid(op, "timeout", "%v is negative", cmd.Timeout)
	}
	if cmd.Dir != "" {
		cfg.Cwd = &cmd.Dir
	}
	stdin := cmd.Stdin != nil || cmd.OpenStdin
	req := &process.StartRequest{Process: cfg, Stdin: &stdin}
	if cmd.Tag != "" {
		req.Tag = &cmd.Tag
	}
	if cmd.TTY != nil {
		req.Pty = ptySize(*cmd.TTY)
		if _, set := cfg.Envs["TERM"]; !set {
			if cfg.Envs == nil {
				cfg.Envs = map[string]string{}
			}
			cfg.Envs["TERM"] = "xterm-256color"
		}
	}
	return req, nil
}

func ptySize(s carrel.Size) *process.PTY {
	return &process.PTY{Size: &process.PTY_Size{Cols: uint32(s.Cols), Rows: uint32(s.Rows)}}
}

// Attach connects to a process that already runs. Output starts with the bytes that the guest still
// holds.
func (c *Conn) Attach(ctx context.Context, pid int, stdout, stderr io.Writer) (carrel.Process, error) {
	const op = "attach to process"
	if pid <= 0 || int64(pid) > int64(^uint32(0)) {
		return nil, c.invalid(op, "pid", "%d is not a process ID", pid)
	}
	req := connect.NewRequest(&process.ConnectRequest{Process: selector(pid)})
	c.authorize(req.Header(), "")
	p := c.newRemote(ctx, stdout, stderr)
	p.attached = true
	stream, err := c.process().Connect(p.ctx, req)
	if err != nil {
		p.cancel()
		return nil, c.startError(ctx, op, err)
	}
	if err := p.follow(ctx, op, connectEvents{stream}); err != nil {
		return nil, err
	}
	return p, nil
}

// Processes lists the running processes that were started through the guest.
func (c *Conn) Processes(ctx context.Context) ([]carrel.ProcessInfo, error) {
	req := connect.NewRequest(&process.ListRequest{})
	c.authorize(req.Header(), "")
	resp, err := c.process().List(ctx, req)
	if err != nil {
		return nil, c.fail("list processes", err)
	}
	out := make([]carrel.ProcessInfo, 0, len(resp.Msg.GetProcesses()))
	for _, p := range resp.Msg.GetProcesses() {
		cfg := p.GetConfig()
		out = append(out, carrel.ProcessInfo{
			PID: int(p.GetPid()), Tag: p.GetTag(), Env: cfg.GetEnvs(), Dir: cfg.GetCwd(),
			Args: append([]string{cfg.GetCmd()}, cfg.GetArgs()...),
		})
	}
	return out, nil
}

func selector(pid int) *process.ProcessSelector {
	return &process.ProcessSelector{Selector: &process.ProcessSelector_Pid{Pid: uint32(pid)}}
}

// startError returns the end of the caller's own context as the reason, if it has ended.
func (c *Conn) startError(ctx context.Context, op string, err error) error {
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return c.fail(op, err)
}

// events is a stream of one process's events, from Start or from Connect.
type events interface {
	Receive() bool
	event() *process.ProcessEvent
	Err() error
	Close() error
}

type startEvents struct {
	*connect.ServerStreamForClient[process.StartResponse]
}

func (s startEvents) event() *process.ProcessEvent { return s.Msg().GetEvent() }

type connectEvents struct {
	*connect.ServerStreamForClient[process.ConnectResponse]
}

func (s connectEvents) event() *process.ProcessEvent { return s.Msg().GetEvent() }

// newRemote makes the host's end of a process, before its stream is open. It hides a deadline of
// ctx from the guest, because the guest would kill the process at the deadline.
func (c *Conn) newRemote(ctx context.Context, stdout, stderr io.Writer) *remote {
	p := &remote{c: c, stdout: stdout, stderr: stderr, started: time.Now(), done: make(chan struct{})}
	if p.stdout == nil {
		p.stdout = io.Discard
	}
	if p.stderr == nil {
		p.stderr = io.Discard
	}
	p.caller = ctx
	p.closed, p.close = context.WithCancel(context.Background())
	inner, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	p.ctx = inner
	p.cancel = func() { stop(); cancel(errDisconnected) }
	return p
}

// inputContext returns the context of one call that sends input. Only the caller and Close end it.
// The end of the stream must not: the last input may have ended the process, while the answer to
// that input is still on its way.
func (p *remote) inputContext() (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(p.caller))
	stopCaller := context.AfterFunc(p.caller, func() { cancel(context.Cause(p.caller)) })
	stopClose := context.AfterFunc(p.closed, func() { cancel(errDisconnected) })
	return ctx, func() { stopCaller(); stopClose(); cancel(nil) }
}

// over reports whether all events of the process have been read.
func (p *remote) over() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

var errDisconnected = errors.New("disconnected from the process, which runs on")

// remote is a connection to one process. One goroutine reads its events until
// done is closed; result and err are set before that.
type remote struct {
	c              *Conn
	ctx            context.Context // the stream's: the only context here that is stored
	cancel         func()
	caller         context.Context // the context of Start's or Attach's caller
	closed         context.Context // ended by Close
	close          func()
	stdout, stderr io.Writer
	pid            int
	attached       bool
	limit          time.Duration
	started        time.Time

	inputMu sync.Mutex // keeps input in order, and guards tty
	tty     bool

	done   chan struct{}
	result carrel.Result
	err    error
}

var _ carrel.Process = (*remote)(nil)
