//go:build linux

package guard

import (
	"crypto/rand"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/gitdir"
	"github.com/carrel-dev/carrel/internal/refusal"
)

// A repository that the box made is its own while it runs. Afterwards git is run in it outside, if only by a prompt, and does
// what its configuration says: so what can run a program is taken out of it at the end.

// clocks are the system's clock and the one that nobody sets, at the same moment.
type clocks struct{ real, steady unix.Timespec }

func readClocks() (c clocks) {
	_ = unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &c.real)
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC_COARSE, &c.steady)
	return c
}

// since is the box's start by the clock that files have their times from. If that clock was set back meanwhile, so is the start.
func (g *Guard) since() unix.Timespec {
	now := readClocks()
	passed := time.Duration(now.steady.Nano() - g.began.steady.Nano())
	start := now.real.Nano() - passed.Nanoseconds() - time.Millisecond.Nanoseconds()
	return unix.NsecToTimespec(min(start, g.start.Nano()))
}

// Audit looks through all that was writable for repositories that the box made, changed or moved, and takes out of them what would make
// git run a program. Call it when nothing runs in the box any more and its changes are carried out. The error names what could not be looked at.
func (g *Guard) Audit() error {
	config, hooks := g.byPattern(".git/config"), g.byPattern(".git/hooks")
	if len(g.rules.Roots) == 0 || config == nil && hooks == nil {
		return nil // all of it was opened by somebody
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

// byPattern is a rule that protects a name, nil if it was lifted everywhere.
func (g *Guard) byPattern(name string) *Protected {
	for i := range g.rules.Protected {
		if p := &g.rules.Protected[i]; p.Pattern == name {
			return p
		}
	}
	return nil
}

// named reports whether somebody opened a file of a repository by naming it, or all hooks of one.
func (g *Guard) named(full string) bool {
	p := g.rule(full)
	return p != nil && p.Writable && (p.Path == full || p.Path == parent(full) && last(p.Path) == "hooks")
}

// seizeRepository takes a name away and says where it is.
func (g *Guard) seizeRepository(dir int, full string) (string, error) {
	aside := ".carrel-moved-" + rand.Text()[:10]
	if err := unix.Renameat2(dir, last(full), dir, aside, unix.RENAME_NOREPLACE); err != nil {
		return "", err
	}
	return g.keep(dir, aside, full), nil
}

// lastAudit is Audit, unless nothing was written.
func (g *Guard) lastAudit() error {
	if !g.wrote.Load() {
		return nil
	}
	return g.Audit()
}
