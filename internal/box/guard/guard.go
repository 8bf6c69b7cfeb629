// Package guard answers the system calls that a box watches: it decides what mounts and
// Landlock can't, and turns what they refuse into reports.
//
// What it decides, on copies, with the kernel's wall behind it where there is one:
//
//   - connect to a Unix socket outside of the box: allowed sockets are connected here, on the duplicated
//     descriptor, by a path resolved below the box's root; others get EACCES. Sockets that the box's own processes made are its own.
//   - the creation of a name that is protected and does not exist yet (".mcp.json", ".git/hooks/…"): EACCES. A program with threads can
//     change the name after the look; so the directories that hold protected names are watched (inotify), and what appears there
//     all the same is moved away at once, kept for the person, and reported.
//
// What it only reports, and the kernel refuses: writes outside of the writable directories, connects without a network,
// dangerous calls.
package guard

import (
	"io/fs"
	"os"

	"github.com/carrel-dev/carrel/internal/linux/seccomp"
	"github.com/carrel-dev/carrel/internal/refusal"
)

// Rules are what the guard goes by. Paths are absolute and as they are inside, links resolved.
type Rules struct {
	// Writable and ReadOnly are directories and files; the most specific one decides. Rule is for the report.
	Paths []Path
	// Protected are names, "*" standing for anything in one element, that must not be created or changed below a writable directory: those
	// that exist are mounted read-only and are in Paths too.
	Protected []Protected
	// Sockets are allowed paths of Unix sockets outside, "*" allows all.
	Sockets []string
	// Own are directories whose sockets are the box's own: /tmp, /run, /dev/shm and so on. Sockets below Writable are its own if
	// made by it.
	Own []string
	// Network is why connections fail: "" when the wire decides (and reports).
	Closed string
	// Bind: whether ports may be listened on; a refusal says Allow.
	NoBind bool
	// Allow makes the text of Refusal.Allow.
	Quarantine string // directory that protected files are moved to, made when needed
}

// Path is one rule.
type Path struct {
	Path     string
	Writable bool
	Rule     string
	Allow    string // how to allow it
}

// Protected is one pattern: Dir is where it holds, "" with all below when Deep.
type Protected struct {
	Dir     string // absolute
	Pattern string // relative to Dir or, when Deep, to any directory below it: ".mcp.json", ".git/hooks"
	Deep    bool
	Rule    string
}

// Guard answers calls. It is safe for concurrent use.
type Guard struct{}

// New makes a guard of a box whose root is root; call it before the command runs. It is closed after the box's end.
func New(r Rules, log *refusal.Log, root func() *os.File) (*Guard, error) { panic("not built") }

// Answer implements box.Options.Watch.
func (g *Guard) Answer(c seccomp.Call) seccomp.Answer { panic("not built") }

// Check moves away what is protected and appeared all the same. Close calls it.
func (g *Guard) Check() error { panic("not built") }

// Close stops watching directories.
func (g *Guard) Close() error { panic("not built") }

var _ fs.FileMode
