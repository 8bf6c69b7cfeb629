package postgres

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/fleet"
	"github.com/carrel-dev/carrel/internal/quota"
)

// Fleet is the [fleet.Registry] in a store's database. All methods may be repeated: what a lost
// answer did, the repetition does again or finds done.
type Fleet struct {
	s      *Store
	quotas func(project, key string) []quota.Bound
}

var _ fleet.Registry = Fleet{}

// Fleet returns the fleet in the store's database, with no quotas.
func (s *Store) Fleet() Fleet {
	return Fleet{s, func(string, string) []quota.Bound { return nil }}
}

// Under returns the fleet with quotas for sandboxes that run again.
func (f Fleet) Under(quotas func(project, key string) []quota.Bound) Fleet {
	return Fleet{f.s, quotas}
}

// The statements of a fleet.
const (
	leftOf     = `coalesce((extract(epoch FROM n.expires - clock_timestamp()) * 1000000)::bigint, 0)`
	nodeFields = `n.name, n.token, n.public, n.draining, n.body, ` + leftOf
	expiresIn  = `clock_timestamp() + $2::bigint * interval '1 microsecond'`

	readAuthority = `SELECT cert, key FROM authority`
	keepAuthority = `INSERT INTO authority (cert, key) VALUES ($1, $2) ON CONFLICT DO NOTHING`

	admitNode = `INSERT INTO nodes (name, token, public, expires, draining, body)
		VALUES ($1, nextval('lease_tokens'), $2, clock_timestamp(), false, '{}') ON CONFLICT DO NOTHING`
	publicOf = `SELECT public FROM nodes WHERE name = $1`
	ownerOf  = `SELECT public, token, expires <= clock_timestamp() FROM nodes WHERE name = $1 FOR UPDATE`
	leave    = `UPDATE homes SET node = $2 WHERE node = $1`
	// A name that is drained stays so.
	passName = `UPDATE nodes SET public = $2, token = nextval('lease_tokens'), expires = clock_timestamp(), body = '{}'
		WHERE name = $1`
	enrollNode = `UPDATE nodes n SET token = nextval('lease_tokens'), expires = ` + expiresIn + `, body = $4
		WHERE name = $1 AND public = $3 RETURNING ` + nodeFields
	renewNode = `UPDATE nodes n SET expires = ` + expiresIn + ` 
		WHERE name = $1 AND token = $3 AND ($4::bytea IS NULL OR public = $4) RETURNING ` + nodeFields
	listNodes = `SELECT ` + nodeFields + ` FROM nodes n ORDER BY name`
	drainNode = `UPDATE nodes SET draining = $2 WHERE name = $1`
	lockNode  = `SELECT n.expires <= clock_timestamp(), (SELECT count(*) FROM homes WHERE node = n.name)
		FROM nodes n WHERE name = $1 FOR UPDATE`
	dropHomes  = `DELETE FROM homes WHERE node = $1 OR (node > $2 AND node < $3)`
	removeNode = `DELETE FROM nodes WHERE name = $1`

	// The lock keeps the node's name, not its lease: a claim does not wait for a renewal.
	isMember = `SELECT token = $2 AND expires > clock_timestamp() AND ($3::bytea IS NULL OR public = $3)
		FROM nodes WHERE name = $1 FOR KEY SHARE`
	loadOf  = `h.key, h.sandboxes, h.vcpus, h.memory, h.disk, `
	homeRow = `SELECT h.sandbox, h.project, h.node, h.token, h.state, h.passport, ` + loadOf + leftOf + `
		FROM homes h LEFT JOIN nodes n ON n.name = h.node WHERE h.sandbox = $1`
	listHomes = `SELECT h.sandbox, h.project, h.node, h.token, h.state, NULL::bytea, ` + loadOf + leftOf + `
		FROM homes h LEFT JOIN nodes n ON n.name = h.node WHERE h.node = $1 ORDER BY h.sandbox`
	// It claims nothing if the membership has ended. Only a new stay makes what is paused run: a claim
	// that says so was on its way for too long.
	claimHome = `WITH member AS (SELECT FROM nodes WHERE name = $3 AND token = $6 AND expires > clock_timestamp()
			AND ($7::bytea IS NULL OR public = $7) FOR KEY SHARE)
		INSERT INTO homes AS h (sandbox, project, node, token, state, key, repeat, sandboxes, vcpus, memory, disk, counts)
		SELECT $1::bytea, $2::bytea, $3::bytea, nextval('lease_tokens'), $4, $9::bytea, $10::bytea, $11::bigint, $12::bigint, $13::bigint, $14::bigint,
			CASE WHEN $8::boolean THEN '-infinity' ELSE clock_timestamp() + $15::bigint * interval '1 microsecond' END FROM member
		ON CONFLICT (sandbox) DO UPDATE SET
			state = CASE WHEN ` + mayChange + ` THEN excluded.state ELSE h.state END,
			passport = CASE WHEN ` + mayChange + ` THEN NULL ELSE h.passport END,
			key = CASE WHEN $8 THEN excluded.key ELSE h.key END,
			repeat = CASE WHEN $8 THEN excluded.repeat ELSE h.repeat END,
			counts = CASE WHEN $8 THEN '-infinity' ELSE h.counts END,
			sandboxes = CASE WHEN $16 THEN excluded.sandboxes ELSE h.sandboxes END,
			vcpus = CASE WHEN $16 THEN excluded.vcpus ELSE h.vcpus END,
			memory = CASE WHEN $16 THEN excluded.memory ELSE h.memory END,
			disk = CASE WHEN $16 THEN excluded.disk ELSE h.disk END
		WHERE h.node = excluded.node AND (` + mayChange + ` OR $8
			OR $16::boolean AND (h.sandboxes, h.vcpus, h.memory, h.disk) IS DISTINCT FROM ($11::bigint, $12::bigint, $13::bigint, $14::bigint))`
	mayChange = `(h.state <> excluded.state AND h.state NOT IN ('ended', 'moving') AND h.token = $5
			AND NOT (h.state = 'paused' AND excluded.state = 'running'))`
	beginHome = `UPDATE homes SET state = 'running', passport = NULL, token = nextval('lease_tokens'), kept = '-infinity'
		WHERE sandbox = $1 AND node = $2 AND state <> 'ended'`
	publishHome = `UPDATE homes SET passport = $3, state = CASE WHEN $4 THEN 'paused' ELSE state END
		WHERE sandbox = $1 AND node = $2 AND token = $5`
	endHomes = `DELETE FROM homes WHERE sandbox = ANY ($1) AND node = $2
		AND ($3::bytea IS NULL OR EXISTS (SELECT FROM nodes WHERE name = $2 AND public = $3))`

	// The node's row is locked against a renewal. A node that renews late finds the move done.
	lockHome = `SELECT h.token, h.state, h.passport IS NOT NULL, h.node FROM homes h WHERE h.sandbox = $1 FOR UPDATE`
	isDead   = `SELECT expires <= clock_timestamp() FROM nodes WHERE name = $1 FOR SHARE`
	moveHome = `UPDATE homes SET node = $2, token = nextval('lease_tokens'), state = 'moving' WHERE sandbox = $1`
	arrived  = `UPDATE homes SET state = 'paused' WHERE sandbox = $1 AND token = $2 AND state = 'moving'`
	killHome = `UPDATE homes SET state = 'ended', passport = NULL, token = nextval('lease_tokens') WHERE sandbox = $1`
	// Nobody can bring back what ran on a machine whose name another one has. Its owner has some days to
	// read that it is lost.
	buryHomes = `DELETE FROM homes WHERE node >= '~' AND (state = 'ended'
		OR state = 'lost' AND passport IS NULL AND lost < clock_timestamp() - interval '7 days')`
	// Names from ~ on are no node's.
	loseHome = `WITH dead AS (SELECT name FROM nodes WHERE expires <= clock_timestamp() FOR SHARE),
		gone AS (SELECT name FROM dead UNION SELECT node FROM homes WHERE node >= '~' AND state = 'running')
		UPDATE homes h SET state = 'lost', lost = clock_timestamp(), kept = CASE WHEN h.passport IS NULL THEN '-infinity'
			ELSE clock_timestamp() + interval '2 minutes' END FROM gone WHERE h.node = gone.name AND h.state = 'running'
		RETURNING h.sandbox, h.project, h.node, h.token, h.state, NULL::bytea, ` + loadOf + `0::bigint`
)

