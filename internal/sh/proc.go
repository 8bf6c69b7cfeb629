package sh

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Signals that the machine knows, by number.
const (
	sigHUP  = 1
	sigINT  = 2
	sigQUIT = 3
	sigKILL = 9
	sigPIPE = 13
	sigTERM = 15
	sigCHLD = 17
	sigCONT = 18
	sigWNCH = 28
)

var signalNames = map[int]string{1: "HUP", 2: "INT", 3: "QUIT", 4: "ILL", 5: "TRAP", 6: "ABRT", 7: "BUS", 8: "FPE",
	9: "KILL", 10: "USR1", 11: "SEGV", 12: "USR2", 13: "PIPE", 14: "ALRM", 15: "TERM", 17: "CHLD", 18: "CONT", 19: "STOP",
	20: "TSTP", 21: "TTIN", 22: "TTOU", 23: "URG", 24: "XCPU", 25: "XFSZ", 28: "WINCH", 29: "IO", 30: "PWR", 31: "SYS"}

// signalText is how a shell or a client names a signal's effect.
var signalText = map[int]string{1: "hangup", 2: "interrupt", 3: "quit", 6: "aborted", 9: "killed", 13: "broken pipe", 14: "alarm clock", 15: "terminated"}

// SignalText returns how package os describes a signal: "killed", "terminated".
func SignalText(sig int) string {
	if s, ok := signalText[sig]; ok {
		return s
	}
	return "signal " + strconv.Itoa(sig)
}

// parseSignal reads TERM, SIGTERM or 15. EXIT and 0 are 0.
func parseSignal(s string) (int, bool) {
	s = strings.TrimPrefix(strings.ToUpper(s), "SIG")
	if s == "EXIT" {
		return 0, true
	}
	if n, err := strconv.Atoi(s); err == nil {
		return n, n >= 0 && n <= 64
	}
	for n, name := range signalNames {
		if name == s {
			return n, true
		}
	}
	return 0, false
}

// killedBy is the cause of the end of a process's context.
type killedBy struct{ sig int }

func (k killedBy) Error() string { return "signal: " + SignalText(k.sig) }

// tree is what a started process and all its descendants share.
type tree struct {
	steps  atomic.Int64
	output atomic.Int64
	tty    *TTY

	mu      sync.Mutex
	message string // why a limit ended it
}

// proc is one process: a shell or a part of one that runs on its own.
type proc struct {
	m         *Machine
	pid, ppid int
	pgid      int
	uid       uint32
	args      []string
	started   time.Time
	tree      *tree

	ctx    context.Context
	cancel context.CancelCauseFunc
	mem    atomic.Int64

	// caught and ignored are bit sets of signals with a trap; pending of those
	// that arrived. wake has room for one and ends a sleep or wait.
	caught, ignored, pending atomic.Uint64
	wake                     chan struct{}

	done   chan struct{}
	code   int // valid once done is closed
	signum int
}

// deliver gives a process a signal.
func (p *proc) deliver(sig int) {
	if sig == 0 || sig == sigCHLD || sig == sigCONT || sig == sigWNCH {
		return
	}
	bit := uint64(1) << uint(sig)
	if sig != sigKILL {
		if p.ignored.Load()&bit != 0 {
			return
		}
		if p.caught.Load()&bit != 0 {
			p.pending.Or(bit)
			select {
			case p.wake <- struct{}{}:
			default:
			}
			return
		}
	}
	p.cancel(killedBy{sig})
}

// finish records how the process ended.
func (p *proc) finish(code int) {
	if sig := signalOf(p.ctx); sig != 0 {
		p.signum, code = sig, 128+sig
	}
	p.code = code
	p.cancel(nil)
	p.m.charge(-p.mem.Load())
	p.m.forget(p)
	close(p.done)
}

// signalOf returns the signal that ended a context, 0 while it lives.
func signalOf(ctx context.Context) int {
	if ctx.Err() == nil {
		return 0
	}
	var k killedBy
	if errors.As(context.Cause(ctx), &k) {
		return k.sig
	}
	return sigKILL // the machine itself was closed
}

// charge takes n bytes of memory for this process, until it ends.
func (p *proc) charge(n int64) bool {
	if !p.m.charge(n) {
		return false
	}
	p.mem.Add(n)
	return true
}

// limit ends the whole tree, saying which bound was reached.
func (p *proc) limit(message string) {
	p.tree.mu.Lock()
	if p.tree.message == "" {
		p.tree.message = message
	}
	p.tree.mu.Unlock()
	for _, o := range p.m.table() {
		if o.tree == p.tree {
			o.cancel(killedBy{sigKILL})
		}
	}
}

// Spec is a process to start.
type Spec struct {
	Path  string   // looked up in Env's PATH when it has no slash
	Args  []string // without the program's own name
	Env   []string // the whole environment
	Dir   string
	UID   uint32
	GID   uint32
	TTY   *TTY  // its terminal; then the three below are not used
	Stdin *Pipe // nil reads end of file at once
	Out   *Pipe // nil discards
	Err   *Pipe // nil discards
}

// Process is a started process.
type Process struct{ p *proc }

// PID returns its process id.
func (p *Process) PID() int { return p.p.pid }

// Signal sends a signal to its whole process group.
func (p *Process) Signal(sig int) error { return p.p.m.signal(-p.p.pgid, sig, 0) }

// Exit is how a process ended.
type Exit struct {
	Code    int // exit status; 128 + Signal when a signal ended it
	Signal  int
	Message string // the limit that ended it, if one did
}

// Wait returns when the process has ended. Children may still run.
func (p *Process) Wait() Exit {
	<-p.p.done
	p.p.tree.mu.Lock()
	defer p.p.tree.mu.Unlock()
	e := Exit{Code: p.p.code, Signal: p.p.signum}
	if e.Signal == sigKILL {
		e.Message = p.p.tree.message
	}
	return e
}
