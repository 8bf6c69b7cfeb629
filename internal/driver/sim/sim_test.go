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

// TestConformance runs the suite that makes a driver done.
func TestConformance(t *testing.T) {
	drivertest.Run(t, drivertest.Harness{New: func(testing.TB) driver.Driver { return sim.New(sim.Options{}) }})
}

// TestPoolConformance runs it on sandboxes in worker processes.
func TestPoolConformance(t *testing.T) {
	drivertest.Run(t, drivertest.Harness{New: func(t testing.TB) driver.Driver {
		p, err := sim.NewPool(sim.PoolOptions{Workers: 1})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Probe(t.Context()); err != nil { // the worker is there before anything is counted
			t.Fatal(err)
		}
		return p
	}})
}
