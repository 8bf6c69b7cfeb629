package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"connectrpc.com/connect"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/guest/process"
)

// The signals of the protocol.
const (
	sigKill = 9
	sigTerm = 15
)

const inputChunk = 64 << 10 // a pipe's capacity: more would not fit at once

// follow reads up to the start event. A goroutine reads the rest and ends with the stream.
func (p *remote) follow(ctx context.Context, op string, s events) error {
	for s.Receive() {
		if start := s.event().GetStart(); start != nil {
			p.pid = int(start.GetPid())
			p.result.PID, p.result.ExitCode = p.pid, -1
			go p.read(s)
			return nil
		}
	}
	err := s.Err()
	if err == nil {
		err = errors.New("the guest ended the stream before the process started")
	}
	_ = s.Close() // its error is the one above
	p.cancel()
	return p.c.startError(ctx, op, err)
}

// read delivers output as it arrives. If a writer is slow, the guest waits, and in the end the
// process does. If a writer fails, read skips it, and Wait returns its error.
func (p *remote) read(s events) {
	defer close(p.done)
	defer p.cancel()
	var ended bool
	for s.Receive() {
		switch ev := s.event().GetEvent().(type) {
		case *process.ProcessEvent_Data:
			p.deliver(ev.Data)
		case *process.ProcessEvent_End:
			ended = true
			p.result.Status = ev.End.GetStatus()
			if ev.End.GetExited() {
				p.result.ExitCode = int(ev.End.GetExitCode())
			}
		}
	}
	err := s.Err()
	_ = s.Close() // its error is the one above
	switch {
	case p.overdue(err):
		p.err = &carrel.Error{Op: "run command", Kind: carrel.TimedOut, ID: p.c.opts.ID,
			Err:  fmt.Errorf("process %d ran longer than its timeout of %v and was killed", p.pid, p.limit),
			Hint: "give it a longer timeout, or 0 for none"}
	case ended:
		// Errors after the end event change nothing; p.err may hold a writer's error.
	case p.ctx.Err() != nil:
		p.err = p.c.fail("follow process", context.Cause(p.ctx))
	case err != nil:
		p.err = p.c.fail("follow process", err)
	default:
		p.err = p.c.fail("follow process", fmt.Errorf("the stream of process %d ended before it did", p.pid))
	}
}

// overdue reports whether the process ended because of its own timeout.
func (p *remote) overdue(err error) bool {
	if p.limit <= 0 || p.result.ExitCode >= 0 {
		return false
	}
	return connect.CodeOf(err) == connect.CodeDeadlineExceeded ||
		(p.result.Status != "" && time.Since(p.started) >= p.limit)
}

// deliver hands one piece of output to its writer.
func (p *remote) deliver(d *process.ProcessEvent_DataEvent) {
	w, name, data := &p.stdout, "stdout", d.GetStdout()
	switch out := d.GetOutput().(type) {
	case *process.ProcessEvent_DataEvent_Stderr:
		w, name, data = &p.stderr, "stderr", out.Stderr
	case *process.ProcessEvent_DataEvent_Pty:
		data = out.Pty
	}
	if _, err := (*w).Write(data); err != nil {
		*w = io.Discard // a reader that is gone must not block the process
		if p.err == nil {
			p.err = p.c.fail("write "+name, err)
		}
	}
}

// PID returns the process ID inside the sandbox.
func (p *remote) PID() int { return p.pid }

// Wait returns when the process ended and its output was delivered, or when ctx ends.
func (p *remote) Wait(ctx context.Context) (*carrel.Result, error) {
	select {
	case <-p.done:
	default:
		select {
		case <-p.done:
		case <-ctx.Done():
			return nil, p.c.fail("wait for process", context.Cause(ctx))
		}
	}
	res := p.result
	return &res, p.err
}

// Close disconnects; the process runs on. Close does not wait for a writer that is busy with
// output.
func (p *remote) Close() error {
	p.close()
	p.cancel()
	return nil
}

