package files

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carrel-dev/carrel/shell/tool"
)

// xargsRun is one run of xargs.
type xargsRun struct {
	*tool.Call
	in             *bufio.Reader
	delim          int // for -d and -0; -1: blanks, with quotes
	eof            string
	perLine        int
	perRun         int
	replace        string
	procs, max     int
	empty, verbose bool
	ask, exact     bool
	command        []string
	status         int
	stop           bool
	running        []tool.Process // the oldest first
	paid           int64
	input          io.Reader
}

// maxArgs is the longest command line that xargs makes.
const maxArgs = 128 << 10

// xargs runs a command with arguments that it reads.
func xargs(c *tool.Call) int {
	f, ok := c.Flags("+0a:d:E:e::I:i::L:l::n:P:prs:tx", "null=0", "arg-file=a", "delimiter=d", "eof=e", "replace=i", "max-lines=l", "max-args=n", "max-procs=P",
		"interactive=p", "no-run-if-empty=r", "max-chars=s", "verbose=t", "exit=x", "open-tty=\x81", "show-limits=\x82", "process-slot-var=\x83:")
	if !ok {
		return 1
	}
	x := &xargsRun{Call: c, delim: -1, procs: 1, max: maxArgs, empty: true}
	number := func(o tool.Flag, low int) (int, bool) {
		n, err := strconv.Atoi(o.Value)
		if err != nil {
			c.Errorf(1, "invalid number %q for -%c option", o.Value, o.Letter)
			tryHelp(c, 1)
			return 0, false
		}
		if n < low {
			c.Errorf(1, "value %s for -%c option should be >= %d", o.Value, o.Letter, low)
			tryHelp(c, 1)
			return 0, false
		}
		return n, true
	}
	for _, o := range f.All {
		good := true
		switch o.Letter {
		case '0':
			x.delim = 0
		case 'd':
			if x.delim, good = delimiter(o.Value); !good {
				return c.Errorf(1, "Invalid escape sequence %s in input delimiter specification.", o.Value)
			}
		case 'E', 'e':
			x.eof = o.Value
		case 'I', 'i':
			if x.replace = o.Value; !o.Has {
				x.replace = "{}"
			}
			x.perRun, x.perLine, x.exact = 0, 0, true
		case 'L', 'l':
			x.perLine = 1
			if o.Has {
				x.perLine, good = number(o, 1)
			}
			x.perRun, x.replace = 0, ""
		case 'n':
			x.perRun, good = number(o, 1)
			x.perLine = 0
			if x.perRun > 1 || x.replace == "" {
				x.replace = ""
			}
		case 'P':
			x.procs, good = number(o, 0)
		case 's':
			x.max, good = number(o, 1)
		case 'r':
			x.empty = false
		case 't':
			x.verbose = true
		case 'p':
			x.ask, x.verbose = true, true
		case 'x':
			x.exact = true
		case 0x82:
			fmt.Fprintf(c.Err, "Your environment variables take up 0 bytes\nPOSIX upper limit on argument length (this system): 2092953\n"+
				"POSIX smallest allowable upper limit on argument length (all systems): 4096\nMaximum length of command we could actually use: 2092953\n"+
				"Size of command buffer we are actually using: %d\nMaximum parallelism (--max-procs must be no greater): 2147483647\n", x.max)
		}
		if !good {
			return 1
		}
	}
	x.max = min(x.max, maxArgs)
	x.command = f.Args
	if len(x.command) == 0 {
		x.command = []string{"echo"}
	}
	var in io.Reader = c.In
	x.input = strings.NewReader("")
	if f.Has('a') {
		file, err := c.OpenIn(f.Value('a', ""))
		if err != nil {
			return c.Errorf(1, "Cannot open input file %s: %s", curly(f.Value('a', "")), errText(err))
		}
		defer file.Close()
		in, x.input = file, nil
	}
	x.in = bufio.NewReaderSize(in, 64<<10)
	x.loop()
	for len(x.running) > 0 {
		x.reap()
	}
	return x.status
}

