package service

import (
	"context"
	"errors"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/shortage"
)

// interrupt asks the operation that holds box.turn to give up.
func (b *box) interrupt(cause error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stop != nil {
		b.stop(cause)
	}
}

// settled waits until no operation holds box.turn. The next one may take it at once.
func (b *box) settled(ctx context.Context) error {
	select {
	case b.turn <- struct{}{}:
		<-b.turn
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// setState changes the state from one value to another. It reports false if the state was not from.
func (b *box) setState(from, to carrel.State) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rec.Sandbox.State != from {
		return false
	}
	b.rec.Sandbox.State = to
	b.enrollLocked()
	return true
}

// lacking sets the kind, the field and the hint of an error that means that the machine lacks
// something.
func lacking(out *carrel.Error) {
	field, hint := shortage.Of(out.Err)
	if field == "" && out.Kind == carrel.Internal {
		field, hint = shortage.Now(out.Err)
	}
	if field != "" {
		out.Kind, out.Field, out.Hint = carrel.Exhausted, field, hint
	}
}

// momentError gives the error of a snapshot operation its final form.
func (b *box) momentError(ctx context.Context, op string, err error) error {
	out := &carrel.Error{Op: op, ID: b.id, Kind: carrel.KindOf(err), Err: err, Hint: carrel.HintOf(err),
		RetryAfter: carrel.RetryAfterOf(err)}
	var inner *carrel.Error
	if errors.As(err, &inner) {
		out.Field = inner.Field
	}
	if err == error(inner) && inner.Op == "" { // it names this operation already
		out.Err = inner.Err
	}
	lacking(out)
	switch cause := context.Cause(ctx); {
	case cause == nil:
	case errors.Is(cause, errKilled):
		out.Kind, out.Err = carrel.NotFound, errors.New("the sandbox was killed meanwhile")
	case errors.Is(cause, errClosing):
		out.Kind, out.Err = carrel.Unavailable, cause
	case errors.Is(cause, context.Canceled):
		out.Kind, out.Err = carrel.Unavailable, cause
	case errors.Is(cause, context.DeadlineExceeded):
		out.Kind, out.Err = carrel.TimedOut, cause
	}
	return out
}
