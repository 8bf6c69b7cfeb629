package script

import (
	"bufio"
	"context"
	"embed"
	"errors"
	"fmt"
	"hash"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/tools/script/quickjs"
)

//go:embed js/*.js
var library embed.FS

// nodeVersion is the version of node that this implementation imitates.
const nodeVersion = "v20.19.0"

// maxMemory is the most memory of one interpreter, even if its machine allows more.
const maxMemory = 256 << 20

// image is the interpreter with its library loaded.
var image = sync.OnceValue(func() *quickjs.Image {
	var b strings.Builder
	b.WriteString("(host) => { 'use strict'; const defs = {}, loaded = {};" +
		"const define = (name, fn) => { defs[name] = fn; };" +
		"const require = (name) => { if (!(name in loaded)) { const m = { exports: {} }; loaded[name] = m; defs[name](require, m.exports, m); } return loaded[name].exports; };")
	for _, name := range []string{"base", "inspect", "buffer", "path", "fs", "stream", "util", "url", "process", "modules", "web", "loader", "main"} {
		text, err := library.ReadFile("js/" + name + ".js")
		if err != nil {
			panic(err) // it is part of the program
		}
		b.Write(text)
	}
	b.WriteString("return hooks; }")
	return quickjs.NewImage(slices.Sorted(func(yield func(string) bool) {
		for name := range hostFuncs {
			if !yield(name) {
				return
			}
		}
	}), "node:internal", b.String())
})

// node is one run of a script.
type node struct {
	c      *tool.Call
	vm     *quickjs.VM
	hooks  quickjs.Value
	out    *bufio.Writer
	dir    string
	fds    map[int]*handle
	hashes []hash.Hash
	http   requests
	spent  int64
	status int
	exited bool
	shown  time.Time
	broken bool // standard output is gone
	tools  func(vm *quickjs.VM, args []quickjs.Value) (any, error)
}

// runNode is the program node.
func runNode(c *tool.Call) int {
	o, status, ok := nodeOptions(c)
	if !ok {
		return status
	}
	n := &node{c: c, dir: c.Dir(), fds: map[int]*handle{}}
	return n.run(o)
}

// options are the settings from the command line.
type options struct {
	mode    string // file, eval, print or stdin
	source  string
	file    string
	args    []string
	kind    string // commonjs or module, "" if not known yet
	preload []string
	exec    []string // what stands before the file
	check   bool
	rules   string // of --tools
}

const nodeUsage = `Usage: node [options] [ script.js ] [arguments]
       node [options] -e "script" [arguments]
Runs JavaScript: a file, the text after -e or -p, or with - (or nothing) its input.

  -e, --eval TEXT        run TEXT
  -p, --print TEXT       run TEXT and print the value of its last expression
  -c, --check            say whether the syntax is right, and run nothing
  -r, --require MODULE   load MODULE first
  --input-type=KIND      TEXT or the input is a module, or commonjs
  --tools=RULES          let the script call the machine's commands as tools.NAME({...}), as the rules in a JSON file allow
  -v, --version, -h, --help
`

// nodeOptions reads the command line as node does: node's own options end at the script.
func nodeOptions(c *tool.Call) (o options, status int, ok bool) {
	n := nodeArgs{Call: c, args: c.Args}
	for len(n.args) > 0 && n.o.mode == "" || len(n.args) > 0 && n.o.inline() && strings.HasPrefix(n.args[0], "-") && n.args[0] != "--" && n.args[0] != "-" {
		a := n.args[0]
		n.args = n.args[1:]
		if a == "-" {
			n.o.mode = "stdin"
			break
		}
		if !strings.HasPrefix(a, "-") {
			n.o.mode, n.o.file = "file", a
			break
		}
		if status, ok := n.option(a); !ok {
			return n.o, status, false
		}
	}
	o = n.o
	if len(n.args) > 0 && n.args[0] == "--" && o.inline() {
		n.args = n.args[1:]
	}
	o.args = n.args
	if o.mode == "" {
		o.mode = "stdin"
	}
	if o.mode == "stdin" {
		b, err := c.ReadAll(c.In)
		if err != nil {
			return o, 1, false
		}
		o.source = string(b)
	}
	return o, 0, true
}

// nodeArgs is the state of reading node's command line.
type nodeArgs struct {
	*tool.Call
	args []string // not read yet
	o    options
}

// value returns the argument of an option, which is attached or the next argument. ok is false when
// there is none; a message has been written.
func (n *nodeArgs) value(a string) (v string, ok bool) {
	if _, v, has := strings.Cut(a, "="); has && strings.HasPrefix(a, "--") {
		return v, true
	}
	if len(n.args) == 0 {
		fmt.Fprintf(n.Err, "%s: %s requires an argument\n", n.Name, a)
		return "", false
	}
	v, n.args = n.args[0], n.args[1:]
	n.o.exec = append(n.o.exec, v)
	return v, true
}

