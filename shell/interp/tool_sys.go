package interp

import (
	"fmt"
	"strconv"
)

func toolStty(c *call) int {
	t := c.r.ttyOf(0)
	if t == nil {
		return c.complain(1, "'standard input': Inappropriate ioctl for device")
	}
	args := c.args
	for len(args) > 0 {
		a := args[0]
		args = args[1:]
		cols, rows := t.Size()
		t.mu.Lock()
		switch a {
		case "raw", "-icanon":
			t.raw = true
		case "cooked", "sane", "icanon", "-raw":
			t.raw, t.quiet = false, false
		case "echo":
			t.quiet = false
		case "-echo":
			t.quiet = true
		}
		t.mu.Unlock()
		switch a {
		case "size":
			return c.print(fmt.Sprintf("%d %d\n", rows, cols))
		case "raw", "-icanon", "icanon", "cooked", "sane", "-raw", "echo", "-echo":
		case "rows", "cols", "columns":
			if len(args) == 0 {
				return c.complain(1, "missing argument to '%s'", a)
			}
			n, err := strconv.ParseUint(args[0], 10, 16)
			if err != nil {
				return c.complain(1, "invalid integer argument '%s'", args[0])
			}
			args = args[1:]
			if a == "rows" {
				t.Resize(cols, uint16(n))
			} else {
				t.Resize(uint16(n), rows)
			}
		case "-a":
			c.print(fmt.Sprintf("speed 38400 baud; rows %d; columns %d;\n", rows, cols))
		default:
			return c.complain(1, "invalid argument '%s'", a)
		}
	}
	return 0
}
