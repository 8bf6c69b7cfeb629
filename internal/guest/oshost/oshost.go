// Package oshost is the real Linux as an [agent.System]: the guest serves it inside a sandbox.
//
// It starts processes with fork and exec, each in its own session, and reaps them in one place. A
// guest that is process 1 inherits every orphan of its sandbox, and a wait for any child must not
// steal a status that another goroutine waits for. Accounts come from /etc/passwd and /etc/group,
// read without the C library.
//
// # Threats
//
// The guest runs as root inside the sandbox and does what its callers say: the wall is around the
// sandbox, not around the guest. It must not leak its own descriptors into children. It must not
// change the machine it runs on if that machine is not its own ([Options.Own]).
package oshost

import (
	"log/slog"
	"os"
	"sync"
)

// Options say how a [System] treats the machine.
type Options struct {
	// Own means that the machine belongs to the sandbox: host name, clock and files under /etc may
	// be changed. Without it [System.Identify] does nothing.
	Own bool
	// Logger takes errors; nil discards them.
	Logger *slog.Logger
}

// System is this process's operating system. It is safe for concurrent use.
type System struct {
	opt Options
	log *slog.Logger

	accounts   accounts
	children   *reaper
	pipes      pipes
	cpu        cpuMeter
	euid       int  // who we are, for good
	keepGroups bool // children keep our groups, because none may be set
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

// Close stops the reaping. Unless this is process 1, it also waits for the processes that Start
// started. Close the agent first: it kills them.
func (s *System) Close() error {
	s.closed.Do(func() {
		s.children.close()
		s.pipes.close()
	})
	return nil
}
