package archive

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/vfs"
)

const arMagic = "!<arch>\n"

// errAr is the error of a file that is not an archive.
var errAr = errors.New("file format not recognized")

// arMember is one file of an archive.
type arMember struct {
	name                  string
	mtime, uid, gid, mode int64
	data                  []byte
}

func arMain(c *tool.Call) int {
	if len(c.Args) == 0 {
		fmt.Fprintf(c.Err, "Usage: %s [-]{dmpqrstx}[abcDfilMNoOPsSTuvV] archive-file file...\n", c.Base())
		return 1
	}
	keys := strings.TrimPrefix(c.Args[0], "-")
	args := c.Args[1:]
	op := byte(0)
	for _, k := range []byte(keys) {
		switch {
		case strings.IndexByte("dmpqrtx", k) >= 0:
			if op != 0 && op != k {
				return c.Errorf(1, "two different operation options specified")
			}
			op = k
		case strings.IndexByte("cvuosSDUTPlf", k) >= 0:
		default:
			return c.Errorf(1, "invalid option -- '%c'", k)
		}
	}
	if op == 0 && strings.Contains(keys, "s") {
		op = 's'
	}
	if op == 0 {
		return c.Errorf(1, "no operation specified")
	}
	if op == 'm' {
		return c.Errorf(1, "members can't be moved here; take them out and put them in again in order")
	}
	if len(args) == 0 {
		return c.Errorf(1, "no archive file specified")
	}
	a := &arRun{Call: c, out: c.Buffered(), archive: args[0], names: args[1:], verbose: strings.Contains(keys, "v"), newer: strings.Contains(keys, "u"), dates: strings.Contains(keys, "o"), quiet: strings.Contains(keys, "c"), real: strings.Contains(keys, "U")}
	return c.Flush(a.out, a.run(op))
}

// arRun is one run of ar.
type arRun struct {
	*tool.Call
	out                                *bufio.Writer
	archive                            string
	names                              []string
	verbose, newer, dates, quiet, real bool
	members                            []arMember
}

func (a *arRun) run(op byte) int {
	err := a.load()
	missing := err != nil && errors.Is(err, errNoArchive)
	switch {
	case missing && (op == 'r' || op == 'q'):
		if !a.quiet {
			a.Errorf(0, "creating %s", a.archive)
		}
	case missing:
		return a.Errorf(9, "%s: No such file or directory", a.archive)
	case err != nil:
		if a.Stopped(err) {
			return 1
		}
		return a.Errorf(1, "%s: %s", a.archive, tool.ErrText(err))
	}
	switch op {
	case 's':
		return 0
	case 'r', 'q':
		return a.add(op == 'q')
	case 'd':
		for _, name := range a.names {
			at := a.find(name)
			if at < 0 {
				if a.verbose {
					fmt.Fprintf(a.out, "No member named `%s'\n", name)
				}
				continue
			}
			if a.verbose {
				fmt.Fprintf(a.out, "d - %s\n", name)
			}
			a.members = slices.Delete(a.members, at, at+1)
		}
		return a.save()
	}
	status := 0
	for _, name := range a.names {
		if a.find(name) < 0 {
			fmt.Fprintf(a.Err, "no entry %s in archive\n", name)
		}
	}
	for _, m := range a.members {
		if !a.Step(4) {
			return 1
		}
		if len(a.names) > 0 && !slices.Contains(a.names, m.name) {
			continue
		}
		if err := a.one(op, m); err != nil {
			if a.Stopped(err) {
				return 1
			}
			status = a.Errorf(1, "%s: %s", m.name, tool.ErrText(err))
		}
	}
	return status
}

// find returns the position of a member, or -1 if there is none.
func (a *arRun) find(name string) int {
	name = name[strings.LastIndexByte(name, '/')+1:]
	return slices.IndexFunc(a.members, func(m arMember) bool { return m.name == name })
}

// one lists, prints or extracts one member.
func (a *arRun) one(op byte, m arMember) error {
	switch op {
	case 't':
		if a.verbose {
			mode := []byte("rwxrwxrwx")
			for i := range mode {
				if m.mode&(0o400>>i) == 0 {
					mode[i] = '-'
				}
			}
			fmt.Fprintf(a.out, "%s %d/%d %6d %s ", mode, m.uid, m.gid, len(m.data), time.Unix(m.mtime, 0).In(a.Now().Location()).Format("Jan _2 15:04 2006"))
		}
		_, err := fmt.Fprintln(a.out, m.name)
		return err
	case 'p':
		if a.verbose {
			fmt.Fprintf(a.out, "\n<%s>\n\n", m.name)
		}
		_, err := a.out.Write(m.data)
		return err
	}
	if a.verbose {
		fmt.Fprintf(a.out, "x - %s\n", m.name)
	}
	if m.name == "" || strings.Contains(m.name, "/") || m.name == ".." || m.name == "." {
		return errors.New("illegal pathname found in archive member")
	}
	full := a.Abs(m.name)
	if i, err := a.FS().Lstat(full); err == nil && !i.Mode.IsRegular() && !i.Mode.IsDir() {
		if err := a.FS().Remove(full); err != nil {
			return err
		}
	}
	f, err := a.FS().OpenFile(full, vfs.WriteOnly|vfs.CreateNew|vfs.Truncate, 0o666&^a.Umask())
	if err != nil {
		return err
	}
	_, err = f.Write(m.data)
	_ = f.Close() // written
	if err != nil {
		return err
	}
	_ = a.FS().Chmod(full, goMode(m.mode&0o777)) // its own
	if a.dates {
		_ = a.FS().SetTimes(full, vfs.Times{Modified: time.Unix(m.mtime, 0)}) // its own
	}
	return nil
}

