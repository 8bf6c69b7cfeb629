package system

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/tools/text/usage"
)

// psField is a column of ps.
type psField struct {
	name  string
	head  string
	width int
	left  bool
	value func(c *tool.Call, p tool.ProcessInfo) string
}

func comm(p tool.ProcessInfo) string {
	if len(p.Args) == 0 {
		return "?"
	}
	name := p.Args[0]
	name = strings.TrimPrefix(name[strings.LastIndexByte(name, '/')+1:], "-")
	return name[:min(len(name), 15)]
}

func ttyName(p tool.ProcessInfo) string {
	if p.TTY {
		return "pts/0"
	}
	return "?"
}

func elapsed(d time.Duration) string {
	s := int(d.Seconds())
	switch {
	case s >= 86400:
		return fmt.Sprintf("%d-%02d:%02d:%02d", s/86400, s/3600%24, s/60%60, s%60)
	case s >= 3600:
		return fmt.Sprintf("%02d:%02d:%02d", s/3600, s/60%60, s%60)
	}
	return fmt.Sprintf("%02d:%02d", s/60, s%60)
}

func fixed(s string) func(*tool.Call, tool.ProcessInfo) string {
	return func(*tool.Call, tool.ProcessInfo) string { return s }
}

var psFields = func() map[string]psField {
	num := func(get func(tool.ProcessInfo) int) func(*tool.Call, tool.ProcessInfo) string {
		return func(_ *tool.Call, p tool.ProcessInfo) string { return strconv.Itoa(get(p)) }
	}
	user := func(c *tool.Call, p tool.ProcessInfo) string { return c.Machine().UserName(p.UID) }
	args := func(_ *tool.Call, p tool.ProcessInfo) string { return strings.Join(p.Args, " ") }
	start := func(c *tool.Call, p tool.ProcessInfo) string {
		return p.Started.In(local(c).Location()).Format("15:04")
	}
	pid := func(p tool.ProcessInfo) int { return p.PID }
	out := map[string]psField{}
	for _, f := range []psField{
		{"pid", "PID", 7, false, num(pid)}, {"tid", "TID", 7, false, num(pid)}, {"sid", "SID", 7, false, num(func(p tool.ProcessInfo) int { return p.PGID })},
		{"ppid", "PPID", 7, false, num(func(p tool.ProcessInfo) int { return p.PPID })},
		{"pgid", "PGID", 7, false, num(func(p tool.ProcessInfo) int { return p.PGID })}, {"pgrp", "PGRP", 7, false, num(func(p tool.ProcessInfo) int { return p.PGID })},
		{"user", "USER", 8, true, user}, {"euser", "EUSER", 8, true, user}, {"ruser", "RUSER", 8, true, user}, {"uname", "USER", 8, true, user},
		{"uid", "UID", 5, false, num(func(p tool.ProcessInfo) int { return int(p.UID) })}, {"euid", "EUID", 5, false, num(func(p tool.ProcessInfo) int { return int(p.UID) })},
		{"pcpu", "%CPU", 4, false, fixed("0.0")}, {"%cpu", "%CPU", 4, false, fixed("0.0")}, {"pmem", "%MEM", 4, false, fixed("0.0")}, {"%mem", "%MEM", 4, false, fixed("0.0")},
		{"vsz", "VSZ", 6, false, fixed("0")}, {"rss", "RSS", 5, false, fixed("0")}, {"sz", "SZ", 5, false, fixed("0")}, {"c", "C", 2, false, fixed("0")},
		{"tty", "TT", 8, true, func(_ *tool.Call, p tool.ProcessInfo) string { return ttyName(p) }}, {"tname", "TTY", 8, true, func(_ *tool.Call, p tool.ProcessInfo) string { return ttyName(p) }},
		{"stat", "STAT", 4, true, fixed("S")}, {"state", "S", 1, true, fixed("S")}, {"s", "S", 1, true, fixed("S")},
		{"start", "START", 5, true, start}, {"stime", "STIME", 5, true, start}, {"bsdstart", "START", 6, false, start},
		{"lstart", "STARTED", 24, true, func(c *tool.Call, p tool.ProcessInfo) string {
			return p.Started.In(local(c).Location()).Format("Mon Jan _2 15:04:05 2006")
		}},
		{"time", "TIME", 8, false, fixed("00:00:00")}, {"cputime", "TIME", 8, false, fixed("00:00:00")}, {"bsdtime", "TIME", 6, false, fixed("0:00")},
		{"etime", "ELAPSED", 11, false, func(c *tool.Call, p tool.ProcessInfo) string { return elapsed(c.Now().Sub(p.Started)) }},
		{"etimes", "ELAPSED", 7, false, func(c *tool.Call, p tool.ProcessInfo) string {
			return strconv.Itoa(int(c.Now().Sub(p.Started).Seconds()))
		}},
		{"args", "COMMAND", 27, true, args}, {"cmd", "CMD", 27, true, args}, {"command", "COMMAND", 27, true, args},
		{"comm", "COMMAND", 15, true, func(_ *tool.Call, p tool.ProcessInfo) string { return comm(p) }}, {"ucmd", "CMD", 15, true, func(_ *tool.Call, p tool.ProcessInfo) string { return comm(p) }}, {"ucomm", "COMMAND", 15, true, func(_ *tool.Call, p tool.ProcessInfo) string { return comm(p) }},
		{"ni", "NI", 3, false, fixed("0")}, {"nice", "NI", 3, false, fixed("0")}, {"pri", "PRI", 3, false, fixed("19")}, {"nlwp", "NLWP", 4, false, fixed("1")}, {"thcount", "THCNT", 5, false, fixed("1")}, {"wchan", "WCHAN", 6, true, fixed("-")},
		{"group", "GROUP", 8, true, func(c *tool.Call, p tool.ProcessInfo) string { return c.Machine().GroupName(p.UID) }},
	} {
		out[f.name] = f
	}
	return out
}()

