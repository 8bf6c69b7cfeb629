package sim

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/sh"
	"github.com/carrel-dev/carrel/internal/sh/tool"
	"github.com/carrel-dev/carrel/internal/sh/vfs"
)

var _ driver.Programmer = (*Driver)(nil)

// programDir is where the files lie by which the shell finds programs of the owner's.
const programDir = "/usr/local/bin/"

// programs are the owner's programs in a driver's sandboxes. They outlive an instance, since a pause ends that.
type programs struct {
	all map[string]carrel.Program // in every sandbox; fixed

	mu    sync.Mutex
	given map[carrel.ID]map[string]*carrel.Program
	disks map[carrel.ID]*vfs.FS // of the instances that live
}

func newPrograms(all []carrel.Program) *programs {
	p := &programs{all: map[string]carrel.Program{}, given: map[carrel.ID]map[string]*carrel.Program{}, disks: map[carrel.ID]*vfs.FS{}}
	for _, one := range all {
		p.all[one.Name] = one
	}
	return p
}

// attach puts the programs' files on the disk of a new instance. A disk that is full of a sandbox's own files goes without.
func (p *programs) attach(id carrel.ID, disk *vfs.FS) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.disks[id] = disk
	for name := range p.all {
		_ = stub(disk, name)
	}
	for name := range p.given[id] {
		_ = stub(disk, name)
	}
}

// detach forgets an instance's disk, unless another instance of the sandbox has come since.
func (p *programs) detach(id carrel.ID, disk *vfs.FS) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.disks[id] == disk {
		delete(p.disks, id)
	}
}

// stub writes the file that leads to a program.
func stub(disk *vfs.FS, name string) error {
	return disk.Root().WriteFile(programDir+name, sh.Stub(name), 0o755)
}

// find returns a sandbox's program.
func (p *programs) find(id carrel.ID, name string) *carrel.Program {
	p.mu.Lock()
	defer p.mu.Unlock()
	if one := p.given[id][name]; one != nil {
		return one
	}
	if one, ok := p.all[name]; ok {
		return &one
	}
	return nil
}

// Provide implements driver.Programmer.
func (d *Driver) Provide(id carrel.ID, list []carrel.Program) (func(), error) {
	p := d.programs
	p.mu.Lock()
	defer p.mu.Unlock()
	const op = "provide programs"
	have := p.given[id]
	if len(have)+len(list) > carrel.MaxPrograms {
		return nil, &carrel.Error{Op: op, Kind: carrel.Exhausted, ID: id, Err: fmt.Errorf("at most %d programs may be", carrel.MaxPrograms)}
	}
	for _, one := range list {
		if _, all := p.all[one.Name]; all || have[one.Name] != nil {
			return nil, &carrel.Error{Op: op, Kind: carrel.Conflict, ID: id, Field: "programs", Err: fmt.Errorf("it has a program %s already", one.Name)}
		}
	}
	disk := p.disks[id]
	if have == nil {
		have = map[string]*carrel.Program{}
		p.given[id] = have
	}
	for _, one := range list {
		have[one.Name] = &one
		if disk != nil {
			if err := stub(disk, one.Name); err != nil {
				p.take(id, list)
				return nil, &carrel.Error{Op: op, Kind: carrel.Exhausted, ID: id, Err: err}
			}
		}
	}
	var once sync.Once
	return func() {
		once.Do(func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.take(id, list)
		})
	}, nil
}

// take takes programs away. p.mu is held.
func (p *programs) take(id carrel.ID, list []carrel.Program) {
	disk := p.disks[id]
	for _, one := range list {
		delete(p.given[id], one.Name)
		if disk == nil {
			continue
		}
		v := disk.Root()
		if b, err := v.ReadFile(programDir + one.Name); err == nil && slices.Equal(b, sh.Stub(one.Name)) {
			_ = v.Remove(programDir + one.Name) // it was there
		}
	}
	if len(p.given[id]) == 0 {
		delete(p.given, id)
	}
}

// lookup is sh.Config.Lookup of one instance.
func (i *instance) lookup(name string) tool.Command {
	p := i.programs.find(i.id, name)
	if p == nil {
		return nil
	}
	return func(c *tool.Call) int { return runProgram(i.id, p, c) }
}

// runProgram runs a program of the owner's as one of the machine's.
func runProgram(id carrel.ID, p *carrel.Program, c *tool.Call) (status int) {
	if p.Help != "" && len(c.Args) == 1 && c.Args[0] == "--help" {
		text := p.Help
		if text[len(text)-1] != '\n' {
			text += "\n"
		}
		_, _ = io.WriteString(c.Out, text) // who does not read it does not want it
		return 0
	}
	defer func() {
		if r := recover(); r != nil {
			status = c.Errorf(70, "the program failed inside: %v", r)
		}
	}()
	return p.Run(c.Ctx, &carrel.ProgramCall{Sandbox: id, Name: p.Name, Args: slices.Clone(c.Args), Env: c.Environ(), Dir: c.Dir(),
		User: c.Machine().UserName(c.UID()), Stdin: paid{c}, Stdout: c.Out, Stderr: c.Err, Files: programFiles{c}}) & 0xff
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

// programFiles is the disk as a program's caller sees it.
type programFiles struct{ c *tool.Call }

var _ carrel.ProgramFiles = programFiles{}

// ReadFile implements carrel.ProgramFiles.
func (f programFiles) ReadFile(name string) ([]byte, error) {
	return f.c.FS().ReadFile(f.c.Abs(name))
}

// WriteFile implements carrel.ProgramFiles.
func (f programFiles) WriteFile(name string, data []byte, perm fs.FileMode) error {
	return f.c.FS().WriteFile(f.c.Abs(name), data, perm&^f.c.Umask())
}

// Open implements carrel.ProgramFiles.
func (f programFiles) Open(name string) (io.ReadCloser, error) { return f.c.FS().Open(f.c.Abs(name)) }

// Stat implements carrel.ProgramFiles.
func (f programFiles) Stat(name string) (fs.FileInfo, error) {
	i, err := f.c.FS().Stat(f.c.Abs(name))
	return fileInfo{i}, err
}

// ReadDir implements carrel.ProgramFiles.
func (f programFiles) ReadDir(name string) ([]fs.FileInfo, error) {
	all, err := f.c.FS().ReadDir(f.c.Abs(name))
	out := make([]fs.FileInfo, len(all))
	for i, e := range all {
		out[i] = fileInfo{e}
	}
	return out, err
}

// MkdirAll implements carrel.ProgramFiles.
func (f programFiles) MkdirAll(name string, perm fs.FileMode) error {
	return f.c.FS().MkdirAll(f.c.Abs(name), perm&^f.c.Umask())
}

// Remove implements carrel.ProgramFiles.
func (f programFiles) Remove(name string) error { return f.c.FS().Remove(f.c.Abs(name)) }

// Rename implements carrel.ProgramFiles.
func (f programFiles) Rename(from, to string) error {
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
