package files

import (
	"bufio"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// copier copies, moves and installs files.
type copier struct {
	*tool.Call
	out     *bufio.Writer
	status  int
	move    bool
	recurse bool
	links   follow // of -r
	force, interactive, noClobber, update, verbose, hard, symbolic, remove, attrsOnly,
	mode, owner, times, hardlinks, parents, noTarget bool
	install bool
	noMode  bool
	backup  string // "", simple, numbered, existing
	suffix  string
	target  string            // -t
	names   map[uint64]string // first copies of files that have several names
	made    map[string]bool   // what this run has made
	top     uint64            // inode of the copy's destination directory
	setMode *modeChange
}

func newCopier(c *tool.Call) *copier {
	return &copier{Call: c, out: c.Buffered(), suffix: "~", names: map[uint64]string{}, made: map[string]bool{}}
}

// fail says what went wrong.
func (c *copier) fail(format string, args ...any) {
	c.status = 1
	_ = c.out.Flush() // to keep messages in order
	c.Errorf(1, format, args...)
}

// cp copies files.
func cp(call *tool.Call) int {
	f, ok := call.Flags("abdfHilLnpPrRsS:t:TuvxZ", "archive=a", "attributes-only=\x81", "backup=\x82::", "copy-contents=\x83", "dereference=L", "force=f",
		"interactive=i", "link=l", "no-clobber=n", "no-dereference=P", "no-preserve=\x84:", "no-target-directory=T", "one-file-system=x", "parents=\x85",
		"preserve=\x86::", "recursive=R", "remove-destination=\x87", "reflink=\x88::", "sparse=\x89:", "strip-trailing-slashes=\x8a", "suffix=S:",
		"symbolic-link=s", "target-directory=t", "update=u", "verbose=v", "debug=v")
	if !ok {
		return 1
	}
	c := newCopier(call)
	deref := byte(0)
	for _, o := range f.All {
		switch o.Letter {
		case 'a':
			c.recurse, deref = true, 'P'
			c.mode, c.owner, c.times, c.hardlinks = true, true, true, true
		case 'd':
			deref, c.hardlinks = 'P', true
		case 'H', 'L', 'P':
			deref = o.Letter
		case 'p':
			c.mode, c.owner, c.times = true, true, true
		case 'r', 'R':
			c.recurse = true
		case 0x86, 0x84:
			if !c.preserve(o.Value, o.Letter == 0x86) {
				return 1
			}
		}
	}
	switch {
	case deref == 'L' || deref == 0 && !c.recurse:
		c.links = followAll
	case deref == 'H':
		c.links = followOperands
	}
	if deref == 0 && !c.recurse && (f.Has('l') || f.Has('s')) {
		c.links = followNone
	}
	c.symbolic, c.hard = f.Has('s'), f.Has('l')
	c.attrsOnly, c.parents, c.remove = f.Has(0x81), f.Has(0x85), f.Has(0x87)
	return c.common(f)
}

// preserve reads the list of --preserve and --no-preserve.
func (c *copier) preserve(list string, on bool) bool {
	if list == "" {
		list = "mode,ownership,timestamps"
	}
	for what := range strings.SplitSeq(list, ",") {
		switch what {
		case "mode":
			c.mode, c.noMode = on, !on
		case "ownership":
			c.owner = on
		case "timestamps":
			c.times = on
		case "links":
			c.hardlinks = on
		case "all":
			c.mode, c.owner, c.times, c.hardlinks = on, on, on, on
			c.noMode = !on
		case "context", "xattr":
		default:
			option := "--preserve"
			if !on {
				option = "--no-preserve"
			}
			c.Errorf(1, "invalid argument %s for %s", curly(what), curly(option))
			tryHelp(c.Call, 1)
			return false
		}
	}
	return true
}

// common applies the options that cp and mv share, and runs the program.
func (c *copier) common(f tool.Flags) int {
	switch f.Last("ifn") {
	case 'i':
		c.interactive = true
	case 'n':
		c.noClobber = true
	}
	c.force, c.update, c.verbose = f.Has('f'), f.Has('u'), f.Has('v')
	c.noTarget = f.Has('T')
	if f.Has('b') || f.Has(0x82) || f.Has('S') {
		if !c.setBackup(f.Value(0x82, "")) {
			return 1
		}
		c.suffix = f.Value('S', c.suffix)
	}
	args := f.Args
	if f.Has(0x8a) {
		for i := range args {
			args[i] = trimSlashes(args[i])
		}
	}
	if f.Has('t') {
		c.target = f.Value('t', "")
	}
	return c.operands(args)
}

// setBackup reads the argument of --backup.
func (c *copier) setBackup(how string) bool {
	if how == "" {
		how = c.Getenv("VERSION_CONTROL")
	}
	switch how {
	case "", "existing", "nil":
		c.backup = "existing"
	case "none", "off":
		c.backup = ""
	case "numbered", "t":
		c.backup = "numbered"
	case "simple", "never":
		c.backup = "simple"
	default:
		usage(c.Call, 1, "invalid argument %s for %s", curly(how), curly("backup type"))
		return false
	}
	return true
}

// operands decides which operands are copied to which destination.
func (c *copier) operands(args []string) int {
	switch {
	case len(args) == 0:
		return usage(c.Call, 1, "missing file operand")
	case len(args) == 1 && c.target == "":
		return usage(c.Call, 1, "missing destination file operand after %s", quoted(args[0]))
	}
	into := c.target
	if into != "" {
		if i, err := statOf(c.Call, into); err != nil {
			return c.Errorf(1, "target directory %s: %s", quoted(into), errText(err))
		} else if !i.Mode.IsDir() {
			return c.Errorf(1, "target directory %s: Not a directory", quoted(into))
		}
	} else {
		last := args[len(args)-1]
		switch i, err := statOf(c.Call, last); {
		case c.noTarget && len(args) > 2:
			return usage(c.Call, 1, "extra operand %s", quoted(args[2]))
		case c.noTarget:
		case err == nil && i.Mode.IsDir():
			into, args = last, args[:len(args)-1]
		case len(args) > 2 && err != nil:
			return c.Errorf(1, "target %s: %s", quoted(last), errText(err))
		case len(args) > 2:
			return c.Errorf(1, "target %s: Not a directory", quoted(last))
		case c.parents:
			return usage(c.Call, 1, "with --parents, the destination must be a directory")
		}
	}
	one := c.copyOne
	if c.move {
		one = c.moveOne
	}
	if into == "" {
		one(args[0], args[1])
		return flush(c.Call, c.out, c.status)
	}
	for _, src := range args {
		if !c.Step(8) {
			return 1
		}
		dst := under(into, lastName(src))
		if n := lastName(src); n == ".." || n == "." {
			dst = into + "/" + n
			if !c.move {
				dst = into
			}
		}
		if c.parents {
			dst = under(into, strings.TrimLeft(trimSlashes(src), "/"))
			if !c.makeParents(into, src) {
				continue
			}
		}
		one(src, dst)
	}
	return flush(c.Call, c.out, c.status)
}

// makeParents makes the directories of --parents with the modes of their sources.
func (c *copier) makeParents(into, src string) bool {
	dir := strings.Trim(parentOf(src), "/")
	if dir == "" || dir == "." {
		return true
	}
	at, from := into, ""
	if strings.HasPrefix(src, "/") {
		from = "/"
	}
	for part := range strings.SplitSeq(dir, "/") {
		if part == "" {
			continue
		}
		at, from = under(at, part), from+part
		if !isDir(c.Call, at) {
			i, err := statOf(c.Call, from)
			if err != nil {
				c.fail("failed to get attributes of %s: %s", quoted(from), errText(err))
				return false
			}
			if err := c.FS().Mkdir(c.Abs(at), i.Mode&^c.Umask()); err != nil {
				c.fail("cannot make directory %s: %s", quoted(at), errText(err))
				return false
			}
			if c.verbose {
				fmt.Fprintf(c.out, "%s -> %s\n", from, at)
			}
		}
		from += "/"
	}
	return true
}

// copyOne copies one operand.
func (c *copier) copyOne(src, dst string) {
	info, err := lstat(c.Call, src)
	if err == nil && isLink(info.Mode) && c.links != followNone {
		info, err = statOf(c.Call, src)
	}
	if err != nil {
		c.fail("cannot stat %s: %s", quoted(src), errText(err))
		return
	}
	if info.Mode.IsDir() && !c.recurse {
		c.fail("-r not specified; omitting directory %s", quoted(src))
		return
	}
	c.top = 0
	if info.Mode.IsDir() {
		if d, derr := statOf(c.Call, dst); derr == nil && d.Ino == info.Ino {
			c.fail("%s and %s are the same file", quoted(src), quoted(dst))
			return
		}
	}
	base := len(src)
	links := c.links
	walk(c.Call, src, links, func(v visit) next {
		to := dst
		if rest := strings.TrimLeft(v.path[base:], "/"); rest != "" {
			to = under(dst, rest)
		}
		switch {
		case v.err != nil && v.dir:
			c.fail("cannot access %s: %s", quoted(v.path), errText(v.err))
		case v.err != nil:
			c.fail("cannot stat %s: %s", quoted(v.path), errText(v.err))
		case v.loop:
			c.fail("cannot copy cyclic symbolic link %s", quoted(v.path))
		case v.post:
			c.finishDir(v.info, to)
		case v.info.Mode.IsDir():
			if c.top != 0 && v.info.Ino == c.top {
				c.fail("cannot copy a directory, %s, into itself, %s", quoted(src), quoted(dst))
				return stop
			}
			return c.dir(v, to)
		default:
			if c.links == followAll && isLink(v.info.Mode) {
				c.fail("cannot stat %s: %s", quoted(v.path), "No such file or directory")
				return goOn
			}
			c.file(v, to)
		}
		return goOn
	})
}

// dir makes the destination directory of a copied directory.
func (c *copier) dir(v visit, to string) next {
	d, err := lstat(c.Call, to)
	if err == nil && isLink(d.Mode) {
		if t, terr := statOf(c.Call, to); terr == nil && t.Mode.IsDir() && v.depth == 0 {
			d = t
		}
	}
	switch {
	case err == nil && !d.Mode.IsDir():
		c.fail("cannot overwrite non-directory %s with directory %s", quoted(to), quoted(v.path))
		return skip
	case err == nil:
		return goOn
	}
	if err := c.FS().Mkdir(c.Abs(to), (v.info.Mode&^fs.ModeType)&^c.Umask()|0o700); err != nil {
		c.fail("cannot create directory %s: %s", quoted(trimSlashes(to)), errText(err))
		return skip
	}
	if c.top == 0 {
		if i, err := lstat(c.Call, to); err == nil {
			c.top = i.Ino
		}
	}
	c.made[c.Abs(to)] = true
	if c.verbose {
		fmt.Fprintf(c.out, "%s -> %s\n", quoted(v.path), quoted(to))
	}
	return goOn
}

// finishDir sets a directory's attributes after all its files were copied.
func (c *copier) finishDir(info vfs.Info, to string) {
	full := c.Abs(to)
	made := c.made[full]
	switch {
	case c.mode:
		_ = c.FS().Chmod(full, info.Mode)
	case made && c.noMode:
		_ = c.FS().Chmod(full, 0o777&^c.Umask())
	case made && info.Mode.Perm()&^c.Umask() != info.Mode.Perm()&^c.Umask()|0o700:
		_ = c.FS().Chmod(full, info.Mode&^c.Umask())
	}
	c.attributes(info, to)
}

// attributes sets the owner and time of a copy to those of its source. Attributes that the user may
// not set stay unchanged, as with GNU's cp.
func (c *copier) attributes(info vfs.Info, to string) {
	full := c.Abs(to)
	link := isLink(info.Mode)
	if c.owner && link {
		_ = c.FS().Lchown(full, info.UID, info.GID) // as far as it is allowed
	}
	if c.owner && !link {
		if err := c.FS().Chown(full, info.UID, info.GID); err == nil && c.mode {
			_ = c.FS().Chmod(full, info.Mode)
		}
	}
	if c.times {
		if err := c.FS().SetTimes(full, vfs.Times{Accessed: info.Accessed, Modified: info.Modified, NoFollow: link}); err != nil {
			c.fail("preserving times for %s: %s", quoted(to), errText(err))
		}
	}
}

// backupName returns the backup name for an existing file.
func (c *copier) backupName(dst string) string {
	if c.backup == "simple" {
		return dst + c.suffix
	}
	highest := 0
	if entries, err := c.FS().ReadDir(c.Abs(parentOf(dst))); err == nil {
		prefix := lastName(dst) + ".~"
		for _, e := range entries {
			if rest, ok := strings.CutPrefix(e.Name, prefix); ok {
				if n, err := strconv.Atoi(strings.TrimSuffix(rest, "~")); err == nil {
					highest = max(highest, n)
				}
			}
		}
	}
	if c.backup == "existing" && highest == 0 {
		return dst + c.suffix
	}
	return fmt.Sprintf("%s.~%d~", dst, highest+1)
}
