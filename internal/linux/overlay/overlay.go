// Package overlay keeps what a program changes apart from the directory that it
// changes: overlay mounts, and what to do with their upper layer afterwards.
//
// # The story
//
// The upper layer of a mount with "userxattr" holds changed files whole, removed ones as
// whiteouts, and directories that replaced others marked opaque. [Changes] reads it against the
// lower directory and says what differs, [Diff] writes that as a unified diff, [Apply] carries it out on the
// lower directory, all of it or nothing that it did not say.
//
// # Threat
//
// What is in an upper layer was made by a hostile program: links that point anywhere,
// names with newlines, devices, setuid bits, hard links. Nothing here follows a link, in the
// upper or the lower (os.Root and openat2's RESOLVE_BENEATH), nothing is executed, setuid and setgid
// bits are dropped unless the lower file had them.
package overlay

import (
	"context"
	"io"
	"io/fs"
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

// Change is one path that differs. Renames are a removal and an addition.
type Change struct {
	Path string      `json:"path"` // relative to the lower directory
	Kind Kind        `json:"kind"`
	Mode fs.FileMode `json:"mode"` // of the new one; of the old one if it was removed
	Size int64       `json:"size,omitempty"`
}

// Options are for Apply and Changes. The zero value is usable.
type Options struct {
	// Protected reports whether a path must not be written, and the rule that says so. Apply leaves such
	// changes out and returns them as skipped.
	Protected func(path string) (rule string, yes bool)
	// Base is the state of the lower directory at the start, if known: a file that somebody else changed since is a
	// conflict, and Apply carries nothing out unless Force.
	Base  func(path string) (fs.FileInfo, bool)
	Force bool
}

// Changes lists what differs, in lexical order. Files that were rewritten with the same content
// and mode are not listed.
func Changes(ctx context.Context, lower, upper string, o Options) ([]Change, error) {
	panic("not built")
}

// Diff writes the changes as a unified diff that "git apply" and "patch -p1" read; binary files are named.
func Diff(ctx context.Context, w io.Writer, lower, upper string, changes []Change) error {
	panic("not built")
}

// Skipped is a change that was left out.
type Skipped struct {
	Change
	Rule string `json:"rule"`
}

// Apply carries the changes out. Each file is written beside and renamed into place. Error:
// Conflict, naming the paths, when the lower directory changed meanwhile.
func Apply(ctx context.Context, lower, upper string, changes []Change, o Options) ([]Skipped, error) {
	panic("not built")
}

// Options text of a mount: what mount(2) is given, with the paths quoted as overlayfs wants
// them (colons, commas, backslashes). Layers on top of each other, topmost first.
func MountOptions(lower []string, upper, work string, user bool) (string, error) { panic("not built") }

// Probe says why this process can't mount an overlay over lower with the upper layer in dir, or nil: some
// filesystems can't be an upper layer, and an overlay is only one itself in newer kernels.
func Probe(lower, dir string) error { panic("not built") }
