package system

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/tools/text/usage"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// parseDuration reads 1, 0.5, 2m, 1h, 3d, infinity.
func parseDuration(s string) (time.Duration, error) {
	unit := time.Second
	if s == "inf" || s == "infinity" {
		return math.MaxInt64, nil
	}
	if n := len(s); n > 1 {
		switch s[n-1] {
		case 's':
			s = s[:n-1]
		case 'm':
			unit, s = time.Minute, s[:n-1]
		case 'h':
			unit, s = time.Hour, s[:n-1]
		case 'd':
			unit, s = 24*time.Hour, s[:n-1]
		}
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) || f < 0 || math.IsNaN(f) || strings.IndexByte(s, '_') >= 0 {
		return 0, errors.New("invalid time interval")
	}
	if f >= float64(math.MaxInt64)/float64(unit) {
		return math.MaxInt64, nil
	}
	return time.Duration(math.Ceil(f * float64(unit))), nil
}

func sleep(c *tool.Call) int {
	f, ok := c.Flags("")
	if !ok {
		return 1
	}
	if len(f.Args) == 0 {
		return usage.Missing(c, 1)
	}
	var total time.Duration
	bad := false
	for _, a := range f.Args {
		d, err := parseDuration(a)
		if err != nil {
			c.Errorf(1, "invalid time interval ‘%s’", a)
			bad = true
		}
		if total += d; total < 0 {
			total = math.MaxInt64
		}
	}
	if bad {
		return usage.Try(c, 1)
	}
	if !c.Sleep(total) {
		return 1
	}
	return 0
}

// signals are the signals that can be named.
var signals = map[string]int{"HUP": 1, "INT": 2, "QUIT": 3, "ILL": 4, "TRAP": 5, "ABRT": 6, "IOT": 6, "BUS": 7, "FPE": 8, "KILL": 9, "USR1": 10, "SEGV": 11, "USR2": 12,
	"PIPE": 13, "ALRM": 14, "TERM": 15, "STKFLT": 16, "CHLD": 17, "CONT": 18, "STOP": 19, "TSTP": 20, "TTIN": 21, "TTOU": 22, "URG": 23, "XCPU": 24, "XFSZ": 25,
	"VTALRM": 26, "PROF": 27, "WINCH": 28, "IO": 29, "POLL": 29, "PWR": 30, "SYS": 31, "EXIT": 0}

// parseSignal reads TERM, SIGTERM or 15.
func parseSignal(s string) (int, bool) {
	if n, err := strconv.Atoi(s); err == nil {
		return n, n >= 0 && n <= 64
	}
	n, ok := signals[strings.TrimPrefix(strings.ToUpper(s), "SIG")]
	return n, ok
}

const (
	sigKill = 9
	sigTerm = 15
)

func timeout(c *tool.Call) int {
	f, ok := c.Flags("+fk:ps:v\x81\x82", "foreground=\x81", "kill-after=k", "preserve-status=\x82", "signal=s", "verbose=v")
	if !ok {
		return 125
	}
	sig, again := sigTerm, time.Duration(0)
	if f.Has('s') {
		if sig, ok = parseSignal(f.Value('s', "")); !ok {
			c.Errorf(125, "‘%s’: invalid signal", f.Value('s', ""))
			return usage.Try(c, 125)
		}
	}
	var err error
	if f.Has('k') {
		if again, err = parseDuration(f.Value('k', "")); err != nil {
			c.Errorf(125, "invalid time interval ‘%s’", f.Value('k', ""))
			return usage.Try(c, 125)
		}
	}
	if len(f.Args) < 2 {
		if len(f.Args) == 0 {
			return usage.Missing(c, 125)
		}
		c.Errorf(125, "missing operand after ‘%s’", f.Args[0])
		return usage.Try(c, 125)
	}
	limit, err := parseDuration(f.Args[0])
	if err != nil {
		c.Errorf(125, "invalid time interval ‘%s’", f.Args[0])
		return usage.Try(c, 125)
	}
	if limit == 0 {
		return c.Run(tool.Child{Args: f.Args[1:]})
	}
	p, err := c.Start(tool.Child{Args: f.Args[1:]})
	if err != nil {
		return c.Errorf(126, "failed to run command ‘%s’: %s", f.Args[1], tool.ErrText(err))
	}
	expired, wait := false, limit
	for !p.Ended(wait) {
		if c.Ctx.Err() != nil {
			p.Signal(sigKill)
			p.Wait()
			return 1
		}
		if f.Has('v') {
			c.Errorf(0, "sending signal %s to command ‘%s’", signalName(sig), f.Args[1])
		}
		p.Signal(sig)
		expired = true
		sig, wait, again = sigKill, again, 0
		if wait == 0 {
			wait = -1
		}
	}
	status, by := p.Wait()
	switch {
	case !expired || f.Has('\x82') || f.Has('p'):
		return status
	case by == sigKill:
		return 128 + sigKill
	}
	return 124
}

func signalName(n int) string {
	for name, v := range signals {
		if v == n && name != "IOT" && name != "POLL" {
			return name
		}
	}
	return strconv.Itoa(n)
}