// psCall has the options of ps.
type psCall struct {
	fields                []psField
	all, noHead           bool
	pids                  map[int]bool
	names, users, parents []string
	sort                  string
	bsd                   bool
}

func (q *psCall) columns(spec string) error {
	for p := range strings.FieldsFuncSeq(spec, func(r rune) bool { return r == ',' || r == ' ' }) {
		name, head, has := strings.Cut(p, "=")
		f, ok := psFields[strings.ToLower(name)]
		if !ok {
			return fmt.Errorf("error: unknown user-defined format specifier \"%s\"", name)
		}
		if has {
			f.head = head
			f.width = max(f.width, len(head))
		}
		q.fields = append(q.fields, f)
	}
	return nil
}

func ps(c *tool.Call) int {
	q := &psCall{}
	format := "pid,tname=TTY,time,ucmd=CMD"
	args := c.Args
	fail := func(err error) int {
		fmt.Fprintf(c.Err, "%v\n\nUsage:\n ps [options]\n", err)
		return 1
	}
	for len(args) > 0 {
		a := args[0]
		args = args[1:]
		long, value, has := strings.Cut(a, "=")
		take := func() string {
			if has {
				return value
			}
			if len(args) == 0 {
				return ""
			}
			v := args[0]
			args = args[1:]
			return v
		}
		var err error
		switch long {
		case "--no-headers", "--no-heading", "--no-headings", "--noheader", "--noheaders", "--noheading", "--noheadings":
			q.noHead = true
			continue
		case "--sort":
			q.sort = take()
			continue
		case "--pid":
			err = q.pidList(take())
		case "--ppid":
			q.parents = append(q.parents, strings.Split(take(), ",")...)
		case "--format":
			err = q.columns(take())
		case "--user", "--User":
			q.users = append(q.users, strings.Split(take(), ",")...)
		case "--forest", "--headers", "--cols", "--columns", "--width", "--deselect":
			continue
		default:
			if strings.HasPrefix(a, "--") {
				return fail(fmt.Errorf("error: unknown gnu long option"))
			}
			err = q.letters(a, &format, &args)
		}
		if err != nil {
			return fail(err)
		}
	}
	if q.fields == nil {
		if err := q.columns(format); err != nil {
			return fail(err)
		}
	}
	return q.print(c)
}

