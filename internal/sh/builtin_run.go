package sh

import (
	"strings"

	"github.com/carrel-dev/carrel/internal/sh/vfs"
)

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
	r.calls = append(r.calls, frame{name: "source", file: file, line: r.line, sourced: true, params: r.params})
	r.status = 0
	line := r.line
	r.script(string(data))
	r.line = line
	r.calls = r.calls[:len(r.calls)-1]
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