// nodeBody is the part of a node that only programs read.
type nodeBody struct {
	URL, Key string
	Version  string   `json:",omitempty"`
	Taints   []string `json:",omitempty"`
}

// Authority implements fleet.Registry.
func (f Fleet) Authority(ctx context.Context, first fleet.Authority) (got fleet.Authority, err error) {
	err = f.within(ctx, "read authority", "", func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, keepAuthority, first.Cert, first.Key); err != nil {
			return err
		}
		return tx.QueryRow(ctx, readAuthority).Scan(&got.Cert, &got.Key)
	})
	return got, err
}

// Admit implements fleet.Registry.
func (f Fleet) Admit(ctx context.Context, name string, public []byte) error {
	const op = "admit node"
	return f.within(ctx, op, "", func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, admitNode, key(name), public); err != nil {
			return err
		}
		var has []byte
		var token int64
		var expired bool
		err := tx.QueryRow(ctx, ownerOf, key(name)).Scan(&has, &token, &expired)
		switch {
		case err != nil:
			return err
		case bytes.Equal(has, public):
			return nil
		case !expired:
			return held(op, name)
		}
		if _, err := tx.Exec(ctx, leave, key(name), key(fleet.Departed(name, token))); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, passName, key(name), public)
		return err
	})
}

// held is the error for a name that is another machine's.
func held(op, name string) error {
	return &carrel.Error{Op: op, Kind: carrel.Conflict, Field: "name",
		Err:  fmt.Errorf("%w: the name %s belongs to a machine with another key", fleet.ErrHeld, name),
		Hint: "give this node another name; it can have this one when the other machine's lease has expired"}
}

