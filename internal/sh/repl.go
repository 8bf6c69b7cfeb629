package sh

import (
	"context"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// maxHistory is how many lines an interactive shell remembers.
const maxHistory = 1000

// repl is the interactive shell: prompt, read, run, until end of file or exit.
func (r *runner) repl(t *TTY) {
	r.opts.monitor = true
	r.term = &editor{r: r, t: t}
	for _, sig := range []int{sigINT, sigQUIT, sigTERM, sigTSTP, sigTTIN, sigTTOU} {
		r.p.ignored.Or(sigBit(sig))
	}
	var cancel context.CancelCauseFunc = func(error) {}
	var broken bool // by ^C since the prompt
	t.mu.Lock()
	group := t.intr
	breakLine := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		broken = true
		cancel(killedBy{sigINT})
	}
	r.breakLine = breakLine
	t.intr = func(sig int) {
		if t.group() != r.p.pgid {
			group(sig)
			return
		}
		if sig == sigINT {
			breakLine()
			if r.p.caught.Load()&sigBit(sigINT) != 0 {
				r.p.deliver(sigINT)
			}
			r.m.kick()
		}
	}
	t.mu.Unlock()
	if r.lookup("PS1") == nil {
		r.set("PS1", `\u@\h:\w\$ `)
	}
	if r.lookup("PS2") == nil {
		r.set("PS2", "> ")
	}
	for r.p.ctx.Err() == nil {
		t.mu.Lock()
		cancel(nil)
		r.ctx, cancel = context.WithCancelCause(r.p.ctx)
		broken = false
		t.mu.Unlock()
		r.flow, r.loops, r.noErrExit, r.calls, r.running = flowNone, 0, 0, nil, nil
		for len(r.scopes) > 1 {
			r.popScope()
		}
		r.depth = 0
		r.notify()
		r.promptCommand()
		stmts, eof := r.readCommand()
		if eof {
			if r.ignoreEOF() {
				continue
			}
			if !r.warned && r.warnStopped() {
				r.warned = true
				continue
			}
			if r.opts.loginShell {
				r.writeErr("logout\n")
			} else {
				r.writeErr("exit\n")
			}
			break
		}
		warned := r.warned
		r.stmts(stmts)
		if warned {
			r.warned = false
		}
		t.mu.Lock()
		interrupted := broken
		t.mu.Unlock()
		if r.flow == flowExit && !interrupted && r.exiting {
			break
		}
		if r.opts.errexit && r.flow == flowExit && !interrupted && r.status != 0 {
			break
		}
		if interrupted {
			r.status = 128 + sigINT
		}
	}
	r.ctx = r.p.ctx
	t.mu.Lock()
	cancel(nil)
	t.mu.Unlock()
	r.hangUpJobs()
}

// promptCommand runs PROMPT_COMMAND; what goes wrong in it ends with it.
func (r *runner) promptCommand() {
	v := r.lookup("PROMPT_COMMAND")
	if v == nil {
		return
	}
	status := r.status
	for _, cmd := range v.list() {
		if cmd == "" {
			continue
		}
		r.script(cmd)
		if r.exiting && r.flow == flowExit {
			return
		}
		r.flow = flowNone
	}
	r.status = status
}

// ignoreEOF reports whether an end of file is to be passed over, which it says.
func (r *runner) ignoreEOF() bool {
	v, ok := r.get("IGNOREEOF")
	if !ok && !r.opts.ignoreEOF {
		r.eofs = 0
		return false
	}
	most, err := strconv.Atoi(v)
	if err != nil {
		most = 10
	}
	if r.eofs++; r.eofs > most {
		return false
	}
	r.writeErr("Use \"exit\" to leave the shell.\n")
	return true
}

// warnStopped says that there are stopped jobs.
func (r *runner) warnStopped() bool {
	for _, j := range r.jobs {
		if !j.p.ended() && j.p.stopped() != 0 {
			r.writeErr("There are stopped jobs.\n")
			return true
		}
	}
	return false
}

// hangUpJobs ends what an interactive shell leaves behind: stopped jobs, and with
// huponexit all.
func (r *runner) hangUpJobs() {
	for _, j := range r.jobs {
		if j.nohup || j.p.ended() {
			continue
		}
		if j.p.stopped() != 0 || r.opts.huponexit && r.opts.loginShell {
			r.signalJob(j, sigHUP)
			r.signalJob(j, sigCONT)
		}
	}
}

// readCommand prompts and reads until there is a whole command.
func (r *runner) readCommand() (stmts []*syntax.Stmt, eof bool) {
	if r.exiting && r.flow == flowExit {
		return nil, true
	}
	defer r.term.rest()
	src := ""
	prompt := r.prompt(r.str("PS1"))
	for {
		line, err := r.term.readLine(prompt)
		if err != nil && line == "" {
			if r.p.ctx.Err() != nil || r.ctx.Err() == nil {
				if src != "" && r.p.ctx.Err() == nil {
					r.writeErr(r.name + ": syntax error: unexpected end of file\n")
					r.status = 2
					return nil, false
				}
				return nil, true
			}
			r.status = 128 + sigINT
			return nil, false // ^C: a new prompt
		}
		src += line
		parsed, perr := parse(r.expandAliases(src))
		if perr == nil {
			r.term.remember(src)
			r.pay(len(src))
			return parsed, false
		}
		if !incomplete(perr) || len(src) >= maxSource {
			r.term.remember(src)
			r.parseFailed(perr)
			return nil, false
		}
		prompt = r.prompt(r.str("PS2"))
	}
}

// biHistory shows the lines that were typed.
func biHistory(c *call) int {
	if c.r.term == nil {
		return 0
	}
	h := c.r.term
	most := len(h.history)
	if len(c.args) > 0 {
		switch a := c.args[0]; {
		case a == "-c":
			h.history = nil
			return 0
		case strings.HasPrefix(a, "-"):
			return 0
		default:
			n, err := strconv.Atoi(a)
			if err != nil {
				return c.fail(1, "%s: numeric argument required", a)
			}
			most = min(most, max(n, 0))
		}
	}
	var b strings.Builder
	for i := len(h.history) - most; i < len(h.history); i++ {
		n := strconv.Itoa(i + 1)
		b.WriteString(strings.Repeat(" ", max(5-len(n), 0)) + n + "  " + h.history[i] + "\n")
	}
	return c.print(b.String())
}

// biFc lists the lines that were typed; it edits none.
func biFc(c *call) int {
	if len(c.args) > 0 && strings.HasPrefix(c.args[0], "-l") {
		next := *c
		next.args = nil
		return biHistory(&next)
	}
	return c.fail(1, "no command found")
}
