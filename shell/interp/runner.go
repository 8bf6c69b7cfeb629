package interp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/carrel-dev/carrel/shell/regex"
	"github.com/carrel-dev/carrel/shell/vfs"
	"mvdan.cc/sh/v3/syntax"
)

// flow says how execution leaves the normal order.
type flow int

const (
	flowNone flow = iota
	flowBreak
	flowContinue
	flowReturn
	flowExit
	flowDiscard // drop the rest of a top-level command; see discard
)

// runner is the state of one shell process. Only one goroutine uses it.
type runner struct {
	m    *Machine
	p    *proc
	ctx  context.Context // p.ctx, or the context of an interactive line
	view vfs.View

	dir            string
	umask          uint32
	ppid           int // PPID and $$ stay those of the first shell
	self           int
	name           string // $0
	params         []string
	scopes         []*scope
	lent, borrowed *atomic.Int32 // forks that read this runner's scopes, and the parent's counter; see lend
	funcs          map[string]*function
	calls          []frame
	file           string // the script's file; "" for -c and standard input
	fds            fdTable
	traps          map[int]string
	opts           options

	oldTraps     map[int]string     // the traps that trap prints in a subshell, until it sets one
	running      []int              // traps that run
	fixedSigs    uint64             // ignored when the shell began
	pipeStatus   []int              // PIPESTATUS
	subshells    int                // BASH_SUBSHELL
	clock        time.Time          // where SECONDS begins
	hashPath     string             // the PATH of hashed
	execing      bool               // a program replaces the shell
	alone        bool               // this process was made only for the next command
	current      syntax.Node        // for BASH_COMMAND
	beforeReturn int                // the status before return ran
	exitDone     bool               // the EXIT trap has run
	currentTo    []*syntax.Redirect // its redirections
	paramSets    int                // counts how often set changed params
	stdinRedir   bool               // standard input is a pipe or file of this subshell: jobs inherit it
	lastArg      string             // $_
	traceDepth   int
	lineBase     int             // added to the line number of a statement
	keepFDs      bool            // exec has made the redirections permanent
	disabled     map[string]bool // builtins, by enable -n
	aliases      map[string]string
	aliasGen     int // counts changes of aliases
	limits       *rlimits
	coproc       *coproc
	dirs         []string // the stack of pushd, without the working directory
	hashed       map[string]hashEntry

	flow      flow
	flowCount int
	loops     int
	status    int
	line      uint
	noErrExit int // > 0 while a condition is evaluated
	depth     int
	inScript  bool // messages name a line

	jobs     []*job
	lastBg   int
	ended    map[int]*proc // children whose job was waited for or forgotten
	jobMarks [2]*job       // the current job and the previous one
	substFDs []substFD

	// substStatus is the status of the last command substitution. An assignment adopts it.
	substStatus int
	random      uint32
	hidden      map[string]bool // computed variables that were unset
	completions []completion
	funcsShared bool // with the parent or a fork
	inAssign    bool // a value is being expanded: tildes follow colons
	noElements  bool // an empty "$@" was expanded; see pieces

	pieceBuf  []piece
	std       *[2]fdWriter // standard output and error for commands
	seps      *separators
	pats      map[string]*pattern
	templates map[syntax.ArithmExpr]*arithTemplate
	words     map[string][]syntax.WordPart

	interactive bool
	fromArg     bool    // the script came with -c
	fromStdin   bool    // it comes from standard input
	term        *editor // of an interactive shell
	exiting     bool    // the builtin exit was run
	breakLine   func()  // ends the running line of an interactive shell, as ^C does
	eofs        int     // in a row
	warned      bool    // about stopped jobs
	exitStatus  int     // the shell's status while its EXIT trap runs
	steps       int
	hist        history
	binds       *bindings // never changed, only replaced
	debugged    bool      // the DEBUG trap has run for the first command of this process
	trapStatus  int       // the status when the running trap began
	trapCalls   int       // how many calls there were
	ranFile     string    // the file of the last program
	commands    int       // number of commands read from the shell's own input
	ownArgs     *[]string // the shell's own parameters, after BASH_ARGV was first read
	topDepth    int       // of the shell's own input
	patterns    map[string]*regex.Regexp
	getopts     int // position in a bundle of options, 0 at its start
}

