package sh

import (
	"errors"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// biWait waits for jobs. A signal with a trap ends the waiting.
func biWait(c *call) int {
	r := c.r
	args := c.args
	any := false
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		any = any || strings.Contains(args[0], "n")
		args = args[1:]
	}
	if any && len(r.jobs) > 0 {
		return r.waitAny()
	}
	if len(args) == 0 {
		for _, j := range r.jobs {
			if _, ok := r.await(j.p); !ok {
				return r.status
			}
		}
		r.jobs = nil
		return 0
	}
	status := 0
	for _, a := range args {
		p := r.jobProc(a)
		if p == nil {
			c.r.errorf("wait: pid %s is not a child of this shell", a)
			status = 127
			continue
		}
		code, ok := r.await(p)
		if !ok {
			return r.status
		}
		status = code
	}
	return status
}

// waitAny waits for the next job that ends.
func (r *runner) waitAny() int {
	for {
		for i, j := range r.jobs {
			select {
			case <-j.p.done:
				r.jobs = append(r.jobs[:i:i], r.jobs[i+1:]...)
				return j.p.code
			default:
			}
		}
		if !r.nap(2 * time.Millisecond) {
			return r.status
		}
	}
}

// jobProc finds a job by pid or %number.
func (r *runner) jobProc(s string) *proc {
	if n, ok := strings.CutPrefix(s, "%"); ok {
		i, err := strconv.Atoi(n)
		if err != nil || i < 1 || i > len(r.jobs) {
			return nil
		}
		return r.jobs[i-1].p
	}
	pid, err := strconv.Atoi(s)
	if err != nil {
		return nil
	}
	for _, j := range r.jobs {
		if j.p.pid == pid {
			return j.p
		}
	}
	return nil
}

// await waits for a process; false means that a signal came first.
func (r *runner) await(p *proc) (int, bool) {
	for {
		select {
		case <-p.done:
			return p.code, true
		case <-r.p.wake:
			if sig := r.p.pending.Load(); sig != 0 {
				r.status = 128 + lowest(sig)
				r.runSignalTraps()
				return r.status, false
			}
		case <-r.ctx.Done():
			r.killed()
			return r.status, false
		}
	}
}

func lowest(bits uint64) int {
	for n := range 64 {
		if bits&(1<<uint(n)) != 0 {
			return n
		}
	}
	return 0
}

// nap sleeps; false means that a signal came first.
func (r *runner) nap(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			return true
		case <-r.p.wake:
			if r.p.pending.Load() != 0 {
				return false
			}
		case <-r.ctx.Done():
			r.killed()
			return false
		}
	}
}

func biKill(c *call) int {
	args, sig := c.args, sigTERM
	if len(args) == 0 {
		return c.fail(2, "usage: kill [-s sigspec | -n signum | -sigspec] pid | jobspec ... or kill -l [sigspec]")
	}
	switch a := args[0]; {
	case a == "-l" || a == "-L":
		return killList(c, args[1:])
	case (a == "-s" || a == "-n") && len(args) > 1:
		n, ok := parseSignal(args[1])
		if !ok {
			return c.fail(1, "%s: invalid signal specification", args[1])
		}
		sig, args = n, args[2:]
	case a == "--":
		args = args[1:]
	case len(a) > 1 && a[0] == '-':
		n, ok := parseSignal(a[1:])
		if !ok {
			return c.fail(1, "%s: invalid signal specification", a[1:])
		}
		sig, args = n, args[1:]
	}
	status := 0
	for _, a := range args {
		if a == "--" {
			continue
		}
		pid, err := strconv.Atoi(a)
		if strings.HasPrefix(a, "%") {
			p := c.r.jobProc(a)
			if p == nil {
				status = c.fail(1, "%s: no such job", a)
				continue
			}
			pid, err = p.pid, nil
		}
		if err != nil {
			status = c.fail(1, "%s: arguments must be process or job IDs", a)
			continue
		}
		if pid == 0 {
			pid = -c.r.p.pgid
		}
		if err := c.r.m.signal(pid, sig, c.r.cred().UID); err != nil {
			text := "No such process"
			if errors.Is(err, syscall.EPERM) {
				text = "Operation not permitted"
			}
			status = c.fail(1, "(%s) - %s", a, text)
		}
	}
	return status
}

func killList(c *call, args []string) int {
	if len(args) == 0 {
		return listSignals(c)
	}
	for _, a := range args {
		n, err := strconv.Atoi(a)
		if err != nil {
			if sig, ok := parseSignal(a); ok {
				c.print(strconv.Itoa(sig) + "\n")
				continue
			}
			return c.fail(1, "%s: invalid signal specification", a)
		}
		c.print(signalNames[n&0x7f] + "\n")
	}
	return 0
}

func biJobs(c *call) int {
	for i, j := range c.r.jobs {
		state := "Running"
		select {
		case <-j.p.done:
			state = "Done"
			if j.p.code != 0 {
				state = "Exit " + strconv.Itoa(j.p.code)
			}
		default:
		}
		mark := " "
		if i == len(c.r.jobs)-1 {
			mark = "+"
		}
		if len(c.args) > 0 && c.args[0] == "-p" {
			c.print(strconv.Itoa(j.p.pid) + "\n")
			continue
		}
		tail := ""
		if state == "Running" {
			tail = " &"
		}
		c.print("[" + strconv.Itoa(i+1) + "]" + mark + "  " + state + strings.Repeat(" ", 24-len(state)) + j.text + tail + "\n")
	}
	return 0
}

func biNoJobs(c *call) int { return c.fail(1, "no job control") }
