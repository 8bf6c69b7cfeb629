package front

import (
	"context"
	"errors"
	"iter"
	"strings"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/fleet"
	"github.com/carrel-dev/carrel/internal/ledger/webhook"
	"github.com/carrel-dev/carrel/internal/settings"
	"github.com/carrel-dev/carrel/internal/version"
)

const (
	// hooksDuty is the name of the duty to collect events and to deliver them.
	hooksDuty = "webhooks"
	// dutyLife is how long a front has the duty without prolonging it, and dutyEvery how often it does.
	dutyLife  = 8 * time.Second
	dutyEvery = 2 * time.Second
	// followEvery is how often the events of other fronts are looked for.
	followEvery = time.Second
	// trimEvery is how often old events are removed, and eventsKept how old they get.
	trimEvery  = time.Hour
	eventsKept = 7 * 24 * time.Hour
)

// hooks are the webhooks of a fleet. They and the events of all nodes are in the database. Any front
// lists and changes them. One front at a time collects the events and delivers them.
type hooks struct {
	front *Front
	view  *webhook.Hooks // lists and changes
	name  string         // this front's

	mu   sync.Mutex
	wake chan struct{} // closed and made anew when there are events
}

// openHooks opens the webhooks of the fleet.
func (f *Front) openHooks() (err error) {
	f.hooks = &hooks{front: f, name: string(carrel.NewID()), wake: make(chan struct{})}
	f.hooks.view, err = webhook.Open(f.hooks.options(nil))
	if err == nil {
		f.undo.Add(func() { _ = f.hooks.view.Close() })
	}
	return err
}

// options are the options of webhooks with a duty, or without one.
func (h *hooks) options(duty *fleet.Duty) webhook.Options {
	f := h.front
	seal := sealer(derived(f.authority.Key, "carrel fleet webhooks"))
	shared := &webhook.Shared{Hooks: f.registry, Duty: duty,
		Seal: func(id string, raw []byte) []byte { return seal.Seal(nil, nil, raw, []byte(id)) },
		Open: func(id string, sealed []byte) ([]byte, error) { return seal.Open(nil, nil, sealed, []byte(id)) }}
	return webhook.Options{Shared: shared, Identity: string(derived(f.authority.Key, "carrel fleet events")), Store: f.store, Follow: h.follow,
		Template: func(ctx context.Context, id string) (carrel.Template, error) {
			return f.core.templates.get(carrel.WithCaller(ctx, carrel.Local()), id)
		},
		Redact: h.redact, Allow: f.cfg.AllowWebhooks, Version: version.Version, Logger: f.log}
}

// redact returns a function that removes the secrets of a project from texts. If the secrets can't be
// read now, all texts are removed.
func (h *hooks) redact(ctx context.Context, project string) func(string) string {
	values, err := h.front.core.vault.values(ctx, project)
	if err != nil {
		h.front.log.Warn("read the secrets that webhooks must not tell", "err", err)
		return func(string) string { return "[redacted: the secrets can't be read now]" }
	}
	hide := strings.NewReplacer(values...)
	return func(text string) string {
		text = hide.Replace(text)
		if why := settings.KnownSecret(text); why != "" {
			return "[redacted: it " + why + "]"
		}
		return text
	}
}

// follow streams the fleet's events after one, until ctx ends.
func (h *hooks) follow(ctx context.Context, after int64) iter.Seq2[carrel.Event, error] {
	return func(yield func(carrel.Event, error) bool) {
		tick := time.NewTicker(followEvery)
		defer tick.Stop()
		for {
			h.mu.Lock()
			wake := h.wake
			h.mu.Unlock()
			page, err := h.front.store.Events(ctx, "", after, maxBatch)
			if err != nil {
				yield(carrel.Event{}, err)
				return
			}
			for _, e := range page {
				if after = e.Seq; !yield(e, nil) {
					return
				}
			}
			if len(page) > 0 {
				continue
			}
			select {
			case <-wake:
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}
}

// grown tells followers that there are events.
func (h *hooks) grown() {
	h.mu.Lock()
	defer h.mu.Unlock()
	close(h.wake)
	h.wake = make(chan struct{})
}

// run takes the duty when no other front has it, until ctx ends.
func (h *hooks) run(ctx context.Context) {
	tick := time.NewTicker(dutyEvery / 2)
	defer tick.Stop()
	for ctx.Err() == nil {
		duty, err := h.front.registry.TakeDuty(ctx, hooksDuty, h.name, fleet.Duty{}, dutyLife)
		switch {
		case err == nil:
			if err := h.serve(ctx, duty); err != nil && ctx.Err() == nil {
				h.front.log.Warn("deliver to webhooks", "err", err)
			}
		case ctx.Err() == nil && !errors.Is(err, fleet.ErrHeld):
			h.front.log.Warn("take the duty of webhooks", "err", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// serve collects and delivers as long as this front has the duty.
func (h *hooks) serve(ctx context.Context, duty fleet.Duty) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// What may be done only by its holder ends in time also when the database does not answer.
	end := time.AfterFunc(time.Until(duty.Until), cancel)
	defer end.Stop()
	active, err := webhook.Open(h.options(&duty))
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, active.Halt)()
	collects := newCollector(h.front, &duty, h.grown)
	var work sync.WaitGroup
	work.Go(func() { collects.run(ctx, cancel) })
	work.Go(func() { h.trim(ctx) })
	err = h.keep(ctx, duty, end, active)
	cancel()
	work.Wait()
	err = errors.Join(err, active.Close())
	leave, done := context.WithTimeout(context.WithoutCancel(ctx), stateTime)
	defer done()
	if lerr := h.front.registry.LeaveDuty(leave, duty); lerr != nil && !errors.Is(lerr, fleet.ErrFenced) {
		err = errors.Join(err, lerr)
	}
	return err
}

// keep prolongs the duty and takes over changes of webhooks, until ctx ends or another front has it.
func (h *hooks) keep(ctx context.Context, duty fleet.Duty, end *time.Timer, active *webhook.Hooks) error {
	look, renew := time.NewTicker(followEvery), time.NewTicker(dutyEvery)
	defer look.Stop()
	defer renew.Stop()
	for {
		if err := active.Sync(ctx); err != nil && ctx.Err() == nil {
			h.front.log.Warn("read webhooks", "err", err)
		}
		select {
		case <-look.C:
		case <-renew.C:
			next, err := h.front.registry.TakeDuty(ctx, hooksDuty, h.name, duty, dutyLife)
			switch {
			case errors.Is(err, fleet.ErrFenced):
				return err
			case err == nil:
				end.Reset(time.Until(next.Until))
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// trim removes old events until ctx ends.
func (h *hooks) trim(ctx context.Context) {
	tick := time.NewTicker(trimEvery)
	defer tick.Stop()
	for {
		if err := h.front.store.TrimEvents(ctx, time.Now().Add(-eventsKept)); err != nil && ctx.Err() == nil {
			h.front.log.Warn("remove old events", "err", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
