package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
)

// searches are the questions to all nodes for one sandbox.
type searches struct {
	turn chan struct{}

	mu     sync.Mutex
	absent map[missing]time.Time // until when it is known that no node has it
}

// missing is a sandbox that a project asked for; "" is an administrator.
type missing struct {
	project string
	id      carrel.ID
}

const (
	// searchesAtOnce bounds how many searches ask all nodes at once. Each unknown ID is one.
	searchesAtOnce = 16
	maxAbsent      = 10_000
)

func newSearches() searches {
	return searches{turn: make(chan struct{}, searchesAtOnce), absent: map[missing]time.Time{}}
}

// knows reports whether it is known that no node has it.
func (s *searches) knows(m missing) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	until, ok := s.absent[m]
	if ok && time.Now().After(until) {
		delete(s.absent, m)
		return false
	}
	return ok
}

// note remembers that no node has it.
func (s *searches) note(m missing, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.absent) >= maxAbsent {
		clear(s.absent) // they are remembered for seconds only
	}
	s.absent[m] = until
}

// forget is called for a sandbox that appeared.
func (s *searches) forget(id carrel.ID, project string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.absent, missing{project, id})
	delete(s.absent, missing{"", id})
}

// locate returns the node of a sandbox. It asks all nodes if the directory does not know it.
func (e *Engine) locate(ctx context.Context, op string, id carrel.ID) (*member, error) {
	if _, err := carrel.ParseID(string(id)); err != nil {
		return nil, &carrel.Error{Op: op, Kind: carrel.NotFound, ID: id, Hint: carrel.HintOf(err)}
	}
	project, err := projectOf(ctx, op)
	if err != nil {
		return nil, err
	}
	if e.opts.Owners != nil {
		name, known, err := e.opts.Owners.Owner(ctx, id)
		if err != nil {
			return nil, err
		}
		if known {
			if m := e.meet(ctx, name); m != nil {
				return m, nil
			}
			return nil, unavailable(op, id, name, errLeft)
		}
	}
	if at, ok := e.dir.find(id); ok {
		switch {
		case project != "" && at.project != project:
			return nil, noSandbox(op, id, nil)
		case at.rival != "":
			return nil, disputed(op, id, claimed{at.node, at.rival})
		}
		if m := e.member(at.node); m != nil {
			return m, nil
		}
	}
	return e.search(ctx, op, id, project, nil)
}

// search asks all nodes but one for a sandbox.
func (e *Engine) search(ctx context.Context, op string, id carrel.ID, project string,
	but *member) (*member, error) {
	key := missing{project, id}
	if e.searches.knows(key) {
		return nil, noSandbox(op, id, nil)
	}
	select {
	case e.searches.turn <- struct{}{}:
		defer func() { <-e.searches.turn }()
	case <-ctx.Done():
		return nil, &carrel.Error{Op: op, Kind: carrel.Unavailable, ID: id, Err: context.Cause(ctx)}
	}
	if e.searches.knows(key) { // another search ended meanwhile
		return nil, noSandbox(op, id, nil)
	}
	var ask []*member
	for _, m := range e.all() {
		if m != but {
			ask = append(ask, m)
		}
	}
	if len(ask) == 0 && but == nil {
		return nil, &carrel.Error{Op: op, Kind: carrel.Unavailable, ID: id, Err: errNoNodes}
	}
	var silent []string
	var found []*member
	for _, a := range askAll(ctx, ask, op, id, e.opts.AskWithin,
		func(ctx context.Context, m *member, r Remote) (carrel.Sandbox, error) {
			sb, err := r.Get(ctx, id)
			return sb, cmpErr(err, func() error { return m.verify(op, id, project, sb) })
		}) {
		switch {
		case a.err == nil:
			if err := e.dir.claim(id, a.m.name, a.out.Project, false); err == nil {
				found = append(found, a.m)
			} else if at, ok := e.dir.find(id); ok && at.rival != "" {
				return nil, disputed(op, id, err)
			}
		case !definite(a.err):
			silent = append(silent, a.m.name)
		}
	}
	switch {
	case len(found) > 0:
		return found[0], nil
	case ctx.Err() != nil:
		return nil, &carrel.Error{Op: op, Kind: carrel.Unavailable, ID: id, Err: context.Cause(ctx)}
	case len(silent) > 0:
		return nil, notEverywhere(op, id, "the sandbox", silent)
	}
	e.searches.note(key, time.Now().Add(e.opts.Forget))
	return nil, noSandbox(op, id, nil)
}

// cmpErr returns err, or what next returns if there is none.
func cmpErr(err error, next func() error) error {
	if err != nil {
		return err
	}
	return next()
}

// verify checks that a node answered about the sandbox that it was asked for, and about one that
// the caller may see. project "" may see all.
func (m *member) verify(op string, id carrel.ID, project string, sb carrel.Sandbox) error {
	switch {
	case sb.ID != id:
		return m.lies(op, id, fmt.Errorf("asked for sandbox %s, it answered about %.40q", id, sb.ID))
	case project != "" && sb.Project != project:
		return m.lies(op, id, errors.New("it answered about another project's sandbox"))
	}
	return nil
}

// lies is the error for an answer that can't be true.
func (m *member) lies(op string, id carrel.ID, what error) error {
	m.e.log.Error("a node's answer can't be true", "node", m.name, "id", id, "err", what)
	return &carrel.Error{Op: op, Kind: carrel.Internal, ID: id,
		Err:  fmt.Errorf("the answer of node %s was refused: %w", m.name, what),
		Hint: "look at the node " + m.name + ", or take it out of the list of nodes"}
}

// on calls the node of a sandbox. If that node says that it does not have it (any more), the others
// are asked, and the call goes to the one that has it.
func on[T any](ctx context.Context, e *Engine, op string, id carrel.ID, within time.Duration,
	fn func(ctx context.Context, m *member, r Remote) (T, error)) (T, error) {
	var zero T
	m, err := e.locate(ctx, op, id)
	if err != nil {
		return zero, err
	}
	try := func(m *member) (T, error) {
		return call(ctx, m, op, id, within,
			func(ctx context.Context, r Remote) (T, error) { return fn(ctx, m, r) })
	}
	out, err := try(m)
	if !gone(err) {
		return out, err
	}
	e.dir.end(id, m.name)
	project, perr := projectOf(ctx, op)
	if perr != nil {
		return zero, perr
	}
	other, serr := e.search(ctx, op, id, project, m)
	switch {
	case serr == nil:
		return try(other)
	case carrel.KindOf(serr) == carrel.NotFound:
		return zero, err // its own node knows best why it is gone
	}
	return zero, serr
}

// gone reports whether a node said that it does not have the sandbox. A snapshot, template or token
// that is not there has a Field.
func gone(err error) bool {
	e, ok := errors.AsType[*carrel.Error](err)
	return ok && carrel.KindOf(err) == carrel.NotFound && e.Field == ""
}

// sandboxOn is on for calls that return the sandbox.
func sandboxOn(ctx context.Context, e *Engine, op string, id carrel.ID, within time.Duration,
	fn func(ctx context.Context, r Remote) (carrel.Sandbox, error)) (carrel.Sandbox, error) {
	project, err := projectOf(ctx, op)
	if err != nil {
		return carrel.Sandbox{}, err
	}
	return on(ctx, e, op, id, within, func(ctx context.Context, m *member, r Remote) (carrel.Sandbox, error) {
		sb, err := fn(ctx, r)
		if err == nil {
			err = m.verify(op, id, project, sb)
		}
		if err != nil {
			return carrel.Sandbox{}, err
		}
		return sb, nil
	})
}
