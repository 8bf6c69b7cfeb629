package webhook

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/atomicfile"
	"github.com/carrel-dev/carrel/internal/state"
)

// Bounds of webhooks.
const (
	maxPerProject = 20
	maxAll        = 200
	maxName       = 128
	maxSecret     = 512
	maxReplay     = 10_000
	allAtOnce     = 64 // attempts of all webhooks
	projectAtOnce = 8  // attempts of one project's
)

// Options configures [Open]. Dir, Store and Follow are required.
type Options struct {
	// Dir is a directory of the webhooks' own.
	Dir string
	// Shared keeps the webhooks of a fleet; they have no directory then. Sync takes them over.
	Shared *Shared
	// Identity is the identity of the data directory, part of all events' IDs.
	Identity string
	// Store has the events.
	Store state.Store
	// Follow streams all events after a number. See [carrel.Sandboxes].
	Follow func(ctx context.Context, after int64) iter.Seq2[carrel.Event, error]
	// Template returns a template, for the ID of its build. nil knows none.
	Template func(ctx context.Context, id string) (carrel.Template, error)
	// Redact returns a function that removes secrets from a project's texts. nil removes none.
	Redact func(ctx context.Context, project string) func(text string) string
	// Allow are hosts that may have any address: HOST, HOST:PORT or http://HOST:PORT.
	Allow []string
	// Version is the program's, for the header User-Agent.
	Version string
	Retry   Retry
	Timeout time.Duration // of one attempt; 0 is 15 seconds
	// Resolve, Dial and RootCAs replace the machine's.
	Resolve func(ctx context.Context, host string) ([]netip.Addr, error)
	Dial    func(ctx context.Context, network, address string) (net.Conn, error)
	RootCAs *x509.CertPool
	Logger  *slog.Logger
}

// Hooks are the webhooks of all projects. It is safe for concurrent use. Close ends it.
type Hooks struct {
	opts   Options
	sender *sender
	events *events
	ctx    context.Context
	cancel context.CancelFunc
	turns  chan struct{}
	// taken and failed count attempts.
	taken, failed atomic.Uint64

	mu      sync.Mutex // held while a runner stops, so no runner may take it
	runners map[string]*runner
	closed  bool

	sharesMu sync.Mutex
	shares   map[string]chan struct{} // turns of each project
}

// Open opens the webhooks in a directory and begins to deliver.
func Open(opts Options) (*Hooks, error) {
	const op = "open webhooks"
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	opts.Retry.First = cmp.Or(opts.Retry.First, 5*time.Second)
	opts.Retry.Longest = cmp.Or(opts.Retry.Longest, time.Hour)
	opts.Retry.For = cmp.Or(opts.Retry.For, 24*time.Hour)
	internal := func(err error) error { return &carrel.Error{Op: op, Kind: carrel.Internal, Err: err} }
	s, err := newSender(&opts)
	if err != nil {
		return nil, internal(err)
	}
	h := &Hooks{opts: opts, sender: s, turns: make(chan struct{}, allAtOnce),
		runners: map[string]*runner{}, shares: map[string]chan struct{}{}}
	h.events = &events{store: opts.Store, build: builds(opts.Template), redact: opts.Redact, print: printOf(opts.Identity)}
	if h.events.redact == nil {
		h.events.redact = func(context.Context, string) func(string) string { return func(text string) string { return text } }
	}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	if opts.Shared != nil {
		return h, nil
	}
	if err := os.MkdirAll(opts.Dir, 0o700); err != nil {
		return nil, internal(err)
	}
	names, err := filepath.Glob(filepath.Join(opts.Dir, "*.json"))
	if err != nil {
		return nil, internal(err)
	}
	for _, name := range names {
		if err := h.load(name); err != nil {
			opts.Logger.Error("a webhook can't be read and is left out", "file", name, "err", err)
		}
	}
	for _, r := range h.runners {
		r.start()
	}
	return h, nil
}

// load reads one webhook.
func (h *Hooks) load(name string) error {
	raw, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	var k hook
	if err := json.Unmarshal(raw, &k); err != nil {
		return err
	}
	if k.ID == "" || filepath.Base(name) != k.ID+".json" {
		return errors.New("the file is not of the webhook that it names")
	}
	p, err := openProgress(progressName(h.opts.Dir, k.ID), k.From)
	if err != nil {
		return err
	}
	h.runners[k.ID] = newRunner(h, k, p)
	return nil
}

