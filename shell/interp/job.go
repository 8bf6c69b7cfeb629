package interp

import (
	"cmp"
	"errors"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"

	"mvdan.cc/sh/v3/syntax"
)

// job is a background or stopped process of a shell.
type job struct {
	id    int
	p     *proc
	text  string
	nohup bool // disown -h
	told  bool // its present state was shown
	group bool // has its own process group
	shown int  // the last stop signal shown to the user
}

var (
	errNoJob     = errors.New("no such job")
	errManyJobs  = errors.New("ambiguous job spec")
	maxEnded     = 4096 // ended jobs whose status is remembered
	stateColumns = 24
)

// addJob puts a process on the list of jobs.
func (r *runner) addJob(p *proc, text string, group bool) *job {
	id := 1
	if n := len(r.jobs); n > 0 {
		id = r.jobs[n-1].id + 1
	}
	if n := len(r.jobs); n > 0 && r.jobs[n-1].p.parent != r.p { // the parent's, for show
		r.jobs, id = nil, 1
	}
	j := &job{id: id, p: p, text: text, group: group}
	r.jobs = append(r.jobs, j)
	r.mark(j)
	return j
}

// mark makes j the current job.
func (r *runner) mark(j *job) {
	if r.jobMarks[0] != j {
		r.jobMarks[1] = r.jobMarks[0]
		r.jobMarks[0] = j
	}
}

// marks returns the jobs that + and - name.
func (r *runner) marks() (current, previous *job) {
	alive := func(j *job) bool { return j != nil && slices.Contains(r.jobs, j) }
	pick := func(not *job) *job {
		for i := len(r.jobs) - 1; i >= 0; i-- {
			if j := r.jobs[i]; j != not && j.p.stopped() != 0 {
				return j
			}
		}
		for i := len(r.jobs) - 1; i >= 0; i-- {
			if j := r.jobs[i]; j != not && !j.p.ended() {
				return j
			}
		}
		for i := len(r.jobs) - 1; i >= 0; i-- {
			if j := r.jobs[i]; j != not {
				return j
			}
		}
		return nil
	}
	if current = r.jobMarks[0]; !alive(current) {
		if current = r.jobMarks[1]; !alive(current) {
			current = pick(nil)
		}
	}
	if previous = r.jobMarks[1]; !alive(previous) || previous == current {
		previous = pick(current)
	}
	return current, previous
}

// dropJob removes a job from the list. Its status is remembered.
func (r *runner) dropJob(j *job) {
	if i := slices.Index(r.jobs, j); i >= 0 {
		cur, prev := r.marks()
		r.jobs = slices.Delete(r.jobs, i, i+1)
		switch j {
		case cur:
			r.jobMarks = [2]*job{prev, nil}
		case prev:
			r.jobMarks = [2]*job{cur, nil}
		}
	}
	r.remember(j.p)
}

// remember stores a child's status for wait.
func (r *runner) remember(p *proc) {
	if r.ended == nil {
		r.ended = map[int]*proc{}
	}
	if len(r.ended) >= maxEnded {
		r.ended = map[int]*proc{}
	}
	r.ended[p.pid] = p
}

// findJob finds a job by %spec.
func (r *runner) findJob(spec string) (*job, error) {
	cur, prev := r.marks()
	s := strings.TrimPrefix(spec, "%")
	switch s {
	case "", "+", "%":
		if cur == nil {
			return nil, errNoJob
		}
		return cur, nil
	case "-":
		if prev == nil {
			prev = cur
		}
		if prev == nil {
			return nil, errNoJob
		}
		return prev, nil
	}
	if n, err := strconv.Atoi(s); err == nil {
		for _, j := range r.jobs {
			if j.id == n {
				return j, nil
			}
		}
		return nil, errNoJob
	}
	var found *job
	part, inside := strings.CutPrefix(s, "?")
	for _, j := range r.jobs {
		if inside && strings.Contains(j.text, part) || !inside && strings.HasPrefix(j.text, s) {
			if found != nil {
				return nil, errManyJobs
			}
			found = j
		}
	}
	if found == nil {
		return nil, errNoJob
	}
	return found, nil
}

