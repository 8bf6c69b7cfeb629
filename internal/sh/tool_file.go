package sh

import (
	"errors"
	"io/fs"
	"path"
	"strings"
	"syscall"

	"github.com/carrel-dev/carrel/internal/sh/vfs"
)

// on applies fn to every path and complains about those that fail.
func (c *call) on(names []string, what string, fn func(full string) error) int {
	if len(names) == 0 {
		return c.complain(1, "missing operand")
	}
	status := 0
	for _, n := range names {
		err := fs.ErrNotExist
		if n != "" {
			err = fn(c.r.abs(n))
		}
		if err != nil {
			status = c.complain(1, what, n, errText(err))
		}
	}
	return status
}

// perm applies the umask.
func (c *call) perm(mode fs.FileMode) fs.FileMode { return mode &^ fs.FileMode(c.r.umask) }

func toolMkdir(c *call) int {
	f, ok := c.flags("pvm:", "parents=p", "mode=m")
	if !ok {
		return 1
	}
	mode := c.perm(0o777)
	if f.has('m') {
		m, err := parseMode(f.val['m'], mode, true)
		if err != nil {
			return c.complain(1, "invalid mode '%s'", f.val['m'])
		}
		mode = m
	}
	return c.on(f.args, "cannot create directory '%s': %s", func(full string) error {
		if f.has('p') {
			return c.r.view.MkdirAll(path.Clean(full), mode)
		}
		return c.r.view.Mkdir(full, mode)
	})
}

func toolRmdir(c *call) int {
	f, ok := c.flags("p", "parents=p")
	if !ok {
		return 1
	}
	return c.on(f.args, "failed to remove '%s': %s", func(full string) error {
		i, err := c.r.view.Lstat(full)
		if err != nil {
			return err
		}
		if !i.Mode.IsDir() {
			return syscall.ENOTDIR
		}
		return c.r.view.Remove(full)
	})
}

func toolRm(c *call) int {
	f, ok := c.flags("rRfivd", "recursive=r", "force=f", "dir=d", "no-preserve-root=v", "preserve-root=v")
	if !ok {
		return 1
	}
	if len(f.args) == 0 && f.has('f') {
		return 0
	}
	return c.on(f.args, "cannot remove '%s': %s", func(full string) error {
		i, err := c.r.view.Lstat(full)
		switch {
		case err != nil && f.has('f') && errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case f.has('r') || f.has('R'):
			return c.r.view.RemoveAll(strings.TrimRight(full, "/"))
		case i.Mode.IsDir() && !f.has('d'):
			return syscall.EISDIR
		}
		return c.r.view.Remove(full)
	})
}

func toolTouch(c *call) int {
	f, ok := c.flags("acmd:r:t:", "date=d", "reference=r", "no-create=c")
	if !ok {
		return 1
	}
	when := c.r.m.now()
	if f.has('d') {
		t, err := parseDate(f.val['d'], when)
		if err != nil {
			return c.complain(1, "invalid date format '%s'", f.val['d'])
		}
		when = t
	}
	if f.has('r') {
		i, err := c.stat(f.val['r'])
		if err != nil {
			return c.complain(1, "failed to get attributes of '%s': %s", f.val['r'], errText(err))
		}
		when = i.Modified
	}
	return c.on(f.args, "cannot touch '%s': %s", func(full string) error {
		if _, err := c.r.view.Stat(full); errors.Is(err, fs.ErrNotExist) {
			if f.has('c') {
				return nil
			}
			file, err := c.r.view.OpenFile(full, vfs.WriteOnly|vfs.CreateNew, c.perm(0o666))
			if err != nil {
				return err
			}
			_ = file.Close()
		}
		return c.r.view.Chtimes(full, when)
	})
}
