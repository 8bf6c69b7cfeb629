package interp

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// tree is shared by a started process and all its descendants.
type tree struct {
	steps  atomic.Int64
	output atomic.Int64
	procs  atomic.Int64
	tty    *TTY

	mu      sync.Mutex
	bound   Limit       // that ended it
	message string      // and how far it went
	wall    *time.Timer // ends it
}

// proc is one process: a shell, or a part of a shell that runs concurrently.
type proc struct {
	m         *Machine
	parent    *proc
	pid, ppid int
	pgid      int
	uid       uint32
	args      []string
	started   time.Time
	tree      *tree
	turn      *turn // of a deterministic machine

	ctx context.Context
	mem atomic.Int64

	// caught and ignored are sets of signals with a trap. pending is the set of signals that have
	// arrived. wake has room for one value and ends a sleep or wait. attention is set when there is
	// something to handle besides the end of the context.
	caught, ignored, pending atomic.Uint64
	attention                atomic.Bool
	wake                     chan struct{}

	mu      sync.Mutex
	cancel  context.CancelCauseFunc
	goOn    chan struct{} // closed by SIGCONT; nil while the process runs
	stopSig int
	settled bool // its memory has been given back
	killer  int  // the signal that ended it, once its EXIT trap has another context

	done   chan struct{}
	code   int // valid once done is closed
	signum int
}

// procKey is the key of the process in its context.
type procKey struct{}

// procCtx is a process's context.
type procCtx struct {
	context.Context
	p *proc
}

// Value implements context.Context.
func (c *procCtx) Value(key any) any {
	if _, ok := key.(procKey); ok {
		return c.p
	}
	return c.Context.Value(key)
}

// procOf returns the process with this context, or nil for a context of the host.
func procOf(ctx context.Context) *proc {
	p, _ := ctx.Value(procKey{}).(*proc)
	return p
}

// finish records how the process ended.
func (p *proc) finish(code int) {
	if p.killer != 0 {
		p.signum, code = p.killer, 128+p.killer
	} else if sig := signalOf(p.ctx); sig != 0 {
		p.signum, code = sig, 128+sig
	}
	p.code = code
	p.mu.Lock()
	cancel := p.cancel
	p.mu.Unlock()
	cancel(nil)
	p.mu.Lock()
	p.settled = true
	p.m.charge(-p.mem.Load())
	p.mu.Unlock()
	p.m.forget(p)
	if p.tree.procs.Add(-1) == 0 {
		p.tree.mu.Lock()
		if p.tree.wall != nil {
			p.tree.wall.Stop()
		}
		p.tree.mu.Unlock()
	}
	close(p.done)
	if p.parent != nil {
		p.parent.childChanged()
	}
}

// ended reports whether the process has ended.
func (p *proc) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// revive gives a process that a signal ends a new context for its EXIT trap. It reports whether the
// trap may run.
func (p *proc) revive() bool {
	sig := signalOf(p.ctx)
	if sig == sigKILL || p.m.ctx.Err() != nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	inner, cancel := context.WithCancelCause(p.m.ctx)
	p.ctx, p.cancel, p.killer = &procCtx{inner, p}, cancel, sig
	return true
}

// charge takes n bytes of memory for this process. They are given back when it ends.
func (p *proc) charge(n int64) bool {
	if !p.m.charge(n) {
		return false
	}
	p.mem.Add(n)
	return true
}

// giveBack returns n bytes. It may be called from another process, or after this one has ended.
func (p *proc) giveBack(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.settled {
		p.charge(-n)
	}
}

// limit ends the whole tree and records the limit that was reached.
func (p *proc) limit(bound Limit, message string) {
	p.tree.mu.Lock()
	if p.tree.message == "" {
		p.tree.bound, p.tree.message = bound, message
	}
	p.tree.mu.Unlock()
	for _, o := range p.m.table() {
		if o.tree == p.tree {
			o.kill(sigKILL)
		}
	}
}

// Spec is a process to start.
type Spec struct {
	Path  string   // searched in Env's PATH if it has no slash
	Args  []string // without the program's own name
	Env   []string // the whole environment
	Dir   string
	UID   uint32
	GID   uint32
	TTY   *TTY  // its terminal; if set, the three fields below are not used
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

// End kills the process and everything that it started, including background jobs. It returns when
// all have ended.
func (p *Process) End() {
	for {
		var last *proc
		for _, o := range p.p.m.table() { // a process that is being killed may still make another: look again
			if o.tree == p.p.tree {
				o.kill(sigKILL)
				last = o
			}
		}
		if last == nil {
			return
		}
		<-last.done
	}
}

// Exit is how a process ended.
type Exit struct {
	Code    int // exit status; 128 + Signal when a signal ended it
	Signal  int
	Limit   Limit  // that ended it, if one did
	Message string // the reason in words, with the limit's value
}

// Wait returns when the process has ended. Children may still run.
func (p *Process) Wait() Exit {
	<-p.p.done
	p.p.tree.mu.Lock()
	defer p.p.tree.mu.Unlock()
	e := Exit{Code: p.p.code, Signal: p.p.signum}
	if e.Signal == sigKILL {
		e.Limit, e.Message = p.p.tree.bound, p.p.tree.message
	}
	return e
}

// lead makes a new process the leader of a new group.
func (p *proc) lead() {
	p.m.mu.Lock()
	p.pgid = p.pid
	p.m.mu.Unlock()
}
