package agent

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"connectrpc.com/connect"

	"github.com/carrel-dev/carrel/internal/guest/process"
)

const (
	// endedKept is how long a client can still connect to a process that ended while no client
	// listened.
	endedKept = 2 * time.Minute
	// endedMax is the most such processes that are kept.
	endedMax = 128
)

// running is a process that the agent started.
type running struct {
	proc   Proc
	pid    uint32
	seq    uint64
	config *process.ProcessConfig
	tag    *string
	tty    bool
	out    *output
	in     *input
	kept   *tail
	revive *reviver // starts it again; nil for most

	timer    *countdown // kills it at its time limit; nil without a limit
	timedOut atomic.Bool

	told    chan struct{} // closed when a client has received the end event
	tell    func()        // closes it
	release func()        // proc.Release, once
}

func newRunning(proc Proc, req *process.StartRequest) *running {
	r := &running{
		proc: proc, pid: uint32(proc.PID()),
		config: req.GetProcess(), tag: req.Tag, tty: req.Pty != nil,
		out: newOutput(), in: newInput(proc.Stdin(), req.Pty != nil),
		told: make(chan struct{}),
	}
	r.tell = sync.OnceFunc(func() { close(r.told) })
	r.release = sync.OnceFunc(proc.Release)
	return r
}

// kill ends the process group. If the process has just ended, that is no error.
func (r *running) kill() { _ = r.proc.Signal(int(syscall.SIGKILL)) }

// timeOut kills the process at its time limit.
func (r *running) timeOut() {
	r.timedOut.Store(true)
	r.kill()
}

// processes are the processes that the agent started: running ones, and those that ended while no
// client listened.
type processes struct {
	mu     sync.Mutex
	seq    uint64
	live   map[uint32]*running
	ended  []*running // oldest first
	done   []*running // whose end a client was told of, oldest first; see resume.go
	closed bool
}

func (p *processes) init() { p.live = map[uint32]*running{} }

// add registers a process that has just started. It reports false if the agent is closing.
func (p *processes) add(r *running) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.seq++
	r.seq = p.seq
	p.live[r.pid] = r
	p.ended = slices.DeleteFunc(p.ended, func(e *running) bool { return e.pid == r.pid })
	return true
}

// exited moves a process from the running ones to the ended ones that no client knows about.
func (p *processes) exited(r *running) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.live[r.pid] == r {
		delete(p.live, r.pid)
	}
	p.ended = append(p.ended, r)
	if len(p.ended) > endedMax {
		p.ended = slices.Delete(p.ended, 0, len(p.ended)-endedMax)
	}
}

// tell records that a client knows how a process ended. No other will ask.
func (p *processes) tell(r *running) {
	p.forget(r)
	r.tell()
	r.kept.told()
	p.finished(r)
}

// forget drops an ended process: a client knows its end, or it is too old.
func (p *processes) forget(r *running) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = slices.DeleteFunc(p.ended, func(e *running) bool { return e == r })
}

// list returns the running processes by pid.
func (p *processes) list() []*running {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]*running, 0, len(p.live))
	for _, r := range p.live {
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b *running) int { return cmp.Compare(a.pid, b.pid) })
	return out
}

// find returns the process for a selector. If several have the tag, it returns the youngest. Ended
// processes that no client knows about are found only with withEnded.
func (p *processes) find(sel *process.ProcessSelector, withEnded bool) (*running, *connect.Error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	match, missing := selects(sel)
	if match == nil {
		return nil, invalid("process.selector: give a pid or a tag")
	}
	var best *running
	for _, r := range p.live {
		if match(r) && (best == nil || r.seq > best.seq) {
			best = r
		}
	}
	if best == nil && withEnded {
		for _, r := range p.ended {
			if match(r) {
				best = r
			}
		}
	}
	if best == nil {
		return nil, connect.NewError(connect.CodeNotFound, missing)
	}
	return best, nil
}

// selects returns the condition of a selector, and the error if nothing meets it. It returns nil for
// a selector without one.
func selects(sel *process.ProcessSelector) (match func(*running) bool, missing error) {
	switch s := sel.GetSelector().(type) {
	case *process.ProcessSelector_Pid:
		return func(r *running) bool { return r.pid == s.Pid },
			fmt.Errorf("process with pid %d not found", s.Pid)
	case *process.ProcessSelector_Tag:
		return func(r *running) bool { return r.tag != nil && *r.tag == s.Tag },
			fmt.Errorf("process with tag %s not found", s.Tag)
	}
	return nil, nil
}

