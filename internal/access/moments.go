package access

import (
	"context"
	"fmt"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/request"
)

// Pause implements carrel.Moments.
func (s *Service) Pause(ctx context.Context, id carrel.ID, opts carrel.PauseOptions) (carrel.Sandbox, error) {
	const op = "pause sandbox"
	ctx, err := s.sandbox(ctx, op, id)
	if err == nil {
		err = s.notOfBuild(ctx, op, id)
	}
	if err != nil {
		return carrel.Sandbox{}, err
	}
	return s.opts.Core.Pause(ctx, id, opts)
}

// Resume implements carrel.Moments.
func (s *Service) Resume(ctx context.Context, id carrel.ID, opts carrel.ResumeOptions) (carrel.Sandbox, bool, error) {
	ctx, err := s.sandbox(ctx, "resume sandbox", id)
	if err != nil {
		return carrel.Sandbox{}, false, err
	}
	return s.opts.Core.Resume(ctx, id, opts)
}

// Snapshot implements carrel.Moments. A sandbox may take a snapshot of itself.
func (s *Service) Snapshot(ctx context.Context, id carrel.ID, opts carrel.SnapshotOptions) (carrel.Snapshot, error) {
	ctx, err := s.itself(ctx, "snapshot sandbox", id)
	if err != nil {
		return carrel.Snapshot{}, err
	}
	sn, err := s.opts.Core.Snapshot(ctx, id, opts)
	request.Touch(ctx, string(sn.ID))
	return sn, err
}

// Fork implements carrel.Moments.
func (s *Service) Fork(ctx context.Context, id carrel.ID, opts carrel.ForkOptions) ([]carrel.ForkResult, error) {
	ctx, err := s.sandbox(ctx, "fork sandbox", id)
	if err != nil {
		return nil, err
	}
	forks, err := s.opts.Core.Fork(ctx, id, opts)
	for _, f := range forks {
		request.Touch(ctx, string(f.Sandbox.ID))
	}
	return forks, err
}

// Rollback implements carrel.Moments.
func (s *Service) Rollback(ctx context.Context, id carrel.ID, to carrel.SnapshotID, opts carrel.RollbackOptions) (carrel.Sandbox, error) {
	const op = "roll back sandbox"
	ctx, err := s.sandbox(ctx, op, id)
	if err == nil {
		ctx, _, err = s.snapshot(ctx, op, string(to))
	}
	if err != nil {
		return carrel.Sandbox{}, err
	}
	return s.opts.Core.Rollback(ctx, id, to, opts)
}

// Promote implements carrel.Moments.
func (s *Service) Promote(ctx context.Context, id carrel.ID, opts carrel.PromoteOptions) (carrel.Sandbox, error) {
	const op = "promote sandbox"
	ctx, err := s.sandbox(ctx, op, id)
	if err == nil {
		c, _, _ := s.caller(ctx, op)
		opts.Template, err = s.mayStart(ctx, op, c, opts.Template)
	}
	if err != nil {
		return carrel.Sandbox{}, err
	}
	return s.opts.Core.Promote(ctx, id, opts)
}

// SetLifecycle implements carrel.Moments.
func (s *Service) SetLifecycle(ctx context.Context, id carrel.ID, l carrel.Lifecycle) (carrel.Sandbox, error) {
	ctx, err := s.sandbox(ctx, "set lifecycle", id)
	if err != nil {
		return carrel.Sandbox{}, err
	}
	return s.opts.Core.SetLifecycle(ctx, id, l)
}

// snapshot finds a snapshot that the caller may see, by ID or by a name of its project. It
// returns the context for the core.
func (s *Service) snapshot(ctx context.Context, op, ref string) (context.Context, carrel.Snapshot, error) {
	c, ctx, err := s.user(ctx, op)
	if err != nil {
		return ctx, carrel.Snapshot{}, err
	}
	sn, err := s.opts.Core.GetSnapshot(ctx, ref)
	if carrel.KindOf(err) == carrel.NotFound || err == nil && !c.Sees(sn.Project) {
		return ctx, carrel.Snapshot{}, &carrel.Error{Op: op, Kind: carrel.NotFound, Field: "snapshotID",
			Err: fmt.Errorf("no snapshot %s", clip(ref)), Hint: "see carrel snapshot ls"}
	}
	return ctx, sn, err
}

