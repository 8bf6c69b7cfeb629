package front

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/engine"
	"github.com/carrel-dev/carrel/internal/fleet"
	"github.com/carrel-dev/carrel/internal/quota"
	"github.com/carrel-dev/carrel/internal/state"
)

// shares are the parts of the fleet's quotas that this front's creations hold while they are under
// way. It is safe for concurrent use.
type shares struct {
	registry fleet.Registry
	quotas   func(project, key string) []quota.Bound
	limits   carrel.Limits // of sandboxes whose creation names none
	find     func(ctx context.Context, ref string) (carrel.Template, error)
	engine   *engine.Engine
	events   state.Store
	log      *slog.Logger

	mu   sync.Mutex
	held map[int64]holding // shares under way
}

// holding is a share that this front prolongs.
type holding struct {
	at    time.Time // when it was last prolonged
	until time.Time // when it is let go; zero is when its creation ends
}

// grant is the part of the quotas that one call has. It belongs to the call's goroutine.
type grant struct {
	from   *shares
	asked  fleet.Asked
	bounds []quota.Bound
	shares []int64
	again  bool      // it should be the repetition of a creation
	twin   carrel.ID // that one's sandbox; "" while it is under way
	no     error     // why it is no new creation
}

// bounding returns those of the quotas that bound what a creation adds to.
func bounding(all []quota.Bound) (out []quota.Bound, sizes bool) {
	for _, b := range all {
		has := false
		for _, of := range []map[carrel.LimitName]carrel.Milli{b.Quota.Hard, b.Quota.Soft} {
			for name := range of {
				switch name {
				case carrel.LimitVCPUs, carrel.LimitMemory, carrel.LimitDisk:
					has, sizes = true, true
				case carrel.LimitSandboxes, carrel.LimitCreates:
					has = true
				}
			}
		}
		if has {
			out = append(out, b)
		}
	}
	return out, sizes
}

// defaultTemplate is the template of creations that name none.
const defaultTemplate = "base"

// keyOf is the key that pays for what a caller makes in a project.
func keyOf(c carrel.Caller, project string) string {
	if c.Project != project {
		return ""
	}
	return c.KeyID
}

// create takes the share of a new sandbox. If a quota bounds its size, and the size is known, it is
// in opts afterwards, so that the node makes no other one.
func (s *shares) create(ctx context.Context, template string, opts *carrel.CreateOptions) (*grant, error) {
	c := carrel.CallerOf(ctx)
	g := &grant{from: s, asked: fleet.Asked{Project: c.Project, Count: 1, Creates: 1, Repeat: opts.IdempotencyKey}}
	limits := carrel.Limits{}
	template = cmp.Or(template, defaultTemplate)
	ref, err := carrel.ParseTemplateRef(template)
	if err != nil {
		return nil, err
	}
	if id, ok := ref.SnapshotID(); ok {
		sn, err := s.engine.GetSnapshot(ctx, string(id))
		if err != nil {
			return nil, err
		}
		limits, g.asked.Project = sn.Limits, cmp.Or(sn.Project, c.Project)
	}
	g.asked.Key = keyOf(c, g.asked.Project)
	var sizes bool
	if g.bounds, sizes = bounding(s.quotas(g.asked.Project, g.asked.Key)); len(g.bounds) == 0 {
		return g, nil
	}
	// A template that is not known here may have limits of its own: then the node's answer is looked at.
	known := limits != carrel.Limits{}
	if sizes && !known && template != defaultTemplate {
		if t, err := s.find(ctx, template); err == nil {
			limits, known = t.Limits, true
		}
	}
	limits = filled(filled(opts.Limits, limits), s.limits)
	if sizes && known {
		opts.Limits = limits
	}
	g.asked.Load = quota.LoadOf(carrel.Sandbox{Limits: limits})
	return g, g.take(ctx)
}

// filled returns limits in which what is 0 is def's.
func filled(l, def carrel.Limits) carrel.Limits {
	return carrel.Limits{CPUs: cmp.Or(l.CPUs, def.CPUs), MemoryMB: cmp.Or(l.MemoryMB, def.MemoryMB), DiskMB: cmp.Or(l.DiskMB, def.DiskMB),
		Pids: cmp.Or(l.Pids, def.Pids)}
}

