package service

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/admission"
	"github.com/carrel-dev/carrel/internal/cleanup"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/guest"
	"github.com/carrel-dev/carrel/internal/image"
	"github.com/carrel-dev/carrel/internal/state"
)

const (
	// readyPause is how often the ready command is run, and readyTry how long one run of it
	// may take.
	readyPause = 100 * time.Millisecond
	readyTry   = 10 * time.Second
	// readyOutput is how much of what it wrote last is shown where it never succeeds.
	readyOutput = 200
)

// makeGolden starts a template, waits until it is ready, and keeps that moment. like is a
// plan for a sandbox of the template.
func (s *Service) makeGolden(ctx context.Context, key string, img image.Image, like *plan) {
	select {
	case s.goldens.slot <- struct{}{}:
		defer func() { <-s.goldens.slot }()
	case <-ctx.Done():
		s.endGolden(key, "", context.Cause(ctx))
		return
	}
	began := time.Now()
	pass, err := s.awaitSpare(ctx, like.rec.Sandbox)
	var id carrel.SnapshotID
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, 2*s.opts.StartTimeout+s.opts.ReadyTimeout)
		defer cancel()
		began = time.Now()
		id, err = s.ripen(ctx, key, img, like, pass)
	}
	if !s.endGolden(key, id, err) || s.ctx.Err() != nil && err != nil {
		return // nobody wants it any more, or the next service begins again
	}
	e := carrel.Event{Type: eventGolden, Fields: map[string]string{"template": img.ID},
		Message: fmt.Sprintf("template %s was started in %v: its sandboxes go on from there", img.Name, time.Since(began).Round(time.Millisecond))}
	if err != nil {
		e.Type, e.Message = eventNotReady, fmt.Sprintf("template %s: %v; its sandboxes start it themselves", img.Name, err)
		s.log.Warn("start a template", "template", img.Name, "err", err)
	}
	s.tell(e)
	s.warm.recheck() // what is ready has booted
	s.sweepGoldens()
}

// endGolden notes what became of a try, and reports whether anybody still wants it.
func (s *Service) endGolden(key string, id carrel.SnapshotID, err error) bool {
	g := &s.goldens
	g.mu.Lock()
	one := g.all[key]
	if one != nil {
		one.cancel()
		one.making, one.id, one.problem = false, id, ""
		if err != nil {
			one.problem = err.Error()
			one.next = time.Now().Add(min(firstGoldenRetry<<min(one.failures, 10), lastGoldenRetry))
			one.failures++
		}
	}
	g.mu.Unlock()
	if one == nil && id != "" { // given up meanwhile
		s.dropHidden([]carrel.SnapshotID{id})
	}
	return one != nil
}

// ripen makes a sandbox that is nobody's, has it become ready, keeps its moment and ends
// it. pass is its turn, until it has booted.
func (s *Service) ripen(ctx context.Context, key string, img image.Image, like *plan, pass *admission.Pass) (_ carrel.SnapshotID, err error) {
	defer func() { pass.Done(err) }()
	rec := like.rec
	rec.Sandbox.ID, rec.Sandbox.State, rec.Sandbox.AccessToken = carrel.NewID(), state.Warm, newToken()
	rec.Sandbox.Metadata, rec.Sandbox.Tokens, rec.Sandbox.Network, rec.Sandbox.TrafficToken = nil, nil, carrel.Network{}, ""
	rec.Sandbox.Lifecycle, rec.Env, rec.Owner = carrel.Lifecycle{}, img.Env, ""
	b := s.newBox(rec, func(error) {})
	var undo cleanup.Stack
	defer undo.Run()
	if err := os.Mkdir(b.dir, 0o700); err != nil {
		return "", fmt.Errorf("make the sandbox's directory: %w", err)
	}
	undo.Add(func() { _ = os.RemoveAll(b.dir) })
	if err := s.recordWarm(ctx, b); err != nil {
		return "", err
	}
	undo.Add(func() { s.unrecord(b) })
	inst, line, err := s.stand(ctx, b, like.driver, like.root, nil)
	if err != nil {
		return "", err
	}
	undo.Add(func() { s.destroy(b, inst) })
	undo.Add(line.hangUp)
	conn := line.conn(rec.Sandbox)
	b.adopt(inst, conn, like.ttl)
	undo.Add(func() { _ = conn.Close() })
	if err := s.recordWarm(ctx, b); err != nil {
		return "", err
	}
	if err := s.greet(ctx, b, line); err != nil {
		return "", err
	}
	pass.Done(nil) // what it now waits for is its own
	if err := s.awaitReady(ctx, conn, img); err != nil {
		return "", err
	}
	_ = s.touch(ctx, conn, touches) // what the first command needs is in the moment, too
	return s.keepGolden(ctx, key, b, inst)
}

