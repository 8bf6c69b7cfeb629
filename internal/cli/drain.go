package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/atomicfile"
)

// drainedFile is where drain notes what it paused, in the data directory.
const drainedFile = "drained.json"

// drained is what drain paused, for the undoing.
type drained struct {
	Sandboxes []carrel.ID `json:"sandboxes"`
}

// drainCommands are the commands for a machine that stops.
type drainCommands struct{ *app }

// drainCommand is "carrel drain".
func (a drainCommands) drainCommand() *cobra.Command {
	var undo bool
	c := &cobra.Command{
		Use:   "drain [--undo]",
		Short: "Pause all running sandboxes, as before this machine stops",
		Long: `Pauses every running sandbox, so that the machine can stop and no work is lost.
--undo resumes those, and only those, that the last drain paused. Both print the IDs.

What was paused is noted in the data directory, in drained.json. A sandbox that can't
be paused is named and runs on; the exit status is then not 0.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.withService(c.Context(), func(svc carrel.Service) error {
				if undo {
					return a.undrain(c.Context(), svc)
				}
				return a.drain(c.Context(), svc)
			})
		},
	}
	c.Flags().BoolVar(&undo, "undo", false, "resume what the last drain paused")
	return c
}

// drain pauses all that runs. Each one is noted as soon as it is paused, so that a drain that is
// cut off can be undone.
func (a drainCommands) drain(ctx context.Context, svc carrel.Service) error {
	all, err := listAll(ctx, svc, carrel.ListOptions{States: []carrel.State{carrel.Running}}, 0)
	if err != nil {
		return err
	}
	name := filepath.Join(a.dataDirectory(), drainedFile)
	noted, err := readDrained(name)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	paused := []carrel.ID{}
	failed, err := a.each(ctx, idsOf(all), func(id carrel.ID) error {
		if _, err := svc.Pause(ctx, id, carrel.PauseOptions{}); err != nil {
			return goneIsDone(err)
		}
		mu.Lock()
		defer mu.Unlock()
		paused = append(paused, id)
		if !slices.Contains(noted.Sandboxes, id) {
			noted.Sandboxes = append(noted.Sandboxes, id)
		}
		return errors.Join(writeDrained(name, noted), a.printLine(id))
	})
	return a.printSeveral(err, map[string]any{"paused": paused, "failed": failed})
}

// undrain resumes what drain noted. What fails stays noted.
func (a drainCommands) undrain(ctx context.Context, svc carrel.Service) error {
	name := filepath.Join(a.dataDirectory(), drainedFile)
	noted, err := readDrained(name)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	resumed, left := []carrel.ID{}, slices.Clone(noted.Sandboxes)
	failed, err := a.each(ctx, noted.Sandboxes, func(id carrel.ID) error {
		_, _, err := svc.Resume(ctx, id, carrel.ResumeOptions{})
		gone := err != nil && goneIsDone(err) == nil
		if err != nil && !gone {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		left = slices.DeleteFunc(left, func(other carrel.ID) bool { return other == id })
		err = writeDrained(name, drained{left})
		if gone {
			return err
		}
		resumed = append(resumed, id)
		return errors.Join(err, a.printLine(id))
	})
	return a.printSeveral(err, map[string]any{"resumed": resumed, "failed": failed})
}

// each does the same with many sandboxes, several at once, and goes on when one fails. It returns the
// failures and the first error.
func (a drainCommands) each(ctx context.Context, ids []carrel.ID, do func(carrel.ID) error) ([]failure, error) {
	var (
		mu     sync.Mutex
		failed = []failure{}
		first  error
		group  errgroup.Group
	)
	group.SetLimit(2 * runtime.NumCPU())
	for _, id := range ids {
		if ctx.Err() != nil {
			break
		}
		group.Go(func() error {
			err := do(id)
			if err == nil {
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			failed = append(failed, failureOf(string(id), err))
			if first == nil {
				first = err
			} else {
				a.report(err)
			}
			return nil
		})
	}
	_ = group.Wait()
	return failed, errors.Join(first, ctx.Err())
}

// goneIsDone is nil for the error of a sandbox that ended or was paused meanwhile.
func goneIsDone(err error) error {
	if k := carrel.KindOf(err); k == carrel.NotFound || k == carrel.Conflict {
		return nil
	}
	return err
}

// idsOf are the IDs of sandboxes.
func idsOf(all []carrel.Sandbox) []carrel.ID {
	ids := make([]carrel.ID, len(all))
	for i, sb := range all {
		ids[i] = sb.ID
	}
	return ids
}

// readDrained reads what a drain noted; nothing, where there was none.
func readDrained(name string) (drained, error) {
	var d drained
	raw, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return d, nil
	}
	if err == nil {
		err = json.Unmarshal(raw, &d)
	}
	if err != nil {
		return d, &carrel.Error{Op: "read what was drained", Kind: carrel.Invalid, Err: fmt.Errorf("%s: %w", name, err),
			Hint: "look at the file; carrel resume ID brings back each sandbox by itself"}
	}
	return d, nil
}

// writeDrained writes what is to be resumed, and removes the file when that is nothing.
func writeDrained(name string, d drained) error {
	if len(d.Sandboxes) == 0 {
		if err := os.Remove(name); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	err := os.MkdirAll(filepath.Dir(name), 0o700) // a client of a daemon elsewhere may have none yet
	raw, _ := json.Marshal(d)
	if err == nil {
		err = atomicfile.Write(name, append(raw, '\n'), 0o600)
	}
	if err != nil {
		return &carrel.Error{Op: "note what was drained", Kind: carrel.Internal, Err: err}
	}
	return nil
}
