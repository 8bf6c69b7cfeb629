package data

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/carrel-dev/carrel/internal/sh/tool"
	"github.com/carrel-dev/carrel/internal/sh/tools/data/jq"
)

const jqUsage = `Usage:	jq [OPTIONS] FILTER [FILES...]
	jq [OPTIONS] --args FILTER [ARGUMENTS...]
	jq [OPTIONS] --jsonargs FILTER [JSON_VALUES...]
`

const jqHelp = `
jq is a tool for processing JSON inputs, applying the given filter to
its JSON text inputs and producing the filter's results as JSON on
standard output.

Options:
  -n, --null-input          use ` + "`null`" + ` as the single input value
  -R, --raw-input           read each line as string instead of JSON
  -s, --slurp               read all inputs into an array
  -c, --compact-output      compact instead of pretty-printed output
  -r, --raw-output          output strings without escapes and quotes
      --raw-output0         like -r with NUL after each output
  -j, --join-output         like -r without newline after each output
  -a, --ascii-output        only ASCII, the rest as escapes
  -S, --sort-keys           sort keys of objects
  -C, --color-output        colorize output
  -M, --monochrome-output   don't colorize output
      --tab                 indent with tabs
      --indent n            indent with n spaces (max 7)
      --stream              parse input as stream of paths and leaves
      --seq                 use application/json-seq
  -f, --from-file file      load the filter from a file
      --arg name value      set $name to a string
      --argjson name value  set $name to a JSON value
      --slurpfile name file set $name to an array of a file's values
      --rawfile name file   set $name to a file's text
      --args                what follows are strings for $ARGS.positional
      --jsonargs            what follows are JSON values for it
  -e, --exit-status         exit by the last output: 0, 1 or 4
  -V, --version             show the version
  -h, --help                show this help
`

// jqRun is one run of jq, or of yq.
type jqRun struct {
	*tool.Call
	filter   string
	has      bool
	files    []string
	fromFile bool
	style    jq.Style
	null, raw, slurp, out, join, zero,
	status, stream, seq bool
	named      *jq.Object
	positional []any
	next       func() (any, error) // the inputs
	decoder    *jq.Decoder
	file       string
	last       any
	some       bool
	fail       int
	buf        []byte
	printer    *jq.Printer
}

func (r *jqRun) budget() jq.Budget {
	return jq.Budget{Step: r.Step, Pay: r.Pay, Used: r.Machine().Memory}
}

// runJQ is jq.
func runJQ(c *tool.Call) int {
	r := &jqRun{Call: c, style: jq.Style{Indent: "  "}, named: jq.NewObject(4)}
	if status, ok := r.parse(); !ok {
		return status
	}
	if r.fromFile {
		text, err := r.readFile(r.filter)
		if err != nil {
			return c.Errorf(2, "error: Could not open %s: %s", r.filter, tool.ErrText(err))
		}
		r.filter = text
	}
	r.next = r.inputs()
	return r.run()
}

func (r *jqRun) readFile(name string) (string, error) {
	in, err := r.OpenIn(name)
	if err != nil {
		return "", err
	}
	data, err := r.ReadAll(in)
	_ = in.Close() // it was read
	return string(data), err
}

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
		case plain || len(a) < 2 || a[0] != '-':
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
					if a != "-L" || len(rest) == 0 {
						break
					}
					rest = rest[1:]
					continue
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

// long handles one option and returns what is left of the arguments.
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
	args := rest[:need]
	rest = rest[need:]
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
	case "unbuffered", "library-path", "stream-errors":
	case "indent":
		n, err := strconv.Atoi(args[0])
		switch {
		case err != nil || n < -1:
			status, ok := r.wrong("Cannot indent less than -1")
			return nil, status, ok
		case n > 7:
			status, ok := r.wrong("Cannot indent more than 7 characters")
			return nil, status, ok
		}
		r.style.Indent = strings.Repeat(" ", max(n, 0))
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
		text, err := r.readFile(args[1])
		if err != nil {
			status, ok := r.wrong("Bad JSON in --%s %s %s: Could not open %s: %s", name, args[0], args[1], args[1], tool.ErrText(err))
			return nil, status, ok
		}
		if name == "rawfile" {
			r.bind(args[0], text)
			break
		}
		all := []any{}
		d := jq.NewDecoder(strings.NewReader(text), r.budget())
		for {
			v, err := d.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				status, ok := r.wrong("Bad JSON in --%s %s %s: %v", name, args[0], args[1], err)
				return nil, status, ok
			}
			all = append(all, v)
		}
		r.bind(args[0], all)
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

// bind sets a variable, unless it is set: the first one counts.
func (r *jqRun) bind(name string, v any) {
	if _, ok := r.named.Get(name); !ok {
		r.named.Set(name, v)
	}
}

