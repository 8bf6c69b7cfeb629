package audit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// anchorEvery is how often the digest of new lines is given to the anchor.
const anchorEvery = 5 * time.Second

// anchoring makes digests of lines for an [Anchor]. Only the writing goroutine uses it.
type anchoring struct {
	to          Anchor // nil for none
	sum         hash.Hash
	first, last int64 // of the lines in sum; first is 0 for none
	given       time.Time
}

// catchUp anchors the lines that were written before a crash and not anchored.
func (a *anchoring) catchUp(dir string, opts Options, last int64) error {
	if a.to = opts.Anchor; a.to == nil {
		return nil
	}
	a.sum = sha256.New()
	known := a.to.EgressLast()
	if known >= last {
		return nil
	}
	err := Lines(context.Background(), dir, known, func(seq int64, line []byte) error {
		a.add(seq, seq, line)
		return nil
	})
	a.give(opts.Now(), true)
	return err
}

// take takes in lines that were written.
func (a *anchoring) take(b batch) {
	if a.to != nil && b.last >= b.first {
		a.add(b.first, b.last, b.lines)
	}
}

func (a *anchoring) add(first, last int64, lines []byte) {
	if a.first == 0 {
		a.first = first
	}
	a.last = last
	a.sum.Write(lines)
}

// give hands the digest over if it is time, or all is set. The lines are on the disk.
func (a *anchoring) give(now time.Time, all bool) {
	if a.to == nil || a.first == 0 || !all && now.Sub(a.given).Abs() < anchorEvery {
		return
	}
	a.to.Egress(a.first, a.last, hex.EncodeToString(a.sum.Sum(nil)))
	a.first, a.given = 0, now
	a.sum.Reset()
}

// Lines passes on the lines of the log in a directory, with their ends, from the number after on, in
// their order. A Log may be open for the directory: then files may be renamed, packed and removed
// meanwhile, and no line is passed on twice or left out. Like readers, it passes over damaged lines.
func Lines(ctx context.Context, dir string, after int64, fn func(seq int64, line []byte) error) error {
	const tries = 5 // a file is renamed at most twice, and rarely
	for try := 0; ; try++ {
		err := linesOnce(ctx, dir, &after, fn)
		if !errors.Is(err, os.ErrNotExist) || try == tries {
			return err
		}
	}
}

// linesOnce goes through the files once. after is where it came to.
func linesOnce(ctx context.Context, dir string, after *int64, fn func(seq int64, line []byte) error) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil // there is no log
	}
	if err != nil {
		return err
	}
	var names []string
	for _, e := range entries { // sorted: ….jsonl comes before ….jsonl.zst
		if fileName.MatchString(e.Name()) && e.Type().IsRegular() {
			names = append(names, e.Name())
		}
	}
	for _, name := range slices.Concat(names, []string{activeName}) {
		err := linesOf(ctx, filepath.Join(dir, name), after, fn)
		if name == activeName && errors.Is(err, os.ErrNotExist) && len(names) == 0 {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// linesOf passes on the lines of one file. A packed file ends where it is damaged.
func linesOf(ctx context.Context, name string, after *int64, fn func(seq int64, line []byte) error) error {
	in, err := os.Open(name)
	if err != nil {
		return err
	}
	defer in.Close()
	r, packed := io.Reader(in), strings.HasSuffix(name, packedExt)
	if packed {
		dec, err := unpack(in)
		if err != nil {
			return err
		}
		defer dec.Close()
		r = damageable{dec}
	}
	pos := position{next: *after + 1}
	var buf []byte
	err = readLines(ctx, r, &pos, func(seq int64, line []byte, _ time.Time) error {
		buf = append(append(buf[:0], line...), '\n')
		if err := fn(seq, buf); err != nil {
			return err
		}
		*after = seq
		return nil
	})
	var broken *damage
	if errors.As(err, &broken) {
		return nil
	}
	return err
}
