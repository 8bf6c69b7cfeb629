package sim_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/drivertest"
	"github.com/carrel-dev/carrel/internal/driver/sim"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestConformance runs the suite that makes a driver done.
func TestConformance(t *testing.T) {
	drivertest.Run(t, drivertest.Harness{New: func(testing.TB) driver.Driver { return sim.New(sim.Options{}) }})
}
