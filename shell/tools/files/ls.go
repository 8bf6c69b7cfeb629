package files

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// lister is one run of ls.
type lister struct {
	*tool.Call
	w                                                                                                           *bufio.Writer
	tty                                                                                                         bool
	format                                                                                                      byte // l long, 1, C columns down, x across, m commas
	sort                                                                                                        byte // n name, S, t, X, v, U, W
	timeOf                                                                                                      byte // m, a, c
	style                                                                                                       string
	quote                                                                                                       string
	width                                                                                                       int
	unit                                                                                                        int64 // of sizes; 0 bytes
	human                                                                                                       int64
	hide                                                                                                        []string
	follow                                                                                                      bool
	argDir                                                                                                      bool // -H and --dereference-command-line-symlink-to-dir
	reverse, all, almost, dirItself, recurse, inode, blocks, noOwner, noGroup, numeric, dirsFirst, author, zero bool
	color                                                                                                       map[string]string
	classes                                                                                                     byte // indicator: F all, t file types, p slashes
	status                                                                                                      int
	listed                                                                                                      map[uint64]bool // with -L and -R, against loops
	blank                                                                                                       bool
	blankColor                                                                                                  bool // the first color has been said
	now                                                                                                         time.Time
	literal                                                                                                     bool // print control characters unchanged
}

// item is one file to be listed.
type item struct {
	vfs.Info
	said   string // as the operand was given
	path   string
	target *vfs.Info // the target of a link, nil if there is none
}

const lsShort = "aAbBcCdfFgGhHiI:klLmnNopqQrRsStuUvw:xXZ1T:D"

var lsLong = []string{"all=a", "almost-all=A", "escape=b", "ignore-backups=B", "directory=d", "classify=\x81::", "file-type=\x82", "human-readable=h",
	"dereference-command-line=H", "dereference-command-line-symlink-to-dir=\x83", "inode=i", "ignore=I", "kibibytes=k", "dereference=L", "numeric-uid-gid=n",
	"literal=N", "hide-control-chars=q", "show-control-chars=\x84", "quote-name=Q", "reverse=r", "recursive=R", "size=s", "width=w", "tabsize=T", "context=Z",
	"group-directories-first=\x85", "si=\x86", "author=\x87", "color=\x88::", "format=\x89:", "full-time=\x8a", "hide=\x8b:", "indicator-style=\x8c:",
	"no-group=G", "quoting-style=\x8d:", "sort=\x8e:", "time=\x8f:", "time-style=\x90:", "zero=\x91", "block-size=\x92:", "hyperlink=\x93::", "dired=D"}

// ls lists directories.
func ls(c *tool.Call) int {
	f, ok := c.Flags(lsShort, lsLong...)
	if !ok {
		return 2
	}
	l := &lister{Call: c, w: c.Buffered(), sort: 'n', timeOf: 'm', width: 80, format: '1', now: c.Now()}
	cols, _, tty := c.Terminal(1)
	l.tty = tty
	if tty {
		l.format, l.width, l.quote = 'C', max(cols, 1), "shell-escape"
	} else {
		l.quote, l.literal = "literal", true
	}
	switch c.Base() {
	case "dir":
		l.format, l.quote = 'C', "escape"
	case "vdir":
		l.format, l.quote = 'l', "escape"
	}
	if n, err := strconv.Atoi(c.Getenv("COLUMNS")); err == nil && n > 0 && !tty {
		l.width = n
	}
	if style := c.Getenv("TIME_STYLE"); style != "" {
		l.style = style
	}
	if !l.options(f) {
		return max(l.status, 1)
	}
	args := f.Args
	if len(args) == 0 {
		args = []string{"."}
	}
	l.operands(args)
	return flush(c, l.w, l.status)
}

// choice checks the argument of an option against its values, which may be abbreviated.
func (l *lister) choice(option, value string, values ...string) (string, bool) {
	found := ""
	for _, v := range values {
		name, as, _ := strings.Cut(v, "=")
		if name == value {
			return as, true
		}
		if value != "" && strings.HasPrefix(name, value) {
			found = as
		}
	}
	if found != "" {
		return found, true
	}
	l.Errorf(2, "invalid argument %s for %s", curly(value), curly("--"+option))
	fmt.Fprintln(l.Err, "Valid arguments are:")
	last := ""
	for _, v := range values {
		name, as, _ := strings.Cut(v, "=")
		switch {
		case last == "":
			fmt.Fprintf(l.Err, "  - %s", curly(name))
		case as == last:
			fmt.Fprintf(l.Err, ", %s", curly(name))
		default:
			fmt.Fprintf(l.Err, "\n  - %s", curly(name))
		}
		last = as
	}
	fmt.Fprintln(l.Err)
	tryHelp(l.Call, 2)
	return "", false
}

