// Package awk has the awk language, for gawk, mawk and awk alike: a copy of goawk whose ways out lead to the machine, with
// expressions of package regex, and with what gawk has more. It lacks namespaces, extensions and the network; SYMTAB and
// FUNCTAB are empty, and a parameter is a scalar or an array by how its function uses it.
package awk

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/carrel-dev/carrel/internal/sh/tool"
	"github.com/carrel-dev/carrel/internal/sh/tools/awk/goawk/interp"
	"github.com/carrel-dev/carrel/internal/sh/tools/awk/goawk/lexer"
	"github.com/carrel-dev/carrel/internal/sh/tools/awk/goawk/parser"
)

// Commands returns the programs of this package by name.
func Commands() map[string]tool.Command {
	return map[string]tool.Command{"awk": run, "gawk": run, "mawk": run}
}

const usage = `Usage: awk [POSIX or GNU style options] -f progfile [--] file ...
Usage: awk [POSIX or GNU style options] [--] 'program' file ...
	-f progfile		--file=progfile
	-F fs			--field-separator=fs
	-v var=val		--assign=var=val
	-e 'program-text'	--source='program-text'
	-k			--csv
	-h			--help
	-V			--version
`

// maxSource is the longest program.
const maxSource = 512 << 10

const (
	optPosix = 0x80 + iota
	optCSV
)

// run is the command.
func run(c *tool.Call) int {
	f, ok := c.Flags("+F:f:v:e:E:i:l:bcCdghkmnNoOprsStVW:", "file=f", "field-separator=F", "assign=v", "source=e", "exec=E", "help=h", "version=V", "csv=k",
		"posix="+string([]byte{optPosix}), "characters-as-bytes=b", "traditional=c", "re-interval=r", "sandbox=S", "use-lc-numeric=N", "optimize=O", "no-optimize=s",
		"include=i", "load=l", "bignum=M", "lint=t", "non-decimal-data=n")
	if !ok {
		return 2
	}
	switch {
	case f.Has('h'):
		fmt.Fprint(c.Out, usage)
		return 0
	case f.Has('V'):
		fmt.Fprintln(c.Out, "GNU Awk 5.2.1 compatible (simulated, on goawk 1.29.1)")
		return 0
	case f.Has('l'):
		return c.Errorf(2, "fatal: --load is not supported")
	}
	source, args, err := program(c, f)
	if err != nil {
		if c.Stopped(err) {
			return 2
		}
		var none noInclude
		if errors.As(err, &none) {
			return c.Errorf(1, "error: %s", err)
		}
		return c.Errorf(2, "fatal: %s", err)
	}
	if source == "" && !f.Has('f') && !f.Has('e') && len(f.Args) == 0 {
		fmt.Fprint(c.Err, usage)
		return 1
	}
	return execute(c, f, source, args)
}

// program returns the text of the program and the remaining arguments.
func program(c *tool.Call, f tool.Flags) (source string, args []string, err error) {
	args = f.Args
	var b strings.Builder
	given := false
	inc := &includes{Call: c, seen: map[string]bool{}}
	for _, o := range f.All {
		switch o.Letter {
		case 'f', 'E':
			in, err := c.OpenIn(o.Value)
			if err != nil {
				return "", nil, fmt.Errorf("cannot open source file `%s' for reading: %s", o.Value, tool.ErrText(err))
			}
			data, err := c.ReadAll(in)
			_ = in.Close() // it was read
			if err != nil {
				return "", nil, err
			}
			b.Write(data)
			b.WriteByte('\n')
			given = true
		case 'i':
			text, err := inc.file(o.Value)
			if err != nil {
				return "", nil, err
			}
			b.WriteString(text)
		case 'e':
			b.WriteString(o.Value + "\n")
			given = true
		}
	}
	if !given {
		if len(args) == 0 {
			return "", nil, nil
		}
		b.WriteString(args[0])
		args = args[1:]
	}
	text, err := inc.expand(b.String())
	if err != nil {
		return "", nil, err
	}
	if len(text) > maxSource {
		return "", nil, errors.New("program too long")
	}
	return text, args, nil
}

