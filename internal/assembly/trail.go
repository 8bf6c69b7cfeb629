package assembly

import (
	"context"
	"path/filepath"
	"sync"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/access"
	"github.com/carrel-dev/carrel/internal/audit"
	"github.com/carrel-dev/carrel/internal/ledger/trail"
	"github.com/carrel-dev/carrel/internal/ledger/trail/forward"
	"github.com/carrel-dev/carrel/internal/request"
	"github.com/carrel-dev/carrel/internal/trace/otlp"
	"github.com/carrel-dev/carrel/internal/version"
)

// auditDir is the directory of the wire's audit log.
func (a *Assembly) auditDir() string { return filepath.Join(a.dir, "audit") }

// openTrail opens the audit trail of what callers did, and sends it where the configuration says. A
// passing service has none: it has one caller.
func (a *Assembly) openTrail(ctx context.Context) (err error) {
	if a.passing() {
		return nil
	}
	dir := filepath.Join(a.dir, "trail")
	a.trail, err = trail.Open(dir, trail.Options{MaxBytes: a.cfg.Trail.Size, MaxAge: a.cfg.Trail.Age,
		Version: version.Version, Logger: a.log})
	if err != nil {
		return err
	}
	a.closing(a.trail.Close)
	a.sent = map[string]*forward.Progress{"syslog": {}, "otlp": {}}
	var sending sync.WaitGroup
	sendCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	a.undo.Add(func() { stop(); sending.Wait() })
	if to := a.cfg.Trail.Syslog; to != "" {
		sink, err := forward.NewSyslog(to)
		if err != nil {
			return &carrel.Error{Op: "send audit trail", Kind: carrel.Invalid, Field: "trail-syslog", Err: err}
		}
		sending.Go(func() { a.forward(sendCtx, sink, "syslog") })
	}
	if a.cfg.Trail.OTLP {
		sink, err := otlp.NewTrail(ctx, version.Version)
		if err != nil {
			return err
		}
		sending.Go(func() { a.forward(sendCtx, sink, "otlp") })
	}
	return nil
}

// forward sends the trail to a destination until ctx ends.
func (a *Assembly) forward(ctx context.Context, to forward.Sink, name string) {
	file := filepath.Join(a.dir, "trail", "sent-"+name+".json")
	forward.Run(ctx, a.trail, to, name, file, a.sent[name], a.log)
}

// anchor is the trail for the wire's audit log; nil without one.
func (a *Assembly) anchor() audit.Anchor {
	if a.trail == nil {
		return nil
	}
	return a.trail
}

// Journal takes what callers did; nil for a passing service.
func (a *Assembly) Journal() request.Journal {
	if a.trail == nil {
		return nil
	}
	return a.trail
}

// Trails is the audit trail as each caller sees it.
func (a *Assembly) Trails() carrel.Trails {
	if a.trail == nil {
		return carrel.NoTrails{}
	}
	return access.Trails{Service: a.Access, Of: a.trail, Verify: func(ctx context.Context) (carrel.TrailReport, error) {
		return a.trail.Verify(ctx, Egress(a.auditDir()))
	}}
}

// Egress returns a function that reads the wire's audit log in a directory, for a verification.
func Egress(dir string) trail.Lines {
	return func(ctx context.Context, fn func(seq int64, line []byte) error) error {
		return audit.Lines(ctx, dir, 0, fn)
	}
}