// jobOf finds a job by pid or %spec.
func (r *runner) jobOf(s string) (*job, error) {
	if strings.HasPrefix(s, "%") {
		return r.findJob(s)
	}
	pid, err := strconv.Atoi(s)
	if err != nil {
		return nil, errNoJob
	}
	for _, j := range r.jobs {
		if j.p.pid == pid {
			return j, nil
		}
	}
	return nil, errNoJob
}

// state describes the state of a job in bash's words.
func (j *job) state() string {
	if !j.p.ended() {
		switch j.p.stopped() {
		case 0:
			return "Running"
		case sigTTIN:
			return "Stopped (tty input)"
		case sigTTOU:
			return "Stopped (tty output)"
		}
		return "Stopped"
	}
	switch {
	case j.p.signum != 0:
		return cmp.Or(jobText[j.p.signum], "Signal "+strconv.Itoa(j.p.signum))
	case j.p.code != 0:
		return "Exit " + strconv.Itoa(j.p.code)
	}
	return "Done"
}

// jobLine returns the line of a job in the output of jobs.
func (r *runner) jobLine(j *job, long bool) string {
	mark := " "
	switch cur, prev := r.marks(); j {
	case cur:
		mark = "+"
	case prev:
		mark = "-"
	}
	state := j.state()
	tail := ""
	if state == "Running" {
		tail = " &"
	}
	pid := " "
	if long {
		pid = strconv.Itoa(j.p.pid) + " "
	}
	return "[" + strconv.Itoa(j.id) + "]" + mark + " " + pid + padTo(state, stateColumns) + j.text + tail + "\n"
}

// background starts a statement as a job.
func (r *runner) background(s *syntax.Stmt) {
	sub, err := r.fork(false)
	if err != nil {
		r.forkFailed(err)
		return
	}
	sub.loops = 0
	if r.opts.monitor {
		sub.p.lead()
	} else {
		if sub.fds.get(0) != nil && !r.stdinRedir {
			sub.fds.set(0, newDesc(nullStream{}))
		}
		sub.p.ignored.Or(sigBit(sigINT) | sigBit(sigQUIT))
	}
	sub.opts.monitor = false
	fg := *s
	fg.Background, fg.Disown = false, false
	j := r.addJob(sub.p, sourceText(&fg), r.opts.monitor)
	r.lastBg = sub.p.pid
	if r.interactive {
		r.writeErr("[" + strconv.Itoa(j.id) + "] " + strconv.Itoa(r.lastBg) + "\n")
	}
	r.m.work(sub.p, func() {
		sub.contain(func() { sub.forked(&fg) })
		sub.end(sub.status)
	})
	r.status = 0
}

// foreground runs fn as a job in the foreground of the terminal. It waits until the job ends or
// stops.
func (r *runner) foreground(text string, fn func(s *runner)) {
	s, err := r.fork(false)
	if err != nil {
		r.forkFailed(err)
		return
	}
	s.loops, s.opts.monitor = 0, false
	s.p.lead()
	s.p.ignored.Store(r.p.ignored.Load() &^ (sigBit(sigINT) | sigBit(sigQUIT) | sigBit(sigTERM) | sigBit(sigTSTP) | sigBit(sigTTIN) | sigBit(sigTTOU)))
	if tty := r.p.tree.tty; tty != nil {
		tty.setGroup(s.p.pgid)
	}
	if r.ctx.Err() != nil { // ^C came before the job was in the foreground
		_ = r.m.signal(-s.p.pgid, sigINT, 0)
	}
	var pipe []int
	r.m.work(s.p, func() {
		s.contain(func() { fn(s) })
		pipe = s.savePipeStatus()
		s.end(s.status)
	})
	if r.watch(&job{p: s.p, text: text, group: true}) && len(pipe) > 1 {
		r.setPipeStatuses(pipe)
	}
}