// newRunner makes the shell of a process. env holds NAME=value.
func newRunner(m *Machine, p *proc, cred vfs.Cred, dir string, env []string) *runner {
	r := &runner{m: m, p: p, ctx: p.ctx, view: m.fs.As(cred), dir: dir, umask: 0o022, ppid: p.ppid, self: p.pid,
		name: "bash", clock: m.now(), opts: defaultOptions(), funcs: map[string]*function{}, traps: map[int]string{},
		random: m.seed32(), pipeStatus: []int{}}
	r.freshScopes(len(env))
	r.view = r.view.For(r) // for /proc/self
	r.importEnv(env)
	return r
}

// freshScopes makes room for the variables of a new shell.
func (r *runner) freshScopes(n int) {
	r.giveBack()
	r.lent = nil
	r.scopes = []*scope{{vars: make(map[string]*variable, n+16), owner: r}}
}

// importEnv makes variables from an environment, and the variables that bash itself sets.
func (r *runner) importEnv(env []string) {
	vars := r.scopes[0].vars
	size := 0
	for _, kv := range env {
		name, value, ok := strings.Cut(kv, "=")
		switch {
		case !ok:
		case name == "_":
		case name == "UID" || name == "EUID" || name == "PPID":
			r.errorf("%s: readonly variable", name)
		case name == "OLDPWD" && !r.isDir(value):
		case isName(name):
			vars[name] = &variable{set: true, exported: true, str: value}
			size += len(kv) + 64
		case strings.HasPrefix(name, "BASH_FUNC_") && strings.HasSuffix(name, "%%"):
			r.importFunc(name[len("BASH_FUNC_"):len(name)-2], value)
		}
	}
	for _, d := range shellVars {
		if vars[d.name] == nil {
			vars[d.name] = &variable{set: true, str: d.value}
		}
	}
	vars["IFS"] = &variable{set: true, str: " \t\n"}
	vars["OPTIND"] = &variable{set: true, integer: true, str: "1"}
	level := 0
	if v := vars["SHLVL"]; v != nil {
		level, _ = strconv.Atoi(v.str) // what is no number is 0
	}
	vars["SHLVL"] = &variable{set: true, exported: true, str: strconv.Itoa(level + 1)}
	vars["PWD"] = &variable{set: true, exported: true, str: r.dir}
	if vars["OLDPWD"] == nil {
		vars["OLDPWD"] = &variable{exported: true}
	}
	r.pay(size)
}

// isDir reports whether a path leads to a directory.
func (r *runner) isDir(path string) bool {
	i, err := r.view.Stat(path)
	return err == nil && i.Mode.IsDir()
}

// shellVars are set by a shell when the environment doesn't have them.
var shellVars = []struct{ name, value string }{{"PATH", defaultPath}, {"PS4", "+ "}, {"SHELL", "/bin/bash"}, {"OPTERR", "1"}, {"BASH", "/bin/bash"},
	{"BASH_VERSION", "5.2.15(1)-release"}, {"HOSTTYPE", "x86_64"}, {"OSTYPE", "linux-gnu"}, {"MACHTYPE", "x86_64-pc-linux-gnu"}, {"TERM", "dumb"},
	{"BASH_LOADABLES_PATH", "/usr/local/lib/bash:/usr/lib/bash:/opt/local/lib/bash:/usr/pkg/lib/bash:/opt/pkg/lib/bash:."}}

// importFunc defines a function from the environment.
func (r *runner) importFunc(name, text string) {
	stmts, err := parse(name + " " + text)
	if err != nil || len(stmts) != 1 {
		return
	}
	if f, ok := stmts[0].Cmd.(*syntax.FuncDecl); ok && f.Name.Value == name {
		r.funcs[name] = &function{body: f.Body, file: "environment", exported: true}
	}
}

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

