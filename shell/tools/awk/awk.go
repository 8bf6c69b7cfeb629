// Package awk has the awk language for gawk, mawk and awk: POSIX's language with gawk's additions.
// Its parts are separate packages: syntax parses programs, resolve finds the meaning of their
// names, and eval compiles and runs them. Extensions and the network are missing. SYMTAB and
// FUNCTAB are empty.
package awk

import (
	"errors"
	"fmt"
	"strings"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/tools/awk/eval"
	"github.com/carrel-dev/carrel/shell/tools/awk/resolve"
	"github.com/carrel-dev/carrel/shell/tools/awk/syntax"
)

// Commands returns the programs of this package by name.
func Commands() map[string]tool.Command {
	return map[string]tool.Command{"awk": run, "gawk": run, "mawk": run}
}

const usage = `Usage: awk [options] 'program' [file ...]
       awk [options] -f progfile [--] [file ...]
  -f, --file=FILE             read the program from FILE; may be given again
  -e, --source=TEXT           a piece of the program
  -i, --include=FILE          like @include "FILE"
  -E, --exec=FILE             like -f, the last option; arguments assign nothing
  -F, --field-separator=FS    what FS is at first
  -v, --assign=VAR=VALUE      assign before the program begins
  -b, --characters-as-bytes   a character is a byte
  -k, --csv                   input is comma-separated values
  -h, --help                  this text
  -V, --version               the version
`

// maxSource is the longest program.
const maxSource = 512 << 10

// optPosix stands for an option without a short form.
const optPosix = 0x80

// run is the command.
func run(c *tool.Call) int {
	f, ok := c.Flags("+F:f:v:e:E:i:l:bcCdD::ghIkmMnNo::Op::rsStL::VW:", "file=f",
		"field-separator=F", "assign=v", "source=e", "exec=E", "help=h", "version=V", "csv=k",
		"posix="+string([]byte{optPosix}), "characters-as-bytes=b", "traditional=c",
		"re-interval=r", "sandbox=S", "use-lc-numeric=N", "optimize=O", "no-optimize=s",
		"include=i", "load=l", "bignum=M", "lint=L", "lint-old=t", "non-decimal-data=n",
		"dump-variables=d", "profile=p", "pretty-print=o", "gen-pot=g", "copyright=C", "trace=I",
		"debug=D")
	if !ok {
		return 2
	}
	switch {
	case f.Has('h'):
		fmt.Fprint(c.Out, usage)
		return 0
	case f.Has('V'):
		fmt.Fprintln(c.Out, "GNU Awk 5.2.1 compatible (simulated)")
		return 0
	case f.Has('l'):
		return c.Errorf(2, "fatal: --load is not supported")
	}
	inc := &includes{Call: c, seen: map[string]bool{}}
	units, args, ok, err := sources(c, f, inc)
	if err != nil {
		return failed(c, err)
	}
	if !ok {
		fmt.Fprint(c.Err, usage)
		return 1
	}
	return execute(c, f, inc, units, args)
}

// sources returns the parts of the program and the remaining arguments. ok is false when there is
// no program.
func sources(c *tool.Call, f tool.Flags, inc *includes) (units []syntax.Unit, args []string,
	ok bool, err error) {
	args = f.Args
	for _, o := range f.All {
		switch o.Letter {
		case 'f', 'E':
			u, err := inc.read(o.Value)
			if err != nil {
				return nil, nil, false, err
			}
			units, ok = append(units, u), true
		case 'i':
			u, fresh, err := inc.include(o.Value)
			if err != nil {
				return nil, nil, false, err
			}
			if fresh {
				units = append(units, u)
			}
		case 'e':
			units, ok = append(units, syntax.Unit{Text: o.Value}), true
		}
	}
	if !ok {
		if len(args) == 0 {
			return nil, nil, false, nil
		}
		units, args = append(units, syntax.Unit{Text: args[0]}), args[1:]
	}
	for i := range units {
		if len(units[i].Text) > maxSource {
			return nil, nil, false, errors.New("program too long")
		}
	}
	return units, args, true, nil
}

// execute parses and runs a program.
func execute(c *tool.Call, f tool.Flags, inc *includes, units []syntax.Unit, args []string) int {
	warn := func(unit string, line int, msg string) {
		fmt.Fprintf(c.Err, "%s: %swarning: %s\n", c.Base(), place(unit, line), msg)
	}
	tree, err := syntax.Parse(units, syntax.Options{Include: inc.named, Warn: warn,
		Step: c.Step})
	if err != nil {
		return failed(c, err)
	}
	prog, err := resolve.Resolve(tree, warn)
	if err != nil {
		return failed(c, err)
	}
	opt := eval.Options{Args: args, Bytes: f.Has('b'), CSV: f.Has('k'), NoVars: f.Has('E')}
	for _, o := range f.All {
		switch o.Letter {
		case 'F':
			opt.Vars = append(opt.Vars, [2]string{"FS", o.Value})
		case 'v':
			k, v, ok := strings.Cut(o.Value, "=")
			if !ok || k == "" {
				return c.Errorf(1, "`%s' argument to `-v' not in `var=value' form", o.Value)
			}
			opt.Vars = append(opt.Vars, [2]string{k, v})
		}
	}
	status, err := eval.Run(c, prog, opt)
	if err != nil {
		return failed(c, err)
	}
	return status
}

// place returns the location of an error, as it stands at the beginning of messages.
func place(unit string, line int) string {
	switch {
	case line == 0:
		return ""
	case unit == "":
		return fmt.Sprintf("cmd. line:%d: ", line)
	}
	return fmt.Sprintf("%s:%d: ", unit, line)
}

// failed reports the error that ended a program, in gawk's words, and returns the status.
func failed(c *tool.Call, err error) int {
	var fatal *eval.Fatal
	var bad *syntax.Error
	switch {
	case errors.Is(err, eval.ErrStopped), c.Stopped(err):
		return 2
	case errors.As(err, &fatal):
		at := place(fatal.Unit, fatal.Line)
		if fatal.File != "" {
			at += fmt.Sprintf("(FILENAME=%s FNR=%.0f) ", fatal.File, fatal.FNR)
		}
		return c.Errorf(2, "%sfatal: %s", at, fatal.Msg)
	case errors.As(err, &bad):
		at := place(bad.Unit, bad.Line)
		if bad.Source == "" {
			c.Errorf(0, "%s%s", at, bad.Msg)
		} else {
			c.Errorf(0, "%s%s", at, bad.Source)
			c.Errorf(0, "%s%s^ %s", at, strings.Repeat(" ", bad.Column), bad.Msg)
		}
		if bad.Fatal {
			return 2
		}
		return 1
	}
	var none noSource
	if errors.As(err, &none) {
		if none.included {
			return c.Errorf(1, "error: %s", err)
		}
		return c.Errorf(2, "fatal: %s", err)
	}
	return c.Errorf(2, "fatal: %s", tool.ErrText(err))
}
