package postgres

import (
	"context"
	"errors"
	"hash/fnv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/fleet"
	"github.com/carrel-dev/carrel/internal/quota"
)

// The statements of quotas. Who checks a project's quotas holds that project's lock until the charge
// is committed. Each statement sees what was committed before it began, and so all charges that were
// made under the lock before.
const (
	// lockQuota has two numbers: the first one keeps it apart from other locks.
	lockQuota = `SELECT pg_advisory_xact_lock($1::int, $2::int)`
	// A sandbox that is to be left out does not run, so it is no part of the table held. The homes of a
	// project that is not metered are added up themselves.
	heldBy = `WITH t AS (SELECT clock_timestamp() AS now), held AS (
			SELECT key, sandboxes, vcpus, memory, disk FROM held WHERE project = $1
			UNION ALL
			SELECT key, sandboxes, vcpus, memory, disk FROM homes WHERE project = $1 AND state = 'running' AND counts = '-infinity'
				AND NOT EXISTS (SELECT FROM metered WHERE project = $1)
			UNION ALL
			SELECT h.key, h.sandboxes, h.vcpus, h.memory, h.disk FROM homes h, t
			WHERE h.project = $1 AND (h.kept > '-infinity' OR h.state = 'running' AND h.counts > '-infinity') AND h.sandbox <> $3
				AND NOT (h.state = 'running' AND h.counts = '-infinity')
				AND (h.state = 'running' AND h.counts <= t.now OR h.kept > t.now)
			UNION ALL
			SELECT s.key, s.sandboxes, s.vcpus, s.memory, s.disk FROM shares s, t
			WHERE s.project = $1 AND NOT s.done AND s.expires > t.now)
		SELECT coalesce(sum(sandboxes) FILTER (WHERE key = $2), 0)::bigint, coalesce(sum(vcpus) FILTER (WHERE key = $2), 0)::bigint,
			coalesce(sum(memory) FILTER (WHERE key = $2), 0)::bigint, coalesce(sum(disk) FILTER (WHERE key = $2), 0)::bigint,
			coalesce(sum(sandboxes) FILTER (WHERE key <> $2), 0)::bigint, coalesce(sum(vcpus) FILTER (WHERE key <> $2), 0)::bigint,
			coalesce(sum(memory) FILTER (WHERE key <> $2), 0)::bigint, coalesce(sum(disk) FILTER (WHERE key <> $2), 0)::bigint
		FROM held`
	begunBy = `SELECT s.key, (extract(epoch FROM clock_timestamp() - s.began) * 1000000)::bigint FROM shares s
		WHERE s.project = $1 AND s.creates > 0 AND s.began > clock_timestamp() - interval '1 minute'
			AND (s.done OR s.expires > clock_timestamp()) ORDER BY s.began`
	takeShares = `INSERT INTO shares (token, project, key, repeat, sandboxes, vcpus, memory, disk, creates, began, expires)
		SELECT nextval('lease_tokens'), $1, $2, $3, $4, $5, $6, $7, $8, clock_timestamp(),
			clock_timestamp() + $9::bigint * interval '1 microsecond' FROM generate_series(1, $10::int) RETURNING token`
	prolongShares = `UPDATE shares SET expires = clock_timestamp() + $2::bigint * interval '1 microsecond'
		WHERE token = ANY ($1) AND NOT done`
	dropShares = `DELETE FROM shares WHERE token = ANY ($1) AND NOT done`
	// A home that was refused took no share's place.
	spendShares = `UPDATE shares SET done = true WHERE token = ANY ($1) AND EXISTS (SELECT FROM homes WHERE sandbox = $2)`
	tidyShares  = `DELETE FROM shares WHERE began < clock_timestamp() - interval '2 minutes' AND (done OR expires < clock_timestamp())`
	// lockMeter fails while somebody changes a home of the project: triggers take the lock for sharing. So
	// the sum that comes after it has each home, and misses no change. It does not wait: in the queue for
	// the lock, others would wait behind it with locks that those need who have it.
	lockMeter = `SELECT pg_try_advisory_xact_lock($1::int, hashtext(encode($2, 'hex')))`
	meterOne  = `INSERT INTO metered VALUES ($1) ON CONFLICT DO NOTHING`
	meterSum  = `INSERT INTO held SELECT project, key, sum(sandboxes), sum(vcpus), sum(memory), sum(disk) FROM homes
		WHERE project = $1 AND state = 'running' AND counts = '-infinity' GROUP BY project, key`
	// lockHeld lets one front at a time add the rows of held up, and settle homes whose time has come.
	lockHeld    = `SELECT pg_try_advisory_xact_lock($1::int, 1)`
	settleHomes = `UPDATE homes SET counts = CASE WHEN counts <= clock_timestamp() THEN '-infinity' ELSE counts END,
			kept = CASE WHEN kept <= clock_timestamp() THEN '-infinity' ELSE kept END
		WHERE sandbox IN (SELECT sandbox FROM homes WHERE (kept > '-infinity' OR state = 'running' AND counts > '-infinity')
			AND (kept > '-infinity' AND kept <= clock_timestamp() OR state = 'running' AND counts > '-infinity' AND counts <= clock_timestamp())
			LIMIT 5000 FOR UPDATE SKIP LOCKED)`
	// Both parts see the same rows, and so does who adds them up meanwhile: the old ones or the new.
	addHeld = `WITH many AS (SELECT project, key FROM held GROUP BY project, key HAVING count(*) > 1 OR sum(sandboxes) = 0),
			gone AS (DELETE FROM held h USING many m WHERE h.project = m.project AND h.key = m.key
				RETURNING h.project, h.key, h.sandboxes, h.vcpus, h.memory, h.disk)
		INSERT INTO held SELECT project, key, sum(sandboxes), sum(vcpus), sum(memory), sum(disk) FROM gone GROUP BY project, key
			HAVING sum(sandboxes) <> 0 OR sum(vcpus) <> 0 OR sum(memory) <> 0 OR sum(disk) <> 0`
	// The same request is repeated for a day at most; its sandbox may have ended since.
	twinHome  = `SELECT sandbox FROM homes WHERE project = $1 AND repeat = $2 AND repeat <> ''`
	twinShare = `SELECT EXISTS (SELECT FROM shares WHERE project = $1 AND repeat = $2 AND NOT done AND expires > clock_timestamp())`
	toBegin   = `SELECT h.project, h.key, h.sandboxes, h.vcpus, h.memory, h.disk, h.state = 'running', h.kept > clock_timestamp()
		FROM homes h WHERE h.sandbox = $1 FOR UPDATE`
	keepHome = `UPDATE homes SET kept = clock_timestamp() + $2::bigint * interval '1 microsecond'
		WHERE sandbox = $1 AND state = 'running'`
)