func (r *runner) cred() vfs.Cred { return r.view.Cred() }

// fork copies the shell into a new process. With sync the parent waits for it, and the fork ends
// with its parent. Otherwise it may outlive the parent.
func (r *runner) fork(sync bool) (*runner, error) {
	ctx := r.m.ctx
	if sync {
		ctx = r.ctx
	}
	p, err := r.m.newProc(ctx, r.p, r.p.args)
	if err != nil {
		return nil, err
	}
	p.ignored.Store(r.p.ignored.Load())
	s := *r
	s.p, s.ctx = p, p.ctx
	s.view = r.view.For(&s)
	s.depth++
	s.fds = r.fds.clone()
	r.lend(&s)
	s.funcsShared, r.funcsShared = true, true
	s.pieceBuf, s.pats, s.templates, s.words = nil, nil, nil, nil
	s.inAssign, s.noElements = false, false
	s.random = r.random ^ uint32(p.pid)*2654435761
	s.params = slices.Clone(r.params)
	s.calls = slices.Clone(r.calls)
	s.inheritTraps(r)
	s.running = slices.Clip(r.running)
	s.ended, s.exitDone = nil, false
	if s.jobs = nil; sync { // jobs shows the parent's
		s.jobs = slices.Clone(r.jobs)
	} else {
		s.jobMarks = [2]*job{}
	}
	s.execing, s.alone = false, false
	s.substFDs, s.patterns, s.interactive, s.term, s.keepFDs = nil, nil, false, nil, false
	s.pipeStatus = slices.Clone(r.pipeStatus)
	s.subshells++
	s.aliases = maps.Clone(r.aliases)
	s.hashed, s.disabled = maps.Clone(r.hashed), maps.Clone(r.disabled)
	s.dirs = slices.Clone(r.dirs)
	s.hist = r.hist.fork()
	s.withoutCoproc()
	if !p.charge(256) {
		s.end(1)
		return nil, syscall.ENOMEM
	}
	return &s, nil
}

// end ends a shell's process: it runs the EXIT trap, closes the descriptors and records the status.
func (r *runner) end(status int) {
	r.status = status
	r.runExitTrap()
	if len(r.traps) > 0 {
		r.traps = nil
	}
	r.fds.closeAll()
	r.giveBack()
	r.p.finish(r.status & 0xff)
}

// contain runs a process's work. A panic here is our bug, but scripts are hostile and the daemon
// serves other sandboxes. So a panic ends only the process tree.
func (r *runner) contain(work func()) {
	defer func() {
		if v := recover(); v != nil {
			r.p.limit(LimitFault, fmt.Sprintf("internal error of the simulated shell: %v", v))
		}
	}()
	work()
}

// pay takes memory for this process, and ends the process when no memory is left.
func (r *runner) pay(n int) {
	if !r.p.charge(int64(n)) {
		r.p.limit(LimitMemory, fmt.Sprintf("over the memory limit of %d MiB", r.m.limits.Memory>>20))
		r.flow = flowExit
	}
}

// step counts one step and reports whether the shell may go on.
func (r *runner) step() bool {
	if r.ctx.Err() != nil {
		r.flow, r.status = flowExit, 128+signalOf(r.ctx)
		return false
	}
	if r.p.attention.Load() {
		r.attend()
	}
	const batch = 256
	if r.steps++; r.steps%batch == 0 {
		r.m.steps.Add(batch)
		if n := r.p.tree.steps.Add(batch); r.m.limits.Steps > 0 && n > r.m.limits.Steps {
			r.p.limit(LimitSteps, fmt.Sprintf("over the limit of %d steps", r.m.limits.Steps))
		}
	}
	return r.flow == flowNone
}

