package service

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/state"
)

// Bounds on a sandbox's lifecycle rules.
const (
	minIdle      = 5 * time.Second
	minEvery     = 10 * time.Second
	longest      = 10 * 365 * 24 * time.Hour // of any duration here
	maxPatterns  = 32
	maxPattern   = 512 // bytes of one regular expression
	maxRetention = 10000
	cpuPctByCore = 100
)

// SetLifecycle implements carrel.Moments. It works on a paused sandbox too, and takes effect at its
// next resumption.
func (li *lifecycle) SetLifecycle(ctx context.Context, id carrel.ID, l carrel.Lifecycle) (carrel.Sandbox, error) {
	const op = "set lifecycle"
	if err := li.rules.checkLifecycle(op, l); err != nil {
		return carrel.Sandbox{}, err
	}
	b, err := li.table.find(op, id)
	if err != nil {
		return carrel.Sandbox{}, err
	}
	drv, err := li.opts.Drivers.Get(b.public().Tier)
	if err == nil {
		err = canPause(drv, l)
	}
	if err != nil {
		return carrel.Sandbox{}, &carrel.Error{Op: op, Kind: carrel.KindOf(err), ID: id, Field: "lifecycle", Err: err, Hint: carrel.HintOf(err)}
	}
	return li.settled(ctx, op, b, func(r *state.Record) error {
		r.Sandbox.Lifecycle = copySandbox(carrel.Sandbox{Lifecycle: l}).Lifecycle
		return nil
	}, func() (carrel.Sandbox, error) { return li.setRunningLifecycle(ctx, op, b, l) })
}

// settled changes the record of a sandbox that is paused, or calls running if it runs. It waits
// while the sandbox is on its way from one to the other.
func (li *lifecycle) settled(ctx context.Context, op string, b *box, paused func(*state.Record) error, running func() (carrel.Sandbox, error)) (carrel.Sandbox, error) {
	for {
		before := b.public()
		switch before.State {
		case carrel.Pausing, carrel.Resuming: // through in a moment
			if err := b.settled(ctx); err != nil {
				return carrel.Sandbox{}, &carrel.Error{Op: op, Kind: carrel.TimedOut, ID: b.id, Err: err}
			}
			continue
		case carrel.Paused:
			sb, done, err := li.records.updatePaused(ctx, b, paused)
			if err != nil || done {
				return sb, err
			}
			continue // it was resumed meanwhile
		}
		sb, err := running()
		if carrel.KindOf(err) == carrel.Conflict && b.public().State != carrel.Starting {
			continue // it was paused meanwhile
		}
		return sb, err
	}
}

// setRunningLifecycle is SetLifecycle of a running sandbox. It also tells the guest the rules that
// the guest must know.
func (li *lifecycle) setRunningLifecycle(ctx context.Context, op string, b *box, l carrel.Lifecycle) (carrel.Sandbox, error) {
	same := false
	sb, err := li.records.update(ctx, op, b, func(r *state.Record) {
		same = slices.Equal(r.Sandbox.Lifecycle.Checkpoints.Before, l.Checkpoints.Before)
		r.Sandbox.Lifecycle = copySandbox(carrel.Sandbox{Lifecycle: l}).Lifecycle
	})
	if err != nil || same {
		return sb, err
	}
	if err := li.tellLifecycle(ctx, b); err != nil {
		return carrel.Sandbox{}, &carrel.Error{Op: op, Kind: carrel.KindOf(err), ID: b.id,
			Err: fmt.Errorf("it is recorded, but the guest could not be told which commands need a snapshot: %w", err), Hint: carrel.HintOf(err)}
	}
	return sb, nil
}

// tellLifecycle repeats /init. It holds box.turn, so that no pause closes the connection at the
// same time. A sandbox that is paused by then gets its rules when it resumes.
func (li *lifecycle) tellLifecycle(ctx context.Context, b *box) error {
	ctx, release, err := li.table.take(ctx, "set lifecycle", b)
	if err != nil {
		return err
	}
	defer release()
	if b.public().State != carrel.Running {
		return nil
	}
	return li.greeter.init(ctx, b, false)
}

// checkSpan checks a duration. 0 means none.
func checkSpan(op, field string, d, least time.Duration) error {
	switch {
	case d == 0:
		return nil
	case d < least:
		return invalid(op, field, "%v is less than %v", d, least)
	case d > longest:
		return invalid(op, field, "%v is more than ten years", d)
	}
	return nil
}

