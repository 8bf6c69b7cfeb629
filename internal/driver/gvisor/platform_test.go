package gvisor_test

import (
	"testing"

	"github.com/carrel-dev/carrel/internal/driver"
)

// TestClocksAreReady reads the page from which programs read the time. The page must be usable when
// the first program begins. In a restored sandbox it must be usable earlier than after one second,
// when gVisor itself would have filled it.
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
