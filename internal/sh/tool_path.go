package sh

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/carrel-dev/carrel/internal/sh/vfs"
)

func toolMktemp(c *call) int {
	f, ok := c.flags("dutp:q", "directory=d", "tmpdir=p")
	if !ok {
		return 1
	}
	dir, tmpl := "/tmp", "tmp.XXXXXXXXXX"
	if d := c.r.str("TMPDIR"); d != "" {
		dir = d
	}
	if f.val['p'] != "" {
		dir = f.val['p']
	}
	if len(f.args) > 0 {
		if tmpl = f.args[0]; !f.has('t') && !f.has('p') {
			dir = ""
		}
	}
	x := strings.LastIndex(tmpl, "XXX")
	if x < 0 {
		return c.complain(1, "too few X's in template '%s'", tmpl)
	}
	start := x + 3
	for start > 0 && tmpl[start-1] == 'X' {
		start--
	}
	for range 100 {
		name := tmpl[:start] + rand.Text()[:x+3-start] + tmpl[x+3:]
		if dir != "" {
			name = strings.TrimSuffix(dir, "/") + "/" + name
		}
		var err error
		if f.has('d') {
			err = c.r.view.Mkdir(c.r.abs(name), 0o700)
		} else {
			var file *vfs.File
			if file, err = c.r.view.OpenFile(c.r.abs(name), vfs.WriteOnly|vfs.CreateNew|vfs.Exclusive, 0o600); err == nil {
				_ = file.Close()
			}
		}
		if err == nil {
			return c.print(name + "\n")
		}
		if !errors.Is(err, fs.ErrExist) {
			return c.complain(1, "failed to create file via template '%s': %s", tmpl, errText(err))
		}
	}
	return 1
}

func toolTruncate(c *call) int {
	f, ok := c.flags("s:c", "size=s")
	if !ok {
		return 1
	}
	n, err := parseSize(strings.TrimPrefix(f.val['s'], "+"))
	if err != nil || n < 0 {
		return c.complain(1, "invalid number: '%s'", f.val['s'])
	}
	return c.on(f.args, "cannot open '%s' for writing: %s", func(full string) error {
		file, err := c.r.view.OpenFile(full, vfs.WriteOnly|vfs.CreateNew, c.perm(0o666))
		if err != nil {
			return err
		}
		defer file.Close()
		return file.Truncate(n)
	})
}

func toolRealpath(c *call) int {
	f, ok := c.flags("emsq", "canonicalize-missing=m")
	if !ok {
		return 1
	}
	return c.on(f.args, "%s: %s", func(full string) error {
		real, err := c.r.canonical(full, f.has('m'), f.has('e'))
		if err != nil {
			return err
		}
		c.print(real + "\n")
		return nil
	})
}

// canonical resolves a path of which the last name, or with missing any, may not exist.
func (r *runner) canonical(full string, missing, exists bool) (string, error) {
	real, err := r.view.EvalSymlinks(full)
	if err == nil || exists {
		return real, err
	}
	dir, name := path.Split(path.Clean(full))
	real, derr := r.view.EvalSymlinks(dir)
	if derr == nil {
		return strings.TrimSuffix(real, "/") + "/" + name, nil
	}
	if missing {
		return path.Clean(full), nil
	}
	return "", derr
}

func toolReadlink(c *call) int {
	f, ok := c.flags("fenmq", "canonicalize=f")
	if !ok {
		return 1
	}
	status := 0
	for _, n := range f.args {
		var s string
		var err error
		if f.has('f') || f.has('e') || f.has('m') {
			s, err = c.r.canonical(c.r.abs(n), f.has('m'), f.has('e'))
		} else {
			s, err = c.r.view.Readlink(c.r.abs(n))
		}
		if err != nil {
			status = 1
			continue
		}
		if !f.has('n') {
			s += "\n"
		}
		c.print(s)
	}
	return status
}

func toolCmp(c *call) int {
	f, ok := c.flags("s", "silent=s", "quiet=s")
	if !ok || len(f.args) != 2 {
		return c.complain(2, "two files are needed")
	}
	var data [2][]byte
	for i, n := range f.args {
		in, err := c.openIn(n)
		if err != nil {
			return c.complain(2, "%s: %s", n, errText(err))
		}
		data[i], err = c.slurp(in)
		_ = in.Close()
		if err != nil {
			return 2
		}
	}
	if bytes.Equal(data[0], data[1]) {
		return 0
	}
	if !f.has('s') {
		at, line := 0, 1
		for at < len(data[0]) && at < len(data[1]) && data[0][at] == data[1][at] {
			if data[0][at] == '\n' {
				line++
			}
			at++
		}
		c.print(fmt.Sprintf("%s %s differ: byte %d, line %d\n", f.args[0], f.args[1], at+1, line))
	}
	return 1
}
