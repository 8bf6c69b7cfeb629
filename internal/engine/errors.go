package engine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"

	"github.com/carrel-dev/carrel"
)

// The reasons why a node is away.
var (
	errSilent     = errors.New("it does not answer")
	errNotAsked   = errors.New("it has not answered yet")
	errRefuses    = errors.New("nothing listens at its address")
	errOtherFleet = errors.New("it does not accept this fleet's key")
	errLeft       = errors.New("it has left the fleet")
)

// errCut is in the error of a call that was under way when its node went away.
var errCut = errors.New("the call was under way when the node went away")

// unavailable is the error for a call to a node that is away, or whose answer did not come.
func unavailable(op string, id carrel.ID, node string, why error) error {
	hint := "look at the node " + node + "; its sandboxes are there again when it is"
	if errors.Is(why, errOtherFleet) {
		hint = "give the list of nodes the API key of the daemon on " + node
	}
	return &carrel.Error{Op: op, Kind: carrel.Unavailable, ID: id,
		Err: fmt.Errorf("node %s: %w", node, why), Hint: hint}
}

// explain turns the error of a call to a node into the caller's. within is the context of the call,
// ctx the caller's.
func (m *member) explain(ctx, within context.Context, op string, id carrel.ID, err error) error {
	if err == nil || ctx.Err() != nil {
		return err
	}
	why := context.Cause(within)
	if errors.Is(why, errSilent) || errors.Is(why, errLeft) || errors.Is(why, errRefuses) {
		return unavailable(op, id, m.name, fmt.Errorf("%w: %w", why, errCut))
	}
	switch kind := carrel.KindOf(err); {
	case kind == carrel.Unauthenticated:
		m.away(errOtherFleet)
		return unavailable(op, id, m.name, errOtherFleet)
	case refusedConnection(err):
		m.away(errRefuses)
		return unavailable(op, id, m.name, errors.Join(errRefuses, err))
	case unanswered(err) && kind == carrel.TimedOut:
		return unavailable(op, id, m.name, fmt.Errorf("%w in time: %w", errSilent, err))
	case unanswered(err):
		return unavailable(op, id, m.name, err)
	}
	return err
}

// unanswered reports whether a call got no whole answer: what it asked for may have happened.
// Package client marks its errors so; a node can't.
func unanswered(err error) bool {
	var u interface{ Unanswered() bool }
	return errors.As(err, &u) && u.Unanswered()
}

// refusedConnection reports whether a connection was refused. Nothing was sent then.
func refusedConnection(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }

// notSent reports whether there was no connection to send a call on.
func notSent(err error) bool {
	var op *net.OpError
	return refusedConnection(err) || errors.As(err, &op) && op.Op == "dial"
}

// noSuchTemplate reports whether a node refused a creation because it lacks the template.
func noSuchTemplate(err error) bool {
	e, ok := errors.AsType[*carrel.Error](err)
	return ok && carrel.KindOf(err) == carrel.NotFound && e.Field == "template"
}

// noRoom reports whether a node refused to begin because it is busy or full at the moment. A quota
// is the same everywhere, so it does not count.
func noRoom(err error) bool {
	kind := carrel.KindOf(err)
	return (kind == carrel.Exhausted || kind == carrel.Unavailable) && carrel.RetryAfterOf(err) > 0 &&
		carrel.LimitOf(err) == nil
}

// disputed is the error for a sandbox that two nodes claim.
func disputed(op string, id carrel.ID, why error) error {
	return &carrel.Error{Op: op, Kind: carrel.Conflict, ID: id, Err: why,
		Hint: "one of them is wrong or lies, and neither is asked until that one stops: " +
			"compare 'carrel ls' on both"}
}

// noSandbox is the error for a sandbox that no node has.
func noSandbox(op string, id carrel.ID, cause error) error {
	return &carrel.Error{Op: op, Kind: carrel.NotFound, ID: id, Err: cause}
}

// notEverywhere is the error when nothing was found, and some nodes could not be asked.
func notEverywhere(op string, id carrel.ID, what string, silent []string) error {
	return &carrel.Error{Op: op, Kind: carrel.Unavailable, ID: id,
		Err:  fmt.Errorf("%s is on none of the nodes that answer, and may be on %s", what, some(silent)),
		Hint: "ask again when these nodes answer: " + some(silent)}
}

// some joins names, at most a few of them.
func some(names []string) string {
	const most = 5
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

// unsupported is the error for what a fleet can't do yet.
func unsupported(op, lacks string) error {
	return &carrel.Error{Op: op, Kind: carrel.Unsupported, Err: errors.New("a fleet has no " + lacks + " yet"),
		Hint: "do it on each node, with the node's own address and key"}
}
