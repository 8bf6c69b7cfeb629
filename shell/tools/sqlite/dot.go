package sqlite

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"modernc.org/libc"
	lib "modernc.org/sqlite/lib"

	"github.com/carrel-dev/carrel/shell/tool"
)

// words splits a dot command. Escapes work in double quotes but not in single quotes.
func words(line string) (out []string) {
	for i := 0; i < len(line); {
		if c := line[i]; c == ' ' || c == '\t' || c == '\n' || c == '\r' {
			i++
			continue
		}
		var b strings.Builder
		q := line[i]
		if q == '"' || q == '\'' {
			i++
			for i < len(line) && line[i] != q {
				if q == '"' && line[i] == '\\' && i+1 < len(line) {
					i++
					b.WriteString(unescape(line[i]))
				} else {
					b.WriteByte(line[i])
				}
				i++
			}
			i++
		} else {
			for i < len(line) && !strings.ContainsRune(" \t\r\n", rune(line[i])) {
				if line[i] == '\\' && i+1 < len(line) {
					i++
					b.WriteString(unescape(line[i]))
				} else {
					b.WriteByte(line[i])
				}
				i++
			}
		}
		out = append(out, b.String())
	}
	return out
}

func unescape(c byte) string {
	switch c {
	case 'n':
		return "\n"
	case 't':
		return "\t"
	case 'r':
		return "\r"
	case 'a':
		return "\a"
	case 'b':
		return "\b"
	case 'f':
		return "\f"
	case 'v':
		return "\v"
	}
	return string(rune(c))
}

// dots are the commands.
var dots = map[string]func(s *shell, a []string) error{}

func init() {
	for name, f := range map[string]func(s *shell, a []string) error{
		"tables": (*shell).tables, "schema": (*shell).schema, "mode": (*shell).setModeCommand, "import": (*shell).importFile,
		"dump": (*shell).dump, "output": (*shell).output, "once": (*shell).outputOnce, "indexes": (*shell).indexes, "indices": (*shell).indexes,
		"databases": (*shell).databases, "show": (*shell).showSettings, "backup": (*shell).backup, "save": (*shell).backup, "restore": (*shell).restore,
		"headers": onOff(func(s *shell, on bool) { s.headers, s.headersSet = on, true }), "echo": onOff(func(s *shell, on bool) { s.echo = on }),
		"bail": onOff(func(s *shell, on bool) { s.bail = on }), "changes": onOff(func(s *shell, on bool) { s.changes = on }),
		"timer": onOff(func(s *shell, on bool) { s.timer = on }), "eqp": onOff(func(*shell, bool) {}), "stats": onOff(func(*shell, bool) {}),
		"explain": onOff(func(*shell, bool) {}), "fullschema": (*shell).schema,
	} {
		dots[name] = f
	}
	dots["separator"] = func(s *shell, a []string) error {
		if len(a) < 1 || len(a) > 2 {
			return errUsage(".separator COL ?ROW?")
		}
		if s.col = a[0]; len(a) > 1 {
			s.row = a[1]
		}
		return nil
	}
	dots["nullvalue"] = func(s *shell, a []string) error {
		if len(a) != 1 {
			return errUsage(".nullvalue STRING")
		}
		s.null = a[0]
		return nil
	}
	dots["width"] = func(s *shell, a []string) error {
		s.widths = nil
		for _, w := range a {
			n, _ := strconv.Atoi(w)
			s.widths = append(s.widths, min(max(n, -10000), 10000))
		}
		return nil
	}
	dots["print"] = func(s *shell, a []string) error {
		_, err := s.w.WriteString(strings.Join(a, " ") + "\n")
		return err
	}
	dots["read"] = func(s *shell, a []string) error {
		if len(a) != 1 {
			return errUsage(".read FILE")
		}
		return s.read(a[0])
	}
	dots["open"] = func(s *shell, a []string) error {
		path := ""
		for _, x := range a {
			switch {
			case x == "--readonly" || x == "-readonly":
				s.ro = true
			case x == "--new" || x == "-new":
			default:
				path = x
			}
		}
		if slices.Contains(a, "--new") || slices.Contains(a, "-new") {
			_ = s.FS().Remove(s.Abs(path)) // it need not exist
		}
		if s.reopen(path) != 0 {
			return errSaid
		}
		return nil
	}
	exit := func(s *shell, a []string) error {
		s.quit = true
		if len(a) > 0 {
			n, _ := strconv.Atoi(a[0])
			s.status = n & 255
		}
		return nil
	}
	dots["exit"] = exit
	dots["quit"] = func(s *shell, _ []string) error { return exit(s, nil) }
	dots["help"] = func(s *shell, _ []string) error {
		names := []string{}
		for n := range dots {
			names = append(names, "."+n)
		}
		slices.Sort(names)
		_, err := s.w.WriteString(strings.Join(names, "\n") + "\n")
		return err
	}
	dots["version"] = func(s *shell, _ []string) error {
		_, err := fmt.Fprintf(s.w, "SQLite %s %s\n", libc.GoString(lib.Xsqlite3_libversion(nil)), libc.GoString(lib.Xsqlite3_sourceid(nil)))
		return err
	}
	dots["timeout"] = func(s *shell, a []string) error {
		n := 0
		if len(a) > 0 {
			n, _ = strconv.Atoi(a[0])
		}
		lib.Xsqlite3_busy_timeout(s.db.tls, s.db.ptr, int32(min(max(n, 0), 600_000)))
		return nil
	}
	run := func(s *shell, a []string) error {
		if err := s.w.Flush(); err != nil {
			return err
		}
		words := make([]string, len(a))
		for i, x := range a { // the real sqlite3 joins the words in the same way
			if words[i] = x; strings.Contains(x, " ") {
				words[i] = `"` + x + `"`
			}
		}
		s.Run(tool.Child{Args: []string{"sh", "-c", strings.Join(words, " ")}})
		return nil
	}
	dots["shell"], dots["system"] = run, run
	for _, n := range []string{"prompt", "log", "progress", "limit", "dbconfig", "auth"} {
		dots[n] = func(*shell, []string) error { return nil }
	}
	for _, n := range []string{"load", "excel", "www", "archive", "recover", "session", "lint", "expert", "clone", "iotrace", "testcase", "vfsname", "trace"} {
		dots[n] = func(*shell, []string) error { return fmt.Errorf("Error: .%s is not available here", n) }
	}
}

