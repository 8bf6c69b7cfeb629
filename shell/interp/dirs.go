package interp

import (
	"strconv"
	"strings"
)

// stack returns the directory stack, beginning with the working directory.
func (r *runner) stack() []string { return append([]string{r.dir}, r.dirs...) }

// printDirs shows the stack.
func (c *call) printDirs(long, lines, numbers bool) int {
	var b strings.Builder
	home := c.r.str("HOME")
	for i, d := range c.r.stack() {
		if !long && home != "" && (d == home || strings.HasPrefix(d, home+"/")) {
			d = "~" + d[len(home):]
		}
		switch {
		case numbers:
			n := strconv.Itoa(i)
			b.WriteString(strings.Repeat(" ", max(2-len(n), 0)) + n + "  " + d + "\n")
		case lines:
			b.WriteString(d + "\n")
		default:
			if i > 0 {
				b.WriteByte(' ')
			}
			b.WriteString(d)
		}
	}
	if !lines && !numbers {
		b.WriteByte('\n')
	}
	return c.print(b.String())
}

// dirIndex reads +N or -N.
func (c *call) dirIndex(a string, n int) (int, bool) {
	v, err := strconv.Atoi(a[1:])
	if err != nil {
		return 0, false
	}
	if a[0] == '-' {
		v = n - 1 - v
	}
	return v, true
}

func isIndex(a string) bool {
	if len(a) < 2 || a[0] != '+' && a[0] != '-' {
		return false
	}
	_, err := strconv.ParseUint(a[1:], 10, 31)
	return err == nil
}

func biDirs(c *call) int {
	var long, lines, numbers bool
	for _, a := range c.args {
		if isIndex(a) {
			stack := c.r.stack()
			i, ok := c.dirIndex(a, len(stack))
			if !ok || i < 0 || i >= len(stack) {
				return c.fail(1, "%s: directory stack index out of range", strings.TrimLeft(a, "+-"))
			}
			d := stack[i]
			if home := c.r.str("HOME"); !long && home != "" && (d == home || strings.HasPrefix(d, home+"/")) {
				d = "~" + d[len(home):]
			}
			return c.print(d + "\n")
		}
		if len(a) < 2 || a[0] != '-' {
			c.fail(2, "%s: invalid argument", a)
			return 1
		}
		for _, l := range a[1:] {
			switch l {
			case 'c':
				c.r.dirs = nil
				return 0
			case 'l':
				long = true
			case 'p':
				lines = true
			case 'v':
				numbers = true
			default:
				c.fail(2, "-%c: invalid option", l)
				return 2
			}
		}
	}
	return c.printDirs(long, lines, numbers)
}

// goTo changes the working directory, with the messages of cd.
func (c *call) goTo(dir string) int {
	out := c.out
	c.out = discard{}
	defer func() { c.out = out }()
	next := *c
	next.args, next.out = []string{"--", dir}, discard{}
	return biCd(&next)
}

// discard is a writer that drops everything.
type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }

func biPushd(c *call) int {
	r := c.r
	args, stay := c.args, false
	for len(args) > 0 && (args[0] == "-n" || args[0] == "--") {
		stay = stay || args[0] == "-n"
		args = args[1:]
	}
	if len(args) > 0 && len(args[0]) > 1 && args[0][0] == '-' && !isIndex(args[0]) && len(args) == len(c.args) {
		return c.usage("%s: invalid number", args[0])
	}
	if len(args) == 0 && stay {
		return 0
	}
	if len(args) == 0 {
		if len(r.dirs) == 0 {
			return c.fail(1, "no other directory")
		}
		old, top := r.dir, r.dirs[0]
		if code := c.goTo(top); code != 0 {
			return code
		}
		r.dirs[0] = old
		return c.printDirs(false, false, false)
	}
	if len(args) > 1 {
		return c.fail(1, "too many arguments")
	}
	if a := args[0]; isIndex(a) {
		stack := r.stack()
		i, ok := c.dirIndex(a, len(stack))
		if !ok || i < 0 || i >= len(stack) {
			return c.fail(1, "%s: directory stack index out of range", a)
		}
		next := append(append([]string(nil), stack[i:]...), stack[:i]...)
		if !stay {
			if code := c.goTo(next[0]); code != 0 {
				return code
			}
		}
		r.dirs = next[1:]
		return c.printDirs(false, false, false)
	}
	const most = 4096
	if len(r.dirs) >= most {
		return c.fail(1, "directory stack too long")
	}
	old := r.dir
	if stay {
		r.dirs = append([]string{r.abs(args[0])}, r.dirs...)
		return c.printDirs(false, false, false)
	}
	if code := c.goTo(args[0]); code != 0 {
		return code
	}
	r.dirs = append([]string{old}, r.dirs...)
	return c.printDirs(false, false, false)
}

func biPopd(c *call) int {
	r := c.r
	args, stay := c.args, false
	for len(args) > 0 && (args[0] == "-n" || args[0] == "--") {
		stay = stay || args[0] == "-n"
		args = args[1:]
	}
	if len(r.dirs) == 0 && len(args) == 0 {
		return c.fail(1, "directory stack empty")
	}
	i := 0
	if len(args) > 0 {
		if !isIndex(args[0]) {
			c.fail(2, "%s: invalid argument", args[0])
			r.writeErr("popd: usage: popd [-n] [+N | -N]\n")
			return 2
		}
		stack := r.stack()
		n, ok := c.dirIndex(args[0], len(stack))
		if !ok || n < 0 || n >= len(stack) {
			if len(r.dirs) == 0 {
				return c.fail(1, "directory stack empty")
			}
			return c.fail(1, "%s: directory stack index out of range", args[0])
		}
		i = n
	}
	switch {
	case i == 0 && stay:
		if len(r.dirs) > 0 {
			r.dirs = r.dirs[1:]
		}
	case i == 0:
		if code := c.goTo(r.dirs[0]); code != 0 {
			return code
		}
		r.dirs = r.dirs[1:]
	default:
		r.dirs = append(append([]string(nil), r.dirs[:i-1]...), r.dirs[i:]...)
	}
	return c.printDirs(false, false, false)
}
