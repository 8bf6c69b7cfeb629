package sh

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"github.com/carrel-dev/carrel/internal/sh/vfs"
)

// into splits operands in sources and destination; the destination of several is
// a directory.
func (c *call) into(args []string) (srcs []string, dst string, dir bool, ok bool) {
	if len(args) < 2 {
		if len(args) == 0 {
			c.complain(1, "missing file operand")
		} else {
			c.complain(1, "missing destination file operand after '%s'", args[0])
		}
		return nil, "", false, false
	}
	srcs, dst = args[:len(args)-1], args[len(args)-1]
	i, err := c.stat(dst)
	dir = err == nil && i.Mode.IsDir()
	if len(srcs) > 1 && !dir {
		c.complain(1, "target '%s': %s", dst, "Not a directory")
		return nil, "", false, false
	}
	return srcs, c.r.abs(dst), dir, true
}

func toolCp(c *call) int {
	f, ok := c.flags("rRapfivdLPnu", "recursive=r", "archive=a", "force=f", "preserve=p", "verbose=v")
	if !ok {
		return 1
	}
	srcs, dst, dir, ok := c.into(f.args)
	if !ok {
		return 1
	}
	deep := f.has('r') || f.has('R') || f.has('a')
	status := 0
	for _, s := range srcs {
		full, to := c.r.abs(s), dst
		if dir {
			to = strings.TrimRight(dst, "/") + "/" + path.Base(s)
		}
		i, err := c.stat(s)
		switch {
		case err == nil && i.Mode.IsDir() && !deep:
			status = c.complain(1, "-r not specified; omitting directory '%s'", s)
			continue
		case err == nil && f.has('n'):
			if _, e := c.r.view.Lstat(to); e == nil {
				continue
			}
		}
		if err == nil {
			err = c.copyTree(full, to, deep, f.has('p') || f.has('a'))
		}
		if err != nil {
			status = c.complain(1, "cannot copy '%s': %s", s, errText(err))
		}
	}
	return status
}

// copyTree copies a file or a directory.
func (c *call) copyTree(from, to string, deep, keep bool) error {
	type pair struct{ from, to string }
	for todo := []pair{{from, to}}; len(todo) > 0; {
		p := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if !c.r.step() {
			return errStop
		}
		stat := c.r.view.Stat
		if deep {
			stat = c.r.view.Lstat
		}
		i, err := stat(p.from)
		if err != nil {
			return err
		}
		switch {
		case i.Mode&fs.ModeSymlink != 0:
			err = c.r.view.Symlink(i.Target, p.to)
		case i.Mode.IsDir():
			if strings.HasPrefix(path.Clean(p.to)+"/", path.Clean(p.from)+"/") {
				return errors.New("cannot copy a directory into itself")
			}
			if err = c.r.view.Mkdir(p.to, c.perm(i.Mode.Perm())|0o700); errors.Is(err, fs.ErrExist) {
				err = nil
			}
			entries, rerr := c.r.view.ReadDir(p.from)
			if rerr != nil {
				return rerr
			}
			for _, e := range entries {
				todo = append(todo, pair{p.from + "/" + e.Name, p.to + "/" + e.Name})
			}
		default:
			err = c.copyFile(p.from, p.to, i)
		}
		if err != nil {
			return err
		}
		if keep && i.Mode&fs.ModeSymlink == 0 {
			if err := errors.Join(c.r.view.Chmod(p.to, i.Mode), c.r.view.Chtimes(p.to, i.Modified)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *call) copyFile(from, to string, i vfs.Info) error {
	if t, err := c.r.view.Stat(to); err == nil && t.Ino == i.Ino {
		return fmt.Errorf("'%s' and '%s' are the same file", from, to)
	}
	src, err := c.r.view.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := c.r.view.OpenFile(to, vfs.WriteOnly|vfs.CreateNew|vfs.Truncate, c.perm(i.Mode.Perm()))
	if err != nil {
		return err
	}
	defer dst.Close()
	buf := make([]byte, 32<<10)
	for c.r.step() {
		n, err := src.Read(buf)
		if _, werr := dst.Write(buf[:n]); werr != nil {
			return werr
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return errStop
}

func toolMv(c *call) int {
	f, ok := c.flags("finvT", "force=f", "no-clobber=n", "verbose=v")
	if !ok {
		return 1
	}
	srcs, dst, dir, ok := c.into(f.args)
	if !ok {
		return 1
	}
	status := 0
	for _, s := range srcs {
		to := dst
		if dir && !f.has('T') {
			to = strings.TrimRight(dst, "/") + "/" + path.Base(s)
		}
		if _, err := c.r.view.Lstat(to); err == nil && f.has('n') {
			continue
		}
		if err := c.r.view.Rename(strings.TrimRight(c.r.abs(s), "/"), to); err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				status = c.complain(1, "cannot stat '%s': %s", s, errText(err))
			} else {
				status = c.complain(1, "cannot move '%s' to '%s': %s", s, to, errText(err))
			}
		}
	}
	return status
}

func toolLn(c *call) int {
	f, ok := c.flags("sfnvrT", "symbolic=s", "force=f")
	if !ok {
		return 1
	}
	if len(f.args) == 1 {
		f.args = append(f.args, path.Base(f.args[0]))
	}
	srcs, dst, dir, ok := c.into(f.args)
	if !ok {
		return 1
	}
	status := 0
	for _, s := range srcs {
		to := dst
		if dir && !f.has('n') && !f.has('T') {
			to = strings.TrimRight(dst, "/") + "/" + path.Base(s)
		}
		if f.has('f') {
			_ = c.r.view.Remove(to) // what stays shows itself in the next step
		}
		var err error
		if f.has('s') {
			err = c.r.view.Symlink(s, to)
		} else {
			err = c.r.view.Link(c.r.abs(s), to)
		}
		if err != nil {
			status = c.complain(1, "failed to create link '%s': %s", to, errText(err))
		}
	}
	return status
}