// execute parses and runs a program.
func execute(c *tool.Call, f tool.Flags, source string, args []string) int {
	if slices.ContainsFunc(f.Values('v'), func(v string) bool { return strings.HasPrefix(v, "IGNORECASE=") }) {
		source += "\nBEGIN { IGNORECASE = IGNORECASE }" // only names of the program have values
	}
	var in *interp.Interpreter
	funcs := natives(c, func() *interp.Interpreter { return in })
	prog, err := parser.ParseProgram([]byte(source), &parser.ParserConfig{Funcs: funcs, Host: c})
	if err != nil {
		var pe *parser.ParseError
		if errors.As(err, &pe) {
			line := ""
			if lines := strings.Split(source, "\n"); pe.Position.Line >= 1 && pe.Position.Line <= len(lines) {
				line = lines[pe.Position.Line-1]
			}
			fmt.Fprintf(c.Err, "%s: cmd. line:%d: %s\n%s: cmd. line:%d: %s^ %s\n", c.Base(), pe.Position.Line, line, c.Base(), pe.Position.Line,
				strings.Repeat(" ", max(pe.Position.Column-1, 0)), pe.Message)
			for _, fatal := range []string{"undefined function", "can't use", "can't pass", "expected printf args"} {
				if strings.HasPrefix(pe.Message, fatal) {
					return 2
				}
			}
			return 1
		}
		return c.Errorf(1, "%s", err)
	}
	out := bufio.NewWriterSize(c.Out, 64<<10)
	h := &host{Call: c}
	config := &interp.Config{Host: h, Stdin: c.In, Output: out, Error: c.Err, Argv0: c.Base(), Args: args, Chars: !f.Has('b'), Funcs: funcs}
	for _, kv := range c.Environ() {
		if k, v, ok := strings.Cut(kv, "="); ok {
			config.Environ = append(config.Environ, k, v)
		}
	}
	if config.Environ == nil {
		config.Environ = []string{}
	}
	if f.Has('k') {
		config.InputMode = interp.CSVMode
	}
	for _, o := range f.All {
		switch o.Letter {
		case 'F':
			fs := o.Value
			if u, err := lexer.Unescape(fs); err == nil {
				fs = u
			}
			config.Vars = append(config.Vars, "FS", fs)
		case 'v':
			k, v, ok := strings.Cut(o.Value, "=")
			if !ok || k == "" {
				return c.Errorf(2, "fatal: `%s' argument to `-v' not in `var=value' form", o.Value)
			}
			if u, err := lexer.Unescape(v); err == nil {
				v = u
			}
			config.Vars = append(config.Vars, k, v)
		}
	}
	if in, err = interp.New(prog); err != nil {
		return c.Errorf(2, "fatal: %s", err)
	}
	status, err := in.Execute(config)
	if ferr := out.Flush(); err == nil {
		err = ferr
	}
	if err != nil {
		if c.Stopped(err) || errors.Is(err, interp.ErrStopped) && !c.Step(1) {
			return 2
		}
		return c.Errorf(2, "fatal: %s", tool.ErrText(err))
	}
	return status & 0xff
}

// host is the machine as goawk sees it.
type host struct {
	*tool.Call
}

var _ interp.Host = (*host)(nil)

// Open implements interp.Host.
func (h *host) Open(name string) (io.ReadCloser, error) {
	f, err := h.Call.Open(name, readFlags, 0)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err == nil && info.Mode.IsDir() {
		_ = f.Close()
		return nil, errIsDir
	}
	return f, nil
}

// Create implements interp.Host.
func (h *host) Create(name string, appending bool) (io.WriteCloser, error) {
	flags := writeFlags
	if appending {
		flags = appendFlags
	}
	return h.Call.Open(name, flags, 0o666)
}

// System implements interp.Host.
func (h *host) System(command string) int {
	return h.Run(tool.Child{Args: []string{"sh", "-c", command}})
}

// Warn implements interp.Host.
func (h *host) Warn(format string, args ...any) { h.Errorf(0, format, args...) }

// IDs implements interp.Host.
func (h *host) IDs() map[string]int {
	cred := h.FS().Cred()
	return map[string]int{"uid": int(cred.UID), "euid": int(cred.UID), "gid": int(cred.GID), "egid": int(cred.GID)}
}

// ErrText implements interp.Host.
func (h *host) ErrText(err error) string { return tool.ErrText(err) }
