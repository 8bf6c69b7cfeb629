package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carrel-dev/carrel"
)

// schemaLock is the advisory lock of a database's tables. A migration holds it alone; transactions
// that write share it.
const schemaLock int64 = 0x6361_7272_656c // "carrel"

// migrateTimeout bounds the statements of a migration.
const migrateTimeout = 10 * time.Minute

// migrations bring the tables from version i to i+1. A released one is never changed: a new one is
// added.
//
// Times are in nanoseconds since 1970, except those that the server's clock decides. Keys are what
// [key] makes of IDs and names.
var migrations = []string{`
	CREATE TABLE sandboxes (
		id      bytea PRIMARY KEY,
		started bigint NOT NULL,
		record  json NOT NULL
	);
	CREATE INDEX sandboxes_started ON sandboxes (started, id);
	CREATE TABLE snapshots (
		id      bytea PRIMARY KEY,
		sandbox bytea NOT NULL,
		created bigint NOT NULL,
		record  json NOT NULL
	);
	CREATE INDEX snapshots_created ON snapshots (created, id);
	CREATE TABLE projects      (id bytea PRIMARY KEY, created bigint NOT NULL, record json NOT NULL);
	CREATE TABLE keys          (id bytea PRIMARY KEY, created bigint NOT NULL, record json NOT NULL);
	CREATE TABLE people        (id bytea PRIMARY KEY, created bigint NOT NULL, record json NOT NULL);
	CREATE TABLE organisations (id bytea PRIMARY KEY, created bigint NOT NULL, record json NOT NULL);
	CREATE TABLE sessions      (id bytea PRIMARY KEY, created bigint NOT NULL, record json NOT NULL);
	CREATE TABLE tombstones (
		id   bytea PRIMARY KEY,
		time bigint NOT NULL
	);
	CREATE INDEX tombstones_time ON tombstones (time);
	CREATE TABLE usage (
		id    bytea PRIMARY KEY,
		start bigint NOT NULL,
		until bigint NOT NULL,
		body  json NOT NULL
	);
	CREATE INDEX usage_until ON usage (until, start);

	-- The number of the newest event. A sequence would not do: its numbers become visible out of
	-- order, so that a reader who goes on after the last one misses some, and it leaves gaps.
	CREATE TABLE event_number (
		one   boolean PRIMARY KEY DEFAULT true CHECK (one),
		value bigint NOT NULL
	);
	INSERT INTO event_number (value) VALUES (0);
	CREATE TABLE events (
		seq     bigint PRIMARY KEY,
		time    bigint NOT NULL,
		sandbox bytea NOT NULL,
		body    json NOT NULL
	);
	CREATE INDEX events_sandbox ON events (sandbox, seq);
	CREATE INDEX events_time ON events (time);

	-- The last transaction of each open store, or with void, the number of one that never was.
	CREATE TABLE writers (
		store  text PRIMARY KEY,
		number bigint NOT NULL,
		void   boolean NOT NULL,
		seen   timestamptz NOT NULL
	) WITH (fillfactor = 50);

	CREATE SEQUENCE lease_tokens AS bigint;
	CREATE TABLE leases (
		sandbox bytea PRIMARY KEY,
		node    bytea NOT NULL,
		token   bigint NOT NULL,
		expires timestamptz NOT NULL
	);
	CREATE INDEX leases_expires ON leases (expires);`, `
	-- It is raised by each change of projects, keys, people, organisations and sessions.
	CREATE TABLE people_version (
		one    boolean PRIMARY KEY DEFAULT true CHECK (one),
		number bigint NOT NULL
	) WITH (fillfactor = 50);
	INSERT INTO people_version (number) VALUES (0);

	-- The fleet: its certificate authority, its nodes, and where each sandbox lives. A node's row is
	-- renewed every few seconds, so it has room for its next version on the same page.
	CREATE TABLE authority (
		one  boolean PRIMARY KEY DEFAULT true CHECK (one),
		cert bytea NOT NULL,
		key  bytea NOT NULL
	);
	CREATE TABLE nodes (
		name     bytea PRIMARY KEY,
		token    bigint NOT NULL,
		public   bytea NOT NULL,
		expires  timestamptz NOT NULL,
		draining boolean NOT NULL,
		body     json NOT NULL
	) WITH (fillfactor = 50);
	CREATE TABLE homes (
		sandbox  bytea PRIMARY KEY,
		project  bytea NOT NULL,
		node     bytea NOT NULL,
		token    bigint NOT NULL,
		state    text NOT NULL,
		passport bytea
	);
	-- Secrets of projects, sealed by the fronts.
	CREATE TABLE secrets (
		project bytea NOT NULL,
		name    bytea NOT NULL,
		sealed  bytea NOT NULL,
		PRIMARY KEY (project, name)
	);
	CREATE INDEX homes_node ON homes (node, sandbox);`, `
	-- What counts towards the quotas of the whole fleet. Numbers are thousandths. A home counts while
	-- its sandbox runs, from counts on; and until kept in any state.
	ALTER TABLE homes
		ADD COLUMN key       bytea NOT NULL DEFAULT '',
		ADD COLUMN repeat    bytea NOT NULL DEFAULT '',
		ADD COLUMN sandboxes bigint NOT NULL DEFAULT 1000,
		ADD COLUMN vcpus     bigint NOT NULL DEFAULT 0,
		ADD COLUMN memory    bigint NOT NULL DEFAULT 0,
		ADD COLUMN disk      bigint NOT NULL DEFAULT 0,
		ADD COLUMN counts    timestamptz NOT NULL DEFAULT '-infinity',
		ADD COLUMN kept      timestamptz NOT NULL DEFAULT '-infinity',
		ADD COLUMN lost      timestamptz; -- when it was marked so
	CREATE INDEX homes_held ON homes (project) INCLUDE (key, sandboxes, vcpus, memory, disk, counts)
		WHERE state = 'running' OR kept > '-infinity';
	CREATE INDEX homes_repeat ON homes (project, repeat) WHERE repeat <> '';
	-- Creations that are under way, and those of the last minute.
	CREATE TABLE shares (
		token     bigint PRIMARY KEY,
		project   bytea NOT NULL,
		key       bytea NOT NULL,
		repeat    bytea NOT NULL,
		sandboxes bigint NOT NULL,
		vcpus     bigint NOT NULL,
		memory    bigint NOT NULL,
		disk      bigint NOT NULL,
		creates   bigint NOT NULL,
		began     timestamptz NOT NULL,
		expires   timestamptz NOT NULL,
		done      boolean NOT NULL DEFAULT false
	);
	CREATE INDEX shares_project ON shares (project);
	CREATE INDEX shares_began ON shares (began);`, `
	-- What the nodes' ledgers said of each day, for nodes that don't answer. day is in seconds since 1970.
	CREATE TABLE usage_copies (
		public bytea NOT NULL,
		day    bigint NOT NULL,
		node   bytea NOT NULL,
		at     timestamptz NOT NULL,
		report json NOT NULL,
		PRIMARY KEY (day, public)
	);`, `
	-- Keys that open SSH sessions at the fronts.
	CREATE TABLE ssh_keys (
		project     bytea NOT NULL,
		name        bytea NOT NULL,
		fingerprint bytea NOT NULL,
		body        json NOT NULL,
		PRIMARY KEY (project, name),
		UNIQUE (project, fingerprint)
	);`, `
	-- Webhooks, sealed by the fronts, what was done with their events, and how far the events of each
	-- machine are among the fleet's.
	CREATE TABLE webhooks (
		id      bytea PRIMARY KEY,
		project bytea NOT NULL,
		version bigint NOT NULL,
		number  bigint NOT NULL,
		sealed  bytea NOT NULL
	);
	CREATE TABLE webhook_lines (
		webhook bytea NOT NULL REFERENCES webhooks ON DELETE CASCADE,
		number  bigint NOT NULL,
		line    bytea NOT NULL,
		PRIMARY KEY (webhook, number)
	);
	CREATE TABLE event_sources (
		public bytea PRIMARY KEY,
		seq    bigint NOT NULL,
		since  timestamptz NOT NULL
	);`, `
	-- Command lines that wait for their person. Both codes are hashes.
	CREATE TABLE logins (
		hash  bytea PRIMARY KEY,
		code  bytea NOT NULL UNIQUE,
		until timestamptz NOT NULL,
		asked timestamptz NOT NULL,
		body  json NOT NULL
	);`, `
	-- The projects that had a quota checked. Only their changes are written down twice.
	CREATE TABLE metered (project bytea PRIMARY KEY);
	-- The sum of what homes of these projects hold that count without regard to the time: of those that run,
	-- and whose time to count has come. Each change of a home adds a row, so that nobody waits for another;
	-- the rows are added up every second. The other homes are few, and have an index.
	CREATE TABLE held (
		project   bytea NOT NULL,
		key       bytea NOT NULL,
		sandboxes bigint NOT NULL,
		vcpus     bigint NOT NULL,
		memory    bigint NOT NULL,
		disk      bigint NOT NULL
	);
	CREATE INDEX held_project ON held (project);
	DROP INDEX homes_held;
	CREATE INDEX homes_passing ON homes (project) WHERE kept > '-infinity' OR state = 'running' AND counts > '-infinity';
	CREATE INDEX homes_running ON homes (project) WHERE state = 'running' AND counts = '-infinity';
	CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
	DECLARE
		was boolean := TG_OP <> 'INSERT' AND OLD.state = 'running' AND OLD.counts = '-infinity';
		is_ boolean := TG_OP <> 'DELETE' AND NEW.state = 'running' AND NEW.counts = '-infinity';
		of bytea := CASE WHEN TG_OP = 'DELETE' THEN OLD.project ELSE NEW.project END;
	BEGIN
		IF was AND is_ AND (OLD.project, OLD.key, OLD.sandboxes, OLD.vcpus, OLD.memory, OLD.disk)
			IS NOT DISTINCT FROM (NEW.project, NEW.key, NEW.sandboxes, NEW.vcpus, NEW.memory, NEW.disk) THEN
			RETURN NULL;
		END IF;
		-- Who makes the project a metered one waits for this transaction, or is seen here.
		PERFORM pg_advisory_xact_lock_shared(1835365490, hashtext(encode(of, 'hex')));
		IF NOT EXISTS (SELECT FROM metered WHERE project = of) THEN
			RETURN NULL;
		END IF;
		IF was THEN
			INSERT INTO held VALUES (OLD.project, OLD.key, -OLD.sandboxes, -OLD.vcpus, -OLD.memory, -OLD.disk);
		END IF;
		IF is_ THEN
			INSERT INTO held VALUES (NEW.project, NEW.key, NEW.sandboxes, NEW.vcpus, NEW.memory, NEW.disk);
		END IF;
		RETURN NULL;
	END $$;
	CREATE TRIGGER homes_hold AFTER INSERT OR UPDATE OR DELETE ON homes FOR EACH ROW EXECUTE FUNCTION hold();`,
}

