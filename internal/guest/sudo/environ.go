package sudo

import (
	"slices"
	"strconv"
	"strings"
)

// SecurePath is where commands are searched, whatever the caller's PATH is.
const SecurePath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// maxCommand bounds the arguments in SUDO_COMMAND, as sudo does. The environment must leave room
// for the arguments themselves.
const maxCommand = 4096

// kept are the variables that a command gets from its caller.
var kept = []string{"COLORS", "DISPLAY", "HOSTNAME", "KRB5CCNAME", "LS_COLORS", "XAUTHORITY", "XAUTHORIZATION", "XDG_CURRENT_DESKTOP"}

// checked are kept too, unless their value could point a library to a file or format of the
// caller's.
var checked = []string{"COLORTERM", "LANG", "LANGUAGE", "LC_*", "LINGUAS", "TERM", "TZ"}

// deleted are variables that even -E does not keep; it is sudo's own list. They make programs load
// or run something before their own work. GOTRACEBACK does not come from the caller: the runtime of
// a set-uid Go program sets it.
var deleted = []string{
	"IFS", "CDPATH", "LOCALDOMAIN", "RES_OPTIONS", "HOSTALIASES", "NLSPATH", "PATH_LOCALE", "LD_*", "_RLD*", "GLIBC_TUNABLES",
	"TERMINFO", "TERMINFO_DIRS", "TERMPATH", "TERMCAP", "ENV", "BASH_ENV", "PS4", "GLOBIGNORE", "BASHOPTS", "SHELLOPTS",
	"FPATH", "NULLCMD", "READNULLCMD", "ZDOTDIR", "TMPPREFIX", "JAVA_TOOL_OPTIONS",
	"PERLIO_DEBUG", "PERLLIB", "PERL5LIB", "PERL5OPT", "PERL5DB", "PYTHONHOME", "PYTHONPATH", "PYTHONINSPECT",
	"PYTHONUSERBASE", "RUBYLIB", "RUBYOPT", "GOTRACEBACK", "SUDO_*",
}

// matches reports whether a variable is in a list of names and prefixes with "*".
func matches(list []string, name string) bool {
	return slices.ContainsFunc(list, func(p string) bool {
		prefix, wild := strings.CutSuffix(p, "*")
		return p == name || wild && strings.HasPrefix(name, prefix)
	})
}

// environ is an environment that is being built, in order.
type environ struct {
	names  []string
	values map[string]string
}

// set sets a variable.
func (e *environ) set(name, value string) {
	if _, ok := e.values[name]; !ok {
		e.names = append(e.names, name)
	}
	e.values[name] = value
}

// fallback sets a variable that has no value yet.
func (e *environ) fallback(name, value string) {
	if _, ok := e.values[name]; !ok {
		e.set(name, value)
	}
}

// list returns the environment in the form of execve(2).
func (e *environ) list() []string {
	out := make([]string, len(e.names))
	for i, n := range e.names {
		out[i] = n + "=" + e.values[n]
	}
	return out
}

// keeps reports whether a caller's variable is passed on.
func (r Request) keeps(name, value string) bool {
	switch {
	case name == "PATH", strings.HasPrefix(value, "()"), matches(deleted, name): // "()": a function of bash
		return false
	case r.Preserve, matches(kept, name):
		return true
	case matches(checked, name):
		return harmless(name, value)
	}
	return false
}

// harmless reports whether the value of a checked variable is only a name.
func harmless(name, value string) bool {
	if name == "TZ" { // allows Europe/Berlin, but no file elsewhere
		return !strings.Contains(value, "..") && !strings.HasPrefix(strings.TrimPrefix(value, ":"), "/") && printable(value)
	}
	return !strings.ContainsAny(value, "/%")
}

// printable reports whether a value is one word of visible ASCII.
func printable(value string) bool {
	return !strings.ContainsFunc(value, func(c rune) bool { return c <= ' ' || c > '~' })
}

// lookup returns the first value of a variable: programs see that one.
func lookup(env []string, name string) (string, bool) {
	for _, kv := range env {
		if value, ok := strings.CutPrefix(kv, name+"="); ok {
			return value, true
		}
	}
	return "", false
}

// environment returns the command's environment.
func (r Request) environment(caller Caller, from, to Account, command string) []string {
	e := &environ{values: map[string]string{}}
	for _, kv := range caller.Env {
		name, value, ok := strings.Cut(kv, "=")
		if !ok || name == "" || !r.keeps(name, value) {
			continue
		}
		e.fallback(name, value) // of several the first counts, see lookup
	}
	e.fallback("TERM", "unknown")
	e.set("PATH", SecurePath)
	e.set("LOGNAME", to.Name)
	e.set("USER", to.Name)
	if r.Home {
		e.set("HOME", to.Home)
	}
	e.fallback("HOME", to.Home) // -E keeps the caller's, as with sudo
	e.fallback("SHELL", to.Shell)
	e.fallback("MAIL", "/var/mail/"+to.Name)
	e.set("SUDO_COMMAND", command)
	e.set("SUDO_USER", from.Name)
	e.set("SUDO_UID", strconv.FormatUint(uint64(caller.UID), 10))
	e.set("SUDO_GID", strconv.FormatUint(uint64(caller.GID), 10))
	// Variables that the caller names may have any value: a caller who may run any command could
	// run env(1) as well.
	for _, name := range r.Keep {
		if value, ok := lookup(caller.Env, name); ok {
			e.set(name, value)
		}
	}
	for _, kv := range r.Set {
		name, value, _ := strings.Cut(kv, "=")
		e.set(name, value)
	}
	return e.list()
}
