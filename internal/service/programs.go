package service

import (
	"context"
	"fmt"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
)

// Provide implements carrel.Programs.
func (s *Service) Provide(_ context.Context, id carrel.ID, programs ...carrel.Program) (func(), error) {
	const op = "provide programs"
	if err := carrel.CheckPrograms(programs); err != nil {
		return nil, err
	}
	b, err := s.table.find(op, id)
	if err != nil {
		return nil, err
	}
	tier := b.public().Tier
	d, err := s.opts.Drivers.Get(tier)
	if err != nil {
		return nil, err
	}
	p, ok := d.(driver.Programmer)
	if !ok {
		return nil, &carrel.Error{Op: op, Kind: carrel.Unsupported, ID: id, Err: fmt.Errorf("a sandbox of tier %s runs real programs only", tier),
			Hint: "copy a program into it, or use tier sim"}
	}
	return p.Provide(id, programs)
}
