// Package store keeps snapshots on this machine's disk, and packs them into a [snapshot.Blobs].
//
// # On disk
//
//	DIR/lock              held while a Store is open: one at a time
//	DIR/machine           this store's own name, the first part of its packs' names
//	DIR/drafts/<id>/      being taken or unpacked; Open removes those that a crash left
//	DIR/hot/<id>/         a hot copy: manifest.json, files/
//	DIR/packed/<id>       the manifest with the places of all content, as in the blob
//	                      manifests/<id>; it exists when the snapshot is packed
//	DIR/deleted/<id>      a deletion that must be finished, also after a crash
//	DIR/index/<pack>      the content of a pack, to find content that is stored already
//	DIR/again/<id>        a packed snapshot that must be packed again, see distrust.go
//	DIR/trash/            to be removed
//	DIR/cache.json        sizes, so that Open need not read all of the above
//
// A snapshot exists from the rename of its directory into hot/ on. It is gone when its file in
// deleted/ exists. It is packed when its file in packed/ exists; the blob is written before that
// file.
//
// # Packing
//
// Files are cut into pieces. Files of whole pages, such as a guest's memory, are cut into pages.
// The content of other files decides where they are cut, so that an insertion moves the cuts along.
// Pieces that are in no known pack are gathered into chunks of 64 KiB and compressed, and the
// chunks into packs of some megabytes. A packed manifest lists chunks, each with its place and
// SHA-256. For each file it lists the ranges of chunks that the file consists of.
//
// A sparse index finds the packs to compare with. Of each pack only every 32nd piece (by its hash)
// is held in memory, some 250 KB for a gigabyte of distinct memory. When such a sample matches, the
// store compares the whole pack, piece by piece. Pieces are told apart by 128 bits of SHA-256: a
// guest chooses the content of its memory, and must not be able to choose content that passes for
// another guest's.
//
// # Shared object stores
//
// Stores of several machines may share one Blobs. Each finds content only in packs that its own
// index knows. Before a GC deletes a pack it writes the blob dead/<pack>, then lists the manifests
// again. A store that has written a manifest looks for such marks afterwards, and packs content in
// marked packs again. So one of the two always sees the other, whatever their clocks say. A GC
// leaves unused packs of other machines alone for a grace period: their manifest may not be written
// yet.
//
// A snapshot may have several holders, see holders.go, and root images lie beside the packs, see
// images.go.
//
// # Locks
//
// Store.mu guards everything in memory. It is held only for short times, and never while a Blobs is
// called. The background semaphore (Store.bg) serializes packing and GC, and is taken before mu.
package store
