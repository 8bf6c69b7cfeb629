package sh

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"syscall"

	"github.com/carrel-dev/carrel/internal/sh/vfs"
)

// builtinTable lists the commands that act on the shell itself, or that bash has
// built in. It is a function, called once, because its entries lead back to it.
func builtinTable() map[string]command {
	return map[string]command{
		":": biTrue, "true": biTrue, "false": biFalse,
		"echo": biEcho, "printf": biPrintf, "test": biTest, "[": biTest,
		"cd": biCd, "pwd": biPwd, "exit": biExit, "return": biReturn, "break": biBreak, "continue": biBreak,
		"set": biSet, "shopt": biShopt, "shift": biShift, "unset": biUnset, "export": biDeclare, "readonly": biDeclare,
		"declare": biDeclare, "typeset": biDeclare, "local": biDeclare,
		"eval": biEval, "source": biSource, ".": biSource, "exec": biExec, "command": biCommand, "builtin": biBuiltin,
		"type": biType, "hash": biTrue, "alias": biAlias, "unalias": biTrue,
		"read": biRead, "mapfile": biMapfile, "readarray": biMapfile, "getopts": biGetopts, "let": biLet,
		"trap": biTrap, "wait": biWait, "kill": biKill, "jobs": biJobs, "disown": biTrue, "fg": biNoJobs, "bg": biNoJobs,
		"umask": biUmask, "ulimit": biUlimit, "times": biTimes, "help": biHelp, "logout": biExit,
	}
}

// fail writes "name: message" as the shell does and returns status.
func (c *call) fail(status int, format string, args ...any) int {
	c.r.errorf("%s: %s", c.name, fmt.Sprintf(format, args...))
	return status
}

func (c *call) print(s string) int {
	if _, err := io.WriteString(c.out, s); err != nil {
		if !errors.Is(err, syscall.EPIPE) && c.r.ctx.Err() == nil {
			c.fail(1, "write error: %s", errText(err))
		}
		return 1
	}
	return 0
}

func biTrue(*call) int  { return 0 }
func biFalse(*call) int { return 1 }

func biEcho(c *call) int {
	newline, escape := true, false
	args := c.args
	for len(args) > 0 && len(args[0]) > 1 && args[0][0] == '-' && strings.Trim(args[0][1:], "neE") == "" {
		for _, l := range args[0][1:] {
			switch l {
			case 'n':
				newline = false
			case 'e':
				escape = true
			case 'E':
				escape = false
			}
		}
		args = args[1:]
	}
	s := strings.Join(args, " ")
	if escape {
		stop := false
		if s, stop = unescape(s, escEcho); stop {
			newline = false
		}
	}
	if newline {
		s += "\n"
	}
	return c.print(s)
}

func biTest(c *call) int {
	args := c.args
	if path.Base(c.name) == "[" {
		if len(args) == 0 || args[len(args)-1] != "]" {
			return c.fail(2, "missing `]'")
		}
		args = args[:len(args)-1]
	}
	ok, err := (&bracketTest{r: c.r, args: args}).run()
	if err != nil {
		return c.fail(2, "%s", err)
	}
	return boolStatus(ok)
}

func biCd(c *call) int {
	args := c.args
	physical := false
	for len(args) > 0 && (args[0] == "-P" || args[0] == "-L" || args[0] == "--") {
		physical = args[0] == "-P"
		args = args[1:]
	}
	if len(args) > 1 {
		return c.fail(1, "too many arguments")
	}
	target, show := "", false
	switch {
	case len(args) == 0:
		home, ok := c.r.get("HOME")
		if !ok {
			return c.fail(1, "HOME not set")
		}
		target = home
	case args[0] == "-":
		old, ok := c.r.get("OLDPWD")
		if !ok {
			return c.fail(1, "OLDPWD not set")
		}
		target, show = old, true
	default:
		target = args[0]
		if cdpath := c.r.str("CDPATH"); cdpath != "" && !strings.HasPrefix(target, "/") && !strings.HasPrefix(target, ".") {
			for dir := range strings.SplitSeq(cdpath, ":") {
				if i, err := c.r.view.Stat(c.r.abs(path.Join(dir, target))); err == nil && i.Mode.IsDir() {
					target, show = path.Join(dir, target), dir != "" && dir != "."
					break
				}
			}
		}
	}
	if target == "" {
		return 0
	}
	dir := path.Clean(c.r.abs(target))
	if physical {
		if real, err := c.r.view.EvalSymlinks(dir); err == nil {
			dir = real
		}
	}
	i, err := c.r.view.Stat(dir)
	switch {
	case err != nil:
		return c.fail(1, "%s: %s", target, errText(err))
	case !i.Mode.IsDir():
		return c.fail(1, "%s: Not a directory", target)
	case c.r.view.Access(dir, vfs.MayExec) != nil:
		return c.fail(1, "%s: Permission denied", target)
	}
	c.r.set("OLDPWD", c.r.str("PWD"))
	c.r.dir = dir
	c.r.set("PWD", dir)
	if show {
		return c.print(dir + "\n")
	}
	return 0
}

