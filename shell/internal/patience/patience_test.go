package patience_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carrel-dev/carrel/shell/internal/patience"
)

// judged is a test that records its failure and does not report it.
type judged struct {
	testing.TB
	failure string
}

func (*judged) Helper() {}

func (j *judged) Fatalf(format string, args ...any) { j.failure += fmt.Sprintf(format, args...) }

// TestUntil checks that a wait ends when its condition is true, or after a minute with the last
// error.
func TestUntil(t *testing.T) {
	for _, c := range []struct {
		comes, ends time.Duration
		want        string
	}{
		{0, 0, ""},
		{time.Second, time.Second, ""},
		{time.Hour, time.Minute, "waited in vain for: the moon is out: clouds"},
	} {
		synctest.Test(t, func(t *testing.T) {
			j, start := &judged{TB: t}, time.Now()
			patience.Until(j, "the moon is out", func() error {
				if time.Since(start) < c.comes {
					return errors.New("clouds")
				}
				return nil
			})
			if took := time.Since(start); took < c.ends || took > c.ends+20*time.Millisecond {
				t.Errorf("it took %v, want %v", took, c.ends)
			}
			if j.failure != c.want {
				t.Errorf("it said %q, want %q", j.failure, c.want)
			}
		})
	}
}
