package awk

import (
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
	r, w := h.Pipe()
	defer w.Close()
	p, err := h.Start(tool.Child{Args: []string{"sh", "-c", command}, Out: w})
	if err != nil {
		_ = r.Close()
		return nil, nil, err
	}
	return r, status(p), nil
}

// Writer implements interp.Host.
func (h *host) Writer(command string) (io.WriteCloser, func() int, error) {
	r, w := h.Pipe()
	defer r.Close()
	p, err := h.Start(tool.Child{Args: []string{"sh", "-c", command}, In: r})
	if err != nil {
		_ = w.Close()
		return nil, nil, err
	}
	return w, status(p), nil
}

// Both implements interp.Host.
func (h *host) Both(command string) (io.ReadCloser, io.WriteCloser, func() int, error) {
	in, to := h.Pipe()
	from, out := h.Pipe()
	defer in.Close()
	defer out.Close()
	p, err := h.Start(tool.Child{Args: []string{"sh", "-c", command}, In: in, Out: out})
	if err != nil {
		_, _ = to.Close(), from.Close()
		return nil, nil, nil, err
	}
	return from, to, status(p), nil
}
