package service

import (
	"context"
	"io"
	"iter"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/admission"
	"github.com/carrel-dev/carrel/internal/guest"
	"github.com/carrel-dev/carrel/internal/policy"
)

// Computer implements carrel.Sandboxes.
func (s *Service) Computer(ctx context.Context, id carrel.ID) (carrel.Computer, error) {
	return s.moments.Computer(ctx, id)
}

// Unclaimed implements carrel.Checks.
func (s *Service) Unclaimed(ctx context.Context) ([]carrel.Unclaimed, error) {
	return s.lost.Unclaimed(ctx)
}

// Reclaim implements carrel.Checks.
func (s *Service) Reclaim(ctx context.Context, id string) error { return s.lost.Reclaim(ctx, id) }

// Discard implements carrel.Checks.
func (s *Service) Discard(ctx context.Context, id string) error { return s.lost.Discard(ctx, id) }

// Create implements carrel.Sandboxes.
func (s *Service) Create(ctx context.Context, opts carrel.CreateOptions) (carrel.Sandbox, error) {
	return s.creator.Create(ctx, opts)
}

// Events implements carrel.Sandboxes.
func (s *Service) Events(ctx context.Context, after int64) iter.Seq2[carrel.Event, error] {
	return s.journal.Events(ctx, after)
}

// Kill implements carrel.Sandboxes.
func (s *Service) Kill(ctx context.Context, id carrel.ID) error {
	return s.lifecycle.Kill(ctx, id)
}

// Logs implements carrel.Sandboxes.
func (s *Service) Logs(ctx context.Context, id carrel.ID, opts carrel.LogOptions) ([]carrel.LogEntry, error) {
	return s.journal.Logs(ctx, id, opts)
}

// Metrics implements carrel.Sandboxes.
func (s *Service) Metrics(ctx context.Context, id carrel.ID, from, to time.Time) ([]carrel.Metric, error) {
	return s.meter.Metrics(ctx, id, from, to)
}

// SetNetwork implements carrel.Sandboxes.
func (s *Service) SetNetwork(ctx context.Context, id carrel.ID, n carrel.Network) (carrel.Sandbox, error) {
	return s.networks.SetNetwork(ctx, id, n)
}

// SetTimeout implements carrel.Sandboxes.
func (s *Service) SetTimeout(ctx context.Context, id carrel.ID, d time.Duration, extendOnly bool) (carrel.Sandbox, error) {
	return s.lifecycle.SetTimeout(ctx, id, d, extendOnly)
}

// DeleteSnapshot implements carrel.Moments.
func (s *Service) DeleteSnapshot(ctx context.Context, idOrName string) error {
	return s.archive.DeleteSnapshot(ctx, idOrName)
}

// Diff implements carrel.Moments.
func (s *Service) Diff(ctx context.Context, from, to carrel.SnapshotID) ([]carrel.FileChange, error) {
	return s.archive.Diff(ctx, from, to)
}

// Fork implements carrel.Moments.
func (s *Service) Fork(ctx context.Context, id carrel.ID, o carrel.ForkOptions) ([]carrel.ForkResult, error) {
	return s.moments.Fork(ctx, id, o)
}

// GetSnapshot implements carrel.Moments.
func (s *Service) GetSnapshot(ctx context.Context, idOrName string) (carrel.Snapshot, error) {
	return s.archive.GetSnapshot(ctx, idOrName)
}

// ListSnapshots implements carrel.Moments.
func (s *Service) ListSnapshots(ctx context.Context, o carrel.SnapshotListOptions) (carrel.SnapshotPage, error) {
	return s.archive.ListSnapshots(ctx, o)
}

// Pause implements carrel.Moments.
func (s *Service) Pause(ctx context.Context, id carrel.ID, o carrel.PauseOptions) (carrel.Sandbox, error) {
	return s.moments.Pause(ctx, id, o)
}

// Promote implements carrel.Moments.
func (s *Service) Promote(ctx context.Context, id carrel.ID, o carrel.PromoteOptions) (carrel.Sandbox, error) {
	return s.moments.Promote(ctx, id, o)
}

// Resume implements carrel.Moments.
func (s *Service) Resume(ctx context.Context, id carrel.ID, o carrel.ResumeOptions) (carrel.Sandbox, bool, error) {
	return s.moments.Resume(ctx, id, o)
}

// Rollback implements carrel.Moments.
func (s *Service) Rollback(ctx context.Context, id carrel.ID, to carrel.SnapshotID, o carrel.RollbackOptions) (carrel.Sandbox, error) {
	return s.moments.Rollback(ctx, id, to, o)
}

// SetLifecycle implements carrel.Moments.
func (s *Service) SetLifecycle(ctx context.Context, id carrel.ID, l carrel.Lifecycle) (carrel.Sandbox, error) {
	return s.lifecycle.SetLifecycle(ctx, id, l)
}

// Snapshot implements carrel.Moments.
func (s *Service) Snapshot(ctx context.Context, id carrel.ID, o carrel.SnapshotOptions) (carrel.Snapshot, error) {
	return s.moments.Snapshot(ctx, id, o)
}

// Timeline implements carrel.Moments.
func (s *Service) Timeline(ctx context.Context, id carrel.ID) (carrel.Timeline, error) {
	return s.archive.Timeline(ctx, id)
}

// UpdateSnapshot implements carrel.Moments.
func (s *Service) UpdateSnapshot(ctx context.Context, id carrel.SnapshotID, u carrel.SnapshotUpdate) (carrel.Snapshot, error) {
	return s.archive.UpdateSnapshot(ctx, id, u)
}

// DeleteTemplate implements carrel.Templates.
func (s *Service) DeleteTemplate(ctx context.Context, nameOrID string) error {
	return s.templates.DeleteTemplate(ctx, nameOrID)
}

