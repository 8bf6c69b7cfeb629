package interp

import (
	"errors"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/carrel-dev/carrel/shell/vfs"
)

// defaultCommandPath is the PATH of command -p.
const defaultCommandPath = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"

func biEval(c *call) int {
	args := c.args
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if len(args) == 0 {
		return 0
	}
	r := c.r
	if len(args[0]) > 1 && args[0][0] == '-' && c.args[0] != "--" {
		return c.usage("%s: invalid option", args[0][:2])
	}
	line, base := r.line, r.lineBase
	r.lineBase = max(int(line)-1, 0)
	r.traceDepth++
	r.scriptOrNothing(strings.Join(args, " "))
	r.traceDepth--
	r.line, r.lineBase = line, base
	return r.status
}

func biSource(c *call) int {
	r := c.r
	args := c.args
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if len(args) == 0 {
		c.fail(2, "filename argument required")
		r.writeErr(c.name + ": usage: " + c.name + " filename [arguments]\n")
		return 2
	}
	file := args[0]
	full := r.abs(file)
	if !strings.Contains(file, "/") {
		if found := r.lookFile(file); found != "" {
			full, file = found, found
		} else if r.opts.posix {
			r.errorf("%s: file not found", file)
			if !r.interactive {
				r.abort(1)
			}
			return 1
		}
	}
	if i, err := r.view.Stat(full); err == nil && i.Mode.IsDir() {
		r.errorf("%s: %s: is a directory", c.name, args[0])
		return 1
	}
	text, err := r.readFile(full)
	if err != nil {
		r.errorf("%s: %s", args[0], errText(err))
		if r.opts.posix && !r.interactive {
			r.abort(1)
		}
		return 1
	}
	params := r.params
	if len(args) > 1 {
		r.params = args[1:]
	}
	sets := r.paramSets
	r.calls = append(r.calls, frame{name: "source", file: file, line: r.line, sourced: true, params: r.params, debugged: r.opts.extdebug, own: len(args) > 1})
	line, base, loops := r.line, r.lineBase, r.loops
	r.lineBase = 0
	debug, held := r.traps[trapDEBG]
	if held && !r.opts.functrace {
		delete(r.traps, trapDEBG)
	}
	r.scriptOrNothing(text)
	if r.flow == flowReturn {
		r.flow = flowNone
	}
	if len(r.traps) > 0 && r.flow == flowNone {
		r.runTrap(trapRET)
	}
	if _, again := r.traps[trapDEBG]; held && !again && r.traps != nil {
		r.traps[trapDEBG] = debug
	}
	r.line, r.lineBase, r.loops = line, base, loops
	r.calls = r.calls[:len(r.calls)-1]
	if len(args) > 1 && r.paramSets == sets {
		r.params = params
	}
	return r.status
}

// readFile reads a script. Its memory is charged to the process until the process ends.
func (r *runner) readFile(full string) (string, error) {
	d, err := r.openFile(full, vfs.ReadOnly)
	if err != nil {
		return "", err
	}
	defer d.drop()
	c := r.newCall("", nil)
	data, err := c.slurp(fdReader{r.ctx, d})
	return string(data), err
}

// lookFile searches PATH, then the working directory, for a file to read.
func (r *runner) lookFile(name string) string {
	if r.opts.sourcepath {
		for dir := range strings.SplitSeq(r.str("PATH"), ":") {
			if dir == "" {
				dir = "."
			}
			full := strings.TrimSuffix(r.abs(dir), "/") + "/" + name
			if i, err := r.view.Stat(full); err == nil && !i.Mode.IsDir() {
				return full
			}
		}
	}
	return ""
}

// biExec replaces the shell with a program, or makes redirections permanent.
func biExec(c *call) int {
	r := c.r
	args := c.args
	name, clear, login, named := "", false, false, false
	for len(args) > 0 && len(args[0]) > 1 && args[0][0] == '-' {
		a := args[0]
		args = args[1:]
		if a == "--" {
			break
		}
		for i := 1; i < len(a); i++ {
			switch a[i] {
			case 'c':
				clear = true
			case 'l':
				login = true
			case 'a':
				named = true
				if name = a[i+1:]; name == "" {
					if len(args) == 0 {
						return c.fail(2, "-a: option requires an argument")
					}
					name, args = args[0], args[1:]
				}
				i = len(a)
			default:
				c.fail(2, "-%c: invalid option", a[i])
				r.writeErr("exec: usage: exec [-cl] [-a name] [command [argument ...]] [redirection ...]\n")
				return 2
			}
		}
	}
	if len(args) == 0 {
		r.keepFDs = true
		return 0
	}
	environ := r.environ
	if clear {
		environ = func() []string { return nil }
	}
	file, status := r.whichExec(args[0])
	if status != 0 {
		if r.opts.execfail || r.interactive {
			return status
		}
		r.flow, r.status, r.exiting = flowExit, status, true
		return status
	}
	args = slices.Clone(args)
	if named {
		args[0] = name
	}
	if login {
		args[0] = "-" + args[0]
	}
	delete(r.traps, trapEXIT)
	for sig, body := range r.traps { // a new program catches nothing
		if body != "" {
			r.p.caught.And(^sigBit(sig))
		}
	}
	r.execing = true
	status = r.execFile(file, args, environ, 0)
	r.flow, r.status, r.exiting = flowExit, status, true
	return status
}

