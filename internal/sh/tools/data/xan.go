package data

import (
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/carrel-dev/carrel/internal/sh/tool"
	"github.com/carrel-dev/carrel/internal/sh/vfs"
)

const xanHelp = `xan - CSV toolkit for data manipulation

Usage: xan <COMMAND> [OPTIONS] [FILE]

  headers count head tail slice reverse behead sample shuffle
  select drop rename enum
  filter search sort dedup top
  map transform explode implode transpose fixlengths fill
  agg groupby frequency stats
  cat join
  to json|jsonl|md|tsv|txt   from -f json|jsonl|tsv|txt
  view flatten fmt split partition

Options of all: -d CHAR delimiter, -n no headers, -o FILE output
Expressions: names of columns, numbers, "texts", + - * / % ** ++ == != < > <= >= eq ne lt gt in && || !, and
functions (len lower upper trim contains startswith endswith replace split join if coalesce concat round abs min max …);
agg and groupby: count sum mean min max median stddev first last mode cardinality values distinct_values
`

// xan is one run.
type xan struct {
	*tool.Call
	f        tool.Flags
	comma    byte
	noHead   bool
	out      []byte
	w        io.Writer
	outComma byte
	head     []string
}

// xanCommand is a subcommand: its options and what it does.
type xanCommand struct {
	short string
	long  []string
	args  int // before the file
	run   func(x *xan, args []string) error
}

var xanCommands map[string]xanCommand

func init() {
	xanCommands = map[string]xanCommand{
		"headers": {"jsh", []string{"just-names=j"}, 0, xanHeaders}, "h": {"jsh", []string{"just-names=j"}, 0, xanHeaders},
		"count": {"", nil, 0, xanCount}, "head": {"l:", []string{"limit=l"}, 0, xanSlice}, "tail": {"l:", []string{"limit=l"}, 0, xanTail},
		"slice":   {"s:e:l:i:L:", []string{"start=s", "end=e", "len=l", "limit=l", "index=i"}, 0, xanSlice},
		"reverse": {"", nil, 0, xanTail}, "behead": {"", nil, 0, xanSlice}, "select": {"e", nil, 1, xanSelect}, "drop": {"", nil, 1, xanSelect},
		"rename": {"s:p:x:", []string{"select=s", "prefix=p", "suffix=x"}, 1, xanRename}, "enum": {"c:S:", []string{"column-name=c", "start=S"}, 0, xanEnum},
		"filter": {"vl:", []string{"invert-match=v", "limit=l"}, 1, xanFilter}, "search": {"s:vireNl:", []string{"select=s", "invert-match=v", "ignore-case=i", "regex=r", "exact=e", "limit=l"}, 1, xanSearch},
		"sort": {"s:NRru", []string{"select=s", "numeric=N", "reverse=R", "unique=u"}, 0, xanSort}, "dedup": {"s:k", []string{"select=s", "keep-last=k"}, 0, xanDedup},
		"top": {"l:R", []string{"limit=l", "reverse=R"}, 1, xanSort}, "map": {"O", []string{"overwrite=O"}, 1, xanMap}, "transform": {"r:", []string{"rename=r"}, 2, xanTransform},
		"explode": {"s:r:", []string{"sep=s", "rename=r"}, 1, xanExplode}, "implode": {"s:r:", []string{"sep=s", "rename=r"}, 1, xanImplode}, "transpose": {"", nil, 0, xanTranspose},
		"fixlengths": {"l:", []string{"length=l"}, 0, xanFix}, "fill": {"s:v:", []string{"select=s", "value=v"}, 0, xanFill},
		"agg": {"", nil, 1, xanAgg}, "groupby": {"S", []string{"sorted=S"}, 2, xanAgg},
		"frequency": {"s:l:gAN", []string{"select=s", "limit=l", "groupby=g", "all=A", "no-extra=N"}, 0, xanFrequency}, "freq": {"s:l:gAN", []string{"select=s", "limit=l", "all=A", "no-extra=N"}, 0, xanFrequency},
		"stats": {"s:AqcE", []string{"select=s", "all=A", "quartiles=q", "cardinality=c", "everything=E"}, 0, xanStats}, "cat": {"p", []string{"pad=p"}, 0, xanCat},
		"join": {"LRixD", []string{"left=L", "right=R", "ignore-case=i", "full=\x80", "inner=\x81", "semi=\x82", "anti=\x83", "cross=x"}, 4, xanJoin},
		"to":   {"", nil, 1, xanTo}, "from": {"f:", []string{"format=f"}, 0, xanFrom}, "view": {"l:pAMRS:", []string{"limit=l", "all=A", "pager=p"}, 0, xanView}, "v": {"l:pA", []string{"limit=l"}, 0, xanView},
		"flatten": {"l:cs:w", []string{"limit=l", "condense=c", "select=s", "wrap=w"}, 0, xanFlatten}, "f": {"l:c", []string{"limit=l"}, 0, xanFlatten}, "fmt": {"t:Q", []string{"out-delimiter=t", "quote-always=Q", "tabs=\x80"}, 0, xanFmt},
		"shuffle": {"", []string{"seed=\x80:"}, 0, xanShuffle}, "sample": {"", []string{"seed=\x80:"}, 1, xanShuffle},
		"split": {"S:c:f:O:", []string{"size=S", "chunks=c", "filename=f", "out-dir=O"}, 0, xanSplit}, "partition": {"f:O:", []string{"filename=f", "out-dir=O"}, 1, xanSplit},
	}
}

