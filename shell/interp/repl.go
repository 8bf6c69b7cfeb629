package interp

import (
	"context"
	"errors"
	"strconv"

	"mvdan.cc/sh/v3/syntax"
)

// repl is the interactive shell: prompt, read, run, until end of file or exit.
func (r *runner) repl(t *TTY) {
	r.opts.monitor = true
	r.term = &editor{r: r, t: t}
	for _, sig := range []int{sigINT, sigQUIT, sigTERM, sigTSTP, sigTTIN, sigTTOU} {
		r.p.ignored.Or(sigBit(sig))
	}
	line := &lineBreaker{t: t, cancel: func(error) {}}
	line.watch(r)
	if r.lookup("PS1") == nil {
		r.set("PS1", `\u@\h:\w\$ `)
	}
	if r.lookup("PS2") == nil {
		r.set("PS2", "> ")
	}
	for r.p.ctx.Err() == nil {
		r.ctx = line.begin(r.p.ctx)
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
		r.commands++
		if warned {
			r.warned = false
		}
		interrupted := line.wasBroken()
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
	line.end()
	r.hangUpJobs()
}

// lineBreaker ends the line that an interactive shell runs, when a person types ^C. The terminal's
// lock guards it.
type lineBreaker struct {
	t      *TTY
	cancel context.CancelCauseFunc // ends the line's context
	broken bool                    // since the prompt
}

// watch makes ^C end the shell's lines while the shell is in the foreground.
func (l *lineBreaker) watch(r *runner) {
	l.t.mu.Lock()
	defer l.t.mu.Unlock()
	r.breakLine = l.breakLine
	group := l.t.intr
	l.t.intr = func(sig int) {
		if l.t.group() != r.p.pgid {
			group(sig)
			return
		}
		if sig == sigINT {
			l.breakLine()
			if r.p.caught.Load()&sigBit(sigINT) != 0 {
				r.p.deliver(sigINT)
			}
			r.m.kick()
			if l.t.group() != r.p.pgid { // a job has come to the foreground: ^C was for it
				group(sig)
			}
		}
	}
}

// breakLine ends the line that runs.
func (l *lineBreaker) breakLine() {
	l.t.mu.Lock()
	defer l.t.mu.Unlock()
	l.broken = true
	l.cancel(killedBy{sigINT})
}

// begin returns a context for the next line.
func (l *lineBreaker) begin(outer context.Context) context.Context {
	l.t.mu.Lock()
	defer l.t.mu.Unlock()
	l.cancel(nil)
	var ctx context.Context
	ctx, l.cancel = context.WithCancelCause(outer)
	l.broken = false
	return ctx
}

// wasBroken reports whether ^C was typed since the prompt.
func (l *lineBreaker) wasBroken() bool {
	l.t.mu.Lock()
	defer l.t.mu.Unlock()
	return l.broken
}

// end releases the last line's context.
func (l *lineBreaker) end() {
	l.t.mu.Lock()
	defer l.t.mu.Unlock()
	l.cancel(nil)
}

// promptCommand runs PROMPT_COMMAND. An error or interrupt in it does not end the shell.
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

// ignoreEOF reports whether to ignore an end of file. If so, it writes a message.
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

// warnStopped writes a message if there are stopped jobs, and reports that.
func (r *runner) warnStopped() bool {
	for _, j := range r.jobs {
		if !j.p.ended() && j.p.stopped() != 0 {
			r.writeErr("There are stopped jobs.\n")
			return true
		}
	}
	return false
}

// hangUpJobs hangs up the stopped jobs when an interactive shell exits. A login shell with
// huponexit hangs up all jobs. Jobs that disown has marked are left alone.
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

// readCommand prompts and reads lines until a command is complete.
func (r *runner) readCommand() (stmts []*syntax.Stmt, eof bool) {
	if r.exiting && r.flow == flowExit {
		return nil, true
	}
	defer r.term.rest()
	src := ""
	prompt := r.prompt(r.str("PS1"), true)
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
		if line, err = r.typed(line); err != nil {
			return nil, false
		}
		src += line
		parsed, perr := parse(r.expandAliases(src))
		if perr == nil {
			r.record(src)
			r.pay(len(src))
			return parsed, false
		}
		if !incomplete(perr) || len(src) >= maxSource {
			r.record(src)
			r.parseFailed(perr)
			return nil, false
		}
		prompt = r.prompt(r.str("PS2"), true)
	}
}

// errNoEvent is the error of a line that refers to an event not in the history.
var errNoEvent = errors.New("event not found")

// typed expands the history events of a typed line, and shows the expanded line.
func (r *runner) typed(line string) (string, error) {
	if !r.interactive || !r.opts.histexpand || !r.opts.history {
		return line, nil
	}
	text, bad := r.expandHistory(line)
	if bad != "" {
		r.errorf("%s", bad)
		r.status = 1
		return "", errNoEvent
	}
	if text != line {
		r.writeErr(text)
	}
	return text, nil
}
