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
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/state"
)

const (
	mostGoldens = 16 // that are kept; those not used for longest go first
	// A start that failed is tried again after so long, and longer each time.
	firstGoldenRetry = time.Minute
	lastGoldenRetry  = 6 * time.Hour
)

// goldens is what is known of templates' own starts. A template that has a start and a
// ready command is started once for each size, by nobody's request: when its ready command
// succeeds, that moment is kept, and what is created goes on from it. Its snapshot is kept
// like others, with a record, under no name, and is in no list.
//
// All that such a moment depends on is in its key: it is made anew when that changes.
type goldens struct {
	slot chan struct{} // one at a time is made

	mu  sync.Mutex
	all map[string]*golden // by goldenKey
}

// golden is one template's start at one size. It is guarded by goldens.mu.
type golden struct {
	template string // the template's ID
	name     string // and its name
	tier     carrel.Tier
	cancel   context.CancelFunc // ends the making
	id       carrel.SnapshotID  // "" until it is made
	used     time.Time
	making   bool
	problem  string    // why the last try failed
	next     time.Time // no try before
	failures int
	broken   int  // restorations in a row that failed
	verified bool // its content was compared with its sums since this service began
}

func (g *goldens) init() {
	g.slot, g.all = make(chan struct{}, 1), map[string]*golden{}
}

// hidden reports whether a snapshot is the service's own and not shown.
func hidden(sn carrel.Snapshot) bool { return sn.Cause == carrel.CauseTemplate }

// goldenPrefix is what a template's own start depends on but for the size: the very image,
// the guest in it, and how it starts.
func (s *Service) goldenPrefix(tier carrel.Tier, img image.Image, root string) string {
	how, _ := json.Marshal([]any{img.Start, img.Ready, img.Env, img.User, img.WorkDir}) // of strings: can't fail
	return fmt.Sprintf("%s %s %s %s %x ", tier, img.ID, root, filepath.Base(s.opts.GuestImage), sha256.Sum256(how))
}

// planGolden has a plan go on from its template's own start, where there is one. Where
// there could be, it has it made.
func (s *Service) planGolden(p *plan, img image.Image) {
	c := p.driver.Info().Capabilities
	if img.Ready == "" || len(img.Start) == 0 || !c.MemorySnapshot || s.opts.Snapshots == nil || p.rec.Root == "" {
		return
	}
	l := p.rec.Sandbox.Limits
	key := s.goldenPrefix(p.rec.Sandbox.Tier, img, p.rec.Root) + fmt.Sprintf("%g/%d/%d/%d", l.CPUs, l.MemoryMB, l.DiskMB, l.Pids)
	now := time.Now()
	g := &s.goldens
	g.mu.Lock()
	one := g.all[key]
	if one == nil {
		one = &golden{template: img.ID, name: img.Name, tier: p.rec.Sandbox.Tier}
		g.all[key] = one
	}
	one.used = now
	id := one.id
	begin := id == "" && !one.making && !now.Before(one.next)
	var ctx context.Context
	if begin {
		one.making = true
		ctx, one.cancel = context.WithCancel(s.ctx)
	}
	making := one.making
	g.mu.Unlock()
	switch {
	case id != "":
		p.golden, p.rec.Born, p.rec.Sandbox.Generation = key, id, 1
	case begin:
		like := *p // p goes its own way
		if !s.spawn(func() { s.makeGolden(ctx, key, img, &like) }) {
			s.endGolden(key, "", errClosing)
		}
	}
	p.unripe = making
}

// openGolden opens the start that a plan goes on from, and reports whether there is one.
func (s *Service) openGolden(ctx context.Context, p *plan) bool {
	if p.golden == "" {
		return false
	}
	from, err := s.open(ctx, p.rec.Born, false, false)
	if err != nil {
		s.spoilGolden(p, err)
		p.leaveGolden()
		return false
	}
	g := &s.goldens
	key, verify := p.golden, from.verify
	from.verify = func(ctx context.Context) error {
		if g.isVerified(key) {
			return nil // once is enough: its files are nobody's to write
		}
		err := verify(ctx)
		if err == nil {
			g.setVerified(key)
		}
		return err
	}
	p.from = from
	return true
}

// worked notes that a restoration worked.
func (g *goldens) worked(key string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if one := g.all[key]; one != nil {
		one.broken = 0
	}
}

func (g *goldens) isVerified(key string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	one := g.all[key]
	return one != nil && one.verified
}

func (g *goldens) setVerified(key string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if one := g.all[key]; one != nil {
		one.verified = true
	}
}

// leaveGolden makes the plan one for a sandbox that boots.
func (p *plan) leaveGolden() {
	p.from, p.golden, p.rec.Born, p.rec.Sandbox.Generation = nil, "", "", 0
	p.rec.Sandbox.ID = carrel.NewID()
}

// mostBroken is how many restorations in a row may fail for reasons that could pass.
const mostBroken = 3

