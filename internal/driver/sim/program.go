package sim

import (
	"context"
	"io"
	"strings"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/shell"
	"github.com/carrel-dev/carrel/shell/tool"
)

var _ carrel.ProgramFiles = shell.Files{}

// programCommand makes a program of the machine's of an owner's. Its calls say that they come from sandbox id.
func programCommand(id carrel.ID, p *carrel.Program) tool.Command {
	return shell.Program(func(ctx context.Context, c *shell.Call) int {
		return runProgram(ctx, p, &carrel.ProgramCall{Sandbox: id, Name: p.Name, Args: c.Args, Env: c.Env, Dir: c.Dir, User: c.User,
			Stdin: c.Stdin, Stdout: c.Stdout, Stderr: c.Stderr, Files: c.Files})
	}).Command()
}

// runProgram runs a program, or prints its help if that is asked for and known.
func runProgram(ctx context.Context, p *carrel.Program, c *carrel.ProgramCall) int {
	if p.Help == "" || len(c.Args) != 1 || c.Args[0] != "--help" {
		return p.Run(ctx, c)
	}
	_, _ = io.WriteString(c.Stdout, strings.TrimSuffix(p.Help, "\n")+"\n") // who does not read it does not want it
	return 0
}