// checkPublic returns an error unless a node has this public key.
func (f Fleet) checkPublic(ctx context.Context, tx pgx.Tx, op, name string, public []byte) error {
	var has []byte
	switch err := tx.QueryRow(ctx, publicOf, key(name)).Scan(&has); {
	case errors.Is(err, pgx.ErrNoRows):
		return noNode(op, name)
	case err != nil:
		return err
	case !bytes.Equal(has, public):
		return held(op, name)
	}
	return nil
}

// Enroll implements fleet.Registry.
func (f Fleet) Enroll(ctx context.Context, n fleet.Node, lease time.Duration) (fleet.Node, error) {
	const op = "enroll node"
	body, err := json.Marshal(nodeBody{URL: n.URL, Key: n.Key, Version: n.Version, Taints: n.Taints})
	if err != nil {
		return fleet.Node{}, internal(op, "", err)
	}
	var got fleet.Node
	err = f.within(ctx, op, "", func(ctx context.Context, tx pgx.Tx) error {
		if err := f.checkPublic(ctx, tx, op, n.Name, n.Public); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, enrollNode, key(n.Name), lease.Microseconds(), n.Public, body)
		if err != nil {
			return err
		}
		got, err = pgx.CollectExactlyOneRow(rows, scanNode)
		return err
	})
	return got, err
}

// Renew implements fleet.Registry.
func (f Fleet) Renew(ctx context.Context, m fleet.Member, lease time.Duration) (fleet.Node, error) {
	const op = "renew membership"
	got, found, err := f.node(ctx, op, renewNode, key(m.Name), lease.Microseconds(), m.Token, m.Public)
	if err == nil && !found {
		err = notMember(op, "", m)
	}
	return got, err
}

// Nodes implements fleet.Registry.
func (f Fleet) Nodes(ctx context.Context) (list []fleet.Node, err error) {
	err = f.s.look(ctx, "list nodes", "", func(ctx context.Context, c *pgxpool.Conn) error {
		rows, err := c.Query(ctx, listNodes)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, scanNode)
		return err
	})
	return list, err
}

