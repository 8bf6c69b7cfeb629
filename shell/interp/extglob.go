package interp

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// The parser always accepts patterns such as @(a|b). In bash without extglob they are syntax errors
// outside of [[ ]], and !( begins a negated subshell.

// errExtGlob is the error of a pattern group where groups are not allowed.
func errExtGlob(line uint) error {
	return syntax.ParseError{Pos: syntax.NewPos(0, line, 1), Text: "near unexpected token `('"}
}

// hasGroups reports whether a source may contain pattern groups.
func hasGroups(src string) bool {
	for i := 1; i < len(src); i++ {
		if src[i] == '(' && strings.IndexByte("?*+@!", src[i-1]) >= 0 {
			return true
		}
	}
	return false
}

// hasExtGlob reports whether a statement has a pattern group outside of [[ ]].
func hasExtGlob(s *syntax.Stmt) bool {
	found := false
	syntax.Walk(s, func(n syntax.Node) bool {
		switch n.(type) {
		case *syntax.TestClause, *syntax.CmdSubst:
			return false
		case *syntax.ExtGlob:
			found = true
		}
		return !found
	})
	return found
}

// negations puts a space between ! and ( at the beginning of a command.
func (r *runner) negations(src string) string {
	stmts, err := parse(src)
	if err != nil {
		return src
	}
	for range maxRepairs {
		at := -1
		for _, s := range stmts {
			syntax.Walk(s, func(n syntax.Node) bool {
				c, ok := n.(*syntax.CallExpr)
				if ok && len(c.Assigns) == 0 && len(c.Args) > 0 && len(c.Args[0].Parts) > 0 {
					if g, ok := c.Args[0].Parts[0].(*syntax.ExtGlob); ok && g.Op == syntax.GlobExcept {
						at = int(g.Pos().Offset())
					}
				}
				return at < 0
			})
		}
		if at < 0 || !strings.HasPrefix(src[min(at, len(src)):], "!(") {
			return src
		}
		next := src[:at] + "! " + src[at+1:]
		if stmts, err = parse(next); err != nil {
			return src
		}
		src = next
	}
	return src
}
