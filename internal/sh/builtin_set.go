package sh

import (
	"sort"
	"strconv"
	"strings"
)

// optionNames are the names of set -o, with their letters.
var optionNames = []struct {
	name   string
	letter byte
}{
	{"allexport", 'a'}, {"errexit", 'e'}, {"noclobber", 'C'}, {"noexec", 'n'}, {"noglob", 'f'},
	{"nounset", 'u'}, {"pipefail", 0}, {"verbose", 'v'}, {"xtrace", 'x'},
}

// named returns the switch of an option's name, nil when there is none.
func (o *options) named(name string) *bool {
	switch name {
	case "allexport":
		return &o.allexport
	case "errexit":
		return &o.errexit
	case "noclobber":
		return &o.noclobber
	case "noexec":
		return &o.noexec
	case "noglob":
		return &o.noglob
	case "nounset":
		return &o.nounset
	case "pipefail":
		return &o.pipefail
	case "verbose":
		return &o.verbose
	case "xtrace":
		return &o.xtrace
	}
	return nil
}

// letter returns the switch of an option's letter. Letters without a meaning here
// but known to bash get a switch that does nothing.
func (o *options) letter(l byte) *bool {
	for _, n := range optionNames {
		if n.letter == l {
			return o.named(n.name)
		}
	}
	if strings.IndexByte("bhkmptBEHPT", l) >= 0 {
		return new(bool)
	}
	return nil
}

func (r *runner) flagLetters() string {
	s := ""
	for _, n := range optionNames {
		if n.letter != 0 && *r.opts.named(n.name) {
			s += string(n.letter)
		}
	}
	s += "hB"
	if r.interactive {
		s += "i"
	}
	return s
}

func biSet(c *call) int {
	r := c.r
	if len(c.args) == 0 {
		for _, n := range r.names("") {
			if v := r.lookup(n); v != nil && v.arr == nil && v.assoc == nil {
				if s := v.str; s == "" || isPlain(s) {
					c.print(n + "=" + s + "\n")
				} else {
					c.print(n + "=" + quoteSingle(s) + "\n")
				}
			}
		}
		return 0
	}
	args := c.args
	for len(args) > 0 {
		a := args[0]
		if a == "--" {
			r.params = args[1:]
			return 0
		}
		if a == "-" {
			if r.params = args[1:]; len(args) == 1 {
				r.params = nil
			}
			return 0
		}
		if len(a) < 2 || a[0] != '-' && a[0] != '+' {
			break
		}
		args = args[1:]
		on := a[0] == '-'
		for i := 1; i < len(a); i++ {
			if a[i] == 'o' {
				if len(args) == 0 {
					r.printOptions(on)
					return 0
				}
				p := r.opts.named(args[0])
				if p == nil && !strings.Contains(" posix braceexpand hashall monitor emacs vi history errtrace functrace notify ", " "+args[0]+" ") {
					return c.fail(2, "%s: invalid option name", args[0])
				}
				if p != nil {
					*p = on
				}
				args = args[1:]
				continue
			}
			p := r.opts.letter(a[i])
			if p == nil {
				return c.fail(2, "%c%c: invalid option", a[0], a[i])
			}
			*p = on
		}
	}
	if len(args) > 0 {
		r.params = args
	}
	return 0
}

func (r *runner) printOptions(readable bool) {
	for _, n := range optionNames {
		on := *r.opts.named(n.name)
		switch {
		case readable:
			state := "off"
			if on {
				state = "on"
			}
			r.writeFD(1, []byte(n.name+strings.Repeat(" ", 15-len(n.name))+"\t"+state+"\n"))
		case on:
			r.writeFD(1, []byte("set -o "+n.name+"\n"))
		default:
			r.writeFD(1, []byte("set +o "+n.name+"\n"))
		}
	}
}

func (o *options) shopt(name string) *bool {
	switch name {
	case "nullglob":
		return &o.nullglob
	case "dotglob":
		return &o.dotglob
	case "globstar":
		return &o.globstar
	case "nocasematch":
		return &o.nocasematch
	case "nocaseglob":
		return &o.nocaseglob
	case "failglob":
		return &o.failglob
	}
	return nil
}

func biShopt(c *call) int {
	args, set, unset, quiet := c.args, false, false, false
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		set = set || strings.Contains(args[0], "s")
		unset = unset || strings.Contains(args[0], "u")
		quiet = quiet || strings.Contains(args[0], "q")
		args = args[1:]
	}
	status := 0
	for _, name := range args {
		p := c.r.opts.shopt(name)
		if p == nil {
			if strings.Contains(" extglob expand_aliases checkwinsize cmdhist histappend sourcepath interactive_comments lastpipe inherit_errexit login_shell ", " "+name+" ") {
				if name == "lastpipe" && set {
					return c.fail(1, "lastpipe is not supported in the simulated tier")
				}
				continue
			}
			return c.fail(1, "%s: invalid shell option name", name)
		}
		switch {
		case set:
			*p = true
		case unset:
			*p = false
		default:
			state := "off"
			if *p {
				state = "on"
			} else {
				status = 1
			}
			if !quiet {
				c.print(name + strings.Repeat(" ", max(15-len(name), 0)) + "\t" + state + "\n")
			}
		}
	}
	return status
}

func biTrap(c *call) int {
	args := c.args
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if len(args) == 0 || args[0] == "-p" {
		sigs := make([]int, 0, len(c.r.traps))
		for sig := range c.r.traps {
			sigs = append(sigs, sig)
		}
		sort.Ints(sigs)
		for _, sig := range sigs {
			c.print("trap -- " + quoteSingle(c.r.traps[sig]) + " " + trapName(sig) + "\n")
		}
		return 0
	}
	if args[0] == "-l" {
		return listSignals(c)
	}
	body, remove := args[0], false
	names := args[1:]
	if _, err := strconv.Atoi(body); body == "-" || err == nil || len(args) == 1 {
		remove = true
		if body != "-" {
			names = args
		}
	}
	status := 0
	for _, n := range names {
		sig, ok := trapNumber(n)
		if !ok {
			status = c.fail(1, "%s: invalid signal specification", n)
			continue
		}
		c.r.setTrap(sig, body, remove)
	}
	return status
}

func trapNumber(n string) (int, bool) {
	switch strings.ToUpper(n) {
	case "ERR":
		return trapERR, true
	case "DEBUG":
		return trapDEBG, true
	case "RETURN":
		return trapRET, true
	}
	return parseSignal(n)
}

func trapName(sig int) string {
	switch sig {
	case trapEXIT:
		return "EXIT"
	case trapERR:
		return "ERR"
	case trapDEBG:
		return "DEBUG"
	case trapRET:
		return "RETURN"
	}
	return "SIG" + signalNames[sig]
}

func listSignals(c *call) int {
	nums := make([]int, 0, len(signalNames))
	for n := range signalNames {
		nums = append(nums, n)
	}
	sort.Ints(nums)
	for _, n := range nums {
		c.print(strconv.Itoa(n) + ") SIG" + signalNames[n] + "\n")
	}
	return 0
}