// builds returns a function for the ID of a template's build. What it found it keeps, because the
// template may be deleted before the event is sent again.
func builds(template func(context.Context, string) (carrel.Template, error)) func(context.Context, string) string {
	var mu sync.Mutex
	known := map[string]string{}
	return func(ctx context.Context, id string) string {
		mu.Lock()
		defer mu.Unlock()
		if b, ok := known[id]; ok {
			return b
		}
		if template != nil {
			if t, err := template(ctx, id); err == nil {
				if len(known) > 10_000 {
					clear(known)
				}
				known[id] = t.BuildID()
				return known[id]
			}
		}
		return carrel.UUID([]byte("build\x00" + id))
	}
}

// Halt stops all deliveries, and does not wait for them.
func (h *Hooks) Halt() { h.cancel() }

// Close stops all deliveries and waits for them.
func (h *Hooks) Close() error {
	h.mu.Lock()
	h.closed = true
	runners := h.runners
	h.runners = map[string]*runner{}
	h.mu.Unlock()
	h.cancel()
	var errs []error
	away := false // the fleet's records: what is not written is found again
	for _, r := range runners {
		r.stop()
		r.mu.Lock()
		if !away {
			err := r.keep(false, line{Kind: lineAt, Seq: r.position()})
			away = err != nil && h.opts.Shared != nil
		}
		errs = append(errs, r.p.close())
		r.mu.Unlock()
	}
	h.sender.close()
	return errors.Join(errs...)
}

// Needed returns a number: some webhook still has to read the events after it.
func (h *Hooks) Needed() int64 {
	least := int64(1<<63 - 1)
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range h.runners {
		r.mu.Lock()
		if r.hook.Enabled {
			least = min(least, r.position())
		}
		r.mu.Unlock()
	}
	return least
}

// Figures are counts of all webhooks, for metrics.
type Figures struct {
	Enabled       int
	Waiting       int // deliveries that wait in memory
	Dead          int // deliveries that were given up
	Taken, Failed uint64
}

// Figures counts.
func (h *Hooks) Figures() Figures {
	f := Figures{Taken: h.taken.Load(), Failed: h.failed.Load()}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range h.runners {
		r.mu.Lock()
		if r.hook.Enabled {
			f.Enabled++
		}
		f.Waiting += len(r.open)
		f.Dead += len(r.p.dead)
		r.mu.Unlock()
	}
	return f
}

// turn runs an attempt when its webhook, its project and the whole have room for it.
func (h *Hooks) turn(ctx context.Context, own chan struct{}, project string, attempt func() bool) (settled, ok bool) {
	h.sharesMu.Lock()
	share := h.shares[project]
	if share == nil {
		share = make(chan struct{}, projectAtOnce)
		h.shares[project] = share
	}
	h.sharesMu.Unlock()
	for _, c := range []chan struct{}{own, share, h.turns} {
		select {
		case c <- struct{}{}:
			defer func() { <-c }()
		case <-ctx.Done():
			return false, false
		}
	}
	return attempt(), true
}

// newID returns a random ID.
func newID() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails
	return carrel.UUID(b)
}

// For returns the webhooks of one project.
func (h *Hooks) For(project string) carrel.Webhooks {
	if h.opts.Shared != nil {
		return viewed{h, project}
	}
	return ofProject{h, project}
}

// ofProject is the webhooks of one project.
type ofProject struct {
	*Hooks
	project string
}

var _ carrel.Webhooks = ofProject{}

// LifecycleEvents implements carrel.Webhooks.
func (o ofProject) LifecycleEvents(ctx context.Context, opts carrel.LifecycleOptions) ([]carrel.LifecycleEvent, error) {
	return o.events.list(ctx, o.project, opts)
}

// find finds a webhook of the project. The caller holds mu.
func (o ofProject) find(op, id string) (*runner, error) {
	if o.closed {
		return nil, &carrel.Error{Op: op, Kind: carrel.Unavailable, Err: errors.New("the daemon is stopping")}
	}
	r := o.runners[id]
	if r == nil || r.hook.Project != o.project {
		return nil, &carrel.Error{Op: op, Kind: carrel.NotFound, Err: fmt.Errorf("no webhook %.80q", id),
			Hint: "carrel webhook list shows the webhooks of the project"}
	}
	return r, nil
}

