package gvisor

import (
	"context"
	"io"

	"github.com/carrel-dev/carrel"
)

// ExportBuild implements driver.BuildKeeper.
func (d *Driver) ExportBuild(_ context.Context, name string) (io.ReadCloser, int64, error) {
	const op = "export build"
	s, err := d.keptStore(op)
	if err != nil {
		return nil, 0, err
	}
	r, size, err := s.Export(name)
	if err != nil {
		return nil, 0, &carrel.Error{Op: op, Kind: carrel.KindOf(err), Err: err}
	}
	return r, size, nil
}

// ImportBuild implements driver.BuildKeeper.
func (d *Driver) ImportBuild(_ context.Context, name string, r io.Reader) error {
	const op = "import build"
	s, err := d.keptStore(op)
	if err == nil {
		err = s.Import(name, r)
	}
	if err != nil {
		return &carrel.Error{Op: op, Kind: carrel.KindOf(err), Err: err}
	}
	return nil
}
