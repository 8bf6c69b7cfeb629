package sh

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/carrel-dev/carrel/internal/sh/vfs"
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

// ls is one run of ls.
type ls struct {
	c *call
	f flags
	w io.Writer
}

func toolLs(c *call) int {
	f, ok := c.flags("alA1RdhtrSFisngGoC", "all=a", "almost-all=A", "recursive=R", "directory=d", "human-readable=h", "reverse=r", "color=G", "inode=i", "classify=F")
	if !ok {
		return 2
	}
	w := c.buffered()
	l := &ls{c, f, w}
	status := l.run()
	if w.Flush() != nil {
		return 1
	}
	return status
}

func (l *ls) run() int {
	names, status := l.f.args, 0
	if len(names) == 0 {
		names = []string{"."}
	}
	var files []vfs.Info
	var dirs []string
	for _, n := range names {
		i, err := l.c.r.view.Lstat(l.c.r.abs(n))
		if err == nil && i.Mode&fs.ModeSymlink != 0 && !l.f.has('l') {
			if t, terr := l.c.r.view.Stat(l.c.r.abs(n)); terr == nil {
				i = t
			}
		}
		switch {
		case n == "" || err != nil:
			if err == nil {
				err = fs.ErrNotExist
			}
			l.c.complain(2, "cannot access '%s': %s", n, errText(err))
			status = 2
		case i.Mode.IsDir() && !l.f.has('d'):
			dirs = append(dirs, n)
		default:
			i.Name = n
			files = append(files, i)
		}
	}
	l.list(files)
	heads := len(names) > 1 || l.f.has('R')
	shown := len(files) > 0
	sort.Strings(dirs)
	for len(dirs) > 0 && l.c.r.step() {
		d := dirs[0]
		dirs = dirs[1:]
		entries, err := l.c.r.view.ReadDir(l.c.r.abs(d))
		if err != nil {
			l.c.complain(2, "cannot open directory '%s': %s", d, errText(err))
			status = 2
			continue
		}
		if heads {
			if shown {
				fmt.Fprintln(l.w)
			}
			fmt.Fprintf(l.w, "%s:\n", d)
		}
		shown = true
		keep := l.visible(d, entries)
		if l.f.has('l') {
			var blocks int64
			for _, e := range keep {
				blocks += (e.Used + 4095) / 4096 * 4
			}
			fmt.Fprintf(l.w, "total %d\n", blocks)
		}
		l.list(keep)
		if l.f.has('R') {
			var below []string
			for _, e := range keep {
				if e.Mode.IsDir() && e.Name != "." && e.Name != ".." {
					below = append(below, strings.TrimSuffix(d, "/")+"/"+e.Name)
				}
			}
			dirs = append(below, dirs...)
		}
	}
	return status
}

// visible drops hidden entries unless they are asked for.
func (l *ls) visible(dir string, entries []vfs.Info) []vfs.Info {
	var out []vfs.Info
	if l.f.has('a') {
		for _, n := range []string{".", ".."} {
			if i, err := l.c.r.view.Stat(l.c.r.abs(dir) + "/" + n); err == nil {
				i.Name = n
				out = append(out, i)
			}
		}
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name, ".") || l.f.has('a') || l.f.has('A') {
			out = append(out, e)
		}
	}
	return out
}

func (l *ls) list(es []vfs.Info) {
	less := func(i, j int) bool { return es[i].Name < es[j].Name }
	switch {
	case l.f.has('t'):
		less = func(i, j int) bool { return es[i].Modified.After(es[j].Modified) }
	case l.f.has('S'):
		less = func(i, j int) bool { return es[i].Size > es[j].Size }
	}
	sort.SliceStable(es, less)
	if l.f.has('r') {
		for i, j := 0, len(es)-1; i < j; i, j = i+1, j-1 {
			es[i], es[j] = es[j], es[i]
		}
	}
	if l.f.has('l') {
		l.long(es)
		return
	}
	names := make([]string, len(es))
	for i, e := range es {
		names[i] = l.name(e)
	}
	if t := l.c.r.ttyOf(1); t != nil && !l.f.has('1') && len(names) > 0 {
		cols, _ := t.Size()
		columns(l.w, names, int(cols))
		return
	}
	for _, n := range names {
		io.WriteString(l.w, n+"\n")
	}
}

func (l *ls) name(e vfs.Info) string {
	n := e.Name
	if l.f.has('i') {
		n = strconv.FormatUint(e.Ino, 10) + " " + n
	}
	if l.f.has('F') {
		switch {
		case e.Mode.IsDir():
			n += "/"
		case e.Mode&fs.ModeSymlink != 0:
			n += "@"
		case e.Mode&0o111 != 0:
			n += "*"
		}
	}
	return n
}