// killAll ends every process and lets no new one in.
func (p *processes) killAll() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	for _, r := range p.list() {
		r.out.close()
		r.kill()
	}
}

// run registers a started process and begins to read its output. The returned
// listener was there from the first byte. With keep, what the process writes last can be
// read after its end, too.
func (a *Agent) run(r *running, lifetime time.Duration, keep bool) (*listener, *connect.Error) {
	if !a.procs.add(r) {
		r.kill()
		r.proc.Wait()
		r.release()
		return nil, connect.NewError(connect.CodeUnavailable, errClosing)
	}
	r.kept = a.shelf.open(r, keep)
	r.out.kept = r.kept
	l := r.out.listen()
	if lifetime > 0 {
		r.timer = a.uptime.afterFunc(lifetime, r.timeOut)
	}
	a.spawn(func() { a.supervise(r) })
	return l, nil
}

// looker is an optional interface of a Proc. Look tells it that the output has ended. It then
// checks at once whether the process has ended too, so nobody waits for the notification.
type looker interface{ Look() }

// supervise reads a process's output to its end. Then it reports how the process ended.
func (a *Agent) supervise(r *running) {
	var pumps []*pump
	if r.tty {
		pumps = append(pumps, newPump(r.proc.Stdout(), streamTTY, r.out))
	} else {
		pumps = append(pumps, newPump(r.proc.Stdout(), streamOut, r.out), newPump(r.proc.Stderr(), streamErr, r.out))
	}
	drained := make(chan struct{})
	var reading atomic.Int32
	reading.Store(int32(len(pumps)))
	for _, p := range pumps {
		a.spawn(func() {
			p.run()
			if reading.Add(-1) == 0 {
				if l, ok := r.proc.(looker); ok {
					l.Look()
				}
				close(drained)
			}
		})
	}

	exit := r.proc.Wait()
	if r.timer != nil {
		r.timer.stop()
	}
	a.procs.exited(r)
	blind := make([]<-chan time.Time, len(pumps))
	for i, p := range pumps {
		if !isClosed(p.empty) {
			blind[i] = p.exit()
			r.in.close() // a child of it may wait for this
		}
	}
	for i, p := range pumps {
		select {
		case <-p.empty:
		case <-blind[i]:
		case <-a.ctx.Done():
		}
	}
	r.kept.end(exit)
	r.out.finish(endEvent(exit))
	if r.revive != nil && !r.timedOut.Load() {
		r.revive.ended(exit)
	}
	runtime.Gosched() // let those who wait for the end run first
	r.in.close()
	a.linger(r, drained)
	r.out.close()
	r.release()
	<-drained
}

// isClosed reports whether c is closed. Nothing is ever sent to c.
func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// linger returns when an ended process can be forgotten: a client knows its end or it is too old,
// and its pipes are closed. A child that outlived the process may hold the pipes for long. It would
// die of SIGPIPE if we closed our side, so its output is read and dropped until it ends.
func (a *Agent) linger(r *running, drained <-chan struct{}) {
	// Clients that follow the process hear of the end, or leave. Only without any client is there a
	// need for a time limit.
	var old chan struct{}
	alone := r.out.alone
	for told := r.told; told != nil || drained != nil; {
		if drained == nil && !r.out.followed() {
			r.release()
		}
		if alone != nil && told != nil && !isClosed(told) && !r.out.followed() {
			alone = nil
			over := make(chan struct{})
			old = over
			defer a.uptime.afterFunc(endedKept, func() { close(over) }).stop()
		}
		select {
		case <-alone:
		case <-drained:
			drained = nil
		case <-told:
			told = nil
		case <-old:
			told, old = nil, nil
			a.procs.forget(r)
		case <-a.ctx.Done():
			return
		}
	}
}

// endEvent returns the event for an exit status, with envd's texts.
func endEvent(e ExitStatus) *process.ProcessEvent_EndEvent {
	end := &process.ProcessEvent_EndEvent{ExitCode: int32(e.Code), Exited: e.Signal == 0, Status: e.Status}
	if e.ErrorMsg != "" {
		end.Error = &e.ErrorMsg
	}
	return end
}
