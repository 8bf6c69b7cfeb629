// Package driver is the contract between the service and the code that builds walls.
//
// # The story
//
// A [Driver] builds the walls of one tier. The service asks [Driver.Probe] once whether this host
// can do it, then calls [Driver.Create] with a [Spec]. The driver starts the sandbox with the guest
// as its first process and hands back an [Instance]. The Instance has one door, [Instance.Dial]: a
// byte stream to a port inside. Exec, files, previews and shells all go through that door to the
// guest (port [carrel.GuestPort]), so no driver knows them.
//
// An Instance outlives the daemon. [Instance.Handle] is an opaque, durable text that the service
// stores. After a crash or restart [Driver.Recover] turns it back into an Instance. Until then the
// keeper process (package keeper) keeps the host's end of the network link open.
//
// # Time
//
// An Instance that is a [Snapshotter] can write its present state into an empty directory. A Driver
// that is a [Restorer] makes Instances from that directory: any number of them, under any ID, on
// any machine with the same build. The directory is the whole snapshot; package snapshot names,
// keeps and stores it. A snapshot leaves the sandbox running. To pause a sandbox, the service
// freezes it, takes the snapshot, makes it durable, and destroys the instance. When one of these
// steps fails, it thaws the sandbox.
//
// # Rules for every driver
//
// All methods are safe for concurrent use. Create either returns a live Instance or leaves nothing
// behind. Destroy is idempotent and legal in any state; when it returns, no process, cgroup, mount,
// namespace or file of the sandbox is left. Errors are [*carrel.Error]; a host that lacks something
// gives Unsupported with a Hint, a reached limit gives Exhausted naming the limit.
//
// A driver is done when it passes package drivertest.
package driver

import (
	"context"
	"io"
	"math"
	"net"
	"os"
	"time"

	"github.com/carrel-dev/carrel"
)

// Info describes a driver. It never changes.
type Info struct {
	Name         string // "gvisor"
	Tier         carrel.Tier
	Capabilities Capabilities
	// ProgramMark is the first bytes of the files of the driver's own programs. Such files mean
	// nothing in another tier. "" is none: the driver's programs are real.
	ProgramMark string
}

// Capabilities says what a driver's walls can do. The conformance suite checks that each claim is
// true.
type Capabilities struct {
	RealProcesses bool // runs real binaries (sim does not)
	Isolation     bool // stops hostile native code
	Recover       bool // instances outlive the daemon: the driver is a Sweeper
	MemoryLimit   bool // Limits.MemoryMB is enforced on this host
	CPULimit      bool
	PidLimit      bool
	DiskLimit     bool
	// Snapshot: the driver is a Restorer and its instances are Snapshotters.
	Snapshot bool
	// MemorySnapshot: a snapshot may hold memory and running processes. Without it every snapshot
	// is of files only, even if the caller asked for memory.
	MemorySnapshot bool
	// SlowBoot: a boot takes long beside a restoration from memory. The service boots each template
	// once, and its sandboxes go on from there.
	SlowBoot bool
}

// Driver builds sandboxes of one tier.
type Driver interface {
	Info() Info
	// Probe returns nil when sandboxes can be made on this host. Otherwise it returns an
	// Unsupported error that names the missing part, with the remedy as its Hint. Missing extras (a
	// limit that can't be enforced) are not an error; see Reporter.
	Probe(ctx context.Context) error
	// Create builds a sandbox and starts the guest in it. It may return before
	// the guest listens. ctx bounds the creation only.
	Create(ctx context.Context, spec Spec) (Instance, error)
	// Recover adopts a sandbox that an earlier process created. Error: NotFound
	// when it is gone (its leftovers are then removed).
	Recover(ctx context.Context, h Handle) (Instance, error)
	// Close releases the driver. Instances live on.
	Close() error
}

// Instance is one live sandbox.
type Instance interface {
	// Handle returns the text that Recover needs. It never changes.
	Handle() Handle
	// Dial opens a byte stream to a TCP port on the sandbox's own address. If no process listens
	// there, it returns an error for which errors.Is(err, syscall.ECONNREFUSED).
	Dial(ctx context.Context, port uint16) (net.Conn, error)
	Stats(ctx context.Context) (Stats, error)
	// Wait returns when the sandbox has ended by itself or through Destroy. Any
	// number of callers may wait.
	Wait(ctx context.Context) (Exit, error)
	// Destroy ends the sandbox and removes every trace of it.
	Destroy(ctx context.Context) error
}

