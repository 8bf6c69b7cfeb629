package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/snapshot"
)

// Several machines may hold one snapshot in shared blobs. Its manifest, and with it the content,
// stays until the last of them has deleted it.
//
//   - The machine that wrote the manifest (its origin) holds the snapshot, without a mark, until the
//     blob left/<id> exists. This blob is never taken back.
//   - Every other machine holds it while the blob holders/<id>/<machine> exists. So does the origin
//     after it has left and come back.
//   - A machine that deletes its part puts the blob doomed/<id> first, then looks for others. A
//     machine that takes the snapshot puts its own mark first, then looks for doomed/<id>. So one
//     of the two always sees the other.
//   - A machine that holds nothing deletes nothing: a snapshot that was released waits for the
//     machine that takes it.

// Moving is the part of a Store by which snapshots and images move between machines.
type Moving struct{ *Store }

var _ snapshot.Mover = Moving{}

func holderBlob(id carrel.SnapshotID, machine string) string {
	return "holders/" + string(id) + "/" + machine
}
func leftBlob(id carrel.SnapshotID) string   { return "left/" + string(id) }
func doomedBlob(id carrel.SnapshotID) string { return "doomed/" + string(id) }

// maxMark bounds the content of a mark, in bytes.
const maxMark = 64

// errDoomed is the error of who takes a snapshot while its last holder deletes it.
var errDoomed = errors.New("it is just being deleted")

// mark returns the content of a small blob; ok is false if there is none.
func (s Moving) mark(ctx context.Context, name string) (content string, ok bool, err error) {
	r, err := s.opts.Blobs.Get(ctx, name, 0, -1)
	if carrel.KindOf(err) == carrel.NotFound {
		return "", false, nil
	} else if err != nil {
		return "", false, err
	}
	b, err := io.ReadAll(io.LimitReader(r, maxMark))
	return string(b), true, errors.Join(err, r.Close())
}

// putMark writes a small blob.
func (s Moving) putMark(ctx context.Context, name string) error {
	return putBytes(ctx, s.opts.Blobs, name, []byte(s.machine))
}

// others reports whether a machine has a holder's mark on a snapshot.
func (s Moving) others(ctx context.Context, id carrel.SnapshotID) (held bool, err error) {
	err = s.opts.Blobs.List(ctx, holderBlob(id, ""), func(snapshot.BlobInfo) error {
		held = true
		return nil
	})
	return held, err
}

// holds reports whether this machine holds a snapshot.
func (s Moving) holds(ctx context.Context, id carrel.SnapshotID, origin bool) (bool, error) {
	if origin {
		if _, left, err := s.mark(ctx, leftBlob(id)); err != nil || !left {
			return err == nil, err
		}
	}
	_, own, err := s.mark(ctx, holderBlob(id, s.machine))
	return own, err
}

// Shared implements [snapshot.Mover].
func (s Moving) Shared() bool { return s.opts.Shared }

// Hold implements [snapshot.Mover].
func (s Moving) Hold(ctx context.Context, id carrel.SnapshotID) (snapshot.Manifest, error) {
	const op = "take snapshot"
	if err := checkID(op, id); err != nil {
		return snapshot.Manifest{}, err
	}
	m, err := s.hold(ctx, id)
	return m, classify(op, id, err)
}

func (s Moving) hold(ctx context.Context, id carrel.SnapshotID) (snapshot.Manifest, error) {
	if err := s.needShared(); err != nil {
		return snapshot.Manifest{}, err
	}
	if err := s.forgetDeletion(id); err != nil {
		return snapshot.Manifest{}, err
	}
	p, err := s.fetchPacked(ctx, id)
	if err != nil {
		return snapshot.Manifest{}, err
	}
	held, err := s.holds(ctx, id, p.Origin == s.machine)
	if err != nil {
		return snapshot.Manifest{}, err
	}
	if !held {
		if err := s.putMark(ctx, holderBlob(id, s.machine)); err != nil {
			return snapshot.Manifest{}, err
		}
	}
	_, doomed, err := s.mark(ctx, doomedBlob(id))
	if err == nil && doomed {
		err = &carrel.Error{Kind: carrel.Unavailable, Err: errDoomed, Hint: "try again in a moment"}
	}
	if err == nil {
		p, err = s.fetchPacked(ctx, id) // also after a deletion that ended before the mark
	}
	if err == nil && !s.known(id) {
		err = s.adopt(ctx, id)
	}
	if err != nil && !held {
		err = errors.Join(err, s.opts.Blobs.Delete(context.WithoutCancel(ctx), holderBlob(id, s.machine)))
	}
	if err != nil {
		return snapshot.Manifest{}, err
	}
	return p.Manifest, nil
}

// Fetch implements [snapshot.Mover].
func (s Moving) Fetch(id carrel.SnapshotID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[id]
	if s.closed || e == nil || e.deleted || e.hot {
		return
	}
	running := 0
	for _, other := range s.entries {
		if other.fill != nil {
			running++
		}
	}
	if running < s.opts.Workers { // else many moves at once would fill the disk before anybody asks
		s.startFill(id, e)
	}
}

