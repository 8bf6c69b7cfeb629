// Package snapshot is the contract of the snapshot store, which keeps the saved states of
// sandboxes.
//
// # The story
//
// A driver writes a snapshot as a handful of files. [Store.Begin] makes an empty directory for
// them. When the driver has written them, [Draft.Commit] makes them durable and writes the
// [Manifest], last. The snapshot exists from then on, and not before, even if a process dies in
// between. [Store.Open] hands the files out again, to a driver that restores.
//
// The store keeps a snapshot that was just committed as it is, as a hot copy, since it will
// probably be opened next. In the background it cuts the content into chunks. It compresses the
// chunks that it does not have yet, and writes them to a pack. So a timeline of many snapshots
// costs only the changes. Packs and manifests lie on this machine's disk or in an object store
// ([Blobs]), where other machines find them.
//
// # What a store promises
//
// The store verifies content whenever it reads it, against a checksum that was computed before
// Commit returned. When it finds damage it reports it (Invalid, with the snapshot and the file) and
// never hands the content out. A full disk at any step is Exhausted and changes nothing that was
// there. Snapshots hold the memory of sandboxes, with every secret in it: only the daemon's user
// may read the files.
package snapshot

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
)

// ManifestVersion is the version of the manifest's form.
const ManifestVersion = 1

// Manifest describes one snapshot. It never changes.
type Manifest struct {
	Version int                 `json:"version"`
	ID      carrel.SnapshotID   `json:"id"`
	Created time.Time           `json:"created"`
	Info    driver.SnapshotInfo `json:"info"`
	// Line names the timeline of the snapshot, if any. The store keeps a hot copy of the newest
	// snapshot of each timeline.
	Line string `json:"line,omitempty"`
	// Meta is the service's own record, as it was when the snapshot was taken. It holds all that
	// another machine needs to make a sandbox from the snapshot.
	Meta json.RawMessage `json:"meta,omitempty"`
	// Files and Size are set by Commit.
	Files []File `json:"files"`
	Size  int64  `json:"size"` // bytes of all files
}

// File is one of a snapshot's files.
type File struct {
	Name string `json:"name"`
	Size int64  `json:"size"`
	Sum  string `json:"sum"` // of the content; its form is the store's own
}

// Store keeps snapshots. It is safe for concurrent use. Errors are NotFound,
// AlreadyExists, Invalid (damage), Exhausted (the disk, or a quota), Unavailable (an
// object store that does not answer), Internal.
type Store interface {
	// Begin makes a directory for a new snapshot. Errors: AlreadyExists, Exhausted.
	Begin(ctx context.Context, id carrel.SnapshotID) (Draft, error)
	// Open returns a snapshot's files. If necessary it first fetches and unpacks them.
	Open(ctx context.Context, id carrel.SnapshotID) (Files, error)
	// Get returns the manifest of a snapshot, on this machine or in the object store.
	Get(ctx context.Context, id carrel.SnapshotID) (Manifest, error)
	// Stat returns the cost of a snapshot of this machine.
	Stat(ctx context.Context, id carrel.SnapshotID) (Stat, error)
	// List returns the IDs of all committed snapshots on this machine.
	List(ctx context.Context) ([]carrel.SnapshotID, error)
	// Delete forgets a snapshot; idempotent. Content that only this snapshot used is removed later.
	// Open files stay readable until they are closed.
	Delete(ctx context.Context, id carrel.SnapshotID) error
	// GC removes content that no snapshot uses.
	GC(ctx context.Context) (Collected, error)
	// Usage returns the cost of the whole store.
	Usage(ctx context.Context) (Usage, error)
	// Flush waits until every snapshot committed so far is packed. With an object store it also
	// waits until the packs are there.
	Flush(ctx context.Context) error
	// Close stops the background work; the next store on the directory continues it.
	Close() error
}

// BuildStore is an optional part of a Store. Where other machines use the store too, it keeps
// copies of the builds that can restore its snapshots (driver.BuildKeeper).
type BuildStore interface {
	// PutBuild stores a build under its name, unless it is there. open opens the content. A store
	// that is of this machine alone does nothing. Errors: Unavailable, and those of open.
	PutBuild(ctx context.Context, name string, open func() (r io.ReadCloser, size int64,
		err error)) error
	// GetBuild returns a build. Errors: NotFound, Unavailable.
	GetBuild(ctx context.Context, name string) (io.ReadCloser, error)
}