// Handle is a driver's own durable text: versioned JSON, at most 4 KiB.
type Handle []byte

// Spec is all a driver needs to build one sandbox. Nothing in it is a secret:
// tokens and environment are given to the running guest.
type Spec struct {
	ID   carrel.ID
	Root Root
	// Guest is a read-only EROFS image holding the static guest at /guest; the
	// driver mounts it at [GuestMount]. Drivers without a kernel ignore it.
	Guest string
	// Dir is a directory of this sandbox alone, for the driver's files. The caller makes it, and
	// removes it after Destroy.
	Dir    string
	Limits carrel.Limits // every field set
}

// Root is a sandbox's root filesystem, shared and read-only; the driver puts a
// private writable layer of Limits.DiskMB on top.
type Root struct {
	Image string // absolute path of an EROFS image
	// Whole is "" unless the image is still being filled. Image is then a view of it, which may wait
	// for contents, and which the driver reads as little as possible. Whole is the path where the
	// same image will be when all of it is there. Nobody asks for a snapshot before.
	Whole string
}

// Paths inside every sandbox.
const (
	GuestMount = "/.carrel"       // the guest's own read-only mount
	GuestPath  = "/.carrel/guest" // its first process
)

// Stats is a sandbox's present use of resources.
type Stats struct {
	CPU         time.Duration // processor time used since its start
	Memory      int64         // bytes, all of it
	MemoryCache int64         // bytes of Memory that the kernel could drop
	MemoryLimit int64         // bytes; 0 when not limited
	Disk        int64         // bytes written on top of the template
	DiskLimit   int64         // bytes
	Pids        int           // number of its host tasks
}

// Exit says how a sandbox ended.
type Exit struct {
	Reason  carrel.EndReason // EndKilled, EndOutOfMemory or EndCrashed
	Message string           // for a person: which limit, which value, the log's last words
	Time    time.Time
}

// Programmer is an optional part of a Driver whose sandboxes' programs are functions of this
// process.
type Programmer interface {
	// Provide puts programs into a sandbox until the caller calls release. The sandbox need not
	// have an instance at that moment. The caller has checked the programs. Errors: Conflict for a
	// name that the sandbox already has, Exhausted for too many.
	Provide(id carrel.ID, programs []carrel.Program) (release func(), err error)
}

// Reporter is an optional part of a Driver. It reports features that work only in part on this
// host, for "carrel doctor".
type Reporter interface {
	// Report lists findings, each with its remedy; it is empty on a perfect host.
	Report(ctx context.Context) []Finding
}

// Finding is one line of carrel doctor.
type Finding struct {
	What string // "memory limits are not enforced"
	Why  string // "no writable cgroup: /sys/fs/cgroup/… is owned by root"
	Hint string // "run as root, or …"
}

// Sweeper is an optional part of a Driver. Every driver whose instances outlive the daemon is a
// Sweeper. A daemon may die between the start of a sandbox and the moment when its handle is
// stored; then nobody knows the sandbox. A Sweeper makes a file in Spec.Dir before anything of the
// sandbox runs: an empty Spec.Dir belongs to no running sandbox.
type Sweeper interface {
	// Sweep ends all sandboxes of this driver that are not in known, and removes everything that is
	// left of them. It does not remove the files in their Spec.Dir. The caller does that, with
	// overlay.Remove: some directories have no permissions. Sweep does not touch drivers with
	// another root on the same host. The service calls it once, after the recoveries and before the
	// first Create. It goes on after an error and returns all errors joined.
	Sweep(ctx context.Context, known []carrel.ID) error
	// DestroyStray ends one sandbox whose handle is lost, and removes what Sweep would remove of
	// it. An unknown ID is no error. The driver must have no instance of the sandbox.
	DestroyStray(ctx context.Context, id carrel.ID) error
}

// GroupClearer is an optional part of a Driver. A sandbox's control group can outlive its
// processes: a daemon died while it made or removed it, and no handle names it.
type GroupClearer interface {
	// ClearGroups removes the empty groups that are named after a sandbox. The driver has no
	// instance of it any more. It kills nothing: a group with processes stays. An unknown ID is no
	// error.
	ClearGroups(ctx context.Context, id carrel.ID) error
}

// Blanker is an optional part of a Driver. It starts kernels of sandboxes before there is a sandbox
// for them.
type Blanker interface {
	// Blanks counts them. If none are configured, all counts are zero.
	Blanks() carrel.BlankSentries
}