// validate checks what a caller says about a webhook.
func (o ofProject) validate(op string, k *hook) error {
	bad := func(field, form string, args ...any) error {
		return &carrel.Error{Op: op, Kind: carrel.Invalid, Field: field, Err: fmt.Errorf(form, args...)}
	}
	switch {
	case k.Name == "":
		return bad("name", "missing")
	case !utf8.ValidString(k.Name) || len(k.Name) > maxName:
		return bad("name", "it is not text of at most %d bytes", maxName)
	case strings.ContainsFunc(k.Name, func(c rune) bool { return !unicode.IsPrint(c) }):
		return bad("name", "%q has a character that can't be printed", k.Name)
	case len(k.Secret) > maxSecret:
		return bad("signatureSecret", "it is longer than %d bytes", maxSecret)
	case len(k.Events) == 0:
		return bad("events", "missing: at least one of %s", strings.Join(carrel.LifecycleTypes(), ", "))
	}
	if err := checkTypes(op, "events", k.Events); err != nil {
		return err
	}
	slices.Sort(k.Events)
	k.Events = slices.Compact(k.Events)
	return o.sender.check(op, k.URL)
}

// newest is the number of the newest event.
func (o ofProject) newest(ctx context.Context) (int64, error) {
	page, err := o.opts.Store.EventsBefore(ctx, "", 0, 1)
	if err != nil || len(page) == 0 {
		return 0, err
	}
	return page[0].Seq, nil
}

// write writes a webhook's file.
func (o ofProject) write(op string, k *hook) error {
	raw, err := json.Marshal(k)
	if err == nil {
		err = atomicfile.Write(hookName(o.opts.Dir, k.ID), raw, 0o600)
	}
	if err != nil {
		return &carrel.Error{Op: op, Kind: carrel.Internal, Err: err}
	}
	return nil
}

// CreateWebhook implements carrel.Webhooks.
func (o ofProject) CreateWebhook(ctx context.Context, n carrel.NewWebhook) (carrel.Webhook, error) {
	const op = "create webhook"
	k := hook{ID: newID(), Project: o.project, Name: n.Name, Created: time.Now().UTC().Round(0), URL: n.URL,
		Enabled: n.Enabled == nil || *n.Enabled, Events: slices.Clone(n.Events), Secret: n.Secret}
	if err := o.validate(op, &k); err != nil {
		return carrel.Webhook{}, err
	}
	out := k.public()
	if k.Secret == "" {
		b := make([]byte, 32)
		_, _ = rand.Read(b) // never fails
		k.Secret = hex.EncodeToString(b)
		out.Secret = k.Secret
	}
	var err error
	if k.From, err = o.newest(ctx); err != nil {
		return carrel.Webhook{}, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return carrel.Webhook{}, &carrel.Error{Op: op, Kind: carrel.Unavailable, Err: errors.New("the daemon is stopping")}
	}
	own := 0
	for _, r := range o.runners {
		if r.hook.Project == o.project {
			own++
		}
	}
	if own >= maxPerProject || len(o.runners) >= maxAll {
		return carrel.Webhook{}, &carrel.Error{Op: op, Kind: carrel.Exhausted, Field: "webhooks",
			Err:  fmt.Errorf("the project has %d webhooks of at most %d, and all projects have %d of at most %d", own, maxPerProject, len(o.runners), maxAll),
			Hint: "carrel webhook rm removes one"}
	}
	if s := o.opts.Shared; s != nil {
		f, err := s.sealed(&k)
		if err == nil {
			err = s.Hooks.AddHook(ctx, f, maxPerProject, maxAll)
		}
		return out, err
	}
	p, err := openProgress(progressName(o.opts.Dir, k.ID), k.From)
	if err != nil {
		return carrel.Webhook{}, &carrel.Error{Op: op, Kind: carrel.Internal, Err: err}
	}
	if err := o.write(op, &k); err != nil {
		return carrel.Webhook{}, errors.Join(err, p.close(), os.Remove(p.name))
	}
	r := newRunner(o.Hooks, k, p)
	o.runners[k.ID] = r
	r.start()
	return out, nil
}

