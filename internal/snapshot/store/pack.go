package store

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/cespare/xxhash/v2"
	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/atomicfile"
	"github.com/carrel-dev/carrel/internal/snapshot"
)

// segmentBytes is the part of a file that is read at once. It consists of whole blocks, because the
// packer verifies the content block by block.
const segmentBytes = 8 * sumBlock

// packing is a snapshot that is being packed.
type packing struct {
	id     carrel.SnapshotID
	cancel context.CancelFunc
	done   chan struct{}
}

// packAll packs in the background, until the store closes.
func (s *Store) packAll() {
	defer s.wg.Done()
	// The thread gets a low priority. It stays locked to this goroutine, so it ends with it.
	runtime.LockOSThread()
	_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), 15)
	const first, most = time.Second, time.Minute
	pause := first
	for {
		var again <-chan time.Time
		if err := s.distrustSuspects(s.ctx); err != nil && s.ctx.Err() == nil {
			s.log.Warn("distrust damaged packs", "error", err, "again", most)
			again = time.After(most)
		}
		wait, any := s.nextDue(time.Now())
		switch {
		case any && wait > 0:
			again = time.After(wait)
		case any:
			err := s.packNext(s.ctx)
			if s.ctx.Err() != nil {
				return
			}
			if err == nil {
				pause = first
				continue
			}
			s.log.Warn("pack a snapshot", "error", err, "again", pause)
			again, pause = time.After(pause), min(2*pause, most)
		}
		select {
		case <-s.ctx.Done():
			return
		case <-again:
		case <-s.wake:
		}
	}
}

// nextDue returns the time until the oldest unpacked snapshot may be packed. any is false when
// there is none.
func (s *Store) nextDue(now time.Time) (wait time.Duration, any bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pending) == 0 {
		return 0, false
	}
	e := s.entries[s.pending[0]]
	if e == nil || e.deleted {
		return 0, true // passed over at once
	}
	return time.Unix(0, e.made).Add(s.opts.Settle).Sub(now), true
}

// Flush implements [snapshot.Store].
func (s *Store) Flush(ctx context.Context) error {
	const op = "flush snapshots"
	if err := s.distrustSuspects(ctx); err != nil {
		return classify(op, "", err)
	}
	s.mu.Lock()
	left := map[carrel.SnapshotID]bool{}
	for _, id := range s.pending {
		left[id] = true
	}
	if s.packing != nil {
		left[s.packing.id] = true
	}
	s.mu.Unlock()
	for len(left) > 0 {
		if err := s.packNext(ctx); err != nil {
			return classify(op, "", err)
		}
		s.mu.Lock()
		for _, id := range s.pending {
			if e := s.entries[id]; e != nil && e.again {
				left[id] = true // a pack under it was found damaged just now
			}
		}
		for id := range left {
			if e := s.entries[id]; e == nil || e.deleted || e.spare() || e.damaged || !e.hot {
				delete(left, id)
			}
		}
		s.mu.Unlock()
	}
	return nil
}

// lockBackground takes the background semaphore.
func (s *Store) lockBackground(ctx context.Context) error {
	select {
	case s.bg <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		<-s.bg
		return errClosed("")
	}
	return nil
}

// packNext packs the oldest snapshot that is not packed, if there is one.
func (s *Store) packNext(ctx context.Context) error {
	if err := s.lockBackground(ctx); err != nil {
		return err
	}
	defer func() { <-s.bg }()
	// Close also cancels the work of a Flush.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	id, e, p := s.nextPending(cancel)
	if e == nil {
		return nil
	}
	err := s.packOne(ctx, id, e)
	s.mu.Lock()
	s.packing = nil
	e.holders--
	if carrel.KindOf(err) == carrel.Invalid {
		e.damaged = true
	}
	retry := err != nil && !e.deleted && !e.damaged
	if retry {
		s.pending = append([]carrel.SnapshotID{id}, s.pending...)
	}
	deleted := e.deleted
	s.mu.Unlock()
	close(p.done)
	switch {
	case deleted:
		return nil
	case err != nil && !retry:
		s.log.Error("a damaged snapshot can't be packed", "snapshot", id, "error", err)
		return nil
	case err != nil:
		return classify("pack snapshot", id, err)
	}
	s.trim()
	return s.keepQuota()
}

