package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/carrel-dev/carrel"
)

// Pause implements carrel.Moments. The snapshot stays on the sandbox's node.
func (e *Engine) Pause(ctx context.Context, id carrel.ID, opts carrel.PauseOptions) (carrel.Sandbox, error) {
	return sandboxOn(ctx, e, "pause sandbox", id, 0,
		func(ctx context.Context, r Remote) (carrel.Sandbox, error) { return r.Pause(ctx, id, opts) })
}

// Resume implements carrel.Moments. The sandbox resumes on the node that has its snapshot.
func (e *Engine) Resume(ctx context.Context, id carrel.ID, opts carrel.ResumeOptions) (carrel.Sandbox, bool, error) {
	var resumed bool
	sb, err := sandboxOn(ctx, e, "resume sandbox", id, 0,
		func(ctx context.Context, r Remote) (sb carrel.Sandbox, err error) {
			sb, resumed, err = r.Resume(ctx, id, opts)
			return sb, err
		})
	return sb, resumed && err == nil, err
}

// Snapshot implements carrel.Moments.
func (e *Engine) Snapshot(ctx context.Context, id carrel.ID, opts carrel.SnapshotOptions) (carrel.Snapshot, error) {
	return on(ctx, e, "snapshot sandbox", id, 0,
		func(ctx context.Context, _ *member, r Remote) (carrel.Snapshot, error) {
			return r.Snapshot(ctx, id, opts)
		})
}

// Fork implements carrel.Moments. The forks are on the sandbox's node.
func (e *Engine) Fork(ctx context.Context, id carrel.ID, opts carrel.ForkOptions) ([]carrel.ForkResult, error) {
	const op = "fork sandbox"
	return on(ctx, e, op, id, 0, func(ctx context.Context, m *member, r Remote) ([]carrel.ForkResult, error) {
		forks, err := r.Fork(ctx, id, opts)
		for i, f := range forks {
			if f.Err != nil {
				continue
			}
			if _, err := carrel.ParseID(string(f.Sandbox.ID)); err != nil {
				forks[i] = carrel.ForkResult{Err: m.lies(op, id, errors.New("a fork has no ID"))}
			} else if err := e.dir.claim(f.Sandbox.ID, m.name, f.Sandbox.Project, true); err != nil {
				forks[i] = carrel.ForkResult{Err: m.lies(op, f.Sandbox.ID, err)}
			}
		}
		return forks, err
	})
}

// Rollback implements carrel.Moments.
func (e *Engine) Rollback(ctx context.Context, id carrel.ID, to carrel.SnapshotID,
	opts carrel.RollbackOptions) (carrel.Sandbox, error) {
	return sandboxOn(ctx, e, "roll back sandbox", id, 0,
		func(ctx context.Context, r Remote) (carrel.Sandbox, error) { return r.Rollback(ctx, id, to, opts) })
}

// Promote implements carrel.Moments. The sandbox stays on its node.
func (e *Engine) Promote(ctx context.Context, id carrel.ID, opts carrel.PromoteOptions) (carrel.Sandbox, error) {
	return sandboxOn(ctx, e, "promote sandbox", id, 0,
		func(ctx context.Context, r Remote) (carrel.Sandbox, error) { return r.Promote(ctx, id, opts) })
}

// Timeline implements carrel.Moments.
func (e *Engine) Timeline(ctx context.Context, id carrel.ID) (carrel.Timeline, error) {
	return on(ctx, e, "read timeline", id, e.opts.CallWithin,
		func(ctx context.Context, _ *member, r Remote) (carrel.Timeline, error) { return r.Timeline(ctx, id) })
}

// SetLifecycle implements carrel.Moments.
func (e *Engine) SetLifecycle(ctx context.Context, id carrel.ID, l carrel.Lifecycle) (carrel.Sandbox, error) {
	return sandboxOn(ctx, e, "set lifecycle", id, e.opts.CallWithin,
		func(ctx context.Context, r Remote) (carrel.Sandbox, error) { return r.SetLifecycle(ctx, id, l) })
}

