package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/cleanup"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/snapshot"
	"github.com/carrel-dev/carrel/internal/state"
)

// Adopt implements carrel.Movement.
func (m *Movement) Adopt(ctx context.Context, p carrel.Passport) (carrel.Sandbox, error) {
	mv, err := m.mover(opAdopt)
	if err != nil {
		return carrel.Sandbox{}, err
	}
	st, err := readPassport(p)
	if err != nil {
		return carrel.Sandbox{}, err
	}
	done, err := m.oneAdoption(ctx, p.Sandbox)
	if err != nil {
		return carrel.Sandbox{}, moveError(opAdopt, p.Sandbox, err)
	}
	defer done()
	if sb, here, err := m.alreadyHere(ctx, p); here || err != nil {
		return sb, moveError(opAdopt, p.Sandbox, err)
	}
	sb, err := m.adopt(ctx, mv, p, st)
	return sb, moveError(opAdopt, p.Sandbox, err)
}

// readPassport reads the state of a passport and checks that its parts belong together.
func readPassport(p carrel.Passport) (movedState, error) {
	var st movedState
	if err := p.Check(); err != nil {
		return st, err
	}
	bad := func(field, format string, args ...any) error { return invalid(opAdopt, field, format, args...) }
	if err := json.Unmarshal(p.State, &st); err != nil {
		return st, bad("state", "the passport's state is not JSON: %v", err)
	}
	if _, err := carrel.ParseID(string(p.Sandbox)); err != nil {
		return st, bad("sandboxID", "%s is not a sandbox ID", clip(string(p.Sandbox)))
	}
	if _, err := carrel.ParseSnapshotID(string(p.Snapshot)); err != nil {
		return st, bad("snapshotID", "%s is not a snapshot ID", clip(string(p.Snapshot)))
	}
	sb := st.Record.Sandbox
	switch {
	case len(st.Snapshots) == 0 || st.Snapshots[0].Record.Snapshot.ID != p.Snapshot || st.Record.Paused != p.Snapshot:
		return st, bad("snapshotID", "the passport has no record of snapshot %s", p.Snapshot)
	case sb.ID != p.Sandbox || st.Snapshots[0].Record.Snapshot.Sandbox != p.Sandbox:
		return st, bad("sandboxID", "the records in the passport are of sandbox %s, not of %s", clip(string(sb.ID)), p.Sandbox)
	case sb.Project != p.Project:
		return st, bad("project", "the records in the passport are of project %s, not of %s", clip(sb.Project), clip(p.Project))
	case sb.Tier != p.Needs.Tier:
		return st, bad("needs.tier", "the records in the passport are of tier %s, not of %s", clip(string(sb.Tier)), clip(string(p.Needs.Tier)))
	case sb.State != carrel.Paused || len(st.Record.Handle) > 0:
		return st, bad("state", "the sandbox in the passport is not paused")
	}
	if err := carrel.CheckProject(p.Project); err != nil {
		return st, bad("project", "%v", err)
	}
	for _, img := range p.Images {
		if img.Name == "" || img.Name != filepath.Base(img.Name) || img.Name[0] == '.' || img.Size < 0 {
			return st, bad("images", "%s is not the name of an image", clip(img.Name))
		}
	}
	for _, sn := range st.Snapshots {
		if sn.Record.Snapshot.Project != p.Project {
			return st, bad("project", "snapshot %s is of project %s, not of %s", clip(string(sn.Record.Snapshot.ID)),
				clip(sn.Record.Snapshot.Project), p.Project)
		}
	}
	return st, nil
}

// oneAdoption waits until no other adoption of the sandbox runs.
func (m *Movement) oneAdoption(ctx context.Context, id carrel.ID) (done func(), err error) {
	end, err := m.adopting.take(ctx, id)
	if err != nil {
		return nil, err
	}
	if !m.table.hold() {
		end()
		return nil, &carrel.Error{Kind: carrel.Unavailable, Err: errClosing}
	}
	return func() { m.table.wg.Done(); end() }, nil
}

