package front

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
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
	var out carrel.Drained
	failed := map[carrel.ID]bool{}
	for {
		homes, err := f.homes.registry.Homes(ctx, name)
		if err != nil {
			return out, err
		}
		homes = slices.DeleteFunc(homes, func(h fleet.Home) bool { return failed[h.Sandbox] || h.State == fleet.Ended })
		if len(homes) == 0 {
			break
		}
		var mu sync.Mutex
		var wg sync.WaitGroup
		turns := make(chan struct{}, atOnce)
		for _, h := range homes {
			turns <- struct{}{}
			wg.Go(func() {
				defer func() { <-turns }()
				err := f.away(ctx, h, name)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					out.Moved = append(out.Moved, h.Sandbox)
				case carrel.KindOf(err) == carrel.NotFound: // it ended meanwhile
					failed[h.Sandbox] = true
				default:
					failed[h.Sandbox] = true
					out.Failed = append(out.Failed, carrel.Unmoved{ID: h.Sandbox, Error: err.Error(), Hint: carrel.HintOf(err)})
				}
			})
		}
		wg.Wait()
		if ctx.Err() != nil {
			return out, &carrel.Error{Op: op, Kind: carrel.TimedOut, Err: context.Cause(ctx)}
		}
	}
	slices.Sort(out.Moved)
	slices.SortFunc(out.Failed, func(a, b carrel.Unmoved) int { return strings.Compare(string(a.ID), string(b.ID)) })
	return out, nil
}

// keepTime is how long a sandbox that moves keeps its part of the quotas.
const keepTime = moveTries * moveTime

// away moves one sandbox away from a node. Calls about it wait until it is there.
func (f fleetNodes) away(ctx context.Context, h fleet.Home, from string) error {
	ran := false
	_, err := f.homes.move(ctx, h.Sandbox, func(ctx context.Context) (fleet.Home, error) {
		home, err := f.homes.registry.Home(ctx, h.Sandbox)
		if err != nil || home.Node != from {
			return home, err
		}
		if ran = home.State == fleet.Running; ran { // nobody else gets its part of a quota meanwhile
			if err := f.homes.registry.Keep(ctx, home.Sandbox, keepTime); err != nil {
				return home, err
			}
		}
		if home, err = f.still(ctx, home); err != nil {
			return home, err
		}
		next, err := f.homes.takeOver(ctx, home, from)
		if err != nil {
			if ran && home.Node == from {
				err = errors.Join(err, f.goOn(ctx, home))
			}
			return home, err
		}
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
	return err
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

// goOn resumes a sandbox at its home.
func (f fleetNodes) goOn(ctx context.Context, home fleet.Home) error {
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
