package tool

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"syscall"
	"time"

	"github.com/carrel-dev/carrel/shell/vfs"
)

// Command is a program. It does its work and returns its exit status, 0 to 255.
type Command func(c *Call) int

// Call is one run of a program.
type Call struct {
	Host
	Ctx  context.Context // ends when the process is killed or the machine is closed
	Name string          // the first word of the command line
	Args []string        // without Name
	In   io.Reader       // io.EOF at once when there is nothing to read
	Out  io.Writer       // fails with EPIPE when nobody reads
	Err  io.Writer

	buffered *bufio.Writer // the last result of Buffered
}

// ProgramMark begins the files that run a machine's programs. The program's name and a newline
// follow it. It means nothing outside a simulated machine.
const ProgramMark = "\x7fSIM\n"

// maxName is the longest name of a program.
const maxName = 64

// CheckName returns an error if a program can't have a name. A name consists of at most 64 letters,
// digits and . _ + -, and does not begin with a dash or a dot.
func CheckName(name string) error {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+-"
	if name == "" || len(name) > maxName || name[0] == '-' || name[0] == '.' || strings.Trim(name, letters) != "" {
		return fmt.Errorf("%.80q is not a program's name: letters, digits and . _ + -, at most %d", name, maxName)
	}
	return nil
}

// Host is the process that a program runs in. It also gives access to the machine. One goroutine at
// a time may use it, except for Now, Random and HTTP.
type Host interface {
	// FS is the disk with the rights of the process's user. Its paths are absolute: see Abs.
	FS() vfs.View
	// Dir is the working directory, absolute.
	Dir() string
	// Abs makes a path absolute. It keeps "." and ".." for the filesystem.
	Abs(name string) string
	// Open opens a path for reading, writing or both, with the process's umask. /dev/stdin,
	// /dev/fd/N and /dev/tty refer to this process. Use Open instead of FS to read or write a file
	// whose name a user gives.
	Open(name string, flags vfs.Flags, perm fs.FileMode) (File, error)
	// Umask returns the mode bits that new files must not have.
	Umask() fs.FileMode

	// Getenv returns an environment variable. Environ returns all of them as NAME=value.
	Getenv(name string) string
	Environ() []string

	// Now returns the time of the machine's clock, which may differ from the host's.
	Now() time.Time
	// Sleep waits. It returns false when a signal arrived first.
	Sleep(d time.Duration) bool
	// Random fills b with random bytes of the machine. A seed may fix them.
	Random(b []byte)

	// Step pays for n steps of work, and reports whether the program may continue. A step is about
	// a hundred nanoseconds.
	Step(n int) bool
	// Pay takes n bytes of the machine's memory until the process ends. A negative n gives bytes
	// back. After the error ENOMEM the process is already being ended: return.
	Pay(n int64) error

	// Run runs another program and returns its exit status. The status is 126 or 127 when the
	// program could not be started; Run has then written a message on the child's Err. Zero fields
	// of the child are taken from the caller.
	Run(Child) int
	// Start starts another program that runs at the same time as this one.
	Start(Child) (Process, error)
	// Pipe makes a pipe of the machine for a child's In or Out. The child then holds its end, and
	// the caller closes its own copy. Do not use io.Pipe: in a deterministic machine, other
	// processes can't run while a process waits at one.
	Pipe() (r, w File)

	// Machine returns the whole computer.
	Machine() Machine
	// HTTP sends requests to the network. It is nil without one.
	HTTP() HTTP
	// Terminal returns the size of the terminal at a descriptor. ok is false when the descriptor is
	// not a terminal.
	Terminal(fd int) (cols, rows int, ok bool)
}

// File is an open file, pipe or device.
type File interface {
	io.ReadWriteCloser
	// Seek fails with ESPIPE if the file is not regular.
	io.Seeker
	// Stat describes the open file. For a pipe it has only the mode.
	Stat() (vfs.Info, error)
	// Truncate fails with EINVAL if the file is not regular.
	Truncate(size int64) error
}

// Child is a program to run. Zero fields are taken from the caller.
type Child struct {
	Args []string // begins with the program's name, searched in PATH if it has no slash
	Env  []string // NAME=value, all of it
	Dir  string
	User *vfs.Cred
	In   io.Reader
	Out  io.Writer
	Err  io.Writer
}

// Process is a started program that runs at the same time as its starter.
type Process interface {
	PID() int
	// Signal sends the signal with this number.
	Signal(sig int)
	// Done is closed at its end.
	Done() <-chan struct{}
	// Ended waits until the process has ended, but at most for within by the machine's clock (for
	// ever if negative). It reports whether the process has ended. It returns early when the caller
	// is being ended.
	Ended(within time.Duration) bool
	// Wait returns the exit status, and the signal if one ended the process.
	Wait() (status, signal int)
}