// forgetDeletion prepares the return of a snapshot that was deleted or released here. Error:
// Conflict while its files are still in use.
func (s Moving) forgetDeletion(id carrel.SnapshotID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[id]
	if e != nil && e.deleted {
		return &carrel.Error{Kind: carrel.Conflict, Err: errors.New("it was deleted here, and is still in use"),
			Hint: "try again when what was made from it has been read or has ended"}
	}
	if _, err := os.Stat(s.path(dirDeleted, string(id))); err == nil {
		return &carrel.Error{Kind: carrel.Unavailable, Err: errDoomed, Hint: "try again in a moment"}
	}
	delete(s.gone, id)
	return nil
}

// needShared refuses what makes sense only in a store of several machines.
func (s Moving) needShared() error {
	if s.opts.Shared {
		return nil
	}
	return &carrel.Error{Kind: carrel.Unsupported, Field: "snapshot-store",
		Err:  errors.New("this machine's snapshots lie on its own disk, where no other machine finds them"),
		Hint: "start both daemons with one store: carrel serve --snapshot-store s3://BUCKET/PREFIX, or a shared directory"}
}

// Disown implements [snapshot.Mover].
func (s Moving) Disown(ctx context.Context, id carrel.SnapshotID) error {
	const op = "release snapshot"
	if err := checkID(op, id); err != nil {
		return err
	}
	return classify(op, id, s.disown(ctx, id))
}

func (s Moving) disown(ctx context.Context, id carrel.SnapshotID) error {
	if err := s.needShared(); err != nil {
		return err
	}
	s.mu.Lock()
	e := s.entries[id]
	unpacked := e != nil && !e.packed
	s.mu.Unlock()
	if unpacked {
		return nil // no other machine can have it, so its deletion deletes all of it
	}
	origin, err := s.isOrigin(ctx, id)
	if carrel.KindOf(err) == carrel.NotFound {
		return nil
	} else if err != nil {
		return err
	}
	if origin {
		if err := s.putMark(ctx, leftBlob(id)); err != nil {
			return err
		}
	}
	return s.opts.Blobs.Delete(ctx, holderBlob(id, s.machine))
}

// isOrigin reports whether this machine wrote the manifest of a snapshot. Error: NotFound.
func (s Moving) isOrigin(ctx context.Context, id carrel.SnapshotID) (bool, error) {
	for _, dir := range []string{dirPacked, dirDeleted} {
		if b, err := os.ReadFile(s.path(dir, string(id))); err == nil {
			if h, _, err := parseHead(b, id); err == nil {
				return h.Origin == s.machine, nil
			}
		}
	}
	b, err := s.readBlob(ctx, manifestBlob(id))
	if err != nil {
		return false, err
	}
	h, _, err := parseHead(b, id)
	return h.Origin == s.machine, err
}

// retire ends this machine's part in a snapshot that was deleted here. kept says that the manifest
// stays, for others.
func (s Moving) retire(ctx context.Context, id carrel.SnapshotID) (kept bool, err error) {
	if !s.opts.Shared {
		return false, s.opts.Blobs.Delete(ctx, manifestBlob(id))
	}
	origin, err := s.isOrigin(ctx, id)
	switch carrel.KindOf(err) {
	case carrel.NotFound:
		return false, s.clearMarks(ctx, id)
	case carrel.Invalid: // it can't be read, so nobody can use it, and nobody knows whose it was
		origin = true
	default:
		if err != nil {
			return false, err
		}
	}
	holds, err := s.holds(ctx, id, origin)
	if err != nil {
		return false, err
	}
	if !holds {
		by, doomed, err := s.mark(ctx, doomedBlob(id))
		if err != nil {
			return false, err
		}
		if !doomed || by != s.machine { // else an earlier call broke off
			return true, nil
		}
	}
	return s.retireHolder(ctx, id, origin)
}

// retireHolder is retire for a machine that holds the snapshot.
func (s Moving) retireHolder(ctx context.Context, id carrel.SnapshotID, origin bool) (kept bool, err error) {
	if err := s.putMark(ctx, doomedBlob(id)); err != nil {
		return false, err
	}
	if err := s.opts.Blobs.Delete(ctx, holderBlob(id, s.machine)); err != nil {
		return false, err
	}
	_, left, err := s.mark(ctx, leftBlob(id))
	if err != nil {
		return false, err
	}
	if !left && !origin {
		return true, s.opts.Blobs.Delete(ctx, doomedBlob(id)) // the origin has it
	}
	held, err := s.others(ctx, id)
	if err == nil && held && !left {
		// The last of them may be leaving, and still take this machine for a holder.
		if err = s.putMark(ctx, leftBlob(id)); err == nil {
			held, err = s.others(ctx, id)
		}
	}
	if err != nil {
		return false, err
	}
	if held {
		return true, s.opts.Blobs.Delete(ctx, doomedBlob(id))
	}
	if err := s.opts.Blobs.Delete(ctx, manifestBlob(id)); err != nil {
		return false, err
	}
	return false, s.clearMarks(ctx, id)
}

