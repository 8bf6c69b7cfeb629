package system

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/tools/text/usage"
)

// release and version are the reported version of the kernel.
const release, version = "6.1.0-carrel-sim", "#1 simulated"

func uname(c *tool.Call) int {
	f, ok := c.Flags("asnrvmpio", "all=a", "kernel-name=s", "sysname=s", "nodename=n", "kernel-release=r", "release=r", "kernel-version=v", "machine=m", "processor=p",
		"hardware-platform=i", "operating-system=o")
	if !ok {
		return 1
	}
	if len(f.Args) > 0 {
		return usage.Extra(c, 1, f.Args[0])
	}
	var out []string
	for _, p := range []struct {
		l byte
		s string
	}{{'s', "Linux"}, {'n', c.Machine().Hostname()}, {'r', release}, {'v', version}, {'m', "x86_64"}, {'p', "unknown"}, {'i', "unknown"}, {'o', "GNU/Linux"}} {
		if f.Has(p.l) || f.Has('a') && p.s != "unknown" || len(f.All) == 0 && p.l == 's' {
			out = append(out, p.s)
		}
	}
	return show(c, strings.Join(out, " ")+"\n")
}

func hostname(c *tool.Call) int {
	f, ok := c.Flags("aAbdfF:iIsvy", "short=s", "fqdn=f", "long=f", "domain=d", "ip-address=i", "all-ip-addresses=I", "alias=a")
	if !ok {
		return 1
	}
	name := c.Machine().Hostname()
	if len(f.Args) > 0 {
		m, ok := c.Machine().(interface{ SetHostname(name string) })
		switch {
		case c.UID() != 0 || !ok:
			return c.Errorf(1, "you must be root to change the host name")
		case len(f.Args[0]) > 64 || strings.Trim(f.Args[0], "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-") != "" || f.Args[0] == "":
			return c.Errorf(1, "the specified hostname is invalid")
		}
		m.SetHostname(f.Args[0])
		return 0
	}
	short, domain, _ := strings.Cut(name, ".")
	switch {
	case f.Has('s'):
		name = short
	case f.Has('d'):
		name = domain
	case f.Has('i'), f.Has('I'):
		name = "127.0.0.1"
	case f.Has('a'):
		name = ""
	}
	return show(c, name+"\n")
}

func nproc(c *tool.Call) int {
	f, ok := c.Flags("\x81\x82:", "all=\x81", "ignore=\x82")
	if !ok {
		return 1
	}
	n := c.Machine().CPUs()
	if v := f.Value('\x82', "0"); v != "0" {
		k, err := strconv.Atoi(v)
		if err != nil || k < 0 {
			return c.Errorf(1, "invalid number: ‘%s’", v)
		}
		n = max(n-k, 1)
	}
	return show(c, strconv.Itoa(n)+"\n")
}

func uptimeLine(c *tool.Call) int {
	up := c.Now().Sub(c.Machine().Started())
	text := ""
	if d := int(up.Hours()) / 24; d == 1 {
		text = "1 day, "
	} else if d > 1 {
		text = fmt.Sprintf("%d days, ", d)
	}
	if h := int(up.Hours()) % 24; h > 0 {
		text += fmt.Sprintf("%2d:%02d", h, int(up.Minutes())%60)
	} else {
		text += fmt.Sprintf("%d min", int(up.Minutes())%60)
	}
	return show(c, fmt.Sprintf(" %s up %s,  0 users,  load average: 0.00, 0.00, 0.00\n", local(c).Format("15:04:05"), text))
}

func uptime(c *tool.Call) int {
	f, ok := c.Flags("ps", "pretty=p", "since=s")
	if !ok {
		return 1
	}
	up := c.Now().Sub(c.Machine().Started())
	switch {
	case f.Has('s'):
		return show(c, c.Machine().Started().In(local(c).Location()).Format(time.DateTime)+"\n")
	case f.Has('p'):
		var parts []string
		for _, p := range []struct {
			n    int
			unit string
		}{{int(up.Hours()) / 24, "day"}, {int(up.Hours()) % 24, "hour"}, {int(up.Minutes()) % 60, "minute"}} {
			if p.n > 0 || p.unit == "minute" && len(parts) == 0 {
				unit := p.unit
				if p.n != 1 {
					unit += "s"
				}
				parts = append(parts, fmt.Sprintf("%d %s", p.n, unit))
			}
		}
		return show(c, "up "+strings.Join(parts, ", ")+"\n")
	}
	return uptimeLine(c)
}

