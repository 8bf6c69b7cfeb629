package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/fleet"
)

// Shared says where the webhooks of a fleet are kept. Any front changes them; one at a time delivers.
type Shared struct {
	Hooks fleet.Hooks
	// Seal and Open keep the webhooks' secrets from who reads the records.
	Seal func(id string, raw []byte) []byte
	Open func(id string, sealed []byte) ([]byte, error)
	// Duty is what allows to deliver; nil is a front that does not deliver, but lists and changes.
	Duty *fleet.Duty
}

// delivers reports whether webhooks are delivered here.
func (h *Hooks) delivers() bool { return h.opts.Shared == nil || h.opts.Shared.Duty != nil }

// errStale is why nothing more is written for a webhook: it was changed, or another front delivers.
var errStale = errors.New("the webhook was changed, or another front delivers now")

// sharedTime bounds a call of the fleet's records.
const sharedTime = 10 * time.Second

// sharedLog keeps a webhook's progress in the fleet's records.
type sharedLog struct {
	shared *Shared
	hook   fleet.Hook // without lines
	stale  func()     // is called when another front was faster
	lines  int        // in the records
}

// write adds lines. Those of a front that does not deliver are a change, of which the other one hears.
func (l *sharedLog) write(lines [][]byte, whole bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), sharedTime)
	defer cancel()
	var err error
	if l.shared.Duty == nil {
		err = l.shared.Hooks.ChangeHook(ctx, l.hook, lines)
	} else {
		err = l.shared.Hooks.Delivered(ctx, *l.shared.Duty, l.hook, lines, whole)
	}
	if errors.Is(err, fleet.ErrFenced) {
		l.stale()
		return fmt.Errorf("%w: %w", errStale, err)
	}
	return err
}

// may reports whether the webhook is still to be delivered by this front as it knows it. So nothing is sent
// by old settings, or by a front that stood still for long.
func (l *sharedLog) may(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, sharedTime)
	defer cancel()
	err := l.shared.Hooks.MayDeliver(ctx, *l.shared.Duty, l.hook)
	if errors.Is(err, fleet.ErrFenced) {
		l.stale()
	}
	return err
}

// unsealed reads a webhook of the fleet's records.
func (s *Shared) unsealed(f fleet.Hook) (k hook, err error) {
	raw, err := s.Open(f.ID, f.Sealed)
	if err == nil {
		err = json.Unmarshal(raw, &k)
	}
	if err == nil && (k.ID != f.ID || k.Project != f.Project) {
		err = errors.New("the record is not of the webhook that it names")
	}
	return k, err
}

func (s *Shared) sealed(k *hook) (fleet.Hook, error) {
	raw, err := json.Marshal(k)
	if err != nil {
		return fleet.Hook{}, err
	}
	return fleet.Hook{ID: k.ID, Project: k.Project, Sealed: s.Seal(k.ID, raw)}, nil
}

// take makes the runner of a webhook of the fleet's records.
func (h *Hooks) take(f fleet.Hook) (*runner, error) {
	k, err := h.opts.Shared.unsealed(f)
	if err != nil {
		return nil, err
	}
	log := &sharedLog{shared: h.opts.Shared, hook: fleet.Hook{ID: f.ID, Project: f.Project, Version: f.Version}, lines: len(f.Lines)}
	p := newProgress(k.From)
	p.shared = log
	for _, raw := range f.Lines {
		var l line
		if err := json.Unmarshal(raw, &l); err != nil {
			return nil, err
		}
		p.apply(&l)
	}
	r := newRunner(h, k, p)
	log.stale = func() { r.cancel() }
	return r, nil
}

// Sync takes over what other fronts changed: webhooks that are new, other ones, or gone.
func (h *Hooks) Sync(ctx context.Context) error {
	short, err := h.opts.Shared.Hooks.Hooks(ctx, "", false)
	if err != nil {
		return err
	}
	h.mu.Lock()
	same := len(short) == len(h.runners)
	for _, f := range short {
		r := h.runners[f.ID]
		same = same && r != nil && r.p.shared.hook.Version == f.Version && r.ctx.Err() == nil
	}
	h.mu.Unlock()
	if same {
		return nil
	}
	full, err := h.opts.Shared.Hooks.Hooks(ctx, "", true)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil
	}
	gone := h.runners
	h.runners = map[string]*runner{}
	for _, f := range full {
		if r := gone[f.ID]; r != nil && r.p.shared.hook.Version == f.Version && r.ctx.Err() == nil {
			h.runners[f.ID] = r
			delete(gone, f.ID)
			continue
		}
		if r := gone[f.ID]; r != nil {
			r.stop() // what it still wrote is not in these lines: they are read again with the next version
			delete(gone, f.ID)
		}
		r, err := h.take(f)
		if err != nil {
			h.opts.Logger.Error("a webhook can't be read and is left out", "webhook", f.ID, "err", err)
			continue
		}
		h.runners[f.ID] = r
		r.start()
	}
	for _, r := range gone {
		r.stop()
	}
	return nil
}

