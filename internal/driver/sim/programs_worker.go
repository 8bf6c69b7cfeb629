package sim

import (
	"context"
	"fmt"
	"os"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/callback"
)

// Programs run in the daemon, or behind it. A worker knows only their names. To run one it makes a
// connection to the daemon, on which the two ends of package callback talk.

// setPrograms replaces a sandbox's programs by those with these names. Programs that it has already
// stay as they are.
func (w *worker) setPrograms(id carrel.ID, names []string) error {
	p := w.driver.programs
	p.mu.Lock()
	gone, list := map[string]*carrel.Program{}, []carrel.Program(nil)
	for name, one := range p.given[id] {
		gone[name] = one
	}
	for _, name := range names {
		if gone[name] == nil {
			list = append(list, carrel.Program{Name: name, Run: w.run})
		}
		delete(gone, name)
	}
	var end []carrel.Program
	for _, one := range gone {
		end = append(end, *one)
	}
	p.take(id, end)
	p.mu.Unlock()
	if len(list) == 0 {
		return nil
	}
	return p.add(id, list)
}

// run is the Run of every program in a worker.
func (w *worker) run(ctx context.Context, c *carrel.ProgramCall) int {
	fail := func(err error) int {
		fmt.Fprintf(c.Stderr, "%s: %v\n", c.Name, err)
		return callback.Gone
	}
	mine, theirs, err := socketPair()
	if err != nil {
		return fail(err)
	}
	defer mine.Close()
	if _, err := w.line.ask(ctx.Done(), message{Op: opRun, Sandbox: c.Sandbox, Name: c.Name, files: []*os.File{theirs}}); err != nil {
		return fail(err)
	}
	stop := context.AfterFunc(ctx, func() { _ = mine.Close() })
	defer stop()
	if err := callback.Send(mine, callback.About(c)); err != nil {
		return fail(err)
	}
	return callback.Relay(ctx, mine, c)
}
