package service

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/failpoint"
	"github.com/carrel-dev/carrel/internal/policy"
	"github.com/carrel-dev/carrel/internal/state"
	"github.com/carrel-dev/carrel/internal/trace"
)

const (
	opFork     = "fork sandbox"
	forksByCPU = 2 // forks at once for each processor; some wait for the disk
	// A fork reads most of its memory later, after about the time that all forks of its call need
	// to start: forkRest, and forkTime for each fork. Then the forks read one after the other, in
	// the order of their creation.
	forkRest = 2 * time.Second
	forkTime = 100 * time.Millisecond
)

// Fork implements carrel.Moments.
func (m *moments) Fork(ctx context.Context, id carrel.ID, o carrel.ForkOptions) ([]carrel.ForkResult, error) {
	if o.Count == 0 {
		o.Count = 1
	}
	if o.Count < 1 || o.Count > carrel.MaxForks {
		return nil, invalid(opFork, "count", "%d is not between 1 and %d", o.Count, carrel.MaxForks)
	}
	if err := m.rules.checkTimeout(opFork, o.Timeout); err != nil {
		return nil, err
	}
	b, err := m.table.find(opFork, id)
	if err != nil {
		return nil, err
	}
	if b.public().State == carrel.Starting {
		return nil, b.running(opFork)
	}
	if err := m.rules.mayFork(ctx, b.public().Project, o.Count); err != nil {
		return nil, err
	}
	ctx, span := m.opts.Traces.Begin(ctx, "fork", id)
	defer span.End()
	moment := trace.Mark(ctx, "snapshot")
	sr, release, err := m.forkPoint(ctx, b, o)
	moment.EndWith(err)
	if err != nil {
		return nil, err
	}
	defer release()
	_ = failpoint.Hit(pointForked)
	from, err := m.archive.open(ctx, sr.Snapshot.ID, o.FilesOnly, false)
	if err != nil {
		return nil, &carrel.Error{Op: opFork, ID: id, Kind: carrel.KindOf(err), Err: err, Hint: carrel.HintOf(err)}
	}
	defer from.release()
	if o.Count > 1 {
		from.later = forkRest + time.Duration(o.Count)*forkTime
	}
	// The checksums are read once for all forks.
	verdict := sync.OnceValue(func() error { return from.files.Verify(ctx) })
	from.verify = func(context.Context) error { return verdict() }
	return m.forks(ctx, sr, from, o)
}

// forkPoint returns the snapshot that forks start from. It is o.At if given. Otherwise a running
// sandbox is snapshotted now, and a paused sandbox gives the snapshot that it would resume from.
func (m *moments) forkPoint(ctx context.Context, b *box,
	o carrel.ForkOptions) (_ state.SnapshotRecord, release func(), err error) {
	if o.At != "" {
		return m.pastForkPoint(ctx, b, o.At)
	}
	tctx, done, err := m.table.take(ctx, opFork, b)
	if err != nil {
		return state.SnapshotRecord{}, nil, err
	}
	defer done()
	var sr state.SnapshotRecord
	if b.public().State == carrel.Paused {
		var ok bool
		if sr, ok = m.snaps.Get(b.record().Paused); !ok {
			err = &carrel.Error{Kind: carrel.NotFound, Err: errors.New("the snapshot of the paused sandbox is lost")}
		}
	} else {
		sr, err = m.snap(tctx, b, wish{cause: carrel.CauseFork, filesOnly: o.FilesOnly})
	}
	if err != nil {
		return sr, nil, b.momentError(tctx, opFork, err)
	}
	return m.holdForkPoint(b, sr)
}

// pastForkPoint returns a snapshot in the past of a sandbox. It must belong to the sandbox or to an
// ancestor.
func (m *moments) pastForkPoint(ctx context.Context, b *box, at carrel.SnapshotID) (_ state.SnapshotRecord, release func(), err error) {
	sr, err := m.archive.findSnapshot(ctx, opFork, string(at))
	if err != nil {
		return sr, nil, err
	}
	if sr.Snapshot.Sandbox != b.id && !m.snaps.IsAncestor(at, b.public().Snapshot) {
		return sr, nil, &carrel.Error{Op: opFork, Kind: carrel.Invalid, ID: b.id, Field: "at",
			Err:  fmt.Errorf("snapshot %s is a moment of sandbox %s and not in this one's past", at, sr.Snapshot.Sandbox),
			Hint: "make a new sandbox of it: carrel create --from " + string(at)}
	}
	return m.holdForkPoint(b, sr)
}

// holdForkPoint keeps the snapshot from being deleted while forks are made from it.
func (m *moments) holdForkPoint(b *box, sr state.SnapshotRecord) (state.SnapshotRecord, func(), error) {
	release, ok := m.snaps.Hold(sr.Snapshot.ID)
	if !ok {
		return sr, nil, &carrel.Error{Op: opFork, Kind: carrel.Conflict, ID: b.id, Err: errors.New("its snapshot was deleted meanwhile")}
	}
	return sr, release, nil
}

