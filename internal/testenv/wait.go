package testenv

import (
	"context"
	"errors"
	"testing"
	"time"
)

const (
	patience  = time.Minute            // the longest wait for something that should come at once
	firstStep = time.Millisecond       // between the first two tries; each step is 1.5 times the last
	lastStep  = 20 * time.Millisecond  // the longest step
	lastWords = 500 * time.Millisecond // left of the test's time to report what it waited for
)

// Eventually waits until ok is true. It fails the test after a minute, or shortly before the test's
// deadline. what describes the condition. To report more about a failed wait, use [EventuallyNil].
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	if Within(context.Background(), untilDeadline(t), func() error { return unless(ok()) }) != nil {
		t.Fatalf("waited in vain for: %s", what)
	}
}

// EventuallyNil is [Eventually] for a condition that can describe its state: it waits until try
// returns nil, and the failure shows the last error.
func EventuallyNil(t testing.TB, what string, try func() error) {
	t.Helper()
	if err := Within(context.Background(), untilDeadline(t), try); err != nil {
		t.Fatalf("waited in vain for: %s: %v", what, err)
	}
}

// Within calls try until it returns nil. It returns the last error when most has passed or ctx has
// ended. It is for three cases: a goroutine, which may not end the test; a test that continues
// after a failed wait; and a bound of its own. Otherwise use [Eventually].
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

// unless returns an error if ok is false.
func unless(ok bool) error {
	if ok {
		return nil
	}
	return errNotYet
}

// untilDeadline returns how long a test may wait: patience, or the time until its deadline if that
// is shorter.
func untilDeadline(t testing.TB) time.Duration {
	if d, ok := t.(interface{ Deadline() (time.Time, bool) }); ok {
		if end, ok := d.Deadline(); ok {
			return min(patience, time.Until(end)-lastWords)
		}
	}
	return patience
}
