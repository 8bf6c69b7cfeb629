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

// Command is a program: it does its work and returns its exit status, 0 to 255.
type Command func(c *Call) int

// Call is one run of a program.
type Call struct {
	Host
	Ctx  context.Context // ends when the process is killed or the machine is closed
	Name string          // as it was called: the first word of the command line
	Args []string        // without Name
	In   io.Reader       // io.EOF at once when there is nothing to read
	Out  io.Writer       // fails with EPIPE when nobody reads
	Err  io.Writer

	buffered *bufio.Writer // the last that Buffered returned
}

// ProgramMark is how the files begin that lead to a machine's programs; a program's name and the end of the line follow. It
// means nothing outside a simulated machine.
const ProgramMark = "\x7fSIM\n"

// maxName is the longest name of a program.
const maxName = 64

// CheckName says why a program can't be called by a name: letters, digits and . _ + - make one, at most 64, and it does not
// begin with a dash or a dot.
func CheckName(name string) error {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+-"
	if name == "" || len(name) > maxName || name[0] == '-' || name[0] == '.' || strings.Trim(name, letters) != "" {
		return fmt.Errorf("%.80q is not a program's name: letters, digits and . _ + -, at most %d", name, maxName)
	}
	return nil
}

// Host is the process that a program runs in, and through it the machine. It is used by one goroutine at a time, except
// for Now, Random and HTTP.
type Host interface {
	// FS is the disk as the process's user sees it. Its paths are absolute: see Abs.
	FS() vfs.View
	// Dir is the working directory, absolute.
	Dir() string
	// Abs makes a path absolute and leaves "." and ".." to the filesystem.
	Abs(name string) string
	// Open opens a path for reading, writing or both, with the process's umask; /dev/stdin, /dev/fd/N and /dev/tty are the
	// process's own. Use it, and not FS, for every name that a user gives for contents.
	Open(name string, flags vfs.Flags, perm fs.FileMode) (File, error)
	// Umask is the mode bits that new files do not get.
	Umask() fs.FileMode

	// Getenv returns an environment variable, and Environ all as NAME=value.
	Getenv(name string) string
	Environ() []string

	// Now is the machine's clock, which need not be the host's.
	Now() time.Time
	// Sleep waits and returns false when a signal came first.
	Sleep(d time.Duration) bool
	// Random fills b with random bytes, the machine's, which may be fixed by a seed.
	Random(b []byte)

	// Step pays for n steps of work (a step is about a hundred nanoseconds) and reports whether the program may go on.
	Step(n int) bool
	// Pay takes n bytes of the machine's memory until the process ends; a negative n gives back. The error is ENOMEM, and
	// then the process is being ended already: return.
	Pay(n int64) error

	// Run runs another program and returns its exit status: 126 and 127 when it could not be started, which Run has said
	// on the child's Err. The child's zero fields are the caller's own.
	Run(Child) int
	// Start runs another program beside this one.
	Start(Child) (Process, error)
	// Pipe makes a pipe of the machine, for a child's In or Out: the child holds its end by itself then, and the caller
	// closes its copy. Waiting at it lets others run where the machine is deterministic, which io.Pipe does not.
	Pipe() (r, w File)

	// Machine is the computer as a whole.
	Machine() Machine
	// HTTP is the way out, nil where there is none.
	HTTP() HTTP
	// Terminal is the size of the terminal that a descriptor leads to; ok is false when it leads to none.
	Terminal(fd int) (cols, rows int, ok bool)
}

// File is an open file, pipe or device.
type File interface {
	io.ReadWriteCloser
	// Seek fails with ESPIPE on what is not a regular file.
	io.Seeker
	// Stat describes what is open; of a pipe it tells the mode alone.
	Stat() (vfs.Info, error)
	// Truncate fails with EINVAL on what is not a regular file.
	Truncate(size int64) error
}

// Child is a program to run. Zero fields are taken from the caller.
type Child struct {
	Args []string // the program's name first, looked up in PATH when it has no slash
	Env  []string // NAME=value, all of it
	Dir  string
	User *vfs.Cred
	In   io.Reader
	Out  io.Writer
	Err  io.Writer
}

// Process is a program that runs beside its starter.
type Process interface {
	PID() int
	// Signal sends it a signal, by number.
	Signal(sig int)
	// Done is closed at its end.
	Done() <-chan struct{}
	// Ended waits until it has ended, at most for within by the machine's clock (for ever if that is negative), and says
	// whether it has. It returns early when the caller is being ended.
	Ended(within time.Duration) bool
	// Wait returns its exit status and, if one ended it, the signal.
	Wait() (status, signal int)
}

// Machine is the computer as a whole.
type Machine interface {
	Hostname() string
	CPUs() int
	// Memory returns what processes hold and may hold, in bytes; total is 0 without a limit.
	Memory() (used, total int64)
	// Started is when the machine was switched on.
	Started() time.Time
	// Processes lists what runs, by pid.
	Processes() []ProcessInfo
	// Kill signals a process (pid > 0) or a group (pid < 0), as user uid. The error is ESRCH or EPERM.
	Kill(pid, sig int, uid uint32) error
	// UserName and GroupName are the names of numbers, or the numbers; User finds a user by name.
	UserName(uid uint32) string
	GroupName(gid uint32) string
	User(name string) (Account, bool)
	// Commands lists the names of all programs that the machine has.
	Commands() []string
	// Token asks the machine's host for an identity token, by its name or by its audience.
	Token(ctx context.Context, name, audience string) (string, error)
}

// Account is a line of /etc/passwd.
type Account struct {
	Name, Home, Shell string
	UID, GID          uint32
}

// ProcessInfo is one running process.
type ProcessInfo struct {
	PID, PPID, PGID int
	UID             uint32
	Args            []string
	Started         time.Time
	TTY             bool
}

// HTTP sends requests to the outside. Each one is judged by the sandbox's policy; secrets are put in on the way.
type HTTP interface {
	// Do sends one request and returns its answer. It does not follow redirects. The error of a request that the policy
	// denies is a *[Denied].
	Do(ctx context.Context, r *Request) (*Response, error)
}

// Request is one HTTP request. Its body is read to its end and not closed.
type Request struct {
	Method string
	URL    string // http or https, whole
	Header map[string][]string
	Body   io.Reader // nil: none
	Length int64     // of Body, -1: unknown
	// Insecure takes any certificate.
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
	Reason string // which rule, or that there is none
}

// Error implements error.
func (d *Denied) Error() string { return "denied by policy: " + d.Host + ": " + d.Reason }

// Base is the name of the program in messages: Name without its directory.
func (c *Call) Base() string { return c.Name[strings.LastIndexByte(c.Name, '/')+1:] }

// Errorf writes "name: message" on Err, after what is buffered for Out, and returns status.
func (c *Call) Errorf(status int, format string, args ...any) int {
	if c.buffered != nil {
		_ = c.buffered.Flush() // the flush at the end reports
	}
	fmt.Fprintf(c.Err, "%s: %s\n", c.Base(), c.Quotes(fmt.Sprintf(format, args...)))
	return status
}

// Quotes makes the quotation marks ‘’ of a message plain ones where the locale is not one of UTF-8, as GNU's programs do.
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

// UID is the user that the process runs as.
func (c *Call) UID() uint32 { return c.FS().Cred().UID }

// Stopped reports whether the process is being ended, so that an error needs no words.
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
