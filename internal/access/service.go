package access

import (
	"context"
	"errors"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/ceiling"
)

// Core is the service that a [Service] guards. It checks nobody's rights, with one exception: it
// resolves a template's reference for the caller.
type Core interface {
	carrel.Sandboxes
	carrel.Moments
	carrel.Templates
	carrel.Programs
	carrel.Pools
	carrel.Checks
	carrel.Registries
	// TemplatePackages and TemplateChanges are those of [carrel.Catalog].
	TemplatePackages(ctx context.Context, nameOrID string) (carrel.TemplatePackages, error)
	TemplateChanges(ctx context.Context, from, to string) ([]carrel.FileChange, error)
	// TemplateUses and CollectTemplates are those of [carrel.Catalog] for one project; "" is all.
	TemplateUses(ctx context.Context, project string) ([]carrel.TemplateUse, error)
	CollectTemplates(ctx context.Context, project string,
		opts carrel.CollectOptions) (carrel.Collected, error)
	// Project returns the project of a sandbox that lives or ended lately. It wakes nothing.
	Project(id carrel.ID) (project string, known bool)
	// PastProject is Project, also for a sandbox that ended longer ago, as long as that is known.
	PastProject(ctx context.Context, id carrel.ID) (project string, known bool, err error)
	// ResolveTemplate finds what a reference means to the caller in the context, in the order that
	// [carrel.TemplateRef] gives. It returns a template, or only the ID of a snapshot. It passes
	// over everything that the caller may not use, and makes nothing.
	ResolveTemplate(ctx context.Context, op string, ref carrel.TemplateRef) (carrel.Template, carrel.SnapshotID, error)
	// SnapshotProject returns the project of a snapshot, also of one on another machine.
	SnapshotProject(ctx context.Context, id carrel.SnapshotID) (project string, known bool)
	// ProjectMetrics counts a project's sandboxes over the last hour.
	ProjectMetrics(project string, from, to time.Time) []carrel.ProjectMetric
	Close() error
}

// Keys keeps the SSH keys of all projects; package sshdoor implements it. The project of
// an administrator's keys is "".
type Keys interface {
	List() []carrel.SSHKey
	Add(project, name, publicKey string, sandboxes []carrel.ID) (carrel.SSHKey, error)
	Remove(project, name string) error
}

// Options holds the parts of a [Service]. Core is required. Calls that need a part that is nil are
// Unsupported.
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
	// Usage is the ledger of all projects.
	Usage carrel.Metering
	// Builds makes templates step by step.
	Builds Builds
	// HostServices says who may open services of this machine to sandboxes.
	HostServices HostServices
	// Ceilings returns the ceilings that bind a key of a project; nil is none.
	Ceilings func(project, key string) []ceiling.Bound
	// Nobody is the caller for a context without one. The zero Caller may do nothing.
	Nobody carrel.Caller
}

// Service is a [carrel.Service] that shows each caller only its own things. It is safe for
// concurrent use.
type Service struct {
	opts Options
	metering
	labels
	pastFiles
}

var _ carrel.Service = (*Service)(nil)

// New returns a service around a core.
func New(opts Options) *Service {
	if opts.Secrets == nil {
		opts.Secrets = func(string) carrel.Secrets { return carrel.NoSecrets{} }
	}
	if opts.Audits == nil {
		opts.Audits = carrel.NoAudits{}
	}
	if opts.Ceilings == nil {
		opts.Ceilings = func(string, string) []ceiling.Bound { return nil }
	}
	if opts.Builds == nil {
		opts.Builds = noBuilds{}
	}
	if opts.Usage == nil {
		opts.Usage = carrel.NoMetering{}
	}
	s := &Service{opts: opts, metering: metering{opts.Usage, opts.Nobody}}
	s.labels, s.pastFiles = labels{s}, pastFiles{s}
	return s
}

// As returns the same service with c as the caller for contexts that have none.
func (s *Service) As(c carrel.Caller) *Service {
	opts := s.opts
	opts.Nobody = c
	return New(opts)
}

// Close implements carrel.Service: it closes the core.
func (s *Service) Close() error { return s.opts.Core.Close() }

// caller returns the caller, and the context for the core, which must know the caller too. Error:
// Unauthenticated, if the door forgot to identify the caller.
func (s *Service) caller(ctx context.Context, op string) (carrel.Caller, context.Context, error) {
	if c, ok := carrel.CallerIn(ctx); ok {
		return c, ctx, nil
	}
	if s.opts.Nobody == (carrel.Caller{}) {
		return carrel.Caller{}, ctx, &carrel.Error{Op: op, Kind: carrel.Unauthenticated, Err: errors.New("nobody is known to ask")}
	}
	return s.opts.Nobody, carrel.WithCaller(ctx, s.opts.Nobody), nil
}

