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

// errStop ends a reading whose consumer has enough.
var errStop = errors.New("stop")

// read passes on the decisions that are wanted.
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
		return l.ending(ctx, opts, err) // a disk that is full is no reason not to read it
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

// ending turns what ended a reading into what its consumer is told: a follower's end is
// as good as any, but a log that was not read to its end is no whole answer.
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

// start returns the Seq to begin with.
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

// wantedFrom returns the Seq of the oldest of so many of the newest decisions that are
// wanted. Files are read newest first, and none that can't matter.
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

// position is how far a reader has come.
type position struct {
	next   int64 // the Seq that it wants next, or any later one
	first  int64 // the file that it is in; 0 is none yet
	offset int64 // in it, unpacked
}

// read passes on the lines from a position to the end of the file that it is in, and
// moves it. When that was the newest file it returns the channel that is closed when
// there is more; otherwise nil, and the position is in the next file.
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
		err = nil // what is in the others is worth having
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

// enter opens the file that a position is in, and says whether it is the newest: that
// need not be written to, after a rotation that stopped half way. It opens none when
// nothing in there is wanted.
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
	// Under the lock, so that the file has the name that we think.
	if file, err = os.Open(f.path(seg.name())); errors.Is(err, os.ErrNotExist) {
		err = &damage{err} // somebody else removed it
	}
	return seg, newest, file, change, err
}

// damage is what makes a file unreadable, or a part of it.
type damage struct{ err error }

func (d *damage) Error() string { return fmt.Sprintf("damaged: %v", d.err) }

// readSegment passes on the lines of a file from a position on.
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

// damageable marks a decoder's errors as the file's.
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
