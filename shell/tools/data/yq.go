package data

import (
	"bytes"
	"fmt"
	"io"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/tools/data/jq"
	"github.com/carrel-dev/carrel/shell/vfs"
)

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
	// If the only word is the name of a file, it means the whole file.
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

var (
	keysCall  = regexp.MustCompile(`(^|[^."'\w$])keys($|[^"'\w:])`)
	envCall   = regexp.MustCompile(`\b(str)?env\(\s*([A-Za-z_][A-Za-z0-9_]*)\s*\)`)
	ireduce   = regexp.MustCompile(`^\s*\.\s+as\s+(\$\w+)\s+ireduce\s*`)
	fileIndex = regexp.MustCompile(`select\(\s*(?:fileIndex|fi|file_index)\s*==\s*(\d+)\s*\)`)
	comments  = regexp.MustCompile(`\.\.\.\s*comments\s*=\s*""`)
)

// translate replaces yq's own syntax with jq's.
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

// read reads the documents of all files.
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