// clip shortens a text from a request for an error.
func clip(s string) string {
	const most = 100
	if len(s) > most {
		s = s[:most] + "…"
	}
	return fmt.Sprintf("%q", s)
}

// GetSnapshot implements carrel.Moments.
func (s *Service) GetSnapshot(ctx context.Context, idOrName string) (carrel.Snapshot, error) {
	_, sn, err := s.snapshot(ctx, "get snapshot", idOrName)
	return sn, err
}

// ListSnapshots implements carrel.Moments.
func (s *Service) ListSnapshots(ctx context.Context, opts carrel.SnapshotListOptions) (carrel.SnapshotPage, error) {
	c, ctx, err := s.user(ctx, "list snapshots")
	if err != nil {
		return carrel.SnapshotPage{}, err
	}
	if c.Role != carrel.RoleAdmin {
		opts.Project = c.Project
	}
	return s.opts.Core.ListSnapshots(ctx, opts)
}

// UpdateSnapshot implements carrel.Moments.
func (s *Service) UpdateSnapshot(ctx context.Context, id carrel.SnapshotID, u carrel.SnapshotUpdate) (carrel.Snapshot, error) {
	ctx, _, err := s.snapshot(ctx, "update snapshot", string(id))
	if err != nil {
		return carrel.Snapshot{}, err
	}
	return s.opts.Core.UpdateSnapshot(ctx, id, u)
}

// DeleteSnapshot implements carrel.Moments.
func (s *Service) DeleteSnapshot(ctx context.Context, idOrName string) error {
	ctx, sn, err := s.snapshot(ctx, "delete snapshot", idOrName)
	if err != nil {
		return err
	}
	return s.opts.Core.DeleteSnapshot(ctx, string(sn.ID)) // the judged snapshot, even if the name has moved
}

// Diff implements carrel.Moments.
func (s *Service) Diff(ctx context.Context, from, to carrel.SnapshotID) ([]carrel.FileChange, error) {
	const op = "compare snapshots"
	ctx, _, err := s.snapshot(ctx, op, string(from))
	if err == nil {
		_, _, err = s.snapshot(ctx, op, string(to))
	}
	if err != nil {
		return nil, err
	}
	return s.opts.Core.Diff(ctx, from, to)
}

// Timeline implements carrel.Moments. An administrator may have made a sandbox of one project from
// a snapshot of another. Then each project sees its own part of the past.
func (s *Service) Timeline(ctx context.Context, id carrel.ID) (carrel.Timeline, error) {
	const op = "read timeline"
	ctx, err := s.sandbox(ctx, op, id)
	if err != nil {
		return carrel.Timeline{}, err
	}
	t, err := s.opts.Core.Timeline(ctx, id)
	if err != nil {
		return t, err
	}
	c, _, err := s.caller(ctx, op)
	if err != nil || c.Role == carrel.RoleAdmin {
		return t, err
	}
	return s.ownPart(c, t), nil
}

// ownPart removes from a timeline everything that the caller may not see.
func (s *Service) ownPart(c carrel.Caller, t carrel.Timeline) carrel.Timeline {
	seen := map[carrel.SnapshotID]bool{}
	own := []carrel.Snapshot{}
	for _, sn := range t.Snapshots {
		if c.Sees(sn.Project) {
			seen[sn.ID] = true
			own = append(own, sn)
		} else if sn.New > 0 {
			t.Size -= sn.New
		}
	}
	for i := range own {
		if !seen[own[i].Parent] {
			own[i].Parent = ""
		}
	}
	t.Snapshots = own
	if !seen[t.Head] {
		t.Head = ""
	}
	forks := map[carrel.SnapshotID][]carrel.ID{}
	for at, ids := range t.Forks {
		for _, id := range ids {
			if project, known := s.opts.Core.Project(id); seen[at] && known && c.Sees(project) {
				forks[at] = append(forks[at], id)
			}
		}
	}
	t.Forks = forks
	return t
}
