package service

import (
	"context"
	"errors"
	"fmt"
	"time"

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

// How long an operation may wait for another one.
const (
	// giveUpTime is for an operation that a kill interrupted. Most give up at once.
	giveUpTime = 2 * time.Second
	// turnTime is for all others. It is longer than the pause of a big sandbox takes.
	turnTime = 10 * time.Minute
)

// settled waits until no operation holds box.turn, but not longer than turnTime. The next operation
// may take it at once.
func (b *box) settled(ctx context.Context) error {
	ctx, cancel := waitForTurn(ctx)
	defer cancel()
	select {
	case b.turn <- struct{}{}:
		<-b.turn
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// hangs waits until an interrupted operation has given up box.turn. It reports true if the
// operation does not do that within giveUpTime.
func (b *box) hangs(ctx context.Context) (bool, error) {
	short, cancel := context.WithTimeout(ctx, giveUpTime)
	defer cancel()
	if err := b.settled(short); err == nil || ctx.Err() != nil {
		return false, err
	}
	return true, nil
}

// waitForTurn bounds the wait for another operation.
func waitForTurn(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, turnTime,
		fmt.Errorf("another operation on the sandbox has been under way for %v: carrel kill ends it",
			turnTime))
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
		RetryAfter: carrel.RetryAfterOf(err), Limit: carrel.LimitOf(err)}
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