// stepN counts n steps of a program.
func (r *runner) stepN(n int) bool {
	if r.p.attention.Load() && r.p.stopped() != 0 {
		r.p.halt(r.ctx)
	}
	if r.ctx.Err() != nil {
		r.flow, r.status = flowExit, 128+signalOf(r.ctx)
		return false
	}
	r.m.steps.Add(int64(n))
	if total := r.p.tree.steps.Add(int64(n)); r.m.limits.Steps > 0 && total > r.m.limits.Steps {
		r.p.limit(LimitSteps, fmt.Sprintf("over the limit of %d steps", r.m.limits.Steps))
	}
	return r.flow == flowNone
}

// inheritTraps gives a subshell its part of its parent's traps: ignored signals, and the traps that
// set -E and -T pass on.
func (s *runner) inheritTraps(r *runner) {
	s.traps, s.oldTraps = nil, nil
	if len(r.traps) == 0 {
		return
	}
	s.traps, s.oldTraps = map[int]string{}, r.traps
	for sig, body := range r.traps {
		switch {
		case body == "" && sig > 0 && sig <= 64,
			sig == trapERR && r.opts.errtrace,
			(sig == trapDEBG || sig == trapRET) && r.opts.functrace:
			s.traps[sig] = body
		}
	}
}

// enter begins a nested call. It ends the shell when calls are nested too deep.
func (r *runner) enter() bool {
	if r.depth++; r.depth > r.m.limits.Depth {
		r.errorf("maximum nesting level of %d exceeded", r.m.limits.Depth)
		r.status, r.flow = 1, flowExit
		return false
	}
	return true
}

// abs makes a path absolute. It keeps "." and ".." for the filesystem.
func (r *runner) abs(name string) string {
	if strings.HasPrefix(name, "/") || name == "" {
		return name
	}
	if r.dir == "/" {
		return "/" + name
	}
	return r.dir + "/" + name
}

// errorf writes a message to standard error as bash does.
func (r *runner) errorf(format string, args ...any) {
	r.writeErr(r.prefix() + fmt.Sprintf(format, args...) + "\n")
}

// prefix returns the beginning of messages: the script's name and the line.
func (r *runner) prefix() string {
	name := r.name
	for i := len(r.calls) - 1; i >= 0; i-- {
		if f := r.calls[i].file; f != "" && f != "environment" && f != "main" {
			name = f
			break
		}
	}
	if r.interactive {
		return name + ": "
	}
	return fmt.Sprintf("%s: line %d: ", name, max(r.line, 1))
}

func (r *runner) writeErr(s string) { r.writeFD(2, []byte(s)) }

var errOutputLimit = errors.New("output limit")

// writeFD writes to a descriptor. A broken pipe or an exceeded limit ends the shell.
func (r *runner) writeFD(n int, b []byte) error {
	d := r.fds.get(n)
	if d == nil {
		return syscall.EBADF
	}
	_, err := d.Write(r.ctx, b)
	if err != nil {
		r.writeFailed(err)
	}
	return err
}

// writeFailed reacts to a failed write as the kernel would: with SIGPIPE, or with the end of the
// process tree.
func (r *runner) writeFailed(err error) {
	switch {
	case errors.Is(err, syscall.EPIPE):
		r.p.deliver(sigPIPE)
	case errors.Is(err, syscall.EFBIG):
		r.p.deliver(sigXFSZ)
	case errors.Is(err, errOutputLimit):
		r.p.limit(LimitOutput, fmt.Sprintf("over the output limit of %d MiB", r.m.limits.Output>>20))
	case errors.Is(err, syscall.ENOMEM):
		r.p.limit(LimitMemory, fmt.Sprintf("over the memory limit of %d MiB", r.m.limits.Memory>>20))
	}
}

// errText returns the kernel's words for an error: "No such file or directory".
func errText(err error) string {
	var no syscall.Errno
	if errors.As(err, &no) {
		switch no {
		case syscall.ENOSPC:
			return "No space left on device"
		case syscall.ENOTDIR:
			return "Not a directory"
		}
		s := no.Error()
		return strings.ToUpper(s[:1]) + s[1:]
	}
	return err.Error()
}
