package parser

import (
	"github.com/carrel-dev/carrel/internal/sh/tools/awk/goawk/internal/ast"
	. "github.com/carrel-dev/carrel/internal/sh/tools/awk/goawk/lexer"
)

// subscripts parses [x], [x, y] and those that follow.
func (p *parser) subscripts() [][]ast.Expr {
	var path [][]ast.Expr
	for p.tok == LBRACKET {
		p.next()
		index := p.exprList(p.expr)
		if len(index) == 0 {
			panic(p.errorf("expected expression instead of ]"))
		}
		p.expect(RBRACKET)
		path = append(path, index)
		if len(path) > maxDepth {
			panic(p.errorf("nesting too deep"))
		}
	}
	return path
}

// indexed parses what follows the name of an array: a[x], or a[x][y].
func (p *parser) indexed(name string, pos Position) *ast.IndexExpr {
	path := p.subscripts()
	last := len(path) - 1
	return &ast.IndexExpr{Array: name, ArrayPos: pos, Path: path[:last], Index: path[last]}
}

// arrayRef parses an array: a name, or an array in an array.
func (p *parser) arrayRef() *ast.ArrayExpr {
	name, pos := p.expectName()
	return &ast.ArrayExpr{Name: name, Pos: pos, Path: p.subscripts()}
}

// switchStmt parses a switch.
func (p *parser) switchStmt() ast.Stmt {
	s := &ast.SwitchStmt{Start: p.pos}
	p.next()
	p.expect(LPAREN)
	s.Value = p.expr()
	p.expect(RPAREN)
	p.optionalNewlines()
	p.expect(LBRACE)
	p.optionalNewlines()
	p.switchDepth++
	defaults := 0
	for p.tok != RBRACE {
		var c ast.Case
		switch p.tok {
		case CASE:
			p.next()
			c.Value = p.regexStr(p.pow)
		case DEFAULT:
			p.next()
			if defaults++; defaults > 1 {
				panic(p.errorf("duplicate case in switch"))
			}
		default:
			panic(p.errorf("expected case or default instead of %s", p.tok))
		}
		p.expect(COLON)
		p.optionalNewlines()
		for !p.matches(CASE, DEFAULT, RBRACE, EOF) {
			if p.matches(SEMICOLON, NEWLINE) {
				p.next()
				continue
			}
			c.Body = append(c.Body, p.stmt())
		}
		s.Cases = append(s.Cases, c)
	}
	p.switchDepth--
	p.expect(RBRACE)
	s.End = p.pos
	return s
}
