//go:build !unix

package hostfs

// noWait is 0: these systems have no named pipes in directories.
const noWait = 0
