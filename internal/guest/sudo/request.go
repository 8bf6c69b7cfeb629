// Package sudo is the part of sudo(8) that people and agents use. It parses a command line, checks
// who may run it, and returns the command and its environment. It is for sandboxes whose image has
// no sudo.
//
// It knows one rule, that of sandboxes: root, the account "user" and the members of the groups sudo
// and wheel may run every command as every user, without a password. It reads no sudoers file and
// no plugin.
//
// The threat: the program that uses this package (cmd/carrel-sudo) is set-uid root, and everything
// its caller controls is hostile, first of all arguments and environment. So the package does
// nothing by itself: it opens no file, starts no process and reads no environment. It returns a
// plan made from the account files and the request. No variable of the caller's environment reaches
// the command unless a rule here names it.
package sudo

import (
	"slices"
	"strings"
)

// Mode is the action of a command line.
type Mode int

// The modes. Run is the default without another option.
const (
	Run      Mode = iota
	List          // -l: list the caller's rights, or find a command
	Validate      // -v: print nothing if the caller may do anything
	Forget        // -k or -K alone: there is no password to forget
	Version       // -V
	Help          // -h
)

// Request is a parsed command line.
type Request struct {
	Mode Mode
	// User and Group are names, or numbers after "#". Without a User it is root, or the caller if
	// there is a Group.
	User, Group string
	// HasUser and HasGroup distinguish an absent name from an empty one.
	HasUser, HasGroup bool
	Login, Shell      bool     // -i, -s
	Home              bool     // -H
	Preserve          bool     // -E, --preserve-env
	Keep              []string // --preserve-env=LIST
	Background        bool     // -b
	Set               []string // VAR=value
	Command           []string
}

// UsageError is the error for an invalid command line. Its text may be empty if the usage is
// enough.
type UsageError string

// Error implements error.
func (e UsageError) Error() string { return string(e) }

// Usage is printed with a UsageError, and with -h.
const Usage = `usage: sudo -h | -K | -k | -V
usage: sudo -v [-knS] [-g group] [-u user]
usage: sudo -l [-knS] [-g group] [-u user] [command [arg ...]]
usage: sudo [-bEHknS] [-g group] [-p prompt] [-u user] [VAR=value] [-i | -s]
            [command [arg ...]]
`

// long are the long names of options, with their letters.
var long = map[string]byte{
	"askpass": 'A', "background": 'b', "bell": 'B', "group": 'g', "help": 'h', "list": 'l', "login": 'i',
	"non-interactive": 'n', "preserve-env": 'E', "prompt": 'p', "remove-timestamp": 'K', "reset-timestamp": 'k',
	"set-home": 'H', "shell": 's', "stdin": 'S', "user": 'u', "validate": 'v', "version": 'V',
}

// withValue are the options with a value.
const withValue = "gpu"

// parser walks a command line.
type parser struct {
	Request
	args   []string
	forget bool
}

// Parse parses the arguments after the program's name. The error is a UsageError.
func Parse(args []string) (Request, error) {
	p := &parser{args: args}
	for len(p.args) > 0 {
		arg := p.args[0]
		var err error
		switch {
		case arg == "--":
			p.args = p.args[1:]
			return p.finish()
		case strings.HasPrefix(arg, "--"):
			p.args = p.args[1:]
			err = p.long(arg[2:])
		case len(arg) > 1 && arg[0] == '-':
			p.args = p.args[1:]
			err = p.letters(arg[1:])
		case assigns(arg):
			p.args = p.args[1:]
			p.Set = append(p.Set, arg)
		default:
			return p.finish()
		}
		if err != nil {
			return Request{}, err
		}
	}
	return p.finish()
}

// assigns reports whether an argument is VAR=value and not a command's path.
func assigns(arg string) bool {
	i := strings.IndexByte(arg, '=')
	return i > 0 && arg[0] != '/'
}

// long parses one --option, with or without =value.
func (p *parser) long(option string) error {
	name, value, has := strings.Cut(option, "=")
	letter, ok := long[name]
	switch {
	case !ok:
		return UsageError("unrecognized option '--" + name + "'")
	case letter == 'E' && has:
		for v := range strings.SplitSeq(value, ",") {
			if v != "" {
				p.Keep = append(p.Keep, v)
			}
		}
		return nil
	case strings.IndexByte(withValue, letter) < 0 && has:
		return UsageError("option '--" + name + "' doesn't allow an argument")
	case strings.IndexByte(withValue, letter) >= 0 && !has:
		if len(p.args) == 0 {
			return UsageError("option '--" + name + "' requires an argument")
		}
		value, p.args = p.args[0], p.args[1:]
	}
	return p.option(letter, value)
}

// letters parses one argument of short options, as in -nu root or -uroot.
func (p *parser) letters(s string) error {
	for i := 0; i < len(s); i++ {
		letter, value := s[i], ""
		if strings.IndexByte(withValue, letter) >= 0 {
			switch {
			case i+1 < len(s):
				value = s[i+1:]
			case len(p.args) > 0:
				value, p.args = p.args[0], p.args[1:]
			default:
				return UsageError("option requires an argument -- '" + string(letter) + "'")
			}
			return p.option(letter, value)
		}
		if err := p.option(letter, ""); err != nil {
			return err
		}
	}
	return nil
}

// option notes one option.
func (p *parser) option(letter byte, value string) error {
	switch letter {
	case 'A', 'B', 'n', 'p', 'S': // about asking for a password, which never happens here
	case 'b':
		p.Background = true
	case 'E':
		p.Preserve = true
	case 'g':
		p.Group, p.HasGroup = value, true
	case 'H':
		p.Home = true
	case 'i':
		p.Login = true
	case 'k':
		p.forget = true
	case 's':
		p.Shell = true
	case 'u':
		p.User, p.HasUser = value, true
	case 'K':
		return p.mode(Forget)
	case 'l':
		return p.mode(List)
	case 'v':
		return p.mode(Validate)
	case 'V':
		return p.mode(Version)
	case 'h':
		return p.mode(Help)
	default:
		// Show one byte of a longer character as it is, as getopt does.
		return UsageError("invalid option -- '" + string([]byte{letter}) + "'")
	}
	return nil
}

// mode sets the action for an option. -l may be given twice.
func (p *parser) mode(m Mode) error {
	if p.Mode != Run && p.Mode != m {
		return UsageError("Only one of the -e, -h, -i, -K, -l, -s, -v or -V options may be specified")
	}
	p.Mode = m
	return nil
}

// finish judges the whole.
func (p *parser) finish() (Request, error) {
	r := p.Request
	r.Command = slices.Clone(p.args)
	plain := len(r.Command) == 0 && !r.Login && !r.Shell
	switch {
	case r.Login && r.Shell:
		return Request{}, UsageError("you may not specify both the -i and -s options")
	case r.Login && r.Preserve:
		return Request{}, UsageError("you may not specify both the -i and -E options")
	case r.Mode == Help || r.Mode == Version:
		return r, nil
	case (r.Mode == List || r.Mode == Validate) && len(r.Set) > 0:
		return Request{}, UsageError("you may not specify environment variables in list or validate mode")
	case r.Mode != Run && r.Mode != List && !plain, r.Mode == List && (r.Login || r.Shell):
		return Request{}, UsageError("")
	case r.Mode == Run && plain && p.forget && len(r.Set) == 0:
		r.Mode = Forget
	case r.Mode == Run && plain:
		return Request{}, UsageError("")
	}
	return r, nil
}
