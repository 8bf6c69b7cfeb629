package interp

import (
	"context"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// readOptions are the options of read.
type readOptions struct {
	raw, silent   bool
	array, prompt string
	delim         byte
	chars         int // -n or -N; 0 is no limit
	exact         bool
	counted       bool // -n or -N was given
	poll          bool // -t 0: only check for available input
	timeout       time.Duration
	fd            int
	names         []string
}

func parseRead(c *call) (o readOptions, status int) {
	o.delim = '\n'
	args := c.args
	for len(args) > 0 && len(args[0]) > 1 && args[0][0] == '-' {
		a := args[0]
		args = args[1:]
		if a == "--" {
			break
		}
		for i := 1; i < len(a); i++ {
			switch a[i] {
			case 'r':
				o.raw = true
				continue
			case 's':
				o.silent = true
				continue
			case 'e':
				continue
			}
			if strings.IndexByte("adinNptu", a[i]) < 0 {
				c.fail(2, "-%c: invalid option", a[i])
				c.r.writeErr("read: usage: read [-ers] [-a array] [-d delim] [-i text] [-n nchars] [-N nchars] [-p prompt] [-t timeout] [-u fd] [name ...]\n")
				return o, 2
			}
			value := a[i+1:]
			if value == "" {
				if len(args) == 0 {
					return o, c.fail(2, "-%c: option requires an argument", a[i])
				}
				value, args = args[0], args[1:]
			}
			if what := o.set(a[i], value); what != "" {
				return o, c.fail(1, "%s: %s", value, what)
			}
			break
		}
	}
	o.names = args
	for _, n := range args {
		if base, sub, isElem := strings.Cut(n, "["); !isName(base) || isElem && (len(sub) < 2 || !strings.HasSuffix(sub, "]")) {
			return o, c.fail(1, "`%s': not a valid identifier", n)
		}
	}
	return o, 0
}

// set applies an option that has a value. The result says what is wrong with the value.
func (o *readOptions) set(letter byte, value string) string {
	switch letter {
	case 'a':
		o.array = value
	case 'p':
		o.prompt = value
	case 'd':
		o.delim = 0
		if value != "" {
			o.delim = value[0]
		}
	case 'n', 'N':
		n, err := strconv.Atoi(value)
		if err != nil || n < 0 {
			return "invalid number"
		}
		o.chars, o.counted, o.exact = n, true, letter == 'N'
	case 't':
		secs, err := strconv.ParseFloat(value, 64)
		if err != nil || secs < 0 || secs > 1e9 {
			return "invalid timeout specification"
		}
		o.timeout, o.poll = max(time.Duration(secs*float64(time.Second)), time.Nanosecond), secs == 0
	case 'u':
		n, err := strconv.Atoi(value)
		if err != nil || n < 0 {
			return "invalid file descriptor specification"
		}
		o.fd = n
	}
	return ""
}

func biRead(c *call) int {
	o, status := parseRead(c)
	if status != 0 {
		return status
	}
	r := c.r
	d := r.fds.get(o.fd)
	if d == nil {
		return c.fail(1, "%d: invalid file descriptor: Bad file descriptor", o.fd)
	}
	if o.poll {
		return boolStatus(ready(d))
	}
	if o.counted && o.chars == 0 {
		o.assign(r, nil, nil)
		return 0
	}
	t := r.ttyOf(o.fd)
	if o.prompt != "" && t != nil {
		r.writeErr(o.prompt)
	}
	if t != nil && o.silent {
		t.mu.Lock()
		t.quiet = true
		t.mu.Unlock()
		defer func() { t.mu.Lock(); t.quiet = false; t.mu.Unlock() }()
	}
	ctx := r.ctx
	if o.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = r.m.deadline(ctx, o.timeout)
		defer cancel()
	}
	text, escaped, ok := r.readInput(ctx, d, o)
	if r.flow != flowNone {
		return 1
	}
	if !o.assign(r, text, escaped) {
		return 1
	}
	switch {
	case ok:
		return 0
	case r.ctx.Err() == nil && ctx.Err() != nil:
		return 128 + 14
	}
	return 1
}

