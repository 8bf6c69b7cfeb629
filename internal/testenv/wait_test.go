package testenv_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carrel-dev/carrel/internal/testenv"
)

// judged is a test that only records its failure. It may have a deadline.
type judged struct {
	testing.TB
	deadline time.Time
	failure  string
}

func (*judged) Helper() {}

// Fatalf records the first failure. It returns, because the tested code does nothing after it.
func (j *judged) Fatalf(format string, args ...any) { j.failure += fmt.Sprintf(format, args...) }

// Deadline returns the deadline that the test case set, if any.
func (j *judged) Deadline() (time.Time, bool) { return j.deadline, !j.deadline.IsZero() }

// TestWaits shows that a wait tries at once and then less and less often. It ends when the
// condition is true, after a minute, or shortly before the test's end.
func TestWaits(t *testing.T) {
	waits := map[string]func(t testing.TB, ok func() bool){
		"Eventually": func(t testing.TB, ok func() bool) { testenv.Eventually(t, "the moon is out", ok) },
		"EventuallyNil": func(t testing.TB, ok func() bool) {
			testenv.EventuallyNil(t, "the moon is out", func() error {
				if ok() {
					return nil
				}
				return errors.New("clouds")
			})
		},
	}
	const never = time.Hour
	for name, wait := range waits {
		vain := "waited in vain for: the moon is out"
		if name == "EventuallyNil" {
			vain += ": clouds"
		}
		for _, c := range []struct {
			name      string
			comes     time.Duration
			left      time.Duration // until the test's deadline; 0 for none
			want      string
			from, til time.Duration // when it ends
		}{
			{name: "at once"},
			{name: "soon", comes: 3 * time.Millisecond, from: 3 * time.Millisecond, til: 6 * time.Millisecond},
			{name: "late", comes: 50 * time.Second, from: 50 * time.Second, til: 50*time.Second + 20*time.Millisecond},
			{name: "never", comes: never, want: vain, from: time.Minute, til: time.Minute + 20*time.Millisecond},
			{name: "with a far deadline", comes: never, left: time.Hour / 2, want: vain, from: time.Minute, til: time.Minute + 20*time.Millisecond},
			{name: "with a near deadline", comes: never, left: 10 * time.Second, want: vain, from: 9 * time.Second, til: 10*time.Second - time.Millisecond},
			{name: "after the deadline", comes: never, left: time.Millisecond, want: vain},
			{name: "there already, after the deadline", left: time.Millisecond},
		} {
			t.Run(name+"/"+c.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					j, start, looks := &judged{TB: t}, time.Now(), 0
					if c.left > 0 {
						j.deadline = start.Add(c.left)
					}
					wait(j, func() bool { looks++; return time.Since(start) >= c.comes })
					if took := time.Since(start); took < c.from || took > c.til {
						t.Errorf("it took %v, want %v to %v", took, c.from, c.til)
					}
					if j.failure != c.want {
						t.Errorf("it said %q, want %q", j.failure, c.want)
					}
					if most := 10 + int(time.Since(start)/(20*time.Millisecond)); looks > most {
						t.Errorf("it looked %d times, want %d at most", looks, most)
					}
				})
			})
		}
	}
}

// TestWithin shows that Within keeps the given bound, and returns the last error.
func TestWithin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, n := time.Now(), 0
		err := testenv.Within(t.Context(), 5*time.Minute, func() error { n++; return fmt.Errorf("look %d", n) })
		if err == nil || err.Error() != fmt.Sprintf("look %d", n) {
			t.Errorf("it gave %v, and the last was %d", err, n)
		}
		if took := time.Since(start).Round(time.Second); took != 5*time.Minute {
			t.Errorf("it took %v", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		start = time.Now()
		if err := testenv.Within(ctx, time.Minute, func() error { return ctx.Err() }); err != nil {
			t.Errorf("it gave %v, and nothing had failed", err)
		}
		if err := testenv.Within(ctx, time.Minute, func() error { return io.EOF }); err != io.EOF { //nolint:errorlint // the very one
			t.Errorf("it gave %v, want the last error", err)
		}
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("it went on for %v, and its context for 3s", took)
		}
		if err := testenv.Within(t.Context(), 0, func() error { return nil }); err != nil {
			t.Errorf("no time at all, and it is there: %v", err)
		}
	})
}
