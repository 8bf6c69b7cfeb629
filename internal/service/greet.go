package service

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/guest"
	"github.com/carrel-dev/carrel/internal/state"
	"github.com/carrel-dev/carrel/internal/trace"
)

// Waiting for a guest: how long one try may take, and the pauses in between,
// which grow with how long it has taken so far.
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

// line dials a sandbox, and hands the stream that showed the guest to be up to
// the first who wants one, so that it is not dialled twice.
type line struct {
	inst     driver.Instance
	fresh    bool // the guest has only just been started
	restored bool // the guest goes on from a snapshot
	pour     bool // the snapshot's files are another driver's, and are put in once the guest is up

	mu    sync.Mutex
	ready net.Conn
}

// conn returns the connection to the guest over the line.
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

// hangUp closes a stream that nobody took.
func (l *line) hangUp() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ready != nil {
		_ = l.ready.Close()
		l.ready = nil
	}
}

// knock waits until the guest accepts a stream: patience is how long that is not worth
// trying. A try is short at first: what was sent to a sandbox that is not up yet may be
// lost.
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

// sleep reports whether ctx outlived it.
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

// greet waits for the guest and gives it its identity. It ends at once when the
// sandbox dies meanwhile, and says how.
func (s *Service) greet(ctx context.Context, b *box, l *line) error {
	ctx, stop := context.WithCancelCause(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		if exit, err := l.inst.Wait(ctx); err == nil && ctx.Err() == nil {
			stop(startExit(b.public().Limits, exit))
		}
	}()
	tctx, span := trace.Start(ctx, "greet")
	err := s.introduce(tctx, b, l)
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

// rises remembers how long the guests of each tier took to listen, to the next one's
// benefit: each knock that finds nobody takes processor time from the guest it is for.
type rises struct {
	mu   sync.Mutex
	took map[carrel.Tier]time.Duration
}

// Of the usual time that part passes without a knock, if it is worth a timer; and not much more than the quickest take, whatever the last
// ones took on a busy machine.
const (
	riseShare    = 0.75
	riseWorth    = 2 * time.Millisecond
	riseMost     = 15 * time.Millisecond
	riseAdapting = 8 // slower ones count one in so many, faster ones at once
)

// patience is how long the next one is left alone.
func (r *rises) patience(tier carrel.Tier) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := time.Duration(riseShare * float64(r.took[tier]))
	if p < riseWorth {
		return 0
	}
	return min(p, riseMost)
}

// note records how long one took.
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

// introduce knocks and sends /init until the guest has taken it.
func (s *Service) introduce(ctx context.Context, b *box, l *line) error {
	began, tier := time.Now(), b.public().Tier
	var patience time.Duration
	if l.fresh {
		patience = s.rises.patience(tier)
	}
	for {
		if err := l.knock(ctx, patience); err != nil {
			return err
		}
		if l.fresh {
			l.fresh, patience = false, 0
			s.rises.note(tier, time.Since(began))
		}
		err := s.init(ctx, b, l.restored)
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
func (s *Service) init(ctx context.Context, b *box, restored bool) error {
	ctx, cancel := context.WithTimeout(ctx, initTry)
	defer cancel()
	ctx, span := trace.Start(ctx, "init")
	defer span.End()
	req := s.nextInit(b)
	req.Restored = restored
	return b.guest().Init(ctx, req)
}

// nextInit is the next /init of a sandbox's guest. Record and order are read in one step: the
// higher order has the newer record.
func (s *Service) nextInit(b *box) guest.InitRequest {
	b.mu.Lock()
	rec, order := b.recordLocked(), s.orders.Add(1)
	b.mu.Unlock()
	req := s.initRequest(rec)
	req.Order, req.Timestamp = order, time.Now()
	return req
}

// initRequest is what a guest is told about itself, but for when.
func (s *Service) initRequest(r state.Record) guest.InitRequest {
	req := guest.InitRequest{
		EnvVars: r.Env, AccessToken: r.Sandbox.AccessToken,
		DefaultUser: r.User, DefaultWorkdir: r.WorkDir,
		SandboxID: string(r.Sandbox.ID), Hostname: string(r.Sandbox.ID), TemplateID: r.Sandbox.Template,
		Generation: r.Sandbox.Generation, CheckpointBefore: r.Sandbox.Lifecycle.Checkpoints.Before,
	}
	s.equip(&req, r.Sandbox.Network)
	if req.EnvVars == nil {
		req.EnvVars = map[string]string{}
	}
	return req
}

// startTag marks the template's own command among the processes.
const startTag = "carrel.start"

// startCommand runs the template's entrypoint in the background, as it would run
// in a container. The sandbox does not depend on it.
func (s *Service) startCommand(b *box, args []string) {
	ctx, cancel := context.WithTimeout(s.ctx, s.opts.StartTimeout)
	defer cancel()
	conn := b.guest()
	if conn == nil {
		return // paused meanwhile
	}
	p, err := conn.Start(ctx, carrel.Command{Args: args, Tag: startTag})
	e := carrel.Event{Type: eventStart, ID: b.id, Message: fmt.Sprintf("started the template's command %q", args)}
	if err != nil {
		if s.ctx.Err() != nil || isClosed(b.gone) {
			return
		}
		e.Type, e.Message = eventStartFailed, fmt.Sprintf("the template's command %q could not start: %v", args, err)
	} else {
		_ = p.Close() // disconnects: it runs on
	}
	if err := s.emit(ctx, e); err != nil && s.ctx.Err() == nil {
		s.log.Error("write event", "sandbox", b.id, "err", err)
	}
}