// fork takes the shares of forks.
func (s *shares) fork(ctx context.Context, id carrel.ID, opts carrel.ForkOptions) (*grant, error) {
	const op = "fork sandbox"
	g := &grant{from: s, asked: fleet.Asked{Count: max(1, opts.Count), Creates: 1}}
	home, err := s.registry.Home(ctx, id)
	switch {
	case carrel.KindOf(err) == carrel.NotFound: // its node knows best
		return g, nil
	case err != nil:
		return nil, err
	}
	g.asked.Project, g.asked.Key = home.Project, keyOf(carrel.CallerOf(ctx), home.Project)
	all := s.quotas(g.asked.Project, g.asked.Key)
	for _, b := range all {
		if hit := quota.Over(b, carrel.LimitForks, 0, carrel.Milli(g.asked.Count)*quota.One); hit != nil {
			return nil, quota.Error(op, *hit, 0)
		}
	}
	if g.bounds, _ = bounding(all); len(g.bounds) == 0 {
		return g, nil
	}
	if g.asked.Load = home.Load; opts.At != "" {
		sn, err := s.engine.GetSnapshot(ctx, string(opts.At))
		if err != nil {
			return nil, err
		}
		g.asked.Load = quota.LoadOf(carrel.Sandbox{Limits: sn.Limits})
	}
	return g, g.take(ctx)
}

// take takes the grant's shares.
func (g *grant) take(ctx context.Context) error {
	got, err := g.from.registry.Take(ctx, g.asked, g.bounds)
	if err != nil {
		return err
	}
	g.shares, g.again, g.twin, g.no = append(g.shares, got.Shares...), got.Again, got.Twin, got.Refused
	s := g.from
	s.mu.Lock()
	for _, n := range got.Shares {
		s.held[n] = holding{at: time.Now()}
	}
	s.mu.Unlock()
	for _, h := range got.Soft {
		s.warn(ctx, g.asked.Project, h)
	}
	return nil
}

// warn tells that a soft limit is passed.
func (s *shares) warn(ctx context.Context, project string, h carrel.LimitHit) {
	used := h.Used + h.Asked
	text := quota.Say(carrel.LimitHit{Name: h.Name, Of: h.Of, Limit: h.Limit, Used: used})
	s.log.Warn("a soft limit is passed", "project", project, "limit", h.Name, "of", h.Of, "soft", h.Limit, "used", used)
	_, err := s.events.AppendEvent(ctx, carrel.Event{Time: time.Now().UTC(), Type: "quota.soft", Project: project, Message: "soft limit: " + text,
		Fields: map[string]string{"limit": string(h.Name), "of": h.Of, "soft": h.Limit.String(), "used": used.String()}})
	if err != nil {
		s.log.Warn("write an event", "err", err)
	}
}

const (
	// twinWait and twinTries bound how long a repetition waits for the record of the creation that it
	// repeats.
	twinWait  = 100 * time.Millisecond
	twinTries = 50
)

// settle checks a new sandbox against what was granted. Error: Exhausted.
func (s *shares) settle(ctx context.Context, g *grant, sb carrel.Sandbox) error {
	for try := 0; g.again && g.twin != sb.ID; try++ {
		if g.twin != "" || try == twinTries {
			return g.no // it is a new sandbox after all
		}
		select {
		case <-time.After(twinWait):
		case <-ctx.Done():
			return g.no
		}
		if err := g.take(ctx); err != nil {
			return err
		}
	}
	if len(g.bounds) == 0 || g.again {
		return nil
	}
	is, had := quota.LoadOf(sb), g.asked.Load
	more := quota.Load{VCPUs: max(0, is.VCPUs-had.VCPUs), Memory: max(0, is.Memory-had.Memory), Disk: max(0, is.Disk-had.Disk)}
	if more == (quota.Load{}) {
		return nil
	}
	g.asked.Load, g.asked.Creates, g.asked.Repeat = more, 0, ""
	return g.take(ctx)
}

