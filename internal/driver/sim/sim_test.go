package sim_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/drivertest"
	"github.com/carrel-dev/carrel/internal/driver/sim"
	"github.com/carrel-dev/carrel/internal/reexec"
	"github.com/carrel-dev/carrel/internal/wire"
)

// inside is the sandboxes' end of their links.
func inside(fd *os.File, mtu int) (sim.Inside, error) { return wire.NewInside(fd, mtu) }

func TestMain(m *testing.M) {
	if reexec.Run(sim.Parts(inside)) {
		return
	}
	goleak.VerifyTestMain(m)
}

// TestConformance runs the driver conformance suite.
func TestConformance(t *testing.T) {
	drivertest.Run(t, drivertest.Harness{New: func(testing.TB) driver.Driver { return sim.New(sim.Options{}) }})
}