func (q *psCall) pidList(s string) error {
	if q.pids == nil {
		q.pids = map[int]bool{}
	}
	for p := range strings.FieldsFuncSeq(s, func(r rune) bool { return r == ',' || r == ' ' }) {
		n, err := strconv.Atoi(p)
		if err != nil {
			return fmt.Errorf("error: process ID list syntax error")
		}
		q.pids[n] = true
	}
	return nil
}

// letters reads a bundle of options: with a dash in the Unix style, without in the BSD style.
func (q *psCall) letters(a string, format *string, args *[]string) error {
	unix := strings.HasPrefix(a, "-")
	if n, err := strconv.Atoi(a); err == nil && n > 0 {
		return q.pidList(a)
	}
	a = strings.TrimPrefix(a, "-")
	for i := 0; i < len(a); i++ {
		value := func() string {
			v := a[i+1:]
			i = len(a)
			if v == "" && len(*args) > 0 {
				v, *args = (*args)[0], (*args)[1:]
			}
			return v
		}
		l := a[i]
		switch {
		case l == 'o' || l == 'O':
			if err := q.columns(value()); err != nil {
				return err
			}
		case l == 'p' || l == 'q':
			if err := q.pidList(value()); err != nil {
				return err
			}
		case l == 'C' && unix:
			q.names = append(q.names, strings.Split(value(), ",")...)
		case (l == 'u' || l == 'U') && unix || l == 'U':
			v := value()
			if v == "" { // ps -u
				*format = "user,pid,%cpu,%mem,vsz,rss,tty=TTY,stat,start,bsdtime,args"
				break
			}
			q.users = append(q.users, strings.Split(v, ",")...)
		case l == 'u':
			*format, q.bsd = "user,pid,%cpu,%mem,vsz,rss,tty=TTY,stat,start,bsdtime,args", true
		case l == 'e' && unix, l == 'A', l == 'a', l == 'x' && !unix, l == 'd', l == 'g':
			q.all = true
		case l == 'f' && unix:
			*format = "user=UID,pid,ppid,c,stime,tname=TTY,time,cmd"
		case l == 'F' && unix:
			*format = "user=UID,pid,ppid,c,sz,rss,stime,tname=TTY,time,cmd"
		case l == 'l':
			*format = "s,uid,pid,ppid,c,pri,ni,sz,tname=TTY,time,ucmd=CMD"
		case l == 'j':
			*format = "pid,pgid,sid,tname=TTY,time,ucmd=CMD"
		case l == 'h' && !unix:
			q.noHead = true
		case strings.IndexByte("wfHTLMcSxe", l) >= 0:
		default:
			return fmt.Errorf("error: unsupported SysV option")
		}
	}
	return nil
}

func (q *psCall) wants(c *tool.Call, p tool.ProcessInfo) bool {
	if q.pids == nil && q.names == nil && q.users == nil && q.parents == nil {
		return q.all || p.UID == c.UID()
	}
	return q.pids[p.PID] || slices.Contains(q.names, comm(p)) || slices.Contains(q.users, c.Machine().UserName(p.UID)) ||
		slices.Contains(q.users, strconv.Itoa(int(p.UID))) || slices.Contains(q.parents, strconv.Itoa(p.PPID))
}

