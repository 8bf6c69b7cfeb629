// Package overlay keeps a program's changes apart from the directory that it changes. It builds the
// options of overlay mounts, and works on their upper layers afterwards.
//
// # The story
//
// The upper layer of a mount with "userxattr" holds changed files whole and removed ones as
// whiteouts. It marks directories that replaced others as opaque. [Changes] compares it with the
// lower directory and lists the differences. [Diff] writes them as a unified diff. [Apply] carries
// them out on the lower directory, all or nothing; it reports the changes that it skipped. [Remove]
// deletes a layer.
//
// A caller that has changes in another form can build a directory like an upper layer: changed
// files whole, [Whiteout] for removed ones, [Opaque] for directories that hide what is below them.
//
// # Threat
//
// A hostile program made the content of an upper layer: links to any place, names with newlines,
// devices, setuid bits, hard links. This package follows no link, in the upper or the lower
// directory (openat2's RESOLVE_BENEATH and RESOLVE_NO_SYMLINKS). It executes nothing, drops setuid
// and setgid bits unless the lower file had them, and never makes special files. The program must
// have ended, because a layer that is still mounted may change while it is read.
//
// # Limits
//
// Extended attributes, access control lists and file capabilities are not carried over. A file that
// existed in the lower directory keeps its owner. A layer of more than a million changes, or with a
// path of more than 4,095 bytes, is refused.
package overlay

import (
	"io/fs"
	"time"
)

// Kind is how a path changed.
type Kind string

// The kinds.
const (
	Added    Kind = "added"
	Modified Kind = "modified" // content, or type
	Mode     Kind = "mode"     // only permissions
	Removed  Kind = "removed"
)

// Change is one path that differs. A rename is a removal and an addition. A directory that was
// added, removed or replaced is a change of its own, in addition to one for each path in it.
type Change struct {
	Path string      `json:"path"` // relative to the lower directory
	Kind Kind        `json:"kind"`
	Mode fs.FileMode `json:"mode"` // of the new file; if removed, of the old one
	Size int64       `json:"size,omitempty"`
}

// Options are for Apply and Changes. The zero value is usable.
type Options struct {
	// Protected reports whether a path must not be written, and the rule for that. Everything below
	// a protected path is protected too. Apply leaves such changes out and returns them as skipped.
	Protected func(path string) (rule string, yes bool)
	// Base returns the state of the lower directory at the start, if known. A file that somebody
	// else changed since then is a conflict; Apply then does nothing unless Force is set.
	Base func(path string) (fs.FileInfo, bool)
	// Since is the program's start, for callers without a Base. A file of the lower directory is a
	// conflict if its status changed at that time or later (its ctime, which nobody can set). With
	// Since, Apply can't detect that a file was removed in the meantime.
	Since time.Time
	Force bool
}

// Skipped is a change that was left out.
type Skipped struct {
	Change
	Rule string `json:"rule"`
}
