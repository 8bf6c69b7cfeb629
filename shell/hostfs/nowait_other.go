//go:build !unix

package hostfs

// noWait is for systems with pipes in directories.
const noWait = 0
