package daemon

import (
	"context"
	"log/slog"

	"github.com/carrel-dev/carrel/internal/request"
	"github.com/carrel-dev/carrel/internal/trace"
	"github.com/carrel-dev/carrel/internal/trace/otlp"
	"github.com/carrel-dev/carrel/internal/version"
)

// openTraces records how operations spend their time, and sends that to the collector in the
// environment.
func (d *Daemon) openTraces(ctx context.Context) error {
	if !otlp.Wanted(otlp.SignalTraces) {
		d.traces = trace.New(nil)
		return nil
	}
	to, err := otlp.New(ctx, version.Version, d.log)
	if err != nil {
		return err
	}
	d.sending("traces", to.Close)
	d.traces = trace.New(to.Export)
	return nil
}

// sending closes a sender with the daemon.
func (d *Daemon) sending(what string, close func() error) {
	d.undo.Add(func() {
		if err := close(); err != nil {
			d.log.Warn("send the last "+what, "err", err)
		}
	})
}

// openLogs sends the log to the collector in the environment, too.
func (d *Daemon) openLogs(ctx context.Context) error {
	if !otlp.Wanted(otlp.SignalLogs) {
		return nil
	}
	var from slog.Level
	_ = from.UnmarshalText([]byte(d.cfg.LogLevel)) // Validate knows the same names
	to, err := otlp.NewLogs(ctx, version.Version, from)
	if err != nil {
		return err
	}
	local := d.log
	d.log = slog.New(slog.NewMultiHandler(local.Handler(), request.Handler(to)))
	d.undo.Add(func() { // the last of all, so that it sends what the others say
		if err := to.Close(); err != nil {
			local.Warn("send the last of the log", "err", err)
		}
	})
	return nil
}

// sendMetrics sends the figures to the collector in the environment, too.
func (d *Daemon) sendMetrics(ctx context.Context) error {
	if !otlp.Wanted(otlp.SignalMetrics) {
		return nil
	}
	to, err := otlp.NewMetrics(ctx, d.figures.all.Gatherer(), version.Version)
	if err != nil {
		return err
	}
	d.sending("metrics", to.Close)
	return nil
}
