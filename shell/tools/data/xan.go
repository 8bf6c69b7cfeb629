package data

import (
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/vfs"
)

const xanHelp = `xan works on tables in CSV.

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

// xanCommand is a subcommand: its options and its function.
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

// each calls fn with the records of a file. x.head is its header. Without a header the columns are
// named 0, 1, …
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

// col finds a column by name or by number. It returns -1 when there is none.
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

// parser returns a parser for expressions on the columns.
func (x *xan) parser(src string, index *int) *exprParser {
	return &exprParser{src: src, cols: x.col, index: index}
}
