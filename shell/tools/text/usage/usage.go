// Package usage has the parts that all programs share: --help and --version, memory that is given
// back, and named inputs with GNU's message for one that can't be opened.
package usage

import (
	"errors"
	"fmt"
	"io"
	"syscall"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// Program is a program with its usage.
type Program struct {
	Run  tool.Command
	Args string // "[OPTION]... [FILE]..."
	What string // a sentence
	// Leading means that --help and --version are options only as the first argument, because later
	// arguments belong to another program.
	Leading bool
}

// Version is the version that programs print.
const Version = "Carrel's own, compatible with GNU coreutils 9.1"

// Commands makes commands from programs.
func Commands(programs map[string]Program) map[string]tool.Command {
	out := make(map[string]tool.Command, len(programs))
	for name, p := range programs {
		out[name] = p.run(name)
	}
	return out
}

// run makes a command that also handles --help and --version.
func (p Program) run(name string) tool.Command {
	return func(c *tool.Call) int {
		for i, a := range c.Args {
			if a == "--" || p.Leading && i > 0 {
				break
			}
			switch a {
			case "--help":
				fmt.Fprintf(c.Out, "Usage: %s %s\n%s\n\nOptions are those of the program of this name in GNU/Linux.\n", name, p.Args, p.What)
				return 0
			case "--version":
				fmt.Fprintf(c.Out, "%s (%s)\n", name, Version)
				return 0
			}
		}
		return p.Run(c)
	}
}

// Purse pays for memory and gives it all back.
type Purse struct {
	c    *tool.Call
	paid int64
}

// NewPurse returns an empty purse. The caller empties it with Free.
func NewPurse(c *tool.Call) *Purse { return &Purse{c: c} }

// Pay takes n bytes more.
func (p *Purse) Pay(n int) error {
	if err := p.c.Pay(int64(n)); err != nil {
		return err
	}
	p.paid += int64(n)
	return nil
}

// Free gives everything back.
func (p *Purse) Free() {
	if p.paid != 0 {
		_ = p.c.Pay(-p.paid) // giving back can't fail
		p.paid = 0
	}
}

// ReadAll reads everything and pays for its memory.
func (p *Purse) ReadAll(in io.Reader) ([]byte, error) {
	size := 4 << 10
	if f, ok := in.(interface{ Stat() (vfs.Info, error) }); ok {
		if i, err := f.Stat(); err == nil && i.Mode.IsRegular() {
			size = int(min(i.Size, 1<<30)) + 512
		}
	}
	if err := p.Pay(size); err != nil {
		return nil, err
	}
	out := make([]byte, 0, size)
	for {
		if len(out) == cap(out) {
			if err := p.Pay(cap(out)); err != nil {
				return nil, err
			}
			bigger := make([]byte, len(out), 2*cap(out))
			copy(bigger, out)
			out = bigger
		}
		n, err := in.Read(out[len(out):cap(out)])
		out = out[:len(out)+n]
		if !p.c.Step(1 + n>>8) {
			return nil, tool.ErrStop
		}
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			return out, err
		}
	}
}

// Open opens a named input. "-" is standard input. The result has the methods of a [tool.File] if
// possible.
func Open(c *tool.Call, name string) (io.ReadCloser, error) {
	if name == "-" {
		return nopCloser{c.In}, nil
	}
	f, err := c.Open(name, vfs.ReadOnly, 0)
	if err != nil {
		return nil, err
	}
	return f, nil
}

type nopCloser struct{ io.Reader }

// Close implements io.Closer.
func (nopCloser) Close() error { return nil }

// Inputs calls fn with every named input, or with standard input if there are no names. If an input
// can't be opened, Inputs writes the message failed, a format with a place for the name. It then
// continues with the next input, and returns status.
func Inputs(c *tool.Call, names []string, failed string, status int, fn func(name string, in io.Reader) error) int {
	if len(names) == 0 {
		names = []string{"-"}
	}
	result := 0
	for _, n := range names {
		in, err := Open(c, n)
		if err != nil {
			result = c.Errorf(status, failed+": %s", n, tool.ErrText(err))
			continue
		}
		err = fn(n, in)
		_ = in.Close() // it was only read
		switch {
		case err == nil:
		case errors.Is(err, errEnd):
			return result
		case c.Stopped(err):
			return max(result, status)
		default:
			shown := n
			if n == "-" {
				shown = "-"
			}
			result = c.Errorf(status, "%s: %s", shown, tool.ErrText(err))
		}
	}
	return result
}

var errEnd = errors.New("end")

// ErrEnd ends Inputs without an error, because the program needs no more input.
var ErrEnd = errEnd

// Stdin returns standard input as a file with Seek, or nil when it is a pipe or a terminal.
func Stdin(c *tool.Call) tool.File {
	f, ok := c.In.(interface {
		io.ReadSeeker
		Stat() (vfs.Info, error)
	})
	if !ok {
		return nil
	}
	if _, err := f.Seek(0, io.SeekCurrent); err != nil {
		return nil
	}
	return stdin{f}
}

// stdin is standard input as a file. It can only be read, and Close does not close it.
type stdin struct {
	seekable
}

type seekable interface {
	io.ReadSeeker
	Stat() (vfs.Info, error)
}

// Write implements tool.File.
func (stdin) Write([]byte) (int, error) { return 0, syscall.EBADF }

// Truncate implements tool.File.
func (stdin) Truncate(int64) error { return syscall.EINVAL }

// Close implements tool.File.
func (stdin) Close() error { return nil }

// Extra reports an extra operand.
func Extra(c *tool.Call, status int, operand string) int {
	c.Errorf(status, "extra operand ‘%s’", operand)
	return Try(c, status)
}

// Try refers to --help.
func Try(c *tool.Call, status int) int {
	fmt.Fprintf(c.Err, "Try '%s --help' for more information.\n", c.Base())
	return status
}

// Missing reports a missing operand.
func Missing(c *tool.Call, status int) int {
	c.Errorf(status, "missing operand")
	return Try(c, status)
}

// Argument reports an argument of an option that is not one of the valid ones.
func Argument(c *tool.Call, status int, value, option string, valid ...string) int {
	c.Errorf(status, "invalid argument ‘%s’ for ‘%s’", value, option)
	fmt.Fprintln(c.Err, "Valid arguments are:")
	for _, v := range valid {
		fmt.Fprintf(c.Err, "  - %s\n", c.Quotes("‘"+v+"’"))
	}
	return Try(c, status)
}
