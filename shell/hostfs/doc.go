// Package hostfs makes a real directory a source of files for package vfs, read only or for
// writing.
//
// # Threat
//
// The directory may be hostile, and so may other processes that change it at the same time. Nothing
// outside of it is ever read or written. Every path goes through an [os.Root]. It resolves each
// name relative to the directory above, and refuses names that lead out, even when a directory
// becomes a symbolic link between two checks. This package never follows links: it reports them as
// links, and package vfs resolves them in the sandbox's own tree. There "/" is the sandbox's root,
// as in a chroot. If a link replaces a file between its check and its opening, the open is refused:
// the opened file must be the checked one.
//
// Devices, sockets and named pipes are shown but never opened. Hard links can't be distinguished
// from files: a hard link in the directory leads to its file.
//
// Only the real disk limits the writes of a sandbox. An overlay (see [vfs.MountOptions]) writes
// nothing here.
package hostfs
