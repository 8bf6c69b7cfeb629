package fleet

import (
	"context"
	"time"

	"github.com/carrel-dev/carrel"
)

// Duty is a task of the whole fleet that one front does at a time. A front that has it must stop at
// Until if it was not renewed. A write with the token of an earlier holder is refused ([ErrFenced]).
type Duty struct {
	Name, Holder string
	// Token is higher than those of all holders before.
	Token int64
	// Until is by this process's clock, and counts from before the request.
	Until time.Time
}

// Hook is a webhook as the registry keeps it: only fronts can read the sealed part.
type Hook struct {
	ID, Project string
	// Version is another one after each change by a caller. What was delivered by an older one is
	// refused.
	Version int64
	Sealed  []byte
	// Lines are what was done with its events, in order.
	Lines [][]byte
}

// Source is how far a machine's events are known to the fleet.
type Source struct {
	Public []byte // the machine's public key
	Seq    int64  // the number of its newest event that is known
	Since  time.Time
}

// Hooks keep the events of all nodes, in one order, the webhooks, and what was delivered. Errors
// besides those below: Unavailable.
type Hooks interface {
	// TakeDuty makes a front the holder of a duty for a time, or prolongs what it has. had is the
	// duty of the call before; its zero value is none. Error: Conflict ([ErrHeld] while another front
	// has it, [ErrFenced] when had has ended: the front must begin anew).
	TakeDuty(ctx context.Context, name, holder string, had Duty, life time.Duration) (Duty, error)
	// LeaveDuty ends a duty, so that another front has it at once.
	LeaveDuty(ctx context.Context, d Duty) error

	// Source tells how far the events of a machine are known. One that is new is known to have none,
	// since now.
	Source(ctx context.Context, public []byte) (Source, error)
	// Collect appends the events of one machine to those of the fleet. A batch that was appended before
	// is left out. Error: Conflict ([ErrFenced]).
	Collect(ctx context.Context, d Duty, public []byte, events []carrel.Event) error

	// AddHook adds a webhook. Error: Exhausted, when the project has perProject of them, or all have all.
	AddHook(ctx context.Context, h Hook, perProject, all int) error
	// Hooks returns the webhooks of a project, the oldest first; "" is all projects. lines says whether
	// they have their lines.
	Hooks(ctx context.Context, project string, lines bool) ([]Hook, error)
	// ChangeHook replaces the sealed part of a webhook, unless it is nil, and adds lines. Errors:
	// NotFound, Conflict ([ErrFenced]) when it has another version than h by now.
	ChangeHook(ctx context.Context, h Hook, lines [][]byte) error
	// DropHook forgets a webhook. Error: NotFound.
	DropHook(ctx context.Context, id string) error
	// MayDeliver is asked before each delivery. Error: Conflict ([ErrFenced]) when another front has the
	// duty, or the webhook has another version, or is gone.
	MayDeliver(ctx context.Context, d Duty, h Hook) error
	// Delivered adds lines to a webhook, for the front that delivers. With whole they replace those
	// before. Error: as MayDeliver's.
	Delivered(ctx context.Context, d Duty, h Hook, lines [][]byte, whole bool) error
}
