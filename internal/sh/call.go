package sh

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"strings"
	"syscall"

	"github.com/carrel-dev/carrel/internal/sh/vfs"
	"mvdan.cc/sh/v3/syntax"
)

// command is a builtin or a tool: it does its work and returns its exit status.
type command func(c *call) int

// call is one run of a command.
type call struct {
	r    *runner
	name string
	args []string // without the name
	env  []string // the environment of a tool
	in   io.Reader
	out  io.Writer
	err  io.Writer
}

// fdReader and fdWriter are a descriptor as seen by a command.
type fdReader struct {
	ctx context.Context
	d   *desc
}

func (f fdReader) Read(b []byte) (int, error) {
	if f.d == nil {
		return 0, syscall.EBADF
	}
	if err := f.ctx.Err(); err != nil {
		return 0, err
	}
	return f.d.Read(f.ctx, b)
}

type fdWriter struct {
	r *runner
	n int
}

func (f fdWriter) Write(b []byte) (int, error) {
	if err := f.r.ctx.Err(); err != nil {
		return 0, err
	}
	if err := f.r.writeFD(f.n, b); err != nil {
		return 0, err
	}
	return len(b), nil
}

// newCall makes the call of a command with the runner's descriptors.
func (r *runner) newCall(name string, args []string) *call {
	return &call{r: r, name: name, args: args,
		in: fdReader{r.ctx, r.fds.get(0)}, out: fdWriter{r, 1}, err: fdWriter{r, 2}}
}

// call runs a simple command: assignments, then a function, a builtin or a tool.
func (r *runner) call(c *syntax.CallExpr) {
	if len(c.Args) == 0 {
		r.status = 0
		r.substStatus = 0
		for _, a := range c.Assigns {
			if !r.assign(a, false) {
				r.status = 1
				return
			}
		}
		r.traceAssigns(c.Assigns)
		if r.flow == flowNone {
			r.status = r.substStatus
		}
		return
	}
	r.substStatus = 0
	args := r.fields(c.Args)
	if r.flow != flowNone {
		return
	}
	if len(args) == 0 {
		for _, a := range c.Assigns {
			r.assign(a, false)
		}
		r.status = r.substStatus
		return
	}
	if len(c.Assigns) > 0 {
		r.scopes = append(r.scopes, scope{})
		defer func() { r.scopes = r.scopes[:len(r.scopes)-1] }()
		for _, a := range c.Assigns {
			r.scopes[len(r.scopes)-1][a.Name.Value] = &variable{exported: true}
			if !r.assign(a, true) || r.flow != flowNone {
				r.status = 1
				return
			}
		}
	}
	r.trace(args)
	r.run(args)
}

// trace prints a command under set -x.
func (r *runner) trace(args []string) {
	if !r.opts.xtrace {
		return
	}
	quoted := make([]string, len(args))
	for i, a := range args {
		quoted[i] = quoteTrace(a)
	}
	r.writeErr(r.ps4() + strings.Join(quoted, " ") + "\n")
}

func (r *runner) ps4() string { return r.str("PS4") }

func (r *runner) traceAssigns(as []*syntax.Assign) {
	if !r.opts.xtrace {
		return
	}
	for _, a := range as {
		if a.Name != nil && a.Array == nil && a.Index == nil {
			r.writeErr(r.ps4() + a.Name.Value + "=" + quoteTrace(r.str(a.Name.Value)) + "\n")
		}
	}
}

// run runs an expanded command and sets the status.
func (r *runner) run(args []string) {
	name := args[0]
	if f, ok := r.funcs[name]; ok {
		r.function(name, f, args[1:])
		return
	}
	if b, ok := r.m.builtins[name]; ok {
		status := b(r.newCall(name, args[1:]))
		if r.flow == flowNone || r.flow == flowBreak || r.flow == flowContinue {
			r.status = status
		}
		r.killed()
		return
	}
	r.status = r.runTool(args, r.environ)
	r.killed()
}

// killed ends the shell when a signal came while a command ran.
func (r *runner) killed() {
	if r.ctx.Err() != nil {
		r.flow, r.status = flowExit, 128+signalOf(r.ctx)
	}
}

// function is a defined shell function.
type function struct {
	body     *syntax.Stmt
	file     string // where it was defined
	line     uint
	exported bool
	readonly bool
	traced   bool // declare -t: it takes over DEBUG and RETURN traps
}

// frame is one running function or sourced script.
type frame struct {
	name    string // of the function, or "source"
	file    string // where its text is, for BASH_SOURCE
	line    uint   // where it was called, for BASH_LINENO
	sourced bool
	params  []string // its arguments
}

