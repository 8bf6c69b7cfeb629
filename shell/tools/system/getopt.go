package system

import (
	"fmt"
	"strings"

	"github.com/carrel-dev/carrel/shell/tool"
)

// longOption is a long name, and whether it takes an argument: 0 never, 1 always, 2 optionally.
type longOption struct {
	name  string
	takes int
}

// getopter is one run of getopt.
type getopter struct {
	c          *tool.Call
	name       string
	short      string
	long       []longOption
	alone      bool // -a: long options may begin with one dash
	quiet, csh bool
	raw        bool // -u: unquoted
	out        []string
	params     []string
	failed     bool
	inOrder    bool // +: the first parameter ends the options
	keep       bool // -: parameters stay where they are
}

func getopt(c *tool.Call) int {
	compatible := c.Getenv("GETOPT_COMPATIBLE") != ""
	if len(c.Args) > 0 && !strings.HasPrefix(c.Args[0], "-") || compatible && len(c.Args) > 0 {
		g := &getopter{c: c, name: "getopt", raw: true, short: strings.TrimLeft(c.Args[0], "-+")}
		return g.run(c.Args[1:], false)
	}
	f, ok := c.Flags("+al:n:o:qQs:TuhV", "alternative=a", "longoptions=l", "name=n", "options=o", "quiet=q", "quiet-output=Q", "shell=s", "test=T", "unquoted=u")
	if !ok {
		return 2
	}
	if f.Has('T') {
		return 4
	}
	g := &getopter{c: c, name: f.Value('n', "getopt"), quiet: f.Has('q'), raw: f.Has('u'), alone: f.Has('a'), csh: strings.HasSuffix(f.Value('s', "bash"), "csh")}
	params := f.Args
	if f.Has('o') {
		g.short = f.Value('o', "")
	} else {
		if len(params) == 0 {
			return c.Errorf(2, "missing optstring argument")
		}
		g.short, params = params[0], params[1:]
		if len(params) > 0 && params[0] == "--" {
			params = params[1:]
		}
	}
	for _, list := range f.Values('l') {
		for n := range strings.FieldsFuncSeq(list, func(r rune) bool { return r == ',' || r == ' ' || r == '\t' || r == '\n' }) {
			o := longOption{name: strings.TrimRight(n, ":")}
			o.takes = min(len(n)-len(o.name), 2)
			g.long = append(g.long, o)
		}
	}
	g.inOrder, g.keep = strings.HasPrefix(g.short, "+"), strings.HasPrefix(g.short, "-")
	g.short = strings.TrimLeft(g.short, "+-")
	return g.run(params, f.Has('Q'))
}

func (g *getopter) run(args []string, silent bool) int {
	for len(args) > 0 {
		a := args[0]
		args = args[1:]
		switch {
		case a == "--":
			g.params = append(g.params, args...)
			args = nil
		case strings.HasPrefix(a, "--"):
			args = g.longOne(a[2:], "--", args)
		case len(a) > 1 && a[0] == '-' && g.alone && g.matches(a[1:]):
			args = g.longOne(a[1:], "-", args)
		case len(a) > 1 && a[0] == '-':
			args = g.shorts(a[1:], args)
		case g.keep:
			g.out = append(g.out, g.quote(a))
		case g.inOrder || g.c.Getenv("POSIXLY_CORRECT") != "":
			g.params = append(append(g.params, a), args...)
			args = nil
		default:
			g.params = append(g.params, a)
		}
	}
	if !silent {
		var b strings.Builder
		for _, o := range g.out {
			b.WriteString(" " + o)
		}
		b.WriteString(" --")
		for _, p := range g.params {
			b.WriteString(" " + g.quote(p))
		}
		if s := show(g.c, b.String()+"\n"); s != 0 {
			return s
		}
	}
	if g.failed {
		return 1
	}
	return 0
}

func (g *getopter) fail(format string, args ...any) {
	g.failed = true
	if !g.quiet {
		fmt.Fprintf(g.c.Err, "%s: %s\n", g.name, fmt.Sprintf(format, args...))
	}
}

func (g *getopter) quote(s string) string {
	if g.raw {
		return s
	}
	if g.csh {
		return "'" + strings.NewReplacer("'", `'\''`, "!", `'\!'`, "\n", `\n`, " ", `'\ '`).Replace(s) + "'"
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

func (g *getopter) find(name string) []longOption {
	var out []longOption
	for _, o := range g.long {
		if o.name == name {
			return []longOption{o}
		}
		if strings.HasPrefix(o.name, name) {
			out = append(out, o)
		}
	}
	return out
}

func (g *getopter) matches(a string) bool {
	name, _, _ := strings.Cut(a, "=")
	return len(g.find(name)) > 0 && (len(name) > 1 || strings.IndexByte(g.short, name[0]) < 0)
}

func (g *getopter) longOne(a, dash string, args []string) []string {
	name, value, has := strings.Cut(a, "=")
	found := g.find(name)
	switch {
	case len(found) == 0:
		g.fail("unrecognized option '%s%s'", dash, a)
		return args
	case len(found) > 1:
		var names []string
		for _, o := range found {
			names = append(names, "'--"+o.name+"'")
		}
		g.fail("option '%s%s' is ambiguous; possibilities: %s", dash, a, strings.Join(names, " "))
		return args
	}
	o := found[0]
	switch {
	case o.takes == 0 && has:
		g.fail("option '%s%s' doesn't allow an argument", dash, o.name)
		return args
	case o.takes == 1 && !has:
		if len(args) == 0 {
			g.fail("option '%s%s' requires an argument", dash, o.name)
			return args
		}
		value, args = args[0], args[1:]
	}
	g.out = append(g.out, "--"+o.name)
	if o.takes > 0 {
		g.out = append(g.out, g.quote(value))
	}
	return args
}

func (g *getopter) shorts(a string, args []string) []string {
	for i := 0; i < len(a); i++ {
		at := strings.IndexByte(g.short, a[i])
		if at < 0 || a[i] == ':' {
			g.fail("invalid option -- '%c'", a[i])
			continue
		}
		rest := g.short[at+1:]
		takes := len(rest) - len(strings.TrimLeft(rest, ":"))
		if takes == 0 {
			g.out = append(g.out, "-"+a[i:i+1])
			continue
		}
		value := a[i+1:]
		if value == "" && takes == 1 {
			if len(args) == 0 {
				g.fail("option requires an argument -- '%c'", a[i])
				return args
			}
			value, args = args[0], args[1:]
		}
		g.out = append(g.out, "-"+a[i:i+1], g.quote(value))
		return args
	}
	return args
}
