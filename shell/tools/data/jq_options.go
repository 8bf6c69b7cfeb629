package data

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/tools/data/jq"
)

const jqUsage = `Usage:	jq [OPTIONS] FILTER [FILES...]
	jq [OPTIONS] --args FILTER [ARGUMENTS...]
	jq [OPTIONS] --jsonargs FILTER [JSON_VALUES...]
`

const jqHelp = `
Runs FILTER on each JSON value of its input and prints what comes out.

Input:
  -n, --null-input          the filter runs once, on null; input and inputs read
  -R, --raw-input           each line is a string
  -s, --slurp               all values become one array, or with -R all text one string
      --stream              values come in pieces: [path, leaf]
      --seq                 values begin with the byte RS (RFC 7464), printed ones too

Output:
  -r, --raw-output          strings without quotes
      --raw-output0         the same, and a zero byte in place of each line's end
  -j, --join-output         the same, and nothing in place of it
  -a, --ascii-output        characters outside of ASCII as \u and their number
  -c, --compact-output      each value in one line
      --tab, --indent N     how far to indent: a tab, or 0 to 7 spaces
  -S, --sort-keys           keys in order
  -C, --color-output        with colors; -M, --monochrome-output: without
  -e, --exit-status         end with 1 when the last value is null or false, with 4
                            when there is none

Filter and variables:
  -f, --from-file FILE      FILE holds the filter
      --arg NAME TEXT       $NAME is a string
      --argjson NAME JSON   $NAME is that value
      --rawfile NAME FILE   $NAME is what FILE holds, as one string
      --slurpfile NAME FILE $NAME is an array of the values in FILE
      --args, --jsonargs    arguments after it are $ARGS.positional, not files

  -V, --version, -h, --help
`

// wrong is a usage error.
func (r *jqRun) wrong(format string, args ...any) (int, bool) {
	r.Errorf(2, "error: "+format, args...)
	fmt.Fprintf(r.Err, "Use jq --help for help with command-line options,\nor see the jq manpage, or online docs  at https://jqlang.github.io/jq\n")
	return 2, false
}

// parse reads the options.
func (r *jqRun) parse() (status int, ok bool) {
	rest, mode, plain := r.Args, byte(0), false
	for len(rest) > 0 {
		a := rest[0]
		rest = rest[1:]
		switch {
		case plain || len(a) < 2 || a[0] != '-' || a[1] != '-' && (a[1]|0x20 < 'a' || a[1]|0x20 > 'z'):
			if status, ok := r.operand(a, mode); !ok {
				return status, false
			}
			continue
		case a == "--":
			plain = true
			continue
		case a[1] != '-':
			for _, l := range []byte(a[1:]) {
				long, known := jqShort[l]
				if !known {
					return r.wrong("Unknown arguments")
				}
				if l == 'L' {
					if dir := a[strings.IndexByte(a, 'L')+1:]; dir != "" {
						r.paths = append(r.paths, dir)
					} else if len(rest) > 0 {
						r.paths, rest = append(r.paths, rest[0]), rest[1:]
					} else {
						return r.wrong("-L takes a parameter: (e.g. -L /search/path or -L/search/path)")
					}
					break
				}
				var status int
				if rest, status, ok = r.long(long, rest, &mode); !ok {
					return status, false
				}
			}
			continue
		}
		if rest, status, ok = r.long(a[2:], rest, &mode); !ok {
			return status, false
		}
	}
	if _, _, tty := r.Terminal(0); !r.has && tty {
		fmt.Fprint(r.Err, jqUsage)
		return 2, false
	} else if !r.has {
		r.filter = "."
	}
	return 0, true
}

var jqShort = map[byte]string{'n': "null-input", 'R': "raw-input", 's': "slurp", 'c': "compact-output", 'r': "raw-output", 'j': "join-output",
	'a': "ascii-output", 'S': "sort-keys", 'C': "color-output", 'M': "monochrome-output", 'f': "from-file", 'e': "exit-status",
	'V': "version", 'h': "help", 'L': "library-path"}

