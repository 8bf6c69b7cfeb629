package front

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/client"
	"github.com/carrel-dev/carrel/internal/fleet"
)

// answerOf is one node's answer.
type answerOf[T any] struct {
	node string
	out  T
	err  error
}

// askNodes asks nodes at once, each within a bound. The answers are in the nodes' order.
func askNodes[T any](ctx context.Context, list []fleet.Node, fn func(ctx context.Context, node string) (T, error)) []answerOf[T] {
	out := make([]answerOf[T], len(list))
	var wg sync.WaitGroup
	turns := make(chan struct{}, atOnce)
	for i, n := range list {
		turns <- struct{}{}
		wg.Go(func() {
			defer func() { <-turns }()
			ctx, cancel := context.WithTimeout(ctx, callTime)
			defer cancel()
			out[i].node = n.Name
			out[i].out, out[i].err = fn(ctx, n.Name)
		})
	}
	wg.Wait()
	return out
}

// client returns a client of a node for the caller of a context. The node judges by the caller's
// project, and an administrator's call is its administrator's.
func (b *builds) client(ctx context.Context, node string) (*client.Client, error) {
	c := carrel.CallerOf(ctx)
	if c.Role == carrel.RoleAdmin {
		return b.nodes.client(node, "")
	}
	return b.nodes.client(node, c.Project)
}

// notTheirs is the error for a node that answers about something else than it was asked for.
func notTheirs(op, node string) error {
	return &carrel.Error{Op: op, Kind: carrel.Unavailable, Err: fmt.Errorf("node %s answered about another build", node),
		Hint: "look at that node: carrel node ls"}
}

// unheard is the error when a node that did not answer may have what is asked for.
func unheard(op, what string, silent []string) error {
	return &carrel.Error{Op: op, Kind: carrel.Unavailable, RetryAfter: time.Second,
		Err:  fmt.Errorf("%s may be on a node that does not answer: %s", what, strings.Join(silent, ", ")),
		Hint: "try again when it is back, or remove it with carrel node rm"}
}

// found is a build, and its node.
type found struct {
	node  string
	build carrel.Build
}

// list asks all nodes for builds. What a node says of projects that the caller does not see is left
// out. Error: no node answered.
func (b *builds) list(ctx context.Context, op string, opts carrel.BuildListOptions) (out []found, err error) {
	ready, _ := b.nodes.ready()
	err = &carrel.Error{Op: op, Kind: carrel.Unavailable, RetryAfter: time.Second, Err: errNoNodes}
	heard := false
	for _, a := range askNodes(ctx, ready, func(ctx context.Context, node string) ([]carrel.Build, error) {
		cl, err := b.client(ctx, node)
		if err != nil {
			return nil, err
		}
		return cl.ListBuilds(ctx, opts)
	}) {
		if a.err != nil {
			if carrel.KindOf(a.err) == carrel.Invalid {
				return nil, a.err
			}
			err = a.err
			continue
		}
		heard = true
		for _, one := range a.out {
			if carrel.CallerOf(ctx).Sees(one.Project) {
				out = append(out, found{a.node, one})
			}
		}
	}
	if heard {
		err = nil
	}
	return out, err
}

// having returns the node that has the newest build of a template of the caller's project; "" if no
// node has one.
func (b *builds) having(ctx context.Context, op, template string) (string, error) {
	plain, _, _ := strings.Cut(template, ":")
	all, err := b.list(ctx, op, carrel.BuildListOptions{Template: plain})
	if err != nil {
		return "", err
	}
	var newest found
	for _, one := range all {
		if one.build.Project == carrel.CallerOf(ctx).Project && (newest.node == "" || one.build.Created.After(newest.build.Created)) {
			newest = one
		}
	}
	return newest.node, nil
}

// place chooses the node for a new build of a template: the one that has the newest build of it, or
// else the one that the hash of project and name gives. So the cache of steps is warm, and fronts
// that see the same nodes agree.
func (b *builds) place(ctx context.Context, op, template string) (string, error) {
	project := carrel.CallerOf(ctx).Project
	able := b.able(project)
	if len(able) == 0 {
		return "", &carrel.Error{Op: op, Kind: carrel.Unavailable, RetryAfter: time.Second,
			Err: errors.New("no node of the fleet takes builds now"), Hint: "carrel node ls shows the nodes"}
	}
	at, err := b.having(ctx, op, template)
	if err != nil || slices.Contains(able, at) {
		return at, err
	}
	plain, _, _ := strings.Cut(template, ":")
	return slices.MaxFunc(able, func(x, y string) int {
		return bytes.Compare(weight(project, plain, x), weight(project, plain, y))
	}), nil
}

// weight is a node's in the choice for a template.
func weight(project, template, node string) []byte {
	sum := sha256.Sum256([]byte(project + "\x00" + template + "\x00" + node))
	return sum[:]
}

