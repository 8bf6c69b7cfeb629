package search

import (
	"bufio"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/carrel-dev/carrel/shell/regex"
	"github.com/carrel-dev/carrel/shell/tool"
)

// Letters for options without a short form.
const (
	optInclude = 0x80 + iota
	optExclude
	optExcludeFrom
	optExcludeDir
	optColor
	optLabel
	optLineBuffered
	optBinaryFiles
	optNoIgnoreCase
	optHelp
	optGroupSep
	optNoGroupSep
)

func long(name string, letter byte, takes string) string {
	return name + "=" + string([]byte{letter}) + takes
}

var grepLong = []string{"extended-regexp=E", "fixed-strings=F", "basic-regexp=G", "perl-regexp=P", "regexp=e", "file=f", "ignore-case=i", "word-regexp=w",
	"line-regexp=x", "null-data=z", "no-messages=s", "invert-match=v", "version=V", "max-count=m", "byte-offset=b", "line-number=n", "with-filename=H",
	"no-filename=h", "only-matching=o", "quiet=q", "silent=q", "text=a", "binary=U", "directories=d", "devices=D", "recursive=r", "dereference-recursive=R",
	"files-without-match=L", "files-with-matches=l", "count=c", "initial-tab=T", "null=Z", "before-context=B", "after-context=A", "context=C", "unix-byte-offsets=u",
	long("include", optInclude, ":"), long("exclude", optExclude, ":"), long("exclude-from", optExcludeFrom, ":"), long("exclude-dir", optExcludeDir, ":"),
	long("color", optColor, "::"), long("colour", optColor, "::"), long("label", optLabel, ":"), long("line-buffered", optLineBuffered, ""),
	long("binary-files", optBinaryFiles, ":"), long("no-ignore-case", optNoIgnoreCase, ""), long("help", optHelp, ""),
	long("group-separator", optGroupSep, ":"), long("no-group-separator", optNoGroupSep, "")}

const grepUsage = `Usage: grep [OPTION]... PATTERNS [FILE]...
Prints the lines of files in which it finds a pattern. Every line of PATTERNS is a
pattern of its own. The input is read where a file is named -, or none is named and
-r is not given.

What a pattern is:
  -G -E -F -P    basic expressions (if nothing is said), extended ones, plain text, Perl's
  -e, --regexp=PATTERNS, -f, --file=FILE
  -i, --ignore-case, --no-ignore-case, -w, --word-regexp, -x, --line-regexp

What is selected:
  -v, --invert-match, -m, --max-count=NUM, -z, --null-data
  -a, --text, -I, --binary-files=TYPE

What is printed in place of lines:
  -c, --count, -l, --files-with-matches, -L, --files-without-match
  -o, --only-matching, -q, --quiet, --silent

What is printed beside them:
  -n, --line-number, -b, --byte-offset, -H, --with-filename, -h, --no-filename
  -A, -B, -C NUM, -NUM, --group-separator=SEP, --no-group-separator
  -Z, --null, -T, --initial-tab, --label=LABEL, --color[=WHEN], -s, --no-messages

Which files:
  -r, --recursive, -R, --dereference-recursive, -d, --directories=ACTION
  --include=GLOB, --exclude=GLOB, --exclude-from=FILE, --exclude-dir=GLOB

It ends with 0 when it has selected something, with 1 when not, and with 2 after an
error. An error does not count with -q when something was selected.
`

// grep is one run of grep.
type grep struct {
	*tool.Call
	w           *bufio.Writer
	re          *regex.Regexp
	none        bool // there is no pattern
	never       bool // no line is selected, independent of the files
	colors      grepColors
	end         byte // of lines
	status      int  // 2 after an error
	any         bool // something was selected
	dirs        string
	skipDevices bool
	opts        grepOptions
	headings    int
	globs       grepGlobs
	given       bool // files were named
	failed      bool // the output or the process has ended
	printed     bool // something was
}

// grepOptions are the options that say how to search a file and what to print.
type grepOptions struct {
	invert, count, list, listNot, only, number, offset, names, quiet, silent bool
	null, tab, color, text, binaryNoMatch, lineBuffered                      bool
	recursive, deref                                                         bool
	before, after                                                            int // -1: not asked for
	max                                                                      int64
	label, groupSep                                                          string
	noGroupSep                                                               bool

	// Of rg alone.
	rg, countAll, trim, column, heading, headed, multi bool
	replace                                            *string
}