// findSnapshot asks all nodes for a snapshot. Names are each node's own: a name that means
// snapshots on several nodes is a Conflict.
func (e *Engine) findSnapshot(ctx context.Context, op, idOrName string) (*member, carrel.Snapshot, error) {
	project, err := projectOf(ctx, op)
	if err != nil {
		return nil, carrel.Snapshot{}, err
	}
	_, badID := carrel.ParseSnapshotID(idOrName)
	var silent, where []string
	var at *member
	var found carrel.Snapshot
	var no error
	for _, a := range askAll(ctx, e.all(), op, "", e.opts.AskWithin,
		func(ctx context.Context, m *member, r Remote) (carrel.Snapshot, error) {
			sn, err := r.GetSnapshot(ctx, idOrName)
			switch {
			case err != nil:
			case badID == nil && string(sn.ID) != idOrName, project != "" && sn.Project != project:
				err = m.lies(op, "", errors.New("it answered about another snapshot"))
			}
			return sn, err
		}) {
		switch {
		case a.err == nil:
			where, at, found = append(where, a.m.name), a.m, a.out
		case definite(a.err):
			no = a.err
		default:
			silent = append(silent, a.m.name)
		}
	}
	switch {
	case len(where) == 1:
		return at, found, nil
	case len(where) > 1:
		return nil, carrel.Snapshot{}, &carrel.Error{Op: op, Kind: carrel.Conflict, Field: "snapshotID",
			Err: fmt.Errorf("%.80q is a snapshot on each of %s", idOrName, some(where)), Hint: "name it by its ID"}
	case ctx.Err() != nil:
		return nil, carrel.Snapshot{}, &carrel.Error{Op: op, Kind: carrel.Unavailable, Err: context.Cause(ctx)}
	case len(silent) > 0:
		return nil, carrel.Snapshot{}, notEverywhere(op, "", "the snapshot", silent)
	case no == nil:
		return nil, carrel.Snapshot{}, &carrel.Error{Op: op, Kind: carrel.Unavailable, Err: errNoNodes}
	}
	return nil, carrel.Snapshot{}, no
}

// snapshotNode is the node that has a snapshot.
func (e *Engine) snapshotNode(ctx context.Context, op, idOrName string) (*member, error) {
	m, _, err := e.findSnapshot(ctx, op, idOrName)
	return m, err
}

// GetSnapshot implements carrel.Moments.
func (e *Engine) GetSnapshot(ctx context.Context, idOrName string) (carrel.Snapshot, error) {
	_, sn, err := e.findSnapshot(ctx, "get snapshot", idOrName)
	return sn, err
}

// UpdateSnapshot implements carrel.Moments.
func (e *Engine) UpdateSnapshot(ctx context.Context, id carrel.SnapshotID, u carrel.SnapshotUpdate) (carrel.Snapshot, error) {
	const op = "update snapshot"
	m, err := e.snapshotNode(ctx, op, string(id))
	if err != nil {
		return carrel.Snapshot{}, err
	}
	return call(ctx, m, op, "", e.opts.CallWithin,
		func(ctx context.Context, r Remote) (carrel.Snapshot, error) { return r.UpdateSnapshot(ctx, id, u) })
}

// DeleteSnapshot implements carrel.Moments.
func (e *Engine) DeleteSnapshot(ctx context.Context, idOrName string) error {
	const op = "delete snapshot"
	m, sn, err := e.findSnapshot(ctx, op, idOrName)
	if err != nil {
		return err
	}
	_, err = call(ctx, m, op, "", e.opts.CallWithin, func(ctx context.Context, r Remote) (struct{}, error) {
		return struct{}{}, r.DeleteSnapshot(ctx, string(sn.ID))
	})
	return err
}

// SnapshotFile implements carrel.Moments.
func (e *Engine) SnapshotFile(ctx context.Context, id carrel.SnapshotID, name string) (carrel.SnapshotFile, error) {
	const op = "read file of snapshot"
	m, err := e.snapshotNode(ctx, op, string(id))
	if err != nil {
		return carrel.SnapshotFile{}, err
	}
	return call(ctx, m, op, "", 0,
		func(ctx context.Context, r Remote) (carrel.SnapshotFile, error) { return r.SnapshotFile(ctx, id, name) })
}

// Diff implements carrel.Moments. Both snapshots must be on one node.
func (e *Engine) Diff(ctx context.Context, from, to carrel.SnapshotID) ([]carrel.FileChange, error) {
	const op = "compare snapshots"
	a, err := e.snapshotNode(ctx, op, string(from))
	if err != nil {
		return nil, err
	}
	b, err := e.snapshotNode(ctx, op, string(to))
	if err != nil {
		return nil, err
	}
	if a != b {
		return nil, unsupported(op, fmt.Sprintf("way to compare snapshots of two nodes (%s and %s)", a.name, b.name))
	}
	return call(ctx, a, op, "", 0, func(ctx context.Context, r Remote) ([]carrel.FileChange, error) {
		return r.Diff(ctx, from, to)
	})
}
