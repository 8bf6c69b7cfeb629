package agent

import (
	"context"
	"io"
	"io/fs"
	"net"
	"time"
)

// System is the operating system that the agent serves: the real one inside a sandbox (package
// oshost) or the simulated one (driver/sim). The agent implements the protocol, the buffering and
// the rules; a System does the work. All methods are safe for concurrent use. Paths are absolute
// and clean.
type System interface {
	Users
	Filesystem
	// Start starts a process.
	Start(cmd Cmd) (Proc, error)
	// DialLoopback connects to a port on the sandbox's own loopback addresses.
	DialLoopback(ctx context.Context, port uint16) (net.Conn, error)
	// Metrics measures the machine.
	Metrics() (Metrics, error)
	// Identify sets the host name and, where possible, the clock; called at /init.
	Identify(hostname string, now time.Time) error
}

// Users looks up accounts.
type Users interface {
	// User finds an account by name. If there is none, the error is fs.ErrNotExist.
	User(name string) (User, error)
	// Names returns the names of an owner and a group. For an unknown id it returns the number as
	// text.
	Names(uid, gid uint32) (owner, group string)
}

// User is an account.
type User struct {
	Name     string
	UID, GID uint32
	Groups   []uint32
	Home     string
	Shell    string
}

// Cmd is a process to start.
type Cmd struct {
	Path  string // searched in Env's PATH if it has no slash
	Args  []string
	Env   []string // the whole environment
	Dir   string
	User  User
	Stdin bool  // open a pipe; otherwise standard input is empty
	TTY   *Size // use a pseudo-terminal: Stdout is the terminal, Stderr nil
}

// Size is a terminal's size in characters.
type Size struct{ Cols, Rows uint16 }

// Proc is a started process.
type Proc interface {
	PID() int
	Stdin() io.WriteCloser // nil without Cmd.Stdin; the terminal with a TTY
	Stdout() io.Reader     // ends when every writer has closed it
	Stderr() io.Reader     // nil with a TTY
	Resize(Size) error
	Signal(signal int) error // to its whole process group
	// Wait returns when the process itself has ended. Children that hold its pipes may still write
	// output.
	Wait() ExitStatus
	// Release closes the pipes that are still open. Called once, after Wait.
	Release()
}

// ExitStatus says how a process ended.
type ExitStatus struct {
	Code     int    // −1 when a signal ended it
	Signal   int    // 0 when it exited
	Status   string // "exit status 1", "signal: killed"
	ErrorMsg string // text for the client's user; "" on success
}

// Filesystem is the file part of an operating system. Names follow package os. Errors satisfy
// errors.Is with fs.ErrNotExist, fs.ErrExist, syscall.ENOSPC, syscall.ENOTDIR, … as real ones do.
type Filesystem interface {
	Stat(name string) (Entry, error)  // follows links
	Lstat(name string) (Entry, error) // does not
	ReadDir(name string) ([]Entry, error)
	Open(name string) (File, error) // for reading; not a directory
	// Create opens a file for writing and truncates it. A missing file is made with mode 0666 and
	// owner u.
	Create(name string, u User) (File, error)
	// Mkdir makes one directory with mode 0755 and owner u.
	Mkdir(name string, u User) error
	Rename(from, to string) error
	Remove(name string) error    // one file or empty directory
	RemoveAll(name string) error // a missing one is no error
	Chown(name string, u User) error
	// CopyMode gives a new file the mode of another, and the attributes that programs have set.
	CopyMode(from, to string) error
	// SetAttrs replaces all user.e2b.* attributes of a file (names without the prefix); Attrs reads
	// them.
	SetAttrs(name string, attrs map[string]string) error
	Attrs(name string) (map[string]string, error)
	EvalSymlinks(name string) (string, error)
	// Watch reports changes below dir until the returned watcher is closed.
	Watch(dir string, recursive bool) (Watcher, error)
	// IsNetworkMount reports whether a path is on a network file system, where changes from
	// elsewhere can't be seen.
	IsNetworkMount(name string) (bool, error)
}

// Entry describes a file.
type Entry struct {
	Path       string // absolute
	Size       int64
	Mode       fs.FileMode
	UID, GID   uint32
	Links      int // names of the file; 0 if that is not known
	Modified   time.Time
	LinkTarget string // of a symbolic link
}

// File is an open file.
type File interface {
	io.Reader
	io.Writer
	io.Seeker
	io.Closer
	Stat() (Entry, error)
}

// Op is a kind of change.
type Op int

// The kinds of change.
const (
	OpCreate Op = iota + 1
	OpWrite
	OpRemove
	OpRename
	OpChmod
)

// Change is one change that a Watcher saw.
type Change struct {
	Path string // absolute
	Op   Op
}

// Watcher delivers changes. C is closed when the watcher ends; Err then says why. Flush returns when
// all changes from before the call were received from C, or when the watcher or ctx has ended.
type Watcher interface {
	C() <-chan Change
	Err() error
	Flush(ctx context.Context)
	Close() error
}

// Metrics is one measurement of the machine.
type Metrics struct {
	CPUCount   int
	CPUUsedPct float64
	MemTotal   int64 // bytes
	MemUsed    int64
	MemCache   int64
	DiskTotal  int64
	DiskUsed   int64
}
