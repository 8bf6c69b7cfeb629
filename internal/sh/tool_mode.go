package sh

import (
	"errors"
	"io/fs"
	"strconv"
	"strings"

	"github.com/carrel-dev/carrel/internal/sh/vfs"
)

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
