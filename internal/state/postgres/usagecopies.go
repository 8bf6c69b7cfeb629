package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/carrel-dev/carrel/internal/fleet"
)

// keptDays is how long a machine's usage is kept.
const keptDays = 400

// PutUsageCopy implements fleet.Registry. Copies that are older than 400 days are dropped.
func (f Fleet) PutUsageCopy(ctx context.Context, c fleet.UsageCopy) error {
	return f.within(ctx, "copy usage", "", func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO usage_copies (public, day, node, at, report) VALUES ($1, $2, $3, clock_timestamp(), $4)
			ON CONFLICT (day, public) DO UPDATE SET node = excluded.node, at = excluded.at, report = excluded.report`,
			c.Public, c.Day.Unix(), key(c.Node), c.Report)
		if err == nil {
			_, err = tx.Exec(ctx, "DELETE FROM usage_copies WHERE day < $1", c.Day.AddDate(0, 0, -keptDays).Unix())
		}
		return err
	})
}

// UsageCopies implements fleet.Registry.
func (f Fleet) UsageCopies(ctx context.Context, from, to time.Time, whole bool) (list []fleet.UsageCopy, err error) {
	err = f.s.look(ctx, "read usage", "", func(ctx context.Context, c *pgxpool.Conn) error {
		rows, err := c.Query(ctx, `SELECT public, day, node, at, CASE WHEN $3 THEN report ELSE 'null' END FROM usage_copies
			WHERE day > $1 AND day < $2 ORDER BY day, public`, from.AddDate(0, 0, -1).Unix(), to.Unix(), whole)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (u fleet.UsageCopy, err error) {
			var node []byte
			var day int64
			err = row.Scan(&u.Public, &day, &node, &u.At, &u.Report)
			u.Day, u.Node = time.Unix(day, 0).UTC(), string(node)
			return u, err
		})
		return err
	})
	return list, err
}
