package identity

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/atomicfile"
	"github.com/carrel-dev/carrel/internal/reserve"
)

const revokedFile = "revoked.jsonl"

// revocation is one line of the file: a sandbox that has ended, and the time when its last token
// expires.
type revocation struct {
	ID    carrel.ID `json:"id"`
	Until time.Time `json:"until"`
}

// revocations are the ended sandboxes with unexpired tokens. Its owner guards it.
type revocations struct {
	name string
	byID map[carrel.ID]time.Time
	file *os.File
	size int // lines in the file
}

// openRevoked reads the file and writes it anew without expired lines. On a full disk it goes on
// with the lines as they are: a daemon must start there, because it is what makes room.
func openRevoked(dir string, now time.Time) (*revocations, error) {
	r := &revocations{name: filepath.Join(dir, revokedFile), byID: map[carrel.ID]time.Time{}}
	raw, err := os.ReadFile(r.name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	exists := err == nil
	parseRevoked(raw, now, r.byID)
	if err = r.compact(now); exists && reserve.NoRoom(err) {
		err = r.reopen(bytes.Count(raw, []byte("\n")))
	}
	return r, err
}

// parseRevoked reads lines. It skips a broken line: the daemon died while it wrote that line, so it
// acknowledged it to nobody.
func parseRevoked(raw []byte, now time.Time, into map[carrel.ID]time.Time) {
	for line := range bytes.Lines(raw) {
		var e revocation
		if json.Unmarshal(line, &e) != nil {
			continue
		}
		if _, err := carrel.ParseID(string(e.ID)); err == nil && e.Until.After(now) && e.Until.After(into[e.ID]) {
			into[e.ID] = e.Until
		}
	}
}

// compact drops expired lines.
func (r *revocations) compact(now time.Time) error {
	var buf bytes.Buffer
	w := bufio.NewWriter(&buf)
	enc := json.NewEncoder(w)
	for id, until := range r.byID {
		if !until.After(now) {
			delete(r.byID, id)
			continue
		}
		if err := enc.Encode(revocation{id, until}); err != nil {
			return err
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if err := atomicfile.Write(r.name, buf.Bytes(), 0o600); err != nil {
		return err
	}
	return r.reopen(len(r.byID))
}

// reopen opens the file for more lines. It has this many.
func (r *revocations) reopen(lines int) error {
	f, err := os.OpenFile(r.name, os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	if r.file != nil {
		_ = r.file.Close() // every line of it was synced
	}
	r.file, r.size = f, lines
	return nil
}

// add revokes a sandbox's tokens now. If it returns nil, the next daemon knows it too.
func (r *revocations) add(id carrel.ID, until, now time.Time) error {
	r.byID[id] = until
	if r.size > 1000 && r.size > 2*r.alive(now) {
		return r.compact(now)
	}
	raw, err := json.Marshal(revocation{id, until})
	if err != nil {
		return err
	}
	// Write a line break first, so that the rest of a failed write can't spoil this line.
	if _, err := r.file.Write(append(append([]byte{'\n'}, raw...), '\n')); err != nil {
		return err
	}
	r.size++
	return r.file.Sync()
}

func (r *revocations) alive(now time.Time) int {
	n := 0
	for _, until := range r.byID {
		if until.After(now) {
			n++
		}
	}
	return n
}

func (r *revocations) has(id carrel.ID) bool {
	_, ok := r.byID[id]
	return ok
}