// wrapper makes a program that only runs another one. The property that it would change doesn't
// exist in this machine.
func wrapper(short string, long ...string) tool.Command {
	return func(c *tool.Call) int {
		if len(c.Args) > 0 && c.Base() == "nice" { // nice -5 of old
			if a := c.Args[0]; len(a) > 1 && a[0] == '-' && strings.Trim(a[1:], "-+0123456789") == "" && a != "--" {
				c.Args = append([]string{"-n", a[1:]}, c.Args[1:]...)
			}
		}
		f, ok := c.Flags("+"+short, long...)
		if !ok {
			return 125
		}
		args := f.Args
		if c.Base() == "chrt" && len(args) > 1 {
			args = args[1:]
		}
		if len(args) == 0 {
			if c.Base() == "nice" && !f.Has('n') {
				return show(c, "0\n")
			}
			return usage.Missing(c, 125)
		}
		if c.Base() == "stdbuf" && len(f.All) == 0 {
			c.Errorf(125, "you must specify a buffering mode option")
			return usage.Try(c, 125)
		}
		return c.Run(tool.Child{Args: args})
	}
}

func nohup(c *tool.Call) int {
	f, ok := c.Flags("+")
	if !ok {
		return 125
	}
	if len(f.Args) == 0 {
		return usage.Missing(c, 125)
	}
	child := tool.Child{Args: f.Args}
	if _, _, ok := c.Terminal(1); ok {
		out, err := c.Open("nohup.out", vfs.WriteOnly|vfs.CreateNew|vfs.Append, 0o600)
		if err != nil {
			return c.Errorf(125, "failed to open 'nohup.out': %s", tool.ErrText(err))
		}
		defer func() { _ = out.Close() }() // only the child has written to it
		fmt.Fprintln(c.Err, "nohup: ignoring input and appending output to 'nohup.out'")
		child.Out = out
	}
	return c.Run(child)
}

// timeCommand is the program time, not the shell's keyword.
func timeCommand(c *tool.Call) int {
	f, ok := c.Flags("+af:o:pvqV", "append=a", "format=f", "output=o", "portability=p", "verbose=v", "quiet=q")
	if !ok {
		return 125
	}
	if len(f.Args) == 0 {
		fmt.Fprintf(c.Err, "Usage: time [-apvV] [-f format] [-o file] command [arg...]\n")
		return 125
	}
	out := c.Err
	if f.Has('o') {
		flags := vfs.WriteOnly | vfs.CreateNew | vfs.Truncate
		if f.Has('a') {
			flags = vfs.WriteOnly | vfs.CreateNew | vfs.Append
		}
		file, err := c.Open(f.Value('o', ""), flags, 0o666)
		if err != nil {
			return c.Errorf(1, "%s: %s", f.Value('o', ""), tool.ErrText(err))
		}
		defer func() { _ = file.Close() }() // a report only
		out = file
	}
	start := c.Now()
	status := c.Run(tool.Child{Args: f.Args})
	took := c.Now().Sub(start)
	format := "%Uuser %Ssystem %Eelapsed %PCPU (%Xavgtext+%Davgdata %Mmaxresident)k\n%Iinputs+%Ooutputs (%Fmajor+%Rminor)pagefaults %Wswaps"
	switch {
	case f.Has('p'):
		format = "real %e\nuser %U\nsys %S"
	case f.Has('f'):
		format = f.Value('f', "")
	case f.Has('v'):
		format = "\tCommand being timed: \"%C\"\n\tUser time (seconds): %U\n\tSystem time (seconds): %S\n\tPercent of CPU this job got: %P\n\tElapsed (wall clock) time (h:mm:ss or m:ss): %E\n\tMaximum resident set size (kbytes): %M\n\tExit status: %x"
	}
	if status != 0 && !f.Has('q') {
		fmt.Fprintf(out, "Command exited with non-zero status %d\n", status)
	}
	fmt.Fprintln(out, timeFormat(format, took, status, f.Args))
	return status
}

// timeFormat expands time's directives. A simulated program has no measured processor time: all of
// its time counts as user time.
func timeFormat(format string, took time.Duration, status int, args []string) string {
	secs := fmt.Sprintf("%.2f", took.Seconds())
	m := int(took.Minutes())
	elapsed := fmt.Sprintf("%d:%05.2f", m, took.Seconds()-float64(m)*60)
	if m >= 60 {
		elapsed = fmt.Sprintf("%d:%02d:%02d", m/60, m%60, int(took.Seconds())%60)
	}
	values := map[byte]string{'%': "%", 'C': strings.Join(args, " "), 'e': secs, 'E': elapsed, 'U': secs, 'S': "0.00", 'P': "100%", 'x': strconv.Itoa(status)}
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		switch {
		case format[i] == '%' && i+1 < len(format):
			i++
			v, ok := values[format[i]]
			if !ok {
				v = "0"
			}
			b.WriteString(v)
		case format[i] == '\\' && i+1 < len(format):
			i++
			switch format[i] {
			case 'n':
				b.WriteByte('\n')
			case 't':
				b.WriteByte('\t')
			default:
				b.WriteByte(format[i])
			}
		default:
			b.WriteByte(format[i])
		}
	}
	return b.String()
}