func biPwd(c *call) int {
	dir := c.r.dir
	if len(c.args) > 0 && c.args[0] == "-P" {
		if real, err := c.r.view.EvalSymlinks(dir); err == nil {
			dir = real
		}
	}
	return c.print(dir + "\n")
}

func biExit(c *call) int {
	status := c.r.status
	if len(c.args) > 0 {
		n, err := strconv.Atoi(c.args[0])
		if err != nil {
			c.r.errorf("%s: %s: numeric argument required", c.name, c.args[0])
			n = 2
		}
		status = n & 0xff
	}
	c.r.flow, c.r.status, c.r.exiting = flowExit, status, true
	return status
}

func biReturn(c *call) int {
	status := c.r.status
	if len(c.args) > 0 {
		n, err := strconv.Atoi(c.args[0])
		if err != nil {
			c.r.errorf("return: %s: numeric argument required", c.args[0])
			n = 2
		}
		status = n & 0xff
	}
	if len(c.r.calls) == 0 && c.r.sourcing == 0 {
		return c.fail(1, "can only `return' from a function or sourced script")
	}
	c.r.flow, c.r.status = flowReturn, status
	return status
}

func biBreak(c *call) int {
	n := 1
	if len(c.args) > 0 {
		v, err := strconv.Atoi(c.args[0])
		if err != nil {
			c.r.errorf("%s: %s: numeric argument required", c.name, c.args[0])
			c.r.abort(128)
			return 128
		}
		if v < 1 {
			return c.fail(1, "%s: loop count out of range", c.args[0])
		}
		n = v
	}
	if c.r.loops == 0 {
		c.r.errorf("%s: only meaningful in a `for', `while', or `until' loop", c.name)
		return 0
	}
	c.r.flow, c.r.flowCount = flowBreak, min(n, c.r.loops)
	if c.name == "continue" {
		c.r.flow = flowContinue
	}
	c.r.status = 0
	return 0
}

func biShift(c *call) int {
	n := 1
	if len(c.args) > 0 {
		v, err := strconv.Atoi(c.args[0])
		if err != nil || v < 0 {
			return c.fail(1, "%s: numeric argument required", c.args[0])
		}
		n = v
	}
	if n > len(c.r.params) {
		return 1
	}
	c.r.params = c.r.params[n:]
	return 0
}

func biUnset(c *call) int {
	status, vars, funcs := 0, true, true
	for _, a := range c.args {
		switch a {
		case "-v":
			funcs = false
			continue
		case "-f":
			vars = false
			continue
		case "-n", "--":
			continue
		}
		if base, _, _ := strings.Cut(a, "["); vars && c.r.lookupRaw(base) != nil {
			if !c.r.unset(a) {
				status = 1
			}
		} else if funcs {
			delete(c.r.funcs, a)
		}
	}
	return status
}

// biDeclare serves the declaration builtins when they are called in a way that
// the grammar does not see, such as "command export x=1".
func biDeclare(c *call) int {
	yes := true
	d := declared{local: len(c.r.calls) > 0 && c.name != "export" && c.name != "readonly"}
	switch c.name {
	case "export":
		d.export = &yes
	case "readonly":
		d.readonly = &yes
	}
	c.r.status = 0
	for _, a := range c.args {
		if len(a) > 1 && a[0] == '-' {
			d.option(a[1:], &yes)
			continue
		}
		c.r.declareText(d, a, c.name)
	}
	return c.r.status
}

func biEval(c *call) int {
	if len(c.args) == 0 {
		return 0
	}
	c.r.status = 0
	line := c.r.line
	c.r.script(strings.Join(c.args, " "))
	c.r.line = line
	return c.r.status
}

func biSource(c *call) int {
	if len(c.args) == 0 {
		return c.fail(2, "filename argument required")
	}
	file := c.args[0]
	full := c.r.abs(file)
	if !strings.Contains(file, "/") {
		if found := c.r.lookPath(file); found != "" {
			full = found
		}
	}
	data, err := c.r.view.ReadFile(full)
	if err != nil {
		c.r.errorf("%s: %s", file, errText(err))
		return 1
	}
	r := c.r
	params := r.params
	if len(c.args) > 1 {
		r.params = c.args[1:]
	}
	r.sourcing++
	r.status = 0
	line := r.line
	r.script(string(data))
	r.line = line
	r.sourcing--
	if len(c.args) > 1 {
		r.params = params
	}
	if r.flow == flowReturn {
		r.flow = flowNone
	}
	return r.status
}

func biExec(c *call) int {
	args := c.args
	for len(args) > 1 && (args[0] == "-a" || args[0] == "-c" || args[0] == "-l" || args[0] == "--") {
		if args[0] == "-a" {
			args = args[1:]
		}
		args = args[1:]
	}
	if len(args) == 0 {
		return 0 // only redirections, which the caller keeps
	}
	status := c.r.runTool(args, c.r.environ)
	delete(c.r.traps, trapEXIT)
	c.r.flow, c.r.status, c.r.exiting = flowExit, status, true
	return status
}

