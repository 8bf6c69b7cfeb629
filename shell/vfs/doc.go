// Package vfs is a filesystem in memory with Unix semantics: directories, files,
// symbolic and hard links, modes, owners, times, user attributes, a byte quota
// that answers ENOSPC, and change notification. The simulated tier stands on it.
//
// An [FS] is the filesystem; a [View] is what one user sees of it, with that
// user's permissions checked as Linux checks them. Nothing in this package asks
// the operating system for anything: package syscall is used for its error
// numbers alone, so that errors.Is works as it does on the real thing.
//
// # Copies
//
// Files are nodes in a table by inode number, directories are trees from names to
// numbers, contents are blocks. All of it is copied on write: table, directories, nodes
// and blocks carry the generation of the FS that may change them, and [FS.Clone] copies
// a few words and gives both sides new generations. A template is therefore built once
// and cloned per sandbox, an idle sandbox costs nothing, and a snapshot is a clone. What
// a copy has beyond its origin is a [Delta]; [FS.Save] writes it as bytes and [Load]
// makes a filesystem of them, which may be hostile.
//
// # Mounts
//
// [FS.Mount] puts a [Source] into the tree: read only, for writing, or as an overlay
// whose changes stay here. Nothing of a source is kept until it is changed; then the
// file and the directories above it become nodes, and its blocks are copied one by one
// as they are written. A name that was removed stays as an entry of number 0.
//
// Files of a source that a process has open for reading follow a later change through
// the filesystem. Two names of one file in the source become two files once they are
// changed. A source must not be changed from outside in what the overlay has changed,
// or the two mix.
//
// # Times
//
// Access times are those of Linux with relatime, except that a file that is shared with
// a copy is not copied just to note that it was read.
//
// # Concurrency
//
// All methods are safe for concurrent use. One lock per FS guards everything in
// it; an open [File] has a lock of its own for its offset, taken before the FS's.
package vfs
