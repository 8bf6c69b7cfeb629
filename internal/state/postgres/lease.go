package postgres

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/state"
)

// Leases say which node owns a sandbox. All programs that share the database agree on it.
//
// A node acquires a sandbox's lease for a time, and renews it before that has passed. If the node
// stops, its lease expires and another node may acquire it. Whether a lease has expired is decided
// by the server's clock alone, so it does not matter what the nodes' clocks say.
//
// A stopped node may wake and believe that it is still the owner. So each acquisition has a token,
// which is higher than all tokens before it, of any sandbox. A write with the fence of an old token
// is refused ([ErrFenced]). Tokens are compared for equality: one that was never given out is
// refused, too. An expired lease that nobody else acquired is still its owner's: writes with its
// fence are good, and it can be renewed.
//
// A node that acquires its own sandbox's lease again, because it was started again, gets a new
// token at once. Its old process is fenced out from then on. So nodes must have different names.
//
// The errors are of kind Invalid for bad arguments, Conflict for a lease that another node has
// ([ErrHeld]) or that is no longer this one ([ErrFenced]), NotFound, and those of a [Store]. An
// error that holds [state.ErrUnknown] does not say whether it happened: all methods may be repeated.
type Leases struct {
	s   *Store
	now func() time.Time // this process's clock
}

// Leases returns the leases in the store's database.
func (s *Store) Leases() *Leases { return &Leases{s: s, now: time.Now} }

// Lease is one node's ownership of a sandbox.
type Lease struct {
	Sandbox carrel.ID
	Node    string
	Token   int64
	Expires time.Time     // by the server's clock
	Left    time.Duration // until then, when the server answered; 0 or less is expired
	// Until is when the lease's own node must stop to act as the owner, by this process's clock. It
	// counts from before the request, so the server's time is never earlier. It is zero in a lease
	// that was only read.
	Until time.Time
}

// Fence returns the fence for writes of the lease's owner.
func (l Lease) Fence() Fence { return Fence{Sandbox: l.Sandbox, Token: l.Token} }

// Fence is a condition of a write: the sandbox's lease has this token.
type Fence struct {
	Sandbox carrel.ID
	Token   int64
}

// The reasons of errors of kind Conflict.
var (
	ErrFenced = errors.New("the lease is no longer the owner's")
	ErrHeld   = errors.New("another node has the lease")
)

// maxLease bounds the time of a lease.
const maxLease = 24 * time.Hour

// leaseLock is the class of the advisory locks of single leases. A token is drawn under such a lock,
// so that a lease never gets a lower one than it had.
const leaseLock int32 = 0x6c65_6173 // "leas"

// The statements of leases. The fields of a lease are the same in all.
const (
	leaseFields  = `sandbox, node, token, expires, (extract(epoch FROM expires - clock_timestamp()) * 1000000)::bigint`
	acquireLease = `INSERT INTO leases AS l (sandbox, node, token, expires)
		VALUES ($1, $2, nextval('lease_tokens'), clock_timestamp() + $3::bigint * interval '1 microsecond')
		ON CONFLICT (sandbox) DO UPDATE SET node = excluded.node, token = excluded.token, expires = excluded.expires
		WHERE l.node = excluded.node OR l.expires <= clock_timestamp()`
	renewLease = `UPDATE leases SET expires = clock_timestamp() + $3::bigint * interval '1 microsecond'
		WHERE sandbox = $1 AND token = $2`
	releaseLease = `DELETE FROM leases WHERE sandbox = $1 AND token = $2`
	readLease    = `SELECT ` + leaseFields + ` FROM leases WHERE sandbox = $1`
	listExpired  = `SELECT ` + leaseFields + ` FROM leases WHERE expires <= clock_timestamp() ORDER BY expires, sandbox LIMIT $1`
	// The lock lasts until the write's transaction ends. So no other node acquires the lease between
	// the check and the write.
	checkFence = `SELECT token FROM leases WHERE sandbox = $1 FOR SHARE`
)

