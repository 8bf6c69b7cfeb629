//go:build linux

// Package box builds the walls of Linux primitives around a process: namespaces, mounts, Landlock,
// a system call filter, limits. "carrel run" puts one command into a box; driver/ns puts a
// sandbox's guest into one.
//
// # The story
//
// A [Spec] describes a box as data. The caller that makes it has decided everything: which secret
// is hidden, which directory is writable. [Start] starts the stage in new namespaces and hands it
// the Spec. The stage is a small program ([Parts]; the binary cmd/carrel-box, or our own binary
// again). It builds the box from inside, with rights only over its own namespaces. It hands out the
// descriptors that the host needs: the end of the network link, the listener of the system call
// filter, a descriptor for the masks, a pidfd of the command. It drops every right. Then it becomes
// the command, or starts it. Before the last wall stands it executes nothing, and reads nothing of
// the command.
//
// Unless Spec.Init is set, the stage stays as the first process of the pid namespace: it reaps
// orphans, and when the command ends it ends everything. The host's process keeps the [Box]. If
// that process dies in any way, the kernel kills the box, with its stage.
//
// # Threat
//
// The command is hostile. It must not see or change a file that the Spec does not give it. It must
// not reach a process, socket, key, terminal or shared memory outside. It must not get a right back
// through setuid programs, new user namespaces or descriptors that it inherited. It must not write
// to a file that the stage or this package executes or reads: the stage is a sealed memory file or
// a descriptor, never found by a path in the box, and its /proc/self/exe is not dumpable. The Spec
// itself is trusted. But its paths may lie in directories that the command of an earlier box wrote.
// So mounts are made through descriptors opened with RESOLVE_NO_SYMLINKS below the last writable
// directory. A path that turned into a link is an error; the link is not followed.
package box

import (
	"os"
	"syscall"
	"time"

	"github.com/carrel-dev/carrel/internal/linux/landlock"
	"github.com/carrel-dev/carrel/internal/linux/seccomp"
)

// Spec describes a box. It is sent to the stage, so its fields are exported, and none is a map or
// an interface.
type Spec struct {
	Args     []string // Args[0] without a slash is looked up in PATH of Env, inside
	Env      []string
	Dir      string // working directory, inside
	Hostname string // "" keeps the host's

	// Light makes no namespaces, only Landlock and the system call filter. Root, Mounts and Hidden
	// are then ignored (Landlock's rules must express them), and Network is Closed or Host.
	Light bool
	// Init makes the command the first process of its pid namespace.
	Init bool

	// UIDMap and GIDMap map the ids of the box, if they are set. The command then starts as 0. The
	// caller must be root, or own these ids. Without them the command has the caller's user and
	// group, inside and outside: only that id is mapped, to itself.
	UIDMap, GIDMap []syscall.SysProcIDMap
	// Capabilities are those that the command keeps over its own namespaces, such as "CAP_CHOWN";
	// normally none.
	Capabilities []string
	// Privileges lets setuid programs have their effect within the box (no no_new_privs).
	Privileges bool

	Root   Root
	Mounts []Mount // carried out in this order
	Hidden []Hidden

	Network Network
	Publish []Publish // only with a network namespace

	Landlock landlock.Ruleset
	Seccomp  seccomp.Filter

	Limits Limits
	// Terminal gives the command a terminal of its own, in the box's /dev/pts. The terminal
	// replaces each of the three standard streams that is true, and is the command's controlling
	// terminal. Box.Terminal is the other end.
	Terminal [3]bool
	// Devices are bound into /dev in addition to the usual ones (null, zero, full, random, urandom,
	// tty).
	Devices []string
	// TmpSize and ShmSize are the sizes of /tmp and /dev/shm in bytes; 0 is 1 GiB and 256 MiB.
	// NoTmp leaves /tmp as it is in Root.
	TmpSize, ShmSize int64
	NoTmp            bool
}

// Root is the initial filesystem of a box. It is read-only except where Mounts says otherwise; an
// overlay is writable. The zero value is an empty directory. The targets of Mounts are made in it,
// and the links that this machine has in its root directory ("/bin").
type Root struct {
	// Host uses this machine's own tree, with all its mounts.
	Host bool
	// Lower are directories, topmost first, below the private layer Upper. Work is beside Upper on
	// the same filesystem.
	Lower       []string
	Upper, Work string
}

