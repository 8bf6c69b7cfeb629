package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync/atomic"
	"syscall"
	"time"

	"connectrpc.com/connect"

	"github.com/carrel-dev/carrel/internal/guest/process"
)

// The reasons to refuse input, with envd's texts.
var (
	errStdinClosed = errors.New("stdin not enabled or closed")
	errStdinOnTTY  = errors.New("tty assigned to process — input should be written to the pty, not the stdin")
	errNoTTY       = errors.New("tty not assigned to process — input should be written to the stdin, not the tty")
	errCloseTTY    = errors.New("cannot close stdin for PTY process — send Ctrl+D (0x04) instead")
)

// input is a process's standard input or terminal. Writes are complete and in order: one writer has
// the token at a time.
type input struct {
	token  chan struct{}
	w      io.WriteCloser // nil if the process has no standard input
	tty    bool
	closed atomic.Bool
}

func newInput(w io.WriteCloser, tty bool) *input {
	return &input{token: make(chan struct{}, 1), w: w, tty: tty}
}

// write passes data to the process, and waits while the process does not read. The end of ctx stops
// it, when a part of the data may be written.
func (in *input) write(ctx context.Context, data []byte) error {
	select {
	case in.token <- struct{}{}:
		defer func() { <-in.token }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if in.w == nil || in.closed.Load() {
		return errStdinClosed
	}
	defer in.interruptible(ctx)()
	if _, err := in.w.Write(data); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return err
	}
	return nil
}

// interruptible makes a blocked write end with ctx. This needs a writer with deadlines, as pipes
// and terminals have. The returned function undoes it.
func (in *input) interruptible(ctx context.Context) (undo func()) {
	d, ok := in.w.(interface{ SetWriteDeadline(time.Time) error })
	if !ok {
		return func() {}
	}
	expired := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(expired)
		_ = d.SetWriteDeadline(time.Unix(1, 0)) // without deadlines the write goes on
	})
	return func() {
		if !stop() {
			<-expired
			_ = d.SetWriteDeadline(time.Time{})
		}
	}
}

// end closes standard input after the running writes. Calling it twice is fine.
func (in *input) end(ctx context.Context) error {
	if in.tty {
		return errCloseTTY
	}
	select {
	case in.token <- struct{}{}:
		defer func() { <-in.token }()
	case <-ctx.Done():
		return ctx.Err()
	}
	in.close()
	return nil
}

// close closes standard input at once; a running write fails. A terminal is closed later, with the
// process's other ends.
func (in *input) close() {
	if in.closed.CompareAndSwap(false, true) && in.w != nil && !in.tty {
		_ = in.w.Close() // nothing is buffered
	}
}

// send writes the input of a request to the terminal or to standard input.
func (in *input) send(ctx context.Context, msg *process.ProcessInput) *connect.Error {
	var err error
	var what string
	switch v := msg.GetInput().(type) {
	case *process.ProcessInput_Pty:
		what = "tty"
		if err = errNoTTY; in.tty {
			err = in.write(ctx, v.Pty)
		}
	case *process.ProcessInput_Stdin:
		what = "stdin"
		if err = errStdinOnTTY; !in.tty {
			err = in.write(ctx, v.Stdin)
		}
	default:
		return invalid("input: give stdin or pty")
	}
	if err != nil {
		return connect.NewError(inputCode(err), fmt.Errorf("error writing to %s: %w", what, err))
	}
	return nil
}

// inputCode returns the code of an input error. It separates states that a client can cause (no
// input, already closed, process gone) from faults.
func inputCode(err error) connect.Code {
	for _, expected := range []error{errStdinClosed, errStdinOnTTY, errNoTTY, errCloseTTY,
		syscall.EPIPE, syscall.EIO, fs.ErrClosed, io.ErrClosedPipe} {
		if errors.Is(err, expected) {
			return connect.CodeFailedPrecondition
		}
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return connect.CodeDeadlineExceeded
	case errors.Is(err, context.Canceled):
		return connect.CodeCanceled
	}
	return connect.CodeInternal
}