// migrate brings the tables to the newest version, in one transaction. If several programs start at
// once, one of them does it and the others wait.
func (s *Store) migrate(ctx context.Context) error {
	const op = "migrate database"
	var ce *carrel.Error
	err := pgx.BeginFunc(ctx, s.write, func(tx pgx.Tx) error {
		for _, setting := range []string{"statement_timeout", "idle_in_transaction_session_timeout"} {
			if _, err := tx.Exec(ctx, "SELECT set_config($1, $2, true)", setting, fmt.Sprint(migrateTimeout.Milliseconds())); err != nil {
				return err
			}
		}
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", schemaLock); err != nil {
			return err
		}
		version, err := s.version(ctx, tx)
		if err != nil {
			return err
		}
		if version > len(migrations) {
			return s.newer(op, version)
		}
		for ; version < len(migrations); version++ {
			if _, err := tx.Exec(ctx, migrations[version]); err != nil {
				return err
			}
		}
		_, err = tx.Exec(ctx, "UPDATE version SET number = $1 WHERE number <> $1", version)
		return err
	})
	switch {
	case err == nil:
		return nil
	case errors.As(err, &ce) && ctx.Err() == nil:
		return err
	}
	if err := ended(ctx, op, "", err); err != nil {
		return err
	}
	return mapError(op, "", err)
}

