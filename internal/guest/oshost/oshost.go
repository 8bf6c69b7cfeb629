// Package oshost is the real Linux as an [agent.System]: what the guest serves
// inside a sandbox.
//
// Processes are started with fork and exec, each in a session of its own, and
// are reaped in one place: a guest that is process 1 inherits every orphan of
// its sandbox, and waiting for any child must not steal the status of one that
// somebody waits for. Accounts come from /etc/passwd and /etc/group, read without
// the C library.
//
// # Threats
//
// The guest runs as root inside the sandbox and does what its callers say: the
// wall is around the sandbox, not around the guest. What it must not do is leak
// its own descriptors into children, or change the machine it runs on when that
// machine is not its own ([Options.Own]).
package oshost

import (
	"log/slog"
	"os"
	"sync"
)

// Options say how a [System] treats the machine.
type Options struct {
	// Own means that the machine is the sandbox's own: host name, clock and files
	// under /etc may be changed. Without it [System.Identify] does nothing.
	Own bool
	// Logger takes what went wrong; nil discards it.
	Logger *slog.Logger
}

// System is the operating system that this process runs on. It is safe for
// concurrent use.
type System struct {
	opt Options
	log *slog.Logger

	accounts   accounts
	children   *reaper
	pipes      pipes
	cpu        cpuMeter
	euid       int  // who we are, for good
	keepGroups bool // children get our groups, because none may be set
	uids, gids idMap
	closed     sync.Once
}

// New returns the System of this machine. The caller closes it.
func New(opt Options) *System {
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	s := &System{opt: opt, log: opt.Logger, children: newReaper(), euid: os.Geteuid(), keepGroups: groupsFixed(),
		uids: readIDMap("/proc/self/uid_map"), gids: readIDMap("/proc/self/gid_map")}
	s.cpu.reset()
	return s
}

// Close stops the reaping and waits for the processes that Start started, unless
// this is process 1. Close the agent, which kills them, first.
func (s *System) Close() error {
	s.closed.Do(func() {
		s.children.close()
		s.pipes.close()
	})
	return nil
}
