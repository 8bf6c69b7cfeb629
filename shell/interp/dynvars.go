package interp

import (
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// dynamicNames are the variables that the shell computes at each read.
var dynamicNames = []string{"BASHOPTS", "BASHPID", "BASH_ALIASES", "BASH_COMMAND", "BASH_ARGC", "BASH_ARGV", "BASH_ARGV0", "BASH_CMDS", "BASH_LINENO", "BASH_SOURCE", "BASH_SUBSHELL",
	"BASH_VERSINFO", "COMP_WORDBREAKS", "DIRSTACK", "EPOCHREALTIME", "EPOCHSECONDS", "EUID", "FUNCNAME", "GROUPS", "HISTCMD", "HOSTNAME", "LINENO", "PIPESTATUS", "PPID", "RANDOM",
	"SECONDS", "SHELLOPTS", "SRANDOM", "UID", "_"}

// dynamic computes a variable that the shell itself maintains. It returns nil for other names.
func (r *runner) dynamic(name string) *variable {
	if name == "_" {
		return &variable{set: true, str: r.lastArg}
	}
	if len(name) < 3 || name[0] < 'B' || name[0] > 'U' || r.hidden != nil && r.hidden[name] {
		return nil
	}
	text := func(s string) *variable { return &variable{set: true, str: s} }
	number := func(n int) *variable { return &variable{set: true, integer: true, str: strconv.Itoa(n)} }
	switch name {
	case "RANDOM":
		return number(int(r.nextRandom() & 0x7fff))
	case "SRANDOM":
		return text(strconv.FormatUint(uint64(r.nextRandom()<<16^r.nextRandom()), 10))
	case "SECONDS":
		return number(int(r.m.now().Sub(r.clock).Seconds()))
	case "EPOCHSECONDS":
		return text(strconv.FormatInt(r.m.now().Unix(), 10))
	case "EPOCHREALTIME":
		us := r.m.now().UnixMicro()
		return text(strconv.FormatInt(us/1e6, 10) + "." + strconv.FormatInt(us%1e6+1e6, 10)[1:])
	case "LINENO":
		return text(strconv.Itoa(int(r.line)))
	case "BASHPID":
		return number(r.p.pid)
	case "BASH_SUBSHELL":
		return text(strconv.Itoa(r.subshells))
	case "BASH_ARGV0":
		return text(r.name)
	case "BASH_COMMAND":
		return &variable{set: r.current != nil, str: r.commandText()}
	case "PPID":
		return &variable{set: true, integer: true, readonly: true, str: strconv.Itoa(r.ppid)}
	case "UID", "EUID":
		return &variable{set: true, integer: true, readonly: true, str: strconv.Itoa(int(r.cred().UID))}
	case "GROUPS":
		return &variable{set: true, arr: newArray([]string{strconv.Itoa(int(r.cred().GID))})}
	case "HOSTNAME":
		return text(r.m.Hostname())
	case "HISTCMD":
		return number(r.historyNumber() - 1)
	case "COMP_WORDBREAKS":
		return text(" \t\n\"'@><=;|&(:")
	case "BASH_VERSINFO":
		return &variable{set: true, readonly: true, arr: newArray([]string{"5", "2", "15", "1", "release", "x86_64-pc-linux-gnu"})}
	case "PIPESTATUS":
		return &variable{set: true, arr: newArray(r.pipeStatusList())}
	case "DIRSTACK":
		return &variable{set: true, arr: newArray(append([]string{r.dir}, r.dirs...))}
	case "FUNCNAME", "BASH_SOURCE", "BASH_LINENO":
		return r.callStack(name)
	case "BASH_ARGC", "BASH_ARGV":
		return &variable{set: true, arr: newArray(r.callArgs(name))}
	case "BASH_CMDS":
		a := newAssoc()
		for k, h := range r.hashed {
			a.put(k, h.path)
		}
		return &variable{set: true, assoc: a}
	case "BASH_ALIASES":
		a := newAssoc()
		for k, v := range r.aliases {
			a.put(k, v)
		}
		return &variable{set: true, assoc: a}
	case "SHELLOPTS":
		return &variable{set: true, readonly: true, str: r.opts.list(setTable)}
	case "BASHOPTS":
		return &variable{set: true, readonly: true, str: r.opts.list(shoptTable)}
	}
	return nil
}

func (r *runner) nextRandom() uint32 {
	r.random = r.random*1103515245 + 12345
	return r.random >> 16
}

// special handles the assignment to a variable that the shell computes. handled is true if nothing
// is left to do.
func (r *runner) special(name, value string) (handled, ok bool) {
	if name == "_" {
		r.lastArg = value
		return true, true
	}
	if len(name) < 3 || name[0] < 'B' || name[0] > 'U' || r.hidden != nil && r.hidden[name] {
		return false, true
	}
	switch name {
	case "RANDOM":
		n, _ := strconv.ParseInt(value, 10, 64) // what is no number is 0
		r.random = uint32(n)
	case "SECONDS":
		n, _ := strconv.ParseInt(value, 10, 64) // what is no number is 0
		r.clock = r.m.now().Add(-time.Duration(n) * time.Second)
	case "BASH_ARGV0":
		r.name = value
	case "UID", "EUID", "PPID", "SHELLOPTS", "BASHOPTS", "BASH_VERSINFO":
		r.errorf("%s: readonly variable", name)
		return true, false
	case "SRANDOM", "EPOCHSECONDS", "EPOCHREALTIME", "LINENO", "BASHPID", "BASH_SUBSHELL", "FUNCNAME", "BASH_SOURCE", "BASH_LINENO",
		"GROUPS", "DIRSTACK", "HISTCMD", "BASH_CMDS", "PIPESTATUS":
	default:
		return false, true
	}
	return true, true
}

// hide makes a computed variable an ordinary one, as unset does.
func (r *runner) hide(name string) {
	hidden := map[string]bool{name: true}
	for k := range r.hidden {
		hidden[k] = true
	}
	r.hidden = hidden // a new map, because forks share the old one
}

// assigned reacts to the change of a variable that the shell itself reads.
func (r *runner) assigned(name string) {
	switch name {
	case "OPTIND":
		r.getopts = 0
	case "HISTSIZE", "HISTFILESIZE":
		r.histSized(name)
	}
}

// callStack computes FUNCNAME, BASH_SOURCE and BASH_LINENO.
func (r *runner) callStack(which string) *variable {
	var out []string
	inFunc := false
	for _, f := range slices.Backward(r.calls) {
		inFunc = inFunc || !f.sourced
		switch which {
		case "FUNCNAME":
			out = append(out, f.name)
		case "BASH_SOURCE":
			out = append(out, f.file)
		default:
			out = append(out, strconv.Itoa(int(f.line)))
		}
	}
	if r.file != "" {
		switch which {
		case "FUNCNAME":
			out = append(out, "main")
		case "BASH_SOURCE":
			out = append(out, r.file)
		default:
			out = append(out, "0")
		}
	}
	if which == "FUNCNAME" && !inFunc {
		return &variable{arr: &array{}}
	}
	return &variable{set: true, arr: newArray(out)}
}

// pipeStatusList is PIPESTATUS.
func (r *runner) pipeStatusList() []string {
	out := make([]string, len(r.pipeStatus))
	for i, s := range r.pipeStatus {
		out[i] = strconv.Itoa(s)
	}
	return out
}

// shopted reports whether a shopt option is on.
func (r *runner) shopted(name string) bool {
	p := r.opts.shopt(name)
	return p != nil && *p
}

// optionNames lists the names of a table of options.
func optionNames(table []optionName) []string {
	out := make([]string, len(table))
	for i := range table {
		out[i] = table[i].name
	}
	return out
}

// toUpper and toLower change letters one by one. They leave bytes that are not valid text
// unchanged.
func toUpper(s string) string { return mapCase(s, upper) }
func toLower(s string) string { return mapCase(s, lower) }

// upper and lower work as in the C library: a letter whose other case has a different length in
// bytes stays unchanged.
func upper(c rune) rune {
	if c == 'ı' || c == 'ß' {
		return c
	}
	return unicode.ToUpper(c)
}

func lower(c rune) rune {
	if c == 'İ' {
		return c
	}
	return unicode.ToLower(c)
}

func mapCase(s string, conv func(rune) rune) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		c, n := utf8.DecodeRuneInString(s[i:])
		if c == utf8.RuneError && n <= 1 {
			b.WriteByte(s[i])
		} else {
			b.WriteRune(conv(c))
		}
		i += n
	}
	return b.String()
}