// add adds files. They replace members of the same name, unless all is set.
func (a *arRun) add(all bool) int {
	for _, name := range a.names {
		i, err := a.FS().Stat(a.Abs(name))
		if err != nil {
			return a.Errorf(1, "%s: %s", name, tool.ErrText(err))
		}
		at := a.find(name)
		if a.newer && at >= 0 && i.Modified.Unix() <= a.members[at].mtime {
			continue
		}
		data, err := readAll(a.Call, name)
		if err != nil {
			return a.Errorf(1, "%s: %s", name, tool.ErrText(err))
		}
		m := arMember{name: name[strings.LastIndexByte(name, '/')+1:], mode: 0o644, data: data}
		if a.real {
			m.mode, m.mtime, m.uid, m.gid = int64(unixMode(i.Mode)), i.Modified.Unix(), int64(i.UID), int64(i.GID)
		}
		letter := byte('a')
		if at >= 0 && !all {
			a.members[at], letter = m, 'r'
		} else {
			a.members = append(a.members, m)
		}
		if a.verbose {
			fmt.Fprintf(a.out, "%c - %s\n", letter, name)
		}
	}
	return a.save()
}

var errNoArchive = errors.New("no archive")

// load reads the archive.
func (a *arRun) load() error {
	if _, err := a.FS().Stat(a.Abs(a.archive)); err != nil {
		return errNoArchive
	}
	data, err := readAll(a.Call, a.archive)
	if err != nil {
		return err
	}
	if a.members, err = parseAr(data, a.Step); err != nil {
		return err
	}
	return a.Pay(int64(len(a.members)) * 128)
}

// parseAr reads an archive of the System V or BSD format.
func parseAr(data []byte, step func(int) bool) (out []arMember, err error) {
	rest, ok := strings.CutPrefix(string(data[:min(len(data), len(arMagic))]), arMagic)
	if !ok || rest != "" {
		return nil, errAr
	}
	data = data[len(arMagic):]
	var long []byte
	for len(data) > 0 {
		if !step(4) {
			return nil, tool.ErrStop
		}
		if len(data) < 60 || data[58] != '`' || data[59] != '\n' {
			return nil, errAr
		}
		h := data[:60]
		number := func(from, to, base int) int64 {
			text := strings.TrimSpace(string(h[from:to]))
			if text == "" {
				return 0
			}
			n, nerr := strconv.ParseInt(text, base, 64)
			if nerr != nil || n < 0 {
				err = errAr
			}
			return n
		}
		m := arMember{name: strings.TrimRight(string(h[:16]), " "), mtime: number(16, 28, 10), uid: number(28, 34, 10), gid: number(34, 40, 10), mode: number(40, 48, 8)}
		size := number(48, 58, 10)
		if err != nil || size > int64(len(data)-60) {
			return nil, errAr
		}
		m.data = data[60 : 60+size]
		data = data[min(60+size+size&1, int64(len(data))):]
		switch {
		case m.name == "/" || m.name == "/SYM64/" || strings.HasPrefix(m.name, "__.SYMDEF"):
			continue // the symbols
		case m.name == "//":
			long = m.data
			continue
		case strings.HasPrefix(m.name, "#1/"):
			n, nerr := strconv.Atoi(m.name[3:])
			if nerr != nil || n < 0 || n > len(m.data) {
				return nil, errAr
			}
			m.name, m.data = strings.TrimRight(string(m.data[:n]), "\x00"), m.data[n:]
		case strings.HasPrefix(m.name, "/"):
			n, nerr := strconv.Atoi(m.name[1:])
			if nerr != nil || n < 0 || n >= len(long) {
				return nil, errAr
			}
			name, _, _ := strings.Cut(string(long[n:min(len(long), n+4096)]), "\n")
			m.name = strings.TrimSuffix(name, "/")
		default:
			m.name = strings.TrimSuffix(m.name, "/")
		}
		out = append(out, m)
	}
	return out, nil
}

// save writes the archive.
func (a *arRun) save() int {
	f, err := a.Open(a.archive, vfs.WriteOnly|vfs.CreateNew|vfs.Truncate, 0o666)
	if err != nil {
		return a.Errorf(1, "%s: %s", a.archive, tool.ErrText(err))
	}
	w := bufio.NewWriterSize(f, 64<<10)
	_, _ = w.WriteString(arMagic) // the flush reports
	var long strings.Builder
	fields := make([]string, len(a.members))
	for i, m := range a.members {
		if fields[i] = m.name + "/"; len(fields[i]) > 16 {
			fields[i] = "/" + strconv.Itoa(long.Len())
			long.WriteString(m.name + "/\n")
		}
	}
	if long.Len() > 0 {
		if long.Len()&1 == 1 {
			long.WriteByte('\n')
		}
		fmt.Fprintf(w, "%-48s%-10d`\n%s", "//", long.Len(), long.String())
	}
	for i, m := range a.members {
		if !a.Step(4 + len(m.data)>>8) {
			return 1
		}
		fmt.Fprintf(w, "%-16s%-12d%-6d%-6d%-8o%-10d`\n", fields[i], m.mtime, m.uid, m.gid, m.mode, len(m.data))
		_, _ = w.Write(m.data) // the flush reports
		if len(m.data)&1 == 1 {
			_ = w.WriteByte('\n') // the flush reports
		}
	}
	err = w.Flush()
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil && err != io.EOF {
		return a.Errorf(1, "%s: %s", a.archive, tool.ErrText(err))
	}
	return 0
}