// view returns the webhooks of a project as they are in the fleet's records now, to look at and to
// change.
func (h *Hooks) view(ctx context.Context, project string) (ofProject, error) {
	shared := *h.opts.Shared
	shared.Duty = nil
	opts := h.opts
	opts.Shared = &shared
	one := &Hooks{opts: opts, sender: h.sender, events: h.events, ctx: h.ctx, runners: map[string]*runner{}}
	list, err := shared.Hooks.Hooks(ctx, project, true)
	if err != nil {
		return ofProject{}, err
	}
	for _, f := range list {
		r, err := one.take(f)
		if err != nil {
			return ofProject{}, &carrel.Error{Op: "read webhooks", Kind: carrel.Internal, Err: err}
		}
		r.start()
		one.runners[f.ID] = r
	}
	return ofProject{one, project}, nil
}

// viewed are the webhooks of one project of a fleet. Each call reads them anew.
type viewed struct {
	h       *Hooks
	project string
}

var _ carrel.Webhooks = viewed{}

// seen calls fn with the webhooks as they are.
func seen[T any](ctx context.Context, v viewed, fn func(ofProject) (T, error)) (T, error) {
	o, err := v.h.view(ctx, v.project)
	if err != nil {
		var none T
		return none, err
	}
	defer func() {
		for _, r := range o.runners {
			r.cancel()
		}
	}()
	return fn(o)
}

// LifecycleEvents implements carrel.Webhooks.
func (v viewed) LifecycleEvents(ctx context.Context, opts carrel.LifecycleOptions) ([]carrel.LifecycleEvent, error) {
	return v.h.events.list(ctx, v.project, opts)
}

// CreateWebhook implements carrel.Webhooks.
func (v viewed) CreateWebhook(ctx context.Context, n carrel.NewWebhook) (carrel.Webhook, error) {
	return seen(ctx, v, func(o ofProject) (carrel.Webhook, error) { return o.CreateWebhook(ctx, n) })
}

// ListWebhooks implements carrel.Webhooks.
func (v viewed) ListWebhooks(ctx context.Context) ([]carrel.Webhook, error) {
	return seen(ctx, v, func(o ofProject) ([]carrel.Webhook, error) { return o.ListWebhooks(ctx) })
}

// GetWebhook implements carrel.Webhooks.
func (v viewed) GetWebhook(ctx context.Context, id string) (carrel.Webhook, error) {
	return seen(ctx, v, func(o ofProject) (carrel.Webhook, error) { return o.GetWebhook(ctx, id) })
}

// UpdateWebhook implements carrel.Webhooks. The front that delivers hears of it within a second or two.
func (v viewed) UpdateWebhook(ctx context.Context, id string, u carrel.WebhookUpdate) (carrel.Webhook, error) {
	return seen(ctx, v, func(o ofProject) (carrel.Webhook, error) { return o.UpdateWebhook(ctx, id, u) })
}

// DeleteWebhook implements carrel.Webhooks, as UpdateWebhook.
func (v viewed) DeleteWebhook(ctx context.Context, id string) error {
	_, err := seen(ctx, v, func(o ofProject) (struct{}, error) { return struct{}{}, o.DeleteWebhook(ctx, id) })
	return err
}

// Deliveries implements carrel.Webhooks.
func (v viewed) Deliveries(ctx context.Context, id string, opts carrel.DeliveryOptions) ([]carrel.Delivery, error) {
	return seen(ctx, v, func(o ofProject) ([]carrel.Delivery, error) { return o.Deliveries(ctx, id, opts) })
}

// Replay implements carrel.Webhooks.
func (v viewed) Replay(ctx context.Context, id string, opts carrel.ReplayOptions) (carrel.Replayed, error) {
	return seen(ctx, v, func(o ofProject) (carrel.Replayed, error) { return o.Replay(ctx, id, opts) })
}

// change writes a webhook and lines of a fleet's records, both or neither. k nil changes no settings.
func (o ofProject) change(ctx context.Context, r *runner, k *hook, lines []line) error {
	f := r.p.shared.hook
	if k != nil {
		sealed, err := o.opts.Shared.sealed(k)
		if err != nil {
			return err
		}
		f.Sealed = sealed.Sealed
	}
	all, err := rawLines(lines)
	if err != nil {
		return err
	}
	return o.opts.Shared.Hooks.ChangeHook(ctx, f, all)
}

// addedSince says from which event on the types of a webhook count that it did not ask for before.
func addedSince(k, before *hook, newest int64) map[string]int64 {
	since := map[string]int64{}
	for _, kind := range k.Events {
		if n, ok := before.Since[kind]; ok {
			since[kind] = n
		}
		if !slices.Contains(before.Events, kind) {
			since[kind] = newest
		}
	}
	return since
}

// ahead are the events that a webhook asks for and that have had no attempt yet, as far as the fleet's
// records show them.
func (r *runner) ahead(ctx context.Context) ([]*item, error) {
	var out []*item
	for _, it := range r.p.waiting {
		out = append(out, it)
	}
	for at, pages := r.p.at, 0; pages < aheadPages && r.hook.Enabled; pages++ {
		page, err := r.all.opts.Store.Events(ctx, "", at, listPage)
		if err != nil || len(page) == 0 {
			return out, err
		}
		for i := range page {
			e := &page[i]
			at = e.Seq
			if r.p.waiting[e.Seq] == nil && !r.p.settled[e.Seq] && r.hook.wants(e) {
				out = append(out, &item{line: line{Seq: e.Seq, Type: lifecycleType(e), Sandbox: e.ID, Time: e.Time}})
			}
		}
	}
	return out, nil
}

// aheadPages bounds how far ahead a list of deliveries looks.
const aheadPages = 8
