package store

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sync/errgroup"

	"github.com/carrel-dev/carrel"
)

// fill is the unpacking of a snapshot. Other callers that open the snapshot wait for it.
type fill struct {
	done chan struct{}
	err  error // valid when done is closed
}

// finished reports whether err may be read.
func (f *fill) finished() bool {
	select {
	case <-f.done:
		return true
	default:
		return false
	}
}

// startFill begins to unpack a snapshot, or returns the fill that already runs. The caller holds
// mu.
func (s *Store) startFill(id carrel.SnapshotID, e *entry) *fill {
	if e.fill != nil {
		return e.fill
	}
	f := &fill{done: make(chan struct{})}
	e.fill = f
	s.wg.Add(1)
	go func() {
		defer s.wg.Done()
		err := s.fill(s.ctx, id, e)
		s.mu.Lock()
		f.err, e.fill = err, nil
		s.mu.Unlock()
		close(f.done)
	}()
	return f
}

// fill makes a hot copy of a packed snapshot.
func (s *Store) fill(ctx context.Context, id carrel.SnapshotID, e *entry) error {
	if err := step("unpack.start"); err != nil {
		return err
	}
	p, err := s.readPacked(ctx, id)
	if err != nil {
		return err
	}
	if err := s.makeRoom("open snapshot", p.Manifest.Size); err != nil {
		return err
	}
	dir, done, err := s.fillDir()
	if err != nil {
		return err
	}
	defer done() // after the rename it removes nothing
	if err := s.claim(filepath.Base(dir), stored(p)); err != nil {
		return err
	}
	err = s.unpack(ctx, p, filepath.Join(dir, filesDir))
	if carrel.KindOf(err) == carrel.NotFound {
		// A GC, here or elsewhere, may have moved its chunks since the manifest was read.
		if p, err = s.refresh(ctx, id); err != nil {
			return err // NotFound: the snapshot does not exist any more
		}
		_ = os.RemoveAll(filepath.Join(dir, filesDir))
		if err = s.unpack(ctx, p, filepath.Join(dir, filesDir)); carrel.KindOf(err) == carrel.NotFound {
			if lost, ok := errors.AsType[*missingPack](err); ok {
				s.check.suspect(lost.name, err)
			}
			err = invalid("content is missing: %w", err)
		}
	}
	if err != nil {
		return err
	}
	b, err := encodeManifest(p.Manifest)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, manifestFile), b, 0o600); err != nil {
		return err
	}
	// The copy is not synced. It counts as valid until the system restarts, see loadHot.
	if err := os.WriteFile(filepath.Join(dir, bootFile), []byte(bootID()), 0o600); err != nil {
		return err
	}
	if err := step("unpack.written"); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.deleted || s.entries[id] != e {
		return &carrel.Error{Kind: carrel.NotFound, Err: errors.New("it was deleted")}
	}
	if e.hot { // it is damaged, and may be in use
		go s.empty(s.dropHot(id, e))
	}
	if err := os.Rename(dir, s.path(dirHot, string(id))); err != nil {
		return err
	}
	e.hot, e.damaged = true, false
	s.hot += e.size
	if e.again { // the damaged copy before this one could not be packed again
		s.pending = append(s.pending, id)
		s.wakePacker()
	}
	return step("unpack.renamed")
}

// stored returns how many bytes a snapshot's files take on the disk. Zeros stay holes.
func stored(p *packed) (sum int64) {
	for _, ranges := range p.files {
		for _, x := range ranges {
			if x.chunk >= 0 {
				sum += x.size
			}
		}
	}
	return sum
}

// fillDir makes a directory for a new hot copy. The directory is held like a draft, so a GC does
// not touch it, even if the snapshot is deleted in the meantime. done removes it.
func (s *Store) fillDir() (dir string, done func(), err error) {
	name := "fill-" + carrel.NewSnapshotID()
	s.mu.Lock()
	s.drafts[name] = true
	s.mu.Unlock()
	dir = s.path(dirDrafts, string(name))
	done = func() {
		_ = os.RemoveAll(dir)
		s.mu.Lock()
		delete(s.drafts, name)
		s.unclaim(string(name))
		s.mu.Unlock()
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		done()
		return "", nil, err
	}
	return dir, done, nil
}

// refresh reads a packed manifest again from the blobs.
func (s *Store) refresh(ctx context.Context, id carrel.SnapshotID) (*packed, error) {
	return s.fetchPacked(ctx, id)
}

// span is the part of a file that one range of a chunk holds.
type span struct {
	file int
	off  uint32 // in the chunk
	size int64
	at   int64 // in the file
}

// readsPerWorker is how many runs are read at once for each worker. A worker that waits for the
// object store needs no processor meanwhile.
const readsPerWorker = 3

// readAhead bounds the part of a pack that is read in one request. Up to skipBytes that nobody
// needs are read and dropped; longer gaps begin a new request.
const (
	readAhead = 4 << 20
	skipBytes = 128 << 10
)

// run is a list of chunks that are read in one request.
type run struct {
	pack     uint32
	from, to uint32
	chunks   []int32
}