func grepMain(c *tool.Call) int {
	if c.Base() == "egrep" || c.Base() == "fgrep" {
		fmt.Fprintf(c.Err, "%s: warning: %s is obsolescent; using grep -%c\n", c.Base(), c.Base(), strings.ToUpper(c.Base())[0])
	}
	f, ok := c.Flags("EFGPe:f:iwxzsvVm:bnHhoqaUId:D:rRLlcTZA:B:C:uy0123456789", grepLong...)
	if !ok {
		return 2
	}
	if f.Has('V') {
		fmt.Fprintln(c.Out, "grep (GNU grep compatible, simulated) 3.8")
		return 0
	}
	if f.Has(optHelp) {
		fmt.Fprint(c.Out, grepUsage)
		return 0
	}
	g := &grep{Call: c, end: '\n'}
	if !g.options(f) {
		return 2
	}
	args, ok := g.patterns(f)
	if !ok {
		return 2
	}
	g.w = bufio.NewWriterSize(c.Out, 64<<10)
	if !g.never || g.opts.listNot {
		g.files(args, f)
	}
	if st := c.Flush(g.w, 0); st != 0 {
		g.status = 2
	}
	switch {
	case g.any && g.opts.quiet:
		return 0
	case g.status != 0:
		return g.status
	case g.any:
		return 0
	}
	return 1
}

// context reads a number of context lines.
func (g *grep) context(s string) (int, bool) {
	n, err := strconv.ParseUint(s, 10, 63)
	if err != nil && !(strings.Trim(s, "0123456789") == "" && s != "") {
		g.Errorf(2, "%s: invalid context length argument", s)
		return 0, false
	}
	return int(min(n, 1<<30)), true
}

// options reads all options except the patterns.
func (g *grep) options(f tool.Flags) bool {
	o := &g.opts
	*o = grepOptions{before: -1, after: -1, max: -1, label: "(standard input)", groupSep: "--"}
	both := -1
	digits := ""
	for _, fl := range f.All {
		ok := true
		switch l := fl.Letter; l {
		case 'A':
			o.after, ok = g.context(fl.Value)
		case 'B':
			o.before, ok = g.context(fl.Value)
		case 'C':
			both, ok = g.context(fl.Value)
		case '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
			digits += string(l)
		case 'm':
			n, err := strconv.ParseInt(fl.Value, 10, 64)
			if err != nil {
				return g.Errorf(2, "invalid max count") == 0
			}
			o.max = max(n, -1)
		case 'a':
			o.text = true
		case 'I':
			o.binaryNoMatch = true
		case optBinaryFiles:
			switch fl.Value {
			case "binary":
				o.text, o.binaryNoMatch = false, false
			case "text":
				o.text = true
			case "without-match":
				o.binaryNoMatch = true
			default:
				return g.Errorf(2, "invalid argument '%s' for '--binary-files'\nValid arguments are:\n  - 'binary'\n  - 'text'\n  - 'without-match'", fl.Value) == 0
			}
		case optColor:
			switch fl.Value {
			case "always", "yes", "force":
				o.color = true
			case "", "auto", "tty", "if-tty":
				_, _, o.color = g.Terminal(1)
				o.color = o.color && g.Getenv("TERM") != "dumb"
			case "never", "no", "none":
				o.color = false
			default:
				return g.Errorf(2, "invalid argument '%s' for '--color'", fl.Value) == 0
			}
		case 'd':
			if fl.Value != "read" && fl.Value != "skip" && fl.Value != "recurse" {
				return g.Errorf(2, "invalid argument '%s' for '--directories'", fl.Value) == 0
			}
			g.dirs = fl.Value
		case 'r':
			g.dirs, o.deref = "recurse", false
		case 'R':
			g.dirs, o.deref = "recurse", true
		case optLabel:
			o.label = fl.Value
		case optGroupSep:
			o.groupSep = fl.Value
		case optNoGroupSep:
			o.noGroupSep = true
		}
		if !ok {
			return false
		}
	}
	if digits != "" {
		for _, a := range g.Args { // digits of one argument form a number, and the last argument counts
			if n := strings.TrimPrefix(a, "-"); n != a && n != "" && strings.Trim(n, "0123456789") == "" {
				digits = n
			}
		}
		both, _ = g.context(digits)
	}
	if o.color {
		g.readColors()
	}
	g.skipDevices = f.Value('D', "") == "skip"
	o.recursive = g.dirs == "recurse"
	if o.before < 0 {
		o.before = both
	}
	if o.after < 0 {
		o.after = both
	}
	if f.Has('z') {
		g.end = 0
	}
	o.invert, o.count, o.number, o.offset = f.Has('v'), f.Has('c'), f.Has('n'), f.Has('b')
	o.quiet, o.silent, o.null, o.tab = f.Has('q'), f.Has('s'), f.Has('Z'), f.Has('T')
	o.lineBuffered = f.Has(optLineBuffered)
	switch f.Last("lL") {
	case 'l':
		o.list = true
	case 'L':
		o.listNot = true
	}
	o.only = f.Has('o')
	return g.readGlobs(f)
}

