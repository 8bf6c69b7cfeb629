package store

import (
	"slices"

	"github.com/carrel-dev/carrel/internal/failpoint"
)

// steps are the fail points, in the order in which a snapshot's life passes them.
var steps = []string{
	"snapshot.begin.made",      // the draft's directory is there
	"snapshot.commit.start",    // nothing is durable yet
	"snapshot.commit.synced",   // the driver's files are
	"snapshot.commit.manifest", // the manifest is there, too, still under drafts/
	"snapshot.commit.renamed",  // in hot/, but the directory is not synced
	"snapshot.commit.done",     // it exists
	"snapshot.pack.start",      // before the first byte is read
	"snapshot.pack.blob",       // before a pack is put
	"snapshot.pack.stored",     // a pack is put, not in the index
	"snapshot.pack.indexed",    // and in the index
	"snapshot.pack.publish",    // before the manifest is put
	"snapshot.pack.published",  // the manifest is put, not recorded here
	"snapshot.pack.recorded",   // packed
	"snapshot.evict.renamed",   // a hot copy is in trash/
	"snapshot.unpack.start",    // before the first byte
	"snapshot.unpack.chunk",    // before each chunk
	"snapshot.unpack.written",  // all content is in drafts/
	"snapshot.unpack.renamed",  // hot again
	"snapshot.delete.start",    // still there
	"snapshot.delete.marked",   // gone, but nothing removed
	"snapshot.delete.blob",     // the manifest's blob is removed
	"snapshot.delete.removed",  // so is the hot copy
	"snapshot.gc.start",        //
	"snapshot.gc.marked",       // an unused pack is marked dead
	"snapshot.gc.unindexed",    // it is out of the index
	"snapshot.gc.deleted",      // its blob is gone
	"snapshot.gc.rewrite",      // before live chunks are copied
	"snapshot.gc.rewritten",    // the new pack is there; no manifest names it yet
	"snapshot.gc.manifest",     // before each put of a manifest that names it
	"snapshot.gc.moved",        // a manifest is put, not recorded here
	"snapshot.gc.done",
}

// FailPoints lists the names of this package's fail points; see package failpoint.
func FailPoints() []string { return slices.Clone(steps) }

// step passes the fail point "snapshot."+name.
func step(name string) error { return failpoint.Hit("snapshot." + name) }