// Mount is one change to the tree.
type Mount struct {
	Kind   MountKind
	Source string // path outside, for binds; for Overlay the upper layer
	Target string // path inside; must exist, except in the box's own filesystems
	Work   string // of Overlay, whose lower layer is the old content of Target
	Size   int64  // of Tmpfs
	// Optional mounts are left out if Source or Target does not exist.
	Optional bool
}

// MountKind is the kind of a Mount.
type MountKind string

// The kinds. Each is nosuid; binds and overlays are nodev.
const (
	ReadOnly MountKind = "ro"      // Source, or Target itself, read-only, with everything below
	Writable MountKind = "rw"      // Source, or Target itself
	Tmpfs    MountKind = "tmpfs"   // an empty private directory
	Overlay  MountKind = "overlay" // Target stays as it is, changes go to Source
	ReadFile MountKind = "file"    // a file with Source, a text and no path, as its content
)

// Hidden is a file or directory that must not be read. A missing one is left out.
type Hidden struct {
	Path string
	Rule string // for the report
	// Blank shows an empty directory or file instead of refusing. It is for programs that give up
	// on EACCES.
	Blank bool
}

// Network is the kind of network of a box.
type Network string

// The networks. In Closed and Wired boxes 127.0.0.1 is the box's own.
const (
	// Closed has only loopback. A resolver at 127.0.0.1 refuses every name and reports it
	// (Events.Name).
	Closed Network = "closed"
	// Wired has a link: Box.Link is the host's end, for driver.Network's Attach.
	Wired Network = "wired"
	// Host is the machine's own network. The filter and Landlock decide what is allowed.
	Host Network = "host"
)

// Publish makes a port of the box reachable from outside. The connections come over the link or,
// without one, through the stage.
type Publish struct {
	Outside string // "127.0.0.1:8080"; port 0 picks one
	Inside  uint16
}

// Limits bound the box as a whole. A zero field is no limit.
type Limits struct {
	CPUs      float64
	Memory    int64 // bytes
	Pids      int
	FileSize  int64 // largest size of each written file, in bytes
	OpenFiles int
	Timeout   time.Duration
}

// Options are the parts of the calling process that Start needs.
type Options struct {
	// Stdin, Stdout and Stderr are the command's; nil is /dev/null. A stream that Spec.Terminal
	// makes a terminal is not used.
	Stdin, Stdout, Stderr *os.File
	// Stage is a descriptor of the small stage binary. Nil starts our own binary again, whose main
	// must run [Parts].
	Stage *os.File
	// Ahead is a stage that was started before the Spec was known. Start takes it, if this box can
	// use it. The caller must call its Close in any case.
	Ahead *Ahead
	// Events are called for events inside. Each may be nil and must not block.
	Events Events
	// Watch answers the calls that Spec.Seccomp watches. If there are such calls, a nil Watch is an
	// error. See package guard.
	Watch func(*Box, seccomp.Call) seccomp.Answer
	// Cgroup is the name below which a control group is made, if that is allowed, such as
	// "carrel/run"; "" for none.
	Cgroup string
	// CgroupAfter is the box's age at which it is put into its group, because joining a group takes
	// longer than many commands do. Until then memory is measured. With 0 the box is born in its
	// group.
	CgroupAfter time.Duration
	// Detach lets the box outlive this process. The caller must keep the pidfd and the descriptors.
	// This process then serves no requests of the box.
	Detach bool
}

// Events are the events that the walls themselves notice.
type Events struct {
	Name    func(name string)                          // the Closed network refused a lookup
	Touched func(hidden int, path, op string, pid int) // package denyfs
	Limit   func(name, value string)                   // a limit was hit: "memory", "512 MiB"
	Stopped func()                                     // a signal stopped the command (ctrl-z)
}

// Exit is the way a command ended.
type Exit struct {
	Code      int // when Signal is 0
	Signal    syscall.Signal
	Limit     string // the limit that ended it: "memory", "timeout", "pids", or ""
	CPU       time.Duration
	MaxMemory int64
}
