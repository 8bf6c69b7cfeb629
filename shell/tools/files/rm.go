package files

import (
	"bufio"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// remover is one run of rm.
type remover struct {
	*tool.Call
	out                              *bufio.Writer
	force, recurse, dirs, ask, speak bool
	status                           int
}

// rm removes files.
func rm(c *tool.Call) int {
	f, ok := c.Flags("rRfiIdv", "recursive=r", "force=f", "interactive=\x81::", "dir=d", "verbose=v", "preserve-root=\x82::", "no-preserve-root=\x83", "one-file-system=\x84")
	if !ok {
		return 1
	}
	r := &remover{Call: c, out: c.Buffered(), recurse: f.Has('r') || f.Has('R'), dirs: f.Has('d'), speak: f.Has('v')}
	once := false
	for _, o := range f.All {
		switch o.Letter {
		case 'f':
			r.force, r.ask, once = true, false, false
		case 'i':
			r.force, r.ask, once = false, true, false
		case 'I':
			r.force, r.ask, once = false, false, true
		case 0x81:
			r.ask, once = false, false
			switch o.Value {
			case "never", "no", "none":
			case "once":
				once = true
			case "", "always", "yes":
				r.ask = true
			default:
				return usage(c, 1, "invalid argument %s for %s", curly(o.Value), curly("--interactive"))
			}
		}
	}
	if len(f.Args) == 0 {
		if r.force {
			return 0
		}
		return usage(c, 1, "missing operand")
	}
	if once && (r.recurse || len(f.Args) > 3) {
		n, word := len(f.Args), "arguments"
		if n == 1 {
			word = "argument"
		}
		how := ""
		if r.recurse {
			how = " recursively"
		}
		if !prompt(c, "remove %d %s%s? ", n, word, how) {
			return 0
		}
	}
	for _, name := range f.Args {
		if !c.Step(4) {
			return 1
		}
		r.operand(name, f.Has(0x83))
	}
	return flush(c, r.out, r.status)
}

func (r *remover) fail(format string, args ...any) {
	_ = r.out.Flush()
	r.status = r.Errorf(1, format, args...)
}

// operand removes one operand.
func (r *remover) operand(name string, root bool) {
	if n := lastName(name); r.recurse && (n == "." || n == "..") {
		r.fail("refusing to remove '.' or '..' directory: skipping %s", quoted(name))
		return
	}
	info, err := lstat(r.Call, name)
	switch {
	case err != nil:
		if !r.force || !notExist(err) && !errors.Is(err, syscall.ENOTDIR) {
			r.fail("cannot remove %s: %s", quoted(name), errText(err))
		}
	case !info.Mode.IsDir():
		r.one(name, info)
	case !r.recurse && !r.dirs:
		r.fail("cannot remove %s: Is a directory", quoted(name))
	case info.Path == "/" && r.recurse && !root:
		r.fail("it is dangerous to operate recursively on '/'%s", "\nrm: use --no-preserve-root to override this failsafe")
	case !r.recurse:
		r.one(name, info)
	case !r.ask && !r.speak && r.FS().RemoveAll(r.Abs(name)) == nil:
	default:
		r.tree(name)
	}
}

// one removes one file or empty directory.
func (r *remover) one(path string, info vfs.Info) bool {
	dir := info.Mode.IsDir()
	if r.ask {
		_ = r.out.Flush()
		if !prompt(r.Call, "remove %s %s? ", kindName(info), quoted(path)) {
			return false
		}
	}
	if err := r.FS().Remove(r.Abs(trimSlashes(path))); err != nil {
		r.fail("cannot remove %s: %s", quoted(path), errText(err))
		return false
	}
	if r.speak {
		what := ""
		if dir {
			what = "directory "
		}
		fmt.Fprintf(r.out, "removed %s%s\n", what, quoted(path))
	}
	return true
}

// tree removes a directory and everything in it, one by one. If a file can't be removed, its
// directories stay.
func (r *remover) tree(name string) {
	kept := map[string]bool{}
	keep := func(path string) {
		for p := trimSlashes(path); len(p) > len(name); {
			p = parentOf(p)
			kept[p] = true
		}
	}
	walk(r.Call, name, followNone, func(v visit) next {
		dir := v.info.Mode.IsDir()
		switch {
		case v.err != nil:
			r.fail("cannot remove %s: %s", quoted(v.path), errText(v.err))
			kept[trimSlashes(v.path)] = true
			keep(v.path)
		case dir && !v.post && r.ask:
			if entries, err := r.FS().ReadDir(r.Abs(v.path)); err == nil && len(entries) > 0 {
				_ = r.out.Flush()
				if !prompt(r.Call, "descend into directory %s? ", quoted(v.path)) {
					keep(v.path)
					return skip
				}
			}
		case dir && !v.post:
		case dir && kept[trimSlashes(v.path)]:
			keep(v.path)
			if !r.ask {
				return goOn
			}
			if _, err := r.FS().ReadDir(r.Abs(v.path)); err == nil {
				r.one(v.path, v.info)
			}
		default:
			if !r.one(v.path, v.info) {
				keep(v.path)
			}
		}
		return goOn
	})
}

// mkdir makes directories.
func mkdir(c *tool.Call) int {
	f, ok := c.Flags("m:pvZ", "mode=m", "parents=p", "verbose=v", "context=\x81::")
	if !ok {
		return 1
	}
	if missingOperand(c, f.Args, 1) {
		return 1
	}
	perm := 0o777 &^ c.Umask()
	if f.Has('m') {
		change, ok := parseMode(f.Value('m', ""))
		if !ok {
			return c.Errorf(1, "invalid mode %s", curly(f.Value('m', "")))
		}
		perm = change.apply(0o777, c.Umask(), false)
	}
	status := 0
	for _, name := range f.Args {
		if !c.Step(4) {
			return 1
		}
		if f.Has('p') {
			made := false
			if !isDir(c, name) {
				made = true
			}
			ok := makeAll(c, name, f.Has('v'), "", func(err error, at string) {
				status = c.Errorf(1, "cannot create directory %s: %s", curly(at), errText(err))
			})
			if ok && made && f.Has('m') {
				_ = c.FS().Chmod(c.Abs(name), perm)
			}
			continue
		}
		err := error(syscall.ENOENT)
		if name != "" {
			err = c.FS().Mkdir(c.Abs(trimSlashes(name)), perm)
		}
		if err != nil {
			status = c.Errorf(1, "cannot create directory %s: %s", curly(name), errText(err))
			continue
		}
		if f.Has('v') {
			fmt.Fprintf(c.Out, "%s: created directory %s\n", c.Base(), quoted(name))
		}
	}
	return status
}

// makeAll makes a directory and its parents. say is the message of -v; "" is mkdir's message.
func makeAll(c *tool.Call, name string, verbose bool, say string, fail func(err error, at string)) bool {
	if name == "" {
		fail(syscall.ENOENT, name)
		return false
	}
	at := ""
	if strings.HasPrefix(name, "/") {
		at = "/"
	}
	parts := strings.FieldsFunc(name, func(r rune) bool { return r == '/' })
	for i, part := range parts {
		if i > 0 {
			at += "/"
		}
		at += part
		info, err := statOf(c, at)
		if err == nil {
			if !info.Mode.IsDir() {
				e := error(syscall.ENOTDIR)
				if i == len(parts)-1 {
					e = syscall.EEXIST
				}
				fail(e, at)
				return false
			}
			continue
		}
		perm := 0o777 &^ c.Umask()
		if i < len(parts)-1 {
			perm |= 0o300
		}
		if err := c.FS().Mkdir(c.Abs(at), perm); err != nil && !isDir(c, at) {
			fail(err, at)
			return false
		}
		if verbose {
			switch say {
			case "":
				fmt.Fprintf(c.Out, "%s: created directory %s\n", c.Base(), quoted(at))
			default:
				fmt.Fprintf(c.Out, "%s: %s %s\n", c.Base(), say, quoted(at))
			}
		}
	}
	return true
}

// rmdir removes empty directories.
func rmdir(c *tool.Call) int {
	f, ok := c.Flags("pv", "parents=p", "verbose=v", "ignore-fail-on-non-empty=\x81")
	if !ok {
		return 1
	}
	if missingOperand(c, f.Args, 1) {
		return 1
	}
	status := 0
	one := func(name, what string) bool {
		if f.Has('v') {
			fmt.Fprintf(c.Out, "%s: removing directory, %s\n", c.Base(), quoted(name))
		}
		i, err := lstat(c, name)
		if err == nil && !i.Mode.IsDir() {
			err = syscall.ENOTDIR
		}
		if err == nil {
			if n := lastName(name); n == "." {
				err = syscall.EINVAL
			} else {
				err = c.FS().Remove(c.Abs(name))
			}
		}
		if err == nil {
			return true
		}
		if !(f.Has(0x81) && errors.Is(err, syscall.ENOTEMPTY)) {
			status = c.Errorf(1, "failed to remove %s%s: %s", what, quoted(name), errText(err))
		}
		return false
	}
	for _, name := range f.Args {
		if !one(name, "") || !f.Has('p') {
			continue
		}
		for dir := parentOf(name); dir != "." && dir != "/"; dir = parentOf(dir) {
			if !one(dir, "directory ") {
				break
			}
		}
	}
	return status
}
