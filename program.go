package carrel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
)

// Program is a program of your own inside simulated sandboxes. The shell finds it by its name, as
// it finds grep, but it runs here, in Go. Sandboxes with a kernel can't have one.
//
// Code inside a sandbox is not trusted. Treat everything it passes as a stranger's input: the
// arguments, the environment, the files. Several processes of several sandboxes may call Run at
// once.
type Program struct {
	// Name is the command's name: letters, digits and . _ + -, at most 64, not beginning with a
	// dash or a dot.
	Name string
	// Help is the output of NAME --help; with "" Run handles that option itself.
	Help string
	// Run does the work and returns the exit status, 0 to 255. It should return soon after ctx
	// ends; ctx ends when the process is killed. A panic ends this call only.
	Run func(ctx context.Context, c *ProgramCall) int
}

// ProgramCall is one run of a [Program].
type ProgramCall struct {
	Sandbox ID
	Name    string
	Args    []string // without the name
	Env     []string // NAME=value
	Dir     string   // the working directory, absolute
	User    string
	// Stdin, Stdout and Stderr are the streams. Stdin is at its end if there is nothing to read.
	// Writes to the other two fail if nobody reads.
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
	// Files is the sandbox's disk, with the rights of the user who calls.
	Files ProgramFiles
}

// ProgramFiles is a sandbox's disk inside a [ProgramCall]. Names are absolute or below the working
// directory. Errors match fs.ErrNotExist, fs.ErrPermission and fs.ErrExist.
type ProgramFiles interface {
	ReadFile(name string) ([]byte, error)
	WriteFile(name string, data []byte, perm fs.FileMode) error
	Open(name string) (io.ReadCloser, error)
	Stat(name string) (fs.FileInfo, error)
	ReadDir(name string) ([]fs.FileInfo, error)
	MkdirAll(name string, perm fs.FileMode) error
	Remove(name string) error
	Rename(from, to string) error
}

// Programs puts programs into simulated sandboxes.
type Programs interface {
	// Provide puts programs into a sandbox until release is called or the sandbox is gone; they
	// stay through a pause. Errors: Conflict (the sandbox already has a program of that name),
	// Invalid (not a name), Unsupported (the sandbox has another tier).
	Provide(ctx context.Context, id ID, programs ...Program) (release func(), err error)
}

// Bounds of programs.
const (
	MaxPrograms    = 256
	maxProgramName = 64
	maxProgramHelp = 16 << 10
)

// Check says what is wrong with a program, with an Error of kind Invalid.
func (p Program) Check() error {
	bad := func(format string, args ...any) error {
		return &Error{Op: "provide program", Kind: Invalid, Field: "programs", Err: fmt.Errorf(format, args...)}
	}
	switch {
	case p.Name == "":
		return bad("a program has no name")
	case len(p.Name) > maxProgramName || p.Name[0] == '-' || p.Name[0] == '.' || strings.Trim(p.Name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+-") != "":
		return bad("%.80q is not a program's name: letters, digits and . _ + -, at most %d", p.Name, maxProgramName)
	case len(p.Help) > maxProgramHelp:
		return bad("%s: its help has more than %d bytes", p.Name, maxProgramHelp)
	case p.Run == nil:
		return bad("%s: it has no Run", p.Name)
	}
	return nil
}

// CheckPrograms checks a list: each program, their number, and that no name occurs twice.
func CheckPrograms(list []Program) error {
	seen := map[string]bool{}
	for _, p := range list {
		if err := p.Check(); err != nil {
			return err
		}
		if seen[p.Name] {
			return &Error{Op: "provide program", Kind: Invalid, Field: "programs", Err: errors.New(p.Name + " is there twice")}
		}
		seen[p.Name] = true
	}
	if len(list) > MaxPrograms {
		return &Error{Op: "provide program", Kind: Invalid, Field: "programs", Err: fmt.Errorf("%d programs, at most %d may be", len(list), MaxPrograms)}
	}
	return nil
}