// Drain implements fleet.Registry.
func (f Fleet) Drain(ctx context.Context, name string, draining bool) error {
	const op = "drain node"
	return f.within(ctx, op, "", func(ctx context.Context, tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, drainNode, key(name), draining)
		if err == nil && tag.RowsAffected() == 0 {
			err = noNode(op, name)
		}
		return err
	})
}

// Remove implements fleet.Registry.
func (f Fleet) Remove(ctx context.Context, name string, force bool) error {
	const op = "remove node"
	return f.within(ctx, op, "", func(ctx context.Context, tx pgx.Tx) error {
		var expired bool
		var homes int
		err := tx.QueryRow(ctx, lockNode, key(name)).Scan(&expired, &homes)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return noNode(op, name)
		case err != nil:
			return err
		case !expired:
			return &carrel.Error{Op: op, Kind: carrel.Conflict, Field: "name",
				Err:  fmt.Errorf("%w: node %s is alive", fleet.ErrHeld, name),
				Hint: "drain it and stop its daemon first"}
		case homes > 0 && !force:
			return &carrel.Error{Op: op, Kind: carrel.Conflict, Field: "name",
				Err:  fmt.Errorf("%w: node %s is the home of %d sandboxes", fleet.ErrHeld, name, homes),
				Hint: "start it again and drain it; --force gives its sandboxes up"}
		}
		if _, err := tx.Exec(ctx, dropHomes, key(name), key("~"+name+"~"), key("~"+name+"\x7f")); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, removeNode, key(name))
		return err
	})
}

// Claim implements fleet.Registry. It is one request: a creation waits for it.
func (f Fleet) Claim(ctx context.Context, m fleet.Member, homes ...fleet.Home) (list []fleet.Home, err error) {
	const op = "claim sandboxes"
	good := false
	err = f.s.look(ctx, op, "", func(ctx context.Context, c *pgxpool.Conn) error {
		list, good = nil, false
		b := &pgx.Batch{} // a transaction by itself
		b.Queue(isMember, key(m.Name), m.Token, m.Public).QueryRow(func(row pgx.Row) error {
			err := row.Scan(&good)
			if errors.Is(err, pgx.ErrNoRows) {
				err = nil
			}
			return err
		})
		for _, h := range homes {
			id := key(string(h.Sandbox))
			born := fleet.Born{}
			if h.Born != nil {
				born = *h.Born
			}
			load, known := h.Load, h.Load != quota.Load{}
			if !known { // the node's build is older
				load.Sandboxes = quota.One
			}
			b.Queue(claimHome, id, key(h.Project), key(m.Name), string(h.State), h.Token, m.Token, m.Public, h.Born != nil,
				key(born.Key), key(born.Repeat), load.Sandboxes, load.VCPUs, load.Memory, load.Disk, fleet.BornWithin.Microseconds(), known)
			if len(born.Shares) > 0 {
				b.Queue(spendShares, born.Shares, id)
			}
			b.Queue(homeRow, id).QueryRow(func(row pgx.Row) error {
				got, err := scanHome(row)
				if errors.Is(err, pgx.ErrNoRows) && !good {
					return nil
				}
				list = append(list, got)
				return err
			})
		}
		return c.SendBatch(ctx, b).Close()
	})
	if err == nil && !good {
		return nil, notMember(op, "", m)
	}
	return list, err
}

// Begin implements fleet.Registry.
func (f Fleet) Begin(ctx context.Context, m fleet.Member, id carrel.ID) (h fleet.Home, err error) {
	const op = "begin to run"
	err = f.as(ctx, op, id, m, func(ctx context.Context, tx pgx.Tx) error {
		if err := f.mayBegin(ctx, tx, id); err != nil {
			return err
		}
		if err := f.changeHome(ctx, tx, op, m, id, beginHome, key(string(id)), key(m.Name)); err != nil {
			return err
		}
		h, err = scanHome(tx.QueryRow(ctx, homeRow, key(string(id))))
		return err
	})
	return h, err
}