// runXan is xan.
func runXan(c *tool.Call) int {
	if len(c.Args) == 0 || c.Args[0] == "--help" || c.Args[0] == "-h" || c.Args[0] == "help" {
		fmt.Fprint(c.Out, xanHelp)
		return 0
	}
	if c.Args[0] == "--version" {
		fmt.Fprintln(c.Out, "xan 0.51.0 (carrel)")
		return 0
	}
	name := c.Args[0]
	cmd, ok := xanCommands[name]
	if !ok {
		fmt.Fprintf(c.Err, "xan: unknown command '%s'\nRun 'xan --help' for usage.\n", name)
		return 1
	}
	call := *c
	call.Name, call.Args = "xan "+name, c.Args[1:]
	f, ok := call.Flags("d:no:hl:"+strings.ReplaceAll(cmd.short, "l:", ""), append([]string{"delimiter=d", "no-headers=n", "output=o", "help=h", "limit=l"}, cmd.long...)...)
	if !ok {
		return 1
	}
	if f.Has('h') {
		fmt.Fprint(c.Out, xanHelp)
		return 0
	}
	x := &xan{Call: &call, f: f, comma: ',', noHead: f.Has('n'), w: c.Out, outComma: ','}
	if d := f.Value('d', ""); d != "" {
		if x.comma = d[0]; d == `\t` || d == "tab" {
			x.comma = '\t'
		}
	}
	if len(f.Args) < cmd.args && name != "join" {
		fmt.Fprintf(c.Err, "xan %s: missing argument\n", name)
		return 1
	}
	if o := f.Value('o', ""); o != "" && o != "-" {
		file, err := c.Open(o, vfs.WriteOnly|vfs.CreateNew|vfs.Truncate, 0o666)
		if err != nil {
			return call.Errorf(1, "%s: %s", o, tool.ErrText(err))
		}
		defer func() { _ = file.Close() }() // it is flushed below
		x.w = file
	}
	err := cmd.run(x, f.Args)
	if err == nil || !x.Stopped(err) {
		if ferr := x.flush(); err == nil {
			err = ferr
		}
	}
	if err == nil || errors.Is(err, errEnd) {
		return 0
	}
	if !x.Stopped(err) {
		fmt.Fprintf(c.Err, "xan %s: %s\n", name, tool.ErrText(err))
	}
	return 1
}

var errEnd = errors.New("end")

func (x *xan) cmd() string { return strings.TrimPrefix(x.Name, "xan ") }

func (x *xan) flush() error {
	if len(x.out) == 0 {
		return nil
	}
	_, err := x.w.Write(x.out)
	x.out = x.out[:0]
	return err
}

// put writes a record.
func (x *xan) put(row []string) error {
	if x.out = appendRow(x.out, row, x.outComma); len(x.out) > 64<<10 {
		return x.flush()
	}
	return nil
}

