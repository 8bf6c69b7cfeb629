package front

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/fleet"
)

// fleetNodes are the nodes for administrators. It checks nobody's rights.
type fleetNodes struct{ *core }

var _ carrel.Nodes = fleetNodes{}

// Nodes implements carrel.Nodes.
func (f fleetNodes) Nodes(ctx context.Context) ([]carrel.Node, error) {
	all, err := f.homes.registry.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	var out []carrel.Node
	for _, n := range all {
		got := carrel.Node{Name: n.Name, URL: n.URL, Version: n.Version, Taints: n.Taints, State: carrel.NodeAway,
			LeaseMS: max(0, n.Left.Milliseconds()), Why: "it has not joined yet"}
		for _, s := range f.nodes.status() {
			if s.Node != n.Name {
				continue
			}
			got.Tiers, got.Memory, got.MemoryTotal = s.Tiers, s.Load.Memory, s.Load.MemoryTotal
			if got.Why = ""; s.Away != nil {
				got.Why = s.Away.Error()
			}
		}
		switch {
		case !n.Alive():
			got.State = carrel.NodeLost
		case got.Why != "":
		case n.Draining:
			got.State = carrel.NodeDraining
		default:
			got.State = carrel.NodeReady
		}
		homes, err := f.homes.registry.Homes(ctx, n.Name)
		if err != nil {
			return nil, err
		}
		for _, h := range homes {
			switch h.State {
			case fleet.Running:
				got.Running++
			case fleet.Lost:
				got.Lost++
			case fleet.Paused, fleet.Moving:
				got.Paused++
			}
		}
		out = append(out, got)
	}
	return out, nil
}

// UndrainNode implements carrel.Nodes.
func (f fleetNodes) UndrainNode(ctx context.Context, name string) error {
	defer f.nodes.soon()
	return f.homes.registry.Drain(ctx, name, false)
}

// RemoveNode implements carrel.Nodes.
func (f fleetNodes) RemoveNode(ctx context.Context, name string, force bool) error {
	defer f.nodes.soon()
	return f.homes.registry.Remove(ctx, name, force)
}

// atOnce is how many sandboxes of a node move at once.
const atOnce = 8

const (
	// drainTries bounds how often a drain tries to move one sandbox when something does not answer.
	drainTries = 3
	// rivalTries bounds how often it tries when somebody else pauses or moves the sandbox, and
	// rivalEvery is the time between two tries.
	rivalTries = 40
	rivalEvery = 500 * time.Millisecond
)

// DrainNode implements carrel.Nodes. It goes round until nothing is left: a creation may have been on
// its way when the node began to drain.
func (f fleetNodes) DrainNode(ctx context.Context, name string) (carrel.Drained, error) {
	const op = "drain node"
	if err := f.homes.registry.Drain(ctx, name, true); err != nil {
		return carrel.Drained{}, err
	}
	if err := f.nodes.read(ctx); err != nil {
		return carrel.Drained{}, err
	}
	d := draining{failed: map[carrel.ID]bool{}, tries: map[carrel.ID]int{}, open: map[carrel.ID]carrel.Unmoved{}}
	for {
		homes, err := f.homes.registry.Homes(ctx, name)
		if err != nil {
			return d.out, err
		}
		homes = slices.DeleteFunc(homes, func(h fleet.Home) bool { return d.failed[h.Sandbox] || h.State == fleet.Ended })
		if len(homes) == 0 {
			break
		}
		var wg sync.WaitGroup
		turns := make(chan struct{}, atOnce)
		for _, h := range homes {
			turns <- struct{}{}
			wg.Go(func() {
				defer func() { <-turns }()
				moved, err := f.away(ctx, h, name)
				d.note(h.Sandbox, moved, err)
			})
		}
		wg.Wait()
		if d.again {
			d.again = false
			select {
			case <-time.After(rivalEvery):
			case <-ctx.Done():
			}
		}
		if ctx.Err() != nil {
			return d.out, &carrel.Error{Op: op, Kind: carrel.TimedOut, Err: context.Cause(ctx)}
		}
	}
	d.out.Failed = slices.AppendSeq(d.out.Failed, maps.Values(d.open))
	slices.Sort(d.out.Moved)
	slices.SortFunc(d.out.Failed, func(a, b carrel.Unmoved) int { return strings.Compare(string(a.ID), string(b.ID)) })
	return d.out, nil
}