// alreadyHere looks for the sandbox of a passport. Error: Conflict, unless it is here in exactly the
// passport's state.
func (m *Movement) alreadyHere(ctx context.Context, p carrel.Passport) (_ carrel.Sandbox, here bool, err error) {
	if b := m.table.boxOf(p.Sandbox); b != nil {
		rec := b.record()
		if rec.Sandbox.State == carrel.Paused && rec.Paused == p.Snapshot && rec.Sandbox.Project == p.Project {
			return b.public(), true, nil
		}
		what := fmt.Sprintf("it is here already, and is %s", rec.Sandbox.State)
		if rec.Sandbox.State == carrel.Paused {
			what = fmt.Sprintf("it is here already, paused at snapshot %s", rec.Paused)
		}
		return carrel.Sandbox{}, true, &carrel.Error{Kind: carrel.Conflict, Field: "sandboxID", Err: errors.New(what),
			Hint: "release the one that is out of date first"}
	}
	_, err = m.opts.Store.GetSandbox(ctx, p.Sandbox)
	switch {
	case err == nil:
		return carrel.Sandbox{}, true, &carrel.Error{Kind: carrel.Conflict, Field: "sandboxID",
			Err: errors.New("a record of it is here, of a sandbox that this service could not take over"), Hint: "release it here first"}
	case carrel.KindOf(err) != carrel.NotFound:
		return carrel.Sandbox{}, false, err
	}
	return carrel.Sandbox{}, false, nil
}

// adopt takes over the sandbox of a passport. First it only checks.
func (m *Movement) adopt(ctx context.Context, mv snapshot.Mover, p carrel.Passport, st movedState) (carrel.Sandbox, error) {
	drv, err := m.mayRestore(ctx, p.Needs)
	if err != nil {
		return carrel.Sandbox{}, err
	}
	if err := m.roomFor(st.Record); err != nil {
		return carrel.Sandbox{}, err
	}
	var undo cleanup.Stack
	defer undo.Run()
	man, err := m.holdSnapshot(ctx, mv, &undo, st.Snapshots[0])
	if err != nil {
		return carrel.Sandbox{}, err
	}
	if own, err := recordOf(man); err != nil || own.Snapshot.Sandbox != p.Sandbox {
		return carrel.Sandbox{}, invalid(opAdopt, "sandboxID", "snapshot %s is not one of sandbox %s", p.Snapshot, p.Sandbox)
	}
	if err := m.canRestore(ctx, drv, man.Info); err != nil {
		return carrel.Sandbox{}, err
	}
	mv.Fetch(p.Snapshot) // it is adopted to be resumed
	kept := st.Snapshots[:1:1]
	for _, sn := range st.Snapshots[1:] {
		if _, err := m.holdSnapshot(ctx, mv, &undo, sn); carrel.KindOf(err) == carrel.NotFound {
			continue // it was deleted since
		} else if err != nil {
			return carrel.Sandbox{}, err
		}
		kept = append(kept, sn)
	}
	names, err := m.fetchImages(ctx, mv, p, st)
	if err != nil {
		return carrel.Sandbox{}, err
	}
	rec, err := m.write(ctx, st.Record, kept, names)
	if err != nil {
		return carrel.Sandbox{}, err
	}
	undo.Release()
	if len(kept) == len(st.Snapshots) {
		// The passport is this sandbox's own as long as nothing changes: it need not be made again.
		if sum, err := m.stateSum(rec, m.snaps.Past(p.Sandbox, p.Snapshot)); err == nil {
			m.publications.note(p.Sandbox, sum, p)
		}
	} else {
		m.publications.forget(p.Sandbox)
	}
	m.recovery.recoverPaused(ctx, rec, nil)
	m.journal.tell(carrel.Event{Type: eventArrived, ID: p.Sandbox, Project: p.Project,
		Message: fmt.Sprintf("it came from another machine, paused at snapshot %s", p.Snapshot),
		Fields:  map[string]string{"snapshot": string(p.Snapshot)}})
	b, err := m.table.find(opAdopt, p.Sandbox)
	if err != nil {
		return carrel.Sandbox{}, err
	}
	return b.public(), nil
}

// unfit is the error for a snapshot that this machine can't restore.
func unfit(field, hint, format string, args ...any) error {
	return &carrel.Error{Kind: carrel.Unsupported, Field: field, Err: fmt.Errorf(format, args...), Hint: hint}
}

// mayRestore checks what can be said from a passport alone, and returns the driver.
func (m *Movement) mayRestore(ctx context.Context, n carrel.Needs) (driver.Driver, error) {
	drv, err := m.opts.Drivers.Get(n.Tier)
	if err != nil {
		return nil, unfit("needs.tier", "choose a machine that has the tier", "this machine has no tier %s", n.Tier)
	}
	if n.Arch != runtime.GOARCH && drv.Info().Capabilities.RealProcesses {
		return nil, unfit("needs.arch", "choose a machine of the same architecture",
			"the sandbox is of a machine of architecture %s, this one is %s", clip(n.Arch), runtime.GOARCH)
	}
	if err := m.launcher.probe(ctx, drv); err != nil {
		return nil, unfit("needs.tier", carrel.HintOf(err), "tier %s does not work on this machine: %w", n.Tier, err)
	}
	info := driver.SnapshotInfo{Driver: drv.Info().Name, Memory: n.Memory, Build: n.Build, CPU: n.CPU}
	if err := m.fitsProcessor(ctx, drv, info); err != nil {
		return nil, err
	}
	return drv, nil
}

