// Package program makes programs of a simulated machine of [carrel.Program]s: functions of who owns the machine.
package program

import (
	"context"
	"io"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/sh/tool"
	"github.com/carrel-dev/carrel/internal/sh/vfs"
)

// Command makes a program of the machine's of p. Calls say that they come from sandbox id.
func Command(id carrel.ID, p *carrel.Program) tool.Command {
	return func(c *tool.Call) (status int) {
		defer func() {
			if r := recover(); r != nil {
				status = c.Errorf(70, "the program failed inside: %v", r)
			}
		}()
		return Run(c.Ctx, p, &carrel.ProgramCall{Sandbox: id, Name: p.Name, Args: slices.Clone(c.Args), Env: c.Environ(), Dir: c.Dir(),
			User: c.Machine().UserName(c.UID()), Stdin: paid{c}, Stdout: c.Out, Stderr: c.Err, Files: files{c}}) & 0xff
	}
}

// Run runs a program, or prints its help if that is asked for and known.
func Run(ctx context.Context, p *carrel.Program, c *carrel.ProgramCall) int {
	if p.Help == "" || len(c.Args) != 1 || c.Args[0] != "--help" {
		return p.Run(ctx, c)
	}
	_, _ = io.WriteString(c.Stdout, strings.TrimSuffix(p.Help, "\n")+"\n") // who does not read it does not want it
	return 0
}

// paid is standard input, of which each read is a step: a program that reads for ever ends with its process.
type paid struct{ c *tool.Call }

// Read implements io.Reader.
func (p paid) Read(b []byte) (int, error) {
	if err := p.c.Ctx.Err(); err != nil {
		return 0, err
	}
	n, err := p.c.In.Read(b)
	if !p.c.Step(1 + n>>10) {
		return n, context.Canceled
	}
	return n, err
}

// files is the disk as a program's caller sees it.
type files struct{ c *tool.Call }

var _ carrel.ProgramFiles = files{}

// ReadFile implements carrel.ProgramFiles.
func (f files) ReadFile(name string) ([]byte, error) {
	return f.c.FS().ReadFile(f.c.Abs(name))
}

// WriteFile implements carrel.ProgramFiles.
func (f files) WriteFile(name string, data []byte, perm fs.FileMode) error {
	return f.c.FS().WriteFile(f.c.Abs(name), data, perm&^f.c.Umask())
}

// Open implements carrel.ProgramFiles.
func (f files) Open(name string) (io.ReadCloser, error) { return f.c.FS().Open(f.c.Abs(name)) }

// Stat implements carrel.ProgramFiles.
func (f files) Stat(name string) (fs.FileInfo, error) {
	i, err := f.c.FS().Stat(f.c.Abs(name))
	return fileInfo{i}, err
}

// ReadDir implements carrel.ProgramFiles.
func (f files) ReadDir(name string) ([]fs.FileInfo, error) {
	all, err := f.c.FS().ReadDir(f.c.Abs(name))
	out := make([]fs.FileInfo, len(all))
	for i, e := range all {
		out[i] = fileInfo{e}
	}
	return out, err
}

// MkdirAll implements carrel.ProgramFiles.
func (f files) MkdirAll(name string, perm fs.FileMode) error {
	return f.c.FS().MkdirAll(f.c.Abs(name), perm&^f.c.Umask())
}

// Remove implements carrel.ProgramFiles.
func (f files) Remove(name string) error { return f.c.FS().Remove(f.c.Abs(name)) }

// Rename implements carrel.ProgramFiles.
func (f files) Rename(from, to string) error {
	return f.c.FS().Rename(f.c.Abs(from), f.c.Abs(to))
}

// fileInfo is vfs.Info as the standard library has it.
type fileInfo struct{ i vfs.Info }

func (f fileInfo) Name() string       { return f.i.Name }
func (f fileInfo) Size() int64        { return f.i.Size }
func (f fileInfo) Mode() fs.FileMode  { return f.i.Mode }
func (f fileInfo) ModTime() time.Time { return f.i.Modified }
func (f fileInfo) IsDir() bool        { return f.i.Mode.IsDir() }
func (f fileInfo) Sys() any           { return nil }