// keepTime is how long a sandbox that moves keeps its part of the quotas.
const keepTime = moveTries * moveTime

// draining is what a drain knows of its sandboxes.
type draining struct {
	mu     sync.Mutex
	out    carrel.Drained
	failed map[carrel.ID]bool           // for good
	tries  map[carrel.ID]int            // that failed for the moment
	open   map[carrel.ID]carrel.Unmoved // the last error of those that may not run now, wherever they are
	again  bool                         // some are tried again
}

// note notes how one try ended.
func (d *draining) note(id carrel.ID, moved bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.open, id)
	most := 0
	switch carrel.KindOf(err) {
	case carrel.Unavailable: // something does not answer
		most = drainTries
	case carrel.Conflict: // somebody else pauses or moves it
		most = rivalTries
	}
	d.tries[id]++
	switch {
	case err == nil && moved:
		d.out.Moved = append(d.out.Moved, id)
	case err == nil, carrel.KindOf(err) == carrel.NotFound: // another drain moved it, or it ended meanwhile
		d.failed[id] = true
	case d.tries[id] < most:
		d.again = true
		if carrel.KindOf(err) == carrel.Unavailable {
			d.open[id] = unmoved(id, err)
		}
	default:
		d.failed[id] = true
		d.out.Failed = append(d.out.Failed, unmoved(id, err))
	}
}

func unmoved(id carrel.ID, err error) carrel.Unmoved {
	return carrel.Unmoved{ID: id, Error: err.Error(), Hint: carrel.HintOf(err)}
}

// away moves one sandbox away from a node, and reports whether it did so. Calls about it wait until it
// is there.
func (f fleetNodes) away(ctx context.Context, h fleet.Home, from string) (moved bool, err error) {
	var did atomic.Bool
	_, err = f.homes.move(ctx, h.Sandbox, func(ctx context.Context) (fleet.Home, error) {
		home, err := f.homes.registry.Home(ctx, h.Sandbox)
		if err != nil || home.Node != from {
			return home, err
		}
		ran := home.State == fleet.Running
		if ran { // nobody else gets its part of a quota meanwhile
			if err := f.homes.registry.Keep(ctx, home.Sandbox, keepTime); err != nil {
				return home, err
			}
		}
		next := home
		if home, err = f.still(ctx, home); err == nil {
			next, err = f.homes.takeOver(ctx, home, from)
		}
		if err != nil {
			return f.notAway(ctx, home, from, ran && home.State == fleet.Paused, err)
		}
		did.Store(true)
		if ran {
			err = f.goOn(ctx, next)
		}
		if c, cerr := f.nodes.client(from, ""); cerr == nil {
			// The node finds out by itself, too. Releasing early frees its disk.
			if rerr := c.Movement().Release(ctx, home.Sandbox); rerr != nil {
				f.homes.log.Info("release a moved sandbox", "sandbox", home.Sandbox, "node", from, "err", rerr)
			}
		}
		return next, err
	})
	return did.Load(), err
}

// notAway ends a move that failed. paused says that the move paused the sandbox: it goes on where it
// is, which is on another node if another drain was faster.
func (f fleetNodes) notAway(ctx context.Context, home fleet.Home, from string, paused bool, err error) (fleet.Home, error) {
	now, homeErr := f.homes.registry.Home(ctx, home.Sandbox)
	if homeErr != nil {
		return home, errors.Join(err, homeErr)
	}
	if now.Node != from && carrel.KindOf(err) == carrel.Conflict {
		err = nil
	}
	if paused {
		err = errors.Join(err, f.goOn(ctx, now))
	}
	return now, err
}

// still pauses a sandbox at its home, and publishes it.
func (f fleetNodes) still(ctx context.Context, home fleet.Home) (fleet.Home, error) {
	n, ok := f.nodes.node(home.Node)
	if !ok || home.Left <= 0 {
		return home, lost(home)
	}
	c, err := f.nodes.client(home.Node, "")
	if err != nil {
		return home, err
	}
	if home.State == fleet.Running {
		if _, err := c.Pause(ctx, home.Sandbox, carrel.PauseOptions{}); err != nil {
			return home, err
		}
		home.State = fleet.Paused
	}
	passport, err := f.passportOf(ctx, home)
	if err != nil {
		return home, err
	}
	m := fleet.Member{Name: n.Name, Token: n.Token}
	if err := f.homes.registry.Publish(ctx, m, home.Sandbox, home.Token, passport, true); err != nil {
		return home, err
	}
	home.State, home.Passport = fleet.Paused, passport
	return home, nil
}

