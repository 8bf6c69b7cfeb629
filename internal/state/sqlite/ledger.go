package sqlite

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/carrel-dev/carrel/internal/atomicfile"
)

// ledgerVersion is the version of the ledger's form.
const ledgerVersion = 1

// ledgerGrowth is how many times as large as its base the ledger may become, plus slack, before it
// is written anew.
const ledgerGrowth = 3

// slack is how many bytes a ledger may always grow by. Tests make it small.
var slack atomic.Int64

func init() {
	slack.Store(4 << 20)
	retry.Store(int64(10 * time.Second))
}

// retry is the pause in nanoseconds before a ledger that could not be written is made anew. Tests
// make it short.
var retry atomic.Int64

// entry is one line of the ledger.
type entry struct {
	// Ledger, Identity and From are in the first line only: the version of the form, the identity
	// of the database, and the number of the last change that the base includes.
	Ledger   int    `json:"ledger,omitempty"`
	Identity string `json:"identity,omitempty"`
	From     int64  `json:"from,omitempty"`
	// N is the number of a change. Lines of the base have none.
	N int64 `json:"n,omitempty"`
	// Ops are the statements of the change, or records of the base.
	Ops []statement `json:"ops,omitempty"`
	// Complete ends the base.
	Complete bool `json:"complete,omitempty"`

	at int64 // where the line begins in the file; scanLedger sets it
}

// ledger is the second copy of the records, open for writing. The writer goroutine owns it.
type ledger struct {
	path string
	file *os.File
	size int64 // bytes in file
	base int64 // bytes of its header and base
	err  error // of the last write; nothing is written after it until the ledger is made anew
	next time.Time
	made chan *rewritten // gets the result of a rewriting under way; nil when there is none
}

// rewritten is the result of writing a new base in the background.
type rewritten struct {
	file *os.File
	size int64 // of the base
	tail int64 // where in the old file the changes after the base begin
	err  error
	// still says that the writer waited, so there are no changes after the base.
	still bool
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encode returns one line: the checksum of the JSON text in hex, a space, and the text.
func (e entry) encode() ([]byte, error) {
	text, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, "%08x %s\n", crc32.Checksum(text, castagnoli), text), nil
}

// errDamagedLine says that a line of the ledger does not have its checksum.
var errDamagedLine = errors.New("a damaged line")

// decodeEntry reads one line back.
func decodeEntry(line []byte) (entry, error) {
	sum, text, ok := bytes.Cut(bytes.TrimSuffix(line, []byte("\n")), []byte(" "))
	want, err := strconv.ParseUint(string(sum), 16, 32)
	if !ok || err != nil || len(sum) != 8 || uint32(want) != crc32.Checksum(text, castagnoli) {
		return entry{}, errDamagedLine
	}
	var e entry
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber() // times in nanoseconds don't fit a float64
	if err := d.Decode(&e); err != nil {
		return entry{}, fmt.Errorf("%w: %w", errDamagedLine, err)
	}
	for _, st := range e.Ops {
		for i, a := range st.Args {
			if n, ok := a.(json.Number); ok {
				if st.Args[i], err = n.Int64(); err != nil {
					return entry{}, fmt.Errorf("%w: %w", errDamagedLine, err)
				}
			}
		}
	}
	return e, nil
}

// Ledger is the name of the second copy of a state file, in the same directory. It has another
// beginning, so that "rm state.db*" leaves it.
const Ledger = "records.ledger"

// ledgerPath is the place of the second copy of a state file.
func ledgerPath(state string) string { return filepath.Join(filepath.Dir(state), Ledger) }

// append adds a committed change. An error does not undo the change: the database has it, and the
// ledger is made anew later.
func (l *ledger) append(n int64, ops []statement) {
	if l.err != nil {
		return
	}
	line, err := entry{N: n, Ops: ops}.encode()
	if err == nil {
		var m int
		m, err = l.file.Write(line)
		l.size += int64(m)
	}
	if err != nil {
		l.err, l.next = err, time.Now().Add(time.Duration(retry.Load()))
	}
}

// due reports whether the ledger should be written anew.
func (l *ledger) due() bool {
	switch {
	case l.made != nil:
		return false
	case l.err != nil:
		return time.Now().After(l.next)
	}
	return l.size > slack.Load()+ledgerGrowth*l.base
}

