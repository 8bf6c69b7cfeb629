//go:build linux

// Package box builds the walls of Linux primitives around a process: namespaces, mounts,
// Landlock, a system call filter, limits. "carrel run" puts one command into a box; driver/ns puts a
// sandbox's guest into one.
//
// # The story
//
// A [Spec] says in data what the box is like; whoever makes it has done all the thinking (which
// secret is hidden, which directory is writable). [Start] starts the stage, a small program
// ([Parts]; the binary cmd/carrel-box, or the own binary again), in new namespaces, and hands it the Spec. The stage builds the
// box from inside, with rights over nothing but its own namespaces; hands out what the host needs (the end of the
// network link, the listener of the system call filter, a descriptor for the masks, a pidfd of the command);
// drops every right; and becomes, or starts, the command. Nothing is executed, and nothing of the command is
// read, before the last wall stands.
//
// Unless Spec.Init is set the stage stays as the first process of the pid namespace: it reaps orphans, and
// when the command ends it ends everything. The host's process keeps the [Box]. If it dies, however it dies, the kernel
// kills the box: stage and all.
//
// # Threat
//
// The command is hostile. It must not: see or change a file that the Spec does not give it; reach a process,
// socket, key, terminal or shared memory outside; get a right back by setuid programs, new user namespaces or descriptors that it
// inherited; write to what the stage or this package executes or reads (the stage is a sealed
// memory file or a descriptor, never found by a path in the box; /proc/self/exe of the stage is not dumpable). The
// Spec itself is trusted, but the paths that it names may lie in directories that the command of an earlier
// box wrote: mounts are made through descriptors opened with RESOLVE_NO_SYMLINKS below the last writable directory,
// and a path that turned into a link is an error, not followed.
package box

import (
	"os"
	"syscall"
	"time"

	"github.com/carrel-dev/carrel/internal/linux/landlock"
	"github.com/carrel-dev/carrel/internal/linux/seccomp"
)

// Spec is a box. It travels to the stage: fields are exported, and none is a map or an interface.
type Spec struct {
	Args     []string // Args[0] is looked for along PATH of Env, inside, unless it has a slash
	Env      []string
	Dir      string // working directory, inside
	Hostname string // "" keeps the host's

	// Light makes no namespaces: Landlock and the system call filter alone. Root, Mounts and
	// Hidden are then not carried out (Landlock's rules must say it), and Network is Closed or Host.
	Light bool
	// Init makes the command the first process of its pid namespace.
	Init bool

	// User is the user and group that the command has, inside and out, as the caller is: one id is mapped to itself.
	// Maps, if set, are used instead (the caller must be root, or the ids its own); the command then starts as 0.
	UIDMap, GIDMap []syscall.SysProcIDMap
	// Capabilities that the command keeps over its own namespaces, such as "CAP_CHOWN"; normally none.
	Capabilities []string
	// Privileges leaves setuid programs their effect within the box (no no_new_privs).
	Privileges bool

	Root   Root
	Mounts []Mount // carried out in this order
	Hidden []Hidden

	Network Network
	Publish []Publish // only with a network namespace

	Landlock landlock.Ruleset
	Seccomp  seccomp.Filter

	Limits Limits
	// Terminal: the command gets a terminal of its own, in the box's /dev/pts, in place of each of
	// the three standard streams that is true, and as its controlling terminal. Box.Terminal is the other end.
	Terminal [3]bool
	// Devices beyond the usual (null, zero, full, random, urandom, tty) that are bound into /dev.
	Devices []string
	// TmpSize and ShmSize are bytes of /tmp and /dev/shm; 0 is 1 GiB and 256 MiB. NoTmp leaves /tmp as Root has it.
	TmpSize, ShmSize int64
	NoTmp            bool
}

// Root is the filesystem that a box starts from. It is read-only until Mounts says otherwise, but for an
// overlay's. The zero value is an empty directory, in which the targets of Mounts are made, with the links that this
// machine has at its top ("/bin").
type Root struct {
	// Host takes this machine's own tree, with everything that is mounted in it.
	Host bool
	// Lower are directories, topmost first, laid under the private layer Upper (with Work beside it on the same filesystem).
	Lower       []string
	Upper, Work string
}

