package testenv

import (
	"context"
	"errors"
	"testing"
	"time"
)

const (
	patience  = time.Minute            // how long a test waits for what should come at once
	firstStep = time.Millisecond       // between the first two looks; each step is half as long again as the one before
	lastStep  = 20 * time.Millisecond  // the longest step
	lastWords = 500 * time.Millisecond // kept back of a test's own time, so that it can still say what it waited for
)

// Eventually waits until ok is true, and fails the test at once when that has not come after a minute or when the test's own time is
// nearly over. what says what is to become true. Where there is more to say of a vain wait, use [EventuallyNil].
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	if Within(context.Background(), untilDeadline(t), func() error { return unless(ok()) }) != nil {
		t.Fatalf("waited in vain for: %s", what)
	}
}

// EventuallyNil is [Eventually] for a condition that can say what it sees: it waits until try returns nil, and the failure has its last
// error.
func EventuallyNil(t testing.TB, what string, try func() error) {
	t.Helper()
	if err := Within(context.Background(), untilDeadline(t), try); err != nil {
		t.Fatalf("waited in vain for: %s: %v", what, err)
	}
}

// Within calls try until it returns nil, and returns its last error when most has gone by or ctx is over. It is for a goroutine, which may
// not end the test, for a test that goes on after a vain wait, and for a bound of its own; elsewhere use [Eventually].
func Within(ctx context.Context, most time.Duration, try func() error) error {
	end := time.Now().Add(most)
	for step := firstStep; ; step = min(step+step/2, lastStep) {
		err := try()
		if err == nil || !time.Now().Before(end) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(step):
		}
	}
}

var errNotYet = errors.New("not yet")

// unless is an error while a condition does not hold.
func unless(ok bool) error {
	if ok {
		return nil
	}
	return errNotYet
}

// untilDeadline is how long a test may wait: its patience, or what is left until its deadline if that is less.
func untilDeadline(t testing.TB) time.Duration {
	if d, ok := t.(interface{ Deadline() (time.Time, bool) }); ok {
		if end, ok := d.Deadline(); ok {
			return min(patience, time.Until(end)-lastWords)
		}
	}
	return patience
}
