package data

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/tools/data/jq"
)

// jqRun is one run of jq, or of yq.
type jqRun struct {
	*tool.Call
	filter   string
	has      bool
	files    []string
	paths    []string // of modules
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

// library returns the directories that are searched for modules.
func (r *jqRun) library() []string {
	if len(r.paths) > 0 {
		return r.paths
	}
	return []string{"~/.jq", "/usr/lib/jq", "/usr/lib"}
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

// run compiles the program and runs it on the inputs.
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
		Load:   r.readFile, Paths: r.library(), Home: r.Getenv("HOME"),
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

// broken ends jq after an error in an input.
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

// feed runs the program on one input. When ok is false, jq ends with status.
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