// ListWebhooks implements carrel.Webhooks. The oldest comes first.
func (o ofProject) ListWebhooks(context.Context) ([]carrel.Webhook, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := []carrel.Webhook{}
	for _, r := range o.runners {
		if r.hook.Project == o.project {
			out = append(out, r.hook.public())
		}
	}
	slices.SortFunc(out, func(a, b carrel.Webhook) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	return out, nil
}

// GetWebhook implements carrel.Webhooks.
func (o ofProject) GetWebhook(_ context.Context, id string) (carrel.Webhook, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r, err := o.find("get webhook", id)
	if err != nil {
		return carrel.Webhook{}, err
	}
	return r.hook.public(), nil
}

// UpdateWebhook implements carrel.Webhooks.
func (o ofProject) UpdateWebhook(ctx context.Context, id string, u carrel.WebhookUpdate) (carrel.Webhook, error) {
	const op = "update webhook"
	newest, err := o.newest(ctx)
	if err != nil {
		return carrel.Webhook{}, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	r, err := o.find(op, id)
	if err != nil {
		return carrel.Webhook{}, err
	}
	k := r.hook
	set(&k.Name, u.Name)
	set(&k.URL, u.URL)
	set(&k.Enabled, u.Enabled)
	if u.Events != nil {
		k.Events = slices.Clone(*u.Events)
	}
	if u.Secret != nil {
		if k.Secret = *u.Secret; k.Secret == "" {
			return carrel.Webhook{}, &carrel.Error{Op: op, Kind: carrel.Invalid, Field: "signatureSecret", Err: errors.New("it is empty")}
		}
	}
	if err := o.validate(op, &k); err != nil {
		return carrel.Webhook{}, err
	}
	r.stop() // so that nothing is sent by the old settings once this has returned
	defer r.start()
	switched := k.Enabled != r.hook.Enabled
	if switched {
		k.From = newest
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	lines := []line{{Kind: lineAt, Seq: r.position()}} // events of new types count from now on
	if switched {                                      // what waited is dropped, and so is what happened while it was disabled
		lines = append(lines, line{Kind: lineAt, Seq: newest})
		for seq := range r.p.waiting {
			lines = append(lines, line{Kind: lineDropped, Seq: seq})
		}
	}
	if o.opts.Shared != nil {
		k.Since = addedSince(&k, &r.hook, newest)
		return k.public(), o.change(ctx, r, &k, lines)
	}
	if err := o.write(op, &k); err != nil {
		return carrel.Webhook{}, err
	}
	r.hook = k
	_ = r.keep(true, lines...)
	if switched {
		clear(r.open)
	}
	return k.public(), nil
}

func set[T any](to *T, from *T) {
	if from != nil {
		*to = *from
	}
}

// DeleteWebhook implements carrel.Webhooks.
func (o ofProject) DeleteWebhook(ctx context.Context, id string) error {
	const op = "delete webhook"
	o.mu.Lock()
	defer o.mu.Unlock()
	r, err := o.find(op, id)
	if err != nil {
		return err
	}
	if s := o.opts.Shared; s != nil {
		return s.Hooks.DropHook(ctx, id)
	}
	if err := os.Remove(hookName(o.opts.Dir, id)); err != nil {
		return &carrel.Error{Op: op, Kind: carrel.Internal, Err: err}
	}
	delete(o.runners, id)
	r.stop()
	return errors.Join(atomicfile.SyncDir(o.opts.Dir), r.p.close(), os.Remove(r.p.name))
}

// Deliveries implements carrel.Webhooks.
func (o ofProject) Deliveries(ctx context.Context, id string, opts carrel.DeliveryOptions) ([]carrel.Delivery, error) {
	const op = "list deliveries"
	states := []string{"", carrel.DeliveryPending, carrel.DeliveryDone, carrel.DeliveryDead}
	if !slices.Contains(states, opts.State) {
		return nil, &carrel.Error{Op: op, Kind: carrel.Invalid, Field: "state",
			Err: fmt.Errorf("%.80q is none of %s", opts.State, strings.Join(states[1:], ", "))}
	}
	if opts.Limit = cmp.Or(opts.Limit, 100); opts.Limit < 1 || opts.Limit > 1000 {
		return nil, &carrel.Error{Op: op, Kind: carrel.Invalid, Field: "limit", Err: fmt.Errorf("%d is not between 1 and 1000", opts.Limit)}
	}
	o.mu.Lock()
	r, err := o.find(op, id)
	o.mu.Unlock()
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	all := slices.Clone(r.p.recent)
	for _, it := range r.p.dead {
		all = append(all, it)
	}
	for _, lane := range r.lanes {
		all = append(all, lane...)
	}
	if !o.delivers() {
		ahead, err := r.ahead(ctx)
		if err != nil {
			return nil, err
		}
		all = append(all, ahead...)
	}
	slices.SortFunc(all, func(a, b *item) int { return cmp.Compare(b.Seq, a.Seq) })
	out := []carrel.Delivery{}
	for _, it := range all {
		d := it.delivery(o.events)
		if opts.State != "" && d.State != opts.State {
			continue
		}
		if out = append(out, d); len(out) == opts.Limit {
			break
		}
	}
	return out, nil
}

// Replay implements carrel.Webhooks.
func (o ofProject) Replay(ctx context.Context, id string, opts carrel.ReplayOptions) (carrel.Replayed, error) {
	const op = "replay deliveries"
	o.mu.Lock()
	defer o.mu.Unlock()
	r, err := o.find(op, id)
	if err != nil {
		return carrel.Replayed{}, err
	}
	if !r.hook.Enabled {
		return carrel.Replayed{}, &carrel.Error{Op: op, Kind: carrel.Conflict, Err: errors.New("the webhook is disabled"),
			Hint: "enable it first: carrel webhook update " + id + " --enabled"}
	}
	lines, err := o.chosen(ctx, op, r, opts)
	if err != nil {
		return carrel.Replayed{}, err
	}
	r.stop()
	defer r.start()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(lines)+len(r.p.waiting) > maxReplay {
		return carrel.Replayed{}, &carrel.Error{Op: op, Kind: carrel.Exhausted, Field: "events",
			Err:  fmt.Errorf("%d events, and %d wait; at most %d may", len(lines), len(r.p.waiting), maxReplay),
			Hint: "replay fewer, or wait until they are delivered"}
	}
	if o.opts.Shared != nil {
		return carrel.Replayed{Events: len(lines)}, o.change(ctx, r, nil, lines)
	}
	_ = r.keep(true, lines...)
	return carrel.Replayed{Events: len(lines)}, nil
}

// chosen are the events that a replay asks for, as lines.
func (o ofProject) chosen(ctx context.Context, op string, r *runner, opts carrel.ReplayOptions) ([]line, error) {
	fields := 0
	for _, there := range []bool{len(opts.Events) > 0, opts.Dead, !opts.Since.IsZero()} {
		if there {
			fields++
		}
	}
	if fields != 1 || len(opts.Events) > maxReplay {
		return nil, &carrel.Error{Op: op, Kind: carrel.Invalid, Field: "events",
			Err: fmt.Errorf("exactly one of events (at most %d), dead and since must be given", maxReplay)}
	}
	now := time.Now().UTC()
	again := func(e *carrel.Event) line {
		return line{Kind: lineReplay, Seq: e.Seq, Type: lifecycleType(e), Sandbox: e.ID, Time: e.Time, Since: now}
	}
	var out []line
	for _, id := range opts.Events {
		seq, ok := o.events.seq(id)
		page := []carrel.Event{}
		if ok {
			var err error
			if page, err = o.opts.Store.Events(ctx, "", seq-1, 1); err != nil {
				return nil, err
			}
		}
		if len(page) == 0 || page[0].Seq != seq || page[0].Project != o.project || lifecycleType(&page[0]) == "" {
			return nil, &carrel.Error{Op: op, Kind: carrel.NotFound, Field: "events", Err: fmt.Errorf("no event %.80q is kept", id),
				Hint: "carrel webhook deliveries lists the events; they are kept for a week"}
		}
		out = append(out, again(&page[0]))
	}
	if opts.Dead {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, it := range r.p.dead {
			out = append(out, line{Kind: lineReplay, Seq: it.Seq, Type: it.Type, Sandbox: it.Sandbox, Time: it.Time, Since: now})
		}
		return out, nil
	}
	for at := int64(0); !opts.Since.IsZero(); {
		page, err := o.opts.Store.EventsBefore(ctx, "", at, listPage)
		if err != nil {
			return nil, err
		}
		for i := range page {
			e := &page[i]
			at = e.Seq
			if !e.Time.Before(opts.Since) && e.Project == o.project && slices.Contains(r.hook.Events, lifecycleType(e)) {
				out = append(out, again(e))
			}
		}
		if len(page) == 0 || page[len(page)-1].Time.Before(opts.Since) || len(out) > maxReplay {
			break
		}
	}
	return out, nil
}
