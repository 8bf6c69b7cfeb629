package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"gvisor.dev/gvisor/pkg/sentry/control"
	"gvisor.dev/gvisor/pkg/state/statefile"
	"gvisor.dev/gvisor/pkg/urpc"
	"gvisor.dev/gvisor/runsc/boot"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/driver/hosted"
)

var _ driver.Snapshotter = (*Instance)(nil)

// Snapshot implements driver.Snapshotter. The sentry writes into files that the driver opens for
// it. It stops all tasks inside first, and afterwards lets them go on if they ran before. When ctx
// ends early, Snapshot still waits for the sentry to finish: nothing can stop the sentry half way.
func (in *Instance) Snapshot(ctx context.Context, dir string, opts driver.SnapshotOptions) (driver.SnapshotInfo, error) {
	info, err := in.snapshot(ctx, dir, !opts.FilesOnly)
	if err != nil {
		return driver.SnapshotInfo{}, in.wrap("snapshot sandbox", err)
	}
	return info, nil
}

// snapshot takes one; after an error it leaves no files.
func (in *Instance) snapshot(ctx context.Context, dir string, memory bool) (driver.SnapshotInfo, error) {
	none := driver.SnapshotInfo{}
	if err := ctx.Err(); err != nil {
		return none, context.Cause(ctx)
	}
	if in.rec.Root == "" {
		return none, &carrel.Error{Kind: carrel.Unsupported, Err: errors.New("the sandbox was made by a build that knew no snapshots")}
	}
	if !in.taking.CompareAndSwap(false, true) {
		return none, &carrel.Error{Kind: carrel.Conflict, Err: errors.New("another snapshot of it is being taken")}
	}
	defer in.taking.Store(false)
	root, err := in.rootID()
	if err == nil {
		err = in.save(ctx, dir, memory)
	}
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err == nil {
		err = writeSide(dir, side{Memory: memory, Limits: in.rec.Inside, Root: root, Guest: in.rec.Guest})
	}
	if err != nil {
		removeAll(dir, append([]string{sideFile}, fileNames(memory)...))
		return none, err
	}
	info := driver.SnapshotInfo{Driver: in.d.Info().Name, Memory: memory, Build: in.rec.Files, Root: root}
	if memory {
		info.Build, info.CPU = in.rec.Build, cpuFeatures()
	}
	return info, nil
}

// save writes the files of a snapshot.
func (in *Instance) save(ctx context.Context, dir string, memory bool) error {
	if memory {
		files, err := createFiles(dir, memoryFiles)
		if err != nil {
			return err
		}
		defer hosted.CloseAll(files...)
		return in.checkpoint(ctx, files)
	}
	k, err := in.kernel(ctx)
	if err != nil {
		return err
	}
	out, err := createFiles(dir, filesFiles)
	if err != nil {
		return err
	}
	defer hosted.CloseAll(out...)
	// The memory is needed only for this step. Its files have no names, so they vanish when they
	// are closed.
	files, err := scratchFiles(dir, memoryFiles)
	if err != nil {
		return err
	}
	defer hosted.CloseAll(files...)
	if err := in.checkpoint(ctx, files); err != nil {
		return err
	}
	if err := rewind(files); err != nil { // the sentry moved them
		return err
	}
	images, err := in.openImages()
	if err != nil {
		return err
	}
	defer hosted.CloseAll(images...)
	return in.d.runExtract(ctx, k, in.rec.Inside, files, images, out)
}

// rootID names the root image.
func (in *Instance) rootID() (string, error) {
	if in.rec.Root == halfRoot { // by now it is whole
		return in.d.ids.of(in.rec.Images[0], imageID)
	}
	return in.rec.Root, nil
}

// openImages opens the sandbox's images.
func (in *Instance) openImages() ([]*os.File, error) {
	root, err := in.rootID()
	if err != nil {
		return nil, err
	}
	var files []*os.File
	for i, want := range []string{root, in.rec.Guest} {
		id, err := in.d.ids.of(in.rec.Images[i], imageID)
		if err == nil && id != want {
			err = fmt.Errorf("image %s was replaced since the sandbox was made", in.rec.Images[i])
		}
		var f *os.File
		if err == nil {
			f, err = os.Open(in.rec.Images[i])
		}
		if err != nil {
			hosted.CloseAll(files...)
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

// checkpoint has the sentry write its memory.
func (in *Instance) checkpoint(ctx context.Context, files []*os.File) error {
	err := in.callToEnd(ctx, boot.ContMgrCheckpoint, &control.SaveOpts{
		Metadata:      statefile.CompressionLevelNone.ToMetadata(), // only such pages can be loaded in the background
		HavePagesFile: true,
		// The sandbox always runs on. Only the service decides to end it.
		Resume:      true,
		FilePayload: urpc.FilePayload{Files: files},
	}, nil)
	if err == nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// scratchFiles makes files in dir that have no names.
func scratchFiles(dir string, names []string) ([]*os.File, error) {
	var files []*os.File
	for _, name := range names {
		f, err := os.CreateTemp(dir, "."+name+"-*")
		if err != nil {
			hosted.CloseAll(files...)
			return nil, err
		}
		files = append(files, f)
		if err := os.Remove(f.Name()); err != nil {
			hosted.CloseAll(files...)
			return nil, err
		}
	}
	return files, nil
}

// createFiles makes empty files in dir. When it returns no error, all are open.
func createFiles(dir string, names []string) ([]*os.File, error) {
	var files []*os.File
	for i, name := range names {
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_RDWR|os.O_CREATE|os.O_EXCL|syscall.O_CLOEXEC, 0o600)
		if err != nil {
			hosted.CloseAll(files...)
			removeAll(dir, names[:i])
			if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrExist) {
				return nil, &carrel.Error{Kind: carrel.Invalid, Field: "dir", Err: fmt.Errorf("not an empty directory: %w", err)}
			}
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

// removeAll removes the named files in dir.
func removeAll(dir string, names []string) {
	for _, name := range names {
		_ = os.Remove(filepath.Join(dir, name))
	}
}
