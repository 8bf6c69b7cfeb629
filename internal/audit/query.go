package audit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"time"

	"github.com/carrel-dev/carrel"
)

// Audit implements carrel.Audits. Errors: Invalid; Unavailable (the log is closed, or
// ctx ended before the log's end was reached).
func (l *Log) Audit(ctx context.Context, opts carrel.AuditOptions) iter.Seq2[carrel.Decision, error] {
	return func(yield func(carrel.Decision, error) bool) {
		if err := l.read(ctx, opts, func(d carrel.Decision) bool { return yield(d, nil) }); err != nil {
			yield(carrel.Decision{}, err)
		}
	}
}

// errStop ends a reading when its consumer has enough.
var errStop = errors.New("stop")

// read passes on the matching decisions.
func (l *Log) read(ctx context.Context, opts carrel.AuditOptions, yield func(carrel.Decision) bool) error {
	m, err := newMatcher(opts)
	if err != nil {
		return err
	}
	if opts.Follow && !opts.Until.IsZero() {
		left := opts.Until.Sub(l.opts.Now())
		if opts.Follow = left > 0; opts.Follow {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, left)
			defer cancel()
		}
	}
	if err := l.ask(ctx, false); errors.Is(err, carrel.Unavailable) || ctx.Err() != nil {
		return l.ending(ctx, opts, err) // a full disk can still be read
	}
	end := l.files.lastSeq()
	start, err := l.start(ctx, m, end)
	if err != nil {
		return l.ending(ctx, opts, err)
	}
	pos := position{next: start}
	for {
		change, err := l.files.read(ctx, &pos, m, func(seq int64, line []byte, at time.Time) error {
			if !opts.Follow && seq > end {
				return errStop
			}
			if d, ok := m.line(line, at); ok && !yield(d) {
				return errStop
			}
			return nil
		})
		switch {
		case errors.Is(err, errStop):
			return nil
		case err != nil:
			return l.ending(ctx, opts, err)
		case change == nil:
			continue // there is another file
		case !opts.Follow:
			return nil
		}
		select {
		case <-change:
		case <-ctx.Done():
			return nil
		case <-l.ended:
			return errClosed()
		}
	}
}

// ending converts the end of a reading for its consumer. A follower may end at any time. For
// others, an end before the log's end is an error, because the answer is not complete.
func (l *Log) ending(ctx context.Context, opts carrel.AuditOptions, err error) error {
	switch {
	case ctx.Err() != nil && opts.Follow:
		return nil
	case ctx.Err() != nil:
		return &carrel.Error{Op: "read audit log", Kind: carrel.Unavailable, Err: ctx.Err()}
	case err != nil && carrel.KindOf(err) == carrel.Internal:
		return &carrel.Error{Op: "read audit log", Kind: carrel.Internal, Err: err}
	}
	return err
}

// start returns the first Seq to read.
func (l *Log) start(ctx context.Context, m *matcher, end int64) (int64, error) {
	o := m.opts
	limit := o.Limit
	if limit == 0 {
		switch {
		case !o.Follow:
			limit = defaultLimit
		case o.After == 0 && o.Since.IsZero():
			return end + 1, nil
		default:
			return o.After + 1, nil
		}
	}
	if m.all() {
		return max(o.After, end-int64(limit)) + 1, nil
	}
	return l.files.wantedFrom(ctx, m, end, limit)
}

// wantedFrom returns the Seq of the oldest of the newest matching decisions, as many as limit. It
// reads the newest files first, and skips files that can't match.
func (f *files) wantedFrom(ctx context.Context, m *matcher, end int64, limit int) (int64, error) {
	f.mu.Lock()
	var all []segment
	for _, s := range f.list {
		all = append(all, *s)
	}
	f.mu.Unlock()
	start := end + 1
	for _, seg := range slices.Backward(all) {
		if seg.last <= m.opts.After {
			break
		}
		if seg.first > end || !m.overlaps(seg.since, seg.until) {
			continue
		}
		var found []int64
		pos := position{next: max(seg.first, m.opts.After+1), first: seg.first}
		_, err := f.read(ctx, &pos, m, func(seq int64, line []byte, at time.Time) error {
			if seq > min(seg.last, end) {
				return errStop
			}
			if _, ok := m.line(line, at); ok {
				found = append(found, seq)
			}
			return nil
		})
		if err != nil && !errors.Is(err, errStop) {
			return 0, err
		}
		if n := len(found); n > 0 {
			start = found[max(n-limit, 0)]
			if limit -= n; limit <= 0 {
				break
			}
		}
	}
	return start, nil
}

