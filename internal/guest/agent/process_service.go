package agent

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"connectrpc.com/connect"

	"github.com/carrel-dev/carrel/internal/guest"
	"github.com/carrel-dev/carrel/internal/guest/process"
	"github.com/carrel-dev/carrel/internal/guest/process/processconnect"
)

// maxMessage bounds one request message. Input in JSON is base64, so 24 MiB of it fit.
const maxMessage = 32 << 20

// rpcOptions returns the options of both Connect services. They accept compressed requests but
// never compress answers: the link is local, and the sandbox would pay for the processor time.
func rpcOptions() []connect.HandlerOption {
	return []connect.HandlerOption{
		connect.WithReadMaxBytes(maxMessage),
		connect.WithCompressMinBytes(math.MaxInt),
		connect.WithCodec(jsonCodec{}),
		connect.WithInterceptors(interrupts{}),
	}
}

// processHandler serves process.Process.
func (a *Agent) processHandler() (path string, h http.Handler) {
	path, h = processconnect.NewProcessHandler(processService{a}, rpcOptions()...)
	return path, zeroTimeoutIsNone(h)
}

// zeroTimeoutIsNone drops a Connect-Timeout-Ms of 0. envd's clients send it for a process without a
// time limit, but the protocol would take it for a deadline that has passed.
func zeroTimeoutIsNone(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		const header = "Connect-Timeout-Ms"
		if ms, err := strconv.ParseInt(r.Header.Get(header), 10, 64); err == nil && ms == 0 {
			r.Header.Del(header)
		}
		next.ServeHTTP(w, r)
	})
}

// processService serves process.Process.
type processService struct{ a *Agent }

var _ processconnect.ProcessHandler = processService{}

// Start implements process.Process.
func (s processService) Start(ctx context.Context, req *connect.Request[process.StartRequest], stream *connect.ServerStream[process.StartResponse]) error {
	u, cerr := s.a.user(req.Header())
	if cerr != nil {
		return cerr
	}
	cmd, cerr := s.a.command(u, req.Msg)
	if cerr != nil {
		return cerr
	}
	if cerr := s.a.checkpointBefore(ctx, req.Msg.GetProcess()); cerr != nil {
		return cerr
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	// The request's deadline is the process's lifetime. It is kept apart from the request, because
	// a process outlives its client.
	var lifetime time.Duration
	if deadline, ok := ctx.Deadline(); ok {
		if lifetime = time.Until(deadline); lifetime <= 0 {
			return context.DeadlineExceeded
		}
	}
	proc, err := s.a.sys.Start(cmd)
	if err != nil {
		return startError(cmd, err)
	}
	r := newRunning(proc, req.Msg)
	r.revive = s.a.reviver(u, req.Msg, lifetime > 0)
	l, cerr := s.a.run(r, lifetime, req.Header().Get(guest.KeepHeader) != "")
	if cerr != nil {
		return cerr
	}
	err = s.a.follow(ctx, r, l, req.Header(), func(e *process.ProcessEvent) error {
		return stream.Send(&process.StartResponse{Event: e})
	})
	if err == nil && r.timedOut.Load() {
		// The kill came just before the request's own deadline.
		return context.DeadlineExceeded
	}
	return err
}

// Connect implements process.Process.
func (s processService) Connect(ctx context.Context, req *connect.Request[process.ConnectRequest], stream *connect.ServerStream[process.ConnectResponse]) error {
	r, l, cerr := s.a.procs.connect(req.Msg)
	if cerr != nil {
		return cerr
	}
	return s.a.follow(ctx, r, l, req.Header(), func(e *process.ProcessEvent) error {
		return stream.Send(&process.ConnectResponse{Event: e})
	})
}

// follow sends a process's events until the process ends or the client leaves.
func (a *Agent) follow(ctx context.Context, r *running, l *listener, h http.Header, send func(*process.ProcessEvent) error) error {
	defer l.leave()
	defer func() {
		if !isClosed(r.told) {
			r.kept.left()
		}
	}()
	interval := a.keepAlive(h)
	keepalive := time.NewTicker(interval)
	defer keepalive.Stop()
	guarded := func(e *process.ProcessEvent) error {
		extendWrite(ctx)
		return send(e)
	}
	if err := guarded(startEvent(r.pid, l.from)); err != nil {
		return fmt.Errorf("error sending start event: %w", err)
	}
	for {
		c, ok, end := l.peek()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case ok:
			if err := guarded(c.event()); err != nil {
				return fmt.Errorf("error sending data event: %w", err)
			}
			l.take()
			keepalive.Reset(interval)
			continue
		case end != nil:
			if r.timedOut.Load() && hasDeadline(ctx) {
				a.procs.tell(r)
				return context.DeadlineExceeded
			}
			holdFlush(ctx)
			if err := guarded(&process.ProcessEvent{Event: &process.ProcessEvent_End{End: end}}); err != nil {
				return fmt.Errorf("error sending end event: %w", err)
			}
			a.procs.tell(r)
			return nil
		}
		select {
		case <-l.wake:
		case <-ctx.Done():
		case <-a.ctx.Done():
			return connect.NewError(connect.CodeUnavailable, errClosing)
		case <-keepalive.C:
			if err := guarded(&process.ProcessEvent{Event: &process.ProcessEvent_Keepalive{Keepalive: &process.ProcessEvent_KeepAlive{}}}); err != nil {
				return fmt.Errorf("error sending keepalive: %w", err)
			}
		}
	}
}

