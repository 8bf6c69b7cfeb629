package access

import (
	"context"
	"errors"

	"github.com/carrel-dev/carrel"
)

// Core is what a [Service] guards. It checks nobody's rights, but for what a template's
// reference means to the caller.
type Core interface {
	carrel.Sandboxes
	carrel.Moments
	carrel.Templates
	carrel.Programs
	carrel.Pools
	// Project says whose a sandbox is that lives or ended lately. It wakes nothing.
	Project(id carrel.ID) (project string, known bool)
	// PastProject says it also of one that ended longer ago, as long as that is known.
	PastProject(ctx context.Context, id carrel.ID) (project string, known bool, err error)
	// ResolveTemplate finds what a reference means to the caller in the context, in the order
	// that [carrel.TemplateRef] gives: a template, or a snapshot, whose ID it then returns
	// alone. It passes over what the caller may not use, and makes nothing.
	ResolveTemplate(ctx context.Context, op string, ref carrel.TemplateRef) (carrel.Template, carrel.SnapshotID, error)
	// SnapshotProject says whose a snapshot is, also one of another machine's.
	SnapshotProject(ctx context.Context, id carrel.SnapshotID) (project string, known bool)
	Close() error
}

// Keys keeps the SSH keys of all projects; package sshdoor implements it. The project of
// an administrator's keys is "".
type Keys interface {
	List() []carrel.SSHKey
	Add(project, name, publicKey string, sandboxes []carrel.ID) (carrel.SSHKey, error)
	Remove(project, name string) error
}

// Options is what a [Service] is made of. Core is required; what is nil is Unsupported.
type Options struct {
	Core Core
	// Secrets returns a project's secrets.
	Secrets func(project string) carrel.Secrets
	// Audits is the audit log of all projects.
	Audits carrel.Audits
	// Traces returns a sandbox's latest operations.
	Traces func(id carrel.ID) []carrel.Trace
	// SSHKeys are the keys of all projects.
	SSHKeys Keys
	// HostServices says who may open services of this machine to sandboxes.
	HostServices HostServices
	// Nobody is the caller of a context that has none; the zero Caller may do nothing.
	Nobody carrel.Caller
}

// Service is a [carrel.Service] in which each caller sees its own. It is safe for
// concurrent use.
type Service struct{ opts Options }

var _ carrel.Service = (*Service)(nil)

// New returns a service around a core.
func New(opts Options) *Service {
	if opts.Secrets == nil {
		opts.Secrets = func(string) carrel.Secrets { return carrel.NoSecrets{} }
	}
	if opts.Audits == nil {
		opts.Audits = carrel.NoAudits{}
	}
	return &Service{opts}
}

// As returns the same service for contexts that have no caller: it is then this one's.
func (s *Service) As(c carrel.Caller) *Service {
	opts := s.opts
	opts.Nobody = c
	return New(opts)
}

// Close implements carrel.Service: it closes the core.
func (s *Service) Close() error { return s.opts.Core.Close() }

// caller is who asks, and the context for the core, which must know it too. Error:
// Unauthenticated, for a door that forgot to ask.
func (s *Service) caller(ctx context.Context, op string) (carrel.Caller, context.Context, error) {
	if c, ok := carrel.CallerIn(ctx); ok {
		return c, ctx, nil
	}
	if s.opts.Nobody == (carrel.Caller{}) {
		return carrel.Caller{}, ctx, &carrel.Error{Op: op, Kind: carrel.Unauthenticated, Err: errors.New("nobody is known to ask")}
	}
	return s.opts.Nobody, carrel.WithCaller(ctx, s.opts.Nobody), nil
}

// user is caller for what only administrators and members do.
func (s *Service) user(ctx context.Context, op string) (carrel.Caller, context.Context, error) {
	c, ctx, err := s.caller(ctx, op)
	if err == nil && c.Role != carrel.RoleAdmin && c.Role != carrel.RoleMember {
		err = forbidden(op, c)
	}
	return c, ctx, err
}

func forbidden(op string, c carrel.Caller) error {
	return &carrel.Error{Op: op, Kind: carrel.Forbidden, Err: errors.New("a caller with the role " + string(c.Role) + " may not do this")}
}

// noSandbox is the answer for a sandbox that is not there, for this caller.
func noSandbox(op string, id carrel.ID) error {
	e := &carrel.Error{Op: op, Kind: carrel.NotFound, Err: errors.New("no such sandbox")}
	if _, err := carrel.ParseID(string(id)); err == nil {
		e.ID = id
	}
	return e
}

// sandbox checks that the caller may do something with a sandbox, or with one that ended
// lately. It returns the context for the core.
func (s *Service) sandbox(ctx context.Context, op string, id carrel.ID) (context.Context, error) {
	c, ctx, err := s.user(ctx, op)
	if err != nil {
		return ctx, err
	}
	if c.Role == carrel.RoleAdmin {
		return ctx, nil // the core knows better why it is not there
	}
	project, known := s.opts.Core.Project(id)
	if !known || !c.Sees(project) {
		return ctx, noSandbox(op, id)
	}
	return ctx, nil
}

// itself is sandbox, and lets in who is of this one sandbox alone.
func (s *Service) itself(ctx context.Context, op string, id carrel.ID) (context.Context, error) {
	if c, ctx, err := s.caller(ctx, op); err == nil && c.Sandbox != "" {
		if c.Sandbox != id {
			return ctx, noSandbox(op, id)
		}
		return ctx, nil
	}
	return s.sandbox(ctx, op, id)
}

// past is sandbox for what is told of sandboxes that are gone, too.
func (s *Service) past(ctx context.Context, op string, id carrel.ID) (context.Context, error) {
	c, ctx, err := s.user(ctx, op)
	if err != nil || c.Role == carrel.RoleAdmin {
		return ctx, err
	}
	project, known := s.opts.Core.Project(id)
	if known && c.Sees(project) {
		return ctx, nil
	}
	// Asked also for one that lives and is another's: it takes as long as one that never was.
	project, known, err = s.opts.Core.PastProject(ctx, id)
	if err != nil {
		return ctx, err
	}
	if !known || !c.Sees(project) {
		return ctx, noSandbox(op, id)
	}
	return ctx, nil
}