// runs puts the used chunks in the order of their places.
func runs(p *packed, used [][]span) []run {
	var order []int32
	for i, spans := range used {
		if len(spans) > 0 {
			order = append(order, int32(i))
		}
	}
	slices.SortFunc(order, func(a, b int32) int {
		x, y := &p.chunks[a], &p.chunks[b]
		return cmp.Or(cmp.Compare(x.pack, y.pack), cmp.Compare(x.off, y.off))
	})
	var list []run
	for _, i := range order {
		c := &p.chunks[i]
		if n := len(list); n > 0 {
			last := &list[n-1]
			if last.pack == c.pack && c.off <= last.to+skipBytes && c.off+c.stored-last.from <= readAhead {
				last.to = max(last.to, c.off+c.stored)
				last.chunks = append(last.chunks, i)
				continue
			}
		}
		list = append(list, run{pack: c.pack, from: c.off, to: c.off + c.stored, chunks: []int32{i}})
	}
	return list
}

// unpack writes the files of a packed snapshot into a new directory. Each chunk is compared with its
// SHA-256. Who opens the files compares them with their checksums, see snapshot.Files. Errors:
// NotFound when a pack does not exist, Invalid for damage.
func (s *Store) unpack(ctx context.Context, p *packed, dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	u := &unpacker{s: s, p: p, used: make([][]span, len(p.chunks))}
	defer u.close()
	for i, f := range p.Manifest.Files {
		out, err := os.OpenFile(filepath.Join(dir, f.Name), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		u.files = append(u.files, out)
		// Zeros stay holes.
		if err := out.Truncate(f.Size); err != nil {
			return err
		}
		var at int64
		for _, x := range p.files[i] {
			if x.chunk >= 0 {
				u.used[x.chunk] = append(u.used[x.chunk], span{file: i, off: x.off, size: x.size, at: at})
			}
			at += x.size
		}
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(s.opts.Workers * readsPerWorker)
	u.turns = make(chan struct{}, s.opts.Workers)
	for _, r := range runs(p, u.used) {
		if gctx.Err() != nil {
			break
		}
		g.Go(func() error { return u.run(gctx, r) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	for _, f := range u.files {
		if err := f.Chmod(0o400); err != nil {
			return err
		}
	}
	return nil
}

// unpacker unpacks one snapshot.
type unpacker struct {
	s     *Store
	p     *packed
	files []*os.File
	used  [][]span      // of each chunk
	turns chan struct{} // a token for each run whose chunks are being decompressed
}

func (u *unpacker) close() {
	for _, f := range u.files {
		_ = f.Close()
	}
}

// decoder is shared: DecodeAll keeps no state. No valid chunk needs more than its memory limit.
var decoder = func() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(1<<20), zstd.WithDecodeAllCapLimit(true))
	if err != nil {
		panic(err) // options that are constants
	}
	return d
}()

// run reads a run and writes its chunks to their places in the files.
func (u *unpacker) run(ctx context.Context, r run) error {
	name := u.p.Packs[r.pack].Name
	rc, err := u.s.opts.Blobs.Get(ctx, packBlob(name), int64(r.from), int64(r.to-r.from))
	if carrel.KindOf(err) == carrel.NotFound {
		err = &missingPack{name, err}
	}
	if err != nil {
		return u.blame(r.chunks[0], fmt.Errorf("pack %s: %w", name, err))
	}
	b := make([]byte, r.to-r.from)
	_, err = io.ReadFull(rc, b)
	if cerr := rc.Close(); err == nil {
		err = cerr
	}
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return u.damaged(r, r.chunks[0], invalid("it is cut off"))
	} else if err != nil {
		return u.blame(r.chunks[0], fmt.Errorf("pack %s: %w", name, err))
	}
	u.turns <- struct{}{}
	defer func() { <-u.turns }()
	raw := make([]byte, 0, chunkMax)
	for _, i := range r.chunks {
		if err := step("unpack.chunk"); err != nil {
			return err
		}
		c := &u.p.chunks[i]
		content, err := c.open(b[c.off-r.from:][:c.stored], raw)
		if err != nil {
			return u.damaged(r, i, err)
		}
		for _, sp := range u.used[i] {
			if _, err := u.files[sp.file].WriteAt(content[sp.off:][:sp.size], sp.at); err != nil {
				return err
			}
		}
	}
	return nil
}

// missingPack is the error for a pack that does not exist.
type missingPack struct {
	name string
	error
}

func (m *missingPack) Unwrap() error { return m.error }

// damaged is the error of a run with a damaged chunk. From now on nothing relies on its pack.
func (u *unpacker) damaged(r run, i int32, err error) error {
	name := u.p.Packs[r.pack].Name
	err = fmt.Errorf("pack %s: %w", name, err)
	u.s.check.suspect(name, err)
	return u.blame(i, err)
}

// open verifies and decompresses a chunk. room is a buffer of capacity chunkMax.
func (c *chunk) open(stored, room []byte) ([]byte, error) {
	if sha256.Sum256(stored) != c.sum {
		return nil, invalid("the SHA-256 of its %d bytes at %d is another", c.stored, c.off)
	}
	if c.stored == c.raw {
		return stored, nil
	}
	content, err := decoder.DecodeAll(stored, room[:0:c.raw])
	if err != nil {
		return nil, invalid("it does not decompress: %w", err)
	}
	if uint32(len(content)) != c.raw {
		return nil, invalid("it decompresses to %d bytes instead of %d", len(content), c.raw)
	}
	return content, nil
}

// blame adds to a chunk's error the name of the file that uses the chunk.
func (u *unpacker) blame(i int32, err error) error {
	return fmt.Errorf("file %q: chunk %d: %w", u.p.Manifest.Files[u.used[i][0].file].Name, i, err)
}

// bootFile exists in unpacked hot copies. It names the boot of the operating system during which
// the copy was written: until the next boot the page cache holds data that may not have reached the
// disk.
const bootFile = "boot"

// bootID returns the ID of this boot of the operating system.
func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