// Mover is an optional part of a Store. Where several machines use one store, snapshots and the
// images under them move between the machines. A machine holds the snapshots that it needs: the
// content stays until the last machine has deleted it.
type Mover interface {
	// Shared reports whether other machines use the store. Without it, the other methods return
	// Unsupported.
	Shared() bool
	// Pack makes sure that a snapshot of this machine is in the shared store, at once, and that this
	// machine holds it. Errors: NotFound, Invalid, Unavailable.
	Pack(ctx context.Context, id carrel.SnapshotID) (Manifest, error)
	// Hold makes this machine a holder of a snapshot in the shared store; idempotent. It fetches the
	// manifest only. Errors: NotFound, Invalid, Unavailable, also while another machine just deletes
	// it, and Conflict while a deletion here is not finished.
	Hold(ctx context.Context, id carrel.SnapshotID) (Manifest, error)
	// Fetch begins to fetch the content of a snapshot of this machine, so that the next Open need not
	// wait for all of it. It returns at once, and does nothing while the store fetches others.
	Fetch(id carrel.SnapshotID)
	// Disown ends that hold. A later Delete on this machine removes only what is here. The content stays
	// in the shared store, also if no machine holds it yet. A snapshot that is not packed is not
	// changed: no other machine can have it. Idempotent.
	Disown(ctx context.Context, id carrel.SnapshotID) error
	// PutImage stores the file at path as an image, unless it is there. sum is the SHA-256 of the
	// file, in hexadecimal. user is the snapshot or the template that needs it.
	PutImage(ctx context.Context, sum, path, user string) error
	// GetImage fetches an image, checks it and makes it the file at path. Errors: NotFound, Invalid,
	// Exhausted, Unavailable.
	GetImage(ctx context.Context, sum, path string) error
}

// Digest names the content of a snapshot and everything that its manifest says. It stays the same
// when the content is moved to other packs.
func (m Manifest) Digest() (string, error) {
	b, err := json.Marshal(m)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), nil
}

// Draft is a snapshot that is being taken.
type Draft interface {
	// Dir is the directory for the driver's files. It is empty and has mode 0700.
	Dir() string
	// Reserve makes sure that the disk has room for this many bytes more, also beside other drafts
	// that are being written. It writes nothing. Error: Exhausted.
	Reserve(size int64) error
	// WriteBack sends data to the disk while the driver writes it into Dir, until the caller calls
	// stop. Commit then waits for less.
	WriteBack() (stop func())
	// Commit makes the snapshot exist. The ID of m is the one given to Begin. Commit returns the
	// manifest as stored. After an error the draft still exists, and the caller must discard it.
	Commit(ctx context.Context, m Manifest) (Manifest, error)
	// Discard removes a draft. After a successful Commit it does nothing.
	Discard() error
}

// ErrReplaced is in the error of a Verify that found damage, and replaced the damaged files by good
// ones from the packs. Files.Dir has the good files now: a caller that used them before starts
// again.
var ErrReplaced = errors.New("the damaged copy was replaced by a good one")

// Files are the files of a snapshot that is in use.
type Files interface {
	// Dir holds the files, read-only. It stays until Close.
	Dir() string
	Manifest() Manifest
	// Verify compares the content with its checksums. To save time, it may run while a driver
	// already restores from Dir. The caller must not use the restored sandbox before Verify has
	// returned nil. Errors: Invalid, or Unavailable with ErrReplaced.
	Verify(ctx context.Context) error
	// Close releases the files. It is idempotent.
	Close() error
}

// Stat is the cost of one snapshot.
type Stat struct {
	Size   int64 // bytes of its files
	New    int64 // bytes that packing it added to the store; −1 before packing
	Packed bool
	Hot    bool // it has a hot copy: its files, uncompressed
	// Away says why the content can't be read now; nil when it can, as far as that is known.
	Away error
}

// Awayer is an optional part of Blobs on another machine.
type Awayer interface {
	// Away returns why the blobs can't be used now, as far as that is known; nil when they can.
	Away() error
}

// Usage is the cost of a store on this machine's disk (and in its object store, if packs lie
// there).
type Usage struct {
	Snapshots int   `json:"snapshots"`
	Size      int64 `json:"size"`  // bytes of all snapshots' files, as if nothing were shared
	Hot       int64 `json:"hot"`   // bytes of uncompressed copies
	Packs     int64 `json:"packs"` // bytes of packs
	Quota     int64 `json:"quota"` // largest sum of Hot and Packs, in bytes; 0 is no limit
}

// Collected is the result of a GC.
type Collected struct {
	Packs  int   `json:"packs"`  // packs removed or rewritten
	Drafts int   `json:"drafts"` // unfinished snapshots removed
	Freed  int64 `json:"freed"`  // bytes
}

// Blobs stores manifests and packs. It is a flat set of named, immutable byte strings, on a disk or
// in an object store. Names consist of letters, digits and the characters "-._/". It is safe for
// concurrent use. Package blobtest is its conformance suite.
type Blobs interface {
	// Put stores size bytes of r under name. The blob appears whole or not at all, and is durable
	// when Put returns. Put replaces an existing blob. Errors: Exhausted, Unavailable.
	Put(ctx context.Context, name string, r io.Reader, size int64) error
	// Get reads length bytes from offset on; length −1 means all the rest. Errors: NotFound,
	// Unavailable.
	Get(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error)
	// List calls fn for every blob whose name begins with prefix, in any order.
	List(ctx context.Context, prefix string, fn func(BlobInfo) error) error
	// Delete removes a blob; idempotent.
	Delete(ctx context.Context, name string) error
	// Close releases the connection to the storage.
	Close() error
}

// Marker is an optional part of Blobs whose blobs are files of this machine. It tells its user when
// a blob must be checked again.
type Marker interface {
	// Mark returns a text that changes when a blob's file is replaced or written to. It stays the
	// same when the disk damages the content. Errors: NotFound.
	Mark(ctx context.Context, name string) (string, error)
}

// BlobInfo is one blob of a list.
type BlobInfo struct {
	Name     string
	Size     int64
	Modified time.Time
}
