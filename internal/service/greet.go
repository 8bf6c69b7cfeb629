package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/guest"
	"github.com/carrel-dev/carrel/internal/policy"
	"github.com/carrel-dev/carrel/internal/state"
	"github.com/carrel-dev/carrel/internal/trace"
)

// How long one try to reach a guest may take. The longer the caller has waited already, the longer
// is the pause before the next try.
const (
	firstTry = 50 * time.Millisecond
	lastTry  = 2 * time.Second
	initTry  = 10 * time.Second
)

func pause(waited time.Duration) time.Duration {
	switch {
	case waited < 5*time.Millisecond:
		return 500 * time.Microsecond
	case waited < 250*time.Millisecond:
		return 2 * time.Millisecond
	case waited < 2*time.Second:
		return 10 * time.Millisecond
	}
	return 50 * time.Millisecond
}

// line dials a sandbox. The first stream shows that the guest is up. line keeps it and gives it to
// the first caller that needs a stream, which saves a second dial.
type line struct {
	inst     driver.Instance
	fresh    bool // the guest was only just started
	restored bool // the guest goes on from a snapshot
	pour     bool // another driver's files are written after the guest is up

	mu    sync.Mutex
	ready net.Conn
}

// conn returns a connection to the guest over this line.
func (l *line) conn(sb carrel.Sandbox) *guest.Conn {
	return guest.NewConn(l.dial, guest.ConnOptions{ID: sb.ID, Token: sb.AccessToken})
}

func (l *line) dial(ctx context.Context, port uint16) (net.Conn, error) {
	if port == carrel.GuestPort {
		l.mu.Lock()
		c := l.ready
		l.ready = nil
		l.mu.Unlock()
		if c != nil {
			return c, nil
		}
	}
	return l.inst.Dial(ctx, port)
}

// hangUp closes a stream that no caller took.
func (l *line) hangUp() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ready != nil {
		_ = l.ready.Close()
		l.ready = nil
	}
}

// knock waits until the guest accepts a stream. For the time patience it does not try, because the
// guest can't be up yet. The first tries are short, since a message to a sandbox that is not up yet
// may be lost.
func (l *line) knock(ctx context.Context, patience time.Duration) error {
	defer trace.Mark(ctx, "knock").End()
	if patience > 0 && !sleep(ctx, patience) {
		return fmt.Errorf("the guest does not answer: %w", context.Cause(ctx))
	}
	began := time.Now()
	for try := firstTry; ; try = min(2*try, lastTry) {
		tctx, cancel := context.WithTimeout(ctx, try)
		c, err := l.inst.Dial(tctx, carrel.GuestPort)
		cancel()
		if err == nil {
			l.mu.Lock()
			l.ready = c
			l.mu.Unlock()
			return nil
		}
		if !sleep(ctx, pause(time.Since(began))) {
			return fmt.Errorf("the guest does not answer: %w", err)
		}
	}
}

// sleep waits for d. It reports false when ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// greeter tells guests their identity, and sends them the requests that every sandbox gets.
type greeter struct {
	opts    *Options
	log     *slog.Logger
	table   *table
	journal *journal
	rises   rises
	orders  atomic.Uint64 // of the newest /init; see guest.InitRequest.Order
}

// greet waits for the guest and gives it its identity. If the sandbox dies during this wait, greet
// returns at once and says how it died.
func (g *greeter) greet(ctx context.Context, b *box, l *line) error {
	ctx, stop := context.WithCancelCause(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		if exit, err := l.inst.Wait(ctx); err == nil && ctx.Err() == nil {
			stop(startExit(b.public().Limits, exit))
		}
	}()
	roused := g.rouseLater(ctx, b, l)
	tctx, span := trace.Start(ctx, "greet")
	err := g.introduce(tctx, b, l)
	roused()
	span.EndWith(err)
	if err != nil && ctx.Err() != nil {
		var died *carrel.Error
		if cause := context.Cause(ctx); errors.As(cause, &died) {
			err = died
		}
	}
	stop(nil)
	<-watched
	return err
}

// startExit is the error for a sandbox that died before its guest answered.
func startExit(l carrel.Limits, exit driver.Exit) error {
	kind, hint := carrel.Internal, ""
	if exit.Reason == carrel.EndOutOfMemory {
		kind, hint = carrel.Exhausted, "give it a higher memoryMB"
	}
	return &carrel.Error{Op: "start guest", Kind: kind, Hint: hint,
		Err: fmt.Errorf("the sandbox ended while it started: %s", explain(l, verdict{exit.Reason, exit.Message}))}
}

