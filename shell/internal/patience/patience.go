// Package patience waits, for the tests of this house.
package patience

import (
	"testing"
	"time"
)

// Until calls try until it returns nil, ever more seldom, and fails the test with its last error after a minute. what says what is to
// become true.
func Until(t testing.TB, what string, try func() error) {
	t.Helper()
	end := time.Now().Add(time.Minute)
	for step := time.Millisecond; ; step = min(step+step/2, 20*time.Millisecond) {
		err := try()
		if err == nil {
			return
		}
		if !time.Now().Before(end) {
			t.Fatalf("waited in vain for: %s: %v", what, err)
			return
		}
		time.Sleep(step)
	}
}
