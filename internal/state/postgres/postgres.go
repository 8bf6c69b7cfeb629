// Package postgres keeps a service's records in a PostgreSQL database, which several processes may
// share. It is the twin of package sqlite for many machines.
//
// # Durability
//
// A write has reached the server's disk when its method returns. The server must have fsync on, and
// the user's sessions synchronous_commit on (or remote_apply): otherwise [Open] refuses it, and so
// does each later connection. A server with synchronous standbys also keeps acknowledged writes when
// it is replaced by one of these. One that is replaced by an asynchronous standby loses the last
// ones, and its fencing tokens may go back: don't do that.
//
// One goroutine writes. It takes all writers that wait during a commit into its next transaction, so
// many of them share one commit. If the server refuses one of them, the others are written without
// it.
//
// # Lost connections
//
// A connection that ends in a commit does not say whether the commit happened. So each transaction
// writes its number into this store's row of the table writers. After a loss, another connection
// puts a mark over that row: either it finds the number there and the transaction happened, or it
// did not and never will, and the store makes the transaction again. Only if the server can't be
// asked in time, the error of the write says that its outcome is not known: [state.ErrUnknown].
//
// Each call is bounded in time: [Options.Timeout]. A server that is away, full or too slow is an
// error of kind Unavailable.
//
// # Encoding
//
// Columns with IDs and names are of type bytea, and records are of type json, not jsonb. So any text
// can be stored that Go can hold, as in package sqlite. PostgreSQL's text refuses a NUL byte and
// what is not UTF-8, and jsonb refuses an escaped NUL. Texts never become a part of a statement.
//
// # Secrets
//
// Tables sandboxes and snapshots hold access tokens and environments in the clear; table people
// holds hashes of passwords, and tables keys and sessions hold SHA-256 sums of secrets. Tables
// events, usage and projects hold what projects' members may read. So whoever may read the database,
// its backups or its replication stream can enter all sandboxes. The tables are in a schema of their
// own, on which PUBLIC has no rights; only the role that made it and superusers can read it. A
// connection that leaves the machine must be encrypted ([Options.Plain]). sslmode=verify-full also
// proves that the server is the right one. Errors never hold the password of [Options.URL].
package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/state"
)

const (
	defaultSchema  = "carrel"
	defaultConns   = 8
	defaultTimeout = 10 * time.Second
	maxBatch       = 256  // writes in one transaction
	defaultLimit   = 1000 // for Events without a limit
	grace          = time.Second
	// idleGrace is how much longer than a call the server waits for a client in a transaction. It
	// ends those of machines that are gone, which may hold locks.
	idleGrace = 5 * time.Second
)

// Options say which database a store uses.
type Options struct {
	// URL is the database's address, as libpq reads it. It may hold a password. What it leaves out
	// comes from the environment variables and files that libpq reads, too.
	URL string
	// Schema is the schema of the tables; "" is "carrel". It is made if it is missing.
	Schema string
	// Conns is how many connections read; 0 is 8. One more writes.
	Conns int
	// Timeout bounds one call, including waits for a connection; 0 is 10 seconds. A write may wait as
	// long for the transaction before its own, and as long for the word on a lost connection. A list
	// is read in pages, each of which may take as long.
	Timeout time.Duration
	// Plain allows connections over a network that are not encrypted. They show all secrets to
	// anyone on the way.
	Plain bool
}

// Store is a [state.Store] in a database.
type Store struct {
	schema  string
	timeout time.Duration
	read    *pgxpool.Pool
	write   *pgxpool.Pool // one connection, used by the writer goroutine
	walks   chan struct{} // holds a token for each walk through usage

	id     string // of this store in the table writers
	number int64  // of the last transaction; the writer goroutine owns it

	writes chan *write

	metered sync.Map // project to true, see Fleet.meter

	mu     sync.RWMutex // held for reading while a write is handed over
	closed bool

	done chan struct{} // closed when the writer goroutine has ended
}

var _ state.Store = (*Store)(nil)

// Open connects to a database and brings its tables to the newest version. Errors: Invalid for bad
// options; Unsupported when the server refuses the user, is not durable, or has tables of a newer
// version; Unavailable when it can't be reached or is a standby.
func Open(ctx context.Context, o Options) (*Store, error) {
	const op = "open database"
	cfg, err := o.config()
	if err != nil {
		return nil, err
	}
	s := &Store{schema: o.Schema, timeout: o.Timeout, id: rand.Text(),
		walks: make(chan struct{}, max(1, o.Conns/2)), writes: make(chan *write, maxBatch), done: make(chan struct{})}
	cfg.AfterConnect = s.prepare
	one := cfg.Copy()
	one.MaxConns = 1
	if s.read, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return nil, mapError(op, "", err)
	}
	if s.write, err = pgxpool.NewWithConfig(ctx, one); err != nil {
		s.read.Close()
		return nil, mapError(op, "", err)
	}
	if err := s.migrate(ctx); err != nil {
		s.read.Close()
		s.write.Close()
		return nil, err
	}
	go s.writer()
	return s, nil
}

