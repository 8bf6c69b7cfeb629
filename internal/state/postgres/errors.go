package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/state"
)

// SQLSTATEs that this package tells apart. The classes are the first two characters.
const (
	codeSerialization = "40001"
	codeDeadlock      = "40P01"
	codeReadOnly      = "25006"
	codeIdle          = "25P03" // idle in a transaction for too long
	codeUnique        = "23505"
	codeDiskFull      = "53100"
	codeConnections   = "53300"
	codeCanceled      = "57014"
	codeNoDatabase    = "3D000"
	codeNoRight       = "42501"
	codeLock          = "55P03"

	classConnection = "08"
	classLogin      = "28"
	classResources  = "53"
	classOperator   = "57"
	classSystem     = "58"
)

// errAway is the cause of the context that bounds a call in time.
var errAway = errors.New("the database did not answer in time")

// codeOf is the SQLSTATE of an error that the server sent, or "".
func codeOf(err error) string {
	var pe *pgconn.PgError
	if errors.As(err, &pe) {
		return pe.Code
	}
	return ""
}

// classOf is the class of an SQLSTATE, or "".
func classOf(code string) string {
	if len(code) != 5 {
		return ""
	}
	return code[:2]
}

// passing reports whether an error may be gone when the same is tried again: the connection is lost,
// the server is starting or full, or two transactions waited for each other.
func passing(err error) bool {
	var ce *carrel.Error
	if errors.Is(err, state.ErrUnknown) {
		return false // a repetition may be a second time
	}
	if errors.As(err, &ce) {
		return ce.Kind == carrel.Unavailable
	}
	code := codeOf(err)
	if code == "" {
		return lostConnection(err)
	}
	return slices.Contains([]string{codeSerialization, codeDeadlock, codeReadOnly, codeIdle, codeConnections, codeLock}, code) ||
		classOf(code) == classConnection || classOf(code) == classOperator && code != codeCanceled
}

// ownFault reports whether the server refused a statement because of what it says, so that the
// transaction may succeed without it.
func ownFault(err error) bool {
	switch classOf(codeOf(err)) {
	case "", classConnection, classLogin, classResources, classOperator, classSystem, "25", "40", "55", "XX":
		return errors.Is(err, ErrFenced)
	}
	return true
}

// lostConnection reports whether a failure is of the network, not the server's answer.
func lostConnection(err error) bool {
	var connect *pgconn.ConnectError
	var network net.Error
	var op *net.OpError
	return errors.As(err, &connect) || errors.As(err, &op) || errors.As(err, &network) ||
		errors.Is(err, errBroken)
}

// errBroken says that a connection ended within a statement.
var errBroken = errors.New("the connection to the database ended")

// broken adds errBroken to an error of a connection that is closed now.
func broken(c interface{ IsClosed() bool }, err error) error {
	if err != nil && c.IsClosed() && !lostConnection(err) {
		return fmt.Errorf("%w: %w", errBroken, err)
	}
	return err
}

// mapError gives an error its kind and a hint.
func mapError(op string, id carrel.ID, err error) error {
	var ce *carrel.Error
	if errors.As(err, &ce) {
		return &carrel.Error{Op: op, Kind: ce.Kind, ID: id, Field: ce.Field, Err: err, Hint: ce.Hint}
	}
	e := &carrel.Error{Op: op, Kind: carrel.Internal, ID: id, Err: err}
	code := codeOf(err)
	switch {
	case code == codeDiskFull:
		e.Kind, e.Field, e.Hint = carrel.Exhausted, "disk", "free some disk space on the database's server"
	case code == codeConnections:
		e.Kind, e.Hint = carrel.Unavailable, "the database has no free connection: raise its max_connections, or give each program fewer"
	case classOf(code) == classResources:
		e.Kind, e.Field, e.Hint = carrel.Exhausted, "database", "the database's server is short of memory or at a limit of its configuration: its log says more"
	case code == codeCanceled, code == codeLock:
		e.Kind, e.Hint = carrel.Unavailable, "the database is too slow, or another session holds a lock: pg_stat_activity shows who waits for whom"
	case code == codeReadOnly:
		e.Kind, e.Hint = carrel.Unavailable, "the database takes no writes now: is it a standby, or out of space?"
	case code == codeUnique:
		e.Kind, e.Hint = carrel.Conflict, "another writer was first: read again, and decide anew"
	case classOf(code) == classLogin, code == codeNoDatabase, code == codeNoRight:
		e.Kind, e.Field, e.Hint = carrel.Unsupported, "database", "check the user, the password and the database of the address, and the user's rights"
	case passing(err), errors.Is(err, errAway), errors.Is(err, context.DeadlineExceeded):
		e.Kind, e.Hint = carrel.Unavailable, "is the database running, and can this machine reach it? Try again when it answers"
	}
	return e
}

// ended returns the error for a call whose own context has ended, or nil. As in the other stores,
// its kind is Internal.
func ended(ctx context.Context, op string, id carrel.ID, err error) error {
	if ctx.Err() == nil {
		return nil
	}
	if err == nil || !errors.Is(err, ctx.Err()) {
		err = errors.Join(ctx.Err(), err)
	}
	return internal(op, id, err)
}

// errClosed says that Close was called.
var errClosed = errors.New("the store is closed")

func internal(op string, id carrel.ID, err error) error {
	return &carrel.Error{Op: op, Kind: carrel.Internal, ID: id, Err: err}
}