// run compiles the program and feeds it.
func (r *jqRun) run() int {
	vars := map[string]any{}
	for i := range r.named.Len() {
		k, v := r.named.At(i)
		vars[k] = v
	}
	args := jq.NewObject(2)
	args.Set("positional", append([]any{}, r.positional...))
	args.Set("named", r.named)
	vars["ARGS"], vars["__prog_args"] = args, args
	p, err := jq.Compile(r.filter, jq.Options{
		Budget: r.budget(), Vars: vars, Input: r.next, Environ: r.Environ,
		Now:    func() float64 { return float64(r.Now().UnixNano()) / 1e9 },
		Debug:  func(v any) error { _, err := fmt.Fprintf(r.Err, "[\"DEBUG:\",%s]\n", jq.Text(v)); return err },
		Stderr: func(s string) error { _, err := io.WriteString(r.Err, s); return err },
		Line:   func() int { return r.line() },
		FileName: func() any {
			if r.file == "" {
				return nil
			}
			return r.file
		},
	})
	if err != nil {
		var ce *jq.CompileError
		if !errors.As(err, &ce) {
			return 5
		}
		fmt.Fprintf(r.Err, "jq: error: %s at <top-level>, line 1:\n%s\njq: 1 compile error\n", err, r.filter)
		return 3
	}
	if r.null {
		return r.end(r.feed(p, nil))
	}
	for {
		v, err := r.next()
		if err == io.EOF {
			return r.end(0, true)
		}
		if err != nil {
			return r.broken(err)
		}
		if status, ok := r.feed(p, v); !ok {
			return r.end(status, false)
		}
	}
}

func (r *jqRun) line() int {
	if r.decoder == nil {
		return 0
	}
	return r.decoder.Lines
}

// broken ends with the error of an input.
func (r *jqRun) broken(err error) int {
	_ = r.flush() // what was printed before
	if r.Stopped(err) || errors.Is(err, jq.ErrStop) {
		return 5
	}
	var s *jq.SyntaxError
	if errors.As(err, &s) {
		fmt.Fprintf(r.Err, "jq: parse error: %s\n", err)
		return 2
	}
	return r.Errorf(2, "error: %s", tool.ErrText(err))
}

// feed runs the program on one input; ok is false when all ends with status.
func (r *jqRun) feed(p *jq.Program, v any) (status int, ok bool) {
	err := p.Run(v, r.print)
	if err == nil {
		return 0, true
	}
	if ferr := r.flush(); ferr != nil {
		return 2, false
	}
	var value *jq.ValueError
	var halt *jq.Halt
	switch {
	case errors.As(err, &halt):
		if s, ok := halt.Value.(string); ok && halt.Say {
			_, _ = io.WriteString(r.Err, s) // nothing can be done
		} else if halt.Say {
			fmt.Fprintln(r.Err, jq.Text(halt.Value))
		}
		return halt.Status & 255, false
	case errors.As(err, &value):
		where := "<unknown>"
		if r.decoder != nil && r.file != "" {
			where = r.file + ":" + strconv.Itoa(r.line())
		} else if r.decoder != nil {
			where = "<stdin>:" + strconv.Itoa(r.line())
		}
		if _, is := value.Value.(string); !is && value.Value == nil {
			fmt.Fprintf(r.Err, "jq: error (at %s) (not a string): null\n", where)
		} else if !is {
			fmt.Fprintf(r.Err, "jq: error (at %s) (not a string): %s\n", where, jq.Text(value.Value))
		} else {
			fmt.Fprintf(r.Err, "jq: error (at %s): %s\n", where, value.Error())
		}
		r.fail = 5
		return 5, true
	}
	var s *jq.SyntaxError
	if errors.As(err, &s) {
		fmt.Fprintf(r.Err, "jq: error (at <stdin>:%d): %s\n", r.line(), err)
		r.fail = 5
		return 5, true
	}
	return 5, false
}

// end returns the exit status: of a halt, of the last failure, or with -e of the last output.
func (r *jqRun) end(status int, ok bool) int {
	if err := r.flush(); err != nil {
		if !r.Stopped(err) {
			r.Errorf(2, "error: writing output failed: %s", tool.ErrText(err))
		}
		return 2
	}
	switch {
	case !ok:
		return status
	case r.fail != 0:
		return r.fail
	case !r.status:
		return 0
	case !r.some:
		return 4
	case !jq.Truthy(r.last):
		return 1
	}
	return 0
}

func (r *jqRun) print(v any) error {
	r.last, r.some = v, true
	if r.seq {
		r.buf = append(r.buf, 0x1e)
	}
	if s, ok := v.(string); ok && r.out {
		r.buf = append(r.buf, s...)
	} else {
		if r.printer == nil {
			r.printer = jq.NewPrinter(r.budget())
		}
		var err error
		if r.buf, err = r.printer.Append(r.buf, v, r.style); err != nil {
			return err
		}
	}
	switch {
	case r.zero:
		if s, ok := v.(string); ok && strings.IndexByte(s, 0) >= 0 {
			return &jq.ValueError{Value: "Cannot dump a string containing NUL with --raw-output0 option"}
		}
		r.buf = append(r.buf, 0)
	case !r.join:
		r.buf = append(r.buf, '\n')
	}
	return r.flushIf()
}

