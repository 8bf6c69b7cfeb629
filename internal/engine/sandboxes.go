package engine

import (
	"context"
	"iter"
	"time"

	"github.com/carrel-dev/carrel"
)

// Get implements carrel.Sandboxes.
func (e *Engine) Get(ctx context.Context, id carrel.ID) (carrel.Sandbox, error) {
	return sandboxOn(ctx, e, "get sandbox", id, e.opts.CallWithin,
		func(ctx context.Context, r Remote) (carrel.Sandbox, error) { return r.Get(ctx, id) })
}

// Kill implements carrel.Sandboxes.
func (e *Engine) Kill(ctx context.Context, id carrel.ID) error {
	const op = "kill sandbox"
	_, err := on(ctx, e, op, id, 0, func(ctx context.Context, m *member, r Remote) (struct{}, error) {
		err := r.Kill(ctx, id)
		if err == nil {
			e.dir.end(id, m.name)
		}
		return struct{}{}, err
	})
	return err
}

// SetTimeout implements carrel.Sandboxes.
func (e *Engine) SetTimeout(ctx context.Context, id carrel.ID, d time.Duration, extendOnly bool) (carrel.Sandbox, error) {
	return sandboxOn(ctx, e, "set timeout", id, e.opts.CallWithin,
		func(ctx context.Context, r Remote) (carrel.Sandbox, error) {
			return r.SetTimeout(ctx, id, d, extendOnly)
		})
}

// SetMetadata implements carrel.Sandboxes.
func (e *Engine) SetMetadata(ctx context.Context, id carrel.ID, c carrel.MetadataChange) (carrel.Sandbox, error) {
	return sandboxOn(ctx, e, "set metadata", id, e.opts.CallWithin,
		func(ctx context.Context, r Remote) (carrel.Sandbox, error) { return r.SetMetadata(ctx, id, c) })
}

// SetNetwork implements carrel.Sandboxes.
func (e *Engine) SetNetwork(ctx context.Context, id carrel.ID, n carrel.Network) (carrel.Sandbox, error) {
	return sandboxOn(ctx, e, "set network", id, e.opts.CallWithin,
		func(ctx context.Context, r Remote) (carrel.Sandbox, error) { return r.SetNetwork(ctx, id, n) })
}

// Computer implements carrel.Sandboxes. Its connections go to the sandbox's node. When that node is
// away they break, and the next call looks for the sandbox again.
func (e *Engine) Computer(ctx context.Context, id carrel.ID) (carrel.Computer, error) {
	return on(ctx, e, "open computer", id, e.opts.CallWithin,
		func(ctx context.Context, _ *member, r Remote) (carrel.Computer, error) { return r.Computer(ctx, id) })
}

// Metrics implements carrel.Sandboxes.
func (e *Engine) Metrics(ctx context.Context, id carrel.ID, from, to time.Time) ([]carrel.Metric, error) {
	return on(ctx, e, "read metrics", id, e.opts.CallWithin,
		func(ctx context.Context, _ *member, r Remote) ([]carrel.Metric, error) {
			return r.Metrics(ctx, id, from, to)
		})
}

// Logs implements carrel.Sandboxes.
func (e *Engine) Logs(ctx context.Context, id carrel.ID, opts carrel.LogOptions) ([]carrel.LogEntry, error) {
	return on(ctx, e, "read logs", id, e.opts.CallWithin,
		func(ctx context.Context, _ *member, r Remote) ([]carrel.LogEntry, error) {
			return r.Logs(ctx, id, opts)
		})
}

// Traces implements carrel.Tracer.
func (e *Engine) Traces(ctx context.Context, id carrel.ID) ([]carrel.Trace, error) {
	return on(ctx, e, "read traces", id, e.opts.CallWithin,
		func(ctx context.Context, _ *member, r Remote) ([]carrel.Trace, error) { return r.Traces(ctx, id) })
}