// human formats a number of bytes, such as 1.5Gi.
func human(n int64) string {
	if n < 1<<10 {
		return fmt.Sprintf("%dB", n)
	}
	f, units := float64(n), "KMGTP"
	i := -1
	for f >= 1024 && i < len(units)-1 {
		f /= 1024
		i++
	}
	if f < 10 {
		return fmt.Sprintf("%.1f%ci", f, units[i])
	}
	return fmt.Sprintf("%.0f%ci", f, units[i])
}

func free(c *tool.Call) int {
	f, ok := c.Flags("bkmghtwls:c:\x81", "bytes=b", "kibi=k", "mebi=m", "gibi=g", "human=h", "total=t", "wide=w", "lohi=l", "seconds=s", "count=c", "si=\x81")
	if !ok {
		return 1
	}
	used, total := c.Machine().Memory()
	if total == 0 {
		total = 1 << 30 // without a limit there is no number, but programs may divide by it
	}
	left := max(total-used, 0)
	unit := int64(1 << 10)
	switch f.Last("bkmgh") {
	case 'b':
		unit = 1
	case 'm':
		unit = 1 << 20
	case 'g':
		unit = 1 << 30
	}
	num := func(n int64) string {
		if f.Has('h') {
			return human(n)
		}
		return strconv.FormatInt(n/unit, 10)
	}
	text := "               total        used        free      shared  buff/cache   available\n"
	text += fmt.Sprintf("%-9s%11s %11s %11s %11s %11s %11s\n", "Mem:", num(total), num(used), num(left), num(0), num(0), num(left))
	text += fmt.Sprintf("%-9s%11s %11s %11s\n", "Swap:", num(0), num(0), num(0))
	if f.Has('t') {
		text += fmt.Sprintf("%-9s%11s %11s %11s\n", "Total:", num(total), num(used), num(left))
	}
	return show(c, text)
}

func lscpu(c *tool.Call) int {
	n := c.Machine().CPUs()
	return show(c, fmt.Sprintf("Architecture:            x86_64\n  CPU op-mode(s):        64-bit\n  Byte Order:            Little Endian\nCPU(s):                  %d\n  On-line CPU(s) list:   0-%d\n"+
		"Vendor ID:               Carrel\n  Model name:            simulated\n    Thread(s) per core:  1\n    Core(s) per socket:  %d\n    Socket(s):           1\n", n, n-1, n))
}

// configuration has the values of getconf.
var configuration = map[string]string{"PAGE_SIZE": "4096", "PAGESIZE": "4096", "ARG_MAX": "2097152", "LONG_BIT": "64", "WORD_BIT": "32", "CHAR_BIT": "8", "INT_MAX": "2147483647",
	"PATH_MAX": "4096", "NAME_MAX": "255", "OPEN_MAX": "1024", "CLK_TCK": "100", "PIPE_BUF": "4096", "HOST_NAME_MAX": "64", "LOGIN_NAME_MAX": "256", "PATH": "/bin:/usr/bin",
	"LINK_MAX": "65000", "UCHAR_MAX": "255", "SSIZE_MAX": "32767", "_POSIX_VERSION": "200809", "POSIX2_VERSION": "200809", "GNU_LIBC_VERSION": "glibc 2.36", "CS_PATH": "/bin:/usr/bin"}

func getconf(c *tool.Call) int {
	f, ok := c.Flags("+av:")
	if !ok || len(f.Args) == 0 && !f.Has('a') {
		fmt.Fprintln(c.Err, "Usage: getconf [-v specification] variable_name [pathname]")
		return 2
	}
	name := ""
	if len(f.Args) > 0 {
		name = f.Args[0]
	}
	switch name {
	case "_NPROCESSORS_ONLN", "_NPROCESSORS_CONF", "NPROCESSORS_ONLN", "NPROCESSORS_CONF":
		return show(c, strconv.Itoa(c.Machine().CPUs())+"\n")
	}
	v, known := configuration[name]
	if !known {
		return c.Errorf(2, "Unrecognized variable `%s'", name)
	}
	return show(c, v+"\n")
}

func locale(c *tool.Call) int {
	f, ok := c.Flags("amck", "all-locales=a", "charmaps=m", "category-name=c", "keyword-name=k")
	if !ok {
		return 1
	}
	switch {
	case f.Has('a'):
		return show(c, "C\nC.utf8\nPOSIX\n")
	case f.Has('m'):
		return show(c, "UTF-8\n")
	case len(f.Args) > 0:
		if f.Args[0] == "charmap" {
			return show(c, "UTF-8\n")
		}
		return c.Errorf(1, "unknown name \"%s\"", f.Args[0])
	}
	lang := c.Getenv("LANG")
	all := c.Getenv("LC_ALL")
	var b strings.Builder
	fmt.Fprintf(&b, "LANG=%s\nLANGUAGE=%s\n", lang, c.Getenv("LANGUAGE"))
	for _, n := range strings.Fields("CTYPE NUMERIC TIME COLLATE MONETARY MESSAGES PAPER NAME ADDRESS TELEPHONE MEASUREMENT IDENTIFICATION") {
		v := c.Getenv("LC_" + n)
		switch {
		case all != "":
			v = `"` + all + `"`
		case v == "" && lang == "":
			v = `"POSIX"`
		case v == "":
			v = `"` + lang + `"`
		}
		fmt.Fprintf(&b, "LC_%s=%s\n", n, v)
	}
	fmt.Fprintf(&b, "LC_ALL=%s\n", all)
	return show(c, b.String())
}