// capitalize applies the attribute -c: the first letter becomes upper case, the others lower case.
func capitalize(s string) string {
	if s == "" {
		return s
	}
	_, n := utf8.DecodeRuneInString(s)
	return toUpper(s[:n]) + toLower(s[n:])
}

// rememberArgs keeps the shell's own parameters for BASH_ARGV.
func (r *runner) rememberArgs() {
	if r.ownArgs == nil {
		own := slices.Clone(r.params)
		if len(r.calls) > 0 {
			own = nil
		}
		r.ownArgs = &own
	}
}

// callArgs computes BASH_ARGC and BASH_ARGV. BASH_ARGC has the number of arguments of each running
// call. BASH_ARGV has these arguments, beginning with the last one of the innermost call.
func (r *runner) callArgs(which string) []string {
	if len(r.calls) == 0 && !r.opts.extdebug {
		r.rememberArgs()
	}
	var out []string
	add := func(args []string) {
		if which == "BASH_ARGC" {
			out = append(out, strconv.Itoa(len(args)))
			return
		}
		for _, a := range slices.Backward(args) {
			out = append(out, a)
		}
	}
	for _, f := range slices.Backward(r.calls) {
		if f.debugged && (!f.sourced || f.own) {
			add(f.params)
		}
	}
	if r.ownArgs != nil {
		add(*r.ownArgs)
	}
	return out
}