// able are the nodes that a project's builds may go to: those with real sandboxes, if any node has
// such. A node without them words the refusal.
func (b *builds) able(project string) (out []string) {
	var bare []string
	for _, s := range b.nodes.status() {
		n, ok := b.nodes.node(s.Node)
		if !ok || !s.Ready || n.Draining || slices.ContainsFunc(n.Taints, func(t string) bool { return !b.tolerates(project, t) }) {
			continue
		}
		if slices.ContainsFunc(s.Tiers, func(t carrel.Tier) bool { return t != carrel.Sim }) {
			out = append(out, s.Node)
		} else {
			bare = append(bare, s.Node)
		}
	}
	if len(out) == 0 {
		return bare
	}
	return out
}

// at is where a build is.
type at struct {
	node  string
	build carrel.Build
	lost  bool // build says so, and nobody need be asked
}

var buildID = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

func noBuild(op string) error {
	return &carrel.Error{Op: op, Kind: carrel.NotFound, Field: "buildID", Err: errors.New("no such build"), Hint: "'carrel build ls' lists them"}
}

// find finds a build. If the node that had it does not answer, and is alive as far as the fleet
// knows, the answer is what it said last: a poll comes again.
func (b *builds) find(ctx context.Context, op, id string) (at, error) {
	if !buildID.MatchString(id) {
		return at{}, noBuild(op)
	}
	caller := carrel.CallerOf(ctx)
	b.mu.Lock()
	k := b.known[id]
	var node string
	var last carrel.Build
	lost := false
	if k != nil {
		node, last, lost = k.node, k.last, k.lost
	}
	b.mu.Unlock()
	switch {
	case k == nil:
		return b.search(ctx, op, id)
	case !caller.Sees(last.Project):
		return at{}, noBuild(op)
	case lost:
		return at{node, last, true}, nil
	}
	cl, err := b.client(ctx, node)
	var got carrel.Build
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, callTime)
		got, err = cl.GetBuild(ctx, id)
		cancel()
	}
	switch kind := carrel.KindOf(err); {
	case err == nil && got.ID == id && got.Project == last.Project:
		b.note(node, got)
		return at{node: node, build: got}, nil
	case err == nil:
		return at{}, notTheirs(op, node)
	case ctx.Err() != nil:
		return at{}, err
	case kind == carrel.NotFound && b.alive(node, k.public):
		b.mu.Lock()
		delete(b.known, id)
		b.mu.Unlock()
		return b.search(ctx, op, id)
	case kind == carrel.Unavailable, kind == carrel.TimedOut, kind == carrel.NotFound:
		if gone, ok := b.lose(id); ok {
			return at{node, gone, true}, nil
		}
		return at{node: node, build: last}, nil
	}
	return at{}, err
}

// search asks all nodes for a build.
func (b *builds) search(ctx context.Context, op, id string) (at, error) {
	ready, silent := b.nodes.ready()
	var have []at
	for _, a := range askNodes(ctx, ready, func(ctx context.Context, node string) (carrel.Build, error) {
		cl, err := b.client(ctx, node)
		if err != nil {
			return carrel.Build{}, err
		}
		return cl.GetBuild(ctx, id)
	}) {
		switch {
		case a.err == nil && a.out.ID == id && carrel.CallerOf(ctx).Sees(a.out.Project):
			have = append(have, at{node: a.node, build: a.out})
		case a.err == nil:
			b.log.Warn("a node answers about another build", "node", a.node, "build", id, "project", a.out.Project)
		case carrel.KindOf(a.err) != carrel.NotFound:
			silent = append(silent, a.node)
		}
	}
	switch {
	case len(have) == 1:
		b.note(have[0].node, have[0].build)
		return have[0], nil
	case len(have) > 1:
		return at{}, &carrel.Error{Op: op, Kind: carrel.Conflict, Field: "buildID",
			Err: fmt.Errorf("nodes %s and %s both say that they have this build", have[0].node, have[1].node), Hint: "look at these nodes"}
	case len(silent) > 0:
		return at{}, unheard(op, "the build", silent)
	}
	return at{}, noBuild(op)
}

// note remembers a build.
func (b *builds) note(node string, build carrel.Build) {
	n, _ := b.nodes.node(node)
	b.mu.Lock()
	defer b.mu.Unlock()
	k := b.known[build.ID]
	if k == nil {
		if len(b.known) >= maxKnownBuilds {
			for id, old := range b.known {
				if old.last.State.Final() {
					delete(b.known, id)
				}
			}
			if len(b.known) >= maxKnownBuilds {
				clear(b.known)
			}
		}
		k = &knownBuild{node: node, public: n.Public}
		b.known[build.ID] = k
	}
	if !k.lost {
		k.last = build
	}
}

// alive reports whether a node is a member, and still the machine that it was.
func (b *builds) alive(node string, public []byte) bool {
	n, ok := b.nodes.node(node)
	return ok && n.Alive() && bytes.Equal(n.Public, public)
}

