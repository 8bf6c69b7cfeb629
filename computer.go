package carrel

import (
	"context"
	"io"
	"io/fs"
	"net"
	"time"
)

// Computer is the inside of one running sandbox. It holds no resources of its
// own: dropping it ends nothing. It is safe for concurrent use.
type Computer interface {
	// Run starts cmd, waits for its end and returns its output, except output that went to
	// cmd.Stdout and cmd.Stderr. An exit status other than 0 is not an error.
	Run(ctx context.Context, cmd Command) (*Result, error)
	// Start starts cmd and returns once it runs. If ctx ends later, the connection to the process
	// is closed; the process is not killed.
	Start(ctx context.Context, cmd Command) (Process, error)
	// Attach connects to a process that already runs. Output goes to stdout and stderr (either may
	// be nil). It begins with the output that the guest kept while nobody was connected.
	Attach(ctx context.Context, pid int, stdout, stderr io.Writer) (Process, error)
	// Processes lists the running processes that were started through the guest.
	Processes(ctx context.Context) ([]ProcessInfo, error)
	KeptOutput
	// Files returns the sandbox's filesystem as seen by user ("" is the default user).
	Files(user string) Files
	// Dial opens a byte stream to a port inside, on any of its addresses,
	// loopback included.
	Dial(ctx context.Context, port uint16) (net.Conn, error)
	// Listen listens on the sandbox's own 127.0.0.1. Connections of programs inside come out of the
	// listener. Port 0 chooses a free port, and Addr names it. ctx bounds only the opening. The
	// listener and its connections end with Close, and when the sandbox is paused. Errors: Conflict
	// when the port is taken, Unsupported in a simulated sandbox.
	Listen(ctx context.Context, port uint16) (net.Listener, error)
}

// Command is a process to start.
type Command struct {
	// Shell is a line for /bin/bash -l -c. Give either Shell or Args.
	Shell string
	// Args is the program and its arguments, run without a shell.
	Args  []string
	Env   map[string]string // on top of the sandbox's own
	Dir   string            // "" is the user's home
	User  string            // "" is the sandbox's default user
	Tag   string            // a name to find it by later
	Stdin io.Reader         // nil means no standard input
	// OpenStdin keeps standard input open for Process.Write.
	OpenStdin      bool
	Stdout, Stderr io.Writer // nil collects into Result (Run) or discards (Start)
	// TTY runs it on a pseudo-terminal of this size; its output goes to Stdout.
	TTY *Size
	// Keep keeps the process's last output and exit status after its end; see [KeptOutput]. They
	// are also kept if the client leaves before the process ends.
	Keep bool
	// Timeout kills it after this long; 0 means never.
	Timeout time.Duration
}

// Size is a terminal's size in characters.
type Size struct{ Cols, Rows uint16 }

// Result is how a process ended.
type Result struct {
	PID            int
	ExitCode       int    // −1 when it did not exit by itself
	Status         string // "exit status 0", "signal: killed"
	Stdout, Stderr []byte
}

// ProcessInfo describes a running process.
type ProcessInfo struct {
	PID  int
	Tag  string
	Args []string
	Env  map[string]string
	Dir  string
}

// Process is a connection to one process inside. Its methods may be called from
// several goroutines.
type Process interface {
	io.Writer // standard input, or the terminal's
	PID() int
	// CloseStdin ends standard input. On a terminal write 0x04 instead.
	CloseStdin() error
	Resize(ctx context.Context, size Size) error
	// Signal sends SIGTERM or SIGKILL (15 or 9); others are [Unsupported].
	Signal(ctx context.Context, signal int) error
	// Wait returns when the process ended and all its output was delivered. It
	// may be called more than once.
	Wait(ctx context.Context) (*Result, error)
	// Close disconnects; the process runs on.
	Close() error
}

// FileInfo describes a file inside a sandbox.
type FileInfo struct {
	Name     string            `json:"name"`
	Path     string            `json:"path"`
	Size     int64             `json:"size"`
	Mode     fs.FileMode       `json:"mode"`
	Owner    string            `json:"owner"`
	Group    string            `json:"group"`
	Modified time.Time         `json:"modified"`
	Target   string            `json:"target,omitempty"` // of a symbolic link
	Metadata map[string]string `json:"metadata,omitempty"`
}

// Files is a sandbox's filesystem as one user sees it. Relative paths begin at
// that user's home.
type Files interface {
	// Read opens a file; the caller closes it. Nothing is held in memory.
	Read(ctx context.Context, name string) (io.ReadCloser, error)
	// Write makes or replaces a file with all of r. It makes missing parent directories.
	Write(ctx context.Context, name string, r io.Reader) (FileInfo, error)
	Stat(ctx context.Context, name string) (FileInfo, error)
	// List lists a directory, depth levels deep (1 is the directory itself).
	List(ctx context.Context, name string, depth int) ([]FileInfo, error)
	MakeDir(ctx context.Context, name string) error
	Move(ctx context.Context, from, to string) error
	// Remove removes a file, or a directory with everything in it. A missing one is no error.
	Remove(ctx context.Context, name string) error
	// Watch calls fn for each change below a directory until ctx ends.
	Watch(ctx context.Context, name string, recursive bool, fn func(FileEvent)) error
}

// FileEvent is one change seen by Watch. Op is create, write, remove, rename or chmod.
type FileEvent struct {
	Path string
	Op   string
}
