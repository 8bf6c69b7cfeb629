package sh

import (
	"fmt"
	"io"
	"io/fs"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/carrel-dev/carrel/internal/sh/vfs"
)

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
