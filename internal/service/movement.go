package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/service/timeline"
	"github.com/carrel-dev/carrel/internal/snapshot"
	"github.com/carrel-dev/carrel/internal/state"
)

const (
	opPublish = "publish sandbox"
	opAdopt   = "adopt sandbox"
	opRelease = "release sandbox"

	eventArrived  = "sandbox.arrived"
	eventReleased = "sandbox.released"
)

// Movement moves paused sandboxes and templates of a service to other machines and back. It checks
// no caller's rights.
type Movement struct {
	opts      *Options
	log       *slog.Logger
	table     *table
	snaps     *timeline.Index
	journal   *journal
	records   *records
	roots     *roots
	templates *templates
	launcher  *launcher
	archive   *archive
	lifecycle *lifecycle
	recovery  *recovery
	creator   *creator
	builds    *builds
	sums      *imageSums

	adopting, publishing turns
	publications         publications
}

var _ carrel.Movement = (*Movement)(nil)

// MovementOf returns the movement of a service.
func MovementOf(s *Service) *Movement { return s.movement }

// movedState is the State of a passport.
type movedState struct {
	Record    state.Record    `json:"record"`
	Snapshots []movedSnapshot `json:"snapshots"`
}

// movedSnapshot is one snapshot of a passport.
type movedSnapshot struct {
	Record state.SnapshotRecord `json:"record"`
	Digest string               `json:"digest"` // of its manifest
}

// mover returns the part of the snapshot store that moves snapshots. Error: Unsupported.
func (m *Movement) mover(op string) (snapshot.Mover, error) {
	mv, ok := m.opts.Snapshots.(snapshot.Mover)
	if ok && mv.Shared() {
		return mv, nil
	}
	return nil, &carrel.Error{Op: op, Kind: carrel.Unsupported, Field: "snapshot-store",
		Err:  errors.New("this service shares no snapshot store with another machine"),
		Hint: "start both daemons with one store: carrel serve --snapshot-store s3://BUCKET/PREFIX, or a shared directory"}
}

// moveError gives an error of a part its operation and sandbox.
func moveError(op string, id carrel.ID, err error) error {
	if err == nil {
		return nil
	}
	out := &carrel.Error{Op: op, Kind: carrel.KindOf(err), ID: id, Err: err, Hint: carrel.HintOf(err)}
	if inner, ok := errors.AsType[*carrel.Error](err); ok {
		out.Field = inner.Field
	}
	return out
}

// Publish implements carrel.Movement.
func (m *Movement) Publish(ctx context.Context, id string) (carrel.Passport, error) {
	mv, err := m.mover(opPublish)
	if err != nil {
		return carrel.Passport{}, err
	}
	if at, err := carrel.ParseSnapshotID(id); err == nil {
		return m.publishMoment(ctx, mv, at)
	}
	b, err := m.table.find(opPublish, carrel.ID(id))
	if err != nil {
		return carrel.Passport{}, err
	}
	rec := b.record()
	if rec.Sandbox.State != carrel.Paused {
		return carrel.Passport{}, &carrel.Error{Op: opPublish, Kind: carrel.Conflict, ID: b.id,
			Err:  fmt.Errorf("the sandbox is %s, and only a paused one moves", rec.Sandbox.State),
			Hint: "pause it first, or publish one of its snapshots"}
	}
	p, err := m.publish(ctx, mv, rec, m.snaps.Past(b.id, rec.Sandbox.Snapshot))
	if now := b.record(); err == nil && (now.Sandbox.State != carrel.Paused || now.Paused != rec.Paused) {
		err = &carrel.Error{Kind: carrel.Conflict, Err: errors.New("it was resumed meanwhile"), Hint: "pause it and try again"}
	}
	if err != nil {
		return carrel.Passport{}, moveError(opPublish, b.id, err)
	}
	return p, nil
}

// publishMoment publishes a sandbox as it was at a snapshot. The sandbox may run.
func (m *Movement) publishMoment(ctx context.Context, mv snapshot.Mover, at carrel.SnapshotID) (carrel.Passport, error) {
	sr, ok := m.snaps.Get(at)
	if !ok || timeline.Hidden(sr.Snapshot) {
		return carrel.Passport{}, &carrel.Error{Op: opPublish, Kind: carrel.NotFound, Field: "id", Err: fmt.Errorf("no snapshot %s", at)}
	}
	p, err := m.publish(ctx, mv, pausedAt(sr), m.snaps.Past("", at))
	if err != nil {
		return carrel.Passport{}, moveError(opPublish, sr.Snapshot.Sandbox, err)
	}
	return p, nil
}