// Write sends data to standard input, or to the terminal. It returns when the guest has passed all
// of it to the process. Error: NotFound if the process has ended.
func (p *remote) Write(data []byte) (int, error) {
	p.inputMu.Lock()
	defer p.inputMu.Unlock()
	if p.over() {
		return 0, &carrel.Error{Op: "write to process", Kind: carrel.NotFound, ID: p.c.opts.ID, Err: fmt.Errorf("process %d has ended", p.pid)}
	}
	var n int
	for len(data) > 0 {
		chunk := data[:min(len(data), inputChunk)]
		if err := p.send(chunk); err != nil {
			return n, p.c.fail("write to process", err)
		}
		n, data = n+len(chunk), data[len(chunk):]
	}
	return n, nil
}

// send sends one chunk. For an attached process the caller does not know whether there is a
// terminal, until the guest refuses the first try. Called with inputMu held: that lock only keeps
// input in order, and no event waits for it.
func (p *remote) send(chunk []byte) error {
	err := p.sendAs(chunk, p.tty)
	if err == nil || !p.attached {
		return err
	}
	switch connect.CodeOf(err) {
	case connect.CodeInternal, connect.CodeFailedPrecondition, connect.CodeInvalidArgument:
	default:
		return err
	}
	if p.sendAs(chunk, !p.tty) != nil {
		return err
	}
	p.tty = !p.tty
	return nil
}

func (p *remote) sendAs(chunk []byte, tty bool) error {
	in := &process.ProcessInput{Input: &process.ProcessInput_Stdin{Stdin: chunk}}
	if tty {
		in.Input = &process.ProcessInput_Pty{Pty: chunk}
	}
	req := connect.NewRequest(&process.SendInputRequest{Process: selector(p.pid), Input: in})
	p.c.authorize(req.Header(), "")
	ctx, done := p.inputContext()
	defer done()
	_, err := p.c.process().SendInput(ctx, req)
	return err
}

// CloseStdin ends standard input. For a process that has ended it does nothing.
func (p *remote) CloseStdin() error {
	if p.over() {
		return nil
	}
	req := connect.NewRequest(&process.CloseStdinRequest{Process: selector(p.pid)})
	p.c.authorize(req.Header(), "")
	ctx, done := p.inputContext()
	defer done()
	_, err := p.c.process().CloseStdin(ctx, req)
	if connect.CodeOf(err) == connect.CodeNotFound {
		return nil // it ended while we asked
	}
	return p.c.fail("close standard input", err)
}

// pumpStdin feeds the process from the caller's reader. It ends at the reader's end. If the process
// ends first, it ends after the next read.
func (p *remote) pumpStdin(r io.Reader) {
	buf := make([]byte, inputChunk)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			if _, werr := p.Write(buf[:n]); werr != nil {
				return // it ended or closed its input: Wait returns the details
			}
		}
		if err == nil {
			continue
		}
		if p.tty {
			_, _ = p.Write([]byte{4}) // a terminal's end of file
			return
		}
		_ = p.CloseStdin() // it may have ended already
		return
	}
}

// Resize sets the terminal's size.
func (p *remote) Resize(ctx context.Context, size carrel.Size) error {
	req := connect.NewRequest(&process.UpdateRequest{Process: selector(p.pid), Pty: ptySize(size)})
	p.c.authorize(req.Header(), "")
	_, err := p.c.process().Update(ctx, req)
	return p.c.fail("resize terminal", err)
}

// Signal sends SIGTERM or SIGKILL.
func (p *remote) Signal(ctx context.Context, signal int) error {
	const op = "signal process"
	var s process.Signal
	switch signal {
	case sigKill:
		s = process.Signal_SIGNAL_SIGKILL
	case sigTerm:
		s = process.Signal_SIGNAL_SIGTERM
	default:
		return &carrel.Error{Op: op, Kind: carrel.Unsupported, ID: p.c.opts.ID, Field: "signal",
			Err: fmt.Errorf("signal %d", signal), Hint: "the guest sends 15 (SIGTERM) and 9 (SIGKILL)"}
	}
	req := connect.NewRequest(&process.SendSignalRequest{Process: selector(p.pid), Signal: s})
	p.c.authorize(req.Header(), "")
	_, err := p.c.process().SendSignal(ctx, req)
	return p.c.fail(op, err)
}
