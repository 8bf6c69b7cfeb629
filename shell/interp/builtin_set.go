package interp

import (
	"cmp"
	"sort"
	"strconv"
	"strings"
)

const setUsage = "set: usage: set [-abefhkmnptuvxBCEHPT] [-o option-name] [--] [-] [arg ...]\n"

// biSet changes options and positional parameters.
func biSet(c *call) int {
	r := c.r
	if len(c.args) == 0 {
		return r.printVariables(c)
	}
	args := c.args
	for len(args) > 0 {
		a := args[0]
		switch {
		case a == "--":
			r.setParams(args[1:])
			return 0
		case a == "+":
			args = args[1:]
			continue
		case a == "-":
			r.opts.xtrace, r.opts.verbose = false, false
			if len(args) > 1 {
				r.setParams(args[1:])
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
					return r.printOptions(c, on)
				}
				if !r.setOption(args[0], on) {
					return c.fail(2, "%s: invalid option name", args[0])
				}
				args = args[1:]
				continue
			}
			p := r.opts.letter(a[i])
			if p == nil {
				c.fail(2, "%c%c: invalid option", a[0], a[i])
				r.writeErr(setUsage)
				return 2
			}
			*p = on
			r.optionChanged(a[i], on)
		}
	}
	if len(args) > 0 {
		r.setParams(args)
	}
	return 0
}

// setParams replaces the positional parameters.
func (r *runner) setParams(params []string) {
	r.params = params
	r.paramSets++
}

// setOption switches an option of set -o by name.
func (r *runner) setOption(name string, on bool) bool {
	for i := range setTable {
		if n := &setTable[i]; n.name == name {
			*n.at(&r.opts) = on
			if n.letter != 0 {
				r.optionChanged(n.letter, on)
			}
			switch {
			case name == "posix":
				r.opts.inheritErrexit, r.opts.expandAliases = on || r.opts.inheritErrexit, on || r.interactive
				r.opts.shiftVerbose = on
			case name == "emacs" && on:
				r.opts.vi = false
			case name == "vi" && on:
				r.opts.emacs = false
			}
			return true
		}
	}
	return false
}

// optionChanged applies the side effects of some options.
func (r *runner) optionChanged(letter byte, on bool) {
	if letter == 'm' && on {
		r.jobControl()
	}
}

// printVariables prints the output of set without arguments: variables and functions.
func (r *runner) printVariables(*call) int {
	r.listSet()
	return 0
}