// quotaClass is the first number of the locks of quotas: "quot".
const quotaClass int32 = 0x71756f74

// meterClass is the first number of the locks of metered projects: "metr". The trigger has it, too.
const meterClass int32 = 0x6d657472

// meter has the sum of what a project holds kept from now on, so that a check of its quotas costs the same
// for any number of sandboxes. A project without quotas is spared the rows for it. While the project is
// busy it does nothing: the check adds up the homes themselves, and the next one tries again.
func (f Fleet) meter(ctx context.Context, project string) error {
	if _, ok := f.s.metered.Load(project); ok {
		return nil
	}
	mine := false
	err := f.within(ctx, "meter project", "", func(ctx context.Context, tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, lockMeter, meterClass, key(project)).Scan(&mine); err != nil || !mine {
			return err
		}
		tag, err := tx.Exec(ctx, meterOne, key(project))
		if err == nil && tag.RowsAffected() > 0 {
			_, err = tx.Exec(ctx, meterSum, key(project))
		}
		return err
	})
	if err == nil && mine {
		f.s.metered.Store(project, true)
	}
	return err
}

// lockProject holds a project's lock until the transaction ends. Projects that share a number wait
// for each other, and nothing else.
func lockProject(ctx context.Context, tx pgx.Tx, project string) error {
	h := fnv.New32a()
	_, _ = h.Write([]byte(project)) // never fails
	_, err := tx.Exec(ctx, lockQuota, quotaClass, int32(h.Sum32()))
	return err
}

// bookOf returns a book of what a project and one of its keys hold, except one sandbox.
func bookOf(ctx context.Context, q querier, project, by string, but carrel.ID, creates bool) (*quota.Book, error) {
	var own, others quota.Load
	err := q.QueryRow(ctx, heldBy, key(project), key(by), key(string(but))).Scan(&own.Sandboxes, &own.VCPUs, &own.Memory, &own.Disk,
		&others.Sandboxes, &others.VCPUs, &others.Memory, &others.Disk)
	if err != nil {
		return nil, err
	}
	book := quota.NewBook()
	book.Put(&quota.Charge{}, project, by, own)
	book.Put(&quota.Charge{}, project, "", others)
	if !creates {
		return book, nil
	}
	rows, err := q.Query(ctx, begunBy, key(project))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	var of []byte
	var age int64
	_, err = pgx.ForEachRow(rows, []any{&of, &age}, func() error {
		begun := ""
		if string(of) == string(key(by)) {
			begun = by
		}
		book.Began(project, begun, now.Add(-time.Duration(age)*time.Microsecond))
		return nil
	})
	return book, err
}

// querier is a connection or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// countsCreates reports whether a quota bounds creations.
func countsCreates(bounds []quota.Bound) bool {
	for _, b := range bounds {
		_, hard := b.Quota.Hard[carrel.LimitCreates]
		_, soft := b.Quota.Soft[carrel.LimitCreates]
		if hard || soft {
			return true
		}
	}
	return false
}

