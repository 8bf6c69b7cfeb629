// Package landlock restricts the calling thread with the kernel's Landlock: which
// files, TCP ports, abstract Unix sockets and processes it and what it starts may
// reach. It needs no right and can't be undone. https://docs.kernel.org/userspace-api/landlock.html
//
// It is the second wall behind the mounts of a box, and the only one for files
// where no namespaces are to be had.
//
// # What it does not see
//
// A descriptor that is open already keeps its rights, but for ioctls of devices
// and truncation, which are decided when it is opened too. Looking at a file without opening it
// (stat, access, chdir, readlink) and changing its mode, owner, times and attributes is
// not restricted by any version of Landlock so far: mounts or file modes have to do that.
// UDP, Unix sockets with a path, and everything that is no TCP (MPTCP and SCTP among it) is not restricted either, and a send with
// MSG_FASTOPEN connects past the rules (seen in Linux 6.18): package seccomp's Filter.TCP closes these.
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

// Rule allows Access on Path, whose links are followed. A path that does not exist, or that the caller may not
// reach, is skipped: a rule only ever opens something.
type Rule struct {
	Path   string
	Access Access
}

// Ruleset is what stays allowed. The zero value restricts nothing. What several rules say of one
// path adds up; what an earlier Restrict of the thread did not allow stays closed.
type Ruleset struct {
	Files bool // restrict files to Rules
	Rules []Rule
	// Writing restricts writing alone: to read, list and execute is allowed everywhere. So is truncating a file by its
	// name, without opening it for writing: as long as that is restricted, the kernel walks up from each file that is opened, for reading too.
	// It is for a second wall behind read-only mounts, which refuse both.
	Writing bool
	// TCP restricts connecting and binding to these ports (none: to no port).
	TCP           bool
	Connect, Bind []uint16
	// ScopeSockets closes abstract Unix sockets, and ScopeSignals the processes, outside of this domain.
	ScopeSockets, ScopeSignals bool
}
