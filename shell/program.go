package shell

import (
	"context"
	"io"
	"slices"

	"github.com/carrel-dev/carrel/shell/tool"
)

// Program is a function that scripts call by name, as they call grep: in pipes, with redirections,
// in the background. It returns its exit status, 0 to 255. It should return soon after ctx is done:
// ctx is done when its process is killed. It may run several times at once. A panic ends only this
// call, with status 70.
type Program func(ctx context.Context, c *Call) int

// Call is one run of a [Program].
type Call struct {
	Name string   // without its directory
	Args []string // without the name
	Env  []string // NAME=value
	Dir  string   // the working directory, absolute
	User string
	// The streams of the call. Stdin without input is at its end. Each read of Stdin costs steps,
	// so that a program that reads for ever ends with its script. Writes to the other streams fail
	// when nobody reads them.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Files is the disk with the rights of the calling user. Relative names are below Dir.
	Files Files
}

// Command returns the program in the form of package tool.
func (p Program) Command() tool.Command {
	return func(c *tool.Call) (status int) {
		defer func() {
			if r := recover(); r != nil {
				status = c.Errorf(70, "the program failed inside: %v", r)
			}
		}()
		return p(c.Ctx, &Call{Name: c.Base(), Args: slices.Clone(c.Args), Env: c.Environ(), Dir: c.Dir(), User: c.Machine().UserName(c.UID()),
			Stdin: paidInput{c}, Stdout: c.Out, Stderr: c.Err, Files: Files{c.FS(), c.Dir(), c.Umask()}}) & 0xff
	}
}

// paidInput is standard input whose reads cost steps.
type paidInput struct{ c *tool.Call }

// Read implements io.Reader.
func (p paidInput) Read(b []byte) (int, error) {
	if err := p.c.Ctx.Err(); err != nil {
		return 0, err
	}
	n, err := p.c.In.Read(b)
	if !p.c.Step(1 + n>>10) {
		return n, context.Canceled
	}
	return n, err
}