// Provide implements carrel.Programs.
func (e *Engine) Provide(ctx context.Context, id carrel.ID, programs ...carrel.Program) (func(), error) {
	const op = "provide programs"
	m, err := e.locate(ctx, op, id)
	if err != nil {
		return nil, err
	}
	project, err := projectOf(ctx, op)
	if err != nil {
		return nil, err
	}
	alive, why := m.state()
	if why != nil {
		return nil, unavailable(op, id, m.name, why)
	}
	r, err := m.remote(project)
	if err != nil {
		return nil, err
	}
	release, err := r.Provide(ctx, id, programs...) // the programs live as long as ctx
	return release, m.explain(ctx, alive, op, id, err)
}

// Pool implements carrel.Pools: the pools of all nodes that answer, added up.
func (e *Engine) Pool(ctx context.Context) (carrel.PoolStatus, error) {
	const op = "look at the pool"
	var sum carrel.PoolStatus
	kinds := map[poolKind]int{}
	var last error
	heard := false
	for _, a := range askAll(ctx, e.all(), op, "", e.opts.AskWithin,
		func(ctx context.Context, _ *member, r Remote) (carrel.PoolStatus, error) { return r.Pool(ctx) }) {
		if a.err != nil {
			last = a.err
			continue
		}
		heard = true
		addPool(&sum, a.out, kinds)
	}
	if !heard && last != nil {
		return carrel.PoolStatus{}, last
	}
	return sum, nil
}

// poolKind tells kinds of warm sandboxes apart.
type poolKind struct {
	template string
	tier     carrel.Tier
	limits   carrel.Limits
	golden   bool
}

// addPool adds a node's pool. at says where the sum has a kind.
func addPool(sum *carrel.PoolStatus, p carrel.PoolStatus, at map[poolKind]int) {
	sum.Cap += p.Cap
	sum.Ready += p.Ready
	sum.Making += p.Making
	sum.Hits += p.Hits
	sum.Misses += p.Misses
	sum.Lost += p.Lost
	if sum.Memory == "" || p.Memory == "shrink" || p.Memory == "hold" && sum.Memory == "grow" {
		sum.Memory = p.Memory
	}
	if sum.Problem == "" {
		sum.Problem = p.Problem
	}
	sum.Gate.Limit += p.Gate.Limit
	sum.Gate.Starting += p.Gate.Starting
	sum.Gate.Waiting += p.Gate.Waiting
	sum.Gate.Refused += p.Gate.Refused
	if b := p.Blanks; b != nil {
		if sum.Blanks == nil {
			sum.Blanks = &carrel.BlankSentries{}
		}
		s := sum.Blanks
		s.Keep, s.Ready, s.Taken = s.Keep+b.Keep, s.Ready+b.Ready, s.Taken+b.Taken
		s.Missed, s.Failed = s.Missed+b.Missed, s.Failed+b.Failed
	}
	for _, k := range p.Kinds {
		key := poolKind{k.Template, k.Tier, k.Limits, k.Golden}
		i, ok := at[key]
		if !ok {
			at[key] = len(sum.Kinds)
			sum.Kinds = append(sum.Kinds, k)
			continue
		}
		s := &sum.Kinds[i]
		s.Ready, s.Making, s.Target, s.Floor = s.Ready+k.Ready, s.Making+k.Making, s.Target+k.Target, s.Floor+k.Floor
		s.Hits, s.Misses = s.Hits+k.Hits, s.Misses+k.Misses
	}
}

// Events implements carrel.Sandboxes. The events of each sandbox are in order. Their Seq is a
// number of this engine's alone, so no stream can go on after one: see [Engine.Follow].
func (e *Engine) Events(ctx context.Context, after int64) iter.Seq2[carrel.Event, error] {
	return func(yield func(carrel.Event, error) bool) {
		if after != 0 {
			yield(carrel.Event{}, unsupported("read events",
				"common numbers of events, after which a stream could go on"))
			return
		}
		for ev, err := range e.Follow(ctx, "") {
			ev.Seq = e.events.Add(1)
			if !yield(ev.Event, err) {
				return
			}
		}
	}
}
