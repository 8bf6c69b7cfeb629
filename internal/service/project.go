package service

import (
	"context"

	"github.com/carrel-dev/carrel"
)

// projectOf is the project of the caller: what names are looked for in.
func projectOf(ctx context.Context) string { return carrel.CallerOf(ctx).Project }

// within returns a context in which names are those of a project.
func within(ctx context.Context, project string) context.Context {
	return carrel.WithCaller(ctx, carrel.Caller{Key: "service", Project: project, Role: carrel.RoleMember})
}

// Project says whose a sandbox is that lives or ended lately. It reads memory alone and
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

// PastProject says whose a sandbox is, or was: also of one that ended before this service
// began, as long as there are events of it.
func (j *journal) PastProject(ctx context.Context, id carrel.ID) (project string, known bool, err error) {
	events, err := j.opts.Store.Events(ctx, id, 0, 1)
	if err != nil || len(events) == 0 {
		return "", false, err
	}
	return events[0].Project, true, nil
}

// SnapshotProject says whose a snapshot is, of this machine's or of another's in the
// shared store.
func (ar *archive) SnapshotProject(ctx context.Context, id carrel.SnapshotID) (project string, known bool) {
	sr, _, err := ar.resolver.moment(ctx, id)
	return sr.Snapshot.Project, err == nil
}