// born is what the front says when it claims the sandbox's home.
func (g *grant) born() *fleet.Born {
	return &fleet.Born{Key: g.asked.Key, Repeat: g.asked.Repeat, Shares: g.shares}
}

// one returns the part of the grant for one sandbox.
func (g *grant) one() *grant {
	part := *g
	part.shares = g.shares[:min(1, len(g.shares))]
	return &part
}

// used takes a part out of the grant whose sandbox has a home.
func (g *grant) used(part *grant) {
	g.from.done(part.shares)
	g.shares = slices.DeleteFunc(slices.Clone(g.shares), func(n int64) bool { return slices.Contains(part.shares, n) })
}

// spent notes that homes took the place of all shares.
func (g *grant) spent() { g.used(g) }

// dropTime bounds giving shares back. What is not given back ends by itself.
const dropTime = 2 * time.Second

// lateTime is how long a share is kept whose sandbox may come into being without its front.
const lateTime = time.Minute

// end gives back what no home took. If the sandbox may exist all the same, its share stays for a while:
// a caller who leaves in the middle of many creations must not get more of them for it. The node tells
// of the sandbox meanwhile, and then it counts by itself.
func (g *grant) end(ctx context.Context, err error) {
	if len(g.shares) == 0 {
		return
	}
	if ctx.Err() != nil || errors.Is(err, engine.ErrLost) || errors.Is(err, errLeftOver) {
		s := g.from
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, n := range g.shares {
			s.held[n] = holding{at: time.Now(), until: time.Now().Add(lateTime)}
		}
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dropTime)
	defer cancel()
	g.from.done(g.shares)
	if err := g.from.registry.Drop(ctx, g.shares...); err != nil {
		g.from.log.Warn("give shares of a quota back; they end by themselves", "err", err)
	}
}

func (s *shares) done(list []int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range list {
		delete(s.held, n)
	}
}

// run prolongs the shares of creations that take long, until ctx ends.
func (s *shares) run(ctx context.Context) {
	tick := time.NewTicker(fleet.ProlongEvery / 2)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		now := time.Now()
		var old []int64
		s.mu.Lock()
		for n, h := range s.held {
			switch {
			case !h.until.IsZero() && now.After(h.until):
				delete(s.held, n)
			case now.Sub(h.at) > fleet.ProlongEvery/2:
				old = append(old, n)
			}
		}
		s.mu.Unlock()
		if len(old) == 0 {
			continue
		}
		if err := s.registry.Prolong(ctx, old...); err != nil {
			s.log.Warn("prolong shares of quotas", "err", err)
			continue
		}
		s.mu.Lock()
		for _, n := range old {
			if h, ok := s.held[n]; ok {
				h.at = now
				s.held[n] = h
			}
		}
		s.mu.Unlock()
	}
}

// errLeftOver is why a sandbox may go on that its caller did not get.
var errLeftOver = errors.New("the sandbox may go on")

// counted are the limits that a fleet counts over all its nodes.
var counted = map[carrel.LimitName]bool{carrel.LimitSandboxes: true, carrel.LimitCreates: true, carrel.LimitVCPUs: true,
	carrel.LimitMemory: true, carrel.LimitDisk: true, carrel.LimitForks: true}

// countable refuses a quota with limits that only single machines count. Error: Unsupported.
func countable(op string, q *carrel.Quota) error {
	if q == nil {
		return nil
	}
	for part, of := range map[string]map[carrel.LimitName]carrel.Milli{"hard": q.Hard, "soft": q.Soft} {
		for _, name := range slices.Sorted(maps.Keys(of)) {
			if !counted[name] && slices.Contains(carrel.LimitNames(), name) {
				return &carrel.Error{Op: op, Kind: carrel.Unsupported, Field: part + "." + string(name),
					Err:  fmt.Errorf("a fleet does not count %s over its nodes", name),
					Hint: "set it on each node, with the node's own address and key; then it holds for that node's sandboxes"}
			}
		}
	}
	return nil
}
