package sqlite

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	"modernc.org/libc"
	lib "modernc.org/sqlite/lib"

	"github.com/carrel-dev/carrel/shell/tool"
)

// shell is one run of sqlite3.
type shell struct {
	*tool.Call
	d    *disk
	db   *db
	path string
	ro   bool

	format
	headersSet bool
	w          *bufio.Writer // of results
	std        *bufio.Writer
	file       io.Closer // behind w
	once       bool

	echo, bail, changes, timer bool
	depth                      int // of .read
	failed                     int
	quit                       bool
	status                     int
}

const usage = `Usage: sqlite3 [OPTIONS] FILENAME [SQL]
Runs SQL, or the commands on its input, on the database in FILENAME. There is no need
for the file to exist; :memory: and "" name databases without one.

How rows are printed:
   -ascii -box -column -csv -html -json -line -list -markdown -quote -table -tabs
                        in this form; -list at first
   -header, -noheader   with the names of columns, or without
   -separator TEXT      between columns, "|" at first
   -newline TEXT        after rows, a line feed at first
   -nullvalue TEXT      in place of NULL, nothing at first

What is run:
   -cmd COMMAND         this before everything else
   -init FILE           this file first
   -bail                nothing more after an error
   -echo                each command is printed, too
   -readonly            nothing may change the database
   -batch, -interactive taken and ignored

   -help, -version      this text, or the version
`

// runSqlite is sqlite3.
func runSqlite(c *tool.Call) int {
	s := &shell{Call: c, format: format{mode: "list", col: "|", row: "\n"}}
	s.std = c.Buffered()
	s.w = s.std
	status := s.main()
	if s.db != nil {
		s.db.close()
	}
	if s.d != nil {
		s.d.close()
	}
	s.closeOutput()
	return c.Flush(s.std, status)
}

// main reads the options and runs the shell.
func (s *shell) main() int {
	o, status := s.options()
	if o == nil {
		return status
	}
	s.d = newDisk(s.Call)
	words := o.words
	if len(words) > 0 {
		s.path = words[0]
		words = words[1:]
	}
	if status := s.reopen(s.path); status != 0 {
		return status
	}
	if o.init != "" {
		s.read(o.init)
	}
	for _, text := range append(o.cmds, words...) {
		if status := s.argument(text); status != 0 || s.quit {
			return max(status, s.status)
		}
	}
	if len(words) == 0 {
		s.script(s.In)
		if s.quit {
			return s.status
		}
		return min(s.failed, 1)
	}
	return 0
}

// shellOptions are the parts of the command line that are not settings.
type shellOptions struct {
	words, cmds []string
	init        string // a file that is read first
}

// options reads the command line. When o is nil, the shell ends with the status.
func (s *shell) options() (o *shellOptions, status int) {
	o = &shellOptions{}
	plain := false
	for rest := s.Args; len(rest) > 0; {
		a := rest[0]
		rest = rest[1:]
		if plain || len(a) < 2 || a[0] != '-' {
			o.words = append(o.words, a)
			continue
		}
		if a == "--" {
			plain = true
			continue
		}
		name := strings.TrimPrefix(a[1:], "-")
		switch name {
		case "separator", "newline", "nullvalue", "cmd", "init", "vfs", "mmap", "maxsize", "lookaside", "pagecache", "heap":
			if len(rest) == 0 {
				return nil, s.Errorf(1, "Error: missing argument to %s", a)
			}
			v := rest[0]
			rest = rest[1:]
			switch name {
			case "separator":
				s.col = v
			case "newline":
				s.row = v
			case "nullvalue":
				s.null = v
			case "cmd":
				o.cmds = append(o.cmds, v)
			case "init":
				o.init = v
			case "vfs":
				return nil, s.Errorf(1, "Error: no such VFS: %q", v)
			}
		case "help":
			fmt.Fprint(s.Err, usage)
			return nil, 1
		case "version":
			s.w.WriteString(libc.GoString(lib.Xsqlite3_libversion(nil)) + "\n")
			return nil, 0
		default:
			if !s.setting(name) {
				s.Errorf(1, "Error: unknown option: %s", a)
				fmt.Fprintln(s.Err, "Use -help for a list of options.")
				return nil, 1
			}
		}
	}
	return o, 0
}

// setting applies an option without an argument. It reports whether there is such an option.
func (s *shell) setting(name string) bool {
	switch name {
	case "header":
		s.headers, s.headersSet = true, true
	case "noheader":
		s.headers, s.headersSet = false, true
	case "bail":
		s.bail = true
	case "echo":
		s.echo = true
	case "readonly":
		s.ro = true
	case "batch", "interactive", "safe", "stats", "append", "deserialize", "nofollow", "memtrace":
	case "tabs":
		s.mode, s.col = "list", "\t"
	case "csv", "ascii", "html", "json", "line", "list", "markdown", "quote", "table", "box", "column":
		if s.setMode(name); name == "csv" {
			s.row = "\n" // .mode csv writes \r\n
		}
	default:
		return false
	}
	return true
}

// reopen opens a database. If it does not exist, a later statement makes it.
func (s *shell) reopen(path string) int {
	name := path
	if name == ":memory:" {
		name = "" // a temporary database, whose memory is paid for
	}
	x, err := s.d.open(name, s.ro)
	if err == nil && name != "" {
		err = x.each(func([]value) error { return nil }, "PRAGMA schema_version")
		var e *sqlError
		if errors.As(err, &e) && e.code&255 != lib.SQLITE_CANTOPEN {
			err = nil // said when it's used
		}
		if err != nil {
			x.close()
		}
	}
	if err != nil {
		fmt.Fprintf(s.Err, "Error: unable to open database \"%s\": %v\n", path, err)
		return 1
	}
	if s.db != nil {
		s.db.close()
	}
	s.db, s.path = x, path
	return 0
}

