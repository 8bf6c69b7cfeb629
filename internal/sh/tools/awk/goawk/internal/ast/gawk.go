package ast

import (
	"strings"

	. "github.com/carrel-dev/carrel/internal/sh/tools/awk/goawk/lexer"
)

// ArrayExpr is an array, as functions take one: a, or a[i][j] for an array in an array.
type ArrayExpr struct {
	Name string
	Pos  Position
	Path [][]Expr
}

func (e *ArrayExpr) node()           {}
func (e *ArrayExpr) precedence() int { return precPrimary }
func (e *ArrayExpr) String() string  { return e.Name + pathString(e.Path) }

// IndirectExpr is a call of the function that a variable names, like @f(x).
type IndirectExpr struct {
	Name string
	Pos  Position
	Args []Expr
}

func (e *IndirectExpr) node()           {}
func (e *IndirectExpr) precedence() int { return precPrimary }
func (e *IndirectExpr) String() string  { return "@" + e.Name + "(" + list(e.Args) + ")" }

// SwitchStmt is a switch.
type SwitchStmt struct {
	Value Expr
	Cases []Case
	Start Position
	End   Position
}

// Case is a case of a switch; without a Value it is the default.
type Case struct {
	Value Expr
	Body  Stmts
}

func (s *SwitchStmt) node()              {}
func (s *SwitchStmt) stmt()              {}
func (s *SwitchStmt) StartPos() Position { return s.Start }
func (s *SwitchStmt) EndPos() Position   { return s.End }

func (s *SwitchStmt) String() string {
	var b strings.Builder
	b.WriteString("switch (" + s.Value.String() + ") {\n")
	for _, c := range s.Cases {
		if c.Value == nil {
			b.WriteString("default:\n")
		} else {
			b.WriteString("case " + c.Value.String() + ":\n")
		}
		b.WriteString(c.Body.String())
	}
	return b.String() + "}"
}

func list(exprs []Expr) string {
	parts := make([]string, len(exprs))
	for i, e := range exprs {
		parts[i] = e.String()
	}
	return strings.Join(parts, ", ")
}

func pathString(path [][]Expr) string {
	s := ""
	for _, index := range path {
		s += "[" + list(index) + "]"
	}
	return s
}

// walkGawk walks the children of gawk's nodes; false means that the node is none of them.
func walkGawk(v Visitor, node Node) bool {
	switch n := node.(type) {
	case *ArrayExpr:
		walkPath(v, n.Path)
	case *IndirectExpr:
		WalkExprList(v, n.Args)
	case *SwitchStmt:
		Walk(v, n.Value)
		for _, c := range n.Cases {
			if c.Value != nil {
				Walk(v, c.Value)
			}
			WalkStmtList(v, c.Body)
		}
	default:
		return false
	}
	return true
}

func walkPath(v Visitor, path [][]Expr) {
	for _, index := range path {
		WalkExprList(v, index)
	}
}
