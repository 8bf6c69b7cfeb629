package files

import (
	"bufio"
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/carrel-dev/carrel/shell/regex"
	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// differ is one run of diff.
type differ struct {
	*tool.Call
	w         *bufio.Writer
	same      sameness
	style     byte // n normal, u unified, c context, e ed, f forward ed, r RCS, y side by side, D ifdef
	context   int
	brief     bool
	report    bool // identical files
	recurse   bool
	newFile   bool
	newFirst  bool
	noFollow  bool
	exclude   []string
	labels    []string
	function  *regex.Regexp
	width     int
	leftOnly  bool
	noCommon  bool
	expand    bool
	initial   bool // -T
	textOnly  bool // -a
	define    string
	start     string
	options   string // as repeated before the files of a directory
	status    int
	foldNames bool
	formats   lineFormats
	color     bool
	inColor   bool
}

const diffShort = "0123456789abBcC:dD:eEfF:hHiI:lL:nNpPqrsS:tTu::U:vwW:x:X:yZ"

var diffLong = []string{"normal=\x81", "brief=q", "report-identical-files=s", "context=\x82::", "unified=\x83::", "ed=e", "rcs=n", "side-by-side=y", "width=W",
	"left-column=\x84", "suppress-common-lines=\x85", "show-c-function=p", "show-function-line=F", "label=\x86:", "expand-tabs=t", "initial-tab=T", "tabsize=\x87:",
	"suppress-blank-empty=\x88", "paginate=l", "recursive=r", "no-dereference=\x89", "new-file=N", "unidirectional-new-file=P", "ignore-file-name-case=\x8a",
	"no-ignore-file-name-case=\x8b", "exclude=x", "exclude-from=X", "starting-file=S", "from-file=\x8c:", "to-file=\x8d:", "ignore-case=i", "ignore-tab-expansion=E",
	"ignore-trailing-space=Z", "ignore-space-change=b", "ignore-all-space=w", "ignore-blank-lines=B", "ignore-matching-lines=I", "text=a", "strip-trailing-cr=\x8e",
	"ifdef=D", "minimal=d", "horizon-lines=\x8f:", "speed-large-files=H", "color=\x90::", "palette=\x91:", "forward-ed=f",
	"old-line-format=\x92:", "new-line-format=\x93:", "unchanged-line-format=\x94:", "line-format=\x95:"}

// trouble writes a message about wrong usage.
func (d *differ) trouble(format string, args ...any) int {
	d.Errorf(2, format, args...)
	return d.Errorf(2, "Try '%s --help' for more information.", d.Base())
}

// diff compares files line by line.
func diff(c *tool.Call) int {
	short := diffShort
	for i, a := range c.Args { // -u3 is the old form of -U 3; in -ub, b is another option
		if len(a) > 2 && a[0] == '-' && a[1] == 'u' && !allDigits(a[2:]) {
			c.Args[i] = a[:1] + a[2:]
			c.Args = append([]string{"-u"}, c.Args...)
			break
		}
	}
	short = strings.Replace(short, "u::", "u", 1)
	f, ok := c.Flags(short, diffLong...)
	if !ok {
		return 2
	}
	d := &differ{Call: c, w: c.Buffered(), style: 'n', context: -1, width: 130}
	d.same.robust = true
	if code := d.flags(f); code != 0 {
		return code
	}
	args := f.Args
	switch {
	case f.Has(0x8c), f.Has(0x8d):
		for _, a := range args {
			if f.Has(0x8c) {
				d.pair(f.Value(0x8c, ""), a)
			} else {
				d.pair(a, f.Value(0x8d, ""))
			}
		}
		return d.end()
	case len(args) == 0:
		return d.trouble("missing operand after '%s'", lastArg(c))
	case len(args) == 1:
		return d.trouble("missing operand after '%s'", args[0])
	case len(args) > 2:
		return d.trouble("extra operand '%s'", args[2])
	}
	d.pair(args[0], args[1])
	return d.end()
}

func allDigits(s string) bool { return strings.Trim(s, "0123456789") == "" }

func lastArg(c *tool.Call) string {
	if len(c.Args) == 0 {
		return c.Base()
	}
	return c.Args[len(c.Args)-1]
}

func (d *differ) end() int {
	status := d.status
	if code := d.Flush(d.w, 0); code != 0 {
		return 2
	}
	return status
}

// setStyle sets the format. Two different formats conflict.
func (d *differ) setStyle(s byte) bool {
	if d.style != 'n' && d.style != s {
		d.trouble("conflicting output style options")
		return false
	}
	d.style = s
	return true
}

// rawOptions returns the arguments that are not operands, unchanged.
func (d *differ) rawOptions(operands []string) (opts []string) {
	for _, a := range d.Args {
		if len(operands) > 0 && a == operands[0] {
			operands = operands[1:]
			continue
		}
		opts = append(opts, shellQuote(a, false))
	}
	return opts
}

// flags applies the options.
func (d *differ) flags(f tool.Flags) int {
	digits := ""
	opts := d.rawOptions(f.Args)
	for _, o := range f.All {
		number := func(s, what string) (int, bool) {
			n, err := strconv.Atoi(s)
			if err != nil || n < 0 {
				d.trouble("invalid %s '%s'", what, s)
				return 0, false
			}
			return n, true
		}
		good := true
		l := o.Letter
		switch {
		case digit(l):
			digits += string(l)
			continue
		case l == 'u', l == 0x83, l == 'U':
			if good = d.setStyle('u'); good && o.Has {
				var n int
				n, good = number(o.Value, "context length")
				d.context = max(d.context, n)
			}
		case l == 'c', l == 0x82, l == 'C':
			if good = d.setStyle('c'); good && o.Has {
				var n int
				n, good = number(o.Value, "context length")
				d.context = max(d.context, n)
			}
		case l >= 0x92 && l <= 0x95:
			good = d.setStyle('D')
			d.formats.set(l, o.Value)
		case l == 'e':
			good = d.setStyle('e')
		case l == 'f':
			good = d.setStyle('f')
		case l == 'n':
			good = d.setStyle('r')
		case l == 'y':
			good = d.setStyle('y')
		case l == 'D':
			good = d.setStyle('D')
			d.define = o.Value
		case l == 'W':
			d.width, good = number(o.Value, "width")
		case l == 'F' || l == 'p' || l == 'I':
			good = d.expression(o)
		case l == 'X':
			data, err := readFile(d.Call, o.Value)
			if err != nil {
				d.Errorf(2, "%s: %s", o.Value, errText(err))
				return 2
			}
			for line := range strings.Lines(string(data)) {
				d.exclude = append(d.exclude, strings.TrimRight(line, "\n "))
			}
		case l == 'x':
			d.exclude = append(d.exclude, o.Value)
		case l == 0x86 || l == 'L':
			d.labels = append(d.labels, o.Value)
		case l == 'S':
			d.start = o.Value
		}
		if !good {
			return 2
		}
	}
	if digits != "" {
		n, err := strconv.Atoi(digits)
		if err != nil {
			return d.trouble("invalid context length '%s'", digits)
		}
		d.context = max(d.context, n)
		if d.style == 'n' {
			d.style = 'c'
		}
	}
	s := &d.same
	s.fold, s.allSpace, s.spaceChange, s.trailing = f.Has('i'), f.Has('w'), f.Has('b'), f.Has('Z')
	s.tabs, s.blank, s.stripCR, s.minimal = f.Has('E'), f.Has('B'), f.Has(0x8e), f.Has('d')
	d.brief, d.report, d.recurse, d.newFile, d.newFirst = f.Has('q'), f.Has('s'), f.Has('r'), f.Has('N'), f.Has('P')
	d.noFollow, d.textOnly, d.expand, d.initial = f.Has(0x89), f.Has('a'), f.Has('t'), f.Has('T')
	d.leftOnly, d.noCommon, d.foldNames = f.Has(0x84), f.Has(0x85), f.Has(0x8a)
	if f.Has('l') {
		return d.trouble("this machine has no pr for -l")
	}
	if d.context < 0 {
		d.context = 3
	}
	switch d.style {
	case 'u', 'c':
		s.context = d.context
	case 'e', 'f':
		s.robust = false
	case 'n':
		if f.Has('p') || f.Has('F') {
			d.style, s.context = 'c', d.context
		}
	}
	if f.Has(0x8f) {
		n, _ := strconv.Atoi(f.Value(0x8f, "0")) // a hint only
		s.context = max(s.context, n)
	}
	if f.Has(0x90) {
		_, _, tty := d.Terminal(1)
		v := f.Value(0x90, "always")
		d.color = v == "always" || v == "auto" && tty
		if v != "always" && v != "auto" && v != "never" {
			return d.trouble("invalid color '%s'", v)
		}
	}
	if len(opts) > 0 {
		d.options = " " + strings.Join(opts, " ")
	}
	return 0
}

func (d *differ) expression(o tool.Flag) bool {
	pattern := o.Value
	flags := regex.Flags(0)
	if o.Letter == 'p' {
		pattern = "^[[:alpha:]$_]"
	}
	re, err := regex.Compile(pattern, flags)
	if err != nil {
		d.Errorf(2, "%s: %v", pattern, err)
		return false
	}
	if o.Letter == 'I' {
		d.same.ignore = re
	} else {
		d.function = re
	}
	return true
}

// side is one of the two files.
type side struct {
	name string
	info vfs.Info
	ok   bool // it exists
	data []byte
}

func (d *differ) look(name string) (vfs.Info, error) {
	if name == "-" {
		return vfs.Info{Name: "-", Mode: 0o600, Modified: d.Now(), Ino: 1 << 62}, nil
	}
	if d.noFollow {
		return lstat(d.Call, name)
	}
	return statOf(d.Call, name)
}

func (d *differ) fail(name string, err error) {
	_ = d.w.Flush()
	d.status = d.Errorf(2, "%s: %s", name, errText(err))
}

// pair compares the operands.
func (d *differ) pair(a, b string) {
	ia, ea := d.look(a)
	ib, eb := d.look(b)
	if ea == nil && eb == nil {
		switch {
		case ia.Mode.IsDir() && !ib.Mode.IsDir():
			if b == "-" {
				d.status = d.Errorf(2, "cannot compare '-' to a directory")
				return
			}
			a = under(a, lastName(b))
			ia, ea = d.look(a)
		case !ia.Mode.IsDir() && ib.Mode.IsDir():
			if a == "-" {
				d.status = d.Errorf(2, "cannot compare '-' to a directory")
				return
			}
			b = under(b, lastName(a))
			ib, eb = d.look(b)
		}
	}
	missing := false
	for _, s := range []struct {
		name string
		err  error
	}{{a, ea}, {b, eb}} {
		if s.err != nil && !(notExist(s.err) && (d.newFile || d.newFirst && s.name == a) && (ea == nil || eb == nil)) {
			d.fail(s.name, s.err)
			missing = true
		}
	}
	if missing {
		return
	}
	if (ea != nil || ia.Mode.IsDir()) && (eb != nil || ib.Mode.IsDir()) {
		if ea == nil && eb == nil && ia.Ino == ib.Ino {
			return
		}
		d.directories(a, b)
		return
	}
	d.files(side{name: a, info: ia, ok: ea == nil}, side{name: b, info: ib, ok: eb == nil}, false)
}

// files compares two files. within says that they were found in directories.
func (d *differ) files(a, b side, within bool) {
	if !d.Step(16) {
		d.status = 2
		return
	}
	if isLink(a.info.Mode) || isLink(b.info.Mode) {
		if isLink(a.info.Mode) != isLink(b.info.Mode) || a.info.Target != b.info.Target {
			d.status = max(d.status, 1)
			fmt.Fprintf(d.w, "Symbolic links %s and %s differ\n", a.name, b.name)
		}
		return
	}
	if a.ok && b.ok && a.info.Ino == b.info.Ino && a.name != "-" {
		d.identical(a, b)
		return
	}
	var err error
	for _, s := range []*side{&a, &b} {
		if !s.ok {
			continue
		}
		if s.data, err = readFile(d.Call, s.name); err != nil {
			if d.Stopped(err) {
				d.status = 2
				return
			}
			d.fail(s.name, err)
			return
		}
	}
	if a.name == "-" && b.name == "-" {
		b.data = a.data
	}
	size := int64(len(a.data) + len(b.data))
	defer func() { _ = d.Pay(-size) }()
	if d.same.stripCR {
		a.data, b.data = bytes.ReplaceAll(a.data, []byte("\r\n"), []byte("\n")), bytes.ReplaceAll(b.data, []byte("\r\n"), []byte("\n"))
	}
	if bytes.Equal(a.data, b.data) && !(d.style == 'y' && !d.brief) && !(d.style == 'D') {
		d.identical(a, b)
		return
	}
	header := ""
	if within && !d.brief {
		header = fmt.Sprintf("diff%s %s %s\n", d.options, shellQuote(a.name, false), shellQuote(b.name, false))
	}
	if !d.textOnly && (isBinaryHead(a.data) || isBinaryHead(b.data)) {
		if bytes.Equal(a.data, b.data) {
			d.identical(a, b)
			return
		}
		if d.brief {
			fmt.Fprintf(d.w, "Files %s and %s differ\n", a.name, b.name)
			d.status = max(d.status, 1)
			return
		}
		fmt.Fprintf(d.w, "Binary files %s and %s differ\n", a.name, b.name)
		d.status = max(d.status, 1)
		return
	}
	if d.brief && !d.same.fold && !d.same.allSpace && !d.same.spaceChange && !d.same.trailing && !d.same.tabs && !d.same.blank && d.same.ignore == nil {
		fmt.Fprintf(d.w, "Files %s and %s differ\n", a.name, b.name)
		d.status = max(d.status, 1)
		return
	}
	ta, tb := splitText(a.data), splitText(b.data)
	script, ok := compareTexts(d.Call, ta, tb, &d.same)
	if !ok {
		d.status = 2
		return
	}
	differs := false
	for _, ch := range script {
		differs = differs || !ch.ignore
	}
	switch {
	case differs:
		d.status = max(d.status, 1)
	case d.style != 'y' && d.style != 'D':
		d.identical(a, b)
		return
	}
	if d.brief {
		if differs {
			fmt.Fprintf(d.w, "Files %s and %s differ\n", a.name, b.name)
		} else {
			d.identical(a, b)
		}
		return
	}
	d.w.WriteString(header)
	d.write(a, b, ta, tb, script)
	if !differs {
		d.identical(a, b)
	}
}

func (d *differ) identical(a, b side) {
	if d.report {
		fmt.Fprintf(d.w, "Files %s and %s are identical\n", a.name, b.name)
	}
}

// isBinaryHead looks for a zero byte in the same part of the file as GNU's diff.
func isBinaryHead(b []byte) bool { return bytes.IndexByte(b[:min(len(b), 64<<10)], 0) >= 0 }

// write writes the differences in the selected format.
func (d *differ) write(a, b side, ta, tb text, script []change) {
	switch d.style {
	case 'u', 'c':
		d.contextual(a, b, ta, tb, script)
	case 'y':
		d.sideBySide(ta, tb, script)
	case 'e':
		d.ed(tb, script)
	case 'f':
		d.forwardEd(tb, script)
	case 'r':
		d.rcs(tb, script)
	case 'D':
		if d.formats.given {
			d.lines(ta, tb, script)
			break
		}
		d.ifdef(ta, tb, script)
	default:
		d.normal(ta, tb, script)
	}
}

// stampOf returns a file's time for a header.
func (d *differ) stampOf(s side) string {
	t := s.info.Modified
	if !s.ok {
		t = time.Unix(0, 0)
	}
	return fullTime(t.In(d.Now().Location()))
}
