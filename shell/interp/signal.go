package interp

import (
	"context"
	"errors"
	"strconv"
	"strings"
)

// Numbers of the signals that the machine treats specially.
const (
	sigHUP  = 1
	sigINT  = 2
	sigQUIT = 3
	sigKILL = 9
	sigPIPE = 13
	sigTERM = 15
	sigCHLD = 17
	sigCONT = 18
	sigSTOP = 19
	sigTSTP = 20
	sigTTIN = 21
	sigTTOU = 22
	sigURG  = 23
	sigXFSZ = 25
	sigWNCH = 28
)

var signalNames = map[int]string{1: "HUP", 2: "INT", 3: "QUIT", 4: "ILL", 5: "TRAP", 6: "ABRT", 7: "BUS", 8: "FPE",
	9: "KILL", 10: "USR1", 11: "SEGV", 12: "USR2", 13: "PIPE", 14: "ALRM", 15: "TERM", 16: "STKFLT", 17: "CHLD", 18: "CONT", 19: "STOP",
	20: "TSTP", 21: "TTIN", 22: "TTOU", 23: "URG", 24: "XCPU", 25: "XFSZ", 26: "VTALRM", 27: "PROF", 28: "WINCH", 29: "IO", 30: "PWR", 31: "SYS"}

func init() {
	const first, middle, last = 34, 49, 64
	for n := first; n <= last; n++ {
		switch {
		case n == first:
			signalNames[n] = "RTMIN"
		case n <= middle:
			signalNames[n] = "RTMIN+" + strconv.Itoa(n-first)
		case n < last:
			signalNames[n] = "RTMAX-" + strconv.Itoa(last-n)
		default:
			signalNames[n] = "RTMAX"
		}
	}
}

// signalText are the words of a client for the effect of a signal.
var signalText = map[int]string{1: "hangup", 2: "interrupt", 3: "quit", 6: "aborted", 9: "killed", 13: "broken pipe", 14: "alarm clock", 15: "terminated"}

// jobText are the words of a shell for a job that a signal ended.
var jobText = map[int]string{1: "Hangup", 2: "Interrupt", 3: "Quit", 4: "Illegal instruction", 5: "Trace/breakpoint trap", 6: "Aborted", 7: "Bus error",
	8: "Floating point exception", 9: "Killed", 10: "User defined signal 1", 11: "Segmentation fault", 12: "User defined signal 2", 13: "Broken pipe",
	14: "Alarm clock", 15: "Terminated", 16: "Stack fault", 24: "CPU time limit exceeded", 25: "File size limit exceeded", 26: "Virtual timer expired",
	27: "Profiling timer expired", 29: "I/O possible", 30: "Power failure", 31: "Bad system call"}

// SignalText returns the description of a signal in the words of package os: "killed",
// "terminated".
func SignalText(sig int) string {
	if s, ok := signalText[sig]; ok {
		return s
	}
	return "signal " + strconv.Itoa(sig)
}

// parseSignal reads TERM, SIGTERM or 15. EXIT and 0 are 0.
func parseSignal(s string) (int, bool) {
	if n, err := strconv.Atoi(s); err == nil {
		return n, n >= 0 && n <= 64
	}
	s = strings.TrimPrefix(strings.ToUpper(s), "SIG")
	if s == "EXIT" {
		return 0, true
	}
	for n, name := range signalNames {
		if name == s {
			return n, true
		}
	}
	return 0, false
}

// sigBit is a signal's bit in a set.
func sigBit(sig int) uint64 {
	if sig < 1 || sig > 64 {
		return 0
	}
	return 1 << uint(sig-1)
}

// killedBy is the cause of the end of a process's context.
type killedBy struct{ sig int }

func (k killedBy) Error() string { return "signal: " + SignalText(k.sig) }

// signalOf returns the signal that ended a context, or 0 while the context lives.
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

// deliver gives a process a signal.
func (p *proc) deliver(sig int) {
	bit := sigBit(sig)
	if bit == 0 {
		return
	}
	if sig == sigCONT || sig == sigKILL {
		p.resume()
	}
	if sig != sigKILL && sig != sigSTOP {
		if p.ignored.Load()&bit != 0 {
			return
		}
		if p.caught.Load()&bit != 0 {
			p.pending.Or(bit)
			p.attention.Store(true)
			p.poke()
			return
		}
	}
	switch sig {
	case sigCHLD, sigCONT, sigURG, sigWNCH:
	case sigSTOP, sigTSTP, sigTTIN, sigTTOU:
		p.suspend(sig)
	default:
		p.kill(sig)
	}
}

// kill ends the process by a signal.
func (p *proc) kill(sig int) {
	p.mu.Lock()
	cancel := p.cancel
	p.mu.Unlock()
	cancel(killedBy{sig})
	p.resume()
	p.m.kick()
}

// poke wakes a process that waits for its children or sleeps, so that it checks for events.
func (p *proc) poke() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
	p.m.kick()
}

// suspend stops the process at its next step until it gets SIGCONT.
func (p *proc) suspend(sig int) {
	p.mu.Lock()
	if p.goOn == nil {
		p.goOn = make(chan struct{})
	}
	p.stopSig = sig
	p.mu.Unlock()
	p.attention.Store(true)
	if t := p.tree.tty; t != nil {
		t.look()
	}
	p.poke()
	if p.parent != nil {
		p.parent.childChanged()
	}
}

// childChanged tells a shell that a child has stopped, continued or ended.
func (p *proc) childChanged() {
	if p.caught.Load()&sigBit(sigCHLD) != 0 {
		p.pending.Or(sigBit(sigCHLD))
		p.attention.Store(true)
	}
	p.poke()
}

// resume continues a stopped process.
func (p *proc) resume() {
	p.mu.Lock()
	c := p.goOn
	p.goOn, p.stopSig = nil, 0
	p.mu.Unlock()
	if c != nil {
		close(c)
		p.poke()
	}
}

// stopped returns the signal that stopped the process, or 0 while it runs.
func (p *proc) stopped() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stopSig
}

// halt waits while the process is stopped.
func (p *proc) halt(ctx context.Context) {
	for {
		p.mu.Lock()
		c := p.goOn
		p.mu.Unlock()
		if c == nil || ctx.Err() != nil {
			return
		}
		if s := p.m.sched; s != nil {
			s.block(p, func() bool { return p.stopped() == 0 || ctx.Err() != nil }, 0)
			continue
		}
		select {
		case <-c:
		case <-ctx.Done():
			return
		}
	}
}
