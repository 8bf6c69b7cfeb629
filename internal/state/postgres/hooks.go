package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/fleet"
)

// dutyKey is the key of a duty's lease. No sandbox has such an ID.
func dutyKey(name string) carrel.ID { return carrel.ID("~" + name) }

// TakeDuty implements fleet.Hooks.
func (f Fleet) TakeDuty(ctx context.Context, name, holder string, had fleet.Duty, life time.Duration) (fleet.Duty, error) {
	leases := f.s.Leases()
	var l Lease
	var err error
	if had.Token == 0 {
		l, err = leases.Acquire(ctx, dutyKey(name), holder, life)
	} else {
		l, err = leases.Renew(ctx, Lease{Sandbox: dutyKey(name), Node: holder, Token: had.Token}, life)
	}
	if err != nil {
		return fleet.Duty{}, ofFleet(err)
	}
	return fleet.Duty{Name: name, Holder: holder, Token: l.Token, Until: l.Until}, nil
}

// ofFleet turns the errors of leases into those of a fleet.
func ofFleet(err error) error {
	switch {
	case errors.Is(err, ErrHeld):
		return &carrel.Error{Op: "take duty", Kind: carrel.Conflict, RetryAfter: carrel.RetryAfterOf(err), Err: fmt.Errorf("%w: %w", fleet.ErrHeld, err)}
	case errors.Is(err, ErrFenced):
		return &carrel.Error{Op: "take duty", Kind: carrel.Conflict, Err: fmt.Errorf("%w: %w", fleet.ErrFenced, err)}
	}
	return err
}

// LeaveDuty implements fleet.Hooks.
func (f Fleet) LeaveDuty(ctx context.Context, d fleet.Duty) error {
	return ofFleet(f.s.Leases().Release(ctx, Lease{Sandbox: dutyKey(d.Name), Node: d.Holder, Token: d.Token}))
}

// onDuty returns an error unless a front has a duty. Nobody else gets it until the transaction ends.
func onDuty(ctx context.Context, tx pgx.Tx, d fleet.Duty) error {
	var token int64
	err := tx.QueryRow(ctx, checkFence, key(string(dutyKey(d.Name)))).Scan(&token)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return err
	}
	return ofFleet(Fence{Sandbox: dutyKey(d.Name), Token: d.Token}.against(token))
}

// Source implements fleet.Hooks.
func (f Fleet) Source(ctx context.Context, public []byte) (s fleet.Source, err error) {
	s.Public = public
	err = f.within(ctx, "read events", "", func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `INSERT INTO event_sources (public, seq, since) VALUES ($1, 0, clock_timestamp()) ON CONFLICT DO NOTHING`, public); err != nil {
			return err
		}
		return tx.QueryRow(ctx, "SELECT seq, since FROM event_sources WHERE public = $1", public).Scan(&s.Seq, &s.Since)
	})
	return s, err
}

// Collect implements fleet.Hooks. The row of the events' number is locked last, as the writer does.
func (f Fleet) Collect(ctx context.Context, d fleet.Duty, public []byte, events []carrel.Event) error {
	const op = "collect events"
	if len(events) == 0 {
		return nil
	}
	b := &pgx.Batch{}
	for _, e := range events {
		body, err := json.Marshal(e)
		if err != nil {
			return internal(op, e.ID, err)
		}
		b.Queue(putEvent, stamp(e.Time), key(string(e.ID)), string(body))
	}
	first, last := events[0].Seq, events[len(events)-1].Seq
	return f.within(ctx, op, "", func(ctx context.Context, tx pgx.Tx) error {
		if err := onDuty(ctx, tx, d); err != nil {
			return err
		}
		// A repetition, after an answer that was lost, finds them there.
		tag, err := tx.Exec(ctx, "UPDATE event_sources SET seq = $2 WHERE public = $1 AND seq < $3", public, last, first)
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		return tx.SendBatch(ctx, b).Close()
	})
}

// hooksClass is the class of the lock that is held while webhooks are counted: "hook".
const hooksClass int32 = 0x686f6f6b

// AddHook implements fleet.Hooks.
func (f Fleet) AddHook(ctx context.Context, h fleet.Hook, perProject, all int) error {
	const op = "create webhook"
	return f.within(ctx, op, "", func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1::int, 0)", hooksClass); err != nil {
			return err
		}
		var own, any int
		var there bool
		err := tx.QueryRow(ctx, `SELECT count(*) FILTER (WHERE project = $1), count(*), coalesce(bool_or(id = $2), false) FROM webhooks`,
			key(h.Project), key(h.ID)).Scan(&own, &any, &there)
		switch {
		case err != nil || there: // an earlier try made it
			return err
		case own >= perProject || any >= all:
			return &carrel.Error{Op: op, Kind: carrel.Exhausted, Field: "webhooks",
				Err:  fmt.Errorf("the project has %d webhooks of at most %d, and all projects have %d of at most %d", own, perProject, any, all),
				Hint: "carrel webhook rm removes one"}
		}
		_, err = tx.Exec(ctx, `INSERT INTO webhooks (id, project, version, number, sealed) VALUES ($1, $2, nextval('lease_tokens'), nextval('lease_tokens'), $3)`,
			key(h.ID), key(h.Project), h.Sealed)
		return err
	})
}

