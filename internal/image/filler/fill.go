package filler

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/image/archive"
	"github.com/carrel-dev/carrel/internal/image/stargz"
)

const (
	// readTime bounds a read that waits for the registry. The kernel can't end such a read itself.
	readTime = time.Minute
	// demandReads bounds the chunks that are fetched at once because somebody waits for them.
	demandReads = 16
	// backgroundReads is the number of runs that are fetched at once.
	backgroundReads = 2
	maxRun          = 4 << 20  // packed bytes of one request of the background
	maxGap          = 64 << 10 // unneeded bytes between two chunks of a run
	yieldPause      = 2 * time.Millisecond
	// One piece of the background makes way for a yieldShare-th of Source.ReadTime at most. Without a
	// bound, a sandbox that reads all the time would hold it up for ever, where the registry is slow.
	yieldShare = 12
	// giveUpAfter is how long the background tries without any chunk arriving.
	giveUpAfter = 10 * time.Minute
	maxBackoff  = 10 * time.Second
)

// Layers gives parts of layers. registry.Ranges implements it.
type Layers interface {
	Open(ctx context.Context, layer v1.Hash, off, n int64, try int) (io.ReadCloser, error)
}

// Source is where chunks come from. Both fields must use connections of their own.
type Source struct {
	// Chunk fetches and checks one chunk for somebody who waits.
	Chunk func(ctx context.Context, layer v1.Hash, c stargz.Chunk) ([]byte, error)
	// Background gives the rest.
	Background Layers
	// ReadTime bounds a read that waits. 0 is readTime.
	ReadTime time.Duration
}

// Fill is an image that is being filled. It implements fileview.File.
type Fill struct {
	plan    *Plan
	file    *os.File
	src     Source
	byPlace []int32         // pieces in the order of their places
	there   []atomic.Bool   // pieces whose content is in the file
	missing atomic.Int64    // bytes
	demand  chan struct{}   // a place for each fetch that somebody waits for
	waiting atomic.Int64    // reads that wait
	ctx     context.Context // of all fetches for reads
	cancel  context.CancelFunc
	resumed bool // the file may hold pieces of an earlier filler

	mu      sync.Mutex
	flights map[int32]*flight
}

// flight is a fetch for somebody who waits.
type flight struct {
	done   chan struct{}
	err    error
	cancel context.CancelFunc // the background has brought the piece
}

// New returns a Fill of the image in a file. resumed says that an earlier one may have worked on it.
func New(plan *Plan, file *os.File, src Source, resumed bool) *Fill {
	f := &Fill{plan: plan, file: file, src: src, there: make([]atomic.Bool, len(plan.Pieces)),
		demand: make(chan struct{}, demandReads), flights: map[int32]*flight{}, resumed: resumed}
	f.src.ReadTime = cmp.Or(src.ReadTime, readTime)
	f.ctx, f.cancel = context.WithCancel(context.Background())
	for i, p := range plan.Pieces {
		f.byPlace = append(f.byPlace, int32(i))
		f.missing.Add(p.Chunk.Size)
	}
	slices.SortFunc(f.byPlace, func(a, b int32) int {
		return cmp.Compare(plan.Pieces[a].Place, plan.Pieces[b].Place)
	})
	return f
}

// Close ends all fetches for reads.
func (f *Fill) Close() { f.cancel() }

// Missing returns the number of bytes that are still to come.
func (f *Fill) Missing() int64 { return f.missing.Load() }

// lacking lists the missing pieces of a part of the image.
func (f *Fill) lacking(off, n int64) (out []int32) {
	at, _ := slices.BinarySearchFunc(f.byPlace, off, func(i int32, off int64) int {
		p := f.plan.Pieces[i]
		if p.Place+p.Chunk.Size <= off {
			return -1
		}
		return 1
	})
	for _, i := range f.byPlace[at:] {
		if f.plan.Pieces[i].Place >= off+n {
			break
		}
		if !f.there[i].Load() {
			out = append(out, i)
		}
	}
	return out
}

// Ready implements fileview.File.
func (f *Fill) Ready(off, n int64) bool { return len(f.lacking(off, n)) == 0 }

