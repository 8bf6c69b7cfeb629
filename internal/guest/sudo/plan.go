package sudo

import (
	"errors"
	"path"
	"strings"
)

// Caller is the caller of sudo: the real IDs and the unfiltered environment.
type Caller struct {
	UID, GID uint32
	Env      []string
}

// Command is the command to execute.
type Command struct {
	Path       string
	Args       []string // with the program's name
	Env        []string
	Dir        string // directory to change to first, as the new user; "" for none
	UID, GID   uint32
	Groups     []uint32 // all of them, GID first
	Background bool
}

// Authorize finds the caller's account and checks whether it may do anything. If not, the error is
// the text for the caller. Such callers must learn nothing else, so this comes before everything
// that depends on files.
func Authorize(r Request, c Caller, a *Accounts, host string) (Account, error) {
	from, ok := a.byUID(c.UID)
	switch {
	case !ok:
		return Account{}, errors.New("sudo: you do not exist in the passwd database")
	case a.may(from):
		return from, nil
	case r.Mode == List || r.Mode == Validate:
		return Account{}, errors.New("Sorry, user " + from.Name + " may not run sudo on " + host + ".")
	}
	return Account{}, errors.New(from.Name + " is not in the sudoers file.")
}

// Plan makes the command of an authorized request. runnable reports whether there is a program at a
// path. Errors have sudo's own texts.
func Plan(r Request, c Caller, from Account, a *Accounts, runnable func(file string) bool) (Command, error) {
	to, gid, err := target(r, from, a)
	if err != nil {
		return Command{}, err
	}
	out := Command{UID: to.UID, GID: gid, Groups: a.groupsOf(to, gid), Background: r.Background, Args: r.Command}
	if r.Login || r.Shell {
		shell := to.Shell
		if r.Shell {
			shell = from.Shell
			if own, _ := lookup(c.Env, "SHELL"); own != "" {
				shell = own
			}
		}
		out.Args = []string{shell}
		if len(r.Command) > 0 {
			out.Args = append(out.Args, "-c", quoted(r.Command))
		}
	}
	name := out.Args[0]
	if out.Path = Look(name, runnable); out.Path == "" {
		return Command{}, errors.New("sudo: " + name + ": command not found")
	}
	whole := strings.Join(out.Args[1:], " ")
	if len(whole) > maxCommand {
		whole = whole[:maxCommand]
	}
	out.Env = r.environment(c, from, to, strings.TrimSuffix(out.Path+" "+whole, " "))
	if r.Login {
		out.Args[0], out.Dir = "-"+path.Base(out.Path), to.Home
	}
	return out, nil
}

// target returns the user and group to run as.
func target(r Request, from Account, a *Accounts) (to Account, gid uint32, err error) {
	ok := true
	switch {
	case r.HasUser:
		to, ok = a.user(r.User)
	case r.HasGroup:
		to = from
	default:
		to, _ = a.byUID(0)
	}
	if !ok {
		return Account{}, 0, errors.New("sudo: unknown user " + r.User)
	}
	gid = to.GID
	if r.HasGroup {
		if gid, ok = a.gid(r.Group); !ok {
			return Account{}, 0, errors.New("sudo: unknown group " + r.Group)
		}
	}
	return to, gid, nil
}

// Look finds a program. A name with a slash is a path; another one is searched in SecurePath. If
// there is none, it returns "".
func Look(name string, runnable func(file string) bool) string {
	if strings.Contains(name, "/") {
		if runnable(name) {
			return name
		}
		return ""
	}
	if name == "" || name == "." || name == ".." {
		return ""
	}
	for dir := range strings.SplitSeq(SecurePath, ":") {
		if file := dir + "/" + name; runnable(file) {
			return file
		}
	}
	return ""
}

// quoted returns a command for a shell's -c. As with sudo, it does not quote a dollar: the
// variables are those of the new environment.
func quoted(args []string) string {
	var b strings.Builder
	for i, arg := range args {
		if i > 0 {
			b.WriteByte(' ')
		}
		for j := range len(arg) {
			c := arg[j]
			plain := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-' || c == '$' || c >= 0x80
			if !plain {
				b.WriteByte('\\')
			}
			b.WriteByte(c)
		}
	}
	return b.String()
}

// Allowed is the output of -l for a caller who may do anything.
func Allowed(name, host string) string {
	return "Matching Defaults entries for " + name + " on " + host + ":\n" +
		"    env_reset, secure_path=" + strings.ReplaceAll(SecurePath, ":", `\:`) + "\n\n" +
		"User " + name + " may run the following commands on " + host + ":\n" +
		"    (ALL : ALL) NOPASSWD: ALL\n"
}