// Publish implements fleet.Registry.
func (f Fleet) Publish(ctx context.Context, m fleet.Member, id carrel.ID, stay int64, passport []byte,
	paused bool) error {
	const op = "publish sandbox"
	return f.as(ctx, op, id, m, func(ctx context.Context, tx pgx.Tx) error {
		return f.changeHome(ctx, tx, op, m, id, publishHome, key(string(id)), key(m.Name), passport, paused, stay)
	})
}

// End implements fleet.Registry. It needs no lease: what has ended is no life.
func (f Fleet) End(ctx context.Context, m fleet.Member, ids ...carrel.ID) error {
	keys := make([][]byte, len(ids))
	for i, id := range ids {
		keys[i] = key(string(id))
	}
	return f.within(ctx, "end sandboxes", "", func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, endHomes, keys, key(m.Name), m.Public)
		return err
	})
}

// Home implements fleet.Registry.
func (f Fleet) Home(ctx context.Context, id carrel.ID) (h fleet.Home, err error) {
	const op = "find sandbox"
	missing := false
	err = f.s.look(ctx, op, id, func(ctx context.Context, c *pgxpool.Conn) (err error) {
		if h, err = scanHome(c.QueryRow(ctx, homeRow, key(string(id)))); errors.Is(err, pgx.ErrNoRows) {
			missing, err = true, nil
		}
		return err
	})
	if err == nil && missing {
		err = &carrel.Error{Op: op, Kind: carrel.NotFound, ID: id}
	}
	return h, err
}

// Homes implements fleet.Registry.
func (f Fleet) Homes(ctx context.Context, node string) (list []fleet.Home, err error) {
	err = f.s.look(ctx, "list sandboxes", "", func(ctx context.Context, c *pgxpool.Conn) error {
		rows, err := c.Query(ctx, listHomes, key(node))
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (fleet.Home, error) { return scanHome(row) })
		return err
	})
	return list, err
}

// Move implements fleet.Registry.
func (f Fleet) Move(ctx context.Context, id carrel.ID, stay int64, to fleet.Member) (h fleet.Home, err error) {
	const op = "move sandbox"
	tried := false
	err = f.as(ctx, op, id, to, func(ctx context.Context, tx pgx.Tx) error {
		if err := mayMove(ctx, tx, op, id, stay, to, tried); err != nil {
			return err
		}
		tried = true
		if _, err := tx.Exec(ctx, moveHome, key(string(id)), key(to.Name)); err != nil {
			return err
		}
		h, err = scanHome(tx.QueryRow(ctx, homeRow, key(string(id))))
		return err
	})
	return h, err
}

// mayMove locks a home, and says why it may not move. tried says that an earlier try may have moved
// it: nobody else can have taken it to the same node meanwhile but to the same effect.
func mayMove(ctx context.Context, tx pgx.Tx, op string, id carrel.ID, stay int64, to fleet.Member, tried bool) error {
	h, err := lockedHome(ctx, tx, op, id)
	switch {
	case err != nil:
		return err
	case h.token != stay && (!tried || !bytes.Equal(h.node, key(to.Name))):
		return &carrel.Error{Op: op, Kind: carrel.Conflict, ID: id,
			Err: fmt.Errorf("%w: its stay %d has ended, it lives on node %s", fleet.ErrFenced, stay, h.node)}
	case h.state == fleet.Ended:
		return &carrel.Error{Op: op, Kind: carrel.NotFound, ID: id}
	case !h.packed:
		return &carrel.Error{Op: op, Kind: carrel.Conflict, ID: id, Field: "passport",
			Err:  fmt.Errorf("%w: node %s has not put its state in the shared store", fleet.ErrHeld, h.node),
			Hint: "it can move when it has been paused, or after a checkpoint"}
	case h.state == fleet.Paused, h.state == fleet.Moving:
		return nil
	}
	return mustBeDead(ctx, tx, op, id, h.node)
}

// locked is what decides whether a home may change.
type locked struct {
	token  int64
	state  fleet.State
	packed bool // it has a passport
	node   []byte
}