func (q *psCall) print(c *tool.Call) int {
	var rows [][]string
	for _, p := range c.Machine().Processes() {
		if !q.wants(c, p) {
			continue
		}
		row := make([]string, len(q.fields))
		for i, f := range q.fields {
			row[i] = f.value(c, p)
		}
		rows = append(rows, row)
	}
	if key := strings.TrimLeft(q.sort, "+-"); key != "" {
		for i, f := range q.fields {
			if f.name == key {
				slices.SortStableFunc(rows, func(a, b []string) int {
					x, errx := strconv.ParseFloat(a[i], 64)
					y, erry := strconv.ParseFloat(b[i], 64)
					d := strings.Compare(a[i], b[i])
					if errx == nil && erry == nil {
						d = int(x - y)
					}
					if q.sort[0] == '-' {
						return -d
					}
					return d
				})
			}
		}
	}
	found := len(rows) > 0
	head := make([]string, len(q.fields))
	for i, f := range q.fields {
		head[i] = f.head
	}
	if !q.noHead && slices.ContainsFunc(head, func(s string) bool { return s != "" }) {
		rows = append([][]string{head}, rows...)
	}
	var b strings.Builder
	for _, row := range rows {
		for i, f := range q.fields {
			if i > 0 {
				b.WriteByte(' ')
			}
			switch {
			case f.left && i == len(q.fields)-1:
				b.WriteString(row[i])
			case f.left:
				fmt.Fprintf(&b, "%-*s", f.width, row[i])
			default:
				fmt.Fprintf(&b, "%*s", f.width, row[i])
			}
		}
		b.WriteByte('\n')
	}
	status := show(c, b.String())
	if !found {
		return 1
	}
	return status
}

func top(c *tool.Call) int {
	f, ok := c.Flags("bn:d:p:u:o:cHiw::E:e:1", "batch=b", "iterations=n", "delay=d")
	if !ok {
		return 1
	}
	if !f.Has('b') {
		return c.Errorf(1, "there is no full-screen mode here; use top -b -n1")
	}
	used, total := c.Machine().Memory()
	all := c.Machine().Processes()
	fmt.Fprintf(c.Out, "top -%s", "")
	uptimeLine(c)
	fmt.Fprintf(c.Out, "Tasks: %3d total, %3d running, %3d sleeping,   0 stopped,   0 zombie\n%%Cpu(s):  0.0 us,  0.0 sy,  0.0 ni,100.0 id,  0.0 wa,  0.0 hi,  0.0 si,  0.0 st\n", len(all), 1, max(len(all)-1, 0))
	fmt.Fprintf(c.Out, "MiB Mem : %8.1f total, %8.1f free, %8.1f used, %8.1f buff/cache\n\n", float64(total)/(1<<20), float64(max(total-used, 0))/(1<<20), float64(used)/(1<<20), 0.0)
	fmt.Fprintf(c.Out, "    PID USER      PR  NI    VIRT    RES    SHR S  %%CPU  %%MEM     TIME+ COMMAND\n")
	for _, p := range all {
		fmt.Fprintf(c.Out, "%7d %-8s  20   0       0      0      0 S   0.0   0.0   0:00.00 %s\n", p.PID, c.Machine().UserName(p.UID), comm(p))
	}
	return 0
}