// version reads the version of the tables. It makes the schema and the table of the version if they
// are missing.
func (s *Store) version(ctx context.Context, tx pgx.Tx) (version int, err error) {
	// The plain form of IF NOT EXISTS asks for the right to make the schema even if it exists.
	var there bool
	err = tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = $1)", s.schema).Scan(&there)
	if err == nil && !there {
		_, err = tx.Exec(ctx, "CREATE SCHEMA "+pgx.Identifier{s.schema}.Sanitize())
	}
	if err != nil {
		return 0, err
	}
	err = tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n
		ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = 'version')`, s.schema).Scan(&there)
	if err == nil && !there {
		_, err = tx.Exec(ctx, `CREATE TABLE version (
			one    boolean PRIMARY KEY DEFAULT true CHECK (one),
			number integer NOT NULL
		);
		INSERT INTO version (number) VALUES (0)`)
	}
	if err != nil {
		return 0, err
	}
	err = tx.QueryRow(ctx, "SELECT number FROM version").Scan(&version)
	return version, err
}

// newer is the error for tables of a version that this program does not know.
func (s *Store) newer(op string, version int) error {
	return &carrel.Error{Op: op, Kind: carrel.Unsupported, Field: "database",
		Err:  fmt.Errorf("schema %s has version %d, this program knows %d", s.schema, version, len(migrations)),
		Hint: "a newer carrel uses this database: run that version or a later one"}
}
