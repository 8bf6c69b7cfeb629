package audit

import (
	"time"

	"github.com/carrel-dev/carrel"
)

const (
	// gather is how long decisions are collected before they are written.
	gather = 50 * time.Millisecond
	// maxBatch and maxBatchBytes bound one write.
	maxBatch      = 4096
	maxBatchBytes = 1 << 20
)

// writer turns decisions into lines. Only the writing goroutine uses it.
type writer struct {
	log     *Log
	next    int64 // the Seq to give next
	pending batch // encoded, but the disk refused the write
	dirty   bool  // the file has changed since the last sync
	broken  bool  // the last write failed, and this was logged
	swept   time.Time
	anchor  anchoring
}

// batch is a run of lines, with their properties.
type batch struct {
	lines       []byte
	first, last int64
	since       time.Time
	until       time.Time
}

// run is the writing goroutine.
func (l *Log) run() {
	defer close(l.ended)
	tick := time.NewTicker(l.opts.SyncEvery)
	defer tick.Stop()
	batch := time.NewTimer(gather)
	batch.Stop()
	for {
		select {
		case <-l.kick:
			batch.Reset(min(gather, l.opts.SyncEvery))
		case <-batch.C:
			_ = l.write.drain() // tried again, and logged
		case <-tick.C:
			l.write.tick()
		case a := <-l.asks:
			err := l.write.drain()
			if err == nil && a.sync {
				err = l.write.sync()
			}
			a.done <- err
		case <-l.closing:
			l.err = l.write.finish()
			return
		}
	}
}

// tick does the regular work of every SyncEvery.
func (w *writer) tick() {
	now := w.log.opts.Now()
	if w.drain() == nil { // otherwise the counts wait, which needs no room
		w.count(now, false)
		_ = w.drain() // tried again at the next tick
	}
	if w.sync() == nil { // likewise
		w.anchor.give(now, false)
	}
	if now.Sub(w.swept).Abs() > time.Minute {
		w.swept = now
		w.log.files.sweep(now)
	}
}

// finish writes everything and closes the files.
func (w *writer) finish() error {
	w.count(w.log.opts.Now(), true)
	err := w.drain()
	serr := w.sync()
	if serr == nil {
		w.anchor.give(w.log.opts.Now(), true)
	}
	if err == nil {
		err = serr
	}
	if cerr := w.log.files.close(); err == nil {
		err = cerr
	}
	return err
}

// count queues decisions that stand for the counted ones.
func (w *writer) count(now time.Time, all bool) {
	w.log.mu.Lock()
	defer w.log.mu.Unlock()
	for _, d := range w.log.queue.counts(now, all) {
		d, cost := bound(d, now)
		w.log.queue.addCount(d, cost, now)
	}
}

// drain writes what is queued.
func (w *writer) drain() error {
	for {
		if len(w.pending.lines) == 0 && !w.encode() {
			return nil
		}
		if err := w.log.files.append(w.pending, w.log.opts.Now()); err != nil {
			if !w.broken {
				w.log.opts.Logger.Error("the audit log can't be written; decisions wait", "err", err)
			}
			w.broken = true
			return err
		}
		if w.broken {
			w.log.opts.Logger.Info("the audit log can be written again")
		}
		w.anchor.take(w.pending)
		w.broken, w.dirty = false, true
		w.pending = batch{lines: w.pending.lines[:0]}
	}
}

// encode makes the next batch. It reports false when the queue is empty.
func (w *writer) encode() bool {
	w.log.mu.Lock()
	ds := w.log.queue.take(maxBatch, int(min(maxBatchBytes, w.log.opts.MaxFile)))
	w.log.mu.Unlock()
	b := batch{lines: w.pending.lines[:0], first: w.next}
	if cap(b.lines) > 4*maxBatchBytes {
		b.lines = nil // a flood is over at some time
	}
	for _, d := range ds {
		w.add(&b, d)
	}
	w.pending = b
	return len(b.lines) > 0
}

func (w *writer) add(b *batch, d carrel.Decision) {
	d.Seq = w.next
	lines, err := appendLine(b.lines, d)
	if err != nil { // can't happen: after bound, JSON can express everything
		w.log.opts.Logger.Error("a decision can't be written", "id", d.ID, "err", err)
		return
	}
	b.lines, b.last = lines, d.Seq
	if b.since.IsZero() || d.Time.Before(b.since) {
		b.since = d.Time
	}
	if d.Time.After(b.until) {
		b.until = d.Time
	}
	w.next++
}

// sync forces all written lines to the disk.
func (w *writer) sync() error {
	if !w.dirty {
		return nil
	}
	if err := w.log.files.sync(); err != nil {
		w.log.opts.Logger.Error("the audit log can't be forced to the disk", "err", err)
		return err
	}
	w.dirty = false
	return nil
}