// whichExec finds the program of exec, and words errors as exec does.
func (r *runner) whichExec(name string) (string, int) {
	if !strings.Contains(name, "/") {
		if file := r.lookPath(name); file != "" {
			return file, 0
		}
		r.errorf("exec: %s: not found", name)
		return "", 127
	}
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
		r.errorf("exec: %s: cannot execute: Permission denied", name)
		return "", 126
	}
	return full, 0
}

func biCommand(c *call) int {
	r := c.r
	args, verbose, describe, std := c.args, false, false, false
	for len(args) > 0 && len(args[0]) > 1 && args[0][0] == '-' {
		a := args[0]
		args = args[1:]
		if a == "--" {
			break
		}
		for _, l := range a[1:] {
			switch l {
			case 'v':
				verbose = true
			case 'V':
				describe = true
			case 'p':
				std = true
			default:
				c.fail(2, "-%c: invalid option", l)
				r.writeErr("command: usage: command [-pVv] command [arg ...]\n")
				return 2
			}
		}
	}
	if len(args) == 0 {
		return 0
	}
	if std {
		r.pushScope(false)
		defer r.popScope()
		r.place(len(r.scopes)-1, "PATH", &variable{set: true, str: defaultCommandPath})
	}
	if verbose || describe {
		return c.commandV(args, describe)
	}
	if b, ok := r.builtin(args[0]); ok {
		return b(r.newCall(args[0], args[1:]))
	}
	r.external(args)
	return r.status
}

// commandV implements command -v and -V.
func (c *call) commandV(args []string, describe bool) int {
	r := c.r
	status := 1
	for _, a := range args {
		kind, where := r.kindOf(a)
		if kind != "" {
			status = 0
		}
		switch {
		case kind == "":
			if describe {
				r.errorf("command: %s: not found", a)
			}
		case describe:
			c.print(r.describeCommand(a, kind, where) + "\n")
		case kind == "file":
			c.print(where + "\n")
		case kind == "alias":
			c.print(r.aliasLine(a))
		default:
			c.print(a + "\n")
		}
	}
	return status
}

func biBuiltin(c *call) int {
	args := c.args
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if len(args) == 0 {
		return 0
	}
	b, ok := c.r.builtin(args[0])
	if !ok {
		return c.fail(1, "%s: not a shell builtin", args[0])
	}
	return b(c.r.newCall(args[0], args[1:]))
}

// keywords are the reserved words of the grammar, for type.
const keywords = " if then else elif fi for while until do done case esac function select time { } ! [[ ]] in coproc "

// kindOf returns the kind of a command's name: alias, keyword, function, builtin, file or "".
func (r *runner) kindOf(name string) (kind, where string) {
	if _, ok := r.aliases[name]; ok && r.opts.expandAliases {
		return "alias", ""
	}
	if name != "" && strings.Contains(keywords, " "+name+" ") {
		return "keyword", ""
	}
	if _, ok := r.funcs[name]; ok {
		return "function", ""
	}
	if _, ok := r.builtin(name); ok {
		return "builtin", ""
	}
	return r.fileOf(name)
}

// fileOf finds a program by its name.
func (r *runner) fileOf(name string) (kind, where string) {
	if strings.Contains(name, "/") {
		if i, err := r.view.Stat(r.abs(name)); err == nil && !i.Mode.IsDir() && r.view.Access(r.abs(name), vfs.MayExec) == nil {
			return "file", name
		}
		return "", ""
	}
	if h, ok := r.hashed[name]; ok && r.hashPath == r.str("PATH") {
		return "file", h.path
	}
	if file := r.lookPath(name); file != "" {
		return "file", file
	}
	for dir := range strings.SplitSeq(r.str("PATH"), ":") { // or what can't be executed
		full := r.abs(dir) + "/" + name
		if i, err := r.view.Stat(full); dir != "" && err == nil && i.Mode.IsRegular() {
			return "file", full
		}
	}
	return "", ""
}

