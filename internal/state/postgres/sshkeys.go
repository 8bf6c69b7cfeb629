package postgres

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/carrel-dev/carrel"
)

// SSHKeys implements sshdoor.KeyStore.
func (f Fleet) SSHKeys(ctx context.Context) (list []carrel.SSHKey, err error) {
	err = f.s.look(ctx, "read SSH keys", "", func(ctx context.Context, c *pgxpool.Conn) error {
		rows, err := c.Query(ctx, "SELECT body FROM ssh_keys")
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, scanSSHKey)
		return err
	})
	return list, err
}

func scanSSHKey(row pgx.CollectableRow) (k carrel.SSHKey, err error) {
	var text string
	if err = row.Scan(&text); err == nil {
		err = json.Unmarshal([]byte(text), &k)
	}
	return k, err
}

// PutSSHKey implements sshdoor.KeyStore.
func (f Fleet) PutSSHKey(ctx context.Context, k carrel.SSHKey, most int) (old *carrel.SSHKey, err error) {
	const op = "add SSH key"
	body, err := json.Marshal(k)
	if err != nil {
		return nil, internal(op, "", err)
	}
	err = f.within(ctx, op, "", func(ctx context.Context, tx pgx.Tx) error {
		old = nil
		var n int
		if err := tx.QueryRow(ctx, "SELECT count(*) FROM ssh_keys").Scan(&n); err != nil {
			return err
		}
		if n >= most {
			return &carrel.Error{Op: op, Kind: carrel.Exhausted, Err: errors.New("there are too many keys")}
		}
		tag, err := tx.Exec(ctx, `INSERT INTO ssh_keys (project, name, fingerprint, body) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING`,
			key(k.Project), key(k.Name), key(k.Fingerprint), body)
		if err != nil || tag.RowsAffected() > 0 {
			return err
		}
		rows, err := tx.Query(ctx, "SELECT body FROM ssh_keys WHERE project = $1 AND (name = $2 OR fingerprint = $3) LIMIT 1",
			key(k.Project), key(k.Name), key(k.Fingerprint))
		if err != nil {
			return err
		}
		has, err := pgx.CollectExactlyOneRow(rows, scanSSHKey)
		old = &has
		return err
	})
	return old, err
}

// DropSSHKey implements sshdoor.KeyStore.
func (f Fleet) DropSSHKey(ctx context.Context, project, name string) (found bool, err error) {
	err = f.within(ctx, "remove SSH key", "", func(ctx context.Context, tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, "DELETE FROM ssh_keys WHERE project = $1 AND name = $2", key(project), key(name))
		found = err == nil && tag.RowsAffected() > 0
		return err
	})
	return found, err
}