// fitsProcessor checks the processor's features, whatever the build of the snapshot.
func (m *Movement) fitsProcessor(ctx context.Context, drv driver.Driver, info driver.SnapshotInfo) error {
	r, err := restorer(drv)
	if err != nil {
		return unfit("needs.tier", "", "%w", err)
	}
	_, all := m.builds.keeper(ctx, drv)
	i := slices.IndexFunc(all, func(b driver.Build) bool { return b.Own })
	if i < 0 || !info.Memory {
		return nil
	}
	info.Build = all[i].Name
	if err := r.CanRestore(info, driver.RestoreOptions{}); err != nil {
		return unfit("needs.cpu", "choose a machine whose processor has them, or go on with the files alone where it is now "+
			"(carrel resume --files-only)", "%w", err)
	}
	return nil
}

// canRestore checks a snapshot, and fetches its build if necessary. It reads the manifest, not the
// passport.
func (m *Movement) canRestore(ctx context.Context, drv driver.Driver, info driver.SnapshotInfo) error {
	if info.Driver != drv.Info().Name { // its files are poured into a fresh sandbox
		if info.Memory {
			return unfit("needs.tier", "", "the snapshot is of driver %q, tier %s has %q", info.Driver, drv.Info().Tier, drv.Info().Name)
		}
		return nil
	}
	r, err := restorer(drv)
	if err != nil {
		return unfit("needs.tier", "", "%w", err)
	}
	if err := m.fitsProcessor(ctx, drv, info); err != nil {
		return err
	}
	if err := m.builds.fetch(ctx, drv, info); err != nil {
		return err
	}
	if err := r.CanRestore(info, driver.RestoreOptions{}); err != nil {
		return unfit("needs.build", carrel.HintOf(err), "%w", err)
	}
	return nil
}

// roomFor checks names and limits of this service.
func (m *Movement) roomFor(rec state.Record) error {
	if most := m.opts.MaxPaused; most > 0 && m.table.paused() >= most {
		return &carrel.Error{Kind: carrel.Exhausted, Err: fmt.Errorf("all %d sandboxes that may be paused are", most),
			Hint: "kill some, or raise the limit (carrel serve --max-paused)"}
	}
	if n := nameOf(rec.Sandbox); n.text != "" {
		m.table.mu.Lock()
		other, taken := m.table.names[n]
		m.table.mu.Unlock()
		if taken && other != rec.Sandbox.ID {
			return errNamed(n.text, other)
		}
	}
	return nil
}

// holdSnapshot makes this machine a holder of a snapshot, and compares the manifest with the
// passport. undo forgets a snapshot that was not here before.
func (m *Movement) holdSnapshot(ctx context.Context, mv snapshot.Mover, undo *cleanup.Stack, sn movedSnapshot) (snapshot.Manifest, error) {
	id := sn.Record.Snapshot.ID
	_, here := m.snaps.Get(id)
	man, err := mv.Hold(ctx, id)
	if err != nil {
		return man, err
	}
	if !here {
		undo.Add(func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(m.table.ctx), undoTime)
			defer cancel()
			m.letGoOf(ctx, mv, id)
		})
	}
	digest, err := man.Digest()
	if err != nil {
		return man, err
	}
	if digest != sn.Digest {
		return man, invalid(opAdopt, "state", "snapshot %s in the store is not the one in the passport: its digest is another", id)
	}
	was, err := recordOf(man)
	if err != nil {
		return man, err
	}
	now := sn.Record.Snapshot
	if was.Snapshot.Project != now.Project || was.Snapshot.Tier != now.Tier || was.Snapshot.Memory != now.Memory {
		return man, invalid(opAdopt, "state", "snapshot %s in the store is of another project, tier or kind than in the passport", id)
	}
	return man, nil
}

// letGoOf forgets a snapshot here. Its content stays in the shared store.
func (m *Movement) letGoOf(ctx context.Context, mv snapshot.Mover, id carrel.SnapshotID) {
	err := mv.Disown(ctx, id)
	if err == nil {
		err = m.opts.Snapshots.Delete(ctx, id)
	}
	if err != nil {
		m.log.Warn("let go of a snapshot", "snapshot", id, "err", err)
	}
}

// guestPath finds a guest image of this machine by its name.
func (m *Movement) guestPath(name string) (string, bool) {
	if name != filepath.Base(name) || m.opts.GuestImage == "" {
		return "", false
	}
	path := filepath.Join(filepath.Dir(m.opts.GuestImage), name)
	_, err := os.Stat(path)
	return path, err == nil
}