// Freezer is an optional part of an Instance. Freeze stops all processes inside and keeps their
// memory; Thaw lets them run again. Both are idempotent. A frozen sandbox is still frozen after
// Recover.
type Freezer interface {
	Freeze(ctx context.Context) error
	Thaw(ctx context.Context) error
}

// SnapshotOptions says which parts a snapshot holds.
type SnapshotOptions struct {
	// FilesOnly leaves memory and processes out: restoring it boots the guest afresh
	// on the same files.
	FilesOnly bool
}

// SnapshotInfo is a driver's description of a snapshot that it wrote. The service keeps it beside
// the files and hands it back to Restore.
type SnapshotInfo struct {
	Driver string `json:"driver"` // Info.Name
	Memory bool   `json:"memory"` // holds memory and processes
	// Build and CPU name the drivers and hosts that can restore the snapshot: the driver's format
	// and build, and the processor's features. "" fits every one. Restore refuses others as
	// Unsupported.
	Build string `json:"build,omitempty"`
	CPU   string `json:"cpu,omitempty"`
	// Root names the content of the root filesystem below the snapshot, as far as the driver can
	// tell; "" when that does not matter.
	Root string `json:"root,omitempty"`
}

// Snapshotter is an optional part of an Instance: its state can be saved.
type Snapshotter interface {
	// Snapshot writes the sandbox's state as files directly in dir, an existing empty directory. It
	// returns when the sandbox runs on (or is frozen again, if it was frozen before). The files
	// need not have reached the disk. After an error the sandbox runs as before, and the content of
	// dir is worthless. Connections between the sandbox and anything outside of it survive in the
	// running sandbox and are closed in restored ones. Connections inside survive in both.
	//
	// Errors: Conflict when another snapshot is being taken, Exhausted when dir is full,
	// Unavailable when the sandbox has ended.
	Snapshot(ctx context.Context, dir string, opts SnapshotOptions) (SnapshotInfo, error)
}

// WhenWanted is a [RestoreOptions].Later without an end: content that the sandbox never waits for is
// never read, and takes no memory of its own. A snapshot of the sandbox reads the rest.
const WhenWanted = time.Duration(math.MaxInt64)

// RestoreOptions says how a snapshot is restored.
type RestoreOptions struct {
	// FilesOnly restores only the files of a snapshot with memory: the guest boots afresh on them.
	FilesOnly bool
	// Later allows the driver to read, for at least this time, only the content that the sandbox
	// waits for, so that other sandboxes can start. A driver may still read everything at once.
	Later time.Duration
	// SameBoot: the sandbox goes on where it was paused, and keeps the name of its boot
	// (/proc/sys/kernel/random/boot_id). Without it a memory draws a new one before its programs go
	// on, as a boot does. A driver without memory boots always.
	SameBoot bool
}

// Restorer is an optional part of a Driver. It makes sandboxes from snapshots.
type Restorer interface {
	// CanRestore reports whether this driver on this host could restore such a snapshot. It does no
	// work. Error: Unsupported, naming both builds or the missing processor features.
	CanRestore(info SnapshotInfo, opts RestoreOptions) error
	// Restore builds a sandbox in the state of a snapshot. dir holds the files that Snapshot wrote.
	// Like Create it may return before the guest listens, and the same rules hold. If the Instance
	// is a Loader, Restore may return while dir is still being read: the caller keeps dir unchanged
	// until [Loader.Loaded] returns. spec may have another ID than the sandbox of the snapshot. Its
	// limits may be higher; its root must have the same content.
	//
	// Errors: Unsupported as CanRestore, Invalid when the files are damaged or foreign.
	Restore(ctx context.Context, dir string, info SnapshotInfo, spec Spec, opts RestoreOptions) (Instance, error)
	// SnapshotFiles opens the changes of a snapshot's filesystem against the root image, as a tar
	// stream. Entries have paths relative to /. Whiteouts have overlayfs' form: a character device
	// 0/0 in place of a removed file, the xattr trusted.overlay.opaque=y on a directory that hides
	// the image's. spec is a Spec as for Restore; its Dir may be used for scratch files. Close ends
	// the stream.
	SnapshotFiles(ctx context.Context, dir string, info SnapshotInfo, spec Spec) (io.ReadCloser, error)
}

