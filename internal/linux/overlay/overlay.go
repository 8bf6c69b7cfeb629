// Package overlay keeps what a program changes apart from the directory that it
// changes: overlay mounts, and what to do with their upper layer afterwards.
//
// # The story
//
// The upper layer of a mount with "userxattr" holds changed files whole, removed ones as
// whiteouts, and directories that replaced others marked opaque. [Changes] reads it against the
// lower directory and says what differs, [Diff] writes that as a unified diff, [Apply] carries it out on the
// lower directory, all of it or nothing that it did not say. [Remove] throws a layer away.
//
// Whoever has changes in another form can lay out a directory like an upper layer: changed files whole,
// [Whiteout] for what is gone, [Opaque] for directories that hide what is below them.
//
// # Threat
//
// What is in an upper layer was made by a hostile program: links that point anywhere,
// names with newlines, devices, setuid bits, hard links. Nothing here follows a link, in the
// upper or the lower (openat2's RESOLVE_BENEATH and RESOLVE_NO_SYMLINKS), nothing is executed, setuid and setgid
// bits are dropped unless the lower file had them, and special files are never made. The program must have ended:
// a layer that is still mounted may change while it is read.
//
// # Limits
//
// Extended attributes, access control lists and file capabilities are not carried over. Owners are those of the lower
// file where it was there before. A layer of more than a million changes, or with a path of more than 4,095 bytes, is refused.
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

// Change is one path that differs. Renames are a removal and an addition. A directory that came, went or
// was replaced is a change of its own, beside one for each path in it.
type Change struct {
	Path string      `json:"path"` // relative to the lower directory
	Kind Kind        `json:"kind"`
	Mode fs.FileMode `json:"mode"` // of the new one; of the old one if it was removed
	Size int64       `json:"size,omitempty"`
}

// Options are for Apply and Changes. The zero value is usable.
type Options struct {
	// Protected reports whether a path must not be written, and the rule that says so. What is below a protected path is
	// protected too. Apply leaves such changes out and returns them as skipped.
	Protected func(path string) (rule string, yes bool)
	// Base is the state of the lower directory at the start, if known: a file that somebody else changed since is a
	// conflict, and Apply carries nothing out unless Force.
	Base func(path string) (fs.FileInfo, bool)
	// Since is when the program started, for those who don't keep a Base: a file of the lower directory whose status changed at
	// that time or later (its ctime, which nobody can set) is a conflict. It can't tell that a file was removed meanwhile.
	Since time.Time
	Force bool
}

// Skipped is a change that was left out.
type Skipped struct {
	Change
	Rule string `json:"rule"`
}
