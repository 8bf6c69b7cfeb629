//go:build linux

package microvm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/hosted"
	"github.com/carrel-dev/carrel/internal/driver/microvm/boot"
	"github.com/carrel-dev/carrel/internal/linux/proc"
)

// The disk of a snapshot holds a filesystem that the sandbox wrote, so the host's kernel never mounts
// it. A machine of its own reads it: it has this disk and an empty one, which it fills with a tar
// stream.

const opFiles = "read a snapshot's files"

// Bounds of an extraction.
const (
	extractMB   = 256 // the machine's memory
	extractTime = 10 * time.Minute
	tarSpare    = 1 << 30 // bytes beside twice the disk's own: headers
)

// SnapshotFiles implements driver.Restorer.
func (d *Driver) SnapshotFiles(ctx context.Context, dir string, info driver.SnapshotInfo, spec driver.Spec) (io.ReadCloser, error) {
	if err := d.CanRestore(info, driver.RestoreOptions{FilesOnly: true}); err != nil {
		return nil, err
	}
	out, err := d.extract(ctx, dir, info, spec)
	if err != nil {
		return nil, remedies.Explain(opFiles, spec.ID, err)
	}
	return &tarStream{Reader: out, close: sync.OnceValue(out.Close)}, nil
}

// tarStream is a file that may be closed twice.
type tarStream struct {
	io.Reader
	close func() error
}

// Close implements io.Closer.
func (s *tarStream) Close() error { return s.close() }

// extract returns the stream, as a file without a name.
func (d *Driver) extract(ctx context.Context, dir string, info driver.SnapshotInfo, spec driver.Spec) (_ *os.File, err error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	m, err := d.prepare(ctx)
	if err != nil {
		return nil, err
	}
	s, err := openSaved(dir, info, false)
	if err != nil {
		return nil, err
	}
	defer s.close()
	out, err := os.CreateTemp(spec.Dir, ".tar-*")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(out.Name())
			out.Close()
		}
	}()
	if err := out.Truncate(2*s.side.Sizes[diskFile] + tarSpare); err != nil {
		return nil, err
	}
	l := &launch{
		spec:  driver.Spec{ID: spec.ID, Dir: spec.Dir, Limits: carrel.Limits{CPUs: 1, MemoryMB: extractMB}},
		order: boot.Order{Extract: true}, uid: d.uid(spec.ID),
	}
	undo, err := m.engine.equipExtract(ctx, d, l, s.files[diskFile], out)
	if err != nil {
		hosted.CloseAll(l.files...)
		return nil, err
	}
	defer undo()
	if err := d.runToEnd(ctx, m, l, extractTime, boot.Extracted); err != nil {
		return nil, damaged("its disk can't be read: %w", err)
	}
	// Behind the stream is a hole, to the end of the disk.
	end, err := dataEnd(out)
	if err != nil {
		return nil, err
	}
	if err := out.Truncate(end); err != nil {
		return nil, err
	}
	_, err = out.Seek(0, io.SeekStart)
	return out, err
}

// runToEnd runs a machine without a link to its end. It must say a line on its console.
func (d *Driver) runToEnd(ctx context.Context, m *machine, l *launch, limit time.Duration, line string) (err error) {
	started := false
	defer func() {
		if !started {
			hosted.CloseAll(l.files...)
		}
		hosted.CloseAll(l.console, l.vmmLog)
	}()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	l.uid = d.uid(l.spec.ID)
	if l.group, err = d.groups.Create(string(l.spec.ID), m.limits(l.spec.Limits)); err != nil {
		return err
	}
	defer hosted.DestroyGroup(ctx, l.group)
	started = true
	if err := d.start(ctx, m, l); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { proc.Kill(l.pidfd) })
	booted := m.engine.boot(ctx, m, l)
	if booted != nil {
		proc.Kill(l.pidfd)
	}
	status := l.wait()
	stop()
	text := consoleText(l.console)
	if booted == nil && strings.Contains(text, line) {
		return nil
	}
	if cause := context.Cause(ctx); errors.Is(cause, context.Canceled) {
		return cause
	}
	switch {
	case ctx.Err() != nil:
		status = fmt.Sprintf("it had not ended after %v", limit)
	case booted != nil:
		status = booted.Error()
	}
	return fmt.Errorf("%s: %s", status, lastWords(l.vmmLog, text))
}