// Rouser is an optional part of an Instance. A program inside may stop the guest's own process, as
// with SIGSTOP.
type Rouser interface {
	// Rouse makes the guest's process go on. It does nothing to one that runs.
	Rouse(ctx context.Context) error
}

// Versioned is an optional part of an Instance. Memory that it saves can be restored only by the
// build that started it.
type Versioned interface {
	// Build names the build that started the sandbox, as SnapshotInfo.Build does. own says that it is
	// this driver's.
	Build() (name string, own bool)
	// KeepBuild makes sure that this driver can restore memory that the sandbox saves. Errors:
	// Unsupported when the sandbox's build can't be had, Exhausted.
	KeepBuild(ctx context.Context) error
}

// Build is one build of a driver.
type Build struct {
	Name    string // as in SnapshotInfo.Build
	Version string // Carrel's own, for people; "" when it is not known
	Own     bool   // it is this driver's
	Kept    bool   // it outlives an upgrade
	Used    bool   // a living sandbox runs on it
	Problem string // why this driver can't restore its memory; "" when it can
}

// BuildKeeper is an optional part of a Driver. It keeps the programs of other builds, and restores
// with them the memory that they saved.
type BuildKeeper interface {
	// Builds lists this driver's own build and all that are kept. A driver that keeps none lists
	// nothing.
	Builds(ctx context.Context) ([]Build, error)
	// ExportBuild opens a kept build, for a copy elsewhere. Error: NotFound.
	ExportBuild(ctx context.Context, name string) (io.ReadCloser, int64, error)
	// ImportBuild keeps a build that ExportBuild gave. Error: Invalid when it is damaged.
	ImportBuild(ctx context.Context, name string, r io.Reader) error
	// DropBuild forgets a kept build; idempotent. The caller knows that nothing needs it.
	DropBuild(ctx context.Context, name string) error
}

// Loader is an optional part of an Instance that Restore made. The Instance may still be reading
// its snapshot.
type Loader interface {
	// Loaded returns nil when everything has been read from the snapshot's directory. An error
	// means that this failed, and that the sandbox has ended or is about to end.
	Loaded(ctx context.Context) error
}

// As finds an optional interface on a Driver or Instance, looking through
// decorators that have an Unwrap method.
func As[T any](v any) (T, bool) {
	for v != nil {
		if t, ok := v.(T); ok {
			return t, true
		}
		switch w := v.(type) {
		case interface{ Unwrap() Driver }:
			v = w.Unwrap()
		case interface{ Unwrap() Instance }:
			v = w.Unwrap()
		default:
			v = nil
		}
	}
	var zero T
	return zero, false
}

// Network makes the daemon's ends of links. Package wire implements it. Drivers get it from their
// caller.
type Network interface {
	// Attach starts a user-space stack on fd, the host's end of a link. fd is one of three:
	//
	//   - a SOCK_SEQPACKET socket that carries one Ethernet frame per message;
	//   - the file of a TAP device, whose flags say whether frames have a header;
	//   - a SOCK_STREAM Unix socket, with each frame's length before it (32 bits, network order).
	//
	// Attach owns fd, also on error. The first two may be attached again after the link was closed
	// or its daemon died. A stream may not: the place where a frame begins is then unknown.
	Attach(ctx context.Context, spec LinkSpec, fd *os.File) (Link, error)
}

// LinkSpec describes one sandbox's link. All sandboxes use the same addresses, because each link is
// a network of its own.
type LinkSpec struct {
	ID  carrel.ID
	MTU int
	// Checksums: the other end checks the checksums of what it gets from a SOCK_SEQPACKET socket, as
	// a real kernel does. Without it the stack leaves them out there. Other links have them always.
	Checksums bool
}

// Link is the daemon's end of one sandbox's only network link.
type Link interface {
	// Dial connects from the gateway address to a port of the sandbox. A refused connection returns
	// ECONNREFUSED.
	Dial(ctx context.Context, port uint16) (net.Conn, error)
	Close() error
}

// Addresses on every link. 169.254.0.0/16 is avoided: clouds keep metadata there.
const (
	GuestIPv4   = "10.73.0.2"
	GatewayIPv4 = "10.73.0.1"
	PrefixIPv4  = 30
	GuestIPv6   = "fd73:6361:7272::2"
	GatewayIPv6 = "fd73:6361:7272::1"
	PrefixIPv6  = 64
	GuestMAC    = "02:63:61:72:00:02"
	GatewayMAC  = "02:63:61:72:00:01"
)
