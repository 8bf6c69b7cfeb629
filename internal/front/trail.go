package front

import (
	"context"
	"path/filepath"
	"sync"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/access"
	"github.com/carrel-dev/carrel/internal/ledger/trail"
	"github.com/carrel-dev/carrel/internal/ledger/trail/forward"
	"github.com/carrel-dev/carrel/internal/request"
	"github.com/carrel-dev/carrel/internal/trace/otlp"
	"github.com/carrel-dev/carrel/internal/version"
)

// openTrail opens the audit trail of what callers did at this front, if it has a directory. Nodes only
// know that a front asked. Each front's trail is a chain of its own, which nobody else writes.
func (f *Front) openTrail(ctx context.Context) (err error) {
	dir, s := f.cfg.TrailDir, f.cfg.Trail
	if dir == "" {
		return nil
	}
	if err := s.Check(); err != nil {
		return err
	}
	f.trail, err = trail.Open(dir, trail.Options{MaxBytes: s.Size, MaxAge: s.Age, Version: version.Version, Logger: f.log})
	if err != nil {
		return err
	}
	f.undo.Add(func() {
		if err := f.trail.Close(); err != nil {
			f.log.Error("close the audit trail", "err", err)
		}
	})
	var sending sync.WaitGroup
	sendCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	f.undo.Add(func() { stop(); sending.Wait() })
	send := func(to forward.Sink, name string) {
		sending.Go(func() {
			forward.Run(sendCtx, f.trail, to, name, filepath.Join(dir, "sent-"+name+".json"), &forward.Progress{}, f.log)
		})
	}
	if s.Syslog != "" {
		sink, err := forward.NewSyslog(s.Syslog)
		if err != nil {
			return &carrel.Error{Op: "send audit trail", Kind: carrel.Invalid, Field: "trail-syslog", Err: err}
		}
		send(sink, "syslog")
	}
	if s.OTLP {
		sink, err := otlp.NewTrail(ctx, version.Version)
		if err != nil {
			return err
		}
		send(sink, "otlp")
	}
	return nil
}

// journal takes what callers did; nil without a trail.
func (f *Front) journal() request.Journal {
	if f.trail == nil {
		return nil
	}
	return f.trail
}

// trails is this front's audit trail as each caller sees it.
func (f *Front) trails(service *access.Service) carrel.Trails {
	if f.trail == nil {
		return carrel.NoTrails{}
	}
	none := func(context.Context, func(seq int64, line []byte) error) error { return nil } // the wire is the nodes'
	return access.Trails{Service: service, Of: f.trail, Verify: func(ctx context.Context) (carrel.TrailReport, error) {
		return f.trail.Verify(ctx, none)
	}}
}
