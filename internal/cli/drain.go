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

// drainedFile is the file in the data directory with the list of sandboxes that drain paused.
const drainedFile = "drained.json"

// drained lists the sandboxes that drain paused, so that it can be undone.
type drained struct {
	Sandboxes []carrel.ID `json:"sandboxes"`
}

// drainCommands are the commands before and after a stop of the machine.
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

// drain pauses all running sandboxes. It records each one as soon as it is paused, so that an
// interrupted drain can be undone.
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

// undrain resumes the recorded sandboxes. Those that fail stay recorded.
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

// each calls do for many sandboxes, several at once, and goes on if one fails. It returns the
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

// goneIsDone returns nil for the error of a sandbox that has just ended or been paused.
func goneIsDone(err error) error {
	if k := carrel.KindOf(err); k == carrel.NotFound || k == carrel.Conflict {
		return nil
	}
	return err
}

// idsOf returns the IDs of sandboxes.
func idsOf(all []carrel.Sandbox) []carrel.ID {
	ids := make([]carrel.ID, len(all))
	for i, sb := range all {
		ids[i] = sb.ID
	}
	return ids
}

// readDrained reads the list of a drain; without a file it is empty.
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

// writeDrained writes the list of sandboxes to resume. It removes the file if the list is empty.
func writeDrained(name string, d drained) error {
	if len(d.Sandboxes) == 0 {
		if err := os.Remove(name); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	err := os.MkdirAll(filepath.Dir(name), 0o700) // may be missing if the daemon is on another machine
	raw, _ := json.Marshal(d)
	if err == nil {
		err = atomicfile.Write(name, append(raw, '\n'), 0o600)
	}
	if err != nil {
		return &carrel.Error{Op: "note what was drained", Kind: carrel.Internal, Err: err}
	}
	return nil
}
