package awk

import (
	"context"
	"io"
	"syscall"

	"github.com/carrel-dev/carrel/internal/sh/tool"
	"github.com/carrel-dev/carrel/internal/sh/vfs"
)

const (
	readFlags   = vfs.ReadOnly
	writeFlags  = vfs.WriteOnly | vfs.CreateNew | vfs.Truncate
	appendFlags = vfs.WriteOnly | vfs.CreateNew | vfs.Append
)

var errIsDir error = syscall.EISDIR

// childOut is the end of a pipe that a child writes to.
type childOut struct{ *io.PipeWriter }

// Write fails as a pipe's does when nobody reads.
func (w childOut) Write(b []byte) (int, error) {
	n, err := w.PipeWriter.Write(b)
	if err == io.ErrClosedPipe {
		err = syscall.EPIPE
	}
	return n, err
}

// watch ends a pipe when the child, or the program itself, has ended.
func watch(ctx context.Context, p tool.Process, end func()) {
	go func() { // ends with the child, which the machine ends with this process
		select {
		case <-p.Done():
		case <-ctx.Done():
			p.Signal(int(syscall.Errno(15)))
		}
		end()
	}()
}

// status is a child's end as gawk's close tells it.
func status(p tool.Process) func() int {
	return func() int {
		code, signal := p.Wait()
		if signal != 0 {
			return 256 + signal
		}
		return code
	}
}

// Reader implements interp.Host.
func (h *host) Reader(command string) (io.ReadCloser, func() int, error) {
	r, w := io.Pipe()
	p, err := h.Start(tool.Child{Args: []string{"sh", "-c", command}, Out: childOut{w}})
	if err != nil {
		return nil, nil, err
	}
	watch(h.Ctx, p, func() { _ = w.Close() })
	return r, status(p), nil
}

// Writer implements interp.Host.
func (h *host) Writer(command string) (io.WriteCloser, func() int, error) {
	r, w := io.Pipe()
	p, err := h.Start(tool.Child{Args: []string{"sh", "-c", command}, In: r})
	if err != nil {
		return nil, nil, err
	}
	watch(h.Ctx, p, func() { _ = r.CloseWithError(syscall.EPIPE) })
	return w, status(p), nil
}
