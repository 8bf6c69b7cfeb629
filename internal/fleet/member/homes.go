package member

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/fleet"
)

// reconcile brings the registry and this machine in line. What is here gets its home here, unless
// it has one elsewhere: then it is released. Homes of sandboxes that ran here and are gone end.
func (m *Member) reconcile(ctx context.Context, token int64) error {
	before, err := call[fleet.MemberAnswer](ctx, m.caller, "list homes", fleet.PathHomes, "", fleet.MemberRequest{Token: token})
	if err != nil {
		return err
	}
	m.stay(before.Homes) // nothing begins to run meanwhile
	all, err := m.opts.Sandboxes.All(ctx)
	if err != nil {
		return err
	}
	here := map[carrel.ID]bool{}
	var claims []fleet.HomeMessage
	for _, l := range all {
		here[l.ID] = true
		claims = append(claims, claimOf(l, m.stayOf(l.ID)))
		if l.State == fleet.Paused {
			m.publish.add(l.ID)
		}
	}
	for chunk := range slices.Chunk(claims, fleet.MaxClaims) {
		if _, err := m.claim(ctx, token, chunk...); err != nil {
			return err
		}
	}
	var gone []carrel.ID
	for _, h := range before.Homes {
		// A paused sandbox that is not here can be had from the shared store.
		if !here[h.Sandbox] && h.State != fleet.Paused {
			gone = append(gone, h.Sandbox)
		}
	}
	return m.endAll(ctx, token, gone)
}

func (m *Member) endAll(ctx context.Context, token int64, ids []carrel.ID) error {
	for chunk := range slices.Chunk(ids, fleet.MaxClaims) {
		if err := m.end(ctx, token, chunk...); err != nil {
			return err
		}
	}
	return nil
}

// sweep ends the homes of sandboxes that ran here and are gone. A front may have claimed one when it
// had ended already. Such a home would count towards its project's quotas.
func (m *Member) sweep(ctx context.Context, token int64) error {
	before, err := call[fleet.MemberAnswer](ctx, m.caller, "list homes", fleet.PathHomes, "", fleet.MemberRequest{Token: token})
	if err != nil {
		return err
	}
	var gone []carrel.ID
	for _, h := range before.Homes {
		if h.State != fleet.Running {
			continue
		}
		// What runs here in the registry was here before: a look at the machine comes later.
		if _, found, err := m.opts.Sandboxes.Find(ctx, h.Sandbox); err == nil && !found {
			gone = append(gone, h.Sandbox)
		}
	}
	return m.endAll(ctx, token, gone)
}

// claimOf is the claim for a sandbox. Its stay must have been read before its state. If the sandbox
// began to run in between, its stay is another, and the claim changes nothing.
func claimOf(l Local, stay int64) fleet.HomeMessage {
	return fleet.HomeMessage{Sandbox: l.ID, Project: l.Project, State: l.State, Stay: stay, Load: l.Load}
}

// claim makes this node the home of its sandboxes, and releases those that live elsewhere. It
// returns the homes here.
func (m *Member) claim(ctx context.Context, token int64, claims ...fleet.HomeMessage) (mine []fleet.HomeMessage, err error) {
	a, err := call[fleet.MemberAnswer](ctx, m.caller, "claim sandboxes", fleet.PathClaim, "",
		fleet.MemberRequest{Token: token, Homes: claims})
	if err != nil {
		return nil, err
	}
	m.stay(a.Homes)
	var errs []error
	for _, h := range a.Homes {
		if h.Node == m.opts.Name && h.State == fleet.Ended {
			m.log.Warn("a sandbox was ended while this node was away", "sandbox", h.Sandbox)
			err := m.opts.Sandboxes.Release(ctx, h.Sandbox)
			if err == nil {
				err = m.end(ctx, token, h.Sandbox)
			}
			errs = append(errs, err)
			continue
		}
		if h.Node == m.opts.Name {
			mine = append(mine, h)
			continue
		}
		m.log.Warn("a sandbox lives on another node now; it is given up here", "sandbox", h.Sandbox, "node", h.Node)
		errs = append(errs, m.opts.Sandboxes.Release(ctx, h.Sandbox))
	}
	return mine, errors.Join(errs...)
}

func (m *Member) end(ctx context.Context, token int64, ids ...carrel.ID) error {
	_, err := call[fleet.MemberAnswer](ctx, m.caller, "end sandboxes", fleet.PathEnd, "", fleet.MemberRequest{Token: token, IDs: ids})
	return err
}

// follow tells the registry of each change.
func (m *Member) follow(ctx context.Context, token int64) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	err := m.opts.Sandboxes.Follow(ctx, func(id carrel.ID) {
		if err := m.tell(ctx, token, id); err != nil {
			cancel(err) // the next membership tells of everything
		}
	})
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if err == nil {
		err = errors.New("changes were missed")
	}
	return err
}

