package data

import (
	"bytes"
	"fmt"
	"io"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/carrel-dev/carrel/internal/sh/tool"
	"github.com/carrel-dev/carrel/internal/sh/tools/data/jq"
	"github.com/carrel-dev/carrel/internal/sh/vfs"
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

// yqRun is one run of yq.
type yqRun struct {
	*tool.Call
	in, out                                            string
	inPlace, null, status, slurp, compact, noDoc, wrap bool
	all, pretty, join, raw                             bool
	indent                                             int
	vars                                               map[string]any
	filter                                             string
	has                                                bool
	files                                              []string
	last                                               any
	some                                               bool
}

// runYQ is yq.
func runYQ(c *tool.Call) int {
	y := &yqRun{Call: c, indent: 2, vars: map[string]any{}}
	if status, ok := y.parse(); !ok {
		return status
	}
	if !y.has {
		if len(y.files) == 0 {
			y.filter = "."
		}
	}
	if len(y.files) == 0 && !y.null {
		y.files = []string{"-"}
	}
	// A first word that is a file, alone, means the whole of it.
	if len(y.files) == 1 && y.files[0] == "-" && y.filter != "." {
		if i, err := c.FS().Stat(c.Abs(y.filter)); err == nil && i.Mode.IsRegular() {
			y.files, y.filter = []string{y.filter}, "."
		}
	}
	if y.in == "" {
		y.in = "yaml"
		if len(y.files) > 0 {
			y.in = formatOf(y.files[0])
		}
	}
	if y.out == "" {
		y.out = y.in
		if y.in == "csv" || y.in == "tsv" || y.in == "ini" || y.in == "xml" || y.in == "toml" || y.in == "props" {
			if y.out = "yaml"; y.inPlace {
				y.out = y.in
			}
		}
	}
	return y.main()
}

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
	bad := func(format string, args ...any) (int, bool) {
		fmt.Fprintf(y.Err, "Error: "+format+"\n", args...)
		return 1, false
	}
	value := func(name string) (string, bool) {
		if len(rest) == 0 {
			return "", false
		}
		v := rest[0]
		rest = rest[1:]
		return v, true
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
		name, v, hasV := strings.Cut(a, "=")
		var names []string
		if strings.HasPrefix(a, "--") {
			names = []string{name[2:]}
		} else {
			for i := 1; i < len(name); i++ {
				l := name[i : i+1]
				names = append(names, l)
				if strings.Contains("poIs", l) && i+1 < len(name) && !(l == "s") {
					v, hasV = name[i+1:]+map[bool]string{true: "=" + v}[hasV], true
					break
				}
			}
		}
		for _, n := range names {
			switch n {
			case "p", "input-format", "o", "output-format", "I", "indent", "arg", "expression", "from-file", "xml-attribute-prefix", "csv-separator":
				if !hasV {
					var ok bool
					if v, ok = value(n); !ok {
						return bad("flag needs an argument: %s", a)
					}
				}
			}
			switch n {
			case "p", "input-format", "o", "output-format":
				f, ok := formatNames[v]
				if !ok {
					return bad("unknown format '%s' please use [yaml|json|csv|tsv|xml|toml|ini|props]", v)
				}
				if n == "p" || n == "input-format" {
					y.in = f
				} else {
					y.out = f
				}
			case "I", "indent":
				n, err := strconv.Atoi(v)
				if err != nil || n < 0 || n > 32 {
					return bad("invalid argument \"%s\" for indent", v)
				}
				y.indent = n
			case "arg":
				val, ok := value(n)
				if !ok {
					return bad("flag needs an argument: --arg")
				}
				y.vars[v] = val
			case "expression":
				y.filter, y.has = v, true
			case "from-file":
				in, err := y.OpenIn(v)
				if err != nil {
					return bad("open %s: %s", v, strings.ToLower(tool.ErrText(err)))
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
				if strings.HasPrefix(a, "--") {
					return bad("unknown flag: %s", name)
				}
				return bad("unknown shorthand flag: '%s' in %s", n, a)
			}
		}
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

var (
	keysCall  = regexp.MustCompile(`(^|[^."'\w$])keys($|[^"'\w:])`)
	envCall   = regexp.MustCompile(`\b(str)?env\(\s*([A-Za-z_][A-Za-z0-9_]*)\s*\)`)
	ireduce   = regexp.MustCompile(`^\s*\.\s+as\s+(\$\w+)\s+ireduce\s*`)
	fileIndex = regexp.MustCompile(`select\(\s*(?:fileIndex|fi|file_index)\s*==\s*(\d+)\s*\)`)
	comments  = regexp.MustCompile(`\.\.\.\s*comments\s*=\s*""`)
)

// translate turns what is yq's own into jq.
func (y *yqRun) translate() {
	y.filter = comments.ReplaceAllString(y.filter, ".")
	y.filter = keysCall.ReplaceAllString(y.filter, "${1}keys_unsorted$2")
	y.filter = envCall.ReplaceAllStringFunc(y.filter, func(s string) string {
		m := envCall.FindStringSubmatch(s)
		if m[1] != "" {
			return "($ENV." + m[2] + ")"
		}
		return "($ENV." + m[2] + " | . as $e | try fromjson catch $e)"
	})
	if y.all {
		y.slurp = true
		y.filter = ireduce.ReplaceAllString(y.filter, "reduce .[] as $1 ")
		y.filter = fileIndex.ReplaceAllString(y.filter, ".[$1]")
		if !strings.Contains(y.filter, ".[") {
			y.filter = ".[] | (" + y.filter + ")"
		}
	}
}

// read gets the documents of all files.
func (y *yqRun) read() ([]any, []*yaml.Node, error) {
	if y.null {
		return []any{nil}, []*yaml.Node{nil}, nil
	}
	var vals []any
	var nodes []*yaml.Node
	for _, name := range y.files {
		in, err := y.OpenIn(name)
		if err != nil {
			return nil, nil, fmt.Errorf("open %s: %s", name, strings.ToLower(tool.ErrText(err)))
		}
		text, err := y.ReadAll(in)
		_ = in.Close() // it was read
		if err != nil {
			return nil, nil, err
		}
		var v []any
		n := []*yaml.Node{nil}
		switch y.in {
		case "yaml":
			v, n, err = readYAML(y.Call, text)
		case "json":
			v, err = readJSON(y.Call, text)
			n = make([]*yaml.Node, len(v))
		default:
			var one any
			one, err = readFormat(y.Call, y.in, text)
			v = []any{one}
		}
		if err != nil {
			return nil, nil, fmt.Errorf("bad file '%s': %w", name, err)
		}
		vals, nodes = append(vals, v...), append(nodes, n...)
	}
	return vals, nodes, nil
}

func readJSON(c *tool.Call, text []byte) ([]any, error) {
	d := jq.NewDecoder(bytes.NewReader(text), jq.Budget{Step: c.Step, Pay: c.Pay})
	var out []any
	for {
		v, err := d.Next()
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
}

func (y *yqRun) main() int {
	fail := func(err error) int {
		if !y.Stopped(err) {
			fmt.Fprintf(y.Err, "Error: %v\n", err)
		}
		return 1
	}
	y.translate()
	vals, nodes, err := y.read()
	if err != nil {
		return fail(err)
	}
	if y.slurp {
		vals, nodes = []any{vals}, []*yaml.Node{nil}
	}
	p, err := jq.Compile(y.filter, jq.Options{Budget: jq.Budget{Step: y.Step, Pay: y.Pay, Used: y.Machine().Memory}, Vars: y.vars, Environ: y.Environ,
		Now: func() float64 { return float64(y.Now().UnixNano()) / 1e9 }})
	if err != nil {
		return fail(fmt.Errorf("invalid expression: %w", err))
	}
	var b bytes.Buffer
	docs := 0
	for i, v := range vals {
		err := p.Run(v, func(x any) error {
			y.last, y.some = x, true
			old := nodes[i]
			if !y.inPlace && y.filter != "." && !strings.Contains(y.filter, "=") {
				old = nil
			}
			if y.pretty {
				old = nil
			}
			text, err := y.write(x, old)
			if err != nil {
				return err
			}
			if _, isDoc := x.(*jq.Object); docs > 0 && y.out == "yaml" && !y.noDoc && (isDoc && len(vals) > 1) {
				b.WriteString("---\n")
			}
			docs++
			b.Write(text)
			if !y.Step(1 + len(text)>>4) {
				return tool.ErrStop
			}
			return y.Pay(int64(len(text)))
		})
		if err != nil {
			if !y.inPlace {
				_, _ = y.Out.Write(b.Bytes()) // what came before the error
			}
			return fail(err)
		}
	}
	if y.inPlace && len(y.files) > 0 && y.files[0] != "-" {
		f, err := y.Open(y.files[0], vfs.WriteOnly|vfs.Truncate, 0)
		if err == nil {
			_, err = f.Write(b.Bytes())
			_ = f.Close() // the write is what counts
		}
		if err != nil {
			return fail(err)
		}
	} else if _, err := y.Out.Write(b.Bytes()); err != nil {
		return fail(err)
	}
	if y.status && (!y.some || !jq.Truthy(y.last)) {
		if y.some {
			fmt.Fprintln(y.Err, "Error: no matches found")
		}
		return 1
	}
	return 0
}

// write writes one result.
func (y *yqRun) write(v any, old *yaml.Node) ([]byte, error) {
	end := "\n"
	if y.join {
		end = ""
	}
	switch y.out {
	case "json":
		style := jq.Style{Indent: strings.Repeat(" ", y.indent)}
		if y.compact || y.indent == 0 {
			style.Indent = ""
		}
		if s, ok := v.(string); ok && y.raw {
			return []byte(s + end), nil
		}
		b, err := jq.NewPrinter(jq.Budget{Step: y.Step, Pay: y.Pay}).Append(nil, v, style)
		return append(b, end...), err
	case "yaml":
		switch v := v.(type) {
		case string:
			if !y.wrap {
				return []byte(v + end), nil
			}
		case nil, bool, float64, jq.Number:
			n := &yaml.Node{}
			scalarNode(n, v)
			return []byte(n.Value + end), nil
		}
		return writeYAML(y.Call, v, old, y.indent)
	}
	return writeFormat(y.out, v)
}
