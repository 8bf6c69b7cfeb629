package attempts

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// TestCounter tries too often, waits, and tries under many names.
func TestCounter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(3, time.Minute)
		for i := range 3 {
			if wait := c.Take("a"); wait != 0 {
				t.Errorf("attempt %d: %v", i, wait)
			}
		}
		for range 5 { // a refused attempt does not lengthen the wait
			if wait := c.Take("a"); wait <= 0 || wait > time.Minute {
				t.Errorf("one too many: %v", wait)
			}
		}
		if c.Take("b") != 0 {
			t.Error("another name is refused")
		}
		time.Sleep(time.Minute)
		if c.Take("a") != 0 || c.Take("a") == 0 {
			t.Error("a minute does not give one attempt")
		}
		c.Forget("a")
		if c.Take("a") != 0 {
			t.Error("nothing is forgotten")
		}
		for i := range 2 * maxAttempts {
			c.Take(fmt.Sprint("name ", i))
		}
		if len(c.of) > maxAttempts+1 || c.Take("a new name") == 0 {
			t.Errorf("many names escape: %d are counted", len(c.of))
		}
		time.Sleep(time.Hour)
		if c.Take("a newer name") != 0 {
			t.Error("the crowd is never forgotten")
		}
	})
}

// TestNetwork says who is counted together.
func TestNetwork(t *testing.T) {
	for from, want := range map[string]string{
		"192.0.2.1": "192.0.2.1", "192.0.2.1:80": "192.0.2.1", "::ffff:192.0.2.1": "192.0.2.1",
		"2001:db8::1": "2001:db8::/64", "[2001:db8::2]:9": "2001:db8::/64", "@": "@", "": "",
	} {
		if got := Network(from); got != want {
			t.Errorf("%q: %q, want %q", from, got, want)
		}
	}
}