// patterns reads the patterns, compiles them, and returns the remaining arguments.
func (g *grep) patterns(f tool.Flags) (args []string, ok bool) {
	args = f.Args
	var texts []string
	given := false
	for _, fl := range f.All {
		switch fl.Letter {
		case 'e':
			given = true
			texts = append(texts, strings.Split(fl.Value, "\n")...)
		case 'f':
			given = true
			in, err := g.OpenIn(fl.Value)
			if err != nil {
				g.Errorf(2, "%s: %s", fl.Value, tool.ErrText(err))
				return nil, false
			}
			data, err := g.ReadAll(in)
			_ = in.Close() // it was read
			if err != nil {
				if !g.Stopped(err) {
					g.Errorf(2, "%s: %s", fl.Value, tool.ErrText(err))
				}
				return nil, false
			}
			if len(data) > 0 {
				texts = append(texts, strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")...)
			}
		}
	}
	if !given {
		if len(args) == 0 {
			fmt.Fprint(g.Err, "Usage: grep [OPTION]... PATTERNS [FILE]...\nTry 'grep --help' for more information.\n")
			return nil, false
		}
		texts, args = strings.Split(args[0], "\n"), args[1:]
	}
	var flags regex.Flags
	kind := f.Last("EFGP")
	switch {
	case kind == 'F' || kind == 0 && g.Base() == "fgrep":
		flags = regex.Literal
	case kind == 'P':
		flags = regex.Perl | regex.EndOnly
		if len(texts) > 1 {
			g.Errorf(2, "the -P option only supports a single pattern")
			return nil, false
		}
	case kind == 'E' || kind == 0 && g.Base() == "egrep":
		flags = regex.Extended | regex.LooseBrace | regex.LooseParen
	}
	if l := f.Last("iy" + string([]byte{optNoIgnoreCase})); l == 'i' || l == 'y' {
		flags |= regex.IgnoreCase
	}
	if f.Has('x') {
		flags |= regex.Whole
	} else if f.Has('w') {
		flags |= regex.Words
	}
	if g.end == '\n' {
		flags |= regex.Lines
	}
	if flags&(regex.Perl|regex.Literal) == 0 {
		flags |= regex.NewlineAlt
	}
	g.none = len(texts) == 0
	re, err := regex.CompileFor(g.Step, texts, flags)
	if flags&(regex.Literal|regex.Perl) == 0 {
		for _, t := range texts {
			switch {
			case strings.HasSuffix(t, "[") && err != nil && err.Error() == "Unmatched [, [^, [:, [., or [=" || strings.HasSuffix(t, "[^") && err != nil:
				err = errors.New("Invalid regular expression")
			case err == nil && lonelyClass(t):
				err = errors.New("character class syntax is [[:space:]], not [:space:]")
			}
		}
	}
	if err != nil {
		text, _, _ := strings.Cut(err.Error(), " at offset ") // remove PCRE's offset, which grep does not print
		g.Errorf(2, "%s", text)
		return nil, false
	}
	g.re = re
	empty := slices.Contains(texts, "") && flags&(regex.Whole|regex.Words) == 0
	g.never = g.opts.max == 0 || g.none && !g.opts.invert || empty && g.opts.invert
	return args, true
}

// lonelyClass reports whether an expression has [:space:] in the place of [[:space:]], which is an
// error.
func lonelyClass(s string) bool {
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '[':
			end := bracketEnd(s, i)
			if body := s[i:end]; len(body) > 4 && body[1] == ':' && body[len(body)-2] == ':' && strings.Count(body, "[") == 1 {
				return true
			}
			i = end - 1
		}
	}
	return false
}
