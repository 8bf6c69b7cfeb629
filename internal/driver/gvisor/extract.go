package gvisor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/hosted"
	"github.com/carrel-dev/carrel/internal/linux/cgroup"
	"github.com/carrel-dev/carrel/internal/linux/proc"
)

const opFiles = "read a snapshot's files"

// confinedMB is the least memory of a process that reads snapshots. A sandbox's own limit may be
// smaller than the description of its files.
const confinedMB = 1024

// work is one confined process.
type work struct {
	cmd    *exec.Cmd
	group  *cgroup.Group
	stderr bytes.Buffer
}

// startConfined starts a part that reads a sentry's files, under the limits of a sandbox.
func (d *Driver) startConfined(p *program, name string, limits carrel.Limits,
	files []*os.File) (*work, error) {
	id := carrel.NewID() // an ID of its own: the snapshot's sandbox may be alive
	group, err := d.groups.Create(string(id), cgroup.Limits{
		Memory: int64(max(limits.MemoryMB, confinedMB)) << 20, CPUs: limits.CPUs, Pids: hostTasks(bounds.MinPids),
	})
	if err != nil {
		return nil, err
	}
	w := &work{group: group, cmd: exec.Command(p.path)}
	w.cmd.Args = []string{name, d.opts.RootArg(), "-"} // the root is for Sweep
	w.cmd.Env, w.cmd.Dir = []string{sentryEnv}, "/"
	w.cmd.Stderr = &limitedWriter{w: &w.stderr, left: hosted.MaxWords}
	w.cmd.Stdin, w.cmd.ExtraFiles = p.null, files
	w.cmd.SysProcAttr = d.namespaces(d.sandboxUID(id))
	proc.CloseOnExec(3)
	if err := proc.Alone(func() error { return group.Start(w.cmd.SysProcAttr, w.cmd.Start) }); err != nil {
		hosted.DestroyGroup(context.Background(), group)
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return w, nil
}

// wait waits for the process's end and removes its group. To end it early, kill the process first.
func (w *work) wait() error {
	err := w.cmd.Wait()
	oom := w.group.Events().OOMKills > 0
	hosted.DestroyGroup(context.Background(), w.group)
	text := strings.TrimSpace(w.stderr.String())
	switch {
	case err == nil:
		return nil
	case oom:
		return &carrel.Error{Kind: carrel.Exhausted, Err: errors.New("what describes the snapshot's files needs too much memory")}
	case isNoSpace(errors.New(text)):
		return &carrel.Error{Kind: carrel.Exhausted, Err: errors.New(text), Hint: "free space on the host's disk"}
	case text != "":
		return damaged("%w: %s", err, text)
	}
	return damaged("its reader ended: %w", err)
}

// limitedWriter drops everything after its limit.
type limitedWriter struct {
	w    io.Writer
	left int
}

// Write implements io.Writer.
func (l *limitedWriter) Write(b []byte) (int, error) {
	n := min(len(b), l.left)
	l.left -= n
	if _, err := l.w.Write(b[:n]); err != nil {
		return 0, err
	}
	return len(b), nil
}

// runExtract makes a snapshot of files from one with memory, and writes it to out. k is the kernel
// that saved the memory.
func (d *Driver) runExtract(ctx context.Context, k *sentryBuild, limits carrel.Limits, memory,
	images, out []*os.File) error {
	manifest, tree, meta, pages := out[0], out[1], out[2], out[3]
	w, err := d.startConfined(k.program, extractName, limits,
		[]*os.File{memory[0], memory[1], images[0], images[1], memory[2], manifest, tree, meta, pages})
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = w.cmd.Process.Kill() })
	defer stop()
	err = w.wait()
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// extract makes a snapshot of files from one with memory, in files without names. It does not copy
// the contents of files: they stay in the old pages file.
func (d *Driver) extract(ctx context.Context, s *saved, info driver.SnapshotInfo,
	spec driver.Spec) (*saved, error) {
	k, err := d.kernelOf(info.Build)
	if err != nil {
		return nil, err
	}
	var images []*os.File
	defer func() { hosted.CloseAll(images...) }()
	for _, name := range []string{spec.Root.Image, spec.Guest} {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		images = append(images, f)
	}
	out, err := scratchFiles(spec.Dir, filesFiles[:3])
	if err != nil {
		return nil, err
	}
	only := &saved{side: s.side, files: out}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR|syscall.O_CLOEXEC, 0)
	if err == nil {
		defer null.Close()
		err = d.runExtract(ctx, k, spec.Limits, s.files, images, append(out[:3:3], null))
	}
	if err == nil {
		err = rewind(out)
	}
	var pages *os.File
	if err == nil {
		pages, err = os.Open(s.files[2].Name())
	}
	if err != nil {
		only.close()
		return nil, err
	}
	only.files = append(only.files, pages)
	return only, nil
}

// rewind sets the offset of written files to their start.
func rewind(files []*os.File) error {
	for _, f := range files {
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return err
		}
	}
	return nil
}

// SnapshotFiles implements driver.Restorer. A process that is as confined as a sandbox makes the
// stream. So the stream is only as trustworthy as the sandbox.
func (d *Driver) SnapshotFiles(ctx context.Context, dir string, info driver.SnapshotInfo, spec driver.Spec) (io.ReadCloser, error) {
	if err := d.CanRestore(info, driver.RestoreOptions{FilesOnly: true}); err != nil {
		return nil, err
	}
	if err := bounds.Check(spec); err != nil {
		return nil, err
	}
	r, err := d.snapshotFiles(ctx, dir, info, spec)
	if err != nil {
		return nil, remedies.Explain(opFiles, spec.ID, err)
	}
	return r, nil
}

// snapshotFiles starts the process that makes the stream.
func (d *Driver) snapshotFiles(ctx context.Context, dir string, info driver.SnapshotInfo, spec driver.Spec) (io.ReadCloser, error) {
	if cause := context.Cause(ctx); cause != nil {
		return nil, cause
	}
	of, err := d.madeOf(spec)
	if err != nil {
		return nil, err
	}
	s, err := openFor(dir, info, of)
	if err != nil {
		return nil, err
	}
	defer func() { s.close() }()
	if info.Memory {
		only, err := d.extract(ctx, s, info, spec)
		s.close()
		if err != nil {
			s = nil
			return nil, err
		}
		s = only
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	work, err := d.startConfined(d.program, tarName, spec.Limits, append(s.files[:4:4], w))
	w.Close()
	if err != nil {
		r.Close()
		return nil, err
	}
	t := &tarStream{pipe: r, work: work}
	t.stop = context.AfterFunc(ctx, t.kill)
	return t, nil
}

// tarStream is the output of a process that makes a tar stream.
type tarStream struct {
	pipe *os.File
	work *work
	stop func() bool

	once sync.Once
	err  error // valid after once
}

// kill ends the process.
func (t *tarStream) kill() { _ = t.work.cmd.Process.Kill() }

// end waits for the process.
func (t *tarStream) end() error {
	t.once.Do(func() {
		t.err = t.work.wait()
		t.stop()
	})
	return t.err
}

// Read implements io.Reader. It returns io.EOF only when the stream is complete.
func (t *tarStream) Read(b []byte) (int, error) {
	n, err := t.pipe.Read(b)
	if err == io.EOF {
		if err := t.end(); err != nil {
			return n, &carrel.Error{Op: opFiles, Kind: carrel.KindOf(err), Err: err}
		}
	}
	return n, err
}

// Close implements io.Closer.
func (t *tarStream) Close() error {
	t.kill()
	_ = t.pipe.Close()
	_ = t.end() // its kill by us is no error
	return nil
}