// columns prints names in columns, as on a terminal.
func columns(w io.Writer, names []string, width int) {
	wide := 0
	for _, n := range names {
		wide = max(wide, len(n)+2)
	}
	cols := max(min(width, 500)/wide, 1)
	rows := (len(names) + cols - 1) / cols
	for r := range rows {
		line := ""
		for c := r; c < len(names); c += rows {
			line += names[c] + strings.Repeat(" ", wide-len(names[c]))
		}
		io.WriteString(w, strings.TrimRight(line, " ")+"\n")
	}
}

func (l *ls) long(es []vfs.Info) {
	var links, owner, group, size int
	type row struct{ links, owner, group, size string }
	rows := make([]row, len(es))
	for i, e := range es {
		r := row{strconv.Itoa(e.Links), l.c.r.m.UserName(e.UID), l.c.r.m.GroupName(e.GID), strconv.FormatInt(e.Size, 10)}
		if l.f.has('n') {
			r.owner, r.group = strconv.Itoa(int(e.UID)), strconv.Itoa(int(e.GID))
		}
		if l.f.has('h') {
			r.size = humanSize(e.Size)
		}
		rows[i] = r
		links, owner, group, size = max(links, len(r.links)), max(owner, len(r.owner)), max(group, len(r.group)), max(size, len(r.size))
	}
	for i, e := range es {
		r := rows[i]
		name := l.name(e)
		if e.Target != "" {
			name += " -> " + e.Target
		}
		layout := "Jan _2 15:04"
		if d := l.c.r.m.now().Sub(e.Modified); d > 182*24*time.Hour || d < -time.Hour {
			layout = "Jan _2  2006"
		}
		fmt.Fprintf(l.w, "%s %*s %-*s %-*s %*s %s %s\n", modeText(e.Mode), links, r.links, owner, r.owner, group, r.group, size, r.size,
			e.Modified.UTC().Format(layout), name)
	}
}