// A sandbox that moved goes on within goOnTime. It is tried every goOnEvery.
const (
	goOnTime  = 20 * time.Second
	goOnEvery = 500 * time.Millisecond
)

// goOn resumes a sandbox at its new home. If that can't run it now, it tries again, and elsewhere when
// that node's lease has expired.
func (f fleetNodes) goOn(ctx context.Context, home fleet.Home) error {
	ctx, cancel := context.WithTimeout(ctx, goOnTime)
	defer cancel()
	tick := time.NewTicker(goOnEvery)
	defer tick.Stop()
	for {
		err := error(&carrel.Error{Op: "move sandbox", Kind: carrel.Unavailable, ID: home.Sandbox, Err: errors.New("it moves to node " + home.Node)})
		if home.State != fleet.Moving {
			err = f.resume(ctx, home)
		}
		if kind := carrel.KindOf(err); err == nil || kind != carrel.Unavailable && kind != carrel.NotFound {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
		now, homeErr := f.homes.registry.Home(ctx, home.Sandbox)
		if homeErr == nil && now.State == fleet.Ended {
			return err
		}
		if homeErr == nil && now.Left <= 0 && now.Passport != nil {
			now, homeErr = f.homes.takeOver(ctx, now, now.Node)
		}
		if homeErr == nil {
			home = now
		}
	}
}

// resume resumes a sandbox at its home.
func (f fleetNodes) resume(ctx context.Context, home fleet.Home) error {
	c, err := f.nodes.client(home.Node, "")
	if err != nil {
		return err
	}
	if _, _, err := c.Resume(ctx, home.Sandbox, carrel.ResumeOptions{}); err != nil {
		return &carrel.Error{Op: "move sandbox", Kind: carrel.KindOf(err), ID: home.Sandbox,
			Err: fmt.Errorf("it is paused on node %s, and did not resume: %w", home.Node, err), Hint: carrel.HintOf(err)}
	}
	return nil
}

// loseEvery is how often fronts look for nodes whose lease has expired.
const loseEvery = time.Second

// undertake marks sandboxes that were lost with their node, and has others take over those that
// were published by a checkpoint, until ctx ends.
func (f fleetNodes) undertake(ctx context.Context) {
	tick := time.NewTicker(loseEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		list, err := f.homes.registry.Lose(ctx)
		if err != nil {
			f.homes.log.Warn("mark lost sandboxes", "err", err)
			continue
		}
		for _, h := range list {
			f.homes.forget(h.Sandbox)
			f.homes.log.Error("a sandbox is lost with its node", "sandbox", h.Sandbox, "node", h.Node, "project", h.Project)
			f.told(ctx, h)
		}
		f.revive(ctx, list)
	}
}

// told writes the event of a loss.
func (f fleetNodes) told(ctx context.Context, h fleet.Home) {
	_, err := f.events.AppendEvent(ctx, carrel.Event{Time: time.Now().UTC(), Type: "sandbox.lost", ID: h.Sandbox, Project: h.Project,
		Message: fmt.Sprintf("it ran on node %s, which is lost", h.Node), Fields: map[string]string{"node": h.Node}})
	if err != nil {
		f.homes.log.Warn("write an event", "err", err)
	}
}

// revive resumes what has a checkpoint.
func (f fleetNodes) revive(ctx context.Context, list []fleet.Home) {
	turns := make(chan struct{}, atOnce)
	var wg sync.WaitGroup
	for _, h := range list {
		turns <- struct{}{}
		wg.Go(func() {
			defer func() { <-turns }()
			home, err := f.homes.registry.Home(ctx, h.Sandbox)
			if err != nil || home.Passport == nil {
				return
			}
			if home, err = f.homes.rescue(ctx, home); err == nil {
				err = f.goOn(ctx, home)
			}
			if err != nil {
				f.homes.log.Error("resume a lost sandbox from its checkpoint", "sandbox", h.Sandbox, "err", err)
			}
		})
	}
	wg.Wait()
}
