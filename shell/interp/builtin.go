package interp

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/carrel-dev/carrel/shell/vfs"
)

// builtinTable lists the commands that act on the shell itself, or that are built into bash. It is
// a function, called once, because its entries refer back to it.
func builtinTable() map[string]command {
	return map[string]command{
		":": biTrue, "true": biTrue, "false": biFalse,
		"echo": biEcho, "printf": biPrintf, "test": biTest, "[": biTest,
		"cd": biCd, "pwd": biPwd, "exit": biExit, "return": biReturn, "break": biBreak, "continue": biBreak,
		"set": biSet, "shopt": biShopt, "shift": biShift, "unset": biUnset, "export": biDeclare, "readonly": biDeclare,
		"declare": biDeclare, "typeset": biDeclare, "local": biDeclare,
		"eval": biEval, "source": biSource, ".": biSource, "exec": biExec, "command": biCommand, "builtin": biBuiltin,
		"type": biType, "hash": biHash, "caller": biCaller, "compgen": biCompgen, "complete": biComplete, "compopt": biCompopt, "alias": biAlias, "unalias": biUnalias, "enable": biEnable,
		"read": biRead, "mapfile": biMapfile, "readarray": biMapfile, "getopts": biGetopts, "let": biLet,
		"trap": biTrap, "wait": biWait, "kill": biKill, "jobs": biJobs, "disown": biDisown, "fg": biForeground, "bg": biBackground, "suspend": biSuspend,
		"umask": biUmask, "ulimit": biUlimit, "times": biTimes, "help": biHelp, "logout": biLogout,
		"pushd": biPushd, "popd": biPopd, "dirs": biDirs, "history": biHistory, "fc": biFc, "bind": biBind,
	}
}

// fail writes "name: message" as the shell does, and returns status.
func (c *call) fail(status int, format string, args ...any) int {
	c.r.errorf("%s: %s", c.name, fmt.Sprintf(format, args...))
	return status
}

func (c *call) print(s string) int {
	if _, err := io.WriteString(c.out, s); err != nil {
		c.unwritten = true
		if !errors.Is(err, syscall.EPIPE) && c.r.ctx.Err() == nil {
			c.fail(1, "write error: %s", errText(err))
		}
		return 1
	}
	return 0
}

func biTrue(*call) int { return 0 }

func biFalse(*call) int { return 1 }

func biEcho(c *call) int { return c.print(c.r.echoText(c.args)) }

// echoText is what echo writes.
func (r *runner) echoText(args []string) string {
	newline, escape := true, r.opts.xpgEcho
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
	return s
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
	physical := c.r.opts.physical
	for len(args) > 0 && (args[0] == "-P" || args[0] == "-L" || args[0] == "--") {
		physical = args[0] == "-P"
		args = args[1:]
	}
	if len(args) > 0 && len(args[0]) > 1 && args[0][0] == '-' && len(c.args) == len(args) {
		return c.usage("%s: invalid option", args[0][:2])
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
	if strings.Contains(target, "..") && c.r.isDir(c.r.dir) { // the directory before ".." must exist
		if _, err := c.r.view.Stat(c.r.abs(target)); err != nil {
			return c.fail(1, "%s: %s", target, errText(err))
		}
	}
	dir := path.Clean(c.r.abs(target))
	if physical { // ".." is the parent of a link's target
		if real, err := c.r.view.EvalSymlinks(c.r.abs(target)); err == nil {
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
	physical := c.r.opts.physical
	if _, ok := c.letters("LP", func(l byte, _ string) { physical = l == 'P' }); !ok {
		return 2
	}
	if physical {
		if real, err := c.r.view.EvalSymlinks(dir); err == nil {
			dir = real
		}
	}
	return c.print(dir + "\n")
}

func biUnset(c *call) int {
	status, vars, funcs, refs := 0, false, false, false
	args := c.args
	for len(args) > 0 && len(args[0]) > 1 && args[0][0] == '-' {
		a := args[0]
		args = args[1:]
		if a == "--" {
			break
		}
		for _, l := range a[1:] {
			switch l {
			case 'v':
				vars = true
			case 'f':
				funcs = true
			case 'n':
				refs = true
			default:
				return c.usage("-%c: invalid option", l)
			}
		}
	}
	if vars && funcs {
		return c.fail(1, "cannot simultaneously unset a function and a variable")
	}
	for _, a := range args {
		if !c.unsetOne(a, vars, funcs, refs) {
			status = 1
		}
	}
	return status
}

func (c *call) unsetOne(a string, vars, funcs, refs bool) bool {
	r := c.r
	base, sub, isElem := cutSubscript(a)
	switch {
	case funcs:
		return r.unsetFunc(a)
	case !isElem && !isName(a):
		if !vars {
			return r.unsetFunc(a)
		}
		c.fail(1, "`%s': not a valid identifier", a)
		return false
	case isElem:
		if v := r.lookup(base); v != nil && v.assoc != nil {
			if sub = r.expandSubscript(sub); r.flow != flowNone {
				return false
			}
		}
		p := r.resolve(base)
		if p.elem {
			return true
		}
		return r.unsetElem(p.name, sub)
	}
	v, at := r.find(a)
	switch {
	case v == nil && !vars && r.dynamic(a) == nil:
		return r.unsetFunc(a)
	case refs && v != nil && v.nameref:
		return r.unsetPlace(place{name: a, v: v, at: at})
	case refs && v != nil:
		return true
	}
	return r.unset(a)
}

func (r *runner) unsetFunc(name string) bool {
	f := r.funcs[name]
	if f != nil && f.readonly {
		r.errorf("unset: %s: cannot unset: readonly function", name)
		return false
	}
	if f != nil {
		r.setFunc(name, nil)
	}
	return true
}

// usage reports a wrong option, and prints the builtin's usage line.
func (c *call) usage(format string, args ...any) int {
	c.fail(2, format, args...)
	c.r.errUsage(c.name)
	return 2
}

func biLet(c *call) int {
	if len(c.args) == 0 {
		return c.fail(1, "expression expected")
	}
	var n int64
	for _, a := range c.args {
		var ok bool
		if n, ok = c.r.evalText("let", a); !ok {
			return 1
		}
	}
	return boolStatus(n != 0)
}

// biHelp prints the names and usage lines of the builtins.
func biHelp(c *call) int {
	describe := false
	args, ok := c.letters("dms", func(l byte, _ string) { describe = describe || l == 'd' })
	if !ok {
		return 2
	}
	names := slices.Sorted(maps.Keys(c.r.m.builtins))
	if len(args) == 0 {
		return c.print("A simulated shell, compatible with much of GNU bash. See ls /usr/bin for the tools there are.\n\n" + strings.Join(names, " ") + "\n")
	}
	var b strings.Builder
	for _, pat := range args {
		found := false
		for _, n := range names {
			if n != pat && !c.r.match(pat, n) {
				continue
			}
			if !found && n != pat {
				b.WriteString("Shell commands matching keyword `" + pat + "'\n\n")
			}
			found = true
			use := usages[n]
			if use == "" {
				use = n + " [arg ...]"
			}
			if describe {
				b.WriteString(n + " - a builtin of the shell\n")
			} else {
				b.WriteString(n + ": " + use + "\n")
			}
		}
		if !found {
			c.fail(1, "no help topics match `%s'.  Try `help help' or `man -k %s' or `info %s'.", pat, pat, pat)
			return 1
		}
	}
	return c.print(b.String())
}
