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

// programCommand turns an owner's program into a command of the machine. Its calls say that they
// come from sandbox id.
func programCommand(id carrel.ID, p *carrel.Program) tool.Command {
	return shell.Program(func(ctx context.Context, c *shell.Call) int {
		return runProgram(ctx, p, &carrel.ProgramCall{Sandbox: id, Name: p.Name, Args: c.Args, Env: c.Env, Dir: c.Dir, User: c.User,
			Stdin: c.Stdin, Stdout: c.Stdout, Stderr: c.Stderr, Files: c.Files})
	}).Command()
}

// runProgram runs a program. If the caller asks for help and the program has a help text, it prints
// that instead.
func runProgram(ctx context.Context, p *carrel.Program, c *carrel.ProgramCall) int {
	if p.Help == "" || len(c.Args) != 1 || c.Args[0] != "--help" {
		return p.Run(ctx, c)
	}
	_, _ = io.WriteString(c.Stdout, strings.TrimSuffix(p.Help, "\n")+"\n") // a reader that has gone needs no help text
	return 0
}
