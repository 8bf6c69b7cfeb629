package files

import (
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/carrel-dev/carrel/shell/tool"
)

// ln makes links.
func ln(call *tool.Call) int {
	f, ok := call.Flags("bdFfiLnPrsS:t:Tv", "backup=\x82::", "directory=d", "force=f", "interactive=i", "logical=L", "no-dereference=n", "physical=P", "relative=r",
		"symbolic=s", "suffix=S:", "target-directory=t", "no-target-directory=T", "verbose=v")
	if !ok {
		return 1
	}
	c := newCopier(call)
	if f.Has('b') || f.Has(0x82) || f.Has('S') {
		if !c.setBackup(f.Value(0x82, "")) {
			return 1
		}
		c.suffix = f.Value('S', c.suffix)
	}
	if f.Has('r') && !f.Has('s') {
		return call.Errorf(1, "cannot do --relative without --symbolic")
	}
	args, into := f.Args, f.Value('t', "")
	if len(args) == 0 {
		return usage(call, 1, "missing file operand")
	}
	dirAt := func(name string) bool {
		i, err := lstat(call, name)
		if err == nil && isLink(i.Mode) && !f.Has('n') {
			i, err = statOf(call, name)
		}
		return err == nil && i.Mode.IsDir()
	}
	last := args[len(args)-1]
	switch {
	case into != "":
		if i, err := statOf(call, into); err != nil {
			return call.Errorf(1, "target directory %s: %s", quoted(into), errText(err))
		} else if !i.Mode.IsDir() {
			return call.Errorf(1, "target directory %s: Not a directory", quoted(into))
		}
	case f.Has('T') && len(args) != 2:
		if len(args) < 2 {
			return usage(call, 1, "missing destination file operand after %s", quoted(args[0]))
		}
		return usage(call, 1, "extra operand %s", quoted(args[2]))
	case f.Has('T'):
	case len(args) == 1:
		into = "."
	case dirAt(last):
		into, args = last, args[:len(args)-1]
	case len(args) > 2:
		if _, err := statOf(call, last); err != nil {
			return call.Errorf(1, "target %s: %s", quoted(last), errText(err))
		}
		return call.Errorf(1, "target %s: Not a directory", quoted(last))
	}
	if into == "" {
		c.link(args[0], args[1], f)
	} else {
		for _, target := range args {
			name := under(into, lastName(target))
			if into == "." {
				name = "./" + lastName(target)
			}
			c.link(target, name, f)
		}
	}
	return flush(call, c.out, c.status)
}

// link makes one link.
func (c *copier) link(target, name string, f tool.Flags) {
	symbolic := f.Has('s')
	source := target
	if !symbolic {
		i, err := lstat(c.Call, target)
		if err == nil && isLink(i.Mode) && f.Last("LP") == 'L' {
			i, err = statOf(c.Call, target)
			source = i.Path
		}
		switch {
		case err != nil:
			c.fail("failed to access %s: %s", quoted(target), errText(err))
			return
		case i.Mode.IsDir():
			c.fail("%s: hard link not allowed for directory", shellQuote(target, false))
			return
		}
	}
	if f.Has('r') {
		dir := resolveMissing(c.Call, parentOf(name))
		source = relativeTo(dir, resolveMissing(c.Call, target))
	}
	backup := ""
	old, err := lstat(c.Call, name)
	if err == nil {
		ask := f.Last("fi")
		if old.Mode.IsDir() && (ask != 0 || c.backup != "") {
			c.fail("%s: cannot overwrite directory", shellQuote(name, false))
			return
		}
		if src, serr := statOf(c.Call, target); !symbolic && serr == nil && (ask != 0) {
			if src.Ino == old.Ino {
				if c.Abs(target) == c.Abs(name) {
					c.fail("%s and %s are the same file", quoted(target), quoted(name))
				}
				return
			}
		}
		if ask == 'i' {
			_ = c.out.Flush()
			if !prompt(c.Call, "replace %s? ", quoted(name)) {
				return
			}
		}
		switch {
		case c.backup != "":
			backup = c.backupName(name)
			if err := c.FS().Rename(c.Abs(name), c.Abs(backup)); err != nil {
				c.fail("cannot backup %s: %s", quoted(name), errText(err))
				return
			}
		case ask != 0:
			if err := c.FS().Remove(c.Abs(name)); err != nil {
				c.fail("cannot remove %s: %s", quoted(name), errText(err))
				return
			}
		}
	}
	if symbolic {
		err = c.FS().Symlink(source, c.Abs(name))
	} else {
		err = c.FS().Link(c.Abs(source), c.Abs(name))
	}
	if err != nil {
		switch {
		case symbolic && source == "":
			c.fail("failed to create symbolic link %s -> %s: %s", quoted(name), quoted(source), errText(err))
		case symbolic:
			c.fail("failed to create symbolic link %s: %s", quoted(name), errText(err))
		case errors.Is(err, syscall.EEXIST):
			c.fail("failed to create hard link %s: %s", quoted(name), errText(err))
		default:
			c.fail("failed to create hard link %s => %s: %s", quoted(name), quoted(target), errText(err))
		}
		return
	}
	if f.Has('v') {
		arrow := "=>"
		if symbolic {
			arrow = "->"
		}
		if backup != "" {
			fmt.Fprintf(c.out, "%s ~ ", quoted(backup))
		}
		fmt.Fprintf(c.out, "%s %s %s\n", quoted(name), arrow, quoted(source))
	}
}

// resolveMissing resolves the links of a path whose end may be missing.
func resolveMissing(c *tool.Call, name string) string {
	p, err := canonical(c, c.Abs(name), mayMissAll, true)
	if err != nil {
		return cleanPath(c.Abs(name))
	}
	return p
}

// relativeTo returns the relative path from a directory to a file. Both are absolute and clean.
func relativeTo(dir, to string) string {
	if dir == to {
		return "."
	}
	d, t := splitPath(dir), splitPath(to)
	n := 0
	for n < len(d) && n < len(t) && d[n] == t[n] {
		n++
	}
	out := strings.Repeat("../", len(d)-n) + strings.Join(t[n:], "/")
	return strings.TrimSuffix(out, "/")
}

func splitPath(p string) []string {
	return strings.FieldsFunc(p, func(r rune) bool { return r == '/' })
}

// cleanPath removes ".", ".." and double slashes from an absolute path. It does not read the disk.
func cleanPath(p string) string {
	var out []string
	for _, part := range splitPath(p) {
		switch part {
		case ".":
		case "..":
			if len(out) > 0 {
				out = out[:len(out)-1]
			}
		default:
			out = append(out, part)
		}
	}
	return "/" + strings.Join(out, "/")
}
