package web

import (
	"slices"
	"strings"
)

func findOption(match func(o option) bool) (option, bool) {
	all := table()
	i := slices.IndexFunc(all, match)
	if i < 0 {
		return option{}, false
	}
	return all[i], true
}

// parse reads the arguments.
func (c *curl) parse(args []string) error {
	plain := false
	for len(args) > 0 {
		a := args[0]
		args = args[1:]
		var err error
		switch {
		case plain || len(a) < 2 || a[0] != '-':
			c.config.urls = append(c.config.urls, a)
		case a == "--":
			plain = true
		case a[1] == '-':
			args, err = c.long(a, args)
		default:
			args, err = c.short(a, args)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *curl) long(a string, args []string) ([]string, error) {
	name := a[2:]
	value := ""
	o, ok := findOption(func(o option) bool { return o.long == name })
	if !ok && strings.HasPrefix(name, "no-") {
		if o, ok = findOption(func(o option) bool { return !o.arg && o.long == name[3:] }); ok {
			value = "no"
		}
	}
	if !ok {
		n := 0
		for _, x := range table() {
			if strings.HasPrefix(x.long, name) {
				o = x
				n++
			}
		}
		if n > 1 {
			return nil, fail(errUsage, "option %s: is ambiguous", a)
		}
		ok = n == 1
	}
	if !ok {
		return nil, fail(errUsage, "option %s: is unknown", a)
	}
	if o.arg {
		if len(args) == 0 {
			return nil, fail(errUsage, "option %s: requires parameter", a)
		}
		value, args = args[0], args[1:]
	}
	return args, c.apply(o, a, value)
}

func (c *curl) short(a string, args []string) ([]string, error) {
	for i := 1; i < len(a); i++ {
		o, ok := findOption(func(o option) bool { return o.short == a[i] })
		if !ok {
			return nil, fail(errUsage, "option %s: is unknown", a)
		}
		if !o.arg {
			if err := c.apply(o, a, ""); err != nil {
				return nil, err
			}
			continue
		}
		value := a[i+1:]
		if value == "" {
			if len(args) == 0 {
				return nil, fail(errUsage, "option %s: requires parameter", a)
			}
			value, args = args[0], args[1:]
		}
		return args, c.apply(o, a, value)
	}
	return args, nil
}

func (c *curl) apply(o option, a, value string) error {
	err := o.run(c, value)
	if f, ok := err.(*failure); ok && f.code == errUsage && !strings.HasPrefix(f.text, "option ") {
		return fail(errUsage, "option %s: %s", a, f.text)
	}
	return err
}

// readConfig is -K: it reads a file with one option on each line.
func (c *curl) readConfig(name string) error {
	if c.depth++; c.depth > 10 {
		return fail(errUsage, "config files are nested too deeply")
	}
	defer func() { c.depth-- }()
	in, err := c.OpenIn(name)
	if err != nil {
		return fail(errRead, "Failed to open %s", name)
	}
	defer func() { _ = in.Close() }() // it was read
	return c.Lines(in, '\n', func(b []byte, _ bool) error {
		line := strings.TrimSpace(string(b))
		if line == "" || line[0] == '#' {
			return nil
		}
		end := strings.IndexAny(line, " \t=:")
		if line[0] == '-' && (len(line) < 2 || line[1] != '-') {
			end = strings.IndexAny(line, " \t=")
		}
		word, value := line, ""
		if end >= 0 {
			word, value = line[:end], strings.TrimLeft(line[end:], " \t=:")
		}
		if !strings.HasPrefix(word, "-") {
			word = "--" + word
		}
		if strings.HasPrefix(value, `"`) {
			value = unquote(value[1:])
		}
		args := []string{word}
		if value != "" {
			args = append(args, value)
		}
		return c.parse(args)
	})
}

func unquote(s string) string {
	var b strings.Builder
	for i := 0; i < len(s) && s[i] != '"'; i++ {
		if s[i] == '\\' && i+1 < len(s) {
			i++
			switch s[i] {
			case 'n':
				b.WriteByte('\n')
				continue
			case 't':
				b.WriteByte('\t')
				continue
			case 'r':
				b.WriteByte('\r')
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// setWriteOut is -w. Its text may be in a file.
func (c *curl) setWriteOut(v string) error {
	if name, ok := strings.CutPrefix(v, "@"); ok {
		b, err := c.file(name)
		if err != nil {
			return fail(errRead, "Failed to open %s", name)
		}
		v = string(b)
	}
	c.config.writeOut = v
	return nil
}

func (c *curl) addHeader(v string) error {
	name, ok := strings.CutPrefix(v, "@")
	if !ok {
		c.config.headers = append(c.config.headers, v)
		return nil
	}
	b, err := c.file(name)
	if err != nil {
		return fail(errRead, "Failed to open %s", name)
	}
	for _, l := range strings.Split(string(b), "\n") {
		if l = strings.TrimRight(l, "\r"); l != "" {
			c.config.headers = append(c.config.headers, l)
		}
	}
	return nil
}

// file reads a whole named input.
func (c *curl) file(name string) ([]byte, error) {
	in, err := c.OpenIn(name)
	if err != nil {
		return nil, err
	}
	b, err := c.ReadAll(in)
	_ = in.Close() // it was read
	return b, err
}
