package sh

import (
	"strconv"
	"strings"
)

// letters reads the options of a builtin: bundles of the letters in allowed, of
// which those followed by ':' take a value. On false a message was written.
func (c *call) letters(allowed string, take func(l byte, value string)) (rest []string, ok bool) {
	args := c.args
	for len(args) > 0 && len(args[0]) > 1 && args[0][0] == '-' {
		a := args[0]
		args = args[1:]
		if a == "--" {
			break
		}
		for i := 1; i < len(a); i++ {
			at := strings.IndexByte(allowed, a[i])
			if at < 0 || a[i] == ':' {
				c.usage("-%c: invalid option", a[i])
				return nil, false
			}
			if at+1 < len(allowed) && allowed[at+1] == ':' {
				value := a[i+1:]
				if value == "" {
					if len(args) == 0 {
						c.usage("-%c: option requires an argument", a[i])
						return nil, false
					}
					value, args = args[0], args[1:]
				}
				take(a[i], value)
				break
			}
			take(a[i], "")
		}
	}
	return args, true
}

// biMapfile reads lines into an array.
func biMapfile(c *call) int {
	r := c.r
	keep, name, delim := true, "MAPFILE", byte('\n')
	skip, count, origin, fd, quantum := 0, 0, -1, 0, 5000
	callback, bad := "", ""
	number := func(what, v string) int {
		n, err := strconv.Atoi(v)
		if (err != nil || n < 0) && bad == "" {
			bad = v + ": invalid " + what
		}
		return n
	}
	args, ok := c.letters("d:n:O:s:tu:C:c:", func(l byte, v string) {
		switch l {
		case 'd':
			delim = 0
			if v != "" {
				delim = v[0]
			}
		case 'n':
			count = number("line count", v)
		case 'O':
			origin = number("array origin", v)
		case 's':
			skip = number("line count", v)
		case 't':
			keep = false
		case 'u':
			fd = number("file descriptor specification", v)
		case 'C':
			callback = v
		case 'c':
			quantum = max(number("callback quantum", v), 1)
		}
	})
	switch {
	case !ok:
		return 2
	case bad != "":
		return c.fail(1, "%s", bad)
	}
	if len(args) > 0 {
		if name = args[0]; !isName(name) {
			return c.fail(1, "`%s': not a valid identifier", name)
		}
	}
	d := r.fds.get(fd)
	if d == nil {
		return c.fail(1, "%d: invalid file descriptor: Bad file descriptor", fd)
	}
	p := r.resolve(name)
	v := r.targetOf(p)
	switch {
	case v.readonly:
		return c.fail(1, "%s: readonly variable", name)
	case v.assoc != nil:
		return c.fail(1, "%s: not an indexed array", name)
	}
	v.own()
	if origin < 0 {
		r.refund(v)
		v.arr, v.str, origin = &array{}, "", 0
	}
	v.toArray()
	v.set = true
	in := newLineReader(r, fdReader{r.ctx, d}, d, count > 0)
	for n := 0; count == 0 || n < skip+count; n++ {
		line, more := in.line(delim)
		if !more && line == "" || !r.step() {
			break
		}
		if n < skip {
			continue
		}
		if !keep && more {
			line = line[:len(line)-1]
		}
		line = strings.ReplaceAll(line, "\x00", "")
		at := origin + n - skip
		if callback != "" && (n-skip+1)%quantum == 0 {
			r.script(callback + " " + strconv.Itoa(at) + " " + quoteReusable(line))
			if r.flow != flowNone {
				return 1
			}
			v = r.target(name)
			v.toArray()
		}
		r.payVar(v, len(line)+24)
		if r.flow != flowNone {
			return 1
		}
		v.arr.put(at, line)
	}
	return 0
}

// lineReader reads lines of a descriptor. When others read on after it, it takes
// no more than its lines.
type lineReader struct {
	r    *runner
	in   fdReader
	buf  []byte
	done bool
	slow bool
}

