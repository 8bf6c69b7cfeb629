// Package landlock restricts the calling thread with the kernel's Landlock. It limits the files,
// TCP ports, abstract Unix sockets and processes that the thread and its children may reach. It
// needs no right and can't be undone. https://docs.kernel.org/userspace-api/landlock.html
//
// It is the second wall behind the mounts of a box. On hosts without namespaces it is the only wall
// for files.
//
// # What it does not see
//
// A descriptor that is already open keeps its rights, except for ioctls of devices and truncation;
// those are also decided at the open. No version of Landlock so far restricts looking at a file
// without opening it (stat, access, chdir, readlink), or changing its mode, owner, times and
// attributes. Mounts or file modes have to do that. UDP, Unix sockets with a path, and all
// protocols except TCP (MPTCP and SCTP are not TCP) are not restricted either. A send with
// MSG_FASTOPEN connects past the rules (seen in Linux 6.18). The field Filter.TCP of package
// seccomp closes these.
package landlock

// Access is the access that a rule allows on a file, or on everything below a directory.
type Access int

// The accesses.
const (
	ReadExec   Access = iota // read, list, execute
	ReadOnly                 // read and list
	WriteFile                // read, execute, and write existing files and devices (ioctls too)
	ReadWrite                // all: create, remove, rename, link, truncate, sockets, fifos. No device nodes.
	Everything               // ReadWrite and device nodes
)

// Rule allows Access on Path. Links in Path are followed. A path that does not exist, or that the
// caller may not reach, is skipped: a rule can only allow more.
type Rule struct {
	Path   string
	Access Access
}

// Ruleset lists everything that stays allowed. The zero value restricts nothing. Several rules for
// one path add up. Access that an earlier Restrict of the thread closed stays closed.
type Ruleset struct {
	Files bool // restrict files to Rules
	Rules []Rule
	// Writing restricts writing alone: to read, list and execute is allowed everywhere. So is
	// truncating a file by its name, without opening it for writing: as long as that is restricted,
	// the kernel walks up from each file that is opened, for reading too. It is for a second wall
	// behind read-only mounts, which refuse both.
	Writing bool
	// TCP restricts connecting and binding to these ports. Without ports it allows none.
	TCP           bool
	Connect, Bind []uint16
	// ScopeSockets closes abstract Unix sockets outside of this domain. ScopeSignals does the same
	// for signals to processes.
	ScopeSockets, ScopeSignals bool
}
