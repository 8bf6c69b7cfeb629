//go:build linux

package microvm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// saveTime bounds Firecracker's writing of a snapshot.
const saveTime = 5 * time.Minute

// Requests that change whether a machine runs.
var (
	pauseRequest  = apiRequest{http.MethodPatch, "/vm", vmState{"Paused"}}
	resumeRequest = apiRequest{http.MethodPatch, "/vm", vmState{"Resumed"}}
)

// describeRequest asks whether the machine runs.
var describeRequest = apiRequest{http.MethodGet, "/", nil}

// createRequest has the VMM write a machine that is paused.
var createRequest = apiRequest{http.MethodPut, "/snapshot/create", snapshotCreate{"Full", savedState, savedMemory}}

// loadRequest has the VMM load a machine. It maps the memory privately, so that all forks share it.
var loadRequest = apiRequest{http.MethodPut, "/snapshot/load", snapshotLoad{
	State:  fmt.Sprintf("%s/%d", descriptors, loadStateFD),
	Memory: memoryBackend{"File", fmt.Sprintf("%s/%d", descriptors, loadMemoryFD)},
}}

// vmm is the instance's process.
func (in *Instance) vmm() process { return process{in.rec.PID, in.Pidfd} }

// load implements engine.
func (firecracker) load(ctx context.Context, in *Instance, _ *saved) error {
	a := dialAPI(in.vmm())
	defer a.close()
	if err := a.do(ctx, loadTime, loadRequest); err != nil {
		return err
	}
	return a.do(ctx, apiTime, resumeRequest)
}

// save implements engine. A machine that was frozen runs for some milliseconds, until its VMM has
// read that it is to stop.
//
// A VMM whose machine is paused may still write what the machine had sent to its disk. The copy may
// have that or not: the machine waits for the end of every write on which another one depends.
func (e firecracker) save(ctx context.Context, in *Instance, files map[string]*os.File, memory bool, wake func() error) error {
	undo := context.WithoutCancel(ctx)
	defer in.clearTargets()
	if wake != nil {
		if err := wake(); err != nil {
			return err
		}
	}
	a := dialAPI(in.vmm())
	defer a.close()
	err := a.do(ctx, apiTime, pauseRequest)
	if err != nil {
		err = fmt.Errorf("stop the machine: %w", err)
	}
	if err == nil && memory {
		err = a.do(ctx, saveTime, createRequest)
	}
	if err == nil {
		err = in.saveDisk(ctx, files[diskFile])
	}
	e.goOn(undo, in)
	if err != nil || !memory {
		return err
	}
	return errors.Join(
		in.take(ctx, files[ramFile], ramFile, int64(in.rec.Inside.MemoryMB)<<20),
		in.take(ctx, files[stateFile], stateFile, -1))
}

// goOn lets a machine run that was stopped. It uses a connection of its own: the snapshot's may have
// ended with its context.
func (firecracker) goOn(ctx context.Context, in *Instance) {
	a := dialAPI(in.vmm())
	defer a.close()
	if err := a.do(ctx, apiTime, resumeRequest); err != nil {
		in.d.log.Error("a machine does not go on after a snapshot", "sandbox", in.rec.ID, "err", err)
	}
}

// wake implements engine.
func (firecracker) wake(ctx context.Context, in *Instance) error {
	a := dialAPI(in.vmm())
	defer a.close()
	answer, err := a.ask(ctx, apiTime, describeRequest)
	if err != nil {
		return err
	}
	var vmm struct {
		State string `json:"state"`
	}
	if err := json.Unmarshal(answer, &vmm); err != nil {
		return fmt.Errorf("the VMM's description of itself: %w", err)
	}
	if vmm.State != "Paused" {
		return nil
	}
	in.d.log.Info("a machine goes on that a snapshot had stopped", "sandbox", in.rec.ID)
	return a.do(ctx, apiTime, resumeRequest)
}

// take copies what a VMM wrote. A size of -1 is any that a state may have. The VMM may still change
// the file. That harms only its own snapshot.
func (in *Instance) take(ctx context.Context, to *os.File, file string, size int64) error {
	from, err := os.OpenFile(filepath.Join(in.rec.Dir, targets[file]), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer from.Close()
	info, err := from.Stat()
	if err != nil {
		return err
	}
	switch got := info.Size(); {
	case size >= 0 && got != size:
		return fmt.Errorf("the VMM saved %d bytes of the machine's memory, not %d", got, size)
	case got == 0 || size < 0 && got > maxState:
		return fmt.Errorf("the VMM saved %d bytes of the devices' state", got)
	default:
		size = got
	}
	if unix.IoctlFileClone(int(to.Fd()), int(from.Fd())) == nil {
		return to.Truncate(size)
	}
	return copyFull(ctx, to, from, size)
}

// clearTargets gives back the space of the files that a VMM wrote.
func (in *Instance) clearTargets() {
	for _, name := range targets {
		_ = os.Truncate(filepath.Join(in.rec.Dir, name), 0)
	}
}

// copyFull copies a file that has no holes, and makes holes of its pages that are zero.
func copyFull(ctx context.Context, to, from *os.File, size int64) error {
	if err := to.Truncate(size); err != nil {
		return err
	}
	buf := make([]byte, copyPiece)
	for at := int64(0); at < size; {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		piece := buf[:min(size-at, copyPiece)]
		if _, err := io.ReadFull(io.NewSectionReader(from, at, int64(len(piece))), piece); err != nil {
			return fmt.Errorf("read what the VMM saved: %w", err)
		}
		for begin := 0; begin < len(piece); {
			end := begin
			for end < len(piece) && !isZero(piece[end:min(end+pageBytes, len(piece))]) {
				end += pageBytes
			}
			end = min(end, len(piece))
			if _, err := to.WriteAt(piece[begin:end], at+int64(begin)); err != nil {
				return err
			}
			begin = end + pageBytes
		}
		at += int64(len(piece))
	}
	return nil
}

// zeroPage is compared with pages.
var zeroPage [pageBytes]byte

// isZero reports whether a page is zero. The last one of a file may be shorter.
func isZero(page []byte) bool { return bytes.Equal(page, zeroPage[:len(page)]) }
