package interp

import (
	"strconv"
	"strings"
)

// letters reads the options of a builtin. Options are bundles of the letters in allowed; a letter
// that is followed by ':' there takes a value. When it returns false, it has written a message.
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
	o, args, status := c.mapfileOptions()
	if status != 0 {
		return status
	}
	name := "MAPFILE"
	if len(args) > 0 {
		if name = args[0]; !isName(name) {
			return c.fail(1, "`%s': not a valid identifier", name)
		}
	}
	d := r.fds.get(o.fd)
	if d == nil {
		return c.fail(1, "%d: invalid file descriptor: Bad file descriptor", o.fd)
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
	if o.origin < 0 {
		r.refund(v)
		v.arr, v.str, o.origin = &array{}, "", 0
	}
	v.toArray()
	v.set = true
	in := newLineReader(r, fdReader{r.ctx, d}, d, o.count > 0)
	for n := 0; o.count == 0 || n < o.skip+o.count; n++ {
		line, more := in.line(o.delim)
		if !more && line == "" || !r.step() {
			break
		}
		if n < o.skip {
			continue
		}
		if !o.keep && more {
			line = line[:len(line)-1]
		}
		line = strings.ReplaceAll(line, "\x00", "")
		at := o.origin + n - o.skip
		if o.callback != "" && (n-o.skip+1)%o.quantum == 0 {
			r.script(o.callback + " " + strconv.Itoa(at) + " " + quoteReusable(line))
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

// mapfileOptions are the options of mapfile.
type mapfileOptions struct {
	keep                bool // the ends of lines
	delim               byte
	skip, count, origin int // origin is -1 if the array is emptied first
	fd, quantum         int
	callback            string
}

// mapfileOptions reads the options. A status other than 0 ends the builtin; a message has been
// written.
func (c *call) mapfileOptions() (o mapfileOptions, args []string, status int) {
	o = mapfileOptions{keep: true, delim: '\n', origin: -1, quantum: 5000}
	bad := ""
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
			o.delim = 0
			if v != "" {
				o.delim = v[0]
			}
		case 'n':
			o.count = number("line count", v)
		case 'O':
			o.origin = number("array origin", v)
		case 's':
			o.skip = number("line count", v)
		case 't':
			o.keep = false
		case 'u':
			o.fd = number("file descriptor specification", v)
		case 'C':
			o.callback = v
		case 'c':
			o.quantum = max(number("callback quantum", v), 1)
		}
	})
	switch {
	case !ok:
		return o, nil, 2
	case bad != "":
		return o, nil, c.fail(1, "%s", bad)
	}
	return o, args, 0
}

// lineReader reads lines from a descriptor. If other readers continue after it, it reads no bytes
// beyond its lines.
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

// line returns the next line with its delimiter. more is false for a last line without a delimiter.
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
	g := getopts{call: c, spec: c.args[0], name: c.args[1], args: c.args[2:], at: r.getopts}
	if len(g.args) == 0 {
		g.args = r.params
	}
	var err error
	if g.index, err = strconv.Atoi(r.str("OPTIND")); err != nil || g.index < 1 {
		g.index = 1
	}
	return g.next()
}

// getopts is one call of getopts.
type getopts struct {
	*call
	spec, name string   // the option letters, and the variable for the result
	args       []string // where it is looked for
	index, at  int      // OPTIND, and the position in a bundle of letters
}

// next finds the next option and returns getopts' status.
func (g *getopts) next() int {
	r := g.r
	if g.index > len(g.args) {
		if g.index = len(g.args) + 1; r.str("OPTIND") == "1" {
			g.index = 1
		}
		return g.none()
	}
	a := g.args[g.index-1]
	if g.at == 0 || g.at >= len(a) {
		if a == "--" {
			g.index++
		}
		if a == "--" || len(a) < 2 || a[0] != '-' {
			return g.none()
		}
		g.at = 1
	}
	opt := a[g.at]
	g.at++
	letters := strings.TrimPrefix(g.spec, ":")
	known := strings.IndexByte(letters, opt)
	if known < 0 || opt == ':' {
		g.passLetter(a)
		g.complain(opt, "illegal option")
		return g.finish("?", g.at, 0)
	}
	if !strings.HasPrefix(letters[known+1:], ":") {
		r.unset("OPTARG")
		g.passLetter(a)
		return g.finish(string(opt), g.at, 0)
	}
	g.index++
	if g.at < len(a) {
		r.set("OPTARG", a[g.at:])
		return g.finish(string(opt), 0, 0)
	}
	if g.index > len(g.args) {
		g.complain(opt, "option requires an argument")
		if g.silent() {
			return g.finish(":", 0, 0)
		}
		return g.finish("?", 0, 0)
	}
	r.set("OPTARG", g.args[g.index-1])
	g.index++
	return g.finish(string(opt), 0, 0)
}

// none ends the search, because no option is left.
func (g *getopts) none() int {
	g.r.unset("OPTARG")
	return g.finish("?", 0, 1)
}

// passLetter moves to the next argument after the last letter of this one.
func (g *getopts) passLetter(a string) {
	if g.at >= len(a) {
		g.index++
		g.at = 0
	}
}

// silent reports whether the script writes its own error messages.
func (g *getopts) silent() bool { return strings.HasPrefix(g.spec, ":") }

// complain reports a wrong option. In silent mode it sets OPTARG; otherwise it writes a message.
func (g *getopts) complain(opt byte, words string) {
	if g.silent() {
		g.r.set("OPTARG", string(opt))
		return
	}
	g.r.unset("OPTARG")
	if g.r.str("OPTERR") != "0" {
		g.r.writeErr(g.r.name + ": " + words + " -- " + string(opt) + "\n")
	}
}

// finish stores the result. It keeps the position inside a bundle, although assigning OPTIND would
// reset it.
func (g *getopts) finish(result string, place, status int) int {
	if r := g.r; r.str("OPTIND") != strconv.Itoa(g.index) {
		r.set("OPTIND", strconv.Itoa(g.index))
	}
	g.r.getopts = place
	if !isName(g.name) {
		return g.fail(1, "`%s': not a valid identifier", g.name)
	}
	if !g.r.set(g.name, result) {
		return 1
	}
	return status
}
