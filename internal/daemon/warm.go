package daemon

import (
	"github.com/carrel-dev/carrel/internal/config"
	"github.com/carrel-dev/carrel/internal/service"
)

// warmOptions is what the service keeps ready.
func warmOptions(c config.Warm) service.WarmOptions {
	out := service.WarmOptions{Cap: c.Cap}
	for _, f := range c.Floors {
		out.Floors = append(out.Floors, service.WarmFloor(f))
	}
	return out
}