// ReadAt implements io.ReaderAt. It fetches what is missing.
func (f *Fill) ReadAt(p []byte, off int64) (int, error) {
	if err := f.need(off, int64(len(p))); err != nil {
		return 0, err
	}
	n, err := f.file.ReadAt(p, off)
	if off < int64(len(f.plan.First)) { // the file gets it last
		copy(p[:n], f.plan.First[off:])
	}
	return n, err
}

// need waits until a part of the image is there.
func (f *Fill) need(off, n int64) error {
	pieces := f.lacking(off, n)
	if len(pieces) == 0 {
		return nil
	}
	f.waiting.Add(1)
	defer f.waiting.Add(-1)
	timer := time.NewTimer(f.src.ReadTime)
	defer timer.Stop()
	for _, fl := range f.fetchAll(pieces) {
		select {
		case <-fl.done:
			if fl.err != nil {
				return fl.err
			}
		case <-timer.C:
			return fmt.Errorf("the registry did not answer for %s", f.src.ReadTime)
		}
	}
	return nil
}

// fetchAll begins to fetch pieces, unless somebody has begun already.
func (f *Fill) fetchAll(pieces []int32) (all []*flight) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, i := range pieces {
		fl := f.flights[i]
		if fl == nil {
			ctx, cancel := context.WithTimeout(f.ctx, f.src.ReadTime)
			fl = &flight{done: make(chan struct{}), cancel: cancel}
			f.flights[i] = fl
			go f.fly(ctx, i, fl) // ends with f.ctx
		}
		all = append(all, fl)
	}
	return all
}

// fly fetches one piece for those who wait.
func (f *Fill) fly(ctx context.Context, i int32, fl *flight) {
	defer fl.cancel()
	err := func() error {
		select {
		case f.demand <- struct{}{}:
			defer func() { <-f.demand }()
		case <-ctx.Done():
			return ctx.Err()
		}
		if f.has(i) {
			return nil
		}
		p := f.plan.Pieces[i]
		content, err := f.src.Chunk(ctx, f.plan.Layers[p.Layer], p.Chunk)
		if err != nil {
			return err
		}
		return f.put(i, content)
	}()
	if !f.there[i].Load() {
		fl.err = err
	}
	f.mu.Lock()
	delete(f.flights, i)
	f.mu.Unlock()
	close(fl.done)
}

// has reports whether a piece is in the file. After a restart it looks into the file.
func (f *Fill) has(i int32) bool {
	if f.there[i].Load() {
		return true
	}
	if !f.resumed {
		return false
	}
	p := f.plan.Pieces[i]
	at, err := unix.Seek(int(f.file.Fd()), p.Place, unix.SEEK_DATA)
	if err != nil || at >= p.Place+p.Chunk.Size {
		return false // a hole
	}
	b := make([]byte, p.Chunk.Size)
	if _, err := f.file.ReadAt(b, p.Place); err != nil || sha256.Sum256(b) != p.Chunk.Digest {
		return false
	}
	f.mark(i)
	return true
}