// option reads one option. When ok is false, node ends with the status.
func (n *nodeArgs) option(a string) (status int, ok bool) {
	const wrong = 9
	o := &n.o
	o.exec = append(o.exec, a)
	name, _, _ := strings.Cut(a, "=")
	good := true
	switch name {
	case "--":
		o.exec = o.exec[:len(o.exec)-1]
		if len(n.args) > 0 {
			o.mode, o.file, n.args = "file", n.args[0], n.args[1:]
		} else {
			o.mode = "stdin"
		}
	case "-v", "--version":
		fmt.Fprintln(n.Out, nodeVersion)
		return 0, false
	case "-h", "--help":
		fmt.Fprint(n.Out, nodeUsage)
		return 0, false
	case "-e", "--eval":
		o.mode = "eval"
		o.source, good = n.value(a)
	case "-p", "--print", "-pe":
		o.mode = "print"
		o.source, good = n.value(a)
	case "-c", "--check":
		o.check = true
	case "-i", "--interactive":
		fmt.Fprintf(n.Err, "%s: there is no interactive mode here\n", n.Name)
		return wrong, false
	case "-r", "--require":
		var v string
		v, good = n.value(a)
		o.preload = append(o.preload, v)
	case "--input-type", "--experimental-default-type":
		o.kind, good = n.value(a)
	case "--tools":
		o.rules, good = n.value(a)
	case "-m", "--module":
		o.kind = "module"
	case "--std", "--script":
	case "--stack-size", "--max-old-space-size", "--max-http-header-size", "--unhandled-rejections", "--stack-trace-limit", "--test-reporter", "-C", "--conditions", "--env-file", "--import", "--loader":
		_, good = n.value(a)
	default:
		if !nodeIgnores(name) {
			fmt.Fprintf(n.Err, "%s: bad option: %s\n", n.Name, a)
			return wrong, false
		}
	}
	if !good {
		return wrong, false
	}
	return 0, true
}

// inline reports whether the script is the argument of an option.
func (o options) inline() bool { return o.mode == "eval" || o.mode == "print" }

// nodeIgnores reports whether an option has no effect here.
func nodeIgnores(name string) bool {
	for _, family := range []string{"--no-", "--experimental-", "--trace-"} {
		if strings.HasPrefix(name, family) {
			return true
		}
	}
	return slices.Contains([]string{"--harmony", "--use-strict", "--preserve-symlinks", "--enable-source-maps", "--throw-deprecation",
		"--pending-deprecation", "--expose-gc", "--test", "--watch"}, name)
}

// run runs a script to its end.
func (n *node) run(o options) int {
	c := n.c
	n.out = c.Buffered()
	ctx, cancel := context.WithCancel(c.Ctx)
	defer cancel()
	defer n.closeAll()
	n.http.ctx = ctx
	if o.rules != "" {
		if err := n.grant(o.rules); err != nil {
			return c.Errorf(9, "--tools: %v", err)
		}
	}
	funcs := map[string]quickjs.Func{}
	for name, fn := range hostFuncs {
		funcs[name] = func(vm *quickjs.VM, args []quickjs.Value) (any, error) { return fn(n, in{vm, args}) }
	}
	if n.tools != nil {
		funcs["tool"] = n.tools
	}
	vm, err := image().Start(ctx, quickjs.Options{
		Step: n.step, Grow: n.grow, Now: c.Now, Random: c.Random, Funcs: funcs,
		Normalize: func(vm *quickjs.VM, base, name string) (string, error) { return n.hookText("resolve", base, name) },
		Load:      func(vm *quickjs.VM, name string) (string, error) { return n.hookText("source", name) },
		Rejected: func(vm *quickjs.VM, promise, reason quickjs.Value, handled bool) {
			if f := vm.Get(n.hooks, "rejected"); f != 0 {
				h, _ := vm.New(handled)
				_, _ = vm.Call(f, promise, reason, h) // it only keeps a list
			}
		},
	})
	if errors.Is(err, quickjs.ErrMissing) {
		return c.Errorf(127, "%v", quickjs.ErrMissing)
	}
	if err != nil {
		return c.Errorf(1, "%v", err)
	}
	n.vm, n.hooks = vm, image().Result()
	defer func() {
		_ = vm.Close() // nothing is in it any more
		_ = c.Pay(-n.spent)
	}()
	err = n.loop(o)
	status := n.status
	if !n.exited {
		status = 1
		if err != nil && !c.Stopped(err) && !n.broken && !errors.Is(err, quickjs.ErrEnded) {
			_ = n.out.Flush()
			status = c.Errorf(1, "%v", err)
		}
	}
	if n.broken {
		return status
	}
	return c.Flush(n.out, status)
}

