package gvisor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"gvisor.dev/gvisor/pkg/urpc"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver/hosted"
	"github.com/carrel-dev/carrel/internal/shortage"
)

// Time limits for commands to a sentry. A sentry that was taken over might never answer.
const (
	callTime   = 15 * time.Minute // any command: a very big snapshot to a slow disk
	cancelTime = 30 * time.Second // rest of a command whose caller gave up
	dyingTime  = 5 * time.Second  // from a sentry's hang-up to its end
)

// call sends one command to the sentry, over a connection of its own. When ctx ends it hangs up,
// but the sentry still carries out the command.
func (in *Instance) call(ctx context.Context, method string, arg, result any) error {
	select {
	case <-in.Ended():
		return in.endedError()
	default:
	}
	conn, err := dialControl(in.rec.Sock)
	if noFiles(err) {
		// The sentry is well.
		return &carrel.Error{Kind: carrel.Exhausted, Field: shortage.Files, Err: err,
			Hint: shortage.HintFiles}
	}
	if err != nil {
		return in.lost(ctx, err)
	}
	done := make(chan error, 1)
	go func() { done <- conn.Call(method, arg, result) }()
	select {
	case err = <-done:
		conn.Close()
	case <-ctx.Done():
		conn.Socket.Close() // ends the call; Client.Close would wait for its end
		<-done
		return context.Cause(ctx)
	case <-in.Left():
		conn.Socket.Close()
		<-done
		return in.lost(ctx, hosted.ErrClosed)
	}
	var remote urpc.RemoteError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &remote):
		return in.lost(ctx, err)
	case !isNoSpace(err):
		// The rest is the sentry's stack, which helps no caller.
		if line, rest, long := strings.Cut(remote.Message, "\n"); long {
			in.d.log.Error("a sentry refused a command", "sandbox", in.rec.ID, "method", method, "err", line,
				"more", rest)
			return urpc.RemoteError{Message: line}
		}
	}
	return err
}

// callToEnd is call for commands that must not stop half way. When ctx ends, it still waits for the
// sentry's answer, up to cancelTime.
func (in *Instance) callToEnd(ctx context.Context, method string, arg, result any) error {
	long, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTime)
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		t := time.AfterFunc(cancelTime, cancel)
		context.AfterFunc(long, func() { t.Stop() })
	})
	defer stop()
	return in.call(long, method, arg, result)
}

// lost explains why a sentry did not answer. Mostly the sentry has just ended.
func (in *Instance) lost(ctx context.Context, err error) error {
	t := time.NewTimer(dyingTime)
	defer t.Stop()
	select {
	case <-in.Ended():
		return in.endedError()
	case <-in.Left():
		select {
		case <-in.Ended(): // both were ready
			return in.endedError()
		default:
			return &carrel.Error{Kind: carrel.Unavailable, Err: hosted.ErrClosed}
		}
	case <-ctx.Done():
	case <-t.C:
	}
	return &carrel.Error{Kind: carrel.Unavailable, Err: fmt.Errorf("the sandbox's kernel does not answer: %w", err)}
}

// endedError is the error of every call to a sandbox that has ended.
func (in *Instance) endedError() error {
	return &carrel.Error{Kind: carrel.Unavailable, Err: errors.New("the sandbox has ended: " + in.Exit().Message)}
}

// wrap adds an Op to an error of a command, and a Kind if it has none.
func (in *Instance) wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	out := &carrel.Error{Op: op, Kind: carrel.Internal, ID: in.rec.ID, Err: err}
	var inner *carrel.Error
	switch {
	case errors.As(err, &inner):
		out.Kind, out.Field, out.Hint = inner.Kind, inner.Field, inner.Hint
		if inner.Op == "" && inner.ID == "" && inner.Err != nil && err == error(inner) {
			out.Err = inner.Err
		}
	case errors.Is(err, context.DeadlineExceeded):
		out.Kind = carrel.TimedOut
	case errors.Is(err, context.Canceled):
		out.Kind = carrel.Unavailable
	case isNoSpace(err):
		// A sentry answers with its stack: a person needs one line.
		out.Kind, out.Hint, out.Err = carrel.Exhausted, "free space on the host's disk",
			errors.New("the host's disk has no room left")
	}
	return out
}

// noFiles reports whether this process had no descriptor left. Not every error on the way to a
// sentry keeps its cause, so noFiles reads the text.
func noFiles(err error) bool {
	return err != nil && (strings.Contains(err.Error(), syscall.EMFILE.Error()) ||
		strings.Contains(err.Error(), syscall.ENFILE.Error()))
}

// isNoSpace reports whether a disk was full. A sentry's answer is only a text, so isNoSpace has to
// read the text.
func isNoSpace(err error) bool {
	for _, errno := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG} {
		if errors.Is(err, errno) || strings.Contains(err.Error(), errno.Error()) {
			return true
		}
	}
	return false
}
