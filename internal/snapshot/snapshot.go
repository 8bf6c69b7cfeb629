// Package snapshot is the contract of the snapshot store: where moments of
// sandboxes are kept.
//
// # The story
//
// A driver writes a snapshot as a handful of files. [Store.Begin] makes an empty
// directory for them; when the driver has written them, [Draft.Commit] makes them
// durable and writes the [Manifest], last. Before that there is no snapshot, after
// it there is one, whatever dies in between. [Store.Open] hands the files out
// again, to a driver that restores.
//
// What was just committed is kept as it is, a hot copy, since it is what will be
// opened next. In the background its content is cut into chunks, and those that the
// store does not have yet are compressed and written to a pack: a timeline of many
// snapshots costs what changed. Packs and manifests may lie on this machine's disk
// or in an object store ([Blobs]), where other machines find them.
//
// # What a store promises
//
// Content is verified whenever it is read: against a checksum that was computed
// before Commit returned. A store that finds damage says so (Invalid, with the
// snapshot and the file) and never hands it out. A full disk at any step is
// Exhausted and leaves what was there. Snapshots hold the memory of sandboxes, with
// every secret in it: all files are for the daemon's user alone.
package snapshot

import (
	"context"
	"encoding/json"
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
	// Line names the timeline that it belongs to, if any: a hot copy is kept of the newest
	// of each.
	Line string `json:"line,omitempty"`
	// Meta is the service's own, as it was when the snapshot was taken: all that
	// another machine needs to make a sandbox of it.
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
	// Begin makes room for a new snapshot. Errors: AlreadyExists, Exhausted.
	Begin(ctx context.Context, id carrel.SnapshotID) (Draft, error)
	// Open returns a snapshot's files. They are fetched and unpacked first if need be.
	Open(ctx context.Context, id carrel.SnapshotID) (Files, error)
	// Get returns the manifest of a snapshot, on this machine or in the object store.
	Get(ctx context.Context, id carrel.SnapshotID) (Manifest, error)
	// Stat tells what a snapshot of this machine costs.
	Stat(ctx context.Context, id carrel.SnapshotID) (Stat, error)
	// List returns the IDs of all snapshots on this machine, committed ones only.
	List(ctx context.Context) ([]carrel.SnapshotID, error)
	// Delete forgets a snapshot; idempotent. What only it used is removed by and by.
	// Files that are open stay readable until they are closed.
	Delete(ctx context.Context, id carrel.SnapshotID) error
	// GC removes what no snapshot uses.
	GC(ctx context.Context) (Collected, error)
	// Usage tells what the whole store costs.
	Usage(ctx context.Context) (Usage, error)
	// Flush waits until everything committed so far is packed and, with an object
	// store, there.
	Flush(ctx context.Context) error
	// Close stops the work in the background; the next store goes on with it.
	Close() error
}

// Draft is a snapshot that is being taken.
type Draft interface {
	// Dir is where the driver writes its files: an empty directory of mode 0700.
	Dir() string
	// WriteBack has what is written into Dir go to the disk while it is written, until
	// stop is called: Commit then waits for less.
	WriteBack() (stop func())
	// Commit makes the snapshot exist: m's ID is the one given to Begin. It returns the
	// manifest as stored. After an error the draft is still there to be discarded.
	Commit(ctx context.Context, m Manifest) (Manifest, error)
	// Discard removes a draft; after a Commit that worked it does nothing.
	Discard() error
}

// Files are the files of a snapshot, in use.
type Files interface {
	// Dir holds them, read-only. It stays until Close.
	Dir() string
	Manifest() Manifest
	// Verify compares the content with its checksums. It may run while a driver
	// restores from Dir already, to save time; nothing must come of that restoration
	// until Verify returned nil. Error: Invalid.
	Verify(ctx context.Context) error
	// Close lets go of them. It is idempotent.
	Close() error
}

// Stat is what one snapshot costs.
type Stat struct {
	Size   int64 // bytes of its files
	New    int64 // bytes that it added to the store when it was packed; −1 when it is not yet
	Packed bool
	Hot    bool // its files are there, uncompressed
}

// Usage is what a store costs on this machine's disk (and in its object store,
// where packs lie there).
type Usage struct {
	Snapshots int   `json:"snapshots"`
	Size      int64 `json:"size"`  // bytes of all snapshots' files, as if each had its own
	Hot       int64 `json:"hot"`   // bytes of uncompressed copies
	Packs     int64 `json:"packs"` // bytes of packs
	Quota     int64 `json:"quota"` // bytes that Hot and Packs may come to; 0 is no limit
}

// Collected is what a GC did.
type Collected struct {
	Packs  int   `json:"packs"`  // packs removed or rewritten
	Drafts int   `json:"drafts"` // unfinished snapshots removed
	Freed  int64 `json:"freed"`  // bytes
}

// Blobs is where manifests and packs lie: a flat set of named, immutable byte
// strings, on a disk or in an object store. Names are of letters, digits and the
// characters "-._/". It is safe for concurrent use. Package blobtest is its
// conformance suite.
type Blobs interface {
	// Put stores size bytes of r under name. It appears whole or not at all, and is
	// durable when Put returns. Putting what is there already replaces it. Errors:
	// Exhausted, Unavailable.
	Put(ctx context.Context, name string, r io.Reader, size int64) error
	// Get reads length bytes from offset on; length −1 is all that is left. Errors:
	// NotFound, Unavailable.
	Get(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error)
	// List calls fn for every blob whose name begins with prefix, in any order.
	List(ctx context.Context, prefix string, fn func(BlobInfo) error) error
	// Delete removes a blob; idempotent.
	Delete(ctx context.Context, name string) error
	// Close releases the connection to it.
	Close() error
}

// BlobInfo is one blob of a list.
type BlobInfo struct {
	Name     string
	Size     int64
	Modified time.Time
}