// publish puts everything about a paused sandbox into the shared store, unless that was just done.
// past are its snapshots and their ancestors.
func (m *Movement) publish(ctx context.Context, mv snapshot.Mover, rec state.Record,
	past map[carrel.SnapshotID]carrel.Snapshot) (carrel.Passport, error) {
	id := rec.Sandbox.ID
	done, err := m.publishing.take(ctx, id)
	if err != nil {
		return carrel.Passport{}, err
	}
	defer done()
	sum, err := m.stateSum(rec, past)
	if err != nil {
		return carrel.Passport{}, err
	}
	if p, ok := m.publications.find(id, sum); ok {
		return p, nil
	}
	p, err := m.putAll(ctx, mv, rec, past)
	if err == nil {
		m.publications.note(id, sum, p)
	}
	return p, err
}

// putAll puts everything about a paused sandbox into the shared store.
func (m *Movement) putAll(ctx context.Context, mv snapshot.Mover, rec state.Record,
	past map[carrel.SnapshotID]carrel.Snapshot) (carrel.Passport, error) {
	if err := m.roots.isWhole(rec); err != nil {
		return carrel.Passport{}, err
	}
	rec.Handle, rec.Wake = nil, false
	head, man, release, err := m.publishSnapshot(ctx, mv, rec.Paused)
	if err != nil {
		return carrel.Passport{}, err
	}
	defer release()
	if own, err := recordOf(man); err != nil || own.Snapshot.Sandbox != rec.Sandbox.ID {
		return carrel.Passport{}, &carrel.Error{Kind: carrel.Unsupported, Field: "id",
			Err:  fmt.Errorf("snapshot %s was taken before the sandbox got its present ID", rec.Paused),
			Hint: "resume it and pause it again"}
	}
	st := movedState{Record: rec, Snapshots: []movedSnapshot{head}}
	for id, sn := range past {
		if id == rec.Paused || timeline.Hidden(sn) {
			continue
		}
		one, _, release, err := m.publishSnapshot(ctx, mv, id)
		switch carrel.KindOf(err) {
		case carrel.NotFound, carrel.Invalid: // the sandbox itself needs only the one it resumes from
			m.log.Warn("an older snapshot does not move with its sandbox", "sandbox", rec.Sandbox.ID, "snapshot", id, "err", err)
			continue
		}
		if err != nil {
			return carrel.Passport{}, err
		}
		defer release()
		st.Snapshots = append(st.Snapshots, one)
	}
	slices.SortFunc(st.Snapshots[1:], func(a, b movedSnapshot) int {
		return timeline.PlaceOf(b.Record.Snapshot).Compare(timeline.PlaceOf(a.Record.Snapshot))
	})
	images, err := m.publishImages(ctx, mv, &st)
	if err != nil {
		return carrel.Passport{}, err
	}
	if err := m.publishBuild(ctx, rec.Sandbox.Tier, man.Info); err != nil {
		return carrel.Passport{}, err
	}
	raw, err := json.Marshal(st)
	if err != nil {
		return carrel.Passport{}, err
	}
	return carrel.Passport{Version: carrel.PassportVersion, Sandbox: rec.Sandbox.ID, Project: rec.Sandbox.Project,
		Snapshot: rec.Paused, Needs: needsOf(rec.Sandbox.Tier, man.Info), Images: images, State: raw}.Sealed()
}

// publishSnapshot puts one snapshot into the shared store, and keeps it from being deleted here
// until release.
func (m *Movement) publishSnapshot(ctx context.Context, mv snapshot.Mover, id carrel.SnapshotID) (_ movedSnapshot,
	_ snapshot.Manifest, release func(), err error) {
	release, ok := m.snaps.Hold(id)
	if !ok {
		return movedSnapshot{}, snapshot.Manifest{}, nil, &carrel.Error{Kind: carrel.NotFound, Field: "snapshotID",
			Err: fmt.Errorf("snapshot %s is gone", id)}
	}
	sr, _ := m.snaps.Get(id)
	man, err := mv.Pack(ctx, id)
	var digest string
	if err == nil {
		digest, err = man.Digest()
	}
	if err != nil {
		release()
		return movedSnapshot{}, man, nil, err
	}
	return movedSnapshot{Record: sr, Digest: digest}, man, release, nil
}