// user is caller for operations that administrators, owners and members may do, and readers too if
// readings has it.
func (s *Service) user(ctx context.Context, op string) (carrel.Caller, context.Context, error) {
	c, ctx, err := s.caller(ctx, op)
	if err != nil {
		return c, ctx, err
	}
	switch c.Role {
	case carrel.RoleAdmin, carrel.RoleOwner, carrel.RoleMember:
		return c, ctx, nil
	case carrel.RoleReader:
		if readings[op] {
			return c, ctx, nil
		}
		return c, ctx, &carrel.Error{Op: op, Kind: carrel.Forbidden, Err: errors.New("this API key may only read"),
			Hint: "use a key with the scope run"}
	}
	if c.Role == carrel.RolePerson {
		if personal[op] {
			return c, ctx, nil
		}
		return c, ctx, &carrel.Error{Op: op, Kind: carrel.Forbidden, Field: headerTenant,
			Err:  errors.New("you have to say in which of your projects"),
			Hint: "name it with --project (the header Carrel-Tenant); 'carrel whoami' tells them"}
	}
	return c, ctx, forbidden(op, c)
}

// personal are the operations of a person who names no project.
var personal = map[string]bool{
	"who am I": true, "list projects": true, "get project": true, "get person": true,
	"set password": true,
}

// readings are the operations that a reader may do. None changes anything or enters a sandbox. An
// operation that is not here is refused, so a new one is refused until somebody has thought of it.
var readings = map[string]bool{
	"get sandbox": true, "list sandboxes": true, "read metrics": true, "read logs": true,
	"follow events": true, "list events": true, "list webhooks": true, "get webhook": true,
	"list deliveries": true, "list questions": true, "read usage": true, "count sandboxes": true, "read traces": true, "read audit log": true,
	"get snapshot": true, "list snapshots": true, "compare snapshots": true, "read timeline": true,
	"list templates": true, "get template": true, "list tags": true, "list packages": true,
	"compare templates": true, "count uses of templates": true,
	"list builds": true, "get build": true, "read build log": true,
	"list secrets": true, "get secret": true, "list SSH keys": true,
	"read quotas": true, "read ceilings": true, "read budgets": true,
	"list projects": true, "get project": true, "who am I": true, "get person": true,
	"set password": true, // the own one
}

// shown removes from a sandbox what its caller may not see. A reader gets no token, because a token
// opens the sandbox, and no rule that may hold a credential.
func shown(c carrel.Caller, sb carrel.Sandbox) carrel.Sandbox {
	if c.Role == carrel.RoleReader {
		sb.AccessToken, sb.TrafficToken = "", ""
		sb.Network.Rules, sb.Network.EgressProxy = nil, nil
	}
	return sb
}

func forbidden(op string, c carrel.Caller) error {
	return &carrel.Error{Op: op, Kind: carrel.Forbidden, Err: errors.New("a caller with the role " + string(c.Role) + " may not do this")}
}

// noSandbox is the error for a sandbox that does not exist for this caller.
func noSandbox(op string, id carrel.ID) error {
	e := &carrel.Error{Op: op, Kind: carrel.NotFound, Err: errors.New("no such sandbox")}
	if _, err := carrel.ParseID(string(id)); err == nil {
		e.ID = id
	}
	return e
}

// sandbox checks that the caller may use a sandbox, also one that ended lately. It returns the
// context for the core.
func (s *Service) sandbox(ctx context.Context, op string, id carrel.ID) (context.Context, error) {
	c, ctx, err := s.user(ctx, op)
	if err != nil {
		return ctx, err
	}
	if c.Role == carrel.RoleAdmin {
		return ctx, nil // the core can say why it does not exist
	}
	project, known := s.opts.Core.Project(id)
	if !known || !c.Sees(project) {
		return ctx, noSandbox(op, id)
	}
	return ctx, nil
}

// itself is sandbox, but also admits a caller who may use only this one sandbox.
func (s *Service) itself(ctx context.Context, op string, id carrel.ID) (context.Context, error) {
	if c, ctx, err := s.caller(ctx, op); err == nil && c.Sandbox != "" {
		if c.Sandbox != id {
			return ctx, noSandbox(op, id)
		}
		return ctx, nil
	}
	return s.sandbox(ctx, op, id)
}

// past is sandbox for information that is also given about sandboxes that are gone.
func (s *Service) past(ctx context.Context, op string, id carrel.ID) (context.Context, error) {
	c, ctx, err := s.user(ctx, op)
	if err != nil || c.Role == carrel.RoleAdmin {
		return ctx, err
	}
	project, known := s.opts.Core.Project(id)
	if known && c.Sees(project) {
		return ctx, nil
	}
	// Ask also about another project's living sandbox, so that it takes as long as one that never
	// existed.
	project, known, err = s.opts.Core.PastProject(ctx, id)
	if err != nil {
		return ctx, err
	}
	if !known || !c.Sees(project) {
		return ctx, noSandbox(op, id)
	}
	return ctx, nil
}