func tty(c *tool.Call) int {
	f, ok := c.Flags("s", "silent=s", "quiet=s")
	if !ok {
		return 2
	}
	name, status := "not a tty", 1
	if _, _, ok := c.Terminal(0); ok {
		name, status = "/dev/pts/0", 0
	}
	if f.Has('s') {
		return status
	}
	return max(show(c, name+"\n"), status)
}

func clearScreen(c *tool.Call) int {
	if c.Base() == "reset" {
		return show(c, "\x1bc\x1b[!p\x1b[?3;4l\x1b[4l\x1b>")
	}
	return show(c, "\x1b[H\x1b[2J\x1b[3J")
}

// capabilities are the terminfo entries of an xterm.
var capabilities = map[string]string{"bold": "\x1b[1m", "dim": "\x1b[2m", "sgr0": "\x1b(B\x1b[m", "smul": "\x1b[4m", "rmul": "\x1b[24m", "rev": "\x1b[7m", "smso": "\x1b[7m", "rmso": "\x1b[27m",
	"sitm": "\x1b[3m", "ritm": "\x1b[23m", "blink": "\x1b[5m", "invis": "\x1b[8m", "clear": "\x1b[H\x1b[2J\x1b[3J", "el": "\x1b[K", "el1": "\x1b[1K", "ed": "\x1b[J", "home": "\x1b[H", "civis": "\x1b[?25l", "cnorm": "\x1b[?12l\x1b[?25h",
	"smcup": "\x1b[?1049h\x1b[22;0;0t", "rmcup": "\x1b[?1049l\x1b[23;0;0t", "sc": "\x1b7", "rc": "\x1b8", "op": "\x1b[39;49m", "bel": "\a", "cuu1": "\x1b[A", "cud1": "\n", "cub1": "\b", "cuf1": "\x1b[C", "cr": "\r"}

func tput(c *tool.Call) int {
	f, ok := c.Flags("+T:SVx")
	if !ok {
		return 2
	}
	if len(f.Args) == 0 {
		fmt.Fprintln(c.Err, "usage: tput [-V] [-S] [-x] [-T term] capname")
		return 2
	}
	term := f.Value('T', c.Getenv("TERM"))
	if term == "" {
		return c.Errorf(2, "No value for $TERM and no -T specified")
	}
	n := func(i int) int {
		if i >= len(f.Args) {
			return 0
		}
		v, err := strconv.Atoi(f.Args[i])
		if err != nil {
			return 0
		}
		return v
	}
	cols, rows, on := c.Terminal(1)
	if !on {
		if cols, rows, on = c.Terminal(2); !on {
			cols, rows = 80, 24
		}
	}
	colors := 8
	if strings.Contains(term, "256color") {
		colors = 256
	}
	color := func(base, k int) string {
		switch {
		case k < 8:
			return fmt.Sprintf("\x1b[%dm", base+k)
		case k < 16 && colors == 256:
			return fmt.Sprintf("\x1b[%dm", base+52+k)
		}
		return fmt.Sprintf("\x1b[%d;5;%dm", base+8, k)
	}
	switch name := f.Args[0]; name {
	case "cols":
		return show(c, strconv.Itoa(cols)+"\n")
	case "lines":
		return show(c, strconv.Itoa(rows)+"\n")
	case "colors":
		return show(c, strconv.Itoa(colors)+"\n")
	case "longname":
		return show(c, term)
	case "setaf":
		return show(c, color(30, n(1)))
	case "setab":
		return show(c, color(40, n(1)))
	case "cup":
		return show(c, fmt.Sprintf("\x1b[%d;%dH", n(1)+1, n(2)+1))
	case "cuu", "cud", "cuf", "cub":
		return show(c, fmt.Sprintf("\x1b[%d%c", n(1), "ABCD"[strings.IndexByte("udfb", name[2])]))
	case "init", "reset":
		return show(c, "\x1b[!p\x1b[?3;4l\x1b[4l\x1b>")
	default:
		text, known := capabilities[name]
		if !known {
			return c.Errorf(4, "unknown terminfo capability '%s'", name)
		}
		return show(c, text)
	}
}
