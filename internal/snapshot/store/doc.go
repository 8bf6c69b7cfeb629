// Package store keeps snapshots on this machine's disk, and packs them into a
// [snapshot.Blobs].
//
// # On disk
//
//	DIR/lock              held while a Store is open: one at a time
//	DIR/machine           this store's own name, the first part of its packs' names
//	DIR/drafts/<id>/      being taken or unpacked; what a crash leaves is swept by Open
//	DIR/hot/<id>/         a hot copy: manifest.json, files/
//	DIR/packed/<id>       the manifest with the places of all content, as in the blob
//	                      manifests/<id>; it is there when the snapshot is packed
//	DIR/deleted/<id>      a deletion that must be finished, also after a crash
//	DIR/index/<pack>      what a pack holds, to find content that is there already
//	DIR/trash/            on the way out
//	DIR/cache.json        sizes, to spare Open reading all of the above
//
// A snapshot exists from the rename of its directory into hot/ on, and is gone with
// the file in deleted/. It is packed with the file in packed/, which follows the blob.
//
// # Packing
//
// Files are cut into pieces: those of whole pages, such as a guest's memory, into
// pages, others where their content says so, so that an insertion moves the cuts
// along. Pieces that no known pack has are gathered to chunks of 64 KiB, compressed,
// and chunks to packs of some megabytes. A packed manifest lists chunks, each with
// its place and SHA-256, and for each file the ranges of chunks that it is made of.
//
// Which packs to look into is found by a sparse index: of each pack only every 32nd
// piece (by its hash) is held in memory, some 250 KB for a gigabyte of distinct
// memory. The packs that such samples point to are looked into piece by piece.
// Pieces are told apart by 128 bits of SHA-256: a guest chooses the content of its memory, and
// must not be able to choose some that passes for that of another.
//
// # Shared object stores
//
// Stores of several machines may share one Blobs. Each finds content in packs that
// its own index knows. Before a GC deletes a pack it writes the blob dead/<pack>,
// then lists the manifests again; whoever writes a manifest looks for such marks after it,
// and packs again what lies in marked packs. So one of both always sees the other,
// whatever the clocks say. Packs of others that nothing uses yet are left alone for
// a grace period: their manifest may be on its way.
//
// # Locks
//
// Store.mu guards everything in memory, is held for short and never while a Blobs is
// called. The background semaphore (Store.bg) serializes packing and GC, and is
// taken before mu.
package store
