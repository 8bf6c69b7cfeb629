// Package vfs is a filesystem in memory with Unix semantics: directories, files, symbolic and hard
// links, modes, owners, times, user attributes, a byte quota that answers ENOSPC, and change
// notification. The simulated sandboxes are built on it.
//
// An [FS] is the filesystem. A [View] is the filesystem with the permissions of one user, which are
// checked as in Linux. This package never calls the operating system. It uses package syscall only
// for its error numbers, so that errors.Is works as with a real filesystem.
//
// # Copies
//
// Files are nodes in a table by inode number. Directories are trees from names to numbers. Contents
// are blocks. All of this is copied on write: tables, directories, nodes and blocks have the
// generation of the FS that may change them. [FS.Clone] copies a few words and gives both sides new
// generations. So a template is built once and cloned for each sandbox, an idle sandbox costs
// nothing, and a snapshot is a clone. The difference between a copy and its origin is a [Delta].
// [FS.Save] writes it as bytes, and [Load] makes a filesystem from these bytes, which may be
// hostile.
//
// # Mounts
//
// [FS.Mount] puts a [Source] into the tree: read only, for writing, or as an overlay whose changes
// stay in the FS. The FS stores nothing of a source until a file is changed. Then the file and the
// directories above it become nodes. The file's blocks are copied one by one as they are written. A
// removed name stays as an entry with number 0.
//
// A process that has a source's file open for reading sees later changes made through the
// filesystem. Two names of one file in the source become two files when they are changed. A file
// that the overlay has changed must not be changed in the source, or the two contents mix.
//
// # Times
//
// Access times are those of Linux with relatime, with one exception: a file that is shared with a
// copy is not copied only to record a read.
//
// # Concurrency
//
// All methods are safe for concurrent use. One lock per FS guards everything in it. An open [File]
// has its own lock for its offset, which is taken before the lock of the FS.
package vfs
