package sh

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/carrel-dev/carrel/internal/sh/vfs"
)

// toolShell is bash: a new shell in a process of its own.
func toolShell(c *call) int {
	run, err := parseShellArgs(append([]string{c.name}, c.args...))
	if err != nil {
		c.r.writeErr("bash: " + err.Error() + "\n")
		return 2
	}
	run.env = c.env
	return c.r.spawnShell(run)
}

// sub runs a program with an environment and returns its status.
func (c *call) sub(args, env []string) int {
	return c.r.runTool(args, func() []string { return env })
}

func toolEnv(c *call) int {
	env, args := c.env, c.args
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		switch a := args[0]; {
		case a == "-i" || a == "-" || a == "--ignore-environment":
			env = nil
		case a == "-u" && len(args) > 1:
			env = without(env, args[1])
			args = args[1:]
		case a == "-S" && len(args) > 1:
			args = append([]string{a}, append(strings.Fields(args[1]), args[2:]...)...)
		default:
			return c.complain(125, "invalid option -- '%s'", strings.TrimLeft(a, "-"))
		}
		args = args[1:]
	}
	for len(args) > 0 && strings.Contains(args[0], "=") {
		name, _, _ := strings.Cut(args[0], "=")
		env = append(without(env, name), args[0])
		args = args[1:]
	}
	if len(args) == 0 {
		return c.print(strings.Join(append(env, ""), "\n"))
	}
	return c.sub(args, env)
}

func without(env []string, name string) []string {
	out := make([]string, 0, len(env)+1)
	for _, kv := range env {
		if !strings.HasPrefix(kv, name+"=") {
			out = append(out, kv)
		}
	}
	return out
}

func toolNohup(c *call) int {
	args := c.args
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		if args[0] == "-n" && len(args) > 1 {
			args = args[1:]
		}
		args = args[1:]
	}
	if len(args) == 0 {
		return c.complain(125, "missing operand")
	}
	return c.sub(args, c.env)
}

func toolStdbuf(c *call) int { return toolNohup(c) }

// toolSudo runs a program as another user, by default root: in a sandbox of one's
// own that takes no password.
func toolSudo(c *call) int {
	args, user := c.args, "root"
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		if args[0] == "-u" && len(args) > 1 {
			user, args = args[1], args[1:]
		}
		args = args[1:]
	}
	env := c.env
	for len(args) > 0 && strings.Contains(args[0], "=") {
		env, args = append(env, args[0]), args[1:]
	}
	if len(args) == 0 {
		return c.complain(1, "usage: sudo [-u user] command")
	}
	for _, a := range c.r.m.Accounts() {
		if a.Name != user {
			continue
		}
		view := c.r.view
		c.r.view = c.r.m.fs.As(vfs.Cred{UID: a.UID, GID: a.GID}).For(c.r)
		c.r.p.is(c.r.p.args, a.UID)
		defer func() { c.r.view = view; c.r.p.is(c.r.p.args, view.Cred().UID) }()
		env = append(without(without(without(env, "HOME"), "USER"), "LOGNAME"), "HOME="+a.Home, "USER="+a.Name, "LOGNAME="+a.Name)
		return c.sub(args, env)
	}
	return c.complain(1, "unknown user %s", user)
}

// toolTimeout runs a program for at most so long.
func toolTimeout(c *call) int {
	args, sig := c.args, sigTERM
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		if (args[0] == "-s" || args[0] == "-k") && len(args) > 1 {
			if n, ok := parseSignal(args[1]); ok && args[0] == "-s" {
				sig = n
			}
			args = args[1:]
		}
		args = args[1:]
	}
	if len(args) < 2 {
		return c.complain(125, "missing operand")
	}
	d, err := parseDuration(args[0])
	if err != nil {
		return c.complain(125, "invalid time interval '%s'", args[0])
	}
	s, err := c.r.fork(true)
	if err != nil {
		c.r.forkFailed(err)
		return 254
	}
	t := time.AfterFunc(d, func() { s.p.deliver(sig) })
	if d == 0 {
		t.Stop()
	}
	s.status = s.runTool(args[1:], func() []string { return c.env })
	expired := !t.Stop() && d > 0
	s.end(s.status)
	if expired && s.p.signum != 0 && s.p.signum != sigKILL {
		return 124
	}
	return s.p.code
}

// parseDuration reads sleep's numbers: 1, 0.5, 2m, 1h, infinity.
func parseDuration(s string) (time.Duration, error) {
	unit := time.Second
	switch {
	case s == "infinity" || s == "inf":
		return math.MaxInt64, nil
	case strings.HasSuffix(s, "s"):
		s = s[:len(s)-1]
	case strings.HasSuffix(s, "m"):
		unit, s = time.Minute, s[:len(s)-1]
	case strings.HasSuffix(s, "h"):
		unit, s = time.Hour, s[:len(s)-1]
	case strings.HasSuffix(s, "d"):
		unit, s = 24*time.Hour, s[:len(s)-1]
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || f < 0 || math.IsNaN(f) {
		return 0, errors.New("invalid time interval")
	}
	if f > float64(math.MaxInt64)/float64(unit) {
		return math.MaxInt64, nil
	}
	return time.Duration(f * float64(unit)), nil
}

func toolSleep(c *call) int {
	if len(c.args) == 0 {
		return c.complain(1, "missing operand")
	}
	var total time.Duration
	for _, a := range c.args {
		d, err := parseDuration(a)
		if err != nil {
			return c.complain(1, "invalid time interval '%s'", a)
		}
		if total += d; total < 0 {
			total = math.MaxInt64
		}
	}
	if !c.r.nap(total) {
		return 128 + signalOf(c.r.ctx)
	}
	return 0
}

func toolPs(c *call) int {
	w := c.buffered()
	fmt.Fprintln(w, "    PID    PPID USER     STAT COMMAND")
	for _, p := range c.r.m.table() {
		args, uid := p.who()
		fmt.Fprintf(w, "%7d %7d %-8s R    %s\n", p.pid, p.ppid, c.r.m.UserName(uid), strings.Join(args, " "))
	}
	return boolStatus(w.Flush() == nil)
}
