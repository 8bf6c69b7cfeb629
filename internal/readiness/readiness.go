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