// lose fails a build whose node's lease has expired. ok is false as long as the node is a member.
func (b *builds) lose(id string) (_ carrel.Build, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	k := b.known[id]
	if k == nil || !k.lost && b.alive(k.node, k.public) {
		return carrel.Build{}, false
	}
	if !k.lost {
		k.lost, k.ended = true, k.last.State.Final()
		// Nobody was told of a success whose template did not reach another node.
		if !k.ended || k.last.State == carrel.BuildReady && !k.seen.IsZero() && !k.settled {
			k.last.State, k.last.Ended = carrel.BuildError, time.Now().UTC()
			k.last.Reason = &carrel.BuildReason{Message: "node " + k.node + ", which built it, is lost",
				Hint: "start the build again: another node makes it"}
		}
	}
	return k.last, true
}

func (b *builds) isLost(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	k := b.known[id]
	return k != nil && k.lost && k.last.Reason != nil
}

// lostOnes are the lost builds that a list has.
func (b *builds) lostOnes(ctx context.Context, opts carrel.BuildListOptions) (out []carrel.Build) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, k := range b.known {
		last := k.last
		if k.lost && carrel.CallerOf(ctx).Sees(last.Project) &&
			(opts.Template == "" || slices.Contains([]string{last.Name, last.TemplateID, cmp.Or(last.Image, last.Name)}, opts.Template)) &&
			(len(opts.States) == 0 || slices.Contains(opts.States, last.State)) {
			out = append(out, last)
		}
	}
	return out
}

// run fails the builds of nodes that die. A node that comes back must not go on with them: somebody
// was told that they failed, and may have started others since.
func (b *builds) run(ctx context.Context) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		var open, lost []string
		b.mu.Lock()
		for id, k := range b.known {
			switch {
			case !k.lost && !k.last.State.Final():
				open = append(open, id)
			case k.lost && !k.ended && b.alive(k.node, k.public):
				lost = append(lost, id)
			}
		}
		b.mu.Unlock()
		for _, id := range open {
			if gone, ok := b.lose(id); ok {
				b.log.Warn("a build is lost with its node", "build", id, "template", gone.Name)
			}
		}
		for _, id := range lost {
			b.end(ctx, id)
		}
	}
}

// end ends a lost build on its node, which came back.
func (b *builds) end(ctx context.Context, id string) {
	b.mu.Lock()
	k := b.known[id]
	b.mu.Unlock()
	if k == nil {
		return
	}
	cl, err := b.nodes.client(k.node, "")
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, callTime)
		defer cancel()
		_, err = cl.CancelBuild(ctx, id)
	}
	if err == nil || carrel.KindOf(err) == carrel.NotFound {
		b.mu.Lock()
		k.ended = true
		b.mu.Unlock()
	}
}

// untilLost waits until a build is lost, and calls give then.
func (b *builds) untilLost(ctx context.Context, give func(), id string) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if _, gone := b.lose(id); gone {
				give()
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// spread brings templates to all nodes now, until those have started the template with an ID; "" is
// none. It closes the channel then.
func (b *builds) spread(ctx context.Context, image string) <-chan struct{} {
	ctx = carrel.WithCaller(context.WithoutCancel(ctx), carrel.Local())
	over := make(chan struct{})
	go func() {
		defer close(over)
		ctx, cancel := context.WithTimeout(ctx, adoptTime)
		defer cancel()
		b.templates.forget()
		b.templates.engine.Rebuild()
		b.templates.share(ctx, true)
		b.templates.forget()
		tick := time.NewTicker(settleWait / 4)
		defer tick.Stop()
		for image != "" && b.starts(ctx, image) {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return over
}

// starts reports whether a node runs a template's start command now, from whose end its sandboxes
// will go on.
func (b *builds) starts(ctx context.Context, image string) bool {
	ready, _ := b.nodes.ready()
	return slices.ContainsFunc(askNodes(ctx, ready, func(ctx context.Context, node string) (carrel.Template, error) {
		cl, err := b.client(ctx, node)
		if err != nil {
			return carrel.Template{}, err
		}
		return cl.GetTemplate(ctx, image)
	}), func(a answerOf[carrel.Template]) bool { return a.err == nil && a.out.Golden == "making" })
}

// within waits for a channel to be closed, at most for a time.
func within(ctx context.Context, c <-chan struct{}, wait time.Duration) bool {
	late := time.NewTimer(wait)
	defer late.Stop()
	select {
	case <-c:
		return true
	case <-late.C:
	case <-ctx.Done():
	}
	return false
}

// settle returns a build as callers see it. One that has just succeeded counts as under way until
// its template is on all nodes and started there: who hears that it is ready may create sandboxes of it anywhere.
func (b *builds) settle(ctx context.Context, build carrel.Build) carrel.Build {
	if build.State != carrel.BuildReady || time.Since(build.Ended).Abs() > freshBuild {
		return build
	}
	b.mu.Lock()
	k := b.known[build.ID]
	if k == nil || k.settled {
		b.mu.Unlock()
		return build
	}
	if k.seen.IsZero() {
		k.seen = time.Now()
		k.spread = b.spread(ctx, build.Image)
	}
	over, late := k.spread, time.Since(k.seen) > settleMost
	b.mu.Unlock()
	if within(ctx, over, settleWait) || late {
		b.mu.Lock()
		k.settled = true
		b.mu.Unlock()
		return build
	}
	build.State, build.Ended = carrel.BuildBuilding, time.Time{}
	return build
}