// mark notes that a piece is in the file. Who waits for it need not wait for a fetch of its own.
func (f *Fill) mark(i int32) {
	if f.there[i].CompareAndSwap(false, true) {
		f.missing.Add(-f.plan.Pieces[i].Chunk.Size)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if fl := f.flights[i]; fl != nil {
		fl.cancel()
	}
}

var zeros = make([]byte, 4096)

// put writes a checked piece. Two writers of one piece write the same bytes.
func (f *Fill) put(i int32, content []byte) error {
	place := f.plan.Pieces[i].Place
	start := 0 // of the run of blocks to write
	flush := func(end int) error {
		if end <= start {
			return nil
		}
		_, err := f.file.WriteAt(content[start:end], place+int64(start))
		return err
	}
	// Zeros stay a hole, but not over bytes that an earlier filler may have left.
	for at := 0; at < len(content) && !f.resumed; at += len(zeros) {
		end := min(at+len(zeros), len(content))
		if bytes.Equal(content[at:end], zeros[:end-at]) {
			if err := flush(at); err != nil {
				return err
			}
			start = end
		}
	}
	if err := flush(len(content)); err != nil {
		return err
	}
	f.mark(i)
	return nil
}

// Run fetches everything that is missing. It returns nil when all is in the file, durable, and the
// file is an ordinary image.
func (f *Fill) Run(ctx context.Context) error {
	last, before := time.Now(), f.Missing()
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, maxBackoff) {
		err := f.pass(ctx)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if now := f.Missing(); now < before {
			last, before, pause = time.Now(), now, 100*time.Millisecond
		}
		if isFinal(err) || time.Since(last) > giveUpAfter {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := f.file.Sync(); err != nil {
		return err
	}
	if _, err := f.file.WriteAt(f.plan.First, 0); err != nil {
		return err
	}
	return f.file.Sync()
}

// isFinal reports whether trying again can't help.
func isFinal(err error) bool {
	switch carrel.KindOf(err) {
	case carrel.Invalid, carrel.NotFound, carrel.Forbidden, carrel.Unauthenticated, carrel.Unsupported:
		return true
	}
	_, disk := errors.AsType[*os.PathError](err)
	return disk
}

// pass tries each missing piece once.
func (f *Fill) pass(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(backgroundReads)
	var run []int32
	end, layer := int64(0), -1
	send := func() {
		if now := run; len(now) > 0 {
			g.Go(func() error { return f.fetchRun(ctx, now) })
		}
		run = nil
	}
	for i := range f.plan.Pieces {
		if ctx.Err() != nil {
			break
		}
		p := f.plan.Pieces[i]
		if f.has(int32(i)) {
			continue
		}
		gap := p.Chunk.Offset - end
		if len(run) > 0 && (p.Layer != layer || gap < 0 || gap > maxGap ||
			p.Chunk.Offset+p.Chunk.Packed-f.plan.Pieces[run[0]].Chunk.Offset > maxRun) {
			send()
		}
		run = append(run, int32(i))
		end, layer = p.Chunk.Offset+p.Chunk.Packed, p.Layer
	}
	send()
	return g.Wait()
}

// fetchRun fetches pieces that lie beside each other in a layer, with one request.
func (f *Fill) fetchRun(ctx context.Context, run []int32) error {
	first, last := f.plan.Pieces[run[0]], f.plan.Pieces[run[len(run)-1]]
	layer := f.plan.Layers[first.Layer]
	rc, err := f.src.Background.Open(ctx, layer, first.Chunk.Offset,
		last.Chunk.Offset+last.Chunk.Packed-first.Chunk.Offset, 0)
	if err != nil {
		return err
	}
	defer rc.Close()
	r := &counter{r: rc, at: first.Chunk.Offset}
	for _, i := range run {
		if err := f.yield(ctx); err != nil {
			return err
		}
		p := f.plan.Pieces[i]
		if f.has(i) {
			continue
		}
		if err := f.fetchNext(ctx, r, i, p); err != nil {
			return err
		}
	}
	return nil
}

// fetchNext fetches the next piece of a run.
func (f *Fill) fetchNext(ctx context.Context, r *counter, i int32, p archive.LatePiece) error {
	if _, err := io.CopyN(io.Discard, r, p.Chunk.Offset-r.at); err != nil {
		return err
	}
	content, err := stargz.ReadChunk(io.LimitReader(r, p.Chunk.Packed), p.Chunk)
	if stargz.IsWrongContent(err) {
		// Ask again, also other origins, before anybody is blamed.
		content, err = f.src.Chunk(ctx, f.plan.Layers[p.Layer], p.Chunk)
	}
	if err != nil {
		return err
	}
	return f.put(i, content)
}

// yield waits while somebody waits for other chunks: those have the connection for themselves, for
// some time.
func (f *Fill) yield(ctx context.Context) error {
	for until := time.Now().Add(f.src.ReadTime / yieldShare); f.waiting.Load() > 0 && time.Now().Before(until); {
		select {
		case <-time.After(yieldPause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return ctx.Err()
}

// counter knows its place in a layer.
type counter struct {
	r  io.Reader
	at int64
}

// Read implements io.Reader.
func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.at += int64(n)
	return n, err
}