// GetTemplate implements carrel.Templates.
func (s *Service) GetTemplate(ctx context.Context, nameOrID string) (carrel.Template, error) {
	return s.templates.GetTemplate(ctx, nameOrID)
}

// ImportTemplate implements carrel.Templates.
func (s *Service) ImportTemplate(ctx context.Context, name string, archive io.Reader, progress func(carrel.Progress)) (carrel.Template, error) {
	return s.templates.ImportTemplate(ctx, name, archive, progress)
}

// ListTemplates implements carrel.Templates.
func (s *Service) ListTemplates(ctx context.Context) ([]carrel.Template, error) {
	return s.templates.ListTemplates(ctx)
}

// PullTemplate implements carrel.Templates.
func (s *Service) PullTemplate(ctx context.Context, name, ref string, progress func(carrel.Progress)) (carrel.Template, error) {
	return s.templates.PullImage(ctx, name, carrel.PullOptions{Image: ref}, progress)
}

// PullImage implements carrel.Registries.
func (s *Service) PullImage(ctx context.Context, name string, opts carrel.PullOptions,
	progress func(carrel.Progress)) (carrel.Template, error) {
	return s.templates.PullImage(ctx, name, opts, progress)
}

// PushTemplate implements carrel.Registries.
func (s *Service) PushTemplate(ctx context.Context, nameOrID string, opts carrel.PushOptions,
	progress func(carrel.Progress)) (carrel.Pushed, error) {
	ref, err := carrel.ParseTemplateRef(nameOrID)
	if err != nil {
		return carrel.Pushed{}, err
	}
	m, err := s.templates.resolver.resolve(ctx, opPush, ref)
	switch {
	case err != nil:
		return carrel.Pushed{}, err
	case m.moment != nil:
		return s.pushSnapshot(ctx, m, opts, progress)
	}
	return s.templates.push(ctx, m.template.ID, opts, progress)
}

// UpdateTemplate implements carrel.Templates.
func (s *Service) UpdateTemplate(ctx context.Context, nameOrID string, u carrel.TemplateUpdate) (carrel.Template, error) {
	return s.templates.UpdateTemplate(ctx, nameOrID, u)
}

// Admission returns the state of the gate before each start.
func (s *Service) Admission() admission.State {
	return s.gates.Admission()
}

// Egress returns the policy that a sandbox has at this moment. It is nil, which allows nothing, for
// an unknown sandbox. The wire asks when it makes a link. The link of a simulated sandbox is made
// only when it is needed.
func (s *Service) Egress(id carrel.ID) *policy.Policy {
	return s.networks.Egress(id)
}

// MintToken mints one of a sandbox's identity tokens. It finds the token by its name or, when name
// is "", by its audience. Error: NotFound when the sandbox has no such token.
func (s *Service) MintToken(ctx context.Context, id carrel.ID, name, audience string) (carrel.Token, error) {
	return s.networks.MintToken(ctx, id, name, audience)
}

// PastProject returns the project of a living or past sandbox. It knows sandboxes that ended before
// this service began, as long as the store has events of them.
func (s *Service) PastProject(ctx context.Context, id carrel.ID) (project string, known bool, err error) {
	return s.journal.PastProject(ctx, id)
}

// Project returns the project of a sandbox that lives or ended lately. It reads only memory and
// wakes nothing.
func (s *Service) Project(id carrel.ID) (project string, known bool) {
	return s.table.Project(id)
}

// Refused tells a sandbox that the wire refused its request. It returns the program that made the
// request, if the guest could find out. If the sandbox can't be told, only the audit log has the
// refusal.
func (s *Service) Refused(ctx context.Context, id carrel.ID, r guest.Refusal) guest.RefusalReply {
	return s.networks.Refused(ctx, id, r)
}

// Secret reveals a secret for a sandbox's request to host. Only the wire may call it.
func (s *Service) Secret(ctx context.Context, id carrel.ID, name, host string) (string, error) {
	return s.networks.Secret(ctx, id, name, host)
}

// ResolveTemplate finds the template or the snapshot that a reference means to the caller. For a
// snapshot, it returns only the ID. It makes nothing.
func (s *Service) ResolveTemplate(ctx context.Context, op string, ref carrel.TemplateRef) (carrel.Template, carrel.SnapshotID, error) {
	return s.templates.ResolveTemplate(ctx, op, ref)
}

// SnapshotProject returns the project of a snapshot, on this machine or in the shared store.
func (s *Service) SnapshotProject(ctx context.Context, id carrel.SnapshotID) (project string, known bool) {
	return s.archive.SnapshotProject(ctx, id)
}

// Token mints one of a sandbox's identity tokens, for a request of this sandbox.
func (s *Service) Token(ctx context.Context, id carrel.ID, name string) (string, error) {
	return s.networks.Token(ctx, id, name)
}

// Visit returns a connection to a sandbox's ports for one request. The sandbox does not count as
// idle until done is called. Visit first resumes a paused sandbox that has automatic wake-up, and
// waits for a pause or a resumption under way. Errors: NotFound, Conflict.
func (s *Service) Visit(ctx context.Context, id carrel.ID) (conn *guest.Conn, done func(), err error) {
	return s.moments.Visit(ctx, id)
}

// TemplatePackages implements carrel.Catalog.
func (s *Service) TemplatePackages(ctx context.Context,
	nameOrID string) (carrel.TemplatePackages, error) {
	return s.templates.TemplatePackages(ctx, nameOrID)
}

// TemplateChanges implements carrel.Catalog.
func (s *Service) TemplateChanges(ctx context.Context, from,
	to string) ([]carrel.FileChange, error) {
	return s.templates.TemplateChanges(ctx, from, to)
}
