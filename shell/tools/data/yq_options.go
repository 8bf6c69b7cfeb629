package data

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/carrel-dev/carrel/shell/tool"
)

const yqHelp = `Usage: yq [eval|eval-all] [OPTIONS] EXPRESSION [FILE...]

Expressions are jq's; env(NAME), strenv(NAME), ireduce and fileIndex of yq are understood, too.

Options:
  -p, --input-format F   auto, yaml, json, csv, tsv, xml, toml, ini, props
  -o, --output-format F  yaml, json, csv, tsv, xml, toml, ini, props
  -i, --inplace          change the first file
  -n, --null-input       no input
  -r, --unwrapScalar     strings without quotes (as they are by default)
  -e, --exit-status      1 when the last result is null or false, or there is none
  -s, --slurp            all documents as one array
  -c, --compact          JSON in one line
  -j, --tojson           the same as -o json
  -I, --indent N         how far to indent (2)
  -P, --prettyPrint      write in block style
  -N, --no-doc           no --- between documents
      --arg NAME VALUE   set $NAME
  -V, --version, -h, --help
`

func formatOf(name string) string {
	switch strings.ToLower(path.Ext(name)) {
	case ".json":
		return "json"
	case ".csv":
		return "csv"
	case ".tsv":
		return "tsv"
	case ".xml":
		return "xml"
	case ".toml":
		return "toml"
	case ".ini":
		return "ini"
	case ".properties":
		return "props"
	}
	return "yaml"
}

var formatNames = map[string]string{"yaml": "yaml", "y": "yaml", "yml": "yaml", "json": "json", "j": "json", "csv": "csv", "c": "csv", "tsv": "tsv", "t": "tsv",
	"xml": "xml", "x": "xml", "toml": "toml", "ini": "ini", "props": "props", "p": "props", "auto": "", "a": "", "ndjson": "json"}

func (y *yqRun) parse() (int, bool) {
	rest := y.Args
	if len(rest) > 0 && slices.Contains([]string{"e", "eval", "ea", "eval-all"}, rest[0]) {
		y.all = strings.HasPrefix(rest[0], "ea") || rest[0] == "eval-all"
		rest = rest[1:]
	}
	for len(rest) > 0 {
		a := rest[0]
		rest = rest[1:]
		if a == "--" {
			for _, x := range rest {
				y.operand(x)
			}
			break
		}
		if len(a) < 2 || a[0] != '-' {
			y.operand(a)
			continue
		}
		names, v, hasV := yqNames(a)
		for _, n := range names {
			if slices.Contains(yqValued, n) && !hasV {
				if len(rest) == 0 {
					return y.bad("flag needs an argument: %s", a)
				}
				v, rest = rest[0], rest[1:]
			}
			if n == "arg" {
				if len(rest) == 0 {
					return y.bad("flag needs an argument: --arg")
				}
				y.vars[v], rest = rest[0], rest[1:]
				continue
			}
			if status, ok := y.option(a, n, v, hasV); !ok {
				return status, false
			}
		}
	}
	return 0, true
}

// yqValued are the options that take a value.
var yqValued = []string{"p", "input-format", "o", "output-format", "I", "indent", "arg", "expression", "from-file", "xml-attribute-prefix", "csv-separator"}

// bad complains, and ends yq.
func (y *yqRun) bad(format string, args ...any) (int, bool) {
	fmt.Fprintf(y.Err, "Error: "+format+"\n", args...)
	return 1, false
}

// yqNames splits an argument into its options, a long one or a bundle of letters, and the attached
// value.
func yqNames(a string) (names []string, v string, hasV bool) {
	name, v, hasV := strings.Cut(a, "=")
	if strings.HasPrefix(a, "--") {
		return []string{name[2:]}, v, hasV
	}
	for i := 1; i < len(name); i++ {
		l := name[i : i+1]
		names = append(names, l)
		if strings.Contains("poI", l) && i+1 < len(name) {
			return names, name[i+1:] + map[bool]string{true: "=" + v}[hasV], true
		}
	}
	return names, v, hasV
}

// option applies the option n of the argument a. When ok is false, yq ends with the status.
func (y *yqRun) option(a, n, v string, hasV bool) (status int, ok bool) {
	switch n {
	case "p", "input-format", "o", "output-format":
		f, ok := formatNames[v]
		if !ok {
			return y.bad("unknown format '%s' please use [yaml|json|csv|tsv|xml|toml|ini|props]", v)
		}
		if n == "p" || n == "input-format" {
			y.in = f
		} else {
			y.out = f
		}
	case "I", "indent":
		n, err := strconv.Atoi(v)
		if err != nil || n < 0 || n > 32 {
			return y.bad("invalid argument \"%s\" for indent", v)
		}
		y.indent = n
	case "expression":
		y.filter, y.has = v, true
	case "from-file":
		in, err := y.OpenIn(v)
		if err != nil {
			return y.bad("open %s: %s", v, strings.ToLower(tool.ErrText(err)))
		}
		b, err := y.ReadAll(in)
		_ = in.Close() // it was read
		if err != nil {
			return 1, false
		}
		y.filter, y.has = string(b), true
	case "i", "inplace", "in-place":
		y.inPlace = true
	case "n", "null-input":
		y.null = true
	case "e", "exit-status":
		y.status = true
	case "s", "slurp":
		y.slurp = true
	case "c", "compact", "compact-output":
		y.compact = true
	case "j", "tojson":
		y.out = "json"
	case "join-output":
		y.join = true
	case "N", "no-doc":
		y.noDoc = true
	case "P", "prettyPrint":
		y.pretty = true
	case "r", "unwrapScalar", "raw-output":
		y.wrap, y.raw = hasV && v == "false", !hasV || v != "false"
	case "y", "yaml-output", "Y":
		y.out = "yaml"
	case "C", "colors", "M", "no-colors", "v", "verbose", "string-interpolation", "yaml-compact-seq-indent", "xml-attribute-prefix", "csv-separator", "S", "sort-keys":
	case "V", "version":
		fmt.Fprintln(y.Out, "yq (carrel) version v4.44.1")
		return 0, false
	case "h", "help":
		fmt.Fprint(y.Out, yqHelp)
		return 0, false
	default:
		if name, _, _ := strings.Cut(a, "="); strings.HasPrefix(a, "--") {
			return y.bad("unknown flag: %s", name)
		}
		return y.bad("unknown shorthand flag: '%s' in %s", n, a)
	}
	return 0, true
}

func (y *yqRun) operand(a string) {
	if !y.has {
		y.filter, y.has = a, true
		return
	}
	y.files = append(y.files, a)
}
