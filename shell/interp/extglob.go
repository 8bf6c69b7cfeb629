package interp

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// The parser takes patterns like @(a|b) always. Without extglob they are syntax errors
// to bash, outside of [[ ]], and !( begins a negated subshell.

// errExtGlob is the error of a group where there are none.
func errExtGlob(line uint) error {
	return syntax.ParseError{Pos: syntax.NewPos(0, line, 1), Text: "near unexpected token `('"}
}

// hasGroups reports whether a source may have groups at all.
func hasGroups(src string) bool {
	for i := 1; i < len(src); i++ {
		if src[i] == '(' && strings.IndexByte("?*+@!", src[i-1]) >= 0 {
			return true
		}
	}
	return false
}

// hasExtGlob reports whether there is a group in a statement, outside of [[ ]].
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

// negations parts the ! from the parenthesis of !( where a command begins.
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