// Machine is the whole computer.
type Machine interface {
	Hostname() string
	CPUs() int
	// Memory returns the bytes that processes hold, and the limit; total is 0 without a limit.
	Memory() (used, total int64)
	// Started returns the time when the machine was started.
	Started() time.Time
	// Processes lists the running processes by pid.
	Processes() []ProcessInfo
	// Kill signals a process (pid > 0) or a group (pid < 0) with the rights of user uid. The error
	// is ESRCH or EPERM.
	Kill(pid, sig int, uid uint32) error
	// UserName and GroupName return the name for a number, or the number if there is none. User
	// finds a user by name.
	UserName(uid uint32) string
	GroupName(gid uint32) string
	User(name string) (Account, bool)
	// Commands lists the names of all programs of the machine.
	Commands() []string
	// Token asks the machine's host for an identity token, by name or by audience.
	Token(ctx context.Context, name, audience string) (string, error)
}

// Account is a line of /etc/passwd.
type Account struct {
	Name, Home, Shell string
	UID, GID          uint32
}

// ProcessInfo describes one running process.
type ProcessInfo struct {
	PID, PPID, PGID int
	UID             uint32
	Args            []string
	Started         time.Time
	TTY             bool
}

// HTTP sends requests to the network. The sandbox's policy judges each request. Secrets are
// inserted on the way.
type HTTP interface {
	// Do sends one request and returns its answer. It does not follow redirects. When the policy
	// denies a request, the error is a *[Denied].
	Do(ctx context.Context, r *Request) (*Response, error)
}

// Request is one HTTP request. Do reads its body to the end and does not close it.
type Request struct {
	Method string
	URL    string // http or https, whole
	Header map[string][]string
	Body   io.Reader // nil: none
	Length int64     // of Body, -1: unknown
	// Insecure accepts any certificate.
	Insecure bool
}

// Response is an answer. The caller closes Body.
type Response struct {
	Proto  string // "HTTP/1.1"
	Status int
	Reason string // "Not Found"
	Header map[string][]string
	Body   io.ReadCloser
	Remote string // address of the other end, "" when unknown
}

// Denied is the refusal of a request.
type Denied struct {
	Host   string
	Reason string // the rule, or the fact that there is none
}

// Error implements error.
func (d *Denied) Error() string { return "denied by policy: " + d.Host + ": " + d.Reason }

// Base returns the name of the program for messages: Name without its directory.
func (c *Call) Base() string { return c.Name[strings.LastIndexByte(c.Name, '/')+1:] }

// Errorf flushes the buffered Out, writes "name: message" on Err, and returns status.
func (c *Call) Errorf(status int, format string, args ...any) int {
	if c.buffered != nil {
		_ = c.buffered.Flush() // the flush at the end reports
	}
	fmt.Fprintf(c.Err, "%s: %s\n", c.Base(), c.Quotes(fmt.Sprintf(format, args...)))
	return status
}

// Quotes replaces the quotation marks ‘’ of a message with plain ones if the locale is not UTF-8,
// as GNU's programs do.
func (c *Call) Quotes(s string) string {
	if !strings.Contains(s, "‘") {
		return s
	}
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := strings.ToLower(c.Getenv(name)); v != "" {
			if strings.HasSuffix(v, "utf-8") || strings.HasSuffix(v, "utf8") {
				return s
			}
			break
		}
	}
	return strings.NewReplacer("‘", "'", "’", "'").Replace(s)
}

// UID returns the user of the process.
func (c *Call) UID() uint32 { return c.FS().Cred().UID }

// Stopped reports whether the process is being ended. An error then needs no message.
func (c *Call) Stopped(err error) bool {
	return c.Ctx.Err() != nil || errors.Is(err, ErrStop) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ENOMEM)
}

// ErrStop ends Lines and Inputs early, without a message.
var ErrStop = errors.New("stop")

// ErrText returns the kernel's words for an error: "No such file or directory".
func ErrText(err error) string {
	var no syscall.Errno
	switch {
	case errors.As(err, &no):
		s := no.Error()
		switch no {
		case syscall.ENOSPC:
			return "No space left on device"
		case syscall.ENOTDIR:
			return "Not a directory"
		}
		return strings.ToUpper(s[:1]) + s[1:]
	case errors.Is(err, fs.ErrNotExist):
		return "No such file or directory"
	case errors.Is(err, fs.ErrPermission):
		return "Permission denied"
	case errors.Is(err, fs.ErrExist):
		return "File exists"
	}
	return err.Error()
}
