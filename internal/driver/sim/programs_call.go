package sim

import (
	"context"
	"io"
	"io/fs"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/sh/tool"
	"github.com/carrel-dev/carrel/internal/sh/vfs"
)

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