// rises remembers, for each tier, how long guests took to listen. A new guest is not dialled before
// most of that time has passed, because each dial that fails takes processor time from the guest.
type rises struct {
	mu   sync.Mutex
	took map[carrel.Tier]time.Duration
}

// A guest is left alone for riseShare of the usual start time, unless that is less than riseWorth
// and so not worth a timer. It is never left alone longer than riseMost, even after slow starts on
// a busy machine.
const (
	riseShare    = 0.75
	riseWorth    = 2 * time.Millisecond
	riseMost     = 15 * time.Millisecond
	riseAdapting = 8 // a slower start counts 1/n, a faster one fully
)

// patience returns how long the next guest is left alone before the first dial.
func (r *rises) patience(tier carrel.Tier) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := time.Duration(riseShare * float64(r.took[tier]))
	if p < riseWorth {
		return 0
	}
	return min(p, riseMost)
}

// note records how long a guest took to listen.
func (r *rises) note(tier carrel.Tier, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.took == nil {
		r.took = map[carrel.Tier]time.Duration{}
	}
	if usual, ok := r.took[tier]; ok && took > usual {
		took = usual + (took-usual)/riseAdapting
	}
	r.took[tier] = took
}

// introduce dials the guest and sends /init until the guest has accepted it.
func (g *greeter) introduce(ctx context.Context, b *box, l *line) error {
	began, tier := time.Now(), b.public().Tier
	var patience time.Duration
	if l.fresh {
		patience = g.rises.patience(tier)
	}
	for {
		if err := l.knock(ctx, patience); err != nil {
			return err
		}
		if l.fresh {
			l.fresh, patience = false, 0
			g.rises.note(tier, time.Since(began))
		}
		err := g.init(ctx, b, l.restored)
		switch carrel.KindOf(err) {
		case "":
			return nil
		case carrel.Unavailable, carrel.TimedOut: // it closed the stream: not quite up yet
		default:
			return err
		}
		if !sleep(ctx, pause(time.Since(began))) {
			return err
		}
	}
}

// init gives the guest its identity. It may be repeated.
func (g *greeter) init(ctx context.Context, b *box, restored bool) error {
	ctx, cancel := context.WithTimeout(ctx, initTry)
	defer cancel()
	ctx, span := trace.Start(ctx, "init")
	defer span.End()
	req := g.nextInit(b)
	req.Restored = restored
	return b.guest().Init(ctx, req)
}

// nextInit returns the next /init request for a sandbox's guest. It reads the record and takes the
// order number in one step, so a higher number always means a newer record.
func (g *greeter) nextInit(b *box) guest.InitRequest {
	b.mu.Lock()
	rec, egress, order := b.recordLocked(), b.egress, g.orders.Add(1)
	b.mu.Unlock()
	req := g.initRequest(rec, egress)
	req.Order, req.Timestamp = order, time.Now()
	return req
}

// initRequest is the /init request for a record, without its time and order. egress is compiled
// from the record's network.
func (g *greeter) initRequest(r state.Record, egress *policy.Policy) guest.InitRequest {
	req := guest.InitRequest{
		EnvVars: r.Env, AccessToken: r.Sandbox.AccessToken,
		DefaultUser: r.User, DefaultWorkdir: r.WorkDir,
		SandboxID: string(r.Sandbox.ID), Hostname: string(r.Sandbox.ID), TemplateID: r.Sandbox.Template,
		Generation: r.Sandbox.Generation, CheckpointBefore: r.Sandbox.Lifecycle.Checkpoints.Before,
	}
	g.equip(&req, egress)
	if req.EnvVars == nil {
		req.EnvVars = map[string]string{}
	}
	return req
}

// startTag marks the template's own command among the processes.
const startTag = guest.StartTag

