// Package fileview shows one file whose content comes from a function, by FUSE.
//
// The mount is not a directory with a file in it: its root is the file. So a [Mount] covers one
// existing file, and [Serve] answers the kernel. The file can be read and mapped, and not be
// changed. The kernel keeps what it has read.
//
// # Lifetime
//
// Serve ends when the filesystem is unmounted and the last program has closed the file. A process
// that mounts it in a namespace of its own therefore calls [Unmount], which hides the file from new
// programs, and waits for [Server.Done].
//
// A server that dies breaks the file for those who have it open: their reads fail. A read that is
// never answered can't be killed, so the function must end in bounded time.
//
// # Threat
//
// Requests come from the kernel, on behalf of sandboxes. A request costs one read of the function.
// The server keeps at most maxReads of them.
package fileview