// lockedHome reads a home and locks it until the transaction ends. Error: NotFound.
func lockedHome(ctx context.Context, tx pgx.Tx, op string, id carrel.ID) (h locked, err error) {
	err = tx.QueryRow(ctx, lockHome, key(string(id))).Scan(&h.token, &h.state, &h.packed, &h.node)
	if errors.Is(err, pgx.ErrNoRows) {
		err = &carrel.Error{Op: op, Kind: carrel.NotFound, ID: id}
	}
	return h, err
}

// mustBeDead returns an error unless a node's lease has expired. It locks the node's row against a
// renewal.
func mustBeDead(ctx context.Context, tx pgx.Tx, op string, id carrel.ID, node []byte) error {
	dead := true
	if err := tx.QueryRow(ctx, isDead, node).Scan(&dead); err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return err
	}
	if !dead {
		return &carrel.Error{Op: op, Kind: carrel.Conflict, ID: id,
			Err: fmt.Errorf("%w: it is on node %s, whose lease has not expired", fleet.ErrHeld, node)}
	}
	return nil
}

// Arrive implements fleet.Registry.
func (f Fleet) Arrive(ctx context.Context, id carrel.ID, stay int64) error {
	return f.within(ctx, "move sandbox", id, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, arrived, key(string(id)), stay)
		return err
	})
}

// Kill implements fleet.Registry.
func (f Fleet) Kill(ctx context.Context, id carrel.ID, stay int64) error {
	const op = "kill sandbox"
	return f.within(ctx, op, id, func(ctx context.Context, tx pgx.Tx) error {
		h, err := lockedHome(ctx, tx, op, id)
		switch {
		case err != nil:
			return err
		case h.state == fleet.Ended:
			return nil
		case h.token != stay:
			return &carrel.Error{Op: op, Kind: carrel.Conflict, ID: id, Err: fmt.Errorf("%w: its stay %d has ended", fleet.ErrFenced, stay)}
		}
		if err := mustBeDead(ctx, tx, op, id, h.node); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, killHome, key(string(id)))
		return err
	})
}

// Lose implements fleet.Registry.
func (f Fleet) Lose(ctx context.Context) (list []fleet.Home, err error) {
	if err := f.within(ctx, "add up quotas", "", tidyHeld); err != nil {
		return nil, err
	}
	err = f.within(ctx, "mark lost sandboxes", "", func(ctx context.Context, tx pgx.Tx) error {
		for _, q := range []string{tidyShares, buryHomes} {
			if _, err := tx.Exec(ctx, q); err != nil {
				return err
			}
		}
		rows, err := tx.Query(ctx, loseHome)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (fleet.Home, error) { return scanHome(row) })
		return err
	})
	return list, err
}

// node carries out a statement that returns a node's row, if there is one.
func (f Fleet) node(ctx context.Context, op, q string, args ...any) (n fleet.Node, found bool, err error) {
	err = f.within(ctx, op, "", func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, q, args...)
		if err != nil {
			return err
		}
		list, err := pgx.CollectRows(rows, scanNode)
		if found = len(list) == 1; found {
			n = list[0]
		}
		return err
	})
	return n, found, err
}

// changeHome carries out a change of a member's home. It must change one row.
func (f Fleet) changeHome(ctx context.Context, tx pgx.Tx, op string, m fleet.Member, id carrel.ID,
	q string, args ...any) error {
	tag, err := tx.Exec(ctx, q, args...)
	if err == nil && tag.RowsAffected() == 0 {
		err = &carrel.Error{Op: op, Kind: carrel.Conflict, ID: id,
			Err:  fmt.Errorf("%w: its home is not node %s, or its stay there has ended", fleet.ErrFenced, m.Name),
			Hint: "another node has it now, or it is gone: this one must not run it"}
	}
	return err
}

// as is within for a member whose lease has not expired.
func (f Fleet) as(ctx context.Context, op string, id carrel.ID, m fleet.Member,
	fn func(context.Context, pgx.Tx) error) error {
	return f.within(ctx, op, id, func(ctx context.Context, tx pgx.Tx) error {
		var good bool
		err := tx.QueryRow(ctx, isMember, key(m.Name), m.Token, m.Public).Scan(&good)
		switch {
		case errors.Is(err, pgx.ErrNoRows), err == nil && !good:
			return notMember(op, id, m)
		case err != nil:
			return err
		}
		return fn(ctx, tx)
	})
}

