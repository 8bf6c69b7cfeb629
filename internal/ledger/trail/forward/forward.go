// Package forward sends the records of the audit trail to other machines as they are made: to syslog
// ([Syslog]) or to a collector of OpenTelemetry (package trace/otlp).
//
// Each destination has a file with the number of the last record that it took, so that a daemon that
// starts again goes on there. A record is sent at least once. A destination that is away holds up
// nobody: its records wait in the trail. Records that retention removed meanwhile are passed over,
// and the log says how many.
package forward

import (
	"context"
	"encoding/json"
	"iter"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/atomicfile"
)

const (
	// batch is how many records are sent at once.
	batch = 256
	// sendTime bounds one try. firstWait and maxWait are the pauses after failed ones.
	sendTime  = 10 * time.Second
	firstWait = time.Second
	maxWait   = time.Minute
)

// Source is a trail. Package trail has one.
type Source interface {
	Records(ctx context.Context, opts carrel.TrailOptions) iter.Seq2[carrel.TrailRecord, error]
	// Wait returns when there are records after seq. It reports false when ctx or the trail ends.
	Wait(ctx context.Context, seq int64) bool
}

// Sink is a destination.
type Sink interface {
	// Send sends records. With an error, all of them are sent again.
	Send(ctx context.Context, records []carrel.TrailRecord) error
	Close() error
}

// position is what the file holds.
type position struct {
	Seq int64 `json:"seq"`
}

// Progress says how far a destination is. The zero Progress is at the beginning.
type Progress struct{ taken atomic.Int64 }

// Taken is the number of the last record that the destination took.
func (p *Progress) Taken() int64 { return p.taken.Load() }

// Run sends records until ctx ends. file keeps the position, and progress, which may be nil, tells it
// to others. Run closes the sink.
func Run(ctx context.Context, from Source, to Sink, name, file string, progress *Progress,
	log *slog.Logger) {
	if progress == nil {
		progress = new(Progress)
	}
	defer func() { _ = to.Close() }() // what it took is sent
	var pos position
	if raw, err := os.ReadFile(file); err == nil {
		if err := json.Unmarshal(raw, &pos); err != nil {
			log.Warn("the position of the audit trail's export is damaged: everything is sent again", "to", name)
		}
	}
	progress.taken.Store(pos.Seq)
	wait := firstWait
	for from.Wait(ctx, pos.Seq) {
		records, err := read(ctx, from, pos.Seq)
		if err == nil && len(records) > 0 {
			if gap := records[0].Seq - pos.Seq - 1; gap > 0 && pos.Seq > 0 {
				log.Error("records of the audit trail were removed before they could be sent", "to", name, "records", gap)
			}
			sending, cancel := context.WithTimeout(ctx, sendTime)
			err = to.Send(sending, records)
			cancel()
		}
		if err == nil && len(records) > 0 {
			pos.Seq, wait = records[len(records)-1].Seq, firstWait
			progress.taken.Store(pos.Seq)
			if err := store(file, pos); err != nil {
				log.Warn("the position of the audit trail's export can't be written", "to", name, "err", err)
			}
			continue
		}
		if err != nil && ctx.Err() == nil {
			log.Warn("the audit trail can't be sent; it is tried again", "to", name, "err", err, "wait", wait)
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
		wait = min(2*wait, maxWait)
	}
}

func store(file string, pos position) error {
	raw, err := json.Marshal(pos)
	if err != nil {
		return err
	}
	return atomicfile.Write(file, append(raw, '\n'), 0o600)
}

// read returns the next records.
func read(ctx context.Context, from Source, after int64) ([]carrel.TrailRecord, error) {
	var out []carrel.TrailRecord
	for r, err := range from.Records(ctx, carrel.TrailOptions{After: after, Limit: -1}) {
		if err != nil {
			return nil, err
		}
		if out = append(out, r); len(out) == batch {
			break
		}
	}
	return out, nil
}