// Mount is one change to the tree.
type Mount struct {
	Kind   MountKind
	Source string // path outside, for binds; the upper layer for Overlay
	Target string // path inside. It must exist, but for Tmpfs roots of this box's own
	Work   string // of Overlay; its lower layer is what was at Target
	Size   int64  // of Tmpfs
	// Optional mounts are left out if Source or Target does not exist.
	Optional bool
}

// MountKind is what is mounted.
type MountKind string

// The kinds. Each is nosuid; binds and overlays are nodev.
const (
	ReadOnly MountKind = "ro"      // Source, or Target itself, read-only, with all below
	Writable MountKind = "rw"      // Source, or Target itself
	Tmpfs    MountKind = "tmpfs"   // an empty private directory
	Overlay  MountKind = "overlay" // Target stays as it is, changes go to Source
	ReadFile MountKind = "file"    // a file with the content of Source, which is text and no path
)

// Hidden is a file or directory that is not to be read. What does not exist is left out.
type Hidden struct {
	Path string
	Rule string // for the report
	// Blank shows an empty directory or file instead of refusing: for programs that give up on EACCES.
	Blank bool
}

// Network is what a box has of it.
type Network string

// The networks. In Closed and Wired boxes 127.0.0.1 is the box's own.
const (
	// Closed has loopback alone, with a resolver at 127.0.0.1 that refuses every name and tells (Events.Name).
	Closed Network = "closed"
	// Wired has a link: Box.Link is the host's end, for driver.Network's Attach.
	Wired Network = "wired"
	// Host is the machine's own network; the filter and Landlock decide.
	Host Network = "host"
)

// Publish makes a port of the box reachable outside. The connections come over the link or, without one, through the stage.
type Publish struct {
	Outside string // "127.0.0.1:8080"; port 0 picks one
	Inside  uint16
}

// Limits bound the box as a whole. Zero fields don't.
type Limits struct {
	CPUs      float64
	Memory    int64 // bytes
	Pids      int
	FileSize  int64 // bytes of each file that is written
	OpenFiles int
	Timeout   time.Duration
}

// Options are what Start needs from the process it runs in.
type Options struct {
	// Stdin, Stdout, Stderr are the command's; nil is /dev/null. Those that are a terminal by Spec.Terminal are not used.
	Stdin, Stdout, Stderr *os.File
	// Stage is a descriptor of the small stage binary; nil starts the own binary again, whose main must run [Parts].
	Stage *os.File
	// Ahead is a stage that was started while it was not known yet what the box is like. Start takes it, if it is
	// of use for this one; its Close is the caller's in any case.
	Ahead *Ahead
	// Events are told what happens inside; each may be nil and must not block.
	Events Events
	// Watch answers the calls that Spec.Seccomp watches; nil with watches is an error. See package guard.
	Watch func(*Box, seccomp.Call) seccomp.Answer
	// Cgroup is the name below which a group is made where one may be, "" for none, such as "carrel/run".
	Cgroup string
	// CgroupAfter puts the box into its group only when it has lived so long: joining one takes longer than many commands do. Until then
	// memory is measured. 0 has the box born in its group.
	CgroupAfter time.Duration
	// Detach: the box outlives this process (the pidfd and the descriptors are the caller's to keep). Nothing is served here then.
	Detach bool
}

// Events are what the walls themselves notice.
type Events struct {
	Name    func(name string)                          // a lookup that the Closed network refused
	Touched func(hidden int, path, op string, pid int) // package denyfs
	Limit   func(name, value string)                   // a limit ended something: "memory", "512 MiB"
	Stopped func()                                     // the command was stopped by a signal (ctrl-z with no shell inside)
}

// Exit is how a command ended.
type Exit struct {
	Code      int // when Signal is 0
	Signal    syscall.Signal
	Limit     string // "memory", "timeout", "pids": which limit ended it, ""
	CPU       time.Duration
	MaxMemory int64
}