// watch waits for a foreground job. It returns false when the job has stopped and has become a
// background job.
func (r *runner) watch(j *job) bool {
	done := func() bool { return j.p.ended() || j.p.stopped() != 0 }
	for !done() && r.p.ctx.Err() == nil {
		r.look(r.p.ctx, done)
	}
	if tty := r.p.tree.tty; tty != nil {
		tty.setGroup(r.p.pgid)
	}
	if r.p.ctx.Err() != nil {
		j.p.kill(sigHUP)
		r.killed()
		return false
	}
	if sig := j.p.stopped(); sig != 0 && !j.p.ended() {
		if j.id == 0 {
			k := r.addJob(j.p, j.text, true)
			*j = *k
			j = k
		}
		r.mark(j)
		j.told, j.shown = true, sig
		r.writeErr("\n" + r.jobLine(j, false))
		r.status = 128 + sig
		return false
	}
	r.dropJob(j)
	r.status = j.p.code
	switch j.p.signum {
	case 0, sigPIPE:
	case sigINT:
		r.writeErr("\n")
		if r.breakLine != nil {
			r.breakLine()
		}
	default:
		r.writeErr(j.state() + "\n")
	}
	return true
}

// childSignaled writes a message when a signal has ended a foreground child.
func (r *runner) childSignaled(p *proc) {
	if p.signum == 0 || p.signum == sigINT || p.signum == sigPIPE || r.ctx.Err() != nil || p.tree.message != "" {
		return
	}
	r.errorf("%d %s", p.pid, cmp.Or(jobText[p.signum], "Signal "+strconv.Itoa(p.signum)))
}

// look waits for an event that the process must handle: cond becomes true, a child changes, or a
// signal arrives.
func (r *runner) look(ctx interface {
	Done() <-chan struct{}
	Err() error
}, cond func() bool) {
	if s := r.m.sched; s != nil {
		s.block(r.p, func() bool { return cond() || r.p.pending.Load() != 0 || ctx.Err() != nil }, 0)
		return
	}
	select {
	case <-r.p.wake:
	case <-ctx.Done():
	}
}

// await waits for a child that is sure to end.
func (m *Machine) await(p, child *proc) {
	if s := m.sched; s != nil {
		for !child.ended() {
			s.block(p, child.ended, 0)
		}
		return
	}
	<-child.done
}

// waitUntil waits for cond. It returns false, with the status set, in two cases: a signal with a
// trap came first and the trap has run, or the process is being ended.
func (r *runner) waitUntil(cond func() bool) bool {
	for {
		if r.ctx.Err() != nil {
			r.killed()
			return false
		}
		pending := r.p.pending.Load()
		if pending == 0 && cond() {
			return true
		}
		if pending != 0 {
			only := pending == sigBit(sigCHLD)
			status := 129 + bits.TrailingZeros64(pending)
			r.attend()
			if r.flow != flowNone {
				return false
			}
			if only && !r.opts.posix {
				continue
			}
			r.status = status
			return false
		}
		if r.p.stopped() != 0 {
			r.p.halt(r.ctx)
		}
		r.look(r.ctx, cond)
	}
}

// nap sleeps. It returns false when the process is being ended.
func (r *runner) nap(d time.Duration) bool {
	if d <= 0 {
		return r.ctx.Err() == nil
	}
	if s := r.m.sched; s != nil {
		s.block(r.p, func() bool { return r.ctx.Err() != nil }, d)
	} else {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
		case <-r.ctx.Done():
		}
	}
	if r.p.stopped() != 0 {
		r.p.halt(r.ctx)
	}
	if r.ctx.Err() != nil {
		r.killed()
		return false
	}
	return true
}

// notify shows the jobs whose state has changed, before a prompt. It forgets jobs that have ended.
func (r *runner) notify() {
	for _, j := range slices.Clone(r.jobs) {
		sig := j.p.stopped()
		switch {
		case j.p.ended():
			r.writeErr(r.jobLine(j, false))
			r.dropJob(j)
		case sig != 0 && j.shown != sig:
			j.shown = sig
			r.writeErr(r.jobLine(j, false))
		case sig == 0:
			j.shown = 0
		}
	}
}

// jobControl is called when job control begins. The machine needs no action then.
func (r *runner) jobControl() {}
