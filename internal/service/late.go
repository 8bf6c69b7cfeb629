package service

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/guest"
	"github.com/carrel-dev/carrel/internal/inbox"
	"github.com/carrel-dev/carrel/internal/policy"
)

// Late is a [Service] that opens later. The wire needs it, because the wire is made before the
// service. The zero value knows no sandbox. It is safe for concurrent use.
type Late struct{ service atomic.Pointer[Service] }

// Open sets the service that answers from now on.
func (l *Late) Open(s *Service) { l.service.Store(s) }

// errEarly answers requests that come before the service is open.
var errEarly = &carrel.Error{Op: "ask for credentials", Kind: carrel.Unavailable, Err: errors.New("the service is still starting")}

// Secret is [Service.Secret].
func (l *Late) Secret(ctx context.Context, id carrel.ID, name, host string) (string, error) {
	if s := l.service.Load(); s != nil {
		return s.Secret(ctx, id, name, host)
	}
	return "", errEarly
}

// Token is [Service.Token].
func (l *Late) Token(ctx context.Context, id carrel.ID, name string) (string, error) {
	if s := l.service.Load(); s != nil {
		return s.Token(ctx, id, name)
	}
	return "", errEarly
}

// Refused is [Service.Refused].
func (l *Late) Refused(ctx context.Context, id carrel.ID, r guest.Refusal) guest.RefusalReply {
	if s := l.service.Load(); s != nil {
		return s.Refused(ctx, id, r)
	}
	return guest.RefusalReply{}
}

// Ask asks a person about a connection of a sandbox.
func (l *Late) Ask(ctx context.Context, a inbox.Ask) inbox.Reply {
	if s := l.service.Load(); s != nil {
		return s.networks.ask(ctx, a)
	}
	return inbox.Reply{Reason: "the service is still starting"}
}

// Egress is [Service.Egress]. Before Open, it allows nothing.
func (l *Late) Egress(id carrel.ID) *policy.Policy {
	if s := l.service.Load(); s != nil {
		return s.Egress(id)
	}
	return nil
}

// Owned returns a writer of decisions that adds to each decision the project of its sandbox.
func (l *Late) Owned(write func(carrel.Decision)) func(carrel.Decision) {
	return func(d carrel.Decision) {
		if s := l.service.Load(); s != nil {
			d.Project, _ = s.Project(d.ID)
		}
		write(d)
	}
}
