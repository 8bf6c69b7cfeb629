package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/fleet"
)

// loginsClass is the class of the lock that is held while logins are counted: "logi".
const loginsClass int32 = 0x6c6f6769

// loginBody is the part of a login that only programs read.
type loginBody struct {
	Label, From string
	Interval    time.Duration
	Person      string `json:",omitempty"`
	Denied      bool   `json:",omitempty"`
}

// AddLogin implements fleet.Logins. A repetition, after an answer that was lost, finds it there.
func (f Fleet) AddLogin(ctx context.Context, l fleet.Login, most int) error {
	const op = "log in"
	body, err := json.Marshal(loginBody{l.Label, l.From, l.Interval, l.Person, l.Denied})
	if err != nil {
		return internal(op, "", err)
	}
	return f.within(ctx, op, "", func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1::int, 0)", loginsClass); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "DELETE FROM logins WHERE until <= clock_timestamp()"); err != nil {
			return err
		}
		var n int
		var mine, taken bool
		err := tx.QueryRow(ctx, `SELECT count(*), coalesce(bool_or(hash = $1), false), coalesce(bool_or(code = $2), false) FROM logins`,
			[]byte(l.Hash), []byte(l.Code)).Scan(&n, &mine, &taken)
		switch {
		case err != nil || mine:
			return err
		case taken:
			return &carrel.Error{Op: op, Kind: carrel.AlreadyExists, Err: errors.New("the code is in use")}
		case n >= most:
			return &carrel.Error{Op: op, Kind: carrel.Exhausted, Err: errors.New("too many command lines wait")}
		}
		_, err = tx.Exec(ctx, `INSERT INTO logins (hash, code, until, asked, body)
			VALUES ($1, $2, clock_timestamp() + $3::bigint * interval '1 microsecond', clock_timestamp() - interval '1 day', $4)`,
			[]byte(l.Hash), []byte(l.Code), l.Left.Microseconds(), string(body))
		return err
	})
}

// ChangeLogin implements fleet.Logins.
func (f Fleet) ChangeLogin(ctx context.Context, hash, code string, fn func(*fleet.Login) bool) error {
	const op = "log in"
	return f.within(ctx, op, "", func(ctx context.Context, tx pgx.Tx) error {
		column, value := "hash", hash
		if hash == "" {
			column, value = "code", code
		}
		var l fleet.Login
		var h, c []byte
		var left, quiet int64
		var text string
		err := tx.QueryRow(ctx, `SELECT hash, code, (extract(epoch FROM until - clock_timestamp()) * 1000000)::bigint,
			(extract(epoch FROM clock_timestamp() - asked) * 1000000)::bigint, body FROM logins WHERE `+column+` = $1 FOR UPDATE`, []byte(value)).
			Scan(&h, &c, &left, &quiet, &text)
		if errors.Is(err, pgx.ErrNoRows) {
			return &carrel.Error{Op: op, Kind: carrel.NotFound}
		}
		if err != nil {
			return err
		}
		var b loginBody
		if err := json.Unmarshal([]byte(text), &b); err != nil {
			return internal(op, "", err)
		}
		l = fleet.Login{Hash: string(h), Code: string(c), Label: b.Label, From: b.From, Interval: b.Interval, Person: b.Person, Denied: b.Denied,
			Left: time.Duration(left) * time.Microsecond, Quiet: time.Duration(quiet) * time.Microsecond}
		if !fn(&l) {
			_, err := tx.Exec(ctx, "DELETE FROM logins WHERE hash = $1", h)
			return err
		}
		body, err := json.Marshal(loginBody{l.Label, l.From, l.Interval, l.Person, l.Denied})
		if err != nil {
			return internal(op, "", err)
		}
		_, err = tx.Exec(ctx, `UPDATE logins SET body = $2, asked = CASE WHEN $3 THEN clock_timestamp() ELSE asked END WHERE hash = $1`, h, string(body), l.Asked)
		return err
	})
}