// errSaid is an error that has already been shown.
var errSaid = errors.New("")

func errUsage(s string) error { return errors.New("Usage: " + s) }

// onOff makes a command that sets a switch.
func onOff(set func(s *shell, on bool)) func(s *shell, a []string) error {
	return func(s *shell, a []string) error {
		if len(a) != 1 {
			return errUsage("on|off")
		}
		switch strings.ToLower(a[0]) {
		case "on", "yes", "full", "auto", "1":
			set(s, true)
		case "off", "no", "0":
			set(s, false)
		default:
			n, err := strconv.Atoi(a[0])
			if err != nil {
				fmt.Fprintf(s.Err, "ERROR: Not a boolean value: \"%s\". Assuming \"no\".\n", a[0])
			}
			set(s, n != 0)
		}
		return nil
	}
}

// dot runs a dot command. It returns false when the command failed.
func (s *shell) dot(line string) bool {
	a := words(line[1:])
	if len(a) == 0 {
		return true
	}
	name := strings.ToLower(a[0])
	f := dots[name]
	if f == nil {
		var match []string
		for n := range dots {
			if strings.HasPrefix(n, name) {
				match = append(match, n)
			}
		}
		slices.Sort(match)
		if len(match) > 0 && len(name) > 1 || name == "s" || name == "q" || name == "h" {
			f = dots[match[0]]
			for _, m := range match { // the usual ones first
				switch m {
				case "schema", "separator", "mode", "headers", "tables", "quit", "output", "indexes", "dump", "read", "databases", "print":
					f = dots[m]
				}
			}
		}
	}
	if f == nil {
		s.w.Flush()
		s.complain("Error: unknown command or invalid arguments:  \"%s\". Enter \".help\" for help", a[0])
		return false
	}
	err := f(s, a[1:])
	if err == nil {
		return true
	}
	s.w.Flush()
	if !s.Stopped(err) && err != errSaid {
		var e *sqlError
		if errors.As(err, &e) {
			s.complain("Error: %s", e.text)
		} else {
			s.complain("%s", err)
		}
	}
	return false
}

// .read within .read

func (s *shell) setModeCommand(a []string) error {
	var args []string
	for _, x := range a {
		if !strings.HasPrefix(x, "-") {
			args = append(args, x)
		}
	}
	if len(args) == 0 {
		fmt.Fprintf(s.w, "current output mode: %s\n", s.mode)
		return nil
	}
	all := []string{"ascii", "box", "column", "csv", "html", "insert", "json", "line", "list", "markdown", "quote", "table", "tabs", "tcl"}
	for _, m := range all {
		alias := args[0] == "columns" && m == "column" || args[0] == "lines" && m == "line"
		if !alias && !strings.HasPrefix(m, args[0]) || m == "list" && args[0] == "li" {
			continue
		}
		switch {
		case m == "tcl":
			return errors.New("Error: mode tcl is not available here")
		case m == "insert":
			if s.table = `"table"`; len(args) > 1 {
				s.table = identifier(args[1])
			}
		case m == "column" && !s.headersSet:
			s.headers = true
		}
		s.setMode(m)
		return nil
	}
	return errors.New("Error: mode should be one of: ascii box column csv html insert json line list markdown quote table tabs tcl")
}

func (s *shell) showSettings([]string) error {
	on := map[bool]string{true: "on", false: "off"}
	width := ""
	for _, w := range s.widths {
		width += strconv.Itoa(w) + " "
	}
	_, err := fmt.Fprintf(s.w, "        echo: %s\n         eqp: off\n     explain: auto\n     headers: %s\n        mode: %s\n   nullvalue: %s\n      output: stdout\ncolseparator: %s\nrowseparator: %s\n       stats: off\n       width: %s\n    filename: %s\n",
		on[s.echo], on[s.headers], s.mode, strconv.Quote(s.null), strconv.Quote(s.col), strconv.Quote(s.row), width, s.filename())
	return err
}

func (s *shell) filename() string {
	if s.path == "" {
		return ":memory:"
	}
	return s.path
}
