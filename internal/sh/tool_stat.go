package sh

import (
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

// modeText is a mode as ls -l shows it.
func modeText(m fs.FileMode) string {
	kind := byte('-')
	switch {
	case m.IsDir():
		kind = 'd'
	case m&fs.ModeSymlink != 0:
		kind = 'l'
	case m&fs.ModeCharDevice != 0:
		kind = 'c'
	}
	b := []byte{kind}
	for i := 8; i >= 0; i-- {
		if m&(1<<uint(i)) != 0 {
			b = append(b, "xwr"[i%3])
		} else {
			b = append(b, '-')
		}
	}
	if m&fs.ModeSetuid != 0 {
		b[3] = 's'
	}
	if m&fs.ModeSetgid != 0 {
		b[6] = 's'
	}
	if m&fs.ModeSticky != 0 {
		if b[9] == 'x' {
			b[9] = 't'
		} else {
			b[9] = 'T'
		}
	}
	return string(b)
}

// octalMode is a mode as stat -c %a shows it.
func octalMode(m fs.FileMode) uint32 {
	n := uint32(m.Perm())
	for flag, bit := range map[fs.FileMode]uint32{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000} {
		if m&flag != 0 {
			n |= bit
		}
	}
	return n
}

func toolStat(c *call) int {
	f, ok := c.flags("c:Lt", "format=c", "printf=c")
	if !ok {
		return 1
	}
	return c.on(f.args, "cannot statx '%s': %s", func(full string) error {
		stat := c.r.view.Lstat
		if f.has('L') {
			stat = c.r.view.Stat
		}
		i, err := stat(full)
		if err != nil {
			return err
		}
		kind := "regular file"
		switch {
		case i.Mode.IsDir():
			kind = "directory"
		case i.Mode&fs.ModeSymlink != 0:
			kind = "symbolic link"
		case i.Mode&fs.ModeDevice != 0:
			kind = "character special file"
		case i.Size == 0:
			kind = "regular empty file"
		}
		name := full
		for _, a := range f.args {
			if c.r.abs(a) == full {
				name = a
			}
		}
		when := i.Modified.UTC().Format("2006-01-02 15:04:05.000000000 -0700")
		user, group := c.r.m.UserName(i.UID), c.r.m.GroupName(i.GID)
		if !f.has('c') {
			c.print(fmt.Sprintf("  File: %s\n  Size: %d\tBlocks: %d\tIO Block: 4096\t%s\nInode: %d\tLinks: %d\nAccess: (%04o/%s)  Uid: (%5d/%8s)   Gid: (%5d/%8s)\nModify: %s\n",
				name, i.Size, (i.Used+511)/512, kind, i.Ino, i.Links, octalMode(i.Mode), modeText(i.Mode), i.UID, user, i.GID, group, when))
			return nil
		}
		c.print(strings.NewReplacer("%n", name, "%s", strconv.FormatInt(i.Size, 10), "%a", strconv.FormatUint(uint64(octalMode(i.Mode)), 8),
			"%A", modeText(i.Mode), "%U", user, "%G", group, "%u", strconv.Itoa(int(i.UID)), "%g", strconv.Itoa(int(i.GID)), "%F", kind,
			"%i", strconv.FormatUint(i.Ino, 10), "%h", strconv.Itoa(i.Links), "%Y", strconv.FormatInt(i.Modified.Unix(), 10), "%y", when, `\n`, "\n", "%%", "%").Replace(f.val['c']) + "\n")
		return nil
	})
}
