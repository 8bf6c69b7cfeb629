package store

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/atomicfile"
	"github.com/carrel-dev/carrel/internal/failpoint"
	"github.com/carrel-dev/carrel/internal/snapshot"
)

// A pack can be lost or damaged behind the store's back. A later snapshot that shares its content
// must not be lost with it, so:
//
//   - The packer checks a pack before it relies on a chunk of it.
//   - A pack that fails is distrusted: it leaves the index, and its content is written again when a
//     snapshot needs it.
//   - Snapshots that lie on a distrusted pack and have a hot copy are packed again from that copy.
//     Until then, their hot copies are not dropped to make room.
//
// Nothing is deleted: the manifests and the rest of the pack stay for those who can still read
// them. All of this runs in the background. A create or a pause does not wait for it.

// dirAgain holds an empty file for each snapshot that must be packed again.
const dirAgain = "again"

// packCheck checks packs, and remembers which ones were whole.
type packCheck struct {
	blobs snapshot.Blobs
	wake  func() // the packer

	whole      map[string]string // marks of the files of whole packs, by pack; guarded by Store.bg
	distrusted map[string]bool   // since the store was opened; guarded by Store.bg

	mu       sync.Mutex
	suspects map[string]error // packs that a reader found damaged
}

func newPackCheck(blobs snapshot.Blobs, wake func()) *packCheck {
	return &packCheck{blobs: blobs, wake: wake, whole: map[string]string{},
		distrusted: map[string]bool{}, suspects: map[string]error{}}
}

// check returns the damage of a pack: an error of kind Invalid or NotFound. Any other error says
// that the pack can't be checked now. On this machine's disk, check reads the whole pack, and does
// it again only when the file has changed. In an object store, it checks that the pack is there and
// has its size. Reading all of it would cost a download, and object stores have checksums of their
// own.
func (k *packCheck) check(ctx context.Context, name string, in *indexed) error {
	local, ok := k.blobs.(snapshot.Marker)
	if !ok {
		return k.checkSize(ctx, name, in.size)
	}
	mark, err := local.Mark(ctx, packBlob(name))
	if err != nil || k.whole[name] == mark {
		return err
	}
	rc, err := k.blobs.Get(ctx, packBlob(name), 0, in.size)
	if err != nil {
		return unreadable(err)
	}
	err = errors.Join(in.verify(rc), rc.Close())
	if err == nil {
		k.whole[name] = mark
	}
	return unreadable(err)
}

// unreadable returns the damage of a pack whose sectors can't be read.
func unreadable(err error) error {
	if errors.Is(err, syscall.EIO) {
		return invalid("it can't be read: %w", err)
	}
	return err
}

// checkSize checks that a pack exists and ends where it should.
func (k *packCheck) checkSize(ctx context.Context, name string, size int64) error {
	rc, err := k.blobs.Get(ctx, packBlob(name), size-1, 2)
	if err != nil {
		return err
	}
	b, err := io.ReadAll(io.LimitReader(rc, 2))
	if err = errors.Join(err, rc.Close()); err != nil {
		return err
	}
	if len(b) != 1 {
		return invalid("it does not have %d bytes", size)
	}
	return nil
}

// verify compares the bytes of a pack with the checksums of its chunks.
func (in *indexed) verify(r io.Reader) error {
	br := bufio.NewReaderSize(r, 256<<10)
	room := make([]byte, chunkMax)
	var at uint32
	for _, c := range in.chunks { // in the order of their places
		if c.off < at || c.stored > chunkMax {
			return invalid("its index has a chunk of %d bytes at %d", c.stored, c.off)
		}
		b := room[:c.stored]
		_, err := br.Discard(int(c.off - at))
		if err == nil {
			_, err = io.ReadFull(br, b)
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return invalid("it is cut off")
		} else if err != nil {
			return err
		}
		if sha256.Sum256(b) != c.sum {
			return invalid("the SHA-256 of its %d bytes at %d is another", c.stored, c.off)
		}
		at = c.off + c.stored
	}
	return nil
}

// vouch records that a pack is whole, because the store has just written it.
func (k *packCheck) vouch(ctx context.Context, name string) {
	if local, ok := k.blobs.(snapshot.Marker); ok {
		if mark, err := local.Mark(ctx, packBlob(name)); err == nil {
			k.whole[name] = mark
		}
	}
}

// trusts reports whether the packer may rely on a pack.
func (p *packer) trusts(name string, in *indexed) (bool, error) {
	if failpoint.Mutant("distrust") {
		return true, nil
	}
	err := p.s.check.check(p.ctx, name, in)
	switch carrel.KindOf(err) {
	case carrel.Invalid, carrel.NotFound:
		p.bad[name] = err
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("check pack %s: %w", name, err)
	}
	return true, nil
}

