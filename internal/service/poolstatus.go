package service

import (
	"context"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
)

var _ carrel.Pools = (*Service)(nil)

// Pool implements carrel.Pools.
func (s *Service) Pool(context.Context) (carrel.PoolStatus, error) {
	gate := s.gates.gate.State()
	st := s.warm.Status()
	st.Gate = carrel.Gate{Limit: gate.Limit, Starting: gate.Starting, Waiting: gate.Wakes + gate.Creates, Refused: gate.Refused}
	for _, d := range s.opts.Drivers.All() {
		if b, ok := driver.As[driver.Blanker](d); ok {
			if n := b.Blanks(); n.Keep > 0 {
				st.Blanks = &n
			}
		}
	}
	return st, nil
}
