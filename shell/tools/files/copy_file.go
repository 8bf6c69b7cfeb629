package files

import (
	"fmt"
	"io/fs"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// mayReplace decides whether to replace an existing file. backup is the name to which that file was
// renamed.
func (c *copier) mayReplace(src, dst string, info, old vfs.Info) (backup string, ok bool) {
	switch {
	case c.noClobber:
		return "", false
	case c.update && !info.Modified.After(old.Modified):
		return "", false
	case c.interactive:
		_ = c.out.Flush()
		if !prompt(c.Call, "overwrite %s? ", quoted(dst)) {
			return "", false
		}
	}
	if c.made[c.Abs(dst)] && c.backup != "numbered" {
		c.fail("will not overwrite just-created %s with %s", quoted(dst), quoted(src))
		return "", false
	}
	if c.backup != "" {
		backup = c.backupName(dst)
		if err := c.FS().Rename(c.Abs(dst), c.Abs(backup)); err != nil {
			c.fail("cannot backup %s: %s", quoted(dst), errText(err))
			return "", false
		}
	}
	return backup, true
}

// file copies a file that is not a directory.
func (c *copier) file(v visit, to string) {
	src, info := v.path, v.info
	copyLink := isLink(info.Mode)
	old, err := lstat(c.Call, to)
	target := old
	if err == nil && isLink(old.Mode) && !copyLink {
		if t, terr := statOf(c.Call, to); terr == nil {
			target = t
		} else if !c.remove && !c.symbolic && !c.hard && c.backup == "" && !c.install {
			c.fail("not writing through dangling symlink %s", quoted(to))
			return
		}
	}
	exists := err == nil
	backup := ""
	if exists {
		if target.Ino == info.Ino && (c.backup == "" || c.move) && !(c.remove && (target.Links > 1 || isLink(old.Mode))) {
			if c.hard || c.force && c.symbolic {
				return
			}
			if !(copyLink && !isLink(old.Mode)) && !(c.remove && isLink(old.Mode)) && !(c.update) {
				c.fail("%s and %s are the same file", quoted(src), quoted(to))
			}
			return
		}
		if target.Mode.IsDir() && !(isLink(old.Mode) && copyLink) {
			c.fail("cannot overwrite directory %s with non-directory", quotedOrAt(to))
			return
		}
		var ok bool
		if backup, ok = c.mayReplace(src, to, info, target); !ok {
			return
		}
		if backup != "" {
			exists = false
		}
	}
	if exists && (c.remove || copyLink || c.install || isLink(old.Mode) && (c.hard || c.symbolic) || c.force && (c.symbolic || c.hard)) {
		if err := c.FS().Remove(c.Abs(to)); err != nil {
			c.fail("cannot remove %s: %s", quoted(to), errText(err))
			return
		}
		exists = false
	}
	if !c.transfer(src, to, info, exists) {
		return
	}
	c.made[c.Abs(to)] = true
	if c.verbose {
		fmt.Fprintf(c.out, "%s -> %s", quoted(src), quoted(to))
		if backup != "" {
			fmt.Fprintf(c.out, " (backup: %s)", quoted(backup))
		}
		fmt.Fprintln(c.out)
	}
}

func quotedOrAt(to string) string { return quoted(to) }

// transfer does the copying.
func (c *copier) transfer(src, to string, info vfs.Info, exists bool) bool {
	full := c.Abs(to)
	if c.hardlinks && info.Links > 1 && !c.hard && !c.symbolic {
		if first, ok := c.names[info.Ino]; ok {
			if exists {
				_ = c.FS().Remove(full)
			}
			if err := c.FS().Link(first, full); err != nil {
				c.fail("cannot create hard link %s to %s: %s", quoted(to), quoted(first), errText(err))
				return false
			}
			return true
		}
		c.names[info.Ino] = full
	}
	switch {
	case c.symbolic:
		if err := c.FS().Symlink(src, full); err != nil {
			c.fail("cannot create symbolic link %s to %s: %s", quoted(to), quoted(src), errText(err))
			return false
		}
		return true
	case c.hard:
		if err := c.FS().Link(c.Abs(src), full); err != nil {
			c.fail("cannot create hard link %s to %s: %s", quoted(to), quoted(src), errText(err))
			return false
		}
		return true
	case isLink(info.Mode):
		if err := c.FS().Symlink(info.Target, full); err != nil {
			c.fail("cannot create symbolic link %s: %s", quoted(to), errText(err))
			return false
		}
		c.attributes(info, to)
		return true
	case info.Mode&fs.ModeNamedPipe != 0 && c.recurse:
		if err := c.FS().Mkfifo(full, info.Mode.Perm()&^c.Umask()); err != nil {
			c.fail("cannot create fifo %s: %s", quoted(to), errText(err))
			return false
		}
		c.attributes(info, to)
		return true
	}
	if !c.contents(src, to, info, exists) {
		return false
	}
	switch {
	case c.mode:
		if err := c.FS().Chmod(full, info.Mode); err != nil {
			c.fail("setting permissions for %s: %s", quoted(to), errText(err))
		}
	case c.noMode && !exists:
		_ = c.FS().Chmod(full, 0o666&^c.Umask())
	}
	c.attributes(info, to)
	return true
}

// contents copies the bytes.
func (c *copier) contents(src, to string, info vfs.Info, exists bool) bool {
	flags := vfs.WriteOnly | vfs.CreateNew | vfs.Truncate
	if c.attrsOnly {
		flags = vfs.WriteOnly | vfs.CreateNew
	}
	var in tool.File
	var err error
	if !c.attrsOnly {
		if in, err = c.Open(src, vfs.ReadOnly, 0); err != nil {
			c.fail("cannot open %s for reading: %s", quoted(src), errText(err))
			return false
		}
		defer in.Close()
	}
	perm := info.Mode.Perm()
	if info.Mode&fs.ModeType != 0 {
		perm = 0o666
	}
	full := c.Abs(to)
	out, err := c.Open(to, flags, 0o666)
	if err != nil && exists && c.force {
		if c.FS().Remove(full) == nil {
			exists = false
			out, err = c.Open(to, flags, 0o666)
		}
	}
	if err != nil {
		what := "cannot create regular file"
		text := errText(err)
		if len(to) > 0 && to[len(to)-1] == '/' {
			text = "Not a directory"
		}
		c.fail("%s %s: %s", what, quoted(to), text)
		return false
	}
	if in != nil {
		if _, err = copyAll(c.Call, out, in); err != nil {
			_ = out.Close()
			if !c.Stopped(err) {
				c.fail("error writing %s: %s", quoted(to), errText(err))
			}
			return false
		}
	}
	if err := out.Close(); err != nil {
		c.fail("failed to close %s: %s", quoted(to), errText(err))
		return false
	}
	if !exists && perm != 0o666 && !c.install {
		if i, err := c.FS().Stat(full); err == nil && i.Mode.IsRegular() {
			_ = c.FS().Chmod(full, perm&^c.Umask()) // its own new file
		}
	}
	return true
}