func (x *xan) text(format string, args ...any) error {
	if x.out = fmt.Appendf(x.out, format, args...); len(x.out) > 64<<10 {
		return x.flush()
	}
	return nil
}

// each calls fn with the records of a file; x.head is its header, named 0, 1, … without one.
func (x *xan) each(args []string, begin func() error, fn func(row []string) error) error {
	name := "-"
	if len(args) > 0 {
		name = args[0]
	}
	in, err := x.OpenIn(name)
	if err != nil {
		return fmt.Errorf("%s: %s", name, tool.ErrText(err))
	}
	defer func() { _ = in.Close() }() // it was read
	comma := x.comma
	if !x.f.Has('d') {
		switch path.Ext(name) {
		case ".tsv", ".tab":
			comma = '\t'
		case ".ssv":
			comma = ';'
		}
	}
	r := newCSV(x.Call, in, comma)
	first, err := r.read()
	if err == io.EOF {
		x.head = nil
		if begin != nil {
			return begin()
		}
		return nil
	}
	if err != nil {
		return err
	}
	x.head = first
	if x.noHead {
		x.head = make([]string, len(first))
		for i := range first {
			x.head[i] = strconv.Itoa(i)
		}
	}
	if begin != nil {
		if err := begin(); err != nil {
			return err
		}
	}
	if x.noHead {
		if err := fn(first); err != nil {
			return err
		}
	}
	for {
		row, err := r.read()
		if err == io.EOF {
			return nil
		}
		if err == nil {
			err = fn(row)
		}
		if err != nil {
			return err
		}
		if !x.Step(2 + len(row)) {
			return tool.ErrStop
		}
	}
}

// header writes the header, unless there is none.
func (x *xan) header(h []string) error {
	if x.noHead || len(h) == 0 {
		return nil
	}
	return x.put(h)
}

// all reads a file as a whole.
func (x *xan) all(args []string) ([][]string, error) {
	var rows [][]string
	err := x.each(args, nil, func(row []string) error {
		rows = append(rows, row)
		n := int64(24 * len(row))
		for _, s := range row {
			n += int64(len(s))
		}
		return x.Pay(n)
	})
	return rows, err
}

// col finds a column by name, or by number; -1 when there is none.
func (x *xan) col(name string) int {
	if i := slices.Index(x.head, name); i >= 0 {
		return i
	}
	if n, err := strconv.Atoi(name); err == nil {
		if n < 0 {
			n += len(x.head)
		}
		if n >= 0 && n < len(x.head) {
			return n
		}
	}
	return -1
}

// columns reads a selection: names, numbers, a:b, globs, and ! before all of it.
func (x *xan) columns(sel string) ([]int, error) {
	not := false
	if rest, ok := strings.CutPrefix(sel, "!"); ok {
		not, sel = true, rest
	}
	var out []int
	for _, s := range splitSelection(sel) {
		from, to, ranged := strings.Cut(s, ":")
		switch {
		case s == "*":
			for i := range x.head {
				out = append(out, i)
			}
		case x.col(s) >= 0:
			out = append(out, x.col(s))
		case ranged:
			a, b := 0, len(x.head)-1
			if from != "" {
				a = x.col(from)
			}
			if to != "" {
				b = x.col(to)
			}
			if a < 0 || b < 0 {
				return nil, fmt.Errorf("unknown column in '%s'", s)
			}
			for a != b {
				out = append(out, a)
				if a < b {
					a++
				} else {
					a--
				}
			}
			out = append(out, b)
		case strings.ContainsAny(s, "*?["):
			for i, h := range x.head {
				if ok, _ := path.Match(s, h); ok {
					out = append(out, i)
				}
			}
		default:
			return nil, fmt.Errorf("unknown column '%s'", s)
		}
	}
	if not {
		var rest []int
		for i := range x.head {
			if !slices.Contains(out, i) {
				rest = append(rest, i)
			}
		}
		return rest, nil
	}
	return out, nil
}

// splitSelection cuts at commas outside quotes.
func splitSelection(s string) []string {
	var out []string
	var b strings.Builder
	quoted := false
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"':
			quoted = !quoted
		case c == ',' && !quoted:
			out = append(out, b.String())
			b.Reset()
		default:
			b.WriteByte(c)
		}
	}
	return append(out, b.String())
}

