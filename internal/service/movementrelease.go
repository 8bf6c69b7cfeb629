package service

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/linux/overlay"
	"github.com/carrel-dev/carrel/internal/snapshot"
)

// Release implements carrel.Movement. First it gives up this machine's part in the sandbox's
// snapshots, then it removes the records, then the local content. After a crash in between, the
// content in the shared store is untouched, and a second Release finishes the work.
func (m *Movement) Release(ctx context.Context, id carrel.ID) error {
	mv, err := m.mover(opRelease)
	if err != nil {
		return err
	}
	if _, err := carrel.ParseID(string(id)); err != nil {
		return invalid(opRelease, "sandboxID", "%s is not a sandbox ID", clip(string(id)))
	}
	b := m.table.boxOf(id)
	if b == nil {
		return moveError(opRelease, id, m.releaseRecord(ctx, mv, id))
	}
	b.mu.Lock()
	b.release = &handover{before: func(ctx context.Context) error { return m.disown(ctx, mv, id) },
		after: func(ctx context.Context) { m.dropReleased(ctx, mv, id) }}
	b.mu.Unlock()
	return moveError(opRelease, id, m.lifecycle.end(ctx, b, carrel.EndKilled, "it was released: another machine has it now"))
}

// releaseRecord releases a sandbox that is not in the table: one that is gone, or one that this
// service could not adopt and left alone.
func (m *Movement) releaseRecord(ctx context.Context, mv snapshot.Mover, id carrel.ID) error {
	if err := m.disown(ctx, mv, id); err != nil {
		return err
	}
	rec, err := m.opts.Store.GetSandbox(ctx, id)
	switch {
	case err == nil:
		if err := m.archive.lost.destroy(ctx, id); err != nil {
			return err
		}
		if err := m.opts.Store.DeleteSandbox(ctx, id); err != nil {
			return err
		}
		m.journal.tell(releasedEvent(rec.Sandbox))
		err = overlay.Remove(filepath.Join(m.opts.Dir, string(id)))
	case carrel.KindOf(err) == carrel.NotFound:
		err = nil
	}
	m.dropReleased(ctx, mv, id)
	return err
}

// releasedEvent is the event of a sandbox that goes on elsewhere.
func releasedEvent(sb carrel.Sandbox) carrel.Event {
	return carrel.Event{Type: eventReleased, ID: sb.ID, Project: sb.Project, Message: "another machine has it now",
		Fields: map[string]string{"template": sb.Template, "tier": string(sb.Tier)}, Of: eventSandbox(sb)}
}

// leaving lists the snapshots that go with a sandbox: its own, except those from which other
// sandboxes of this machine come.
func (m *Movement) leaving(id carrel.ID) []carrel.SnapshotID {
	stay := map[carrel.SnapshotID]bool{}
	for _, b := range m.table.snapshot() {
		if b.id == id {
			continue
		}
		rec := b.record()
		for _, at := range []carrel.SnapshotID{rec.Sandbox.Snapshot, rec.Paused, rec.Born} {
			for sn := range m.snaps.Past("", at) {
				stay[sn] = true
			}
		}
	}
	var out []carrel.SnapshotID
	for _, sn := range m.snaps.List(id, func(carrel.Snapshot) bool { return true }) {
		if !stay[sn.ID] {
			out = append(out, sn.ID)
		}
	}
	return out
}

// disown gives up this machine's part in the snapshots of a sandbox.
func (m *Movement) disown(ctx context.Context, mv snapshot.Mover, id carrel.ID) error {
	m.publications.forget(id)
	for _, sn := range m.leaving(id) {
		if err := mv.Disown(ctx, sn); err != nil {
			return err
		}
	}
	return nil
}

// releaseHeld is how long a release waits for readers of the sandbox's snapshots, such as a fork
// that was just made.
const releaseHeld = 10 * time.Second

// dropReleased removes the records and the local content of a released sandbox's snapshots. A
// snapshot that something here still reads stays, and this machine holds it again.
func (m *Movement) dropReleased(ctx context.Context, mv snapshot.Mover, id carrel.ID) {
	ids := m.leaving(id)
	_, refused, err := m.archive.dropSnapshots(ctx, ids, dropRule{ended: id})
	for end := time.Now().Add(releaseHeld); err == nil && anyHeld(refused) && time.Now().Before(end) && sleep(ctx, heldPause); {
		_, refused, err = m.archive.dropSnapshots(ctx, m.leaving(id), dropRule{ended: id})
	}
	if err != nil {
		m.log.Error("remove the snapshots of a released sandbox", "sandbox", id, "err", err)
	}
	for at, why := range refused {
		m.log.Warn("a snapshot of a released sandbox stays here", "sandbox", id, "snapshot", at, "err", why)
		if _, err := mv.Pack(ctx, at); err != nil {
			m.log.Error("hold a snapshot", "snapshot", at, "err", err)
		}
	}
}

func anyHeld(refused map[carrel.SnapshotID]error) bool {
	for _, err := range refused {
		if errors.Is(err, errHeld) {
			return true
		}
	}
	return false
}