// fetchImages makes sure that the images under a sandbox and its snapshots are here. It returns the
// names of the root images here, by their names in the passport.
func (m *Movement) fetchImages(ctx context.Context, mv snapshot.Mover, p carrel.Passport, st movedState) (map[string]string, error) {
	by := map[string]carrel.MovedImage{}
	for _, img := range p.Images {
		by[img.Name] = img
	}
	names := map[string]string{"": ""}
	need := []state.Record{st.Record}
	for _, sn := range st.Snapshots {
		need = append(need, sn.Record.Record)
	}
	for _, rec := range need {
		if _, known := names[rec.Root]; !known {
			img, ok := by[rec.Root]
			if !ok {
				return nil, invalid(opAdopt, "images", "the passport does not name image %s", clip(rec.Root))
			}
			name, err := m.fetchRoot(ctx, mv, rec, img)
			if err != nil {
				return nil, err
			}
			names[rec.Root] = name
		}
		if err := m.fetchGuest(ctx, mv, guestOf(rec), by); err != nil {
			return nil, err
		}
	}
	return names, nil
}

// movedPrefix begins the names of root images that came from other machines.
const movedPrefix = "moved-"

// fetchRoot makes sure that a root image is here, and returns its name here.
func (m *Movement) fetchRoot(ctx context.Context, mv snapshot.Mover, rec state.Record, img carrel.MovedImage) (string, error) {
	dir := filepath.Join(m.opts.Dir, rootsDir)
	if name, ok := m.sums.find(dir, img.Sum); ok {
		touch(m.roots.rootFile(name))
		return name, nil
	}
	if name, ok := m.sameTemplate(ctx, rec, img); ok {
		return name, nil
	}
	name := movedPrefix + img.Sum + ".erofs"
	path := m.roots.rootFile(name)
	if err := mv.GetImage(ctx, img.Sum, path); err != nil {
		return "", err
	}
	if fi, err := os.Stat(path); err == nil {
		m.sums.note(versionText(fi), img.Sum)
	}
	return name, nil
}

// sameTemplate keeps the image of the template here, if it has the wanted content.
func (m *Movement) sameTemplate(ctx context.Context, rec state.Record, img carrel.MovedImage) (name string, ok bool) {
	all, err := m.opts.Images.List(ctx)
	if err != nil {
		return "", false
	}
	for _, t := range all {
		if t.ID != rec.Sandbox.Template || t.Path == "" || t.View != "" || t.Lent {
			continue
		}
		if fi, err := os.Stat(t.Path); err != nil || fi.Size() != img.Size {
			continue
		}
		if has, err := m.sums.of(ctx, t.Path); err != nil || has.Sum != img.Sum {
			continue
		}
		name, path, err := m.roots.keepRoot(t)
		if err != nil || name == "" {
			continue
		}
		if has, err := m.sums.of(ctx, path); err == nil && has.Sum == img.Sum {
			return name, true
		}
	}
	return "", false
}

// fetchGuest makes sure that a guest's image is here. Its name has the hash of its content.
func (m *Movement) fetchGuest(ctx context.Context, mv snapshot.Mover, name string, by map[string]carrel.MovedImage) error {
	if name == "" || m.opts.GuestImage == "" {
		return nil
	}
	if _, ok := m.guestPath(name); ok {
		return nil
	}
	img, ok := by[name]
	if !ok || !strings.HasPrefix(name, "guest-") || name != filepath.Base(name) {
		return invalid(opAdopt, "images", "the passport does not name the guest image %s", clip(name))
	}
	return mv.GetImage(ctx, img.Sum, filepath.Join(filepath.Dir(m.opts.GuestImage), name))
}

// write writes the records of an adopted sandbox in one change.
func (m *Movement) write(ctx context.Context, rec state.Record, all []movedSnapshot, names map[string]string) (state.Record, error) {
	rec.Root = names[rec.Root]
	defer m.snaps.LockEdits()()
	c := state.Change{}
	for _, sn := range all {
		sr := sn.Record
		if had, here := m.snaps.Get(sr.Snapshot.ID); here && had.Snapshot.Sandbox != rec.Sandbox.ID {
			continue // it is also one of another sandbox here, and that one's record counts
		}
		sr.Record.Root, sr.Record.Handle = names[sr.Record.Root], nil
		sr.Snapshot.Names = slices.DeleteFunc(slices.Clone(sr.Snapshot.Names), func(n string) bool {
			other, taken := m.snaps.Holder(sr.Snapshot.Project, n)
			return taken && other.Snapshot.ID != sr.Snapshot.ID
		})
		c.PutSnapshots = append(c.PutSnapshots, sr)
	}
	c.Put = []state.Record{rec}
	return rec, m.records.apply(ctx, c)
}