// pgrep is pkill too.
func pgrep(c *tool.Call) int {
	kill := c.Base() == "pkill"
	sig := sigTerm
	if kill {
		for i, a := range c.Args {
			if n, ok := parseSignal(strings.TrimPrefix(a, "-")); ok && len(a) > 1 && a[0] == '-' {
				sig = n
				c.Args = append(append([]string{}, c.Args[:i]...), c.Args[i+1:]...)
				break
			}
		}
	}
	f, ok := c.Flags("aclfinoqxvd:P:u:U:g:G:s:t:\x81:", "list-full=a", "count=c", "list-name=l", "full=f", "ignore-case=i", "newest=n", "oldest=o", "exact=x", "inverse=v", "delimiter=d",
		"parent=P", "euid=u", "uid=U", "pgroup=g", "signal=\x81")
	if !ok {
		return 2
	}
	if s := f.Value('\x81', ""); s != "" {
		if sig, ok = parseSignal(s); !ok {
			return c.Errorf(2, "Unknown signal \"%s\".", s)
		}
	}
	if len(f.Args) == 0 && !f.Has('P') && !f.Has('u') && !f.Has('U') && !f.Has('g') {
		c.Errorf(2, "no matching criteria specified")
		return usage.Try(c, 2)
	}
	pattern := ""
	if len(f.Args) > 0 {
		pattern = f.Args[0]
	}
	if f.Has('x') {
		pattern = "^(?:" + pattern + ")$"
	}
	if f.Has('i') {
		pattern = "(?i)" + pattern
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return c.Errorf(2, "%v", err)
	}
	var hit []tool.ProcessInfo
	self := -1
	for _, p := range c.Machine().Processes() { // the newest process with this name is this one
		if comm(p) == c.Base() && slices.Equal(p.Args[1:], c.Args) {
			self = p.PID
		}
	}
	for _, p := range c.Machine().Processes() {
		text := comm(p)
		if f.Has('f') {
			text = strings.Join(p.Args, " ")
		}
		on := re.MatchString(text) && (!f.Has('P') || f.Value('P', "") == strconv.Itoa(p.PPID)) && (!f.Has('g') || f.Value('g', "") == strconv.Itoa(p.PGID))
		if u := f.Value('u', f.Value('U', "")); u != "" {
			on = on && (u == c.Machine().UserName(p.UID) || u == strconv.Itoa(int(p.UID)))
		}
		if on != f.Has('v') && p.PID != self {
			hit = append(hit, p)
		}
	}
	if len(hit) > 1 && f.Has('n') {
		hit = hit[len(hit)-1:]
	}
	if len(hit) > 1 && f.Has('o') {
		hit = hit[:1]
	}
	if f.Has('c') {
		show(c, strconv.Itoa(len(hit))+"\n")
	}
	if len(hit) == 0 {
		return 1
	}
	if kill {
		status := 1
		for _, p := range hit {
			if err := c.Machine().Kill(p.PID, sig, c.UID()); err == nil {
				status = 0
			} else {
				c.Errorf(1, "killing pid %d failed: %s", p.PID, tool.ErrText(err))
			}
		}
		return status
	}
	if f.Has('c') {
		return 0
	}
	var out []string
	for _, p := range hit {
		s := strconv.Itoa(p.PID)
		if f.Has('a') {
			s += " " + strings.Join(p.Args, " ")
		} else if f.Has('l') {
			s += " " + comm(p)
		}
		out = append(out, s)
	}
	return show(c, strings.Join(out, f.Value('d', "\n"))+"\n")
}

func pidof(c *tool.Call) int {
	f, ok := c.Flags("sqxo:S:c", "single-shot=s", "separator=S")
	if !ok {
		return 1
	}
	var out []string
	for _, p := range slices.Backward(c.Machine().Processes()) {
		if slices.Contains(f.Args, comm(p)) || len(p.Args) > 0 && slices.Contains(f.Args, p.Args[0]) {
			out = append(out, strconv.Itoa(p.PID))
		}
	}
	if len(out) == 0 {
		return 1
	}
	if f.Has('s') {
		out = out[:1]
	}
	if f.Has('q') {
		return 0
	}
	return show(c, strings.Join(out, f.Value('S', " "))+"\n")
}

func killall(c *tool.Call) int {
	sig, quiet := sigTerm, false
	var names []string
	for i := 0; i < len(c.Args); i++ {
		a := c.Args[i]
		switch {
		case (a == "-s" || a == "--signal") && i+1 < len(c.Args):
			i++
			n, ok := parseSignal(c.Args[i])
			if !ok {
				return c.Errorf(1, "%s: unknown signal", c.Args[i])
			}
			sig = n
		case a == "-q" || a == "--quiet":
			quiet = true
		case len(a) > 1 && a[0] == '-':
			if n, ok := parseSignal(a[1:]); ok {
				sig = n
			}
		default:
			names = append(names, a)
		}
	}
	if len(names) == 0 {
		fmt.Fprintln(c.Err, "Usage: killall [OPTION]... [--] NAME...")
		return 1
	}
	status := 0
	for _, name := range names {
		found := false
		for _, p := range c.Machine().Processes() {
			if comm(p) == name && c.Machine().Kill(p.PID, sig, c.UID()) == nil {
				found = true
			}
		}
		if !found {
			status = 1
			if !quiet {
				fmt.Fprintf(c.Err, "%s: no process found\n", name)
			}
		}
	}
	return status
}
