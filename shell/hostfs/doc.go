// Package hostfs is a real directory as a source of files for package vfs, read only or
// for writing.
//
// # Threat
//
// The directory may be hostile, and so may whoever changes it meanwhile: nothing outside
// of it is ever read or written. Every path goes through an [os.Root], which resolves
// each name relative to the directory above it and refuses what leads out, also when a
// directory becomes a symbolic link between two looks. Links are not followed on purpose
// here at all: they are told as links, and package vfs resolves them in the sandbox's own
// tree, where "/" is the sandbox's, as in a chroot. A link that is swapped in for a file
// that was just looked at is noticed: what was opened must be what was seen.
//
// Devices, sockets and named pipes are shown and never opened. Hard links can't be told
// from files: one that was put into the directory leads to its file.
//
// What a sandbox writes is bounded by the real disk alone. An overlay (see
// [vfs.MountOptions]) writes nothing here.
package hostfs