// Acquire makes a node the owner of a sandbox for the time ttl. It fails with [ErrHeld] while
// another node has the lease; the error's RetryAfter is the time that this one has left.
func (l *Leases) Acquire(ctx context.Context, sandbox carrel.ID, node string, ttl time.Duration) (Lease, error) {
	const op = "acquire lease"
	if err := checkLease(op, sandbox, node, ttl); err != nil {
		return Lease{}, err
	}
	id := key(string(sandbox))
	got, start, done, err := l.change(ctx, op, sandbox, acquireLease, id, key(node), ttl.Microseconds())
	switch {
	case err != nil:
		return Lease{}, err
	case got == nil:
		return Lease{}, &carrel.Error{Op: op, Kind: carrel.Conflict, ID: sandbox, Err: ErrFenced}
	case !done:
		return Lease{}, &carrel.Error{Op: op, Kind: carrel.Conflict, ID: sandbox,
			Err:        fmt.Errorf("%w: %s, for %v", ErrHeld, got.Node, got.Left.Round(time.Millisecond)),
			RetryAfter: max(got.Left, time.Millisecond), Hint: "the node's lease ends when it is released or not renewed"}
	}
	got.Until = start.Add(ttl)
	return *got, nil
}

// Renew lets a lease end ttl from now. It fails with [ErrFenced] if the lease was released, or
// acquired again.
func (l *Leases) Renew(ctx context.Context, lease Lease, ttl time.Duration) (Lease, error) {
	const op = "renew lease"
	if err := checkLease(op, lease.Sandbox, lease.Node, ttl); err != nil {
		return Lease{}, err
	}
	got, start, done, err := l.change(ctx, op, lease.Sandbox, renewLease, key(string(lease.Sandbox)), lease.Token, ttl.Microseconds())
	if err != nil {
		return Lease{}, err
	}
	if !done || got == nil {
		return Lease{}, fenced(op, lease.Sandbox, lease.Token, got)
	}
	got.Until = start.Add(ttl)
	return *got, nil
}

// Release ends a lease. It is no error if the lease is gone already. If another node has one by now,
// that one stays and the error is [ErrFenced].
func (l *Leases) Release(ctx context.Context, lease Lease) error {
	const op = "release lease"
	got, _, _, err := l.change(ctx, op, lease.Sandbox, releaseLease, key(string(lease.Sandbox)), lease.Token)
	if err != nil {
		return err
	}
	if got != nil {
		return fenced(op, lease.Sandbox, lease.Token, got)
	}
	return nil
}

// Get returns a sandbox's lease, also an expired one.
func (l *Leases) Get(ctx context.Context, sandbox carrel.ID) (Lease, error) {
	const op = "read lease"
	list, err := l.list(ctx, op, sandbox, readLease, key(string(sandbox)))
	if err != nil {
		return Lease{}, err
	}
	if len(list) == 0 {
		return Lease{}, &carrel.Error{Op: op, Kind: carrel.NotFound, ID: sandbox}
	}
	return list[0], nil
}

// ListExpired returns at most limit leases that have expired, the oldest first; 0 is 1000.
func (l *Leases) ListExpired(ctx context.Context, limit int) ([]Lease, error) {
	if limit <= 0 {
		limit = defaultLimit
	}
	return l.list(ctx, "read expired leases", "", listExpired, limit)
}

// Apply is [Store.Apply] for the owner of sandboxes: the change happens only if each fence holds. An
// old one is [ErrFenced].
func (l *Leases) Apply(ctx context.Context, c state.Change, fences ...Fence) error {
	return l.s.apply(ctx, c, fences)
}

// list reads leases.
func (l *Leases) list(ctx context.Context, op string, id carrel.ID, q string, arg any) (list []Lease, err error) {
	err = l.s.look(ctx, op, id, func(ctx context.Context, c *pgxpool.Conn) error {
		rows, err := c.Query(ctx, q, arg)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, scanLease)
		return err
	})
	return list, err
}