// forks makes the new sandboxes, several at once.
func (m *moments) forks(ctx context.Context, sr state.SnapshotRecord, from *origin, o carrel.ForkOptions) ([]carrel.ForkResult, error) {
	out := make([]carrel.ForkResult, o.Count)
	egress, err := compileNetwork(opFork, sr.Record.Sandbox.Network) // one for all
	if err != nil {
		return nil, err
	}
	var g errgroup.Group
	g.SetLimit(forksByCPU * runtime.NumCPU())
	for i := range out {
		g.Go(func() error {
			sb, err := m.born(ctx, sr, from, egress, o.Timeout)
			out[i] = carrel.ForkResult{Sandbox: sb, Err: err}
			return nil
		})
	}
	_ = g.Wait() // each result has its own error
	return out, nil
}

// born makes one sandbox from a snapshot. It is like its parent except for its ID and tokens.
func (m *moments) born(ctx context.Context, sr state.SnapshotRecord, from *origin, egress *policy.Policy, timeout time.Duration) (carrel.Sandbox, error) {
	if timeout == 0 && sr.Record.Sandbox.Lifecycle.OnTimeout == carrel.ActionPause {
		timeout = min(sr.Record.Timeout, m.opts.MaxTimeout)
	}
	opts := carrel.CreateOptions{
		Timeout: timeout, Limits: sr.Record.Sandbox.Limits, Metadata: sr.Record.Sandbox.Metadata,
		Network: sr.Record.Sandbox.Network, Lifecycle: sr.Record.Sandbox.Lifecycle, Tokens: sr.Record.Sandbox.Tokens,
		Insecure: sr.Record.Sandbox.AccessToken == "",
	}
	if timeout == 0 {
		opts.Timeout = m.rules.lowerTimeout(ctx, m.rules.lifetime(opts))
	}
	p, err := m.creator.planFrom(ctx, sr, opts, egress)
	if err != nil {
		return carrel.Sandbox{}, err
	}
	p.from = from.share()
	return m.creator.make(trace.Detach(ctx), p)
}

// planFrom is plan for a sandbox that is made from a snapshot. egress is compiled from the network
// of opts.
func (cr *creator) planFrom(ctx context.Context, sr state.SnapshotRecord, opts carrel.CreateOptions, egress *policy.Policy) (*plan, error) {
	if opts.Tier != "" && opts.Tier != sr.Snapshot.Tier {
		return nil, invalid(opCreate, "tier", "snapshot %s is of tier %q, not %q", sr.Snapshot.ID, sr.Snapshot.Tier, opts.Tier)
	}
	drv, root, err := cr.launcher.home(ctx, sr.Record, "")
	if err != nil {
		return nil, &carrel.Error{Op: opCreate, Kind: carrel.KindOf(err), Field: "template", Err: err, Hint: carrel.HintOf(err)}
	}
	opts.Limits = fill(opts.Limits, sr.Record.Sandbox.Limits)
	ttl := cr.rules.lifetime(opts)
	now := time.Now().UTC().Round(0)
	old := sr.Record
	sb := copySandbox(carrel.Sandbox{
		ID: carrel.NewID(), Project: old.Sandbox.Project, Template: old.Sandbox.Template,
		TemplateOf: old.Sandbox.TemplateOf, Alias: old.Sandbox.Alias, Tier: old.Sandbox.Tier,
		State:  carrel.Starting,
		Limits: opts.Limits, Metadata: opts.Metadata, Network: opts.Network, Lifecycle: opts.Lifecycle,
		Started: now, Ends: now.Add(ttl), EnvdVersion: carrel.EnvdVersion, Domain: cr.opts.Domain,
		Snapshot: sr.Snapshot.ID, Generation: 1, Tokens: opts.Tokens,
	})
	cr.giveTokens(&sb, opts)
	env := maps.Clone(old.Env)
	if env == nil {
		env = map[string]string{}
	}
	maps.Copy(env, opts.Env)
	rec := state.Record{Sandbox: sb, Env: env, User: old.User, WorkDir: old.WorkDir, Start: old.Start,
		Timeout: ttl, Born: sr.Snapshot.ID, Root: old.Root, Guest: old.Guest}
	return &plan{driver: drv, root: root, rec: rec, egress: egress, ttl: ttl}, nil
}

// planSnapshot is plan for a reference that means a snapshot.
func (cr *creator) planSnapshot(ctx context.Context, m meaning, opts carrel.CreateOptions, egress *policy.Policy) (*plan, error) {
	p, err := cr.planFrom(ctx, *m.moment, opts, egress)
	if err == nil {
		p.from, err = cr.archive.open(ctx, m.moment.Snapshot.ID, false, m.foreign)
	}
	if err != nil {
		return nil, &carrel.Error{Op: opCreate, Kind: carrel.KindOf(err), Field: "template", Err: err, Hint: carrel.HintOf(err)}
	}
	return p, nil
}
