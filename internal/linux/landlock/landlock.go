// Package landlock restricts the calling thread with the kernel's Landlock: which
// files, TCP ports, abstract Unix sockets and processes it and what it starts may
// reach. It needs no right and can't be undone. https://docs.kernel.org/userspace-api/landlock.html
//
// It is the second wall behind the mounts of a box, and the only one for files
// where no namespaces are to be had.
package landlock

// Access is what a rule allows on a file, or on everything below a directory.
type Access int

// The accesses.
const (
	ReadExec   Access = iota // read, list, execute
	ReadOnly                 // read and list
	WriteFile                // read, execute, and write existing files and devices (ioctls too)
	ReadWrite                // all: create, remove, rename, link, truncate, sockets, fifos. No device nodes.
	Everything               // ReadWrite and device nodes
)

// Rule allows Access on Path. A path that does not exist is skipped.
type Rule struct {
	Path   string
	Access Access
}

// Ruleset is what stays allowed. The zero value restricts nothing.
type Ruleset struct {
	Files bool // restrict files to Rules
	Rules []Rule
	// TCP restricts connecting and binding to these ports (none: to no port).
	TCP           bool
	Connect, Bind []uint16
	// ScopeSockets closes abstract Unix sockets, and ScopeSignals the processes, outside of this domain.
	ScopeSockets, ScopeSignals bool
}

// ABI is the version of the running kernel's Landlock; 0 when it has none, or it is off.
func ABI() int { panic("not built") }

// Restrict applies r, as far as the kernel's ABI goes, to the calling thread, which must
// be locked and have no_new_privs (or CAP_SYS_ADMIN), and returns what of r this
// kernel can't do, in words. What the thread executes afterwards is restricted too.
func Restrict(r Ruleset) (missing []string, err error) { panic("not built") }