// tell tells what a sandbox does now.
func (m *Member) tell(ctx context.Context, token int64, id carrel.ID) error {
	stay := m.stayOf(id)
	l, found, err := m.opts.Sandboxes.Find(ctx, id)
	switch {
	case err != nil:
		return err
	case !found:
		m.mu.Lock()
		delete(m.stays, id)
		delete(m.packed, id)
		m.mu.Unlock()
		return m.end(ctx, token, id)
	}
	if _, err := m.claim(ctx, token, claimOf(l, stay)); err != nil {
		return err
	}
	m.publish.add(id)
	return nil
}

// publisher puts passports into the registry, until ctx ends.
func (m *Member) publisher(ctx context.Context) {
	const workers = 2
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for {
				id, ok := m.publish.take(ctx)
				if !ok {
					return
				}
				if err := m.publishOne(ctx, id); err != nil && ctx.Err() == nil {
					m.log.Warn("a sandbox can't be resumed on other nodes yet", "sandbox", id, "err", err, "hint", carrel.HintOf(err))
					time.AfterFunc(publishAgain, func() { m.publish.add(id) })
				}
				m.publish.done(id)
			}
		})
	}
	wg.Wait()
}

// publishAgain is the pause after a publication that failed.
const publishAgain = 5 * time.Second

// Publish puts a sandbox's passport into the registry now.
func (m *Member) Publish(ctx context.Context, id carrel.ID) error { return m.publishOne(ctx, id) }

func (m *Member) publishOne(ctx context.Context, id carrel.ID) error {
	token := m.member()
	if token == 0 {
		return &carrel.Error{Op: "publish sandbox", Kind: carrel.Unavailable, ID: id, Err: errNoLease}
	}
	// The stay is read before the passport is made. If the sandbox begins to run meanwhile, its stay
	// is another, and the passport is refused as one of its past.
	stay := m.stayOf(id)
	l, found, err := m.opts.Sandboxes.Find(ctx, id)
	if err != nil || !found {
		return err
	}
	if stay == 0 {
		return nil // it has no home yet: it is claimed first, and that is another turn
	}
	passport, err := m.opts.Sandboxes.Passport(ctx, id)
	if err != nil || passport == nil {
		return err
	}
	_, err = call[fleet.MemberAnswer](ctx, m.caller, "publish sandbox", fleet.PathPublish, id,
		fleet.MemberRequest{Token: token, ID: id, Stay: stay, Passport: passport, Paused: l.State == fleet.Paused})
	if errors.Is(err, fleet.ErrFenced) {
		return nil // another has it, or it runs again: that is another turn
	}
	if err == nil && l.State == fleet.Paused {
		m.mu.Lock()
		m.packed[id] = stay
		m.mu.Unlock()
	}
	return err
}

// flushAtOnce bounds the sandboxes that Flush publishes at once.
const flushAtOnce = 4

// Flush publishes what is paused here and is not published yet: this machine may stop for good. It
// returns how many could not be published before ctx ended.
func (m *Member) Flush(ctx context.Context) (left int, err error) {
	all, err := m.opts.Sandboxes.All(ctx)
	if err != nil {
		return 0, err
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	turns := make(chan struct{}, flushAtOnce)
	for _, l := range all {
		if l.State != fleet.Paused || m.isPacked(l.ID) {
			continue
		}
		turns <- struct{}{}
		wg.Go(func() {
			defer func() { <-turns }()
			err := m.tell(ctx, m.member(), l.ID) // its pause may not have been told yet
			if err == nil {
				err = m.publishOne(ctx, l.ID)
			}
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			}
		})
	}
	wg.Wait()
	return len(errs), errors.Join(errs...)
}

// isPacked reports whether the pause of a sandbox's stay here is in the registry.
func (m *Member) isPacked(id carrel.ID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	stay := m.stays[id]
	return stay != 0 && m.packed[id] == stay
}

// queue holds IDs that wait for their turn, each once. An ID that is added while it is worked on
// has another turn.
type queue struct {
	mu     sync.Mutex
	list   []carrel.ID
	queued map[carrel.ID]bool
	busy   map[carrel.ID]bool // true: again
	wake   chan struct{}
}

func newQueue() *queue {
	return &queue{queued: map[carrel.ID]bool{}, busy: map[carrel.ID]bool{}, wake: make(chan struct{}, 1)}
}

func (q *queue) add(id carrel.ID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, working := q.busy[id]; working {
		q.busy[id] = true
		return
	}
	if q.queued[id] {
		return
	}
	q.queued[id] = true
	q.list = append(q.list, id)
	q.tell()
}

func (q *queue) tell() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// take waits for an ID.
func (q *queue) take(ctx context.Context) (carrel.ID, bool) {
	for {
		q.mu.Lock()
		if len(q.list) > 0 {
			id := q.list[0]
			q.list = q.list[1:]
			delete(q.queued, id)
			q.busy[id] = false
			if len(q.list) > 0 {
				q.tell()
			}
			q.mu.Unlock()
			return id, true
		}
		q.mu.Unlock()
		select {
		case <-q.wake:
		case <-ctx.Done():
			return "", false
		}
	}
}

func (q *queue) done(id carrel.ID) {
	q.mu.Lock()
	again := q.busy[id]
	delete(q.busy, id)
	q.mu.Unlock()
	if again {
		q.add(id)
	}
}
