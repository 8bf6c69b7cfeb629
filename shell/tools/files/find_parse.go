package files

import (
	"bufio"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// maxNesting is the deepest nesting of parentheses in an expression.
const maxNesting = 500

// test is one node of find's expression.
type test func(e *found) bool

// finder is one run of find.
type finder struct {
	*tool.Call
	out       *bufio.Writer
	links     follow
	min, max  int
	depth     bool // contents before their directory
	xdev      bool
	daystart  bool
	regex     string
	acts      bool // an action other than -prune was given
	status    int
	quit      bool
	now       time.Time
	args      []string
	at        int
	tests     bool // a test was seen, for the warnings
	batches   []*batch
	files     map[string]*bufio.Writer
	closers   []tool.File
	warn      bool
	roots     []string
	nesting   int
	rootsFrom string
}

// found is a file for which the expression is evaluated.
type found struct {
	visit
	f     *finder
	root  string
	prune bool
}

// base returns the file's last name, as -name sees it.
func (e *found) base() string {
	if e.depth == 0 {
		return lastName(e.path)
	}
	return e.info.Name
}

// errUsage is an error in find's expression.
type errUsage string

func (e errUsage) Error() string { return string(e) }

// find looks for files.
func find(c *tool.Call) int {
	f := &finder{Call: c, out: c.Buffered(), max: 1 << 30, regex: "findutils-default", now: c.Now(), files: map[string]*bufio.Writer{}, warn: true}
	args := c.Args
	for len(args) > 0 {
		switch a := args[0]; {
		case a == "-P":
			f.links = followNone
		case a == "-H":
			f.links = followOperands
		case a == "-L":
			f.links = followAll
		case a == "--":
			args = args[1:]
			goto paths
		case a == "-D" && len(args) > 1:
			args = args[1:]
		case len(a) == 3 && strings.HasPrefix(a, "-O") && digit(a[2]):
		default:
			goto paths
		}
		args = args[1:]
	}
paths:
	for len(args) > 0 && !(len(args[0]) > 1 && args[0][0] == '-') && args[0] != "(" && args[0] != "!" && args[0] != ")" && args[0] != "," {
		f.roots = append(f.roots, args[0])
		args = args[1:]
	}
	for _, a := range args {
		switch a {
		case "--help", "-help":
			_, _ = c.Out.Write([]byte("Usage: find [-H] [-L] [-P] [-Olevel] [-D debugopts] [path...] [expression]\n"))
			return 0
		case "--version", "-version":
			_, _ = c.Out.Write([]byte("find (Carrel) 1.0, after the GNU program of that name\n"))
			return 0
		case "-follow":
			f.links = followAll
		case "-daystart", "-depth", "-d":
		}
	}
	f.args = args
	expr, err := f.parse()
	if err != nil {
		f.closeAll()
		if err.Error() != "" {
			c.Errorf(1, "%v", err)
		}
		return 1
	}
	if len(f.roots) == 0 && f.rootsFrom == "" {
		f.roots = []string{"."}
	}
	f.search(expr)
	return f.finish()
}

// parse reads the whole expression. It adds -print if there is no action.
func (f *finder) parse() (test, error) {
	if len(f.args) == 0 {
		return f.print('\n', f.out), nil
	}
	expr, err := f.list()
	if err != nil {
		return nil, err
	}
	if f.at < len(f.args) {
		if f.args[f.at] == ")" {
			return nil, errUsage("invalid expression; you have too many ')'")
		}
		return nil, errUsage(fmt.Sprintf("paths must precede expression: `%s'", f.args[f.at]))
	}
	if !f.acts {
		print := f.print('\n', f.out)
		return func(e *found) bool { return expr(e) && print(e) }, nil
	}
	return expr, nil
}

func (f *finder) peek() string {
	if f.at < len(f.args) {
		return f.args[f.at]
	}
	return ""
}

// list reads expressions separated by commas.
func (f *finder) list() (test, error) {
	var all []test
	for {
		t, err := f.or()
		if err != nil {
			return nil, err
		}
		all = append(all, t)
		if f.peek() != "," || f.at >= len(f.args) {
			break
		}
		f.at++
	}
	if len(all) == 1 {
		return all[0], nil
	}
	return func(e *found) (ok bool) {
		for _, t := range all {
			ok = t(e)
			if e.f.quit {
				return
			}
		}
		return
	}, nil
}

// or reads alternatives.
func (f *finder) or() (test, error) {
	var all []test
	for {
		t, err := f.and()
		if err != nil {
			return nil, err
		}
		all = append(all, t)
		if p := f.peek(); p != "-o" && p != "-or" {
			break
		}
		f.at++
	}
	if len(all) == 1 {
		return all[0], nil
	}
	return func(e *found) bool { return slices.ContainsFunc(all, func(t test) bool { return t(e) || e.f.quit }) }, nil
}

// and reads what must all hold.
func (f *finder) and() (test, error) {
	var all []test
	for f.at < len(f.args) {
		a := f.args[f.at]
		switch a {
		case "-a", "-and":
			if len(all) == 0 {
				return nil, errUsage("invalid expression; you have used a binary operator '" + a + "' with nothing before it.")
			}
			f.at++
			if f.at == len(f.args) {
				return nil, errUsage("expected an expression after '" + a + "'")
			}
			continue
		case "-o", "-or", ",", ")":
			goto end
		}
		t, err := f.unary()
		if err != nil {
			return nil, err
		}
		all = append(all, t)
	}
end:
	switch {
	case len(all) == 0 && f.at < len(f.args) && f.args[f.at] == ")" && f.nesting > 0:
		return nil, errUsage("invalid expression; empty parentheses are not allowed.")
	case len(all) == 0 && f.at < len(f.args) && f.args[f.at] == ")":
		return nil, errUsage("invalid expression; you have too many ')'")
	case len(all) == 0 && f.at < len(f.args):
		return nil, errUsage("invalid expression; you have used a binary operator '" + f.args[f.at] + "' with nothing before it.")
	case len(all) == 0:
		return nil, errUsage("expected an expression after '" + f.args[len(f.args)-1] + "'")
	case len(all) == 1:
		return all[0], nil
	}
	return func(e *found) bool {
		for _, t := range all {
			if !t(e) || e.f.quit {
				return false
			}
		}
		return true
	}, nil
}

// unary reads !, parentheses and primaries.
func (f *finder) unary() (test, error) {
	not := false
	for f.peek() == "!" || f.peek() == "-not" {
		not = !not
		op := f.peek()
		f.at++
		if f.at == len(f.args) {
			return nil, errUsage("expected an expression after '" + op + "'")
		}
	}
	var t test
	var err error
	if f.peek() == "(" {
		if f.nesting++; f.nesting > maxNesting {
			return nil, errUsage("invalid expression; it is nested too deeply")
		}
		f.at++
		if f.at == len(f.args) {
			return nil, errUsage("invalid expression; I was expecting to find a ')' somewhere but did not see one.")
		}
		if t, err = f.list(); err != nil {
			return nil, err
		}
		f.nesting--
		if f.peek() != ")" {
			return nil, errUsage("invalid expression; I was expecting to find a ')' somewhere but did not see one.")
		}
		f.at++
	} else {
		a := f.args[f.at]
		if !strings.HasPrefix(a, "-") || a == "-" {
			if not && (a == "-o" || a == ")") {
				return nil, errUsage("invalid expression; you have used a binary operator with nothing before it.")
			}
			return nil, f.misplaced(a)
		}
		f.at++
		if t, err = f.primary(a); err != nil {
			return nil, err
		}
	}
	if not {
		return func(e *found) bool { return !t(e) }, nil
	}
	return t, nil
}

func (f *finder) misplaced(a string) error {
	msg := fmt.Sprintf("paths must precede expression: `%s'", a)
	if f.at > 0 {
		for i := f.at - 1; i >= 0; i-- {
			if strings.HasPrefix(f.args[i], "-") {
				if i == f.at-2 {
					msg += fmt.Sprintf("\nfind: possible unquoted pattern after predicate `%s'?", f.args[i])
				}
				break
			}
		}
	}
	return errUsage(msg)
}

// arg returns the next argument of a primary.
func (f *finder) arg(name string) (string, error) {
	if f.at >= len(f.args) {
		return "", errUsage(fmt.Sprintf("missing argument to `%s'", name))
	}
	f.at++
	return f.args[f.at-1], nil
}

// global warns about an option that comes after a test although it applies to the whole expression.
func (f *finder) global(name string) {
	if f.tests && f.warn {
		fmt.Fprintf(f.Err, "find: warning: %s stands after %s; it counts for the tests before it as well, %s belongs in front\n", name, f.firstTest(), name)
	}
}

func (f *finder) firstTest() string {
	for _, a := range f.args {
		if strings.HasPrefix(a, "-") && !slices.Contains([]string{"-maxdepth", "-mindepth", "-depth", "-d", "-xdev", "-mount", "-noleaf", "-ignore_readdir_race"}, a) {
			return a
		}
	}
	return ""
}

// openOut opens the file of -fprint and the like. It opens each file once.
func (f *finder) openOut(name string) (*bufio.Writer, error) {
	if w, ok := f.files[name]; ok {
		return w, nil
	}
	switch name {
	case "/dev/stdout":
		return f.out, nil
	case "/dev/stderr":
		f.files[name] = bufio.NewWriter(f.Err)
		return f.files[name], nil
	}
	file, err := f.Open(name, vfs.WriteOnly|vfs.CreateNew|vfs.Truncate, 0o666)
	if err != nil {
		return nil, errUsage(fmt.Sprintf("%s: %s", curly(name), errText(err)))
	}
	f.closers = append(f.closers, file)
	f.files[name] = bufio.NewWriterSize(file, 32<<10)
	return f.files[name], nil
}

func (f *finder) closeAll() {
	for _, w := range f.files {
		if err := w.Flush(); err != nil && !f.Stopped(err) {
			f.status = f.Errorf(1, "%s", errText(err))
		}
	}
	for _, file := range f.closers {
		_ = file.Close() // flushed above
	}
}

// finish runs the remaining commands of -exec +.
func (f *finder) finish() int {
	for _, b := range f.batches {
		b.run(f)
	}
	f.closeAll()
	return flush(f.Call, f.out, f.status)
}

// compareTo is a number with + (more than), - (less than) or neither.
type compareTo struct {
	op byte
	n  int64
}

func (c compareTo) holds(n int64) bool {
	switch c.op {
	case '+':
		return n > c.n
	case '-':
		return n < c.n
	}
	return n == c.n
}

func parseCompare(s string) (c compareTo, ok bool) {
	if s != "" && (s[0] == '+' || s[0] == '-') {
		c.op, s = s[0], s[1:]
	}
	n, err := strconv.ParseInt(s, 10, 64)
	c.n = n
	return c, err == nil && s[0] != '+' && s[0] != '-'
}

// compareArg reads such a number.
func (f *finder) compareArg(name string) (compareTo, error) {
	a, err := f.arg(name)
	if err != nil {
		return compareTo{}, err
	}
	c, ok := parseCompare(a)
	if !ok {
		return c, errUsage(fmt.Sprintf("non-numeric argument to %s: %s", name, curly(a)))
	}
	return c, nil
}