// delimiter reads the argument of -d: a character or an escape.
func delimiter(s string) (int, bool) {
	if len(s) == 1 {
		return int(s[0]), true
	}
	if !strings.HasPrefix(s, `\`) {
		return 0, false
	}
	if at := strings.IndexByte("abfnrtv\\0", s[1]); at >= 0 && len(s) == 2 {
		return int("\a\b\f\n\r\t\v\\\x00"[at]), true
	}
	digits, base := s[1:], 8
	if s[1] == 'x' {
		digits, base = s[2:], 16
	}
	n, err := strconv.ParseUint(digits, base, 8)
	return int(n), err == nil
}

var errQuote = errors.New("quote")

// item reads one argument. line is true when a line ended after it. A line that ends in a blank
// continues on the next line.
func (x *xargsRun) item() (arg string, line bool, err error) {
	var b []byte
	started, quote := false, byte(0)
	for n := 1; ; n++ {
		if n%256 == 0 && !x.Step(16) {
			return "", false, tool.ErrStop
		}
		if len(b) > tool.MaxLine {
			return "", false, errors.New("argument line too long")
		}
		ch, rerr := x.in.ReadByte()
		if rerr != nil {
			if rerr == io.EOF && quote != 0 && x.delim < 0 {
				return "", false, errQuote
			}
			if rerr == io.EOF && started {
				return string(b), true, nil
			}
			return "", false, rerr
		}
		if x.delim >= 0 {
			if int(ch) == x.delim {
				return string(b), true, nil
			}
			started = true
			b = append(b, ch)
			continue
		}
		switch {
		case quote != 0 && ch == quote:
			quote = 0
		case quote != 0 && ch == '\n':
			if quote == '"' {
				return "", false, fmt.Errorf("unmatched double %w", errQuote)
			}
			return "", false, fmt.Errorf("unmatched single %w", errQuote)
		case quote != 0:
			b = append(b, ch)
		case ch == '\'' || ch == '"':
			quote, started = ch, true
		case ch == '\\':
			if ch, rerr = x.in.ReadByte(); rerr != nil {
				return string(b), true, nil
			}
			b, started = append(b, ch), true
		case ch == '\n':
			if started {
				return string(b), true, nil
			}
		case x.replace != "" && !started && (ch == ' ' || ch == '\t'):
		case x.replace == "" && (ch == ' ' || ch == '\t'):
			if started {
				// For -L, the line ends here if only a line end follows. A blank before the line
				// end joins the next line.
				next, perr := x.in.Peek(1)
				return string(b), perr != nil && x.perLine == 0 || perr == nil && false && next[0] == '\n', nil
			}
		default:
			b, started = append(b, ch), true
		}
	}
}

// loop reads all arguments and runs the command lines.
func (x *xargsRun) loop() {
	base := 0
	for _, a := range x.command {
		base += len(a) + 1
	}
	var args []string
	size, lines, ran := base, 0, false
	run := func() {
		ran = true
		x.run(append(append([]string{}, x.command...), args...))
		_ = x.Pay(-x.paid)
		args, size, lines, x.paid = nil, base, 0, 0
	}
	for !x.stop {
		if !x.Step(2) {
			return
		}
		arg, line, err := x.item()
		if err == io.EOF {
			break
		}
		if err != nil {
			if len(args) > 0 && errors.Is(err, errQuote) && x.replace == "" {
				run()
			}
			if errors.Is(err, errQuote) {
				kind := "single"
				if strings.Contains(err.Error(), "double") {
					kind = "double"
				}
				x.status = x.Errorf(1, "unmatched %s quote; by default quotes are special to xargs unless you use the -0 option", kind)
			} else if !x.Stopped(err) {
				x.status = x.Errorf(1, "%s", errText(err))
			}
			return
		}
		if x.eof != "" && arg == x.eof && x.delim < 0 {
			break
		}
		if x.replace != "" {
			if arg == "" && x.delim < 0 {
				continue
			}
			ran = true
			full := make([]string, len(x.command))
			total := 0
			for i, w := range x.command {
				full[i] = w
				if i > 0 || true {
					full[i] = strings.ReplaceAll(w, x.replace, arg)
				}
				if total += len(full[i]) + 1; total > x.max {
					x.status = x.Errorf(1, "command too long")
					return
				}
			}
			x.run(full)
			continue
		}
		if x.perLine == 0 && size+len(arg)+1 > x.max {
			if len(args) == 0 || x.exact {
				x.status = x.Errorf(1, "argument line too long")
				return
			}
			run()
			if x.stop {
				return
			}
			if size+len(arg)+1 > x.max {
				x.status = x.Errorf(1, "argument line too long")
				return
			}
		}
		if x.Pay(int64(len(arg)+32)) != nil {
			return
		}
		x.paid += int64(len(arg) + 32)
		args = append(args, arg)
		size += len(arg) + 1
		if line {
			lines++
		}
		if x.perRun > 0 && len(args) == x.perRun || x.perLine > 0 && lines == x.perLine {
			run()
		}
	}
	if !x.stop && (len(args) > 0 || !ran && x.empty && x.replace == "") {
		run()
	}
}

// run runs one command line.
func (x *xargsRun) run(args []string) {
	if x.verbose {
		said := make([]string, len(args))
		for i, a := range args {
			said[i] = shellQuote(a, false)
		}
		text := strings.Join(said, " ")
		if x.ask {
			fmt.Fprintf(x.Err, "%s?...", text)
			x.Errorf(1, "there is no terminal to ask on")
			x.status, x.stop = 1, true
			return
		}
		fmt.Fprintln(x.Err, text)
	}
	child := tool.Child{Args: args, In: x.input}
	if x.procs == 1 {
		x.account(x.Run(child), args[0])
		return
	}
	for x.procs > 0 && len(x.running) >= x.procs || len(x.running) >= 256 {
		x.reap()
	}
	if x.stop {
		return
	}
	p, err := x.Start(child)
	for err != nil && len(x.running) > 0 {
		x.reap()
		p, err = x.Start(child)
	}
	if err != nil {
		x.status, x.stop = x.Errorf(1, "cannot fork: %s", errText(err)), true
		return
	}
	x.running = append(x.running, p)
}

// reapInterval is how often reap checks the younger commands while it waits for the oldest.
const reapInterval = 2 * time.Millisecond

// reap waits for one of the commands. It waits through the machine. In a deterministic machine, any
// other kind of wait would prevent the commands from running.
func (x *xargsRun) reap() {
	for {
		at := slices.IndexFunc(x.running, func(p tool.Process) bool { return p.Ended(0) })
		if at < 0 && !x.running[0].Ended(reapInterval) {
			if x.Step(1) {
				continue
			}
			x.running, x.stop = nil, true // xargs is being ended, and no longer owns its commands
			return
		}
		at = max(at, 0)
		status, signal := x.running[at].Wait()
		if signal != 0 {
			status = 128 + signal
		}
		x.running = slices.Delete(x.running, at, at+1)
		x.account(status, x.command[0])
		return
	}
}

// account adds a command's status to the status of xargs.
func (x *xargsRun) account(status int, name string) {
	switch {
	case status == 0:
	case status == 255:
		x.Errorf(124, "%s: exited with status 255; aborting", name)
		x.status, x.stop = 124, true
	case status == 126, status == 127:
		x.status, x.stop = status, true
	case status > 128:
		x.status, x.stop = x.Errorf(125, "%s: terminated by signal %d", name, status-128), true
	default:
		if x.status == 0 {
			x.status = 123
		}
	}
}