// options applies the options in order, because many of them undo others.
func (l *lister) options(f tool.Flags) bool {
	explicitSort, explicitTime := false, false
	for _, o := range f.All {
		ok := true
		switch o.Letter {
		case 'a':
			l.all = true
		case 'A':
			l.almost, l.all = true, false
		case 'b':
			l.quote, l.literal = "escape", false
		case 'B':
			l.hide = append(l.hide, "*~", ".*~")
		case 'c':
			l.timeOf, explicitTime = 'c', true
		case 'u':
			l.timeOf, explicitTime = 'a', true
		case 'C', 'x', 'm', 'l', '1':
			if o.Letter != '1' || l.format != 'l' {
				l.format = o.Letter
			}
		case 'd':
			l.dirItself = true
		case 'f':
			l.all, l.sort, explicitSort, l.color = true, 'U', true, nil
			if l.format == 'l' {
				l.format = '1'
			}
		case 'F':
			l.classes = 'F'
		case 0x81:
			var when string
			if when, ok = l.when("classify", o); ok && when == "y" {
				l.classes = 'F'
			}
		case 'p':
			l.classes = 'p'
		case 0x82:
			l.classes = 't'
		case 'g':
			l.format, l.noOwner = 'l', true
		case 'o':
			l.format, l.noGroup = 'l', true
		case 'G':
			l.noGroup = true
		case 'n':
			l.format, l.numeric = 'l', true
		case 'h':
			l.human = 1024
		case 0x86:
			l.human = 1000
		case 'k':
			l.unit = 0
		case 'H', 0x83:
			l.argDir = true
		case 'L':
			l.follow = true
		case 'i':
			l.inode = true
		case 'I', 0x8b:
			l.hide = append(l.hide, o.Value)
		case 'N':
			l.quote, l.literal = "literal", true
		case 'q':
			l.literal = false
		case 0x84:
			l.literal = true
		case 'Q':
			l.quote = "c"
		case 'r':
			l.reverse = true
		case 'R':
			l.recurse = true
		case 's':
			l.blocks = true
		case 'S', 't', 'U', 'v', 'X':
			l.sort, explicitSort = o.Letter, true
		case 'w':
			n, err := strconv.Atoi(o.Value)
			if err != nil || n < 0 {
				l.status = l.Errorf(2, "invalid line width: %s", curly(o.Value))
				return false
			}
			if l.width = n; n == 0 {
				l.width = 1 << 30
			}
		case 0x85:
			l.dirsFirst = true
		case 0x87:
			l.author = true
		case 0x88:
			var when string
			if when, ok = l.when("color", o); ok {
				l.color = nil
				if when == "y" {
					l.color = l.colors()
				}
			}
		case 0x89:
			var v string
			v, ok = l.choice("format", o.Value, "verbose=l", "long=l", "commas=m", "horizontal=x", "across=x", "vertical=C", "single-column=1")
			if ok {
				l.format = v[0]
			}
		case 0x8a:
			l.format, l.style = 'l', "full-iso"
		case 0x8c:
			var v string
			v, ok = l.choice("indicator-style", o.Value, "none=n", "slash=p", "file-type=t", "classify=F")
			if ok {
				l.classes = v[0]
			}
		case 0x8d:
			l.quote, ok = l.choice("quoting-style", o.Value, "literal=literal", "shell=shell", "shell-always=shell-always", "shell-escape=shell-escape", "shell-escape-always=shell-escape-always", "c=c", "c-maybe=c-maybe", "escape=escape", "locale=locale", "clocale=locale")
		case 0x8e:
			var v string
			v, ok = l.choice("sort", o.Value, "none=U", "time=t", "size=S", "extension=X", "version=v", "width=W")
			if ok {
				l.sort, explicitSort = v[0], true
			}
		case 0x8f:
			var v string
			v, ok = l.choice("time", o.Value, "atime=a", "access=a", "use=a", "ctime=c", "status=c", "mtime=m", "modification=m", "birth=m", "creation=m")
			if ok {
				l.timeOf, explicitTime = v[0], true
			}
		case 0x90:
			l.style = o.Value
		case 0x91:
			l.zero, l.format, l.quote, l.literal, l.color = true, '1', "literal", true, nil
		case 0x92:
			n, sok := sizeArg(o.Value)
			if !sok || n == 0 {
				l.Errorf(2, "invalid --block-size argument %s", quoted(o.Value))
				return false
			}
			l.unit = n
		case 'Z', 'T', 'D', 0x93:
		}
		if !ok {
			return false
		}
	}
	if explicitTime && !explicitSort && l.format != 'l' {
		l.sort = 't'
	}
	return l.timeStyle()
}

