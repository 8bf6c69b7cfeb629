// Package filler lets sandboxes start from an image whose contents are still in a registry.
//
// # How
//
// Package archive writes an image whose metadata is whole and whose files are holes (a
// [archive.Late]). A [Plan] says which chunk of which layer belongs into which hole. The filler is a
// process of this binary. It shows the image as one file by FUSE (package fileview), in a mount
// namespace of its own, so the mount is not visible on the host. A read of a hole fetches its chunk
// first. A [Fill] fetches all other chunks meanwhile. When everything is there and durable, the
// filler writes the image's first block, with the superblock. From then on the file is an ordinary
// image, and new sandboxes use it without the filler.
//
// # Who is served first
//
// A read that a sandbox waits for has its own client, with its own connections, and takes no lock
// that the background holds while it waits for the network. The background does not read on while
// somebody waits. A chunk that the background is fetching is fetched a second time if a sandbox
// needs it: the background may be stuck.
//
// # Lifetime
//
// The filler belongs to no daemon. It holds the lock of its directory ([Find]), so that a daemon
// that starts again finds it. After SIGTERM it takes its file away from new sandboxes, gives up the
// lock, and ends when the last sandbox has closed the file. It does the same when its plan was
// removed. A filler that is killed breaks the sandboxes that have its file open: their reads fail.
// The next filler goes on with what is in the image, and believes a chunk there only if its digest
// is right.
//
// # Threat
//
// The layers come from a stranger. Each chunk is checked against the digest in the plan, which comes
// from the layer's table of contents, for which the manifest vouches. A registry that is silent,
// slow or lying costs a sandbox a read error, after readTime at most.
package filler