// startCommand runs the template's entrypoint in the background, as in a container. The sandbox
// lives on when the command ends.
func (g *greeter) startCommand(b *box, args []string) {
	ctx, cancel := context.WithTimeout(g.table.ctx, g.opts.StartTimeout)
	defer cancel()
	conn := b.guest()
	if conn == nil {
		return // paused meanwhile
	}
	p, err := conn.Start(ctx, carrel.Command{Args: args, Tag: startTag})
	e := carrel.Event{Type: eventStart, ID: b.id, Message: fmt.Sprintf("started the template's command %q", args)}
	if err != nil {
		if g.table.ctx.Err() != nil || isClosed(b.gone) {
			return
		}
		e.Type, e.Message = eventStartFailed, fmt.Sprintf("the template's command %q could not start: %v", args, err)
	} else {
		_ = p.Close() // disconnects: it runs on
	}
	if err := g.journal.emit(ctx, e); err != nil && g.table.ctx.Err() == nil {
		g.log.Error("write event", "sandbox", b.id, "err", err)
	}
}

// settle waits until a guest has finished its writes and its hooks after it got its identity. So no
// snapshot holds only half of them. It waits no longer than most.
func (g *greeter) settle(ctx context.Context, b *box, most time.Duration) {
	conn := b.guest()
	if conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	if _, err := conn.GuestMetrics(ctx); err != nil { // this route waits for the writes, unlike /health
		g.log.Debug("settle", "sandbox", b.id, "err", err)
	}
}

// leave asks the guest to end its streams and gives them a reason. Streams that the guest does not
// end are cut off later.
func (g *greeter) leave(ctx context.Context, b *box, reason string) {
	b.mu.Lock()
	inst := b.inst
	b.mu.Unlock()
	for try := range 2 {
		tctx, cancel := context.WithTimeout(ctx, leaveTime)
		err := b.guest().Leave(tctx, reason)
		silent := tctx.Err() != nil
		cancel()
		if err == nil || ctx.Err() != nil {
			return
		}
		if try > 0 || !silent {
			g.log.Debug("end streams", "sandbox", b.id, "err", err)
			return
		}
		g.rouse(ctx, b.id, inst) // what is stopped now would be stopped after the resumption too
	}
}

// rouse makes a guest go on that a program in its sandbox has stopped.
func (g *greeter) rouse(ctx context.Context, id carrel.ID, inst driver.Instance) {
	r, ok := driver.As[driver.Rouser](inst)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, leaveTime)
	defer cancel()
	if err := r.Rouse(ctx); err != nil && ctx.Err() == nil {
		g.log.Debug("rouse the guest", "sandbox", id, "err", err)
	}
}

// rouseAfter is the silence after which a restored guest is roused.
const rouseAfter = 3 * time.Second

// rouseLater rouses a restored guest that is silent for too long, until the caller calls stop.
func (g *greeter) rouseLater(ctx context.Context, b *box, l *line) (stop func()) {
	if !l.restored {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if sleep(ctx, rouseAfter) {
			g.rouse(ctx, b.id, l.inst)
		}
	}()
	return func() { cancel(); <-done }
}

// touch runs a command that does nothing, a few times. It sends the requests in both encodings that
// clients use, because the guest's first use of each takes 2 ms. touch does no harm to a template
// without that shell.
func (g *greeter) touch(ctx context.Context, conn *guest.Conn, times int) error {
	tctx, cancel := context.WithTimeout(ctx, touchTime)
	defer cancel()
	conns := [...]*guest.Conn{conn.AsJSON(), conn}
	for _, args := range [][]string{{"/bin/bash", "-l", "-c", "/bin/true"}, {"/bin/sh", "-c", "/bin/true"}} {
		works := false
		for i := range times {
			res, err := conns[i%len(conns)].Run(tctx, carrel.Command{Args: args})
			if works = err == nil && res.ExitCode == 0; !works {
				break
			}
		}
		if works {
			break
		}
	}
	return ctx.Err()
}

// equip adds the data that a sandbox under these rules needs: the authority to trust, and variables
// with placeholders. The sandbox's own variables win over the placeholders.
func (g *greeter) equip(req *guest.InitRequest, p *policy.Policy) {
	if p.Opens() {
		req.Authority = g.opts.Authority
	}
	req.Silent = p.IsSilent()
	env := p.Env()
	if len(env) == 0 {
		return
	}
	maps.Copy(env, req.EnvVars)
	req.EnvVars = env
}

// told reports whether a guest must be told anything about these rules.
func (g *greeter) told(p *policy.Policy) bool {
	var req guest.InitRequest
	g.equip(&req, p)
	return req.Authority != "" || req.Silent || len(req.EnvVars) > 0
}