func biCommand(c *call) int {
	args, verbose, describe := c.args, false, false
	for len(args) > 0 && len(args[0]) > 1 && args[0][0] == '-' {
		a := args[0]
		args = args[1:]
		if a == "--" {
			break
		}
		verbose = verbose || strings.Contains(a, "v")
		describe = describe || strings.Contains(a, "V")
	}
	if len(args) == 0 {
		return 0
	}
	if verbose || describe {
		status := 0
		for _, a := range args {
			kind, where := c.r.kindOf(a)
			switch {
			case kind == "":
				status = 1
				if describe {
					c.r.errorf("command: %s: not found", a)
				}
			case describe:
				c.print(describeCommand(a, kind, where) + "\n")
			case kind == "file":
				c.print(where + "\n")
			default:
				c.print(a + "\n")
			}
		}
		return status
	}
	if b, ok := c.r.m.builtins[args[0]]; ok {
		return b(c.r.newCall(args[0], args[1:]))
	}
	return c.r.runTool(args, c.r.environ)
}

func biBuiltin(c *call) int {
	if len(c.args) == 0 {
		return 0
	}
	b, ok := c.r.m.builtins[c.args[0]]
	if !ok {
		return c.fail(1, "%s: not a shell builtin", c.args[0])
	}
	return b(c.r.newCall(c.args[0], c.args[1:]))
}

// keywords of the grammar, for type.
const keywords = " if then else elif fi for while until do done case esac function select time { } ! [[ ]] in coproc "

// kindOf says what a name means as a command: keyword, function, builtin, file or "".
func (r *runner) kindOf(name string) (kind, where string) {
	if strings.Contains(keywords, " "+name+" ") {
		return "keyword", ""
	}
	if _, ok := r.funcs[name]; ok {
		return "function", ""
	}
	if _, ok := r.m.builtins[name]; ok {
		return "builtin", ""
	}
	if strings.Contains(name, "/") {
		if r.view.Access(r.abs(name), vfs.MayExec) == nil {
			return "file", name
		}
		return "", ""
	}
	if file := r.lookPath(name); file != "" {
		return "file", file
	}
	return "", ""
}

func describeCommand(name, kind, where string) string {
	switch kind {
	case "keyword":
		return name + " is a shell keyword"
	case "function":
		return name + " is a function"
	case "builtin":
		return name + " is a shell builtin"
	}
	return name + " is " + where
}

func biType(c *call) int {
	args, short, onlyPath := c.args, false, false
	for len(args) > 0 && len(args[0]) > 1 && args[0][0] == '-' {
		short = short || strings.Contains(args[0], "t")
		onlyPath = onlyPath || strings.ContainsAny(args[0], "pP")
		args = args[1:]
	}
	status := 0
	for _, a := range args {
		kind, where := c.r.kindOf(a)
		switch {
		case kind == "":
			status = 1
			if !short && !onlyPath {
				c.r.errorf("type: %s: not found", a)
			}
		case short:
			c.print(kind + "\n")
		case onlyPath:
			if kind == "file" {
				c.print(where + "\n")
			}
		default:
			c.print(describeCommand(a, kind, where) + "\n")
		}
	}
	return status
}

func biAlias(c *call) int {
	if len(c.args) == 0 {
		return 0
	}
	// Aliases are off in scripts, where nearly all of this shell's work is done.
	return 0
}

func biLet(c *call) int {
	var n int64
	for _, a := range c.args {
		var ok bool
		if n, ok = c.r.arithText(a); !ok {
			return 1
		}
	}
	return boolStatus(n != 0)
}

func biUmask(c *call) int {
	if len(c.args) == 0 || c.args[0] == "-S" || c.args[0] == "-p" {
		return c.print(fmt.Sprintf("%04o\n", c.r.umask))
	}
	n, err := strconv.ParseUint(c.args[0], 8, 32)
	if err != nil {
		return c.fail(1, "%s: octal number out of range", c.args[0])
	}
	c.r.umask = uint32(n) & 0o777
	return 0
}

// biUlimit tells the truth: the limits of this machine are not the shell's to set.
func biUlimit(c *call) int {
	for _, a := range c.args {
		if !strings.HasPrefix(a, "-") {
			return c.fail(1, "limits are set when the sandbox is made: cannot modify limit: Operation not permitted")
		}
	}
	for _, a := range c.args {
		if strings.Contains(a, "u") && c.r.m.limits.Procs > 0 {
			return c.print(strconv.Itoa(c.r.m.limits.Procs) + "\n")
		}
	}
	return c.print("unlimited\n")
}

func biTimes(c *call) int { return c.print("0m0.000s 0m0.000s\n0m0.000s 0m0.000s\n") }

func biHelp(c *call) int {
	return c.print("A simulated shell, compatible with much of GNU bash. See ls /usr/bin for the tools there are.\n")
}

// stat reports whether a path exists, for commands.
func (c *call) stat(name string) (vfs.Info, error) {
	if name == "" {
		return vfs.Info{}, fs.ErrNotExist
	}
	return c.r.view.Stat(c.r.abs(name))
}
