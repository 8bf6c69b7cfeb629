// Package backup writes a data directory into one file while its daemon runs, and makes a directory of it
// again.
//
// # What a backup holds
//
// All that lasts: records, snapshots and so every paused sandbox, templates, the images that sandboxes lie
// on, secrets with the key that they are sealed with, keys, authorities, the audit log. A running sandbox
// is there as its last snapshot, if it has one: its present memory and files are not. What can be made again
// is left out (caches, sockets, copies of what is packed already), and so is what lies in an object store.
//
// # One moment
//
// Content is written before its record and removed after it. So the records are copied first. Then every
// file gets a second name, a hard link, in a directory beside it: this takes milliseconds, and a file that
// has two names outlives the removal of one. Then each record is compared with what was linked. If a
// snapshot was removed just then, all of it is done again.
//
// # The file
//
// A tar archive, compressed with zstd, whose first entry says what it is and whose last says how many there
// were: what was cut off is not taken for whole. zstd's own checksum covers every byte. The file holds
// secrets and the memory of sandboxes: it is made readable for its owner alone.
//
// # Threat
//
// A backup that is restored may come from elsewhere. Only plain files and hard links to entries of the same
// archive are made, below the new directory; every other name, kind or size is refused, and what was made so
// far is removed.
package backup

import "time"

// formVersion is the version of the archive's form.
const formVersion = 1

// Names of the first and the last entry.
const (
	headName = "carrel-backup.json"
	tailName = "carrel-backup.end"
)

// Head is the first entry: what the backup is.
type Head struct {
	Form    int       `json:"form"`
	Created time.Time `json:"created"`
	Host    string    `json:"host"`
	Build   string    `json:"build"` // version of the program that wrote it
}

// Summary says what was written or restored.
type Summary struct {
	Head
	Files     int   `json:"files"`
	Bytes     int64 `json:"bytes"` // of the files, uncompressed
	Snapshots int   `json:"snapshots"`
	Paused    int   `json:"paused"`  // sandboxes that can be resumed from it
	Running   int   `json:"running"` // sandboxes that ran, and of which only snapshots are in it
}

// tail is the last entry.
type tail struct {
	Files int   `json:"files"`
	Bytes int64 `json:"bytes"`
}
