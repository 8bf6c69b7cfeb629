package system

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/tools/system/gnudate"
	"github.com/carrel-dev/carrel/shell/tools/text/usage"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// as runs a program as another user.
func as(c *tool.Call, a tool.Account, vars, args []string, dir string) int {
	vars = append(without(vars, "HOME", "USER", "LOGNAME"), "HOME="+a.Home, "USER="+a.Name, "LOGNAME="+a.Name)
	return c.Run(tool.Child{Args: args, Env: vars, User: &vfs.Cred{UID: a.UID, GID: a.GID}, Dir: dir})
}

// account finds a user by name, or by number after a #, as in sudo.
func account(c *tool.Call, name string) (tool.Account, bool) {
	if n, err := strconv.ParseUint(strings.TrimPrefix(name, "#"), 10, 32); err == nil && strings.HasPrefix(name, "#") {
		name = c.Machine().UserName(uint32(n))
	}
	return c.Machine().User(name)
}

// sudo runs a program as another user, by default root. It needs no password, because the sandbox
// belongs to its user.
func sudo(c *tool.Call) int {
	f, ok := c.Flags("+AbC:D:EeHg:h:iKklnPp:SsT:u:U:vV", "user=u", "group=g", "preserve-env=E::", "set-home=H", "non-interactive=n", "stdin=S", "login=i", "shell=s", "validate=v",
		"list=l", "reset-timestamp=k", "remove-timestamp=K", "background=b", "chdir=D", "prompt=p", "askpass=A")
	if !ok {
		return 1
	}
	name := f.Value('u', "root")
	a, found := account(c, name)
	if !found {
		fmt.Fprintf(c.Err, "sudo: unknown user %s\nsudo: error initializing audit plugin sudoers_audit\n", name)
		return 1
	}
	vars, args := c.Environ(), f.Args
	for len(args) > 0 && strings.Contains(args[0], "=") && !strings.HasPrefix(args[0], "=") {
		vars = setenv(vars, args[0])
		args = args[1:]
	}
	dir := ""
	switch {
	case f.Has('v') || f.Has('k') && len(args) == 0 || f.Has('K'):
		return 0
	case f.Has('l'):
		return show(c, fmt.Sprintf("User %s may run the following commands on %s:\n    (ALL : ALL) NOPASSWD: ALL\n", c.Machine().UserName(c.UID()), c.Machine().Hostname()))
	case f.Has('i') || f.Has('s'):
		shell := []string{"bash"}
		if f.Has('i') {
			shell, dir = []string{"bash", "-l"}, a.Home
		}
		if len(args) > 0 {
			shell = append(shell, "-c", strings.Join(args, " "))
		}
		args = shell
	case len(args) == 0:
		fmt.Fprintln(c.Err, "usage: sudo [-u user] command")
		return 1
	}
	if f.Has('D') {
		dir = c.Abs(f.Value('D', ""))
	}
	vars = append(without(vars, "SUDO_USER", "SUDO_UID", "SUDO_GID"), "SUDO_USER="+c.Machine().UserName(c.UID()), "SUDO_UID="+strconv.Itoa(int(c.UID())),
		"SUDO_GID="+strconv.Itoa(int(c.FS().Cred().GID)))
	return as(c, a, vars, args, dir)
}

func su(c *tool.Call) int {
	f, ok := c.Flags("c:lmps:P", "command=c", "login=l", "preserve-environment=m", "shell=s", "pty=P")
	if !ok {
		return 1
	}
	args, login := f.Args, f.Has('l')
	if len(args) > 0 && args[0] == "-" {
		login, args = true, args[1:]
	}
	name := "root"
	if len(args) > 0 {
		name, args = args[0], args[1:]
	}
	a, found := c.Machine().User(name)
	if !found {
		return c.Errorf(1, "user %s does not exist or the user entry does not contain all the required fields", name)
	}
	run := []string{f.Value('s', "bash")}
	dir := ""
	if login {
		run, dir = append(run, "-l"), a.Home
	}
	if f.Has('c') {
		run = append(run, "-c", f.Value('c', ""))
	}
	return as(c, a, c.Environ(), append(run, args...), dir)
}

