package carrel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
)

// Program is a program of your own inside simulated sandboxes: the shell finds it by its name, as it finds grep, but it runs
// here, in Go. Sandboxes with a kernel can't have one.
//
// What runs inside is not trusted, and what it passes is a stranger's input: the arguments, the environment, the files. Run
// may be called by several processes of several sandboxes at once.
type Program struct {
	// Name is what it is called by: letters, digits and . _ + -, at most 64, not beginning with a dash or a dot.
	Name string
	// Help is what NAME --help prints; "" leaves that to Run.
	Help string
	// Run does its work and returns its exit status, 0 to 255. It should return soon after ctx ends, which is when the
	// process is killed. A panic ends the call alone.
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
	// The streams: Stdin is at its end when there is nothing to read, the others fail when nobody reads.
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
	// Files is the sandbox's disk, as the user that calls may use it.
	Files ProgramFiles
}

// ProgramFiles is a sandbox's disk inside a [ProgramCall]. Names are absolute or below the working directory. Errors match
// fs.ErrNotExist, fs.ErrPermission and fs.ErrExist.
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
	// Provide puts programs into a sandbox until release is called or the sandbox is gone; a pause does not end that. A name
	// that the sandbox was given already is Conflict, one that is no name Invalid, a sandbox of another tier Unsupported.
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

// CheckPrograms checks a list: each one, their number, and that no name is there twice.
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