// within calls fn in a transaction, and again after passing errors.
func (f Fleet) within(ctx context.Context, op string, id carrel.ID, fn func(context.Context, pgx.Tx) error) error {
	return f.s.look(ctx, op, id, func(ctx context.Context, c *pgxpool.Conn) error {
		return pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error { return fn(ctx, tx) })
	})
}

func scanNode(row pgx.CollectableRow) (n fleet.Node, err error) {
	var name []byte
	var text string
	var left int64
	if err := row.Scan(&name, &n.Token, &n.Public, &n.Draining, &text, &left); err != nil {
		return n, err
	}
	var body nodeBody
	err = json.Unmarshal([]byte(text), &body)
	n.Name, n.Left = string(name), time.Duration(left)*time.Microsecond
	n.URL, n.Key, n.Version, n.Taints = body.URL, body.Key, body.Version, body.Taints
	return n, err
}

func scanHome(row pgx.Row) (h fleet.Home, err error) {
	var sandbox, project, node, by []byte
	var left int64
	l := &h.Load
	err = row.Scan(&sandbox, &project, &node, &h.Token, &h.State, &h.Passport, &by, &l.Sandboxes, &l.VCPUs, &l.Memory, &l.Disk, &left)
	h.Sandbox, h.Project, h.Node, h.Key = carrel.ID(sandbox), string(project), string(node), string(by)
	h.Left = time.Duration(left) * time.Microsecond
	return h, err
}

// notMember is the error for a membership that has ended.
func notMember(op string, id carrel.ID, m fleet.Member) error {
	return &carrel.Error{Op: op, Kind: carrel.Conflict, ID: id,
		Err:  fmt.Errorf("%w: membership %d of node %s has ended", fleet.ErrFenced, m.Token, m.Name),
		Hint: "the node joins anew by itself when it reaches a front"}
}

// noNode is the error for a name that no node has.
func noNode(op, name string) error {
	return &carrel.Error{Op: op, Kind: carrel.NotFound, Field: "name",
		Err: fmt.Errorf("there is no node %.80q", name), Hint: "carrel node ls lists them"}
}

// PeopleVersion is another number after each change of projects, keys, people, organisations and
// sessions, by any program.
func (s *Store) PeopleVersion(ctx context.Context) (n int64, err error) {
	err = s.look(ctx, "read version of people", "", func(ctx context.Context, c *pgxpool.Conn) error {
		return c.QueryRow(ctx, "SELECT number FROM people_version").Scan(&n)
	})
	return n, err
}

// PutSecret implements fleet.Registry.
func (f Fleet) PutSecret(ctx context.Context, s fleet.SealedSecret) error {
	return f.within(ctx, "keep secret", "", func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO secrets (project, name, sealed) VALUES ($1, $2, $3)
			ON CONFLICT (project, name) DO UPDATE SET sealed = excluded.sealed`, key(s.Project), key(s.Name), s.Sealed)
		return err
	})
}

// DropSecret implements fleet.Registry.
func (f Fleet) DropSecret(ctx context.Context, project, name string) error {
	return f.within(ctx, "forget secret", "", func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "DELETE FROM secrets WHERE project = $1 AND name = $2", key(project), key(name))
		return err
	})
}

// Secrets implements fleet.Registry.
func (f Fleet) Secrets(ctx context.Context) (list []fleet.SealedSecret, err error) {
	err = f.s.look(ctx, "read secrets", "", func(ctx context.Context, c *pgxpool.Conn) error {
		rows, err := c.Query(ctx, "SELECT project, name, sealed FROM secrets ORDER BY project, name")
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (s fleet.SealedSecret, err error) {
			var project, name []byte
			err = row.Scan(&project, &name, &s.Sealed)
			s.Project, s.Name = string(project), string(name)
			return s, err
		})
		return err
	})
	return list, err
}