func id(c *tool.Call) int {
	f, ok := c.Flags("aZgGnruz", "group=g", "groups=G", "name=n", "real=r", "user=u", "zero=z", "context=Z")
	if !ok {
		return 1
	}
	kinds := 0
	for _, l := range []byte("ugGZ") {
		if f.Has(l) {
			kinds++
		}
	}
	switch {
	case f.Has('Z'):
		return c.Errorf(1, "--context (-Z) works only on an SELinux-enabled kernel")
	case kinds > 1:
		return c.Errorf(1, "cannot print \"only\" of more than one choice")
	case kinds == 0 && (f.Has('n') || f.Has('r')):
		return c.Errorf(1, "cannot print only names or real IDs in default format")
	case kinds == 0 && f.Has('z'):
		return c.Errorf(1, "option --zero not permitted in default format")
	}
	m := c.Machine()
	users := []tool.Account{{UID: c.UID(), GID: c.FS().Cred().GID}}
	status := 0
	if len(f.Args) > 0 {
		users = nil
		for _, name := range f.Args {
			a, found := m.User(name)
			if n, err := strconv.ParseUint(name, 10, 32); err == nil && !found {
				a, found = m.User(m.UserName(uint32(n)))
			}
			if !found {
				status = c.Errorf(1, "‘%s’: no such user", name)
				continue
			}
			users = append(users, a)
		}
	}
	end := "\n"
	if f.Has('z') {
		end = "\x00"
	}
	num := func(n uint32, name func(uint32) string) string {
		if f.Has('n') {
			return name(n)
		}
		return strconv.Itoa(int(n))
	}
	for _, a := range users {
		text := ""
		switch {
		case f.Has('u'):
			text = num(a.UID, m.UserName) + end
		case f.Has('g') || f.Has('G'):
			text = num(a.GID, m.GroupName) + end
		default:
			label := func(n uint32, name string) string {
				if name == strconv.Itoa(int(n)) {
					return name
				}
				return fmt.Sprintf("%d(%s)", n, name)
			}
			g := label(a.GID, m.GroupName(a.GID))
			text = fmt.Sprintf("uid=%s gid=%s groups=%s\n", label(a.UID, m.UserName(a.UID)), g, g)
		}
		status = max(status, show(c, text))
	}
	return status
}

func whoami(c *tool.Call) int {
	f, ok := c.Flags("")
	if !ok {
		return 1
	}
	if len(f.Args) > 0 {
		return usage.Extra(c, 1, f.Args[0])
	}
	return show(c, c.Machine().UserName(c.UID())+"\n")
}

func groups(c *tool.Call) int {
	f, ok := c.Flags("")
	if !ok {
		return 1
	}
	if len(f.Args) == 0 {
		return show(c, c.Machine().GroupName(c.FS().Cred().GID)+"\n")
	}
	status := 0
	for _, name := range f.Args {
		a, found := c.Machine().User(name)
		if !found {
			status = c.Errorf(1, "‘%s’: no such user", name)
			continue
		}
		show(c, name+" : "+c.Machine().GroupName(a.GID)+"\n")
	}
	return status
}

func logname(c *tool.Call) int {
	if _, _, ok := c.Terminal(0); !ok {
		return c.Errorf(1, "no login name")
	}
	return show(c, c.Machine().UserName(c.UID())+"\n")
}

func who(c *tool.Call) int {
	f, ok := c.Flags("abdHlmpqrstTuw")
	if !ok {
		return 1
	}
	if f.Has('q') {
		return show(c, "\n# users=0\n")
	}
	return 0
}

func w(c *tool.Call) int {
	f, ok := c.Flags("hsufoi", "no-header=h", "short=s")
	if !ok || f.Has('h') {
		return 0
	}
	uptimeLine(c)
	return show(c, "USER     TTY      FROM             LOGIN@   IDLE   JCPU   PCPU WHAT\n")
}

// local returns the machine's time in the process's zone.
func local(c *tool.Call) time.Time { return c.Now().In(gnudate.Location(c.Getenv("TZ"))) }