// keepQuota drops hot copies when packs have exceeded the quota. At this point there is no caller
// to refuse.
func (s *Store) keepQuota() error {
	if err := s.makeRoom("", 0); err != nil {
		s.log.Warn("snapshot quota", "error", err)
	}
	return nil
}

// nextPending takes the oldest unpacked snapshot from the queue and holds it.
func (s *Store) nextPending(cancel context.CancelFunc) (carrel.SnapshotID, *entry, *packing) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.pending) > 0 {
		id := s.pending[0]
		s.pending = s.pending[1:]
		e := s.entries[id]
		if e == nil || !e.hot || e.spare() || e.deleted || e.damaged {
			continue
		}
		e.holders++
		s.packing = &packing{id: id, cancel: cancel, done: make(chan struct{})}
		return id, e, s.packing
	}
	return "", nil, nil
}

// packOne packs a snapshot. The caller holds its entry.
func (s *Store) packOne(ctx context.Context, id carrel.SnapshotID, e *entry) error {
	if err := step("pack.start"); err != nil {
		return err
	}
	m, err := readManifest(s.path(dirHot, string(id), manifestFile), id)
	if err != nil {
		return err
	}
	s.mu.Lock()
	again := e.again
	s.mu.Unlock()
	if again && s.opts.Shared {
		_, err := s.fetchManifest(ctx, id)
		if carrel.KindOf(err) == carrel.NotFound { // another machine has deleted it: it stays deleted
			s.packedAgain(id, e)
			return nil
		} else if err != nil {
			return err
		}
	}
	var out *packed
	var b []byte
	avoid, err := s.deadPacks(ctx)
	if err != nil {
		return err
	}
	for {
		if out, b, err = s.packFiles(ctx, m, s.path(dirHot, string(id), filesDir), "", avoid); err != nil {
			return err
		}
		if err := s.publishManifest(ctx, id, b); err != nil {
			return err
		}
		// Another machine's GC may have marked a pack of ours before it could see the manifest.
		dead, err := s.deadPacks(ctx)
		if err != nil {
			return err
		}
		if !usesAny(out, dead) {
			break
		}
		avoid = dead
	}
	if err := step("pack.published"); err != nil {
		return err
	}
	if err := atomicfile.Write(s.path(dirPacked, string(id)), b, 0o600); err != nil {
		return err
	}
	s.mu.Lock()
	e.packed, e.added = true, out.Added
	s.mu.Unlock()
	s.packedAgain(id, e)
	if err := step("pack.recorded"); err != nil {
		s.log.Warn("pack a snapshot", "snapshot", id, "error", err)
	}
	return nil
}

// publishManifest makes a packed snapshot visible to other machines, unless it is being deleted.
func (s *Store) publishManifest(ctx context.Context, id carrel.SnapshotID, b []byte) error {
	if err := step("pack.publish"); err != nil {
		return err
	}
	return putBytes(ctx, s.opts.Blobs, manifestBlob(id), b)
}

// packFiles packs all files and returns the packed manifest and its bytes.
//
// The files lie in dir. With only, the one file of the manifest has that name there.
func (s *Store) packFiles(ctx context.Context, m snapshot.Manifest, dir, only string,
	avoid map[string]bool) (out *packed, b []byte, err error) {
	p, err := s.newPacker(ctx, m, avoid)
	if err != nil {
		return nil, nil, err
	}
	defer p.close()
	defer func() {
		if derr := s.distrust(p.bad); err == nil {
			err = derr
		}
	}()
	buf := make([]byte, min(segmentBytes, max(maxSize(m), 1)))
	for _, f := range m.Files {
		list, err := packFile(ctx, p, filepath.Join(dir, cmp.Or(only, f.Name)), f, buf)
		if err != nil {
			return nil, nil, err
		}
		p.out.files = append(p.out.files, list)
	}
	if out, err = p.finish(); err != nil {
		return nil, nil, err
	}
	b, err = out.encode()
	return out, b, err
}