func newLineReader(r *runner, in fdReader, _ *desc, exact bool) *lineReader {
	return &lineReader{r: r, in: in, slow: exact}
}

// line returns the next line with its delimiter; more is false for a last one without.
func (l *lineReader) line(delim byte) (text string, more bool) {
	from := 0
	for {
		if at := strings.IndexByte(string(l.buf[from:]), delim); at >= 0 {
			text = string(l.buf[:from+at+1])
			l.buf = l.buf[from+at+1:]
			return text, true
		}
		from = len(l.buf)
		if l.done {
			text, l.buf = string(l.buf), nil
			return text, false
		}
		var block [4096]byte
		b := block[:]
		if l.slow {
			b = block[:1]
		}
		n, err := l.in.Read(b)
		if l.r.pay(n); l.r.flow != flowNone {
			return "", false
		}
		l.r.pay(-n)
		l.buf = append(l.buf, b[:n]...)
		if err != nil {
			l.done = true
		}
	}
}

// biGetopts parses options by POSIX's rules.
func biGetopts(c *call) int {
	if len(c.args) > 0 && c.args[0] == "--" {
		c.args = c.args[1:]
	} else if len(c.args) > 0 && len(c.args[0]) > 1 && c.args[0][0] == '-' {
		return c.usage("-%c: invalid option", c.args[0][1])
	}
	if len(c.args) < 2 {
		c.r.errUsage(c.name)
		return 2
	}
	r := c.r
	spec, name, args := c.args[0], c.args[1], c.args[2:]
	if len(args) == 0 {
		args = r.params
	}
	ind, err := strconv.Atoi(r.str("OPTIND"))
	if err != nil || ind < 1 {
		ind = 1
	}
	at := r.getopts
	silent := strings.HasPrefix(spec, ":")
	quiet := silent || r.str("OPTERR") == "0"
	// finish stores what was found; the place inside a bundle outlives OPTIND's own change.
	finish := func(result string, place, status int) int {
		if r.str("OPTIND") != strconv.Itoa(ind) {
			r.set("OPTIND", strconv.Itoa(ind))
		}
		r.getopts = place
		if !isName(name) {
			return c.fail(1, "`%s': not a valid identifier", name)
		}
		if !r.set(name, result) {
			return 1
		}
		return status
	}
	if ind > len(args) {
		if ind = len(args) + 1; r.str("OPTIND") == "1" {
			ind = 1
		}
		r.unset("OPTARG")
		return finish("?", 0, 1)
	}
	a := args[ind-1]
	if at == 0 || at >= len(a) {
		if a == "--" {
			ind++
		}
		if a == "--" || len(a) < 2 || a[0] != '-' {
			r.unset("OPTARG")
			return finish("?", 0, 1)
		}
		at = 1
	}
	opt := a[at]
	at++
	letters := strings.TrimPrefix(spec, ":")
	known := strings.IndexByte(letters, opt)
	wants := known >= 0 && opt != ':' && strings.HasPrefix(letters[known+1:], ":")
	next := func() {
		if at >= len(a) {
			ind++
			at = 0
		}
	}
	switch {
	case known < 0 || opt == ':':
		next()
		if silent {
			r.set("OPTARG", string(opt))
		} else {
			r.unset("OPTARG")
			if !quiet {
				r.writeErr(r.name + ": illegal option -- " + string(opt) + "\n")
			}
		}
		return finish("?", at, 0)
	case !wants:
		r.unset("OPTARG")
		next()
		return finish(string(opt), at, 0)
	case at < len(a):
		r.set("OPTARG", a[at:])
		ind++
		return finish(string(opt), 0, 0)
	}
	ind++
	if ind > len(args) {
		if silent {
			r.set("OPTARG", string(opt))
			return finish(":", 0, 0)
		}
		r.unset("OPTARG")
		if !quiet {
			r.writeErr(r.name + ": option requires an argument -- " + string(opt) + "\n")
		}
		return finish("?", 0, 0)
	}
	r.set("OPTARG", args[ind-1])
	ind++
	return finish(string(opt), 0, 0)
}