// position is a reader's progress.
type position struct {
	next   int64 // the Seq to read next, or any later one
	first  int64 // the present file; 0 before the first
	offset int64 // in it, unpacked
}

// read passes on the lines from a position to the end of its file, and moves the position. If this
// was the newest file, read returns a channel that is closed when there is more. Otherwise it
// returns nil, and the position is in the next file.
func (f *files) read(ctx context.Context, pos *position, m *matcher, fn func(seq int64, line []byte, at time.Time) error) (<-chan struct{}, error) {
	seg, newest, file, change, err := f.enter(pos, m)
	if err == nil && file != nil {
		err = readSegment(ctx, file, seg, pos, fn)
		if cerr := file.Close(); err == nil {
			err = cerr
		}
	}
	if damaged := (*damage)(nil); errors.As(err, &damaged) {
		f.opts.Logger.Warn("a file of the audit log can't be read to its end", "file", seg.name(), "err", err)
		err = nil // the other files are still useful
	}
	switch {
	case err != nil:
		return nil, err
	case newest:
		return change, nil
	}
	pos.next = max(pos.next, seg.last+1)
	pos.first, pos.offset = 0, 0
	return nil, nil
}

// enter opens the file of a position, and says whether it is the newest. After an unfinished
// rotation, the newest file may not be the one that is written. It opens none when nothing in the
// file can match.
func (f *files) enter(pos *position, m *matcher) (seg segment, newest bool, file *os.File, change <-chan struct{}, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := f.newest()
	for _, s := range f.list {
		if s.last >= pos.next {
			at = s
			break
		}
	}
	if pos.first != at.first {
		pos.first, pos.offset = at.first, 0
	}
	seg, newest, change = *at, at == f.newest(), f.change
	if seg.last < pos.next || !m.overlaps(seg.since, seg.until) {
		return seg, newest, nil, change, nil
	}
	// Open it under the lock, so that its name can't change before.
	if file, err = os.Open(f.path(seg.name())); errors.Is(err, os.ErrNotExist) {
		err = &damage{err} // somebody else removed it
	}
	return seg, newest, file, change, err
}

// damage is the error of a file that is unreadable, or partly so.
type damage struct{ err error }

func (d *damage) Error() string { return fmt.Sprintf("damaged: %v", d.err) }

// readSegment passes on the lines of a file from a position.
func readSegment(ctx context.Context, file *os.File, seg segment, pos *position, fn func(seq int64, line []byte, at time.Time) error) error {
	if !seg.packed {
		return readLines(ctx, io.NewSectionReader(file, pos.offset, seg.size-pos.offset), pos, fn)
	}
	dec, err := unpack(file)
	if err != nil {
		return err
	}
	defer dec.Close()
	if _, err := io.CopyN(io.Discard, dec, pos.offset); err != nil {
		return &damage{err}
	}
	return readLines(ctx, damageable{dec}, pos, fn)
}

// damageable marks a decoder's errors as damage of the file.
type damageable struct{ io.Reader }

// Read implements io.Reader.
func (d damageable) Read(b []byte) (int, error) {
	n, err := d.Reader.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		err = &damage{err}
	}
	return n, err
}

// readLines passes on whole lines and moves the position past them.
func readLines(ctx context.Context, in io.Reader, pos *position, fn func(seq int64, line []byte, at time.Time) error) error {
	lines := newLineReader(in)
	for i := 0; ; i++ {
		if i%256 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		line, n, err := lines.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		seq, at, ok := lineHead(line)
		pos.offset += int64(n)
		if !ok || seq < pos.next {
			continue
		}
		pos.next = seq + 1
		if err := fn(seq, line, at); err != nil {
			return err
		}
	}
}
