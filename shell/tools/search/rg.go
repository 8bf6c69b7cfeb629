package search

import (
	"bufio"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/carrel-dev/carrel/shell/regex"
	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// Letters for rg's options without a short form.
const (
	rgHidden = 0x80 + iota
	rgNoIgnore
	rgFiles
	rgSort
	rgMaxDepth
	rgPassthru
	rgNoFilename
	rgHeading
	rgNoHeading
	rgWithout
	rgColor
	rgNoLine
	rgColumn
	rgHelp
	rgTypeList
	rgCountMatches
	rgNoMessages
	rgVimgrep
	rgTrim
	rgIglob
	rgNoRequireGit
	rgIgnored
	rgRefused
	rgSeparator
	rgDotall
)

var rgLong = []string{"ignore-case=i", "case-sensitive=s", "smart-case=S", "word-regexp=w", "line-regexp=x", "invert-match=v", "count=c", "files-with-matches=l",
	"glob=g", "type=t", "type-not=T", "after-context=A", "before-context=B", "context=C", "only-matching=o", "replace=r", "multiline=U", "fixed-strings=F",
	"regexp=e", "file=f", "unrestricted=u", "null=0", "max-count=m", "line-number=n", "quiet=q", "pcre2=P", "follow=L", "with-filename=H", "text=a", "pretty=p", "byte-offset=b",
	"max-filesize=M:", "version=V", "no-filename=I", "max-columns=M", "threads=j", "no-line-number=N",
	long("hidden", rgHidden, ""), long("no-ignore", rgNoIgnore, ""), long("no-ignore-vcs", rgNoIgnore, ""), long("files", rgFiles, ""), long("sort", rgSort, ":"), long("sortr", rgSort, ":"),
	long("max-depth", rgMaxDepth, ":"), long("maxdepth", rgMaxDepth, ":"), long("passthru", rgPassthru, ""), long("heading", rgHeading, ""),
	long("no-heading", rgNoHeading, ""), long("files-without-match", rgWithout, ""), long("color", rgColor, ":"), long("colors", rgIgnored, ":"), long("column", rgColumn, ""), long("help", rgHelp, ""),
	long("count-matches", rgCountMatches, ""), long("no-messages", rgNoMessages, ""), long("vimgrep", rgVimgrep, ""), long("trim", rgTrim, ""), long("iglob", rgIglob, ":"),
	long("no-require-git", rgNoRequireGit, ""), long("no-config", rgIgnored, ""), long("line-buffered", rgIgnored, ""), long("json", rgRefused, ""), long("stats", rgRefused, ""),
	long("type-list", rgTypeList, ""), long("context-separator", rgSeparator, ":"), long("multiline-dotall", rgDotall, "")}

const rgUsage = `ripgrep 13.0.0 (compatible, simulated)

USAGE:
    rg [OPTIONS] PATTERN [PATH ...]
    rg [OPTIONS] -e PATTERN ... [PATH ...]
    rg [OPTIONS] --files [PATH ...]

Searches directories recursively, honours .gitignore, and leaves out hidden and binary files.
--json and --stats are not supported.
`

// rgTypes are the usual types of files.
var rgTypes = map[string]string{"go": "*.go", "py": "*.py *.pyi", "python": "*.py *.pyi", "js": "*.js *.jsx *.vue *.cjs *.mjs", "ts": "*.ts *.tsx *.cts *.mts", "rust": "*.rs", "c": "*.c *.h *.H *.cats",
	"cpp": "*.C *.H *.cc *.cpp *.cxx *.h *.hh *.hpp *.hxx *.inl", "h": "*.h *.hh *.hpp", "java": "*.java *.jsp *.jspx *.properties", "md": "*.markdown *.md *.mdown *.mkdn", "markdown": "*.markdown *.md *.mdown *.mkdn",
	"txt": "*.txt", "json": "*.json composer.lock", "yaml": "*.yaml *.yml", "toml": "*.toml Cargo.lock", "html": "*.htm *.html *.ejs", "css": "*.css *.scss", "sh": "*.bash *.sh *.zsh .bashrc .profile", "xml": "*.xml *.xsd *.xsl *.xslt",
	"sql": "*.sql *.psql", "make": "*.mak *.mk Makefile makefile GNUmakefile", "csv": "*.csv", "ruby": "*.gemspec *.rb Gemfile Rakefile", "php": "*.php", "swift": "*.swift", "kotlin": "*.kt *.kts", "log": "*.log", "lua": "*.lua", "docker": "*Dockerfile*", "protobuf": "*.proto"}

// rg is one run of rg.
type rg struct {
	*grep
	flags    tool.Flags
	hidden   bool
	noIgnore bool
	noGit    bool
	depth    int
	overs    []rgRule // of -g
	types    []string
	typesNot []string
	list     bool // --files
	found    bool
	searched int
}

func rgMain(c *tool.Call) int {
	f, ok := c.Flags("isSwxvclg:t:T:A:B:C:or:UFe:f:u0m:nqPLHapbM:VINj:hz", rgLong...)
	if !ok {
		return 2
	}
	switch {
	case f.Has(rgHelp) || f.Has('h'):
		fmt.Fprint(c.Out, rgUsage)
		return 0
	case f.Has('V'):
		fmt.Fprintln(c.Out, "ripgrep 13.0.0 (compatible, simulated)")
		return 0
	case f.Has(rgRefused) || f.Has('z'):
		return c.Errorf(2, "--json, --stats and -z are not supported")
	case f.Has(rgTypeList):
		for _, t := range slices.Sorted(mapsKeys(rgTypes)) {
			fmt.Fprintf(c.Out, "%s: %s\n", t, strings.ReplaceAll(rgTypes[t], " ", ", "))
		}
		return 0
	}
	r := &rg{grep: &grep{Call: c, end: '\n', w: bufio.NewWriterSize(c.Out, 64<<10)}, flags: f, hidden: f.Has(rgHidden), noIgnore: f.Has(rgNoIgnore), noGit: f.Has(rgNoRequireGit), list: f.Has(rgFiles), depth: -1}
	args, status := r.options()
	if status >= 0 {
		return status
	}
	r.paths(args)
	if st := c.Flush(r.w, 0); st != 0 {
		r.status = 2
	}
	switch {
	case r.opts.quiet && (r.any || r.found):
		return 0
	case r.status != 0:
		return r.status
	case r.any || r.found:
		return 0
	}
	return 1
}

func mapsKeys(m map[string]string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// options reads the options. A status of -1 means to go on.
func (r *rg) options() (args []string, status int) {
	f, o := r.flags, &r.opts
	*o = grepOptions{before: -1, after: -1, max: -1, label: "<stdin>", groupSep: f.Value(rgSeparator, "--"), rg: true}
	args = f.Args
	var texts []string
	given := f.Has(rgFiles)
	for _, fl := range f.All {
		ok := true
		n, nerr := strconv.Atoi(fl.Value)
		switch fl.Letter {
		case 'A', 'B', 'C', 'm', rgMaxDepth:
			if ok = nerr == nil && n >= 0; !ok {
				return nil, r.Errorf(2, "error parsing number %q", fl.Value)
			}
		}
		switch fl.Letter {
		case 'e':
			given, texts = true, append(texts, fl.Value)
		case 'f':
			given = true
			in, err := r.OpenIn(fl.Value)
			if err != nil {
				return nil, r.Errorf(2, "%s: %s", fl.Value, tool.ErrText(err))
			}
			data, err := r.ReadAll(in)
			_ = in.Close() // it was read
			if err != nil {
				return nil, 2
			}
			for l := range strings.Lines(string(data)) {
				texts = append(texts, strings.TrimRight(l, "\r\n"))
			}
		case 'A':
			o.after = n
		case 'B':
			o.before = n
		case 'C':
			o.before, o.after = n, n
		case 'm':
			o.max = int64(n)
		case rgMaxDepth:
			r.depth = n
		case 'u':
			if r.noIgnore {
				if r.hidden {
					o.text = true
				}
				r.hidden = true
			}
			r.noIgnore = true
		case 'g', rgIglob:
			r.overs = append(r.overs, newRule(strings.TrimPrefix(fl.Value, "!"), "", strings.HasPrefix(fl.Value, "!")))
		case 't', 'T':
			if rgTypes[fl.Value] == "" {
				return nil, r.Errorf(2, "unrecognized file type: %s", fl.Value)
			}
			if fl.Letter == 't' {
				r.types = append(r.types, strings.Fields(rgTypes[fl.Value])...)
			} else {
				r.typesNot = append(r.typesNot, strings.Fields(rgTypes[fl.Value])...)
			}
		}
	}
	if !given {
		if len(args) == 0 {
			fmt.Fprint(r.Err, "error: The following required arguments were not provided:\n    <PATTERN>\n")
			return nil, 2
		}
		texts, args = args[:1], args[1:]
	}
	if o.before >= 0 || o.after >= 0 {
		o.before, o.after = max(o.before, 0), max(o.after, 0)
	}
	o.invert, o.only, o.list, o.quiet = f.Has('v'), f.Has('o'), f.Has('l'), f.Has('q')
	o.listNot, o.null, o.text, o.offset = f.Has(rgWithout), f.Has('0'), o.text || f.Has('a'), f.Has('b')
	o.count = f.Has('c') || f.Has(rgCountMatches)
	o.countAll = f.Has(rgCountMatches) || f.Has('c') && o.only
	o.silent, o.deref, o.trim = f.Has(rgNoMessages), f.Has('L'), f.Has(rgTrim)
	_, _, tty := r.Terminal(1)
	o.number = f.Last("nN") == 'n' || f.Last("nN") == 0 && (tty || f.Has('p') || f.Has(rgColumn) || f.Has(rgVimgrep))
	o.column = f.Has(rgColumn) || f.Has(rgVimgrep)
	o.heading = (tty || f.Has('p')) && !f.Has(rgNoHeading) || f.Has(rgHeading)
	o.color = f.Value(rgColor, "") == "always"
	if o.color {
		return nil, r.Errorf(2, "--color always is not supported")
	}
	if f.Has(rgPassthru) {
		o.before, o.after = 1<<30, 1<<30
	}
	if f.Has('r') {
		t := f.Value('r', "")
		o.replace = &t
	}
	return args, r.compile(texts)
}

// compile makes the expression.
func (r *rg) compile(texts []string) int {
	f := r.flags
	if r.list {
		return -1
	}
	flags := regex.Perl | regex.Unicode
	if f.Has('F') {
		flags = regex.Literal
	}
	multi := f.Has('U')
	if !multi {
		flags |= regex.Lines
	} else {
		flags |= regex.Multi
		if f.Has(rgDotall) {
			flags |= regex.DotAll
		}
	}
	switch f.Last("isS") {
	case 'i':
		flags |= regex.IgnoreCase
	case 'S':
		if !strings.ContainsFunc(strings.Join(texts, ""), unicode.IsUpper) {
			flags |= regex.IgnoreCase
		}
	}
	if f.Has('x') {
		flags |= regex.Whole
	} else if f.Has('w') {
		flags |= regex.Words
	}
	re, err := regex.CompileFor(r.Step, texts, flags)
	if err != nil {
		return r.Errorf(2, "regex parse error:\n    %s\nerror: %s", texts[0], err)
	}
	r.re, r.none, r.opts.multi = re, len(texts) == 0, multi
	return -1
}

// paths searches the files that the arguments name.
func (r *rg) paths(args []string) {
	r.given = len(args) > 0
	if len(args) == 0 {
		if !r.list && r.piped() {
			in := bufio.NewReader(r.In)
			if _, err := in.Peek(1); err == nil { // nothing at all is no input
				r.opts.names = r.flags.Has('H')
				r.search("-", r.opts.label, in)
				return
			}
		}
		args = []string{"./"}
	}
	r.opts.names = true
	if len(args) == 1 && args[0] != "./" {
		i, err := r.FS().Stat(r.Abs(args[0]))
		r.opts.names = args[0] != "-" && err == nil && i.Mode.IsDir()
	}
	if r.flags.Has(rgVimgrep) {
		r.opts.names = true
	}
	switch r.flags.Last("HI") {
	case 'H':
		r.opts.names = true
	case 'I':
		r.opts.names = false
	}
	if r.opts.heading && r.opts.names {
		r.opts.headed = true
	}
	for _, a := range args {
		if r.failed {
			return
		}
		if a == "-" {
			r.search("-", r.opts.label, r.In)
			continue
		}
		i, err := r.FS().Stat(r.Abs(a))
		switch {
		case err != nil:
			if !r.opts.silent {
				r.flushed()
				fmt.Fprintf(r.Err, "%s: %s (os error 2)\n", a, tool.ErrText(err))
			}
			r.status = 2
		case i.Mode.IsDir():
			r.walk(a)
			if r.searched == 0 && !r.given && !r.list && !r.opts.quiet && !r.failed {
				fmt.Fprint(r.Err, "rg: no file was searched: hidden, ignored and binary ones are left out (-uu, -uuu)\n")
				r.status = 2
			}
		default:
			r.one(a, true)
		}
	}
}

// piped reports whether standard input is a pipe or a file.
func (r *rg) piped() bool {
	f, err := r.Open("/dev/stdin", vfs.ReadOnly, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	i, err := f.Stat()
	return err == nil && (i.Mode&fs.ModeNamedPipe != 0 || i.Mode.IsRegular())
}

// one searches or lists one file.
func (r *rg) one(name string, given bool) {
	r.searched++
	if r.list {
		r.found = true
		if !r.opts.quiet {
			r.w.WriteString(name)
			if r.opts.null {
				r.w.WriteByte(0)
			} else {
				r.w.WriteByte('\n')
			}
		}
		return
	}
	r.opts.binaryNoMatch = !given && !r.opts.text
	r.file(name)
}
