package sim

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/callback"
)

// maxCalls bounds the running calls of programs of one sandbox's owner.
const maxCalls = 64

// syncTime bounds the time in which a worker must accept a sandbox's programs.
const syncTime = 30 * time.Second

// Provide implements driver.Programmer.
func (p *Pool) Provide(id carrel.ID, list []carrel.Program) (func(), error) {
	if err := p.programs.add(id, list); err != nil {
		return nil, err
	}
	if err := p.sync(id); err != nil {
		p.programs.remove(id, list)
		_ = p.sync(id) // its files of these programs lead nowhere
		return nil, err
	}
	return sync.OnceFunc(func() {
		p.programs.remove(id, list)
		if err := p.sync(id); err != nil {
			p.opts.Logger.Warn("take programs away", "sandbox", id, "err", err) // they lead nowhere
		}
	}), nil
}

// sync sends a sandbox's worker the list of its programs. It always sends the whole list, so that
// the last message is right whatever came before.
func (p *Pool) sync(id carrel.ID) error {
	r := p.sandbox(id)
	if r == nil {
		return nil // make will send the list
	}
	r.provided.Lock()
	defer r.provided.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), syncTime)
	defer cancel()
	_, err := r.ask(ctx, "provide programs", message{Op: opPrograms, Names: p.programs.names(id)})
	switch carrel.KindOf(err) {
	case carrel.NotFound, carrel.Unavailable: // it has ended
		return nil
	}
	return err
}

// sandbox finds a sandbox in its worker; nil if there is none.
func (p *Pool) sandbox(id carrel.ID) *remote {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.workers {
		if r := c.sandboxes[id]; r != nil {
			return r
		}
	}
	return nil
}

// call runs a program for a process of a sandbox.
func (r *remote) call(conn net.Conn, name string) error {
	p := r.crew.pool.programs.find(r.id, name)
	if p == nil {
		return errors.New("nobody provides this program any more")
	}
	serve := func() {
		_ = conn.SetReadDeadline(time.Now().Add(syncTime))
		about, err := callback.Receive(conn)
		if err != nil {
			return
		}
		_ = conn.SetReadDeadline(time.Time{})
		about.Name = p.Name
		// The other end sees errors. When the sandbox ends it closes the connection, which ends the
		// program's context.
		_ = callback.Answer(context.Background(), conn, r.id, about, func(ctx context.Context, c *carrel.ProgramCall) int { return runProgram(ctx, p, c) })
	}
	if !r.serve(serve, conn, &r.calls, maxCalls) {
		return fmt.Errorf("%d programs of its owner's run already", maxCalls)
	}
	return nil
}
