package sh

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"time"

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
			return errNotDirectory
		}
		return c.r.view.Remove(full)
	})
}

var errNotDirectory = errors.New("Not a directory")

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
			return errors.New("Is a directory")
		}
		return c.r.view.Remove(full)
	})
}

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

// parseMode reads 755 or u+x,go-w against an old mode.
func parseMode(s string, old fs.FileMode, isDir bool) (fs.FileMode, error) {
	if n, err := strconv.ParseUint(s, 8, 32); err == nil && n <= 0o7777 {
		m := fs.FileMode(n & 0o777)
		for bit, flag := range map[uint64]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky} {
			if n&bit != 0 {
				m |= flag
			}
		}
		return m, nil
	}
	mode := old
	for clause := range strings.SplitSeq(s, ",") {
		at := strings.IndexAny(clause, "+-=")
		if at < 0 {
			return 0, errors.New("invalid mode")
		}
		who := clause[:at]
		if who == "" || who == "a" {
			who = "ugo"
		}
		var bits fs.FileMode
		for _, l := range clause[at+1:] {
			switch l {
			case 'r':
				bits |= 4
			case 'w':
				bits |= 2
			case 'x':
				bits |= 1
			case 'X':
				if isDir || old&0o111 != 0 {
					bits |= 1
				}
			case 's':
				mode |= fs.ModeSetuid
			case 't':
				mode |= fs.ModeSticky
			default:
				return 0, errors.New("invalid mode")
			}
		}
		for _, w := range who {
			shift := strings.IndexRune("ogu", w)
			if shift < 0 {
				return 0, errors.New("invalid mode")
			}
			b := bits << (3 * shift)
			switch clause[at] {
			case '+':
				mode |= b
			case '-':
				mode &^= b
			default:
				mode = mode&^(7<<(3*shift)) | b
			}
		}
	}
	return mode, nil
}

// walk calls fn for a path and, if deep, all below it, parents first.
func (c *call) walk(root string, deep bool, fn func(i vfs.Info, path string, depth int) (descend bool, err error)) error {
	type item struct {
		path  string
		depth int
	}
	for todo := []item{{root, 0}}; len(todo) > 0 && c.r.step(); {
		it := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		i, err := c.r.view.Lstat(c.r.abs(it.path))
		if err != nil {
			return err
		}
		descend, err := fn(i, it.path, it.depth)
		if err != nil {
			return err
		}
		if !deep || !descend || !i.Mode.IsDir() {
			continue
		}
		entries, err := c.r.view.ReadDir(c.r.abs(it.path))
		if err != nil {
			c.complain(1, "'%s': %s", it.path, errText(err))
			continue
		}
		for k := len(entries) - 1; k >= 0; k-- {
			todo = append(todo, item{strings.TrimSuffix(it.path, "/") + "/" + entries[k].Name, it.depth + 1})
		}
	}
	return nil
}

func toolChmod(c *call) int {
	args := c.args
	deep := false
	for len(args) > 0 && (args[0] == "-R" || args[0] == "-v" || args[0] == "-f" || args[0] == "--") {
		deep = deep || args[0] == "-R"
		args = args[1:]
	}
	if len(args) < 2 {
		return c.complain(1, "missing operand")
	}
	spec := args[0]
	if _, err := parseMode(spec, 0, false); err != nil {
		return c.complain(1, "invalid mode: '%s'", spec)
	}
	return c.on(args[1:], "cannot access '%s': %s", func(full string) error {
		if real, err := c.r.view.EvalSymlinks(full); err == nil {
			full = real
		}
		return c.walk(full, deep, func(i vfs.Info, p string, _ int) (bool, error) {
			if i.Mode&fs.ModeSymlink != 0 {
				return false, nil
			}
			m, err := parseMode(spec, i.Mode, i.Mode.IsDir())
			if err != nil {
				return false, err
			}
			return true, c.r.view.Chmod(p, m)
		})
	})
}

func toolChown(c *call) int {
	f, ok := c.flags("Rvfh", "recursive=R")
	if !ok || len(f.args) < 2 {
		return c.complain(1, "missing operand")
	}
	user, group, hasGroup := strings.Cut(f.args[0], ":")
	if base(c.name) == "chgrp" {
		user, group, hasGroup = "", f.args[0], true
	}
	uid, gid := int64(-1), int64(-1)
	if user != "" {
		if uid = c.lookupID(user, true); uid < 0 {
			return c.complain(1, "invalid user: '%s'", f.args[0])
		}
	}
	if hasGroup && group != "" {
		if gid = c.lookupID(group, false); gid < 0 {
			return c.complain(1, "invalid group: '%s'", group)
		}
	}
	return c.on(f.args[1:], "cannot access '%s': %s", func(full string) error {
		return c.walk(full, f.has('R'), func(i vfs.Info, p string, _ int) (bool, error) {
			u, g := i.UID, i.GID
			if uid >= 0 {
				u = uint32(uid)
			}
			if gid >= 0 {
				g = uint32(gid)
			}
			return true, c.r.view.Chown(p, u, g)
		})
	})
}

// lookupID returns the number of a user or group, −1 when there is none.
func (c *call) lookupID(name string, user bool) int64 {
	if n, err := strconv.ParseUint(name, 10, 32); err == nil {
		return int64(n)
	}
	for _, a := range c.r.m.Accounts() {
		if a.Name == name && user {
			return int64(a.UID)
		}
	}
	data, _ := c.r.m.fs.Root().ReadFile("/etc/group") // without it there are no groups
	for line := range strings.SplitSeq(string(data), "\n") {
		if p := strings.Split(line, ":"); !user && len(p) > 2 && p[0] == name {
			if n, err := strconv.ParseUint(p[2], 10, 32); err == nil {
				return int64(n)
			}
		}
	}
	return -1
}

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

// parseDate reads the dates people give to date -d and touch -d.
func parseDate(s string, now time.Time) (time.Time, error) {
	switch s {
	case "now", "today", "":
		return now, nil
	case "yesterday":
		return now.AddDate(0, 0, -1), nil
	case "tomorrow":
		return now.AddDate(0, 0, 1), nil
	}
	if n, err := strconv.ParseInt(strings.TrimPrefix(s, "@"), 10, 64); err == nil && s[0] == '@' {
		return time.Unix(n, 0).UTC(), nil
	}
	for _, l := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02", "2006/01/02", "15:04:05", "15:04", time.RFC1123} {
		if t, err := time.ParseInLocation(l, s, time.UTC); err == nil {
			return t, nil
		}
	}
	var n int
	var unit string
	if _, err := fmt.Sscanf(s, "%d %s", &n, &unit); err == nil {
		if strings.HasSuffix(s, "ago") {
			n = -n
		}
		switch strings.TrimSuffix(unit, "s") {
		case "second", "sec":
			return now.Add(time.Duration(n) * time.Second), nil
		case "minute", "min":
			return now.Add(time.Duration(n) * time.Minute), nil
		case "hour":
			return now.Add(time.Duration(n) * time.Hour), nil
		case "day":
			return now.AddDate(0, 0, n), nil
		case "week":
			return now.AddDate(0, 0, 7*n), nil
		case "month":
			return now.AddDate(0, n, 0), nil
		case "year":
			return now.AddDate(n, 0, 0), nil
		}
	}
	return time.Time{}, errors.New("invalid date")
}