// publishImages puts the images under a sandbox and its snapshots into the shared store. Snapshots
// whose images are not here any more do not move.
func (m *Movement) publishImages(ctx context.Context, mv snapshot.Mover, st *movedState) ([]carrel.MovedImage, error) {
	images := []carrel.MovedImage{}
	done := map[string]bool{}
	type use struct {
		name string
		user carrel.SnapshotID
	}
	marked := map[use]bool{}
	put := func(rec state.Record, user carrel.SnapshotID) error {
		for _, name := range []string{rec.Root, guestOf(rec)} {
			if marked[use{name, user}] {
				continue
			}
			path, err := m.imagePath(rec, name)
			if name == "" || err != nil {
				return err
			}
			img, err := m.sums.of(ctx, path)
			if err == nil {
				err = mv.PutImage(ctx, img.Sum, path, string(user))
			}
			if err != nil {
				return err
			}
			marked[use{name, user}] = true
			if img.Name = name; !done[name] {
				images, done[name] = append(images, img), true
			}
		}
		return nil
	}
	var kept []movedSnapshot
	for i, sn := range st.Snapshots {
		err := put(sn.Record.Record, sn.Record.Snapshot.ID)
		if i > 0 && carrel.KindOf(err) == carrel.Unavailable && ctx.Err() == nil && isImageMissing(err) {
			m.log.Warn("an older snapshot does not move with its sandbox", "snapshot", sn.Record.Snapshot.ID, "err", err)
			continue
		}
		if err != nil {
			return nil, err
		}
		kept = append(kept, sn)
	}
	st.Snapshots = kept
	return images, put(st.Record, st.Record.Paused)
}

// guestOf is the name of the guest's image that a record needs; "" for none. A service without a
// guest's image, as of simulated sandboxes alone, writes the name of no file.
func guestOf(rec state.Record) string {
	if rec.Guest == "." {
		return ""
	}
	return rec.Guest
}

// errImageMissing is the error for an image that a record names and this machine does not have.
var errImageMissing = errors.New("it is not on this machine")

func isImageMissing(err error) bool { return errors.Is(err, errImageMissing) }

// imagePath finds an image that a record names.
func (m *Movement) imagePath(rec state.Record, name string) (string, error) {
	if name == "" {
		return "", nil
	}
	if name == rec.Root {
		path, ok := m.roots.rootPath(name)
		if !ok {
			return "", m.roots.missing(rec, "", errImageMissing)
		}
		return path, nil
	}
	path, ok := m.guestPath(name)
	if !ok {
		return "", &carrel.Error{Kind: carrel.Unavailable, Field: "guest",
			Err: fmt.Errorf("the guest image %s that it runs: %w", name, errImageMissing)}
	}
	return path, nil
}

// publishBuild puts the build that can restore a snapshot into the shared store.
func (m *Movement) publishBuild(ctx context.Context, tier carrel.Tier, info driver.SnapshotInfo) error {
	drv, err := m.opts.Drivers.Get(tier)
	if err != nil || !info.Memory || info.Build == "" {
		return nil // a sandbox of a tier that this build lacks moves all the same
	}
	err = m.builds.share(ctx, drv, info.Build)
	switch carrel.KindOf(err) {
	case carrel.Unsupported, carrel.NotFound: // then only a machine that has the build restores it
		return nil
	}
	return err
}

// needsOf describes the machines that can restore a snapshot.
func needsOf(tier carrel.Tier, info driver.SnapshotInfo) carrel.Needs {
	n := carrel.Needs{Tier: tier, Memory: info.Memory, Arch: runtime.GOARCH, Build: info.Build, CPU: info.CPU, Level: cpuLevel(info.CPU)}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		n.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	return n
}

// share copies a build to the shared store.
func (bl *builds) share(ctx context.Context, drv driver.Driver, build string) error {
	st, ok := bl.opts.Snapshots.(snapshot.BuildStore)
	k, keeps := driver.As[driver.BuildKeeper](drv)
	if !ok || !keeps {
		return nil
	}
	return st.PutBuild(ctx, build, func() (io.ReadCloser, int64, error) { return k.ExportBuild(ctx, build) })
}
