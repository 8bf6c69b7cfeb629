// Package readiness waits until a template's ready command succeeds. Builds and templates' own
// starts wait in the same way.
//
// The command is run again and again, with a pause after each try. The first exit with status 0
// ends the wait. A try may take as long as is left of the whole limit, unless the template bounds
// it: a ready command such as "sleep 20" says how long the start takes.
//
// Ready commands come from E2B's SDKs, too. Those need programs of Debian in the image (ss, curl,
// pgrep), and tell nobody when one is missing. So a wait that fails looks for them.
package readiness

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/carrel-dev/carrel"
)

const (
	// Within is how long a start may take if nobody says more.
	Within = 2 * time.Minute
	// Most bounds every start, whatever a template says.
	Most = 10 * time.Minute

	interval   = 100 * time.Millisecond // between two tries, unless a template says so
	searchTime = 10 * time.Second       // for the search for missing programs
	mostOutput = 200                    // bytes of the last output that an error shows
)

// packages are the programs that the ready commands of E2B's SDKs need, and their packages in
// Debian.
var packages = map[string]string{"ss": "iproute2", "curl": "curl", "pgrep": "procps"}

// Begin starts a start command, and calls failed if it ends with another status than 0 before stop is
// called. One that ends with 0 has done its work, or runs on in the background. stop disconnects from
// the command, which runs on.
func Begin(ctx context.Context, computer interface {
	Start(ctx context.Context, cmd carrel.Command) (carrel.Process, error)
}, cmd carrel.Command, failed func(error)) (stop func(), err error) {
	said := &tail{}
	cmd.Stdout, cmd.Stderr = said, said
	p, err := computer.Start(ctx, cmd)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		res, err := p.Wait(ctx)
		if err != nil || res.ExitCode == 0 || ctx.Err() != nil {
			return // whoever has the sandbox sees its end
		}
		failed(&carrel.Error{Kind: carrel.Invalid, Field: "start",
			Err: fmt.Errorf("its start command %q ended before it was ready: %s: it wrote %q", cmd.Args,
				res.Status, said.text()),
			Hint: "see whether it works: build without it, then carrel create and carrel exec"})
	})
	return func() {
		cancel()
		_ = p.Close()
		watch.Wait()
	}, nil
}

// tail keeps the end of what is written.
type tail struct {
	mu  sync.Mutex
	end []byte
}

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end = append(t.end, p[max(0, len(p)-mostOutput):]...)
	t.end = slices.Clone(t.end[max(0, len(t.end)-mostOutput):])
	return len(p), nil
}

func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.end)
}

// Runner runs a command in the sandbox that is to become ready.
type Runner func(ctx context.Context, cmd carrel.Command) (*carrel.Result, error)

// Check is a ready command and how it is tried.
type Check struct {
	Command string
	carrel.ReadyCheck
}

// Of returns the check of a template. within is the limit of a template that names none.
func Of(t carrel.Template, within time.Duration) Check {
	c := Check{Command: t.Ready, ReadyCheck: t.ReadyCheck}
	c.Interval = cmp.Or(c.Interval, interval)
	c.Within = min(cmp.Or(c.Within, within), max(Most, within))
	return c
}

// Await runs the ready command until it succeeds. Error: TimedOut, or the cause of ctx's end.
func (c Check) Await(ctx context.Context, run Runner) error {
	limited, cancel := context.WithTimeout(ctx, c.Within)
	defer cancel()
	last := ""
	for {
		began := time.Now()
		ready, said := c.try(limited, run)
		switch took := time.Since(began); {
		case ready:
			return nil
		case said != "":
			last = said
		case last == "" || took > c.Within/2: // the limit cut it off, and it is not one of many
			last = fmt.Sprintf("it still ran, for %v", took.Round(time.Millisecond))
		}
		select {
		case <-time.After(c.Interval):
		case <-limited.Done():
		}
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case limited.Err() != nil:
			return &carrel.Error{Kind: carrel.TimedOut, Field: "ready",
				Err: fmt.Errorf("its ready command %q did not succeed within %v: %s", c.Command, c.Within,
					last), Hint: c.hint(ctx, run)}
		}
	}
}

// try runs the command once. said tells why it failed; "" means that ctx ended.
func (c Check) try(ctx context.Context, run Runner) (ready bool, said string) {
	one := ctx
	if c.Timeout > 0 {
		var cancel context.CancelFunc
		one, cancel = context.WithTimeout(ctx, c.Timeout)
		defer cancel()
	}
	res, err := run(one, carrel.Command{Args: []string{"/bin/sh", "-c", c.Command}})
	switch {
	case err == nil && res.ExitCode == 0:
		return true, ""
	case ctx.Err() != nil:
		return false, ""
	case one.Err() != nil:
		return false, fmt.Sprintf("it did not end within %v", c.Timeout)
	case err != nil:
		return false, err.Error()
	}
	out := append(slices.Clone(res.Stdout), res.Stderr...)
	return false, fmt.Sprintf("it exited with status %d and wrote %q", res.ExitCode,
		out[max(0, len(out)-mostOutput):])
}

// hint says what to do about a command that did not succeed.
func (c Check) hint(ctx context.Context, run Runner) string {
	if gone := c.missing(ctx, run); len(gone) > 0 {
		var debs []string
		for _, name := range gone {
			debs = append(debs, packages[name])
		}
		return fmt.Sprintf("the image has no %s, which the ready command needs: install it in a step "+
			"(Debian: apt-get install -y %s)", strings.Join(gone, " and no "), strings.Join(debs, " "))
	}
	return "see whether the start command works: build without it, then carrel create and carrel exec"
}

// missing lists the programs of E2B's ready commands that the command names and the image lacks.
func (c Check) missing(ctx context.Context, run Runner) []string {
	words := strings.FieldsFunc(c.Command, func(r rune) bool {
		return strings.ContainsRune(" \t\n;|&$()\"'`", r)
	})
	var names []string
	for _, word := range words {
		if packages[word] != "" && !slices.Contains(names, word) {
			names = append(names, word)
		}
	}
	if len(names) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, searchTime)
	defer cancel()
	const search = `for name; do command -v "$name" >/dev/null || echo "$name"; done`
	res, err := run(ctx, carrel.Command{Args: append([]string{"/bin/sh", "-c", search, "sh"},
		names...)})
	if err != nil || res.ExitCode != 0 {
		return nil // it is not known
	}
	gone := strings.Fields(string(res.Stdout))
	return slices.DeleteFunc(names, func(name string) bool { return !slices.Contains(gone, name) })
}