// awaitSpare waits for as long as ctx allows until the machine has time for a template.
func (s *Service) awaitSpare(ctx context.Context, sb carrel.Sandbox) (*admission.Pass, error) {
	for {
		pass, err := s.enterSpare(ctx, sb, "template")
		if !errors.Is(err, admission.ErrBusy) || ctx.Err() != nil {
			return pass, err
		}
	}
}

// awaitReady runs the start command, and then the ready command until it succeeds.
func (s *Service) awaitReady(ctx context.Context, conn *guest.Conn, img image.Image) error {
	ctx, cancel := context.WithTimeout(ctx, s.opts.ReadyTimeout)
	defer cancel()
	p, err := conn.Start(ctx, carrel.Command{Args: img.Start, Tag: startTag})
	if err != nil {
		return fmt.Errorf("its start command %q could not be started: %w", img.Start, err)
	}
	_ = p.Close() // disconnects: it runs on
	last := "it was not run yet"
	for {
		tctx, cancel := context.WithTimeout(ctx, readyTry)
		res, err := conn.Run(tctx, carrel.Command{Args: []string{"/bin/sh", "-c", img.Ready}})
		cancel()
		switch {
		case err == nil && res.ExitCode == 0:
			return nil
		case err == nil:
			out := append(res.Stdout, res.Stderr...)
			last = fmt.Sprintf("it exited with status %d and wrote %q", res.ExitCode, out[max(0, len(out)-readyOutput):])
		case ctx.Err() == nil:
			last = err.Error()
		}
		if !sleep(ctx, readyPause) {
			return &carrel.Error{Kind: carrel.TimedOut, Field: "ready",
				Err:  fmt.Errorf("its ready command %q did not succeed within %v: %s", img.Ready, s.opts.ReadyTimeout, last),
				Hint: "see whether the start command works: carrel create " + img.Name + ", carrel exec"}
		}
	}
}

// keepGolden keeps the moment of a sandbox that is ready.
func (s *Service) keepGolden(ctx context.Context, key string, b *box, inst driver.Instance) (carrel.SnapshotID, error) {
	s.settle(ctx, b, leaveTime)
	s.leave(ctx, b, "the template is ready")
	if f, ok := driver.As[driver.Freezer](inst); ok {
		if err := f.Freeze(ctx); err != nil {
			return "", err
		}
	}
	b.mu.Lock()
	b.rec.Sandbox.AccessToken, b.rec.Env = "", nil
	b.mu.Unlock()
	sr, err := s.keep(ctx, b, wish{cause: carrel.CauseTemplate, detail: key})
	if err != nil {
		return "", err
	}
	sr.Snapshot.Kept = true
	if !sr.Snapshot.Memory {
		s.scrap(sr.Snapshot.ID)
		return "", errors.New("its moment could be kept without memory only")
	}
	if err := s.apply(ctx, state.Change{PutSnapshots: []state.SnapshotRecord{sr}}); err != nil {
		s.scrap(sr.Snapshot.ID)
		return "", err
	}
	return sr.Snapshot.ID, nil
}
