package gvisor_test

import (
	"testing"

	"github.com/carrel-dev/carrel/internal/driver"
)

// TestClocksAreReady asks the page from which programs read the time whether it could be used when the first program began,
// and in a restored sandbox before the second is over after which it can be used anyhow.
func TestClocksAreReady(t *testing.T) {
	const ready = "monotonic 1, real 1"
	d, _ := newDriver(t)
	in := create(t, d, newSpec(t))
	if got, _ := get(t, in, "/clocks"); got != ready {
		t.Errorf("at the start of a new one: %s", got)
	}
	dir, info := snapshot(t, in, driver.SnapshotOptions{})
	r := restore(t, d, dir, info, newSpec(t), driver.RestoreOptions{})
	if got, _ := get(t, r, "/clocksnow"); got != ready {
		t.Errorf("in a restored one: %s", got)
	}
}
