package daemon

import (
	"context"

	"github.com/carrel-dev/carrel/internal/trace"
	"github.com/carrel-dev/carrel/internal/trace/otlp"
	"github.com/carrel-dev/carrel/internal/version"
)

// openTraces records how operations spend their time, and sends that to the collector in the
// environment.
func (d *Daemon) openTraces(ctx context.Context) error {
	if !otlp.Wanted() {
		d.traces = trace.New(nil)
		return nil
	}
	to, err := otlp.New(ctx, version.Version, d.log)
	if err != nil {
		return err
	}
	d.undo.Add(func() {
		if err := to.Close(); err != nil {
			d.log.Warn("send the last traces", "err", err)
		}
	})
	d.traces = trace.New(to.Export)
	return nil
}
