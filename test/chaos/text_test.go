package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/carrel-dev/carrel"
)

// textTrial flips bits inside texts of the records' database, while the daemon is stopped. SQLite
// finds nothing wrong with them. Every record is there afterwards, as it was.
func textTrial(t *trial) {
	d := t.serve(setup{})
	t.populate(d)
	for range rounds(4) {
		t.calm.Store(true)
		stop := t.work(d, 3)
		t.busy(8 + t.rng.IntN(15))
		t.calm.Store(false)
		stop()
		t.verify(d.svc, allowed{})
		t.calm.Store(true)
		t.pauseAll(d)
		t.packed(d)
		before := t.records(d)
		d.terminate()
		for range 1 + t.rng.IntN(3) {
			t.flipText(filepath.Join(d.dir, "state.db"))
			t.faults++
		}
		if err := d.start(); err != nil {
			t.fatalf("it does not start: %v", err)
		}
		after := t.records(d)
		for _, id := range slices.Sorted(maps.Keys(before)) {
			if after[id] != before[id] {
				t.violate("the record of %s was %s, and is %q", id, before[id], after[id])
			}
		}
		t.verify(d.svc, afterKill)
		if len(t.violations) > 0 {
			return
		}
	}
	t.finish(d)
}

// flipText flips a bit in a text of a database: in the ID of a record, or in what follows it.
func (t *trial) flipText(path string) {
	db, err := os.ReadFile(path)
	t.check(err)
	t.j.mu.Lock()
	var ids []string
	for id, b := range t.j.boxes {
		if !b.dead {
			ids = append(ids, string(id))
		}
	}
	for id, s := range t.j.snaps {
		if !s.gone {
			ids = append(ids, string(id))
		}
	}
	t.j.mu.Unlock()
	slices.Sort(ids)
	id := []byte(ids[t.rng.IntN(len(ids))])
	if t.rng.IntN(2) == 0 {
		// Most mentions are in events. This one is in the record itself.
		id = fmt.Appendf(nil, `"id":"%s"`, id)
	}
	var places []int
	for at := 0; ; at += len(id) {
		i := bytes.Index(db[at:], id)
		if i < 0 {
			break
		}
		at += i
		places = append(places, at)
	}
	if len(places) == 0 {
		t.giveUp("%s is not in %s", id, path)
	}
	at := places[t.rng.IntN(len(places))]
	// A record's text is long, so most flips are in the text and few in the ID.
	for range 1 + t.rng.IntN(300) {
		if at+1 == len(db) || !isText(db[at+1]) {
			break
		}
		at++
	}
	bit := byte(1) << t.rng.IntN(7)
	if !isText(db[at] ^ bit) {
		bit = 1 // it keeps any letter, digit or sign a text, except for one
	}
	t.note("bit %#x of %q at byte %d", bit, db[max(0, at-12):at+1], at)
	db[at] ^= bit
	t.check(os.WriteFile(path, db, 0o600))
}

// isText reports whether a byte is a printable character.
func isText(b byte) bool { return b >= ' ' && b <= '~' }

// records returns what callers see of each record, by ID. It leaves out what a start may change.
func (t *trial) records(d *server) map[string]string {
	ctx, cancel := context.WithTimeout(t.ctx, time.Minute)
	defer cancel()
	out := map[string]string{}
	add := func(id string, v any) {
		text, err := json.Marshal(v)
		t.check(err)
		out[id] = string(text)
	}
	listed, err := listAll(ctx, d.svc)
	if err != nil {
		t.fatalf("the sandboxes can't be listed: %v", err)
	}
	for id, sb := range listed {
		if sb.Tier != carrel.Sim || sb.State == carrel.Paused { // others end with the daemon
			add(string(id), sb)
		}
	}
	opts := carrel.SnapshotListOptions{Auto: true, Limit: 100}
	for {
		page, err := d.svc.ListSnapshots(ctx, opts)
		if err != nil {
			t.fatalf("the snapshots can't be listed: %v", err)
		}
		for _, sn := range page.Snapshots {
			add(string(sn.ID), sn)
		}
		if opts.Cursor = page.Next; opts.Cursor == "" {
			return out
		}
	}
}