// spoilGolden gives up a start that nothing can be made from: it is damaged, gone, of
// another build or processor, or fails again and again.
func (s *Service) spoilGolden(p *plan, err error) {
	if p.golden == "" {
		return
	}
	g := &s.goldens
	g.mu.Lock()
	over := false
	if one := g.all[p.golden]; one != nil {
		one.broken++
		over = one.broken >= mostBroken
	}
	g.mu.Unlock()
	switch carrel.KindOf(err) {
	case carrel.Invalid, carrel.NotFound, carrel.Unsupported:
	default:
		if !over {
			return
		}
	}
	s.log.Warn("a template's own start is given up and made anew", "template", p.rec.Sandbox.Template, "snapshot", p.rec.Born, "err", err)
	s.removeGoldens(func(key string, one *golden) bool { return key == p.golden && one.id == p.rec.Born })
}

// removeGoldens forgets starts and removes their snapshots, in the background: some may
// still be read.
func (s *Service) removeGoldens(which func(string, *golden) bool) {
	g := &s.goldens
	var ids []carrel.SnapshotID
	g.mu.Lock()
	for key, one := range g.all {
		if which(key, one) {
			if one.id != "" {
				ids = append(ids, one.id)
			}
			if one.cancel != nil {
				one.cancel()
			}
			delete(g.all, key)
		}
	}
	g.mu.Unlock()
	s.dropHidden(ids)
}

// dropHidden removes snapshots of templates' own starts, as soon as nobody reads them. What
// can't be removed before the service ends is removed by the next.
func (s *Service) dropHidden(ids []carrel.SnapshotID) {
	if len(ids) == 0 {
		return
	}
	s.spawn(func() {
		for {
			_, refused, err := s.dropSnapshots(s.ctx, ids, dropRule{})
			if err != nil && s.ctx.Err() == nil {
				s.log.Error("remove a template's own start", "snapshots", ids, "err", err)
			}
			if err == nil {
				ids = slices.Collect(maps.Keys(refused))
			}
			if len(ids) == 0 || !sleep(s.ctx, scrapAgain) {
				return
			}
		}
	})
}

// loadGoldens finds the starts that earlier services made. Those that can't be restored
// here are removed.
func (s *Service) loadGoldens(ctx context.Context) {
	g := &s.goldens
	var gone []carrel.SnapshotID
	newest := s.snaps.all()
	slices.SortFunc(newest, func(a, b state.SnapshotRecord) int { return b.Snapshot.Created.Compare(a.Snapshot.Created) })
	for _, sr := range newest {
		if !hidden(sr.Snapshot) {
			continue
		}
		key := sr.Snapshot.Detail
		one := &golden{template: sr.Snapshot.Template, name: sr.Snapshot.Alias, tier: sr.Snapshot.Tier, id: sr.Snapshot.ID, used: sr.Snapshot.Created}
		if err := s.fits(ctx, sr); err != nil || g.all[key] != nil || !s.wanted(ctx, key, one) {
			gone = append(gone, sr.Snapshot.ID)
			continue
		}
		g.all[key] = one
	}
	s.dropHidden(gone)
}

// fits reports why a start can't be restored here.
func (s *Service) fits(ctx context.Context, sr state.SnapshotRecord) error {
	drv, err := s.opts.Drivers.Get(sr.Snapshot.Tier)
	if err != nil {
		return err
	}
	r, err := restorer(drv)
	if err != nil {
		return err
	}
	m, err := s.opts.Snapshots.Get(ctx, sr.Snapshot.ID)
	if err != nil {
		return err
	}
	return r.CanRestore(m.Info, driver.RestoreOptions{})
}

// wanted reports whether a start is still that of a template. Of one that can't be asked
// for now it is.
func (s *Service) wanted(ctx context.Context, key string, one *golden) bool {
	img, err := s.opts.Images.Get(ctx, one.name) // by name: an ID finds templates that were replaced
	if err != nil {
		return !errors.Is(err, carrel.NotFound)
	}
	root, _ := s.keepRoot(img)
	return img.ID == one.template && strings.HasPrefix(key, s.goldenPrefix(one.tier, img, root))
}

// templatesChanged has what was made of templates looked at again.
func (s *Service) templatesChanged() {
	s.warm.recheck()
	s.spawn(s.sweepGoldens)
}

// sweepGoldens removes the starts of templates that have changed or are gone, and those
// beyond the most that are kept.
func (s *Service) sweepGoldens() {
	g := &s.goldens
	g.mu.Lock()
	all := maps.Clone(g.all)
	byUse := slices.SortedFunc(maps.Keys(all), func(a, b string) int { return all[b].used.Compare(all[a].used) })
	g.mu.Unlock()
	for i, key := range byUse {
		one := all[key] // its names never change
		if (i >= mostGoldens || !s.wanted(s.ctx, key, one)) && s.ctx.Err() == nil {
			s.removeGoldens(func(k string, now *golden) bool { return k == key && now == one })
		}
	}
}

// marked says in a template how its own start is doing.
func (g *goldens) marked(t carrel.Template) carrel.Template {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, one := range g.all {
		switch {
		case one.template != t.ID || t.Ready == "":
		case one.id != "":
			t.Golden = "ready"
		case t.Golden == "ready":
		case one.making:
			t.Golden = "making"
		case one.problem != "" && t.Golden == "":
			t.Golden = one.problem
		}
	}
	return t
}