// grow pays for the interpreter's memory. When it returns false, the script gets an out of memory
// error.
func (n *node) grow(size int64) bool {
	used, total := n.c.Machine().Memory()
	if n.spent+size > maxMemory || total > 0 && used+size > total {
		return false
	}
	if n.c.Pay(size) != nil {
		return false
	}
	n.spent += size
	return true
}

// hook calls a function of the JavaScript library.
func (n *node) hook(name string, args ...any) (quickjs.Value, error) {
	f := n.vm.Get(n.hooks, name)
	if f == 0 {
		return 0, quickjs.ErrEnded
	}
	defer n.vm.Free(f)
	list := make([]quickjs.Value, len(args))
	for i, a := range args {
		var err error
		if list[i], err = n.vm.New(a); err != nil {
			return 0, err
		}
	}
	r, err := n.vm.Call(f, list...)
	for _, v := range list {
		n.vm.Free(v)
	}
	return r, err
}

func (n *node) hookText(name string, args ...any) (string, error) {
	r, err := n.hook(name, args...)
	if err != nil {
		return "", err
	}
	return n.vm.String(r), nil
}

// loop starts a script and runs its event loop until no work is left.
func (n *node) loop(o options) error {
	c := n.c
	used, total := c.Machine().Memory()
	_ = used
	if total == 0 {
		total = 1 << 30
	}
	user := c.Machine().UserName(c.UID())
	account, _ := c.Machine().User(user)
	argv := []any{"/usr/bin/node"}
	if o.mode == "file" {
		argv = append(argv, o.file)
	}
	if o.mode == "stdin" && len(o.args) > 0 {
		argv = append(argv, "-")
	}
	for _, a := range o.args {
		argv = append(argv, a)
	}
	if _, err := n.hook("begin", map[string]any{
		"mode": o.mode, "source": o.source, "file": o.file, "type": o.kind, "check": o.check, "argv": argv, "execArgv": list(o.exec), "preload": list(o.preload),
		"env": list(c.Environ()), "execPath": "/usr/bin/node", "pid": pidOf(c), "ppid": 1, "uid": int(c.UID()), "gid": int(c.FS().Cred().GID), "umask": int(c.Umask()),
		"hostname": c.Machine().Hostname(), "cpus": c.Machine().CPUs(), "memory": total, "user": user, "home": account.Home,
	}); err != nil {
		return err
	}
	if n.tools != nil {
		if err := n.installTools(); err != nil {
			return err
		}
	}
	if _, err := n.hook("run"); err != nil {
		return err
	}
	for {
		if err := n.settle(); err != nil {
			return err
		}
		r, err := n.hook("turn")
		if err != nil {
			return err
		}
		switch wait := n.vm.Float(r); {
		case wait > 0:
			if err := n.wait(time.Duration(wait * float64(time.Millisecond))); err != nil {
				return err
			}
		case wait < 0:
			again, err := n.hook("finish")
			if err != nil {
				return err
			}
			if !n.vm.Bool(again) {
				return nil
			}
		}
	}
}

// settle runs ticks and promise jobs until none is left.
func (n *node) settle() error {
	for {
		if _, err := n.hook("ticks"); err != nil {
			return err
		}
		if err := n.vm.Jobs(); err != nil {
			var t *quickjs.Thrown
			if !errors.As(err, &t) {
				return err
			}
			if _, err := n.hook("failed", t.Value); err != nil {
				return err
			}
		}
		more, err := n.hook("settled")
		if err != nil {
			return err
		}
		if !n.vm.Bool(more) {
			return nil
		}
	}
}

// wait waits for the next timer or for the answer to a request.
func (n *node) wait(d time.Duration) error {
	n.flush()
	if n.http.open() > 0 {
		t := time.NewTimer(min(d, time.Hour))
		defer t.Stop()
		select {
		case <-n.http.wake():
		case <-t.C:
		case <-n.c.Ctx.Done():
			return quickjs.ErrEnded
		}
		return nil
	}
	if !n.c.Sleep(d) {
		return quickjs.ErrEnded
	}
	return nil
}

// step pays for work. It also flushes output that was written some time ago.
func (n *node) step(steps int) bool {
	const late = 20 * time.Millisecond
	if n.out.Buffered() > 0 {
		if now := time.Now(); n.shown.IsZero() {
			n.shown = now
		} else if now.Sub(n.shown) > late {
			n.flush()
			n.shown = time.Time{}
		}
	}
	return n.c.Step(steps)
}

// flush writes the script's buffered output.
func (n *node) flush() {
	if n.out.Flush() != nil {
		n.broken = true
	}
}

func list(s []string) []any {
	out := make([]any, len(s))
	for i, v := range s {
		out[i] = v
	}
	return out
}

// pidOf returns the pid of a program's own process. It finds the newest process with the same
// arguments in the list of processes.
func pidOf(c *tool.Call) int {
	pid := 1
	for _, p := range c.Machine().Processes() {
		if len(p.Args) > 0 && p.Args[0] == c.Name {
			pid = p.PID
		}
	}
	return pid
}