// state is a switch in words.
func state(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

func padTo(s string, width int) string {
	return s + strings.Repeat(" ", max(width-len(s), 0))
}

// printOptions prints the options of set, as a table or as commands.
func (r *runner) printOptions(c *call, table bool) int {
	var b strings.Builder
	for i := range setTable {
		r.printSet(&b, &setTable[i], !table)
	}
	return c.print(b.String())
}

func (r *runner) printSet(b *strings.Builder, n *optionName, asCommand bool) {
	on := *n.at(&r.opts)
	switch {
	case !asCommand:
		b.WriteString(padTo(n.name, 15) + "\t" + state(on) + "\n")
	case on:
		b.WriteString("set -o " + n.name + "\n")
	default:
		b.WriteString("set +o " + n.name + "\n")
	}
}

func (r *runner) printShopt(b *strings.Builder, n *optionName, asCommand bool) {
	on := *n.at(&r.opts)
	switch {
	case !asCommand:
		b.WriteString(padTo(n.name, 15) + "\t" + state(on) + "\n")
	case on:
		b.WriteString("shopt -s " + n.name + "\n")
	default:
		b.WriteString("shopt -u " + n.name + "\n")
	}
}

// biShopt shows and changes the shell's optional behaviour.
func biShopt(c *call) int {
	args := c.args
	var set, unset, quiet, print, sets bool
	for len(args) > 0 && len(args[0]) > 1 && args[0][0] == '-' {
		a := args[0]
		args = args[1:]
		if a == "--" {
			break
		}
		for _, l := range a[1:] {
			switch l {
			case 's':
				set = true
			case 'u':
				unset = true
			case 'q':
				quiet = true
			case 'p':
				print = true
			case 'o':
				sets = true
			default:
				c.fail(2, "-%c: invalid option", l)
				c.r.writeErr("shopt: usage: shopt [-pqsu] [-o] [optname ...]\n")
				return 2
			}
		}
	}
	if sets && (set || unset) && !c.areOptions(args) {
		return 0 // bash has it so
	}
	if set && unset {
		return c.fail(1, "cannot set and unset shell options simultaneously")
	}
	table, show := shoptTable, c.r.printShopt
	if sets {
		table, show = setTable, c.r.printSet
	}
	var b strings.Builder
	if len(args) == 0 {
		for i := range table {
			n := &table[i]
			if on := *n.at(&c.r.opts); !quiet && (on || !set) && (!on || !unset) {
				show(&b, n, print)
			}
		}
		return c.print(b.String())
	}
	status := 0
	for _, name := range args {
		i := 0
		for i < len(table) && table[i].name != name {
			i++
		}
		if i == len(table) {
			kind := "shell option"
			if sets {
				kind = "option"
			}
			status = c.fail(1, "%s: invalid %s name", name, kind)
			continue
		}
		n := &table[i]
		switch on := n.at(&c.r.opts); {
		case set || unset:
			c.r.changeOption(name, on, set, sets)
		default:
			if !*on {
				status = 1
			}
			if !quiet {
				show(&b, n, print)
			}
		}
	}
	if c.print(b.String()) != 0 {
		return 1
	}
	return status
}

// areOptions reports whether set -o knows all names. It writes a message about the first unknown
// one.
func (c *call) areOptions(names []string) bool {
	for _, name := range names {
		if c.r.opts.named(name) == nil {
			c.fail(1, "%s: invalid shell option name", name)
			return false
		}
	}
	return true
}

// changeOption sets or unsets one option. With ofSet it is an option of set -o, otherwise the
// option of shopt at at.
func (r *runner) changeOption(name string, at *bool, value, ofSet bool) {
	switch {
	case ofSet:
		r.setOption(name, value)
	case name == "login_shell" || name == "restricted_shell": // fixed
	case name == "extdebug":
		*at = value
		if value {
			r.rememberArgs()
		}
		r.opts.functrace, r.opts.errtrace = value, value
	default:
		*at = value
	}
}

// biTrap shows and sets traps.
func biTrap(c *call) int {
	r := c.r
	args, print := c.args, false
	for len(args) > 0 && len(args[0]) > 1 && args[0][0] == '-' {
		a := args[0]
		if a == "--" {
			args = args[1:]
			break
		}
		if strings.Trim(a[1:], "lpP") != "" {
			c.fail(2, "-%c: invalid option", a[1])
			r.writeErr("trap: usage: trap [-lp] [[arg] signal_spec ...]\n")
			return 2
		}
		if strings.Contains(a, "l") {
			return listSignals(c)
		}
		print = true
		args = args[1:]
	}
	if print || len(args) == 0 {
		return r.printTraps(c, args)
	}
	body, names := args[0], args[1:]
	remove := body == "-"
	if _, err := strconv.ParseUint(body, 10, 31); err == nil && len(names) >= 0 {
		remove, names = true, args
	} else if len(names) == 0 {
		if _, ok := trapNumber(body); !ok || body == "-" || body == "" {
			r.writeErr("trap: usage: trap [-lp] [[arg] signal_spec ...]\n")
			return 2
		}
		remove, names = true, args
	}
	status := 0
	for _, n := range names {
		sig, ok := trapNumber(n)
		if !ok {
			status = c.fail(1, "%s: invalid signal specification", n)
			continue
		}
		r.setTrap(sig, body, remove)
		r.pay(len(body))
	}
	return status
}

func (r *runner) printTraps(c *call, names []string) int {
	traps := r.traps
	if r.oldTraps != nil {
		traps = r.oldTraps
	}
	var sigs []int
	status := 0
	if len(names) == 0 {
		for sig := range traps {
			sigs = append(sigs, sig)
		}
		sort.Ints(sigs)
		// bash lists ERR, DEBUG and RETURN after the signals, DEBUG first.
		order := map[int]int{trapDEBG: 65, trapERR: 66}
		sort.SliceStable(sigs, func(i, j int) bool { return cmp.Or(order[sigs[i]], sigs[i]) < cmp.Or(order[sigs[j]], sigs[j]) })
	}
	for _, n := range names {
		sig, ok := trapNumber(n)
		if !ok {
			status = c.fail(1, "%s: invalid signal specification", n)
			continue
		}
		sigs = append(sigs, sig)
	}
	var b strings.Builder
	for _, sig := range sigs {
		if body, ok := traps[sig]; ok {
			b.WriteString("trap -- " + quoteAlways(body) + " " + trapName(sig) + "\n")
		}
	}
	c.print(b.String())
	return status
}

func trapNumber(n string) (int, bool) {
	switch strings.TrimPrefix(strings.ToUpper(n), "SIG") {
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