func pickFields(row []string, cols []int) []string {
	out := make([]string, len(cols))
	for i, c := range cols {
		if c < len(row) {
			out[i] = row[c]
		}
	}
	return out
}

func (x *xan) number(letter byte, other int) (int, error) {
	v := x.f.Value(letter, "")
	if v == "" {
		return other, nil
	}
	n, err := strconv.Atoi(v)
	if err != nil {
		return 0, fmt.Errorf("invalid number '%s'", v)
	}
	return n, nil
}

func xanHeaders(x *xan, args []string) error {
	if len(args) == 0 {
		args = []string{"-"}
	}
	for _, a := range args {
		if err := x.each([]string{a}, nil, func([]string) error { return errEnd }); err != nil && err != errEnd {
			return err
		}
		if len(args) > 1 {
			x.text("%s\n", a)
		}
		for i, h := range x.head {
			if x.f.Has('j') {
				x.text("%s\n", h)
			} else {
				x.text("%-4d%s\n", i, h)
			}
		}
	}
	return nil
}

func xanCount(x *xan, args []string) error {
	n := 0
	err := x.each(args, nil, func([]string) error { n++; return nil })
	x.text("%d\n", n)
	return err
}

func xanSlice(x *xan, args []string) error {
	start, err := x.number('s', 0)
	if err != nil {
		return err
	}
	length, err := x.number('l', -1)
	if err != nil {
		return err
	}
	end, err := x.number('e', -1)
	if err != nil {
		return err
	}
	if x.f.Has('i') {
		if start, err = x.number('i', 0); err != nil {
			return err
		}
		length = 1
	}
	if x.cmd() == "head" && length < 0 {
		length = 10
	}
	if length >= 0 && x.cmd() != "behead" {
		end = start + length
	}
	n := 0
	begin := func() error {
		if x.cmd() == "behead" {
			return nil
		}
		return x.header(x.head)
	}
	return x.each(args, begin, func(row []string) error {
		if end >= 0 && n >= end {
			return errEnd
		}
		if n++; n > start {
			return x.put(row)
		}
		return nil
	})
}

func xanTail(x *xan, args []string) error {
	rows, err := x.all(args)
	if err != nil {
		return err
	}
	if x.cmd() == "reverse" {
		slices.Reverse(rows)
	} else {
		n, err := x.number('l', 10)
		if err != nil {
			return err
		}
		rows = rows[max(len(rows)-max(n, 0), 0):]
	}
	return x.rows(x.head, rows)
}

// rows writes a header and records.
func (x *xan) rows(head []string, rows [][]string) error {
	if err := x.header(head); err != nil {
		return err
	}
	for _, r := range rows {
		if !x.Step(2 + len(r)) {
			return tool.ErrStop
		}
		if err := x.put(r); err != nil {
			return err
		}
	}
	return nil
}

func xanSelect(x *xan, args []string) error {
	var cols []int
	if x.f.Has('e') {
		return xanMapped(x, args)
	}
	return x.each(args[1:], func() (err error) {
		sel := args[0]
		if x.cmd() == "drop" {
			sel = "!" + sel
		}
		if cols, err = x.columns(sel); err != nil {
			return err
		}
		return x.header(pickFields(x.head, cols))
	}, func(row []string) error { return x.put(pickFields(row, cols)) })
}

func xanRename(x *xan, args []string) error {
	return x.each(args[1:], func() error {
		head := slices.Clone(x.head)
		names := splitSelection(args[0])
		cols := make([]int, len(head))
		for i := range cols {
			cols[i] = i
		}
		if s := x.f.Value('s', ""); s != "" {
			var err error
			if cols, err = x.columns(s); err != nil {
				return err
			}
		}
		if len(names) != len(cols) {
			return fmt.Errorf("%d new names for %d columns", len(names), len(cols))
		}
		for i, c := range cols {
			head[c] = names[i]
		}
		return x.header(head)
	}, x.put)
}

func xanEnum(x *xan, args []string) error {
	n, err := x.number('S', 0)
	if err != nil {
		return err
	}
	return x.each(args, func() error { return x.header(append([]string{x.f.Value('c', "index")}, x.head...)) }, func(row []string) error {
		n++
		return x.put(append([]string{strconv.Itoa(n - 1)}, row...))
	})
}

