package interp

import "strconv"

// biCaller shows the line and file of a call on the stack.
func biCaller(c *call) int {
	r := c.r
	args := c.args
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	lines, files, names := r.callStack("BASH_LINENO").list(), r.callStack("BASH_SOURCE").list(), r.callStack("FUNCNAME").list()
	if len(lines) == 0 {
		return 1
	}
	file := func(i int) string {
		if i < len(files) {
			return files[i]
		}
		return "NULL"
	}
	if len(args) == 0 {
		return c.print(lines[0] + " " + file(1) + "\n")
	}
	n, err := strconv.Atoi(args[0])
	if err != nil {
		c.fail(2, "%s: invalid number", args[0])
		c.r.errUsage("caller")
		return 2
	}
	if n < 0 || n+1 >= len(names) || n+1 >= len(files) {
		return 1
	}
	return c.print(lines[n] + " " + names[n+1] + " " + files[n+1] + "\n")
}