// inFunc reports whether a function runs, so that local is allowed.
func (r *runner) inFunc() bool {
	for _, c := range r.calls {
		if !c.sourced {
			return true
		}
	}
	return false
}

// sourceName is the file that the running text comes from, as BASH_SOURCE has it.
func (r *runner) sourceName() string {
	if n := len(r.calls); n > 0 {
		return r.calls[n-1].file
	}
	if r.file != "" {
		return r.file
	}
	if r.fromArg {
		return "environment"
	}
	return "main"
}

// function calls a shell function.
func (r *runner) function(name string, f *function, args []string) {
	if !r.enter() {
		return
	}
	params, loops := r.params, r.loops
	r.params, r.loops = args, 0
	r.scopes = append(r.scopes, scope{})
	r.calls = append(r.calls, frame{name: name, file: f.file, line: r.line, params: args})
	r.stmt(f.body)
	r.calls = r.calls[:len(r.calls)-1]
	r.scopes = r.scopes[:len(r.scopes)-1]
	r.params, r.loops = params, loops
	if r.flow == flowReturn {
		r.flow = flowNone
	}
	r.depth--
}

// runTool finds and runs a program. environ is called when it is needed.
func (r *runner) runTool(args []string, environ func() []string) int {
	file, status := r.which(args[0])
	if status != 0 {
		return status
	}
	return r.execFile(file, args, environ, 0)
}

// which finds a program as the shell does. With a status other than 0 a message
// was written.
func (r *runner) which(name string) (string, int) {
	if strings.Contains(name, "/") {
		full := r.abs(name)
		i, err := r.view.Stat(full)
		switch {
		case err != nil && errors.Is(err, fs.ErrNotExist):
			r.errorf("%s: No such file or directory", name)
			return "", 127
		case err != nil:
			r.errorf("%s: %s", name, errText(err))
			return "", 126
		case i.Mode.IsDir():
			r.errorf("%s: Is a directory", name)
			return "", 126
		case r.view.Access(full, vfs.MayExec) != nil:
			r.errorf("%s: Permission denied", name)
			return "", 126
		}
		return full, 0
	}
	if file := r.lookPath(name); file != "" {
		return file, 0
	}
	if r.interactive || !r.inScript {
		r.writeErr(r.name + ": " + lineOf(r) + name + ": command not found\n")
	} else {
		r.errorf("%s: command not found", name)
	}
	return "", 127
}

func lineOf(r *runner) string {
	if r.interactive {
		return ""
	}
	return "line " + itoa(int(max(r.line, 1))) + ": "
}

// lookPath searches PATH for an executable file; "" when there is none.
func (r *runner) lookPath(name string) string {
	if name == "" {
		return ""
	}
	for dir := range strings.SplitSeq(r.str("PATH"), ":") {
		if dir == "" {
			dir = "."
		}
		full := strings.TrimSuffix(r.abs(dir), "/") + "/" + name
		if i, err := r.view.Stat(full); err == nil && i.Mode.IsRegular() && r.view.Access(full, vfs.MayExec) == nil {
			return full
		}
	}
	return ""
}

// Files that begin with magic are the machine's own tools; the tool's name follows.
const magic = "\x7fSIM\n"

// execFile runs a program file: one of the machine's tools or a script.
func (r *runner) execFile(file string, args []string, environ func() []string, nesting int) int {
	f, err := r.view.Open(file)
	if err != nil {
		r.errorf("%s: %s", args[0], errText(err))
		return 126
	}
	head := make([]byte, 256)
	n, _ := io.ReadFull(f, head) // shorter files are fine
	_ = f.Close()
	text := string(head[:n])
	switch {
	case strings.HasPrefix(text, magic):
		name, _, _ := strings.Cut(text[len(magic):], "\n")
		run, added := r.m.commands[name]
		tool, ok := r.m.tools[name]
		if !ok && !added {
			r.errorf("%s: no such tool in this machine", name)
			return 127
		}
		if !r.enter() {
			return 126
		}
		defer func() { r.depth-- }()
		if added {
			return r.runCommand(run, args, environ())
		}
		c := r.newCall(args[0], args[1:])
		c.env = environ()
		return tool(c)
	case strings.HasPrefix(text, "#!"):
		return r.execScript(file, text, args, environ, nesting)
	case strings.IndexByte(text, 0) >= 0:
		r.errorf("%s: cannot execute binary file: Exec format error", args[0])
		return 126
	}
	return r.spawnShell(shellRun{name: args[0], file: file, params: args[1:], env: environ()})
}