// tendLedger starts a rewriting if one is due, and finishes one that is done. The writer calls it
// between two transactions.
func (s *Store) tendLedger() {
	l := &s.ledger
	if l.made != nil {
		select {
		case r := <-l.made:
			l.made = nil
			s.switchLedger(r)
		default:
		}
	}
	if !l.due() {
		return
	}
	// No write is under way here, so the snapshot ends with change s.change.
	tx, err := s.read.BeginTx(context.Background(), &sql.TxOptions{ReadOnly: true})
	var n int64
	if err == nil {
		if n, err = metaNumber(context.Background(), tx, metaChange); err != nil {
			_ = tx.Rollback()
		}
	}
	if err != nil {
		l.err, l.next = err, time.Now().Add(time.Duration(retry.Load()))
		return
	}
	made, tail, broken := make(chan *rewritten, 1), l.size, l.err != nil
	l.made = made
	if broken {
		// Changes from here on must reach the new file, and the old one takes none. So the writer
		// waits.
		r := s.writeBase(tx, n, tail)
		r.still = true
		made <- r
		s.tendLedger()
		return
	}
	go func() { made <- s.writeBase(tx, n, tail) }()
}

// writeBase writes the records of a snapshot of the database into a temporary file, and ends the
// snapshot.
func (s *Store) writeBase(tx *sql.Tx, n, tail int64) *rewritten {
	r := &rewritten{tail: tail}
	defer func() { _ = tx.Rollback() }()
	r.file, r.err = os.CreateTemp(filepath.Dir(s.ledger.path), "."+filepath.Base(s.ledger.path)+".*")
	if r.err != nil {
		return r
	}
	r.size, r.err = writeBase(context.Background(), r.file, tx, s.identity, n)
	return r
}

// writeBase writes header and base, and returns their length in bytes.
func writeBase(ctx context.Context, f *os.File, tx *sql.Tx, identity string, n int64) (int64, error) {
	w := &countingWriter{w: bufio.NewWriterSize(f, 1<<16)}
	put := func(e entry) error {
		line, err := e.encode()
		if err == nil {
			_, err = w.Write(line)
		}
		return err
	}
	if err := put(entry{Ledger: ledgerVersion, Identity: identity, From: n}); err != nil {
		return 0, err
	}
	// copyRows writes a line for each row of a query.
	copyRows := func(op, query string, columns int) error {
		rows, err := tx.QueryContext(ctx, query)
		if err != nil {
			return err
		}
		for err == nil && rows.Next() {
			args, into := make([]any, columns), make([]any, columns)
			for i := range args {
				into[i] = &args[i]
			}
			if err = rows.Scan(into...); err == nil {
				err = put(entry{Ops: []statement{{Op: op, Args: args}}})
			}
		}
		return errors.Join(err, rows.Err(), rows.Close())
	}
	for _, t := range tables {
		if t.inBase {
			if err := copyRows(t.put, t.selection(), len(t.columns)); err != nil {
				return 0, err
			}
		}
	}
	// Numbers of events must go on rising although the events themselves are not here.
	for _, op := range []string{opFirstSequence, opSequence} {
		if err := copyRows(op, "SELECT seq FROM sqlite_sequence WHERE name = 'events'", 1); err != nil {
			return 0, err
		}
	}
	if err := put(entry{Complete: true}); err != nil {
		return 0, err
	}
	return w.n, w.w.Flush()
}

// countingWriter counts the bytes that pass through it.
type countingWriter struct {
	w *bufio.Writer
	n int64
}

func (c *countingWriter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += int64(n)
	return n, err
}

// switchLedger puts a rewritten ledger in place of the old one, with the changes since then.
func (s *Store) switchLedger(r *rewritten) {
	l := &s.ledger
	err := r.err
	size := r.size
	if err == nil && l.err != nil && !r.still {
		err = l.err // the old file lacks changes from after the base
	}
	if err == nil && !r.still {
		var n int64
		n, err = io.Copy(r.file, io.NewSectionReader(l.file, r.tail, l.size-r.tail))
		size += n
	}
	if err == nil {
		err = errors.Join(r.file.Sync(), os.Rename(r.file.Name(), l.path), atomicfile.SyncDir(filepath.Dir(l.path)))
	}
	if err != nil {
		if r.file != nil {
			_ = r.file.Close()
			_ = os.Remove(r.file.Name())
		}
		if l.err != nil || l.file == nil {
			l.err, l.next = err, time.Now().Add(time.Duration(retry.Load()))
		} else {
			l.base = l.size // try again when it has grown as much once more
		}
		return
	}
	if l.file != nil {
		_ = l.file.Close()
	}
	l.file, l.size, l.base, l.err = r.file, size, r.size, nil
}

// closeLedger ends a rewriting under way and makes the ledger durable.
func (s *Store) closeLedger() error {
	l := &s.ledger
	if l.made != nil {
		if r := <-l.made; r.file != nil {
			_ = r.file.Close()
			_ = os.Remove(r.file.Name())
		}
		l.made = nil
	}
	if l.file == nil {
		return nil
	}
	err := errors.Join(l.file.Sync(), l.file.Close())
	l.file = nil
	return err
}