func (r *jqRun) operand(a string, mode byte) (int, bool) {
	switch {
	case !r.has:
		r.filter, r.has = a, true
	case mode == 's':
		r.positional = append(r.positional, a)
	case mode == 'j':
		v, err := jq.Parse(a, r.budget())
		if err != nil {
			return r.wrong("Invalid JSON text passed to --jsonargs")
		}
		r.positional = append(r.positional, v)
	default:
		r.files = append(r.files, a)
	}
	return 0, true
}

// long handles one option and returns the remaining arguments.
func (r *jqRun) long(name string, rest []string, mode *byte) ([]string, int, bool) {
	need := map[string]int{"arg": 2, "argjson": 2, "slurpfile": 2, "rawfile": 2, "argfile": 2, "indent": 1, "library-path": 1}[name]
	if len(rest) < need {
		what := "two parameters (e.g. --" + name + " varname value)"
		if need == 1 {
			what = "one parameter"
		}
		status, ok := r.wrong("--%s takes %s", name, what)
		return nil, status, ok
	}
	args, rest := rest[:need], rest[need:]
	switch name {
	case "null-input":
		r.null = true
	case "raw-input":
		r.raw = true
	case "slurp":
		r.slurp = true
	case "compact-output":
		r.style.Indent = ""
	case "raw-output":
		r.out = true
	case "raw-output0":
		r.out, r.zero = true, true
	case "join-output":
		r.out, r.join = true, true
	case "ascii-output":
		r.style.ASCII = true
	case "sort-keys":
		r.style.Sort = true
	case "color-output":
		r.style.Color = true
	case "monochrome-output":
		r.style.Color = false
	case "tab":
		r.style.Indent = "\t"
	case "from-file":
		r.fromFile = true
	case "exit-status":
		r.status = true
	case "stream":
		r.stream = true
	case "seq":
		r.seq = true
	case "args":
		*mode = 's'
	case "jsonargs":
		*mode = 'j'
	case "library-path":
		r.paths = append(r.paths, args[0])
	case "unbuffered", "stream-errors":
	case "indent":
		if status, ok := r.indent(args[0]); !ok {
			return nil, status, false
		}
	case "arg":
		r.bind(args[0], args[1])
	case "argjson":
		v, err := jq.Parse(args[1], r.budget())
		if err != nil {
			status, ok := r.wrong("Invalid JSON text passed to --argjson")
			return nil, status, ok
		}
		r.bind(args[0], v)
	case "rawfile", "slurpfile", "argfile":
		if status, ok := r.bindFile(name, args[0], args[1]); !ok {
			return nil, status, false
		}
	case "help":
		fmt.Fprint(r.Out, jqUsage+jqHelp)
		return nil, 0, false
	case "version":
		fmt.Fprintln(r.Out, "jq-1.7.1")
		return nil, 0, false
	default:
		status, ok := r.wrong("Unknown arguments")
		return nil, status, ok
	}
	return rest, 0, true
}

// indent sets the width of indentation. When ok is false, jq ends with the status.
func (r *jqRun) indent(text string) (status int, ok bool) {
	n, err := strconv.Atoi(text)
	switch {
	case err != nil || n < -1:
		return r.wrong("Cannot indent less than -1")
	case n > 7:
		return r.wrong("Cannot indent more than 7 characters")
	}
	r.style.Indent = strings.Repeat(" ", max(n, 0))
	return 0, true
}

// bindFile sets a variable from a file: to the file's text for --rawfile, otherwise to all its
// values. When ok is false, jq ends with the status.
func (r *jqRun) bindFile(option, variable, file string) (status int, ok bool) {
	text, err := r.readFile(file)
	if err != nil {
		return r.wrong("Bad JSON in --%s %s %s: Could not open %s: %s", option, variable, file, file, tool.ErrText(err))
	}
	if option == "rawfile" {
		r.bind(variable, text)
		return 0, true
	}
	all := []any{}
	d := jq.NewDecoder(strings.NewReader(text), r.budget())
	for {
		v, err := d.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return r.wrong("Bad JSON in --%s %s %s: %v", option, variable, file, err)
		}
		all = append(all, v)
	}
	r.bind(variable, all)
	return 0, true
}

// bind sets a variable, unless it is already set: the first value counts.
func (r *jqRun) bind(name string, v any) {
	if _, ok := r.named.Get(name); !ok {
		r.named.Set(name, v)
	}
}