// config checks the options, fills in what they leave out, and reads the address.
func (o *Options) config() (*pgxpool.Config, error) {
	const op = "open database"
	invalid := func(field string, err error, hint string) error {
		return &carrel.Error{Op: op, Kind: carrel.Invalid, Field: field, Err: err, Hint: hint}
	}
	if o.Schema == "" {
		o.Schema = defaultSchema
	}
	if strings.ContainsRune(o.Schema, 0) || len(o.Schema) > 63 || strings.HasPrefix(o.Schema, "pg_") {
		return nil, invalid("schema", fmt.Errorf("%q can't be the name of a schema", o.Schema), "")
	}
	if o.Conns == 0 {
		o.Conns = defaultConns
	}
	if o.Timeout == 0 {
		o.Timeout = defaultTimeout
	}
	if o.Conns < 0 || o.Conns > 1000 || o.Timeout < 10*time.Millisecond {
		return nil, invalid("conns", fmt.Errorf("%d connections, a timeout of %v", o.Conns, o.Timeout),
			"use 1 to 1000 connections, and a timeout of 10ms at least")
	}
	cfg, err := pgxpool.ParseConfig(o.URL)
	if err != nil { // the text is without the password
		return nil, invalid("url", err, "an address looks like postgres://user@db.example.com/carrel?sslmode=verify-full")
	}
	cfg.MaxConns, cfg.MinConns, cfg.MaxConnIdleTime = int32(o.Conns), 0, 5*time.Minute //nolint:gosec // in bounds
	cfg.ConnConfig.ConnectTimeout = o.Timeout
	if !o.Plain {
		if host := plainHost(cfg.ConnConfig); host != "" {
			return nil, invalid("url", fmt.Errorf("connections to %s may be without encryption", host),
				"records hold secrets: add sslmode=verify-full to the address (or require, which does not check who answers)")
		}
	}
	return cfg, nil
}

// plainHost returns a host of another machine to which a connection may be without encryption, or
// "".
func plainHost(c *pgx.ConnConfig) string {
	local := func(host string) bool {
		ip := net.ParseIP(host)
		return strings.HasPrefix(host, "/") || strings.HasPrefix(host, "@") || host == "localhost" ||
			ip != nil && ip.IsLoopback()
	}
	if c.TLSConfig == nil && !local(c.Host) {
		return c.Host
	}
	for _, f := range c.Fallbacks {
		if f.TLSConfig == nil && !local(f.Host) {
			return f.Host
		}
	}
	return ""
}

// prepare sets up a new connection. It refuses a server that would lose acknowledged writes.
//
// The settings are made for the session: so neither a change of the server's configuration nor a
// pooler's startup packet can undo them. The path has only the schema of the tables, so no function
// or operator that another user put into "public" can take the place of the system's.
func (s *Store) prepare(ctx context.Context, c *pgx.Conn) error {
	const op = "connect to database"
	path := pgx.Identifier{s.schema}.Sanitize()
	statement := fmt.Sprint(s.timeout.Milliseconds())
	idle := fmt.Sprint((s.timeout + idleGrace).Milliseconds())
	var fsync, commit, encoding string
	var standby bool
	err := c.QueryRow(ctx, `SELECT current_setting('fsync'), current_setting('synchronous_commit'),
		current_setting('server_encoding'), pg_catalog.pg_is_in_recovery()`).Scan(&fsync, &commit, &encoding, &standby)
	if err != nil {
		return err
	}
	refuse := func(kind carrel.Kind, what, hint string) error {
		return &carrel.Error{Op: op, Kind: kind, Field: "database", Err: errors.New(what), Hint: hint}
	}
	switch {
	case standby:
		return refuse(carrel.Unavailable, "the server is a standby",
			"name the primary, or all servers and target_session_attrs=read-write")
	case fsync != "on":
		return refuse(carrel.Unsupported, "the server has fsync="+fsync+": it would lose acknowledged writes",
			"set fsync = on in postgresql.conf")
	case commit != "on" && commit != "remote_apply":
		return refuse(carrel.Unsupported, "sessions have synchronous_commit="+commit+": it would lose acknowledged writes",
			"set synchronous_commit = on for this role, this database and in the address")
	case encoding != "UTF8":
		return refuse(carrel.Unsupported, "the database has the encoding "+encoding,
			"create it with ENCODING 'UTF8' TEMPLATE template0")
	}
	_, err = c.Exec(ctx, `SELECT set_config('search_path', $1, false), set_config('synchronous_commit', $2, false),
		set_config('statement_timeout', $3, false), set_config('idle_in_transaction_session_timeout', $4, false),
		set_config('default_transaction_isolation', 'read committed', false),
		set_config('client_encoding', 'UTF8', false)`, path, commit, statement, idle)
	return err
}

// Close implements state.Store. It finishes the accepted writes first, and waits for running reads.
func (s *Store) Close() error {
	s.mu.Lock()
	first := !s.closed
	s.closed = true
	s.mu.Unlock()
	if first {
		close(s.writes)
	}
	<-s.done
	return nil
}

// isClosed reports whether Close was called.
func (s *Store) isClosed() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.closed
}
