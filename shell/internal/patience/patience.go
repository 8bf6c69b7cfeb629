// Package patience waits for conditions in the tests of these packages.
package patience

import (
	"testing"
	"time"
)

// Until calls try until it returns nil, with growing pauses. After a minute it fails the test with
// try's last error. what names the condition for the message.
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
