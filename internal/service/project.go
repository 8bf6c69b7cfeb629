package service

import (
	"context"

	"github.com/carrel-dev/carrel"
)

// projectOf is the caller's project. Names are looked up in it.
func projectOf(ctx context.Context) string { return carrel.CallerOf(ctx).Project }

// within returns a context for looking up the names of a project.
func within(ctx context.Context, project string) context.Context {
	return carrel.WithCaller(ctx, carrel.Caller{Key: "service", Project: project, Role: carrel.RoleMember})
}

// Project returns the project of a sandbox that lives or ended lately. It reads only memory and
// wakes nothing.
func (t *table) Project(id carrel.ID) (project string, known bool) {
	t.mu.Lock()
	b, ok := t.boxes[id]
	e, known := t.ended.get(id)
	t.mu.Unlock()
	if !ok {
		return e.project, known
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rec.Sandbox.Project, true
}

// PastProject returns the project of a living or past sandbox. It knows sandboxes that ended before
// this service began, as long as the store has events of them.
func (j *journal) PastProject(ctx context.Context, id carrel.ID) (project string, known bool, err error) {
	events, err := j.opts.Store.Events(ctx, id, 0, 1)
	if err != nil || len(events) == 0 {
		return "", false, err
	}
	return events[0].Project, true, nil
}

// SnapshotProject returns the project of a snapshot, on this machine or in the shared store.
func (ar *archive) SnapshotProject(ctx context.Context, id carrel.SnapshotID) (project string, known bool) {
	sr, _, err := ar.resolver.moment(ctx, id)
	return sr.Snapshot.Project, err == nil
}
