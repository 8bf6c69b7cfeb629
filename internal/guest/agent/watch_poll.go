package agent

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"

	"connectrpc.com/connect"

	"github.com/carrel-dev/carrel/internal/guest/filesystem"
)

const (
	// maxPollWatchers bounds the watchers that clients have made and not removed.
	maxPollWatchers = 1024
	// maxPollEvents bounds the events that a watcher keeps for a client that does not ask.
	maxPollEvents = 1 << 16
)

// pollWatchers are the watchers of clients that poll.
type pollWatchers struct {
	mu   sync.Mutex
	byID map[string]*pollWatcher
}

// reserve returns an id for a watcher that will be made, or "" if there are too many.
func (p *pollWatchers) reserve() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.byID) >= maxPollWatchers {
		return ""
	}
	id := "w" + strings.ToLower(rand.Text()[:20])
	p.byID[id] = nil
	return id
}

// set stores a watcher under a reserved id. nil gives the id back.
func (p *pollWatchers) set(id string, w *pollWatcher) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w == nil {
		delete(p.byID, id)
		return
	}
	p.byID[id] = w
}

// find returns a watcher; with remove it also removes the watcher from the list.
func (p *pollWatchers) find(id string, remove bool) (*pollWatcher, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.byID[id]
	if w == nil {
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("watcher with id %s not found", id))
	}
	if remove {
		delete(p.byID, id)
	}
	return w, nil
}

// pollWatcher keeps the events of a watched directory until a client takes them.
type pollWatcher struct {
	watch *watch
	idle  chan struct{} // run receives from it between two changes
	ended chan struct{} // closed when run has returned

	mu     sync.Mutex
	events []*filesystem.FilesystemEvent
	err    error
}

// run gathers events until RemoveWatcher or the agent's end closes the watcher.
func (p *pollWatcher) run() {
	defer close(p.ended)
	for {
		select {
		case <-p.idle:
		case <-p.watch.a.ctx.Done():
			_ = p.watch.w.Close() // nobody is left to tell
			return
		case c, ok := <-p.watch.w.C():
			if !ok {
				p.fail(p.watch.ended())
				return
			}
			for _, c := range p.watch.a.uploads.changes(c) {
				if !p.add(p.watch.event(c)) {
					_ = p.watch.w.Close() // p.err holds all that the client needs
					return
				}
			}
		}
	}
}

// add keeps an event, and reports false if there are too many. It drops a write that follows a
// write to the same file, because that tells nothing new.
func (p *pollWatcher) add(e *filesystem.FilesystemEvent) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.events); n > 0 && e.Type == filesystem.EventType_EVENT_TYPE_WRITE {
		if last := p.events[n-1]; last.Type == e.Type && last.Name == e.Name {
			p.events[n-1] = e
			return true
		}
	}
	if len(p.events) >= maxPollEvents {
		p.err = connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("watcher error: more than %d events were not collected", maxPollEvents))
		p.events = nil
		return false
	}
	p.events = append(p.events, e)
	return true
}

func (p *pollWatcher) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
}

// settle waits until take returns all changes from before the call. A client that has written a file
// and polls expects to be told of it, however busy the machine is.
func (p *pollWatcher) settle(ctx context.Context) {
	p.watch.w.Flush(ctx)
	select {
	case p.idle <- struct{}{}: // run keeps what it receives before it comes here
	case <-p.ended:
	case <-ctx.Done():
	}
}

// take returns the events since the last call, or the reason why no more will come.
func (p *pollWatcher) take() ([]*filesystem.FilesystemEvent, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.events) == 0 && p.err != nil {
		return nil, p.err
	}
	events := p.events
	p.events = nil
	return events, nil
}

// CreateWatcher starts to watch a directory for a client that will poll.
func (s *filesystemService) CreateWatcher(_ context.Context, req *connect.Request[filesystem.CreateWatcherRequest]) (*connect.Response[filesystem.CreateWatcherResponse], error) {
	id := s.watchers.reserve()
	if id == "" {
		return nil, connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("error creating watcher: there are %d already", maxPollWatchers))
	}
	w, err := s.openWatch(req.Header(), req.Msg)
	if err != nil {
		s.watchers.set(id, nil)
		return nil, err
	}
	p := &pollWatcher{watch: w, idle: make(chan struct{}), ended: make(chan struct{})}
	s.watchers.set(id, p)
	s.a.spawn(p.run)
	return connect.NewResponse(&filesystem.CreateWatcherResponse{WatcherId: id}), nil
}

// GetWatcherEvents returns the changes since the last call.
func (s *filesystemService) GetWatcherEvents(ctx context.Context, req *connect.Request[filesystem.GetWatcherEventsRequest]) (*connect.Response[filesystem.GetWatcherEventsResponse], error) {
	p, err := s.watchers.find(req.Msg.GetWatcherId(), false)
	if err != nil {
		return nil, err
	}
	p.settle(ctx)
	events, err := p.take()
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&filesystem.GetWatcherEventsResponse{Events: events}), nil
}

// RemoveWatcher ends a watcher.
func (s *filesystemService) RemoveWatcher(_ context.Context, req *connect.Request[filesystem.RemoveWatcherRequest]) (*connect.Response[filesystem.RemoveWatcherResponse], error) {
	p, err := s.watchers.find(req.Msg.GetWatcherId(), true)
	if err != nil {
		return nil, err
	}
	if err := p.watch.w.Close(); err != nil {
		return nil, connect.NewError(connect.CodeInternal, errors.Join(errors.New("error closing watcher"), err))
	}
	return connect.NewResponse(&filesystem.RemoveWatcherResponse{}), nil
}