// readInput reads up to the delimiter. escaped marks the bytes after a backslash: they are not
// split.
func (r *runner) readInput(ctx context.Context, d *desc, o readOptions) (text []byte, escaped []bool, ok bool) {
	in := fdReader{ctx, d}
	buf := make([]byte, 1)
	for steps := 0; ; steps++ {
		if n, err := in.Read(buf); n == 0 {
			if err == nil {
				continue
			}
			return text, escaped, false
		}
		b := buf[0]
		if b == '\\' && !o.raw {
			if n, _ := in.Read(buf); n == 0 { // end of file after a backslash
				return text, escaped, false
			}
			if buf[0] == '\n' {
				continue
			}
			text, escaped = append(text, buf[0]), append(escaped, true)
		} else {
			if b == o.delim && !o.exact {
				return text, escaped, true
			}
			if b == 0 {
				continue
			}
			text, escaped = append(text, b), append(escaped, false)
		}
		if o.chars > 0 && len(text) >= o.chars && utf8.RuneCount(text) >= o.chars && whole(text) {
			return text, escaped, true
		}
		const batch = 4096
		if len(text)%batch == 0 {
			r.pay(batch)
			if !r.step() {
				return nil, nil, false
			}
		}
	}
}

// assign splits the input and stores the fields.
func (o *readOptions) assign(r *runner, text []byte, escaped []bool) bool {
	ifs, set := r.get("IFS")
	if !set {
		ifs = " \t\n"
	}
	if o.exact {
		ifs = ""
	}
	if o.array != "" {
		fields := splitRead(text, escaped, ifs, 0)
		v := r.target(o.array)
		if v.readonly {
			r.errorf("%s: readonly variable", o.array)
			return false
		}
		v.setArray(fields)
		r.pay(len(text))
		return true
	}
	if len(o.names) == 0 {
		return r.set("REPLY", string(text))
	}
	fields := splitRead(text, escaped, ifs, len(o.names))
	for i, name := range o.names {
		value := ""
		if i < len(fields) {
			value = fields[i]
		}
		ok := false
		if base, sub, isElem := strings.Cut(name, "["); isElem {
			ok = r.setElem(base, strings.TrimSuffix(sub, "]"), value, false)
		} else {
			ok = r.set(name, value)
		}
		if !ok {
			return false
		}
	}
	return true
}

// splitRead splits at IFS. With most > 0, the last field gets the rest.
func splitRead(text []byte, escaped []bool, ifs string, most int) []string {
	isSep := func(i int) bool { return !escaped[i] && strings.IndexByte(ifs, text[i]) >= 0 }
	isSpace := func(i int) bool {
		return isSep(i) && (text[i] == ' ' || text[i] == '\t' || text[i] == '\n')
	}
	end := len(text)
	i := 0
	for i < end && isSpace(i) {
		i++
	}
	var out []string
	for i < end {
		if most > 0 && len(out) == most-1 {
			return append(out, lastRead(text[i:end], escaped[i:end], ifs))
		}
		start := i
		for i < end && !isSep(i) {
			i++
		}
		out = append(out, string(text[start:i]))
		for i < end && isSpace(i) {
			i++
		}
		if i < end && isSep(i) {
			i++
			for i < end && isSpace(i) {
				i++
			}
		}
	}
	return out
}

// lastRead returns the rest of a line for the last variable. It removes white space at the end. It
// also removes one separator if the rest is a single field and that separator.
func lastRead(text []byte, escaped []bool, ifs string) string {
	trim := func(n int) int {
		for n > 0 && !escaped[n-1] && strings.IndexByte(" \t\n", text[n-1]) >= 0 && strings.IndexByte(ifs, text[n-1]) >= 0 {
			n--
		}
		return n
	}
	n := trim(len(text))
	if n > 0 && !escaped[n-1] && strings.IndexByte(ifs, text[n-1]) >= 0 {
		only := true
		for i := range n - 1 {
			if !escaped[i] && strings.IndexByte(ifs, text[i]) >= 0 && (text[i] != ' ' && text[i] != '\t' && text[i] != '\n' || trim(n-1) > i) {
				only = false
			}
		}
		if only {
			n = trim(n - 1)
		}
	}
	return string(text[:n])
}

// whole reports whether text ends with a complete character.
func whole(text []byte) bool {
	at := len(text) - 1
	for at > 0 && at > len(text)-utf8.UTFMax && !utf8.RuneStart(text[at]) {
		at--
	}
	return utf8.FullRune(text[at:])
}

// ready reports whether a read would return without waiting.
func ready(d *desc) bool {
	s := d.stream
	if c, ok := s.(counted); ok {
		s = c.stream
	}
	var p *Pipe
	switch s := s.(type) {
	case readEnd:
		p = s.p
	case ttyStream:
		p = s.t.in
	case *fifoStream:
		p = s.q.p
	default:
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.off < len(p.buf) || p.writers == 0
}
