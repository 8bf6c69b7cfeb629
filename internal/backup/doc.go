// Package backup writes a data directory into one file while its daemon runs, and makes a directory
// from it again.
//
// # What a backup holds
//
// A backup holds all lasting data: records, snapshots and so every paused sandbox, templates, the
// images under sandboxes, secrets with the key that seals them, keys, authorities, the audit log. A
// running sandbox is in it as its last snapshot, if it has one; its present memory and files are
// not. Data that can be made again is left out (caches, sockets, copies of packed data), and so is
// data in an object store.
//
// # One moment
//
// Content is written before its record and removed after it. So the records are copied first. Then
// every file gets a second name, a hard link, in a directory beside it. This takes milliseconds,
// and a file with two names survives the removal of one. Then each record is compared with the
// links. If a snapshot was removed in that time, everything is done again.
//
// # The file
//
// The file is a tar archive, compressed with zstd. Its first entry describes the backup. Its last
// entry holds the number of entries, so a cut-off file is not taken for complete. zstd's own
// checksum covers every byte. The file holds secrets and the memory of sandboxes: only its owner
// can read it.
//
// # Threat
//
// A backup that is restored may come from another place. Restore makes only plain files and hard
// links to entries of the same archive, below the new directory. It refuses every other name, kind
// or size, and removes everything made so far.
package backup

import "time"

// formVersion is the version of the archive's format.
const formVersion = 1

// Names of the first and the last entry.
const (
	headName = "carrel-backup.json"
	tailName = "carrel-backup.end"
)

// Head is the first entry. It describes the backup.
type Head struct {
	Form    int       `json:"form"`
	Created time.Time `json:"created"`
	Host    string    `json:"host"`
	Build   string    `json:"build"` // version of the program that wrote it
	// Identity is the ID of the data directory (see package datadir); "" in backups of older builds.
	Identity string `json:"identity,omitempty"`
}

// Summary counts what was written or restored.
type Summary struct {
	Head
	Files     int   `json:"files"`
	Bytes     int64 `json:"bytes"` // of the files, uncompressed
	Snapshots int   `json:"snapshots"`
	Paused    int   `json:"paused"`  // sandboxes that can be resumed from it
	Running   int   `json:"running"` // running ones; it holds only their snapshots
}

// tail is the last entry.
type tail struct {
	Files int   `json:"files"`
	Bytes int64 `json:"bytes"`
}