// startEvent returns the first event of each stream.
func startEvent(pid uint32, from positions) *process.ProcessEvent {
	return &process.ProcessEvent{Event: &process.ProcessEvent_Start{Start: &process.ProcessEvent_StartEvent{
		Pid: pid, Offsets: from.message()}}}
}

func hasDeadline(ctx context.Context) bool {
	_, ok := ctx.Deadline()
	return ok
}

// keepAlive returns how often an idle stream sends an event: the client's Keepalive-Ping-Interval
// (seconds), or the default.
func (a *Agent) keepAlive(h http.Header) time.Duration {
	s, err := strconv.ParseUint(h.Get("Keepalive-Ping-Interval"), 10, 32)
	if err != nil || s == 0 {
		return a.cfg.KeepAlive
	}
	return time.Duration(s) * time.Second
}

// List implements process.Process.
func (s processService) List(context.Context, *connect.Request[process.ListRequest]) (*connect.Response[process.ListResponse], error) {
	out := &process.ListResponse{}
	for _, r := range s.a.procs.list() {
		out.Processes = append(out.Processes, &process.ProcessInfo{Pid: r.pid, Tag: r.tag, Config: r.config})
	}
	return connect.NewResponse(out), nil
}

// Update implements process.Process.
func (s processService) Update(_ context.Context, req *connect.Request[process.UpdateRequest]) (*connect.Response[process.UpdateResponse], error) {
	r, cerr := s.a.procs.find(req.Msg.GetProcess(), false)
	if cerr != nil {
		return nil, cerr
	}
	if req.Msg.Pty != nil {
		size, cerr := ttySize(req.Msg.Pty)
		if cerr != nil {
			return nil, cerr
		}
		if !r.tty {
			return nil, connect.NewError(connect.CodeFailedPrecondition, errors.New("error resizing tty: tty not assigned to process"))
		}
		if err := r.proc.Resize(*size); err != nil {
			return nil, connect.NewError(connect.CodeInternal, fmt.Errorf("error resizing tty: %w", err))
		}
	}
	return connect.NewResponse(&process.UpdateResponse{}), nil
}

// SendInput implements process.Process.
func (s processService) SendInput(ctx context.Context, req *connect.Request[process.SendInputRequest]) (*connect.Response[process.SendInputResponse], error) {
	r, cerr := s.a.procs.find(req.Msg.GetProcess(), false)
	if cerr != nil {
		return nil, cerr
	}
	if cerr := r.in.send(ctx, req.Msg.GetInput()); cerr != nil {
		return nil, cerr
	}
	return connect.NewResponse(&process.SendInputResponse{}), nil
}

// StreamInput implements process.Process.
func (s processService) StreamInput(ctx context.Context, stream *connect.ClientStream[process.StreamInputRequest]) (*connect.Response[process.StreamInputResponse], error) {
	var r *running
	for stream.Receive() {
		var cerr *connect.Error
		switch e := stream.Msg().GetEvent().(type) {
		case *process.StreamInputRequest_Start:
			r, cerr = s.a.procs.find(e.Start.GetProcess(), false)
		case *process.StreamInputRequest_Data:
			if r == nil {
				cerr = invalid("data: comes before start")
			} else {
				cerr = r.in.send(ctx, e.Data.GetInput())
			}
		case *process.StreamInputRequest_Keepalive:
		default:
			cerr = invalid("event: give start, data or keepalive")
		}
		if cerr != nil {
			return nil, cerr
		}
	}
	if err := stream.Err(); err != nil {
		text := err.Error()
		if cerr := (*connect.Error)(nil); errors.As(err, &cerr) {
			text = cerr.Message() // without the code, which is sent separately
		}
		return nil, connect.NewError(connect.CodeOf(err), fmt.Errorf("error streaming input: %s", text))
	}
	return connect.NewResponse(&process.StreamInputResponse{}), nil
}

// SendSignal implements process.Process.
func (s processService) SendSignal(_ context.Context, req *connect.Request[process.SendSignalRequest]) (*connect.Response[process.SendSignalResponse], error) {
	r, cerr := s.a.procs.find(req.Msg.GetProcess(), false)
	if cerr != nil {
		return nil, cerr
	}
	switch sig := req.Msg.GetSignal(); sig {
	case process.Signal_SIGNAL_SIGKILL, process.Signal_SIGNAL_SIGTERM:
		if err := r.proc.Signal(int(sig)); err != nil {
			return nil, connect.NewError(connect.CodeInternal, fmt.Errorf("error sending signal: %w", err))
		}
	default:
		return nil, invalid("invalid signal: %s", sig)
	}
	return connect.NewResponse(&process.SendSignalResponse{}), nil
}

// CloseStdin implements process.Process.
func (s processService) CloseStdin(ctx context.Context, req *connect.Request[process.CloseStdinRequest]) (*connect.Response[process.CloseStdinResponse], error) {
	r, cerr := s.a.procs.find(req.Msg.GetProcess(), false)
	if cerr != nil {
		return nil, cerr
	}
	if err := r.in.end(ctx); err != nil {
		return nil, connect.NewError(inputCode(err), fmt.Errorf("error closing stdin: %w", err))
	}
	return connect.NewResponse(&process.CloseStdinResponse{}), nil
}