// maxSize is the size of the largest file.
func maxSize(m snapshot.Manifest) int64 {
	var most int64
	for _, f := range m.Files {
		most = max(most, f.Size)
	}
	return most
}

// packFile reads one file, verifies it and packs it.
func packFile(ctx context.Context, p *packer, path string, want snapshot.File, buf []byte) ([]extent, error) {
	sums, err := decodeSums(want)
	if err != nil {
		return nil, err
	}
	f, err := openExact(path, want)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	list := []extent{}
	for off := int64(0); off < want.Size; off += segmentBytes {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		b := buf[:min(segmentBytes, want.Size-off)]
		hole := empty(f, off, off+int64(len(b)))
		if !hole {
			if _, err := io.ReadFull(io.NewSectionReader(f, off, int64(len(b))), b); err != nil {
				return nil, err
			}
		}
		for i := 0; i < len(b); i += sumBlock {
			at, block := off+int64(i), b[i:min(len(b), i+sumBlock)]
			var sum uint64
			if hole {
				sum = zeroSum(int64(len(block)))
			} else {
				sum = xxhash.Sum64(block)
			}
			if sum != sums[at/sumBlock] {
				return nil, invalid("file %q is damaged between bytes %d and %d", want.Name, at, min(want.Size, at+sumBlock))
			}
		}
		if hole {
			list = appendExtent(list, extent{chunk: -1, size: int64(len(b))})
		} else if list, err = p.segment(b, paged(want.Size), list); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// usesAny reports whether a snapshot has content in one of the packs.
func usesAny(p *packed, packs map[string]bool) bool {
	for _, ref := range p.Packs {
		if packs[ref.Name] {
			return true
		}
	}
	return false
}

// deadPacks lists the packs that a GC of any machine is about to delete.
func (s *Store) deadPacks(ctx context.Context) (map[string]bool, error) {
	if !s.opts.Shared {
		return nil, nil // the only GC is this store's, never at the same time
	}
	dead := map[string]bool{}
	prefix := deadBlob("")
	err := s.opts.Blobs.List(ctx, prefix, func(b snapshot.BlobInfo) error {
		dead[b.Name[len(prefix):]] = true
		return nil
	})
	return dead, err
}

// adopt adds a snapshot that another machine put into the blobs.
func (s *Store) adopt(ctx context.Context, id carrel.SnapshotID) error {
	b, err := s.fetchManifest(ctx, id)
	if err != nil {
		return err
	}
	p, err := parsePacked(b, id)
	if err != nil {
		return err
	}
	s.mu.Lock()
	e := s.entries[id]
	s.mu.Unlock()
	if e != nil {
		if e.deleted {
			return &carrel.Error{Kind: carrel.NotFound, Err: errors.New("it was deleted")}
		}
		return nil
	}
	if err := atomicfile.Write(s.path(dirPacked, string(id)), b, 0o600); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone[id] {
		_ = os.Remove(s.path(dirPacked, string(id)))
		return &carrel.Error{Kind: carrel.NotFound, Err: errors.New("it was deleted")}
	}
	if s.entries[id] == nil {
		s.entries[id] = &entry{size: p.Manifest.Size, added: p.Added, used: time.Now().UnixNano(), made: p.Manifest.Created.UnixNano(), line: p.Manifest.Line, packed: true}
	}
	return nil
}

// putBytes stores bytes from memory as a blob.
func putBytes(ctx context.Context, blobs snapshot.Blobs, name string, b []byte) error {
	return blobs.Put(ctx, name, bytes.NewReader(b), int64(len(b)))
}
