package files

import (
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// mv moves files.
func mv(call *tool.Call) int {
	f, ok := call.Flags("bfinS:t:TuvZ", "backup=\x82::", "force=f", "interactive=i", "no-clobber=n", "strip-trailing-slashes=\x8a", "suffix=S:",
		"target-directory=t", "no-target-directory=T", "update=u", "verbose=v", "context=Z", "no-copy=\x8b")
	if !ok {
		return 1
	}
	c := newCopier(call)
	c.move = true
	return c.common(f)
}

// moveOne moves one operand.
func (c *copier) moveOne(src, dst string) {
	info, err := lstat(c.Call, trimSlashes(src))
	if err == nil && strings.HasSuffix(src, "/") && !info.Mode.IsDir() {
		err = syscall.ENOTDIR
	}
	if err != nil {
		c.fail("cannot stat %s: %s", quoted(src), errText(err))
		return
	}
	if n := lastName(src); n == "." || n == ".." {
		c.fail("cannot move %s to %s: Device or resource busy", quoted(src), quoted(dst))
		return
	}
	backup := ""
	old, err := lstat(c.Call, trimSlashes(dst))
	switch {
	case err == nil && old.Ino == info.Ino:
		c.fail("%s and %s are the same file", quoted(src), quoted(dst))
		return
	case err == nil:
		var ok bool
		if backup, ok = c.inTheWay(src, dst, info, old); !ok {
			return
		}
	}
	err = c.FS().Rename(c.Abs(trimSlashes(src)), c.Abs(dst))
	switch {
	case err == nil:
	case errors.Is(err, syscall.EXDEV):
		c.across(src, dst, info)
		return
	case errors.Is(err, syscall.EINVAL) && info.Mode.IsDir():
		c.fail("cannot move %s to a subdirectory of itself, %s", quoted(src), quoted(dst))
		return
	default:
		c.fail("cannot move %s to %s: %s", quoted(src), quoted(dst), errText(err))
		return
	}
	c.made[c.Abs(dst)] = true
	if c.verbose {
		fmt.Fprintf(c.out, "renamed %s -> %s", quoted(src), quoted(dst))
		if backup != "" {
			fmt.Fprintf(c.out, " (backup: %s)", quoted(backup))
		}
		fmt.Fprintln(c.out)
	}
}

// inTheWay decides about an existing file that has the new name.
func (c *copier) inTheWay(src, dst string, info, old vfs.Info) (backup string, ok bool) {
	switch {
	case c.noClobber || c.update && !info.Mode.IsDir() && !info.Modified.After(old.Modified):
		return "", false
	case old.Mode.IsDir() && !info.Mode.IsDir():
		c.fail("cannot overwrite directory %s with non-directory", quoted(dst))
		return "", false
	case !old.Mode.IsDir() && info.Mode.IsDir() && c.backup == "":
		c.fail("cannot overwrite non-directory %s with directory %s", quoted(dst), quoted(src))
		return "", false
	}
	if !old.Mode.IsDir() {
		return c.mayReplace(src, dst, info, old)
	}
	if c.interactive {
		_ = c.out.Flush()
		if !prompt(c.Call, "overwrite %s? ", quoted(dst)) {
			return "", false
		}
	}
	if c.backup != "" {
		return c.mayReplace(src, dst, info, old)
	}
	return "", true
}

// across moves a file to another filesystem: it copies, then removes the original.
func (c *copier) across(src, dst string, info vfs.Info) {
	had := c.status
	c.status = 0
	c.recurse, c.links, c.remove = true, followNone, true
	c.mode, c.owner, c.times, c.hardlinks = true, true, true, true
	verbose := c.verbose
	c.verbose = false
	c.copyOne(src, dst)
	c.verbose = verbose
	if c.status == 0 {
		if err := c.FS().RemoveAll(c.Abs(src)); err != nil {
			c.fail("cannot remove %s: %s", quoted(src), errText(err))
		} else if c.verbose {
			fmt.Fprintf(c.out, "copied %s -> %s\nremoved %s\n", quoted(src), quoted(dst), quoted(src))
		}
	}
	c.status = max(c.status, had)
}

// install copies files and sets their attributes.
func install(call *tool.Call) int {
	f, ok := call.Flags("bcCdDg:m:o:psS:t:TvZ", "backup=\x82::", "compare=C", "directory=d", "group=g", "mode=m", "owner=o", "preserve-timestamps=p", "strip=s",
		"suffix=S:", "target-directory=t", "no-target-directory=T", "verbose=v", "strip-program=\x83:", "preserve-context=\x84")
	if !ok {
		return 1
	}
	c := newCopier(call)
	mode, ok := parseMode(f.Value('m', "0755"))
	if !ok {
		return call.Errorf(1, "invalid mode %s", quoted(f.Value('m', "")))
	}
	c.setMode, c.install, c.verbose, c.links, c.times = &mode, true, f.Has('v'), followAll, f.Has('p')
	var uid, gid int64 = -1, -1
	if f.Has('o') {
		u, _, found := lookupUser(call, f.Value('o', ""))
		if !found {
			return call.Errorf(1, "invalid user %s", quoted(f.Value('o', "")))
		}
		uid = int64(u)
	}
	if f.Has('g') {
		g, found := lookupGroup(call, f.Value('g', ""))
		if !found {
			return call.Errorf(1, "invalid group %s", quoted(f.Value('g', "")))
		}
		gid = int64(g)
	}
	finish := func(path string, dir bool) {
		full := c.Abs(path)
		if i, err := c.FS().Stat(full); err == nil {
			_ = c.FS().Chmod(full, mode.apply(0, 0, dir))
			if uid >= 0 || gid >= 0 {
				u, g := i.UID, i.GID
				if uid >= 0 {
					u = uint32(uid)
				}
				if gid >= 0 {
					g = uint32(gid)
				}
				if err := c.FS().Chown(full, u, g); err != nil {
					c.fail("cannot change ownership of %s: %s", quoted(path), errText(err))
				}
			}
		}
	}
	args := f.Args
	if f.Has('d') {
		if len(args) == 0 {
			return usage(call, 1, "missing file operand")
		}
		for _, d := range args {
			if makeAll(call, d, c.verbose, "creating directory", func(err error, at string) { c.fail("cannot create directory %s: %s", quoted(at), errText(err)) }) {
				finish(d, true)
			}
		}
		return flush(call, c.out, c.status)
	}
	if f.Has('b') || f.Has(0x82) || f.Has('S') {
		if !c.setBackup(f.Value(0x82, "")) {
			return 1
		}
		c.suffix = f.Value('S', c.suffix)
	}
	switch {
	case len(args) == 0:
		return usage(call, 1, "missing file operand")
	case len(args) == 1 && !f.Has('t'):
		return usage(call, 1, "missing destination file operand after %s", quoted(args[0]))
	}
	into := f.Value('t', "")
	last := args[len(args)-1]
	if into == "" && !f.Has('T') && (len(args) > 2 || isDir(call, last)) {
		into, args = last, args[:len(args)-1]
		if !isDir(call, into) {
			_, err := statOf(call, into)
			if err == nil {
				err = syscall.ENOTDIR
			}
			return call.Errorf(1, "target %s: %s", quoted(into), errText(err))
		}
	}
	lead := parentOf(last)
	if into != "" {
		lead = into
	}
	if f.Has('D') && !makeAll(call, lead, c.verbose, "creating directory", func(err error, at string) { c.fail("cannot create directory %s: %s", quoted(at), errText(err)) }) {
		return 1
	}
	if into == "" {
		args = args[:1]
	} else if !isDir(call, into) {
		return call.Errorf(1, "target directory %s: No such file or directory", quoted(into))
	}
	for _, src := range args {
		dst := last
		if into != "" {
			dst = under(into, lastName(src))
		}
		info, err := statOf(call, src)
		switch {
		case err != nil:
			c.fail("cannot stat %s: %s", quoted(src), errText(err))
			continue
		case info.Mode.IsDir():
			c.fail("omitting directory %s", quoted(src))
			continue
		}
		before := c.status
		c.status = 0
		c.file(visit{path: src, info: info}, dst)
		if c.status == 0 {
			finish(dst, false)
		}
		c.status = max(c.status, before)
	}
	return flush(call, c.out, c.status)
}