// when reads always, auto or never. It returns "y" if the answer is yes.
func (l *lister) when(option string, o tool.Flag) (string, bool) {
	if !o.Has {
		return "y", true
	}
	v, ok := l.choice(option, o.Value, "always=y", "yes=y", "force=y", "never=n", "no=n", "none=n", "auto=t", "tty=t", "if-tty=t")
	if v == "t" {
		v = "n"
		if l.tty {
			v = "y"
		}
	}
	return v, ok
}

func (l *lister) timeStyle() bool {
	l.style = strings.TrimPrefix(l.style, "posix-")
	switch l.style {
	case "", "full-iso", "long-iso", "iso", "locale":
		return true
	}
	if strings.HasPrefix(l.style, "+") {
		return true
	}
	l.Errorf(2, "invalid argument %s for %s", curly(l.style), curly("time style"))
	fmt.Fprintln(l.Err, "Valid arguments are:\n  - [posix-]full-iso\n  - [posix-]long-iso\n  - [posix-]iso\n  - [posix-]locale\n  - +FORMAT (e.g., +%H:%M) for a 'date'-style format")
	tryHelp(l.Call, 2)
	return false
}

// operands lists the operands: files first, then directories.
func (l *lister) operands(args []string) {
	var files, dirs []item
	for _, name := range args {
		if !l.Step(4) {
			return
		}
		info, err := lstat(l.Call, name)
		if err == nil && isLink(info.Mode) && (l.follow || l.argDir || l.format != 'l' && !l.dirItself && l.classes != 'F') {
			i, serr := statOf(l.Call, name)
			if serr == nil && (l.follow || l.argDir || i.Mode.IsDir()) {
				info = i
			} else if serr != nil && (l.follow || !errors.Is(serr, syscall.ENOENT)) {
				err = serr
			}
		}
		if err != nil {
			l.status = l.Errorf(2, "cannot access %s: %s", quoted(name), errText(err))
			continue
		}
		it := l.item(info, name, name)
		if info.Mode.IsDir() && !l.dirItself {
			dirs = append(dirs, it)
		} else {
			files = append(files, it)
		}
	}
	l.arrange(files)
	l.arrange(dirs)
	headed := l.recurse || len(args) > 1
	if len(files) > 0 {
		l.print(files)
		l.blank = true
	}
	// Use a stack instead of recursion, because a tree may be very deep.
	slices.Reverse(dirs)
	for len(dirs) > 0 {
		d := dirs[len(dirs)-1]
		dirs = dirs[:len(dirs)-1]
		below, ok := l.directory(d, headed)
		if !ok {
			return
		}
		if l.recurse {
			slices.Reverse(below)
			dirs = append(dirs, below...)
		}
	}
}

// item makes an item, and finds the target of a link.
func (l *lister) item(info vfs.Info, said, path string) item {
	it := item{Info: info, said: said, path: path}
	if isLink(info.Mode) && (l.format == 'l' || l.color != nil || l.classes == 'F' || l.dirsFirst) {
		if t, err := statOf(l.Call, path); err == nil {
			it.target = &t
		}
	}
	return it
}