// argument runs one text of the command line. It returns the status to end with, or 0 to go on.
func (s *shell) argument(text string) int {
	if strings.HasPrefix(text, ".") {
		if !s.dot(text) {
			return 1
		}
		return 0
	}
	err := s.execute(text)
	if err == nil {
		return 0
	}
	s.w.Flush()
	if s.Stopped(err) {
		return 1
	}
	var e *sqlError
	if !errors.As(err, &e) {
		return s.complain("Error: %v", err)
	}
	switch {
	case e.step:
		s.complain("Error: stepping, %s (%d)", e.text, e.code&255)
	case e.code&255 != lib.SQLITE_ERROR:
		s.complain("Error: in prepare, %s (%d)", e.text, e.code&255)
	default:
		s.complain("Error: in prepare, %s%s", e.text, context(text, e.offset))
	}
	if s.bail || e.code&255 == 0 {
		return 1
	}
	return e.code & 255
}

func (s *shell) complain(format string, args ...any) int {
	fmt.Fprintf(s.Err, format+"\n", args...)
	return 1
}

// context shows the place of an error in a statement.
func context(sql string, offset int) string {
	if offset < 0 || offset > len(sql) {
		return ""
	}
	from := max(0, offset-50)
	end := min(len(sql), from+78)
	text := strings.Map(func(r rune) rune {
		if r == '\n' || r == '\r' || r == '\t' {
			return ' '
		}
		return r
	}, sql[from:end])
	if offset-from < 25 {
		return "\n  " + text + "\n  " + strings.Repeat(" ", offset-from) + "^--- error here"
	}
	return "\n  " + text + "\n  " + strings.Repeat(" ", offset-from-14) + "error here ---^"
}

// script reads commands and statements to the end.
func (s *shell) script(in io.Reader) {
	var sql strings.Builder
	start := 0
	line := 0
	_ = s.Lines(in, '\n', func(b []byte, _ bool) error {
		line++
		text := strings.TrimSuffix(string(b), "\r")
		if sql.Len() == 0 {
			t := strings.TrimSpace(text)
			if t == "" {
				if s.echo {
					s.w.WriteString(text + "\n")
				}
				return nil
			}
			if text[0] == '#' {
				return nil
			}
			if text[0] == '.' {
				if s.echo {
					s.w.WriteString(text + "\n")
				}
				if !s.dot(text) {
					s.failed++
					if s.bail {
						s.quit, s.status = true, 1
					}
				}
				return s.ended()
			}
			start = line
		} else if t := strings.ToLower(strings.TrimSpace(text)); t == "go" || t == "/" {
			text = ";"
		}
		if sql.Len() > 0 {
			sql.WriteByte('\n')
		}
		sql.WriteString(text)
		if sql.Len() > 16<<20 {
			return errors.New("statement too long")
		}
		if strings.Contains(text, ";") && s.complete(sql.String()) {
			all := sql.String()
			sql.Reset()
			s.statement(all, start)
		}
		return s.ended()
	})
	if sql.Len() > 0 && !s.quit && strings.TrimSpace(sql.String()) != "" {
		s.statement(sql.String(), start)
	}
}

func (s *shell) ended() error {
	if s.quit {
		return tool.ErrStop
	}
	return nil
}

func (s *shell) complete(sql string) bool {
	p := cstring(s.d.tls, sql)
	defer libc.Xfree(s.d.tls, p)
	return lib.Xsqlite3_complete(s.d.tls, p) != 0
}

// statement runs a text of a script.
func (s *shell) statement(text string, line int) {
	if s.echo {
		s.w.WriteString(text + "\n")
	}
	err := s.execute(text)
	if err == nil {
		return
	}
	s.w.Flush()
	if s.Stopped(err) {
		s.quit, s.status = true, 1
		return
	}
	s.failed++
	var e *sqlError
	switch {
	case !errors.As(err, &e):
		s.complain("Error: %v", err)
	case e.step:
		s.complain("Runtime error near line %d: %s (%d)", line, e.text, e.code&255)
	case e.code&255 != lib.SQLITE_ERROR:
		s.complain("Parse error near line %d: %s (%d)", line, e.text, e.code&255)
	default:
		s.complain("Parse error near line %d: %s%s", line, e.text, context(text, e.offset))
	}
	if s.bail {
		s.quit, s.status = true, 1
	}
}

// execute runs the statements of a text and shows their results.
func (s *shell) execute(text string) error {
	base := 0
	for rest := text; ; {
		trimmed := strings.TrimLeft(rest, " \t\r\n;")
		base += len(rest) - len(trimmed)
		if rest = trimmed; rest == "" {
			return nil
		}
		r, tail, err := s.db.prepare(rest, base)
		if err != nil {
			return err
		}
		base += len(rest) - len(tail)
		rest = tail
		if r == nil {
			continue
		}
		err = s.show(r)
		r.close()
		s.afterOnce()
		if err != nil {
			return err
		}
		if s.changes {
			fmt.Fprintf(s.w, "changes: %d   total_changes: %d\n", lib.Xsqlite3_changes(s.db.tls, s.db.ptr), lib.Xsqlite3_total_changes(s.db.tls, s.db.ptr))
		}
	}
}
