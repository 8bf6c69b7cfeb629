package service

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/service/golden"
	"github.com/carrel-dev/carrel/internal/state"
)

// prefix is the key of a template's own start, without the sandbox's size. It holds the image, the
// guest's image, and the start and ready commands.
func (r *ripener) prefix(tier carrel.Tier, img image.Image, root string) string {
	how, _ := json.Marshal([]any{img.Start, img.Ready, img.Env, img.User, img.WorkDir}) // of strings: can't fail
	return fmt.Sprintf("%s %s %s %s %x ", tier, img.ID, root, filepath.Base(r.opts.GuestImage), sha256.Sum256(how))
}

// planGolden makes a plan continue from its template's own start, if there is one. If there could
// be one, planGolden has it made. Where boots are slow, a template without a start command has a
// start as well: the boot alone.
func (cr *creator) planGolden(p *plan, img image.Image) {
	c := p.driver.Info().Capabilities
	starts, boots := len(img.Start) > 0 && img.Ready != "", len(img.Start) == 0 && img.Ready == "" && c.SlowBoot
	if !starts && !boots || !c.MemorySnapshot || cr.opts.Snapshots == nil || p.rec.Root == "" {
		return
	}
	l := p.rec.Sandbox.Limits
	key := cr.ripener.prefix(p.rec.Sandbox.Tier, img, p.rec.Root) + fmt.Sprintf("%g/%d/%d/%d", l.CPUs, l.MemoryMB, l.DiskMB, l.Pids)
	like := *p // p goes its own way
	id, making := cr.goldens.Want(key, startOf(p), func(ctx context.Context) (carrel.SnapshotID, time.Duration, error) {
		return cr.ripener.start(ctx, key, img, &like)
	})
	if id != "" {
		p.golden, p.rec.Born, p.rec.Sandbox.Generation = key, id, 1
	}
	p.unripe, p.check = making, cr.ripener.check(img)
}

// startOf names the template of a plan.
func startOf(p *plan) golden.Of {
	sb := p.rec.Sandbox
	return golden.Of{Template: sb.Template, Name: sb.Alias, Tier: sb.Tier}
}

// openGolden opens the start that a plan continues from. It reports whether there is one.
func (cr *creator) openGolden(ctx context.Context, p *plan) bool {
	if p.golden == "" {
		return false
	}
	from, err := cr.archive.open(ctx, p.rec.Born, false, false)
	if err != nil {
		cr.spoilGolden(p, err)
		p.leaveGolden()
		return false
	}
	key, verify := p.golden, from.verify
	from.verify = func(ctx context.Context) error {
		if cr.goldens.IsVerified(key) {
			return nil // once is enough: nobody else writes these files
		}
		err := verify(ctx)
		if err == nil {
			cr.goldens.SetVerified(key)
		}
		return err
	}
	p.from = from
	return true
}

// leaveGolden changes the plan to one for a sandbox that boots.
func (p *plan) leaveGolden() {
	p.from, p.golden, p.rec.Born, p.rec.Sandbox.Generation = nil, "", "", 0
	p.rec.Sandbox.ID = carrel.NewID()
}

// spoilGolden notes that the plan's own start failed.
func (cr *creator) spoilGolden(p *plan, err error) {
	if p.golden != "" {
		cr.goldens.Spoil(p.golden, startOf(p), p.rec.Born, err)
	}
}

// Spawn implements golden.Host.
func (r *ripener) Spawn(fn func(life context.Context)) bool {
	return r.table.spawn(func() { fn(r.table.ctx) })
}

// GivenUp implements golden.Host.
func (r *ripener) GivenUp(of golden.Of, id carrel.SnapshotID, err error) {
	r.log.Warn("a template's own start is given up and made anew", "template", of.Template, "snapshot", id, "err", err)
}

// Made implements golden.Host.
func (r *ripener) Made(of golden.Of, took time.Duration, err error) {
	e := carrel.Event{Type: eventGolden, Fields: map[string]string{"template": of.Template},
		Message: fmt.Sprintf("template %s was started in %v: its sandboxes go on from there", of.Name, took.Round(time.Millisecond))}
	if err != nil {
		e.Type, e.Message = eventNotReady, fmt.Sprintf("template %s: %v; its sandboxes start it themselves", of.Name, err)
		r.log.Warn("start a template", "template", of.Name, "err", err)
	}
	r.journal.tell(e)
	r.warm.Recheck() // what is ready has booted
}

// Drop implements golden.Host. The next service removes the starts that this one can't remove
// before it ends.
func (r *ripener) Drop(ids []carrel.SnapshotID) {
	if len(ids) == 0 {
		return
	}
	r.table.spawn(func() {
		for {
			_, refused, err := r.archive.dropSnapshots(r.table.ctx, ids, dropRule{})
			if err != nil && r.table.ctx.Err() == nil {
				r.log.Error("remove a template's own start", "snapshots", ids, "err", err)
			}
			if err == nil {
				ids = slices.Collect(maps.Keys(refused))
			}
			if len(ids) == 0 || !sleep(r.table.ctx, scrapAgain) {
				return
			}
		}
	})
}

// load finds the starts that earlier services made. It removes those that can't be restored here.
func (r *ripener) load(ctx context.Context) {
	var gone []carrel.SnapshotID
	newest := r.snaps.All()
	slices.SortFunc(newest, func(a, b state.SnapshotRecord) int { return b.Snapshot.Created.Compare(a.Snapshot.Created) })
	for _, sr := range newest {
		if sr.Snapshot.Cause != carrel.CauseTemplate {
			continue
		}
		key := sr.Snapshot.Detail
		of := golden.Of{Template: sr.Snapshot.Template, Name: sr.Snapshot.Alias, Tier: sr.Snapshot.Tier}
		if r.fits(ctx, sr) != nil || !r.IsWanted(ctx, key, of) || !r.goldens.Load(key, of, sr.Snapshot.ID, sr.Snapshot.Created) {
			gone = append(gone, sr.Snapshot.ID)
		}
	}
	r.Drop(gone)
}

// fits returns the reason why a start can't be restored here, or nil.
func (r *ripener) fits(ctx context.Context, sr state.SnapshotRecord) error {
	drv, err := r.opts.Drivers.Get(sr.Snapshot.Tier)
	if err != nil {
		return err
	}
	rs, err := restorer(drv)
	if err != nil {
		return err
	}
	m, err := r.opts.Snapshots.Get(ctx, sr.Snapshot.ID)
	if err != nil {
		return err
	}
	if !r.archive.builds.isOwn(ctx, drv, m.Info) { // a new sandbox gets this build's kernel
		return errOtherBuild
	}
	return rs.CanRestore(m.Info, driver.RestoreOptions{})
}

var errOtherBuild = errors.New("it is of another build")

// IsWanted implements golden.Host.
func (r *ripener) IsWanted(ctx context.Context, key string, of golden.Of) bool {
	if !r.resolver.isCurrent(of.Template, of.Name) {
		return false
	}
	if t, ok := r.opts.Images.ByID(of.Template); ok && !t.BuiltIn &&
		strings.HasPrefix(key, r.prefix(of.Tier, image.Image{Template: t}, ownRoot(t))) {
		return true // Get would make the image ready to boot
	}
	img, err := r.opts.Images.Get(ctx, of.Template)
	if err != nil {
		return !errors.Is(err, carrel.NotFound)
	}
	root, _, err := r.roots.keepRoot(img)
	return err == nil && strings.HasPrefix(key, r.prefix(of.Tier, img, root))
}