// directory lists one directory and returns the directories in it.
func (l *lister) directory(d item, headed bool) (below []item, ok bool) {
	if l.follow && l.recurse {
		if l.listed[d.Ino] {
			l.status = max(l.status, l.Errorf(2, "%s: not listing already-listed directory", d.path))
			return nil, true
		}
		if l.listed == nil {
			l.listed = map[uint64]bool{}
		}
		l.listed[d.Ino] = true
	}
	entries, err := l.FS().ReadDir(l.Abs(d.path))
	if err != nil {
		l.status = max(l.status, l.Errorf(1, "cannot open directory %s: %s", quoted(d.path), errText(err)))
		return nil, true
	}
	if l.Pay(int64(len(entries))*costEntry*2) != nil {
		return nil, false
	}
	defer func() { _ = l.Pay(-int64(len(entries)) * costEntry * 2) }()
	if headed {
		if l.blank {
			l.w.WriteByte('\n')
		}
		fmt.Fprintf(l.w, "%s:\n", l.name(d.path))
	}
	l.blank = true
	var items []item
	if l.all {
		for _, dots := range []string{".", ".."} {
			if i, err := statOf(l.Call, under(d.path, dots)); err == nil {
				i.Name = dots
				items = append(items, l.item(i, dots, under(d.path, dots)))
			}
		}
	}
	for n, e := range entries {
		if n%16 == 0 && !l.Step(32) {
			return nil, false
		}
		if strings.HasPrefix(e.Name, ".") && !l.all && !l.almost || l.hidden(e.Name) {
			continue
		}
		path := under(d.path, e.Name)
		if l.follow && isLink(e.Mode) {
			i, serr := statOf(l.Call, path)
			if serr != nil {
				l.status = max(l.status, l.Errorf(1, "cannot access %s: %s", quoted(path), errText(serr)))
				if l.format != 'l' {
					items = append(items, l.item(e, e.Name, path))
				}
				continue
			}
			i.Name = e.Name
			e = i
		}
		items = append(items, l.item(e, e.Name, path))
	}
	l.arrange(items)
	l.print2(items)
	for _, it := range items {
		if it.Mode.IsDir() && it.said != "." && it.said != ".." {
			it.said = it.path
			below = append(below, it)
		}
	}
	return below, true
}

func (l *lister) hidden(name string) bool {
	return slices.ContainsFunc(l.hide, func(p string) bool { return globMatch(p, name, globPeriod) })
}

// print2 prints a directory's items with their total.
func (l *lister) print2(items []item) {
	if l.format == 'l' || l.blocks {
		var total int64
		for _, it := range items {
			total += blocks(it.Info) * 512
		}
		fmt.Fprintf(l.w, "total %s%c", l.blockSize(total), l.end())
	}
	l.print(items)
}

func (l *lister) end() byte {
	if l.zero {
		return 0
	}
	return '\n'
}

func (l *lister) blockSize(n int64) string {
	switch {
	case l.human > 0:
		return human(n, l.human)
	case l.unit > 0:
		return strconv.FormatInt(inUnits(n, l.unit), 10)
	}
	return strconv.FormatInt(inUnits(n, 1024), 10)
}

// arrange sorts items.
func (l *lister) arrange(items []item) {
	by := func(a, b item) int { return strings.Compare(a.said, b.said) }
	switch l.sort {
	case 'S':
		by = func(a, b item) int { return int(min(max(b.Size-a.Size, -1), 1)) }
	case 't':
		by = func(a, b item) int { return l.time(b).Compare(l.time(a)) }
	case 'v':
		by = func(a, b item) int { return versionCompare(a.said, b.said) }
	case 'X':
		by = func(a, b item) int { return strings.Compare(extension(a.said), extension(b.said)) }
	case 'W':
		by = func(a, b item) int { return len(l.name(a.said)) - len(l.name(b.said)) }
	}
	group := func(it item) bool { return it.Mode.IsDir() || it.target != nil && it.target.Mode.IsDir() }
	if l.sort == 'U' {
		if l.dirsFirst {
			slices.SortStableFunc(items, func(a, b item) int { return boolCompare(group(b), group(a)) })
		}
		return
	}
	slices.SortStableFunc(items, func(a, b item) int {
		if l.dirsFirst {
			if d := boolCompare(group(b), group(a)); d != 0 {
				return d
			}
		}
		d := by(a, b)
		if d == 0 {
			d = strings.Compare(a.said, b.said)
		}
		if l.reverse {
			d = -d
		}
		return d
	})
}

func boolCompare(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

func extension(name string) string {
	if at := strings.LastIndexByte(name, '.'); at >= 0 {
		return name[at:]
	}
	return ""
}

func (l *lister) time(it item) time.Time {
	switch l.timeOf {
	case 'a':
		return accessed(it.Info)
	case 'c':
		return changed(it.Info)
	}
	return it.Modified
}

// special reports whether a mode has a bit that selects a color.
func special(m fs.FileMode, bit fs.FileMode) bool { return m&bit != 0 }