// change carries out a statement on one sandbox's lease, and reads the lease after it; nil is none.
// done says that the statement changed it. start is this process's time before the request that
// did it.
//
// The three statements are one request and one transaction. All of them may be repeated: what a
// lost answer did, the repetition does again.
func (l *Leases) change(ctx context.Context, op string, sandbox carrel.ID, q string, args ...any) (got *Lease, start time.Time, done bool, err error) {
	lost := false
	id := key(string(sandbox))
	err = l.s.look(ctx, op, sandbox, func(ctx context.Context, c *pgxpool.Conn) error {
		start, got, done = l.now(), nil, false
		b := &pgx.Batch{}
		b.Queue("SELECT pg_advisory_xact_lock($1, $2)", leaseLock, lockNumber(id))
		b.Queue(q, args...)
		b.Queue(readLease, id)
		err := func() (err error) {
			results := c.SendBatch(ctx, b)
			defer func() { err = errors.Join(err, results.Close()) }()
			if _, err := results.Exec(); err != nil {
				return err
			}
			tag, err := results.Exec()
			if err != nil {
				return err
			}
			done = tag.RowsAffected() == 1
			rows, err := results.Query()
			if err != nil {
				return err
			}
			list, err := pgx.CollectRows(rows, scanLease)
			if err == nil && len(list) == 1 {
				got = &list[0]
			}
			return err
		}()
		lost = lost || err != nil && (codeOf(err) == "" || classOf(codeOf(err)) == classOperator)
		return err
	})
	if err != nil && lost {
		err = &carrel.Error{Op: op, ID: sandbox, Kind: carrel.KindOf(err), Hint: carrel.HintOf(err),
			Err: fmt.Errorf("%w: %w", state.ErrUnknown, err)}
	}
	return got, start, done, err
}

// scanLease reads the fields of a lease.
func scanLease(row pgx.CollectableRow) (l Lease, err error) {
	var sandbox, node []byte
	var left int64
	err = row.Scan(&sandbox, &node, &l.Token, &l.Expires, &left)
	l.Sandbox, l.Node, l.Left = carrel.ID(sandbox), string(node), time.Duration(left)*time.Microsecond
	return l, err
}

// checkLease checks the arguments of a lease.
func checkLease(op string, sandbox carrel.ID, node string, ttl time.Duration) error {
	invalid := func(field, what string) error {
		return &carrel.Error{Op: op, Kind: carrel.Invalid, ID: sandbox, Field: field, Err: errors.New(what)}
	}
	switch {
	case sandbox == "" || len(sandbox) > longest:
		return invalid("sandbox", "a lease is for one sandbox")
	case node == "" || len(node) > longest:
		return invalid("node", "a lease is for one node")
	case ttl < time.Millisecond || ttl > maxLease:
		return invalid("ttl", fmt.Sprintf("%v: a lease lasts 1ms to %v", ttl, maxLease))
	}
	return nil
}

// lockNumber is the number of a sandbox's advisory lock. Two sandboxes may share one: they wait for
// each other then, and nothing else.
func lockNumber(id []byte) int32 {
	h := fnv.New32a()
	_, _ = h.Write(id) // it has no errors
	return int32(h.Sum32())
}

// against returns nil if the sandbox's lease has the fence's token. A token of 0 is no lease.
func (f Fence) against(token int64) error {
	switch {
	case token == 0:
		return fenced("check lease", f.Sandbox, f.Token, nil)
	case token != f.Token:
		return fenced("check lease", f.Sandbox, f.Token, &Lease{Token: token})
	}
	return nil
}

// fenced is the error for a token that is not the lease's. now is the lease, or nil.
func fenced(op string, sandbox carrel.ID, token int64, now *Lease) error {
	err := fmt.Errorf("%w: token %d, and there is no lease", ErrFenced, token)
	if now != nil {
		err = fmt.Errorf("%w: token %d, and the lease has %d", ErrFenced, token, now.Token)
	}
	return &carrel.Error{Op: op, Kind: carrel.Conflict, ID: sandbox, Err: err,
		Hint: "another node may own the sandbox now: this one must not act for it any more"}
}
