package daemon

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/api"
	"github.com/carrel-dev/carrel/internal/config"
)

// DoctorRow says whether one driver works on this host, and what to do if not.
type DoctorRow = api.DriverReport

// Doctor looks at this host the way a daemon would, without starting one. It
// leaves nothing behind and may run beside a daemon.
func Doctor(ctx context.Context, cfg config.Config) ([]DoctorRow, error) {
	scratch, err := os.MkdirTemp("", "carrel-doctor-")
	if err != nil {
		return nil, &carrel.Error{Op: "run doctor", Kind: carrel.Internal, Err: err}
	}
	defer os.RemoveAll(scratch)
	cfg.DataDir = filepath.Join(scratch, "data")
	p := &parts{passing: true}
	defer p.close() //nolint:errcheck // nothing was written that could be lost
	quiet := slog.New(slog.DiscardHandler)
	if err := p.openDrivers(ctx, cfg, nil, quiet); err != nil {
		return nil, err
	}
	p.defaultTier, _ = p.chooseTier(ctx, cfg.DefaultTier, quiet) // none that works is what the rows say
	return p.report(ctx), nil
}
