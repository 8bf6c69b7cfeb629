//go:build linux

package guard

import (
	"crypto/rand"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/gitdir"
	"github.com/carrel-dev/carrel/internal/refusal"
)

// While a box runs, a repository that it made is its own. Afterwards the user runs git in it
// outside, even if only through a prompt, and git obeys its configuration. So at the end everything
// that can make git run a program is removed from it.

// clocks holds the same moment by two clocks: the system's clock, and one that nobody can set.
type clocks struct{ real, steady unix.Timespec }

func readClocks() (c clocks) {
	_ = unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &c.real)
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC_COARSE, &c.steady)
	return c
}

// since returns the box's start by the clock of file times. If that clock was set back after the
// start, the result is set back, too.
func (g *Guard) since() unix.Timespec {
	now := readClocks()
	passed := time.Duration(now.steady.Nano() - g.began.steady.Nano())
	start := now.real.Nano() - passed.Nanoseconds() - time.Millisecond.Nanoseconds()
	return unix.NsecToTimespec(min(start, g.start.Nano()))
}

// Audit searches everything that was writable for repositories that the box made, changed or moved.
// It removes from them what would make git run a program. Call it when nothing runs in the box any
// more and its changes have been applied. The error names the paths that could not be examined.
func (g *Guard) Audit() error {
	config, hooks := g.byPattern(".git/config"), g.byPattern(".git/hooks")
	if len(g.rules.Roots) == 0 || config == nil && hooks == nil {
		return nil // the user allowed writes to all of it
	}
	by := config
	if by == nil {
		by = hooks
	}
	a := &gitdir.Audit{
		Roots: g.rules.Roots, Since: g.since(), Before: g.repositories, Hooks: hooks == nil, Configs: config == nil,
		Lifted: g.named,
		Seize:  g.seizeRepository,
		Tell: func(f gitdir.Finding) {
			g.log.Add(refusal.Refusal{
				Kind: refusal.Write, What: f.Path, Operation: "moved away", Rule: by.Rule, Allow: "--profile git", Certain: true,
				Reason: f.What + ", which the command left: it was moved to " + f.Where,
			})
		},
	}
	if !g.rules.Open {
		a.Closed = func(dir string) bool { p := g.rule(dir); return p != nil && !p.Writable }
	}
	return a.Run()
}

// byPattern returns a rule that protects a name; nil if the user lifted it everywhere.
func (g *Guard) byPattern(name string) *Protected {
	for i := range g.rules.Protected {
		if p := &g.rules.Protected[i]; p.Pattern == name {
			return p
		}
	}
	return nil
}

// named reports whether the user allowed writes to a file of a repository by naming it, or to all
// hooks of the repository.
func (g *Guard) named(full string) bool {
	p := g.rule(full)
	return p != nil && p.Writable && (p.Path == full || p.Path == parent(full) && last(p.Path) == "hooks")
}

// seizeRepository moves a file away and returns its new place.
func (g *Guard) seizeRepository(dir int, full string) (string, error) {
	aside := ".carrel-moved-" + rand.Text()[:10]
	if err := unix.Renameat2(dir, last(full), dir, aside, unix.RENAME_NOREPLACE); err != nil {
		return "", err
	}
	return g.keep(dir, aside, full), nil
}

// lastAudit is Audit, unless the box has written nothing.
func (g *Guard) lastAudit() error {
	if !g.wrote.Load() {
		return nil
	}
	return g.Audit()
}