func humanSize(n int64) string {
	if n < 1024 {
		return strconv.FormatInt(n, 10)
	}
	f := float64(n)
	unit := -1
	for f >= 1024 {
		f /= 1024
		unit++
	}
	if f < 10 {
		return fmt.Sprintf("%.1f%c", f, "KMGTPE"[unit])
	}
	return fmt.Sprintf("%.0f%c", f, "KMGTPE"[unit])
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

// finder is one run of find.
type finder struct {
	c        *call
	min, max int
	tests    []func(i vfs.Info, p string) bool
	action   func(i vfs.Info, p string) bool
	status   int
}

func toolFind(c *call) int {
	args := c.args
	var roots []string
	for len(args) > 0 && !strings.HasPrefix(args[0], "-") && args[0] != "!" && args[0] != "(" {
		roots, args = append(roots, args[0]), args[1:]
	}
	if len(roots) == 0 {
		roots = []string{"."}
	}
	w := c.buffered()
	fd := &finder{c: c, max: 1 << 20}
	fd.action = func(_ vfs.Info, p string) bool { io.WriteString(w, p+"\n"); return true }
	if err := fd.parse(args, w); err != nil {
		return c.complain(1, "%s", err)
	}
	for _, root := range roots {
		var later []func()
		err := c.walk(root, true, func(i vfs.Info, p string, depth int) (bool, error) {
			if depth >= fd.min {
				ok := true
				for _, t := range fd.tests {
					if ok = t(i, p); !ok {
						break
					}
				}
				if ok {
					if fd.min < 0 { // deleting: children first
						later = append(later, func() { fd.action(i, p) })
					} else {
						fd.action(i, p)
					}
				}
			}
			return depth < fd.max, nil
		})
		for k := len(later) - 1; k >= 0; k-- {
			later[k]()
		}
		if err != nil {
			fd.status = c.complain(1, "'%s': %s", root, errText(err))
		}
	}
	if w.Flush() != nil {
		return 1
	}
	return fd.status
}

func (fd *finder) parse(args []string, w io.Writer) error {
	not := false
	test := func(t func(i vfs.Info, p string) bool) {
		if not {
			inner := t
			t = func(i vfs.Info, p string) bool { return !inner(i, p) }
		}
		fd.tests = append(fd.tests, t)
		not = false
	}
	for len(args) > 0 {
		a := args[0]
		args = args[1:]
		value := ""
		switch a {
		case "-name", "-iname", "-path", "-type", "-maxdepth", "-mindepth", "-size", "-newer", "-mtime", "-user", "-perm", "-regex":
			if len(args) == 0 {
				return fmt.Errorf("missing argument to `%s'", a)
			}
			value, args = args[0], args[1:]
		}
		switch a {
		case "!", "-not":
			not = true
		case "-a", "-and":
		case "-name":
			test(func(i vfs.Info, p string) bool { return fd.c.r.match(value, base(strings.TrimSuffix(p, "/"))) })
		case "-iname":
			test(func(i vfs.Info, p string) bool {
				return fd.c.r.match(strings.ToLower(value), strings.ToLower(base(p)))
			})
		case "-path":
			test(func(i vfs.Info, p string) bool { return fd.c.r.match(value, p) })
		case "-type":
			test(func(i vfs.Info, p string) bool {
				return strings.Contains(value, map[byte]string{'-': "f", 'd': "d", 'l': "l", 'c': "c"}[modeText(i.Mode)[0]])
			})
		case "-empty":
			test(func(i vfs.Info, p string) bool {
				if i.Mode.IsDir() {
					es, err := fd.c.r.view.ReadDir(fd.c.r.abs(p))
					return err == nil && len(es) == 0
				}
				return i.Mode.IsRegular() && i.Size == 0
			})
		case "-maxdepth", "-mindepth":
			n, err := strconv.Atoi(value)
			if err != nil {
				return fmt.Errorf("expected a number after %s", a)
			}
			if a == "-maxdepth" {
				fd.max = n
			} else {
				fd.min = n
			}
		case "-newer":
			ref, err := fd.c.stat(value)
			if err != nil {
				return fmt.Errorf("'%s': %s", value, errText(err))
			}
			test(func(i vfs.Info, p string) bool { return i.Modified.After(ref.Modified) })
		case "-size":
			sign := value[:boolStatus(value != "" && value[0] != '+' && value[0] != '-')]
			body := strings.TrimLeft(value, "+-")
			unit := int64(512)
			if n := len(body); n > 0 {
				if u, ok := map[byte]int64{'c': 1, 'k': 1 << 10, 'M': 1 << 20, 'G': 1 << 30, 'b': 512}[body[n-1]]; ok {
					unit, body = u, body[:n-1]
				}
			}
			n, err := strconv.ParseInt(body, 10, 64)
			if err != nil {
				return fmt.Errorf("invalid -size `%s'", value)
			}
			test(func(i vfs.Info, p string) bool {
				got := (i.Size + unit - 1) / unit
				return sign == "+" && got > n || sign == "-" && got < n || sign == "" && got == n
			})
		case "-print":
		case "-print0":
			fd.action = func(_ vfs.Info, p string) bool { io.WriteString(w, p+"\x00"); return true }
		case "-delete":
			fd.min = -1
			fd.action = func(_ vfs.Info, p string) bool {
				if err := fd.c.r.view.Remove(fd.c.r.abs(p)); err != nil {
					fd.status = fd.c.complain(1, "cannot delete '%s': %s", p, errText(err))
				}
				return true
			}
		case "-exec":
			end := 0
			for end < len(args) && args[end] != ";" && args[end] != "+" {
				end++
			}
			if end == len(args) || end == 0 {
				return errors.New("missing argument to `-exec'")
			}
			fd.exec(args[:end], w)
			args = args[end+1:]
		default:
			return fmt.Errorf("unknown predicate `%s'", a)
		}
	}
	return nil
}

// exec makes running a program the action; {} stands for the path.
func (fd *finder) exec(argv []string, w io.Writer) {
	fd.action = func(_ vfs.Info, p string) bool {
		full := make([]string, len(argv))
		for i, a := range argv {
			full[i] = strings.ReplaceAll(a, "{}", p)
		}
		if f, ok := w.(interface{ Flush() error }); ok {
			_ = f.Flush() // its own failure shows at the end
		}
		return fd.c.sub(full, fd.c.env) == 0
	}
}

func toolDu(c *call) int {
	f, ok := c.flags("shkacbd:", "summarize=s", "human-readable=h", "max-depth=d", "bytes=b")
	if !ok {
		return 1
	}
	names := f.args
	if len(names) == 0 {
		names = []string{"."}
	}
	return c.on(names, "cannot access '%s': %s", func(full string) error {
		var total int64
		if err := c.walk(full, true, func(i vfs.Info, _ string, _ int) (bool, error) {
			total += i.Used + 512
			return true, nil
		}); err != nil {
			return err
		}
		text := strconv.FormatInt((total+1023)/1024, 10)
		switch {
		case f.has('h'):
			text = humanSize(total)
		case f.has('b'):
			text = strconv.FormatInt(total, 10)
		}
		name := full
		for _, n := range names {
			if c.r.abs(n) == full {
				name = n
			}
		}
		c.print(text + "\t" + name + "\n")
		return nil
	})
}

func toolDf(c *call) int {
	used, quota := c.r.m.fs.Usage()
	pct := int64(0)
	if quota > 0 {
		pct = (used*100 + quota - 1) / quota
	}
	if len(c.args) > 0 && strings.Contains(c.args[0], "h") {
		return c.print(fmt.Sprintf("Filesystem      Size  Used Avail Use%% Mounted on\nmemory          %4s  %4s  %4s  %2d%% /\n",
			humanSize(quota), humanSize(used), humanSize(max(quota-used, 0)), pct))
	}
	return c.print(fmt.Sprintf("Filesystem     1K-blocks    Used Available Use%% Mounted on\nmemory         %9d %7d %9d %3d%% /\n",
		quota>>10, used>>10, max(quota-used, 0)>>10, pct))
}