// parser compiles expressions on the columns.
func (x *xan) parser(src string, index *int) *exprParser {
	return &exprParser{src: src, cols: x.col, index: index}
}

func xanFilter(x *xan, args []string) error {
	var f expr
	index := 0
	limit, err := x.number('l', -1)
	if err != nil {
		return err
	}
	n := 0
	return x.each(args[1:], func() (err error) {
		if f, err = x.parser(args[0], &index).whole(); err != nil {
			return err
		}
		return x.header(x.head)
	}, func(row []string) error {
		v, err := f(row)
		index++
		if err != nil || truthy(v) == x.f.Has('v') {
			return err
		}
		if n++; limit >= 0 && n > limit {
			return errEnd
		}
		return x.put(row)
	})
}

func xanSearch(x *xan, args []string) error {
	pattern := args[0]
	if !x.f.Has('r') {
		pattern = regexp.QuoteMeta(pattern)
	}
	if x.f.Has('e') {
		pattern = "^(?:" + pattern + ")$"
	}
	if x.f.Has('i') {
		pattern = "(?i)" + pattern
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return fmt.Errorf("invalid pattern: %s", args[0])
	}
	var cols []int
	return x.each(args[1:], func() (err error) {
		if cols, err = x.columns(x.f.Value('s', "*")); err != nil {
			return err
		}
		return x.header(x.head)
	}, func(row []string) error {
		found := false
		for _, c := range cols {
			found = found || c < len(row) && re.MatchString(row[c])
		}
		if found == x.f.Has('v') {
			return nil
		}
		return x.put(row)
	})
}

func xanMap(x *xan, args []string) error { return xanMapped(x, args) }

// xanMapped is map, which adds columns, and select -e, which makes all of them.
func xanMapped(x *xan, args []string) error {
	var cols []named
	at := map[string]int{}
	index := 0
	adding := x.cmd() == "map"
	if adding && len(args) > 2 { // map EXPRESSION NAME FILE
		args = append([]string{args[0] + " as `" + args[1] + "`"}, args[2:]...)
	}
	return x.each(args[1:], func() (err error) {
		if cols, err = x.parser(args[0], &index).parseNamed(); err != nil {
			return err
		}
		var head []string
		if adding {
			head = slices.Clone(x.head)
		}
		for _, c := range cols {
			if i := slices.Index(head, c.name); i >= 0 && x.f.Has('O') {
				at[c.name] = i
				continue
			}
			head = append(head, c.name)
		}
		return x.header(head)
	}, func(row []string) error {
		var out []string
		if adding {
			out = slices.Clone(row)
			for len(out) < len(x.head) {
				out = append(out, "")
			}
		}
		for _, c := range cols {
			v, err := c.run(row)
			if err != nil {
				return err
			}
			if i, ok := at[c.name]; ok {
				out[i] = textOf(v)
			} else {
				out = append(out, textOf(v))
			}
		}
		index++
		return x.put(out)
	})
}

func xanTransform(x *xan, args []string) error {
	var cols []int
	var f expr
	index := 0
	value := ""
	return x.each(args[2:], func() (err error) {
		if cols, err = x.columns(args[0]); err != nil {
			return err
		}
		p := x.parser(args[1], &index)
		p.cols = func(name string) int {
			if name == "_" {
				return len(x.head)
			}
			return x.col(name)
		}
		if f, err = p.whole(); err != nil {
			return err
		}
		head := slices.Clone(x.head)
		if r := x.f.Value('r', ""); r != "" && len(cols) > 0 {
			head[cols[0]] = r
		}
		return x.header(head)
	}, func(row []string) error {
		out := slices.Clone(row)
		for _, c := range cols {
			value = ""
			if c < len(row) {
				value = row[c]
			}
			full := append(slices.Clone(row), make([]string, max(len(x.head)-len(row), 0))...)
			v, err := f(append(full[:len(x.head)], value))
			if err != nil {
				return err
			}
			if c < len(out) {
				out[c] = textOf(v)
			}
		}
		index++
		return x.put(out)
	})
}