func (r *runner) describeCommand(name, kind, where string) string {
	switch kind {
	case "alias":
		return name + " is aliased to `" + r.aliases[name] + "'"
	case "keyword":
		return name + " is a shell keyword"
	case "function":
		return name + " is a function\n" + r.functionText(name)
	case "builtin":
		if r.opts.posix && specialBuiltins[name] {
			return name + " is a special shell builtin"
		}
		return name + " is a shell builtin"
	}
	if h, ok := r.hashed[name]; ok && h.path == where {
		return name + " is hashed (" + where + ")"
	}
	return name + " is " + where
}

func biType(c *call) int {
	r := c.r
	args := c.args
	var short, path, force, all, noFuncs bool
	for len(args) > 0 && len(args[0]) > 1 && args[0][0] == '-' {
		a := args[0]
		args = args[1:]
		if a == "--" {
			break
		}
		for _, l := range a[1:] {
			switch l {
			case 't':
				short = true
			case 'p':
				path = true
			case 'P':
				force = true
			case 'a':
				all = true
			case 'f':
				noFuncs = true
			default:
				c.fail(2, "-%c: invalid option", l)
				r.writeErr("type: usage: type [-afptP] name [name ...]\n")
				return 2
			}
		}
	}
	status := 0
	for _, a := range args {
		found := r.meanings(a, all, noFuncs, force)
		if len(found) == 0 {
			status = 1
			if !short && !path && !force {
				r.errorf("type: %s: not found", a)
			}
		}
		for _, m := range found {
			switch {
			case short:
				c.print(m[0] + "\n")
			case path || force:
				if m[0] == "file" {
					c.print(m[1] + "\n")
				}
			default:
				c.print(r.describeCommand(a, m[0], m[1]) + "\n")
			}
		}
	}
	return status
}

// meanings lists the kinds and files of a command's name: all of them, or only the first.
func (r *runner) meanings(name string, all, noFuncs, onlyFiles bool) (out [][2]string) {
	add := func(kind, where string) bool {
		out = append(out, [2]string{kind, where})
		return !all
	}
	if !onlyFiles {
		if _, ok := r.aliases[name]; ok && r.opts.expandAliases && add("alias", "") {
			return out
		}
		if name != "" && strings.Contains(keywords, " "+name+" ") && add("keyword", "") {
			return out
		}
		if _, ok := r.funcs[name]; ok && !noFuncs && add("function", "") {
			return out
		}
		if _, ok := r.builtin(name); ok && add("builtin", "") {
			return out
		}
	}
	if strings.Contains(name, "/") || !all {
		if kind, where := r.fileOf(name); kind != "" {
			add(kind, where)
		}
		return out
	}
	for dir := range strings.SplitSeq(r.str("PATH"), ":") {
		if dir == "" {
			dir = "."
		}
		full := strings.TrimSuffix(dir, "/") + "/" + name
		if i, err := r.view.Stat(r.abs(full)); err == nil && i.Mode.IsRegular() && r.view.Access(r.abs(full), vfs.MayExec) == nil {
			add("file", full)
		}
	}
	return out
}

// biEnable switches builtins on and off.
func biEnable(c *call) int {
	r := c.r
	args := c.args
	var off, all, special bool
	for len(args) > 0 && len(args[0]) > 1 && args[0][0] == '-' {
		a := args[0]
		args = args[1:]
		for _, l := range a[1:] {
			switch l {
			case 'n':
				off = true
			case 'a':
				all = true
			case 's':
				special = true
			case 'p', '-':
			case 'f', 'd':
				return c.fail(1, "dynamic loading not available")
			default:
				c.fail(2, "-%c: invalid option", l)
				r.writeErr("enable: usage: enable [-a] [-dnps] [-f filename] [name ...]\n")
				return 2
			}
		}
	}
	if len(args) == 0 {
		var b strings.Builder
		for _, name := range slices.Sorted(maps.Keys(r.m.builtins)) {
			switch is := r.disabled[name]; {
			case special && !specialBuiltins[name]:
			case is && (off || all):
				b.WriteString("enable -n " + name + "\n")
			case !is && (!off || all):
				b.WriteString("enable " + name + "\n")
			}
		}
		return c.print(b.String())
	}
	status := 0
	for _, a := range args {
		if _, ok := r.m.builtins[a]; !ok {
			status = c.fail(1, "%s: not a shell builtin", a)
			continue
		}
		if r.disabled == nil {
			r.disabled = map[string]bool{}
		}
		if r.disabled[a] = off; !off {
			delete(r.disabled, a)
		}
	}
	return status
}