func (r *jqRun) flushIf() error {
	if len(r.buf) < 64<<10 {
		return nil
	}
	return r.flush()
}

func (r *jqRun) flush() error {
	if len(r.buf) == 0 {
		return nil
	}
	_, err := r.Out.Write(r.buf)
	r.buf = r.buf[:0]
	return err
}

// inputs returns the function that gets the next input of all files.
func (r *jqRun) inputs() func() (any, error) {
	files := r.files
	if len(files) == 0 {
		files = []string{"-"}
	}
	var in io.ReadCloser
	open := func() (bool, error) {
		for in == nil {
			if len(files) == 0 {
				return false, nil
			}
			name := files[0]
			files = files[1:]
			f, err := r.OpenIn(name)
			if err != nil {
				r.Errorf(2, "error: Could not open %s: %s", name, tool.ErrText(err))
				r.fail = 2
				continue
			}
			if r.file = name; len(r.files) == 0 {
				r.file = ""
			}
			in = f
			r.decoder = jq.NewDecoder(f, r.budget())
		}
		return true, nil
	}
	shut := func() { _ = in.Close(); in = nil } // it was read
	switch {
	case r.raw:
		return r.rawInputs(open, &in, shut)
	case r.stream:
		return r.streamInputs(open, shut)
	}
	one := func() (any, error) {
		for {
			if ok, err := open(); !ok {
				if err == nil {
					err = io.EOF
				}
				return nil, err
			}
			v, err := r.decoder.Next()
			if err != io.EOF {
				return v, err
			}
			shut()
		}
	}
	if !r.slurp {
		return one
	}
	done := false
	return func() (any, error) {
		if done {
			return nil, io.EOF
		}
		done = true
		all := []any{}
		for {
			v, err := one()
			if err == io.EOF {
				return all, r.Pay(int64(len(all)) * 16)
			}
			if err != nil {
				return nil, err
			}
			all = append(all, v)
		}
	}
}

// streamInputs gives the events of the inputs.
func (r *jqRun) streamInputs(open func() (bool, error), shut func()) func() (any, error) {
	var events []any
	return func() (any, error) {
		for len(events) == 0 {
			ok, err := open()
			if !ok {
				if err == nil {
					err = io.EOF
				}
				return nil, err
			}
			v, err := r.decoder.Next()
			if err == io.EOF {
				shut()
				continue
			}
			if err == nil {
				err = jq.Stream(v, r.budget(), func(e any) error { events = append(events, e); return r.Pay(64) })
			}
			if err != nil {
				return nil, err
			}
			if err := r.Pay(-64 * int64(len(events))); err != nil {
				return nil, err
			}
		}
		e := events[0]
		events = events[1:]
		return e, nil
	}
}

// rawInputs gives lines, or with -s the whole text.
func (r *jqRun) rawInputs(open func() (bool, error), in *io.ReadCloser, shut func()) func() (any, error) {
	var text []byte
	var line []byte
	done := false
	buf := make([]byte, 32<<10)
	fill := func() (bool, error) {
		for {
			if ok, err := open(); !ok {
				return false, err
			}
			n, err := (*in).Read(buf)
			if n > 0 {
				if !r.Step(1 + n>>8) {
					return false, jq.ErrStop
				}
				text = append(text, buf[:n]...)
			}
			if err == io.EOF {
				shut()
			} else if err != nil {
				return false, err
			}
			if n > 0 {
				return true, nil
			}
		}
	}
	if r.slurp {
		return func() (any, error) {
			if done {
				return nil, io.EOF
			}
			done = true
			for {
				before := len(text)
				more, err := fill()
				if err == nil {
					err = r.Pay(int64(len(text) - before))
				}
				if err != nil {
					return nil, err
				}
				if !more {
					return strings.ToValidUTF8(string(text), "\ufffd"), nil
				}
			}
		}
	}
	return func() (any, error) {
		for {
			if i := bytes.IndexByte(text, '\n'); i >= 0 {
				s := string(append(line, text[:i]...))
				line, text = line[:0], text[i+1:]
				return strings.ToValidUTF8(s, "\ufffd"), nil
			}
			line = append(line, text...)
			text = text[:0]
			if err := r.Pay(int64(0)); err != nil || len(line) > tool.MaxLine {
				return nil, errors.New("line too long")
			}
			more, err := fill()
			if err != nil {
				return nil, err
			}
			if !more && len(text) == 0 {
				if len(line) == 0 {
					return nil, io.EOF
				}
				s := string(line)
				line = nil
				return strings.ToValidUTF8(s, "\ufffd"), nil
			}
		}
	}
}