// Hooks implements fleet.Hooks.
func (f Fleet) Hooks(ctx context.Context, project string, lines bool) (list []fleet.Hook, err error) {
	err = f.s.look(ctx, "read webhooks", "", func(ctx context.Context, c *pgxpool.Conn) error {
		// One statement, so that lines are those of the version.
		rows, err := c.Query(ctx, `SELECT w.id, w.project, w.version, w.sealed,
				CASE WHEN $2 THEN (SELECT array_agg(l.line ORDER BY l.number) FROM webhook_lines l WHERE l.webhook = w.id) END
			FROM webhooks w WHERE $1 = ''::bytea OR w.project = $1 ORDER BY w.number`, key(project), lines)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (h fleet.Hook, err error) {
			var id, of []byte
			err = row.Scan(&id, &of, &h.Version, &h.Sealed, &h.Lines)
			h.ID, h.Project = string(id), string(of)
			return h, err
		})
		return err
	})
	return list, err
}

// lockHook locks a webhook and checks that it has a version. Nobody adds lines to it meanwhile, so
// that their numbers are in the order of commits.
func lockHook(ctx context.Context, tx pgx.Tx, op string, h fleet.Hook) error {
	var version int64
	err := tx.QueryRow(ctx, "SELECT version FROM webhooks WHERE id = $1 FOR UPDATE", key(h.ID)).Scan(&version)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return noHook(op, h.ID)
	case err != nil:
		return err
	case version != h.Version:
		return &carrel.Error{Op: op, Kind: carrel.Conflict, Err: fmt.Errorf("%w: the webhook was changed meanwhile", fleet.ErrFenced), Hint: "try again"}
	}
	return nil
}

func noHook(op, id string) error {
	return &carrel.Error{Op: op, Kind: carrel.NotFound, Err: fmt.Errorf("no webhook %.80q", id)}
}

// addLines adds lines to a locked webhook.
func addLines(ctx context.Context, tx pgx.Tx, id string, lines [][]byte) error {
	_, err := tx.Exec(ctx, `INSERT INTO webhook_lines (webhook, number, line)
		SELECT $1, (SELECT coalesce(max(number), 0) FROM webhook_lines WHERE webhook = $1) + n, line
		FROM unnest($2::bytea[]) WITH ORDINALITY AS t (line, n)`, key(id), lines)
	return err
}

// ChangeHook implements fleet.Hooks.
func (f Fleet) ChangeHook(ctx context.Context, h fleet.Hook, lines [][]byte) error {
	const op = "change webhook"
	return f.within(ctx, op, "", func(ctx context.Context, tx pgx.Tx) error {
		if err := lockHook(ctx, tx, op, h); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `UPDATE webhooks SET version = nextval('lease_tokens'), sealed = coalesce($2, sealed) WHERE id = $1`, key(h.ID), h.Sealed); err != nil {
			return err
		}
		return addLines(ctx, tx, h.ID, lines)
	})
}

// DropHook implements fleet.Hooks.
func (f Fleet) DropHook(ctx context.Context, id string) error {
	const op = "delete webhook"
	tried := false
	return f.within(ctx, op, "", func(ctx context.Context, tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, "DELETE FROM webhooks WHERE id = $1", key(id))
		if err == nil && tag.RowsAffected() == 0 && !tried {
			err = noHook(op, id)
		}
		tried = true
		return err
	})
}

// MayDeliver implements fleet.Hooks.
func (f Fleet) MayDeliver(ctx context.Context, d fleet.Duty, h fleet.Hook) error {
	const op = "deliver to webhook"
	good := false
	err := f.s.look(ctx, op, "", func(ctx context.Context, c *pgxpool.Conn) error {
		return c.QueryRow(ctx, `SELECT EXISTS (SELECT FROM leases WHERE sandbox = $1 AND token = $2 AND expires > clock_timestamp())
			AND EXISTS (SELECT FROM webhooks WHERE id = $3 AND version = $4)`, key(string(dutyKey(d.Name))), d.Token, key(h.ID), h.Version).Scan(&good)
	})
	if err == nil && !good {
		err = &carrel.Error{Op: op, Kind: carrel.Conflict, Err: fmt.Errorf("%w: another front delivers, or the webhook was changed", fleet.ErrFenced)}
	}
	return err
}

// Delivered implements fleet.Hooks.
func (f Fleet) Delivered(ctx context.Context, d fleet.Duty, h fleet.Hook, lines [][]byte, whole bool) error {
	const op = "record deliveries"
	return f.within(ctx, op, "", func(ctx context.Context, tx pgx.Tx) error {
		if err := onDuty(ctx, tx, d); err != nil {
			return err
		}
		if err := lockHook(ctx, tx, op, h); err != nil {
			if carrel.KindOf(err) == carrel.NotFound {
				err = &carrel.Error{Op: op, Kind: carrel.Conflict, Err: fmt.Errorf("%w: the webhook is gone", fleet.ErrFenced)}
			}
			return err
		}
		if whole {
			if _, err := tx.Exec(ctx, "DELETE FROM webhook_lines WHERE webhook = $1", key(h.ID)); err != nil {
				return err
			}
		}
		return addLines(ctx, tx, h.ID, lines)
	})
}