// suspect notes that a reader found a pack damaged or missing. The packer then distrusts it.
func (k *packCheck) suspect(name string, damage error) {
	k.mu.Lock()
	k.suspects[name] = damage
	k.mu.Unlock()
	k.wake()
}

// takeSuspects returns the suspects, and forgets them.
func (k *packCheck) takeSuspects() map[string]error {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := k.suspects
	k.suspects = map[string]error{}
	return out
}

// distrustSuspects distrusts the packs that readers found damaged.
func (s *Store) distrustSuspects(ctx context.Context) error {
	bad := s.check.takeSuspects()
	if len(bad) == 0 {
		return nil
	}
	err := s.lockBackground(ctx)
	if err == nil {
		err = s.distrust(bad)
		<-s.bg
	}
	if err != nil { // the next call tries again
		s.check.mu.Lock()
		maps.Copy(s.check.suspects, bad)
		s.check.mu.Unlock()
	}
	return err
}

// distrust takes damaged packs out of the index. Snapshots that lie on them and have a hot copy are
// packed again. The caller holds bg.
func (s *Store) distrust(bad map[string]error) error {
	maps.DeleteFunc(bad, func(name string, _ error) bool { return s.check.distrusted[name] })
	if len(bad) == 0 {
		return nil
	}
	var hot []carrel.SnapshotID
	s.mu.Lock()
	for id, e := range s.entries {
		if e.hot && e.packed && !e.deleted {
			hot = append(hot, id)
		}
	}
	s.mu.Unlock()
	var unmarked error
	for _, id := range hot {
		b, err := os.ReadFile(s.path(dirPacked, string(id)))
		if err != nil {
			continue // it is being deleted
		}
		h, _, err := parseHead(b, id)
		if err != nil || s.opts.Shared && h.Origin != s.machine || !h.liesOn(bad) {
			// A damaged manifest is read from the blobs when it is needed. Another machine's
			// snapshot stays as it is, because that machine's GC would not know the new packs.
			continue
		}
		unmarked = errors.Join(unmarked, s.packAgain(id))
	}
	if unmarked != nil { // the index keeps the packs, so that the next check finds them again
		return unmarked
	}
	for name, damage := range bad {
		s.log.Error("a pack is damaged: what has a hot copy is packed again, "+
			"other snapshots that need the damaged part are refused", "pack", name, "damage", damage)
		if err := s.forgetPack(name); err != nil {
			return err
		}
		s.check.distrusted[name] = true
	}
	return nil
}

// liesOn reports whether a snapshot has content in one of the packs.
func (h *packedHead) liesOn(packs map[string]error) bool {
	return slices.ContainsFunc(h.Packs, func(ref packRef) bool { return packs[ref.Name] != nil })
}

// packAgain puts a packed snapshot into the packer's queue. From now on its hot copy stays. An error
// says that the next store would not know this.
func (s *Store) packAgain(id carrel.SnapshotID) error {
	s.mu.Lock()
	if e := s.entries[id]; e != nil && e.hot && !e.again {
		e.again = true
		s.pending = append(s.pending, id)
		s.wakePacker()
	}
	s.mu.Unlock()
	return atomicfile.Write(s.path(dirAgain, string(id)), nil, 0o600)
}

// packedAgain ends what packAgain began. If the file stays, the next store packs once more.
func (s *Store) packedAgain(id carrel.SnapshotID, e *entry) {
	s.mu.Lock()
	again := e.again
	e.again = false
	s.mu.Unlock()
	if !again {
		return
	}
	if err := os.Remove(s.path(dirAgain, string(id))); err != nil && !os.IsNotExist(err) {
		s.log.Warn("a snapshot was packed again", "snapshot", id, "error", err)
	}
}

// loadAgain finds the snapshots that a former store had to pack again.
func (s *Store) loadAgain() error {
	list, err := os.ReadDir(s.path(dirAgain))
	if err != nil {
		return err
	}
	for _, de := range list {
		id, err := carrel.ParseSnapshotID(de.Name())
		if e := s.entries[id]; err == nil && e != nil && e.hot && e.packed {
			e.again = true
			continue
		}
		if err := os.RemoveAll(filepath.Join(s.path(dirAgain), de.Name())); err != nil {
			return err
		}
	}
	return nil
}

// spare reports whether the packs hold a snapshot, as far as that is known. Then its hot copy may
// be dropped. The caller holds Store.mu.
func (e *entry) spare() bool { return e.packed && !e.again }

// forgetPack takes a pack out of the index, and its bytes off the sum. The caller holds bg.
func (s *Store) forgetPack(name string) error {
	size := s.packs.sizes()[name]
	delete(s.check.whole, name)
	if err := s.packs.remove(name); err != nil {
		return err
	}
	s.mu.Lock()
	s.packed -= size
	s.mu.Unlock()
	return nil
}