// clearMarks removes the marks of a snapshot that is gone for all.
func (s Moving) clearMarks(ctx context.Context, id carrel.SnapshotID) error {
	for _, name := range []string{leftBlob(id), holderBlob(id, s.machine), doomedBlob(id)} {
		if err := s.opts.Blobs.Delete(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// sweepMarks removes marks that crashed machines left: this machine's own on snapshots that it does
// not have, and old marks of deletions that did not end.
func (g *collector) sweepMarks(ctx context.Context) error {
	s := g.s
	if !s.opts.Shared {
		return nil
	}
	var own, doomed []carrel.SnapshotID
	err := s.opts.Blobs.List(ctx, "holders/", func(b snapshot.BlobInfo) error {
		id, machine, _ := strings.Cut(strings.TrimPrefix(b.Name, "holders/"), "/")
		if machine == s.machine && time.Since(b.Modified) >= s.opts.Grace && !s.known(carrel.SnapshotID(id)) {
			own = append(own, carrel.SnapshotID(id))
		}
		return nil
	})
	if err == nil {
		err = s.opts.Blobs.List(ctx, "doomed/", func(b snapshot.BlobInfo) error {
			if time.Since(b.Modified) >= s.opts.Grace {
				doomed = append(doomed, carrel.SnapshotID(strings.TrimPrefix(b.Name, "doomed/")))
			}
			return nil
		})
	}
	if err != nil {
		return err
	}
	for _, id := range own {
		if _, err := s.retire(ctx, id); err != nil {
			return err
		}
	}
	for _, id := range doomed {
		held, err := s.others(ctx, id)
		if err != nil {
			return err
		}
		if !held {
			_, left, err := s.mark(ctx, leftBlob(id))
			if err != nil {
				return err
			}
			held = !left // by its origin
		}
		if held {
			if err := s.opts.Blobs.Delete(ctx, doomedBlob(id)); err != nil {
				return err
			}
		}
	}
	return nil
}

// Pack implements [snapshot.Mover].
func (s Moving) Pack(ctx context.Context, id carrel.SnapshotID) (snapshot.Manifest, error) {
	const op = "publish snapshot"
	if err := checkID(op, id); err != nil {
		return snapshot.Manifest{}, err
	}
	m, err := s.packNow(ctx, id)
	return m, classify(op, id, err)
}

func (s Moving) packNow(ctx context.Context, id carrel.SnapshotID) (snapshot.Manifest, error) {
	if err := s.needShared(); err != nil {
		return snapshot.Manifest{}, err
	}
	for {
		s.mu.Lock()
		e := s.entries[id]
		var state error
		switch {
		case e == nil || e.deleted:
			state = &carrel.Error{Kind: carrel.NotFound, Err: fmt.Errorf("no snapshot %s", id)}
		case e.spare():
		case e.damaged || !e.hot:
			state = invalid("its files are damaged, and it was not packed before")
		default:
			s.hurryLocked(id)
		}
		done := state != nil || e.spare()
		s.mu.Unlock()
		if state != nil {
			return snapshot.Manifest{}, state
		}
		if done {
			return s.hold(ctx, id) // this machine may have left it meanwhile
		}
		if err := s.packNext(ctx); err != nil {
			return snapshot.Manifest{}, err
		}
	}
}

// hurryLocked makes a snapshot the next one to be packed. The caller holds mu.
func (s Moving) hurryLocked(id carrel.SnapshotID) {
	for i, p := range s.pending {
		if p == id {
			copy(s.pending[1:i+1], s.pending[:i])
			s.pending[0] = id
			return
		}
	}
}

// removeForeign deletes a snapshot that this machine does not have, for all machines, unless one of
// them took it from its origin.
func (s Moving) removeForeign(ctx context.Context, id carrel.SnapshotID) error {
	if err := s.putMark(ctx, doomedBlob(id)); err != nil {
		return err
	}
	held, err := s.others(ctx, id)
	if err != nil {
		return err
	}
	_, left, err := s.mark(ctx, leftBlob(id))
	if err != nil {
		return err
	}
	if held || left { // or it was released, and waits for the machine that takes it
		return s.opts.Blobs.Delete(ctx, doomedBlob(id))
	}
	if err := s.opts.Blobs.Delete(ctx, manifestBlob(id)); err != nil {
		return err
	}
	return s.clearMarks(ctx, id)
}

// readBlob reads a packed manifest.
func (s Moving) readBlob(ctx context.Context, name string) ([]byte, error) {
	r, err := s.opts.Blobs.Get(ctx, name, 0, -1)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(r, maxPacked+1))
	if err = errors.Join(err, r.Close()); err != nil {
		return nil, err
	}
	if len(b) > maxPacked {
		return nil, invalid("the packed manifest is larger than %d bytes", maxPacked)
	}
	return b, nil
}