func checkPatterns(op string, all []string) error {
	const field = "lifecycle.checkpoints.before"
	if len(all) > maxPatterns {
		return invalid(op, field, "%d expressions, at most %d may be", len(all), maxPatterns)
	}
	for _, p := range all {
		switch {
		case p == "":
			return invalid(op, field, "an expression is empty: it would match every command; \".\" says so plainly")
		case len(p) > maxPattern:
			return invalid(op, field, "%s has %d bytes, at most %d may be", clip(p), len(p), maxPattern)
		case !utf8.ValidString(p):
			return invalid(op, field, "%s is not UTF-8 text", clip(p))
		}
		if _, err := regexp.Compile(p); err != nil {
			return &carrel.Error{Op: op, Kind: carrel.Invalid, Field: field, Err: fmt.Errorf("%s: %w", clip(p), err),
				Hint: "the syntax is Go's: https://pkg.go.dev/regexp/syntax"}
		}
	}
	return nil
}

func checkRetention(op string, r carrel.Retention) error {
	if r.Last < 0 || r.Last > maxRetention {
		return invalid(op, "lifecycle.retention.last", "%d is not between 0 and %d", r.Last, maxRetention)
	}
	if r.For < 0 {
		return invalid(op, "lifecycle.retention.for", "%v is negative", r.For)
	}
	return checkSpan(op, "lifecycle.retention.for", r.For, 0)
}

// canPause returns an error when a lifecycle needs snapshots and the driver has none.
func canPause(drv driver.Driver, l carrel.Lifecycle) error {
	field := ""
	switch {
	case l.OnTimeout == carrel.ActionPause:
		field = "lifecycle.onTimeout"
	case l.Idle.After > 0:
		field = "lifecycle.idle"
	case l.Checkpoints.Every > 0, len(l.Checkpoints.Before) > 0:
		field = "lifecycle.checkpoints"
	}
	if _, ok := driver.As[driver.Restorer](drv); ok || field == "" {
		return nil
	}
	tier := drv.Info().Tier
	return &carrel.Error{Kind: carrel.Unsupported, Field: field, Err: fmt.Errorf("sandboxes of tier %s have no snapshots", tier),
		Hint: "use another tier, or leave it out"}
}

// Bounds on the names and labels of snapshots.
const (
	maxSnapshotName = 128 // bytes, the tag with it
	maxNames        = 16  // of one snapshot
	maxLabel        = 256 // bytes
)

// snapshotName has E2B's form: a name and an optional tag. It allows the characters of a template's
// name, and capitals.
var snapshotName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/-]*(:[A-Za-z0-9_][A-Za-z0-9._-]*)?$`)

// checkSnapshotName checks a name for a snapshot; "" gives no name. Callers may use a name in place
// of a template or an ID, so it must not look like an ID.
func checkSnapshotName(op, name string) error {
	const field = "name"
	if name == "" {
		return nil
	}
	if len(name) > maxSnapshotName {
		return invalid(op, field, "it has %d bytes, at most %d may be", len(name), maxSnapshotName)
	}
	if !snapshotName.MatchString(name) {
		return &carrel.Error{Op: op, Kind: carrel.Invalid, Field: field, Err: fmt.Errorf("%s is not a snapshot's name", clip(name)),
			Hint: "a name is name or name:tag, of letters, digits and . _ - (and / before the tag), and begins with a letter or digit"}
	}
	base, _, _ := strings.Cut(name, ":")
	_, notSandbox := carrel.ParseID(base)
	_, notSnapshot := carrel.ParseSnapshotID(base)
	if notSandbox == nil || notSnapshot == nil {
		return invalid(op, field, "%s looks like an ID", clip(name))
	}
	return nil
}

// checkLabel checks a label, which is text for people.
func checkLabel(op, label string) error {
	switch {
	case utf8.RuneCountInString(label) > maxLabel:
		return invalid(op, "label", "longer than %d characters", maxLabel)
	case !utf8.ValidString(label):
		return invalid(op, "label", "it is not UTF-8 text")
	case strings.ContainsFunc(label, func(c rune) bool { return isControl(c) || c >= 0x80 && c < 0xa0 || c == '\u2028' || c == '\u2029' }):
		return invalid(op, "label", "it holds a control character")
	}
	return nil
}
