package interp

import (
	"io"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// quickSubst evaluates $(echo …) and $(printf …) without a process. It does so only where no script
// can notice: the words change nothing in this shell, and no trap or option observes commands.
func (r *runner) quickSubst(c *syntax.CmdSubst) (string, bool) {
	if len(c.Stmts) != 1 || len(r.traps) > 0 || r.opts.xtrace || r.opts.nounset || r.opts.failglob || r.opts.noexec || r.opts.errexit || r.opts.keyword {
		return "", false
	}
	s := c.Stmts[0]
	call, ok := s.Cmd.(*syntax.CallExpr)
	if !ok || len(s.Redirs) > 0 || s.Negated || s.Background || s.Coprocess || s.Disown || len(call.Assigns) > 0 || len(call.Args) == 0 {
		return "", false
	}
	name := call.Args[0].Lit()
	if name != "echo" && name != "printf" || r.funcs[name] != nil || r.disabled[name] || r.depth >= r.m.limits.Depth {
		return "", false
	}
	for _, w := range call.Args[1:] {
		if !harmless(w.Parts, 0) {
			return "", false
		}
	}
	if !r.step() {
		return "", true
	}
	args := r.fields(call.Args)
	if r.flow != flowNone {
		return "", true
	}
	args = args[1:]
	text, status := "", 0
	if name == "echo" {
		text = r.echoText(args)
	} else {
		if len(args) == 0 || strings.HasPrefix(args[0], "-") {
			return "", false
		}
		var b strings.Builder
		cl := r.newCall(name, args)
		cl.out = captured{r, &b}
		status = biPrintf(cl)
		text = b.String()
	}
	r.status = status
	text = strings.TrimRight(text, "\n")
	if strings.IndexByte(text, 0) >= 0 {
		text = strings.ReplaceAll(text, "\x00", "")
	}
	return text, true
}

// captured collects the output of a builtin. Its memory is charged as it grows.
type captured struct {
	r *runner
	b *strings.Builder
}

func (c captured) Write(p []byte) (int, error) {
	if c.r.pay(len(p)); c.r.flow != flowNone {
		return 0, io.ErrShortWrite
	}
	c.r.pay(-len(p))
	return c.b.Write(p)
}

// harmless reports whether the expansion of a word changes nothing and gives the same result in a
// subshell.
func harmless(parts []syntax.WordPart, depth int) bool {
	for _, p := range parts {
		switch p := p.(type) {
		case *syntax.Lit, *syntax.SglQuoted:
		case *syntax.DblQuoted:
			if depth > 2 || !harmless(p.Parts, depth+1) {
				return false
			}
		case *syntax.ParamExp:
			if !plainParam(p) {
				return false
			}
			switch p.Param.Value {
			case "RANDOM", "SRANDOM", "BASHPID", "BASH_SUBSHELL", "BASH_COMMAND", "_":
				return false
			}
			if strings.HasPrefix(p.Param.Value, badName) {
				return false
			}
		default:
			return false
		}
	}
	return true
}
