package daemon

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/api"
	"github.com/carrel-dev/carrel/internal/assembly"
	"github.com/carrel-dev/carrel/internal/config"
	"github.com/carrel-dev/carrel/internal/datadir"
	"github.com/carrel-dev/carrel/internal/service"
)

// DoctorRow says whether one driver works on this host, and what to do if it does not.
type DoctorRow = api.DriverReport

// Doctor examines this host as a daemon would, without starting one. It leaves nothing behind and
// may run beside a daemon.
func Doctor(ctx context.Context, cfg config.Config) ([]DoctorRow, error) {
	scratch, err := os.MkdirTemp("", "carrel-doctor-")
	if err != nil {
		return nil, &carrel.Error{Op: "run doctor", Kind: carrel.Internal, Err: err}
	}
	defer os.RemoveAll(scratch)
	problem, hint, identityErr := datadir.Inspect(cfg.DataDir)
	cfg.DataDir = filepath.Join(scratch, "data")
	checks, err := assembly.Examine(ctx, assembly.Options{Config: cfg,
		Lasting: lasting(cfg, nil, slog.New(slog.DiscardHandler)), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	out := append(rows(checks), copyRows(problem, hint)...)
	if identityErr != nil {
		out = append(out, DoctorRow{Driver: dataRow, Problem: identityErr.Error(),
			Hint: carrel.HintOf(identityErr)})
	}
	return out, nil
}

// dataRow is the name of the row about the data directory.
const dataRow = "data"

// copyRows tells that a data directory is a copy.
func copyRows(problem, hint string) []DoctorRow {
	if problem == "" {
		return nil
	}
	return []DoctorRow{{Driver: dataRow, OK: true,
		Findings: []api.Finding{{What: "this data directory is not the original", Why: problem,
			Hint: hint}}}}
}

// doctor is Doctor for a running daemon.
func (d *Daemon) doctor(ctx context.Context) ([]DoctorRow, error) {
	return append(rows(d.parts.Examine(ctx)), copyRows(d.parts.Copy())...), nil
}

// rows converts checks to the form of the API.
func rows(checks []service.Check) []DoctorRow {
	out := make([]DoctorRow, 0, len(checks))
	for _, c := range checks {
		row := DoctorRow{Driver: c.Driver, Tier: c.Tier, OK: c.Err == nil, Default: c.Default}
		if c.Err != nil {
			row.Problem, row.Hint = c.Err.Error(), carrel.HintOf(c.Err)
		}
		for _, f := range c.Findings {
			row.Findings = append(row.Findings, api.Finding(f))
		}
		out = append(out, row)
	}
	return out
}