// Take implements fleet.Shares.
func (f Fleet) Take(ctx context.Context, a fleet.Asked, bounds []quota.Bound) (got fleet.Taken, err error) {
	const op = "create sandbox"
	if err := f.meter(ctx, a.Project); err != nil {
		return fleet.Taken{}, err
	}
	err = f.within(ctx, op, "", func(ctx context.Context, tx pgx.Tx) error {
		got = fleet.Taken{}
		if err := lockProject(ctx, tx, a.Project); err != nil {
			return err
		}
		book, err := bookOf(ctx, tx, a.Project, a.Key, "", a.Creates > 0 && countsCreates(bounds))
		if err != nil {
			return err
		}
		n := carrel.Milli(a.Count)
		all := quota.Load{Sandboxes: n * a.Load.Sandboxes, VCPUs: n * a.Load.VCPUs, Memory: n * a.Load.Memory, Disk: n * a.Load.Disk}
		soft, hit, after := book.Take(&quota.Charge{}, bounds, a.Project, a.Key, all, a.Count*a.Creates, time.Now())
		if hit != nil {
			got.Refused = quota.Error(op, *hit, after)
			return f.twin(ctx, tx, a, &got)
		}
		got.Soft = soft
		rows, err := tx.Query(ctx, takeShares, key(a.Project), key(a.Key), key(a.Repeat), a.Load.Sandboxes, a.Load.VCPUs,
			a.Load.Memory, a.Load.Disk, a.Creates, fleet.ShareLife.Microseconds(), a.Count)
		if err != nil {
			return err
		}
		got.Shares, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		return err
	})
	return got, err
}

// twin finds the creation of which a refused one may be the repetition. Without one it returns the
// refusal.
func (f Fleet) twin(ctx context.Context, tx pgx.Tx, a fleet.Asked, got *fleet.Taken) error {
	if a.Repeat == "" {
		return got.Refused
	}
	rows, err := tx.Query(ctx, twinHome, key(a.Project), key(a.Repeat))
	if err != nil {
		return err
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
	if err != nil {
		return err
	}
	if len(ids) > 0 {
		got.Again, got.Twin = true, carrel.ID(ids[0])
		return nil
	}
	if err := tx.QueryRow(ctx, twinShare, key(a.Project), key(a.Repeat)).Scan(&got.Again); err != nil {
		return err
	}
	if !got.Again {
		return got.Refused
	}
	return nil
}

// Prolong implements fleet.Shares.
func (f Fleet) Prolong(ctx context.Context, shares ...int64) error {
	return f.within(ctx, "prolong shares", "", func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, prolongShares, shares, fleet.ShareLife.Microseconds())
		return err
	})
}

// Drop implements fleet.Shares.
func (f Fleet) Drop(ctx context.Context, shares ...int64) error {
	return f.within(ctx, "give shares back", "", func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, dropShares, shares)
		return err
	})
}

// Keep implements fleet.Shares.
func (f Fleet) Keep(ctx context.Context, id carrel.ID, life time.Duration) error {
	return f.within(ctx, "keep share", id, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, keepHome, key(string(id)), life.Microseconds())
		return err
	})
}

// Used implements fleet.Shares.
func (f Fleet) Used(ctx context.Context, h carrel.Holder) (out map[carrel.LimitName]carrel.Milli, err error) {
	err = f.within(ctx, "read quotas", "", func(ctx context.Context, tx pgx.Tx) error {
		book, err := bookOf(ctx, tx, h.Project, h.Key, "", true)
		if err == nil {
			out = book.Used(h, time.Now())
		}
		return err
	})
	return out, err
}

// mayBegin says whether the quotas have room for a sandbox that is to run again. Error: Exhausted. A
// home that runs already or is kept counts already; one that is missing is the caller's to refuse.
func (f Fleet) mayBegin(ctx context.Context, tx pgx.Tx, id carrel.ID) error {
	var project, by []byte
	var l quota.Load
	var runs, kept bool
	err := tx.QueryRow(ctx, toBegin, key(string(id))).Scan(&project, &by, &l.Sandboxes, &l.VCPUs, &l.Memory, &l.Disk, &runs, &kept)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil
	case err != nil:
		return err
	}
	bounds := f.quotas(string(project), string(by))
	if len(bounds) == 0 || runs || kept {
		return nil
	}
	if err := lockProject(ctx, tx, string(project)); err != nil {
		return err
	}
	book, err := bookOf(ctx, tx, string(project), string(by), id, false)
	if err != nil {
		return err
	}
	if hit, after := book.Check(bounds, l, 0, time.Now()); hit != nil {
		return quota.Error("resume sandbox", *hit, after)
	}
	return nil
}

// tidyHeld adds up what homes hold, and takes over homes whose time to count has come. Another front may
// do it just now.
func tidyHeld(ctx context.Context, tx pgx.Tx) error {
	var mine bool
	if err := tx.QueryRow(ctx, lockHeld, quotaClass).Scan(&mine); err != nil || !mine {
		return err
	}
	for _, q := range []string{settleHomes, addHeld} {
		if _, err := tx.Exec(ctx, q); err != nil {
			return err
		}
	}
	return nil
}
