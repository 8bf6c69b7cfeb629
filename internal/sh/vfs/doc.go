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
// File contents are kept in blocks. [FS.Clone] shares every block between the
// original and the copy; whoever writes to a shared block first copies it. A
// template is therefore built once and cloned per sandbox, and a snapshot costs
// its directory tree. What a copy has beyond its origin is a [Delta]; [FS.Save] writes
// it as bytes and [Load] makes a filesystem of them, which may be hostile.
//
// # Concurrency
//
// All methods are safe for concurrent use. One lock per FS guards everything in
// it; an open [File] has a lock of its own for its offset, taken before the FS's.
package vfs
