package compiler

import (
	"github.com/carrel-dev/carrel/internal/sh/tools/awk/goawk/internal/ast"
	"github.com/carrel-dev/carrel/internal/sh/tools/awk/goawk/internal/resolver"
	"github.com/carrel-dev/carrel/internal/sh/tools/awk/goawk/lexer"
)

// arrayRef goes into an array in an array, if it is one, which the next instruction works on as the scope resolver.Sub.
func (c *compiler) arrayRef(name string, path [][]ast.Expr) (scope resolver.Scope, index int) {
	scope, index = c.arrayInfo(name)
	if len(path) == 0 {
		return scope, index
	}
	for _, p := range path {
		c.index(p)
	}
	c.add(EnterSub, Opcode(scope), opcodeInt(index), opcodeInt(len(path)))
	return resolver.Sub, 0
}

// ref is arrayRef of a function's argument.
func (c *compiler) ref(arg ast.Expr) (scope resolver.Scope, index int) {
	a := arg.(*ast.ArrayExpr)
	return c.arrayRef(a.Name, a.Path)
}

// second is ref of an array that another one comes after.
func (c *compiler) second(arg ast.Expr) (scope resolver.Scope, index int) {
	if scope, index = c.ref(arg); scope == resolver.Sub {
		c.add(HoldSub)
		scope = resolver.Held
	}
	return scope, index
}

// arrayCall compiles the functions that take arrays; false means that it is none of them.
func (c *compiler) arrayCall(e *ast.CallExpr) bool {
	switch e.Func {
	case lexer.F_SPLIT:
		c.expr(e.Args[0])
		if len(e.Args) > 2 {
			c.separator(e.Args[2])
		}
		seps, sepsScope := -1, resolver.Global
		if len(e.Args) > 3 {
			sepsScope, seps = c.second(e.Args[3])
		}
		scope, index := c.ref(e.Args[1])
		if len(e.Args) > 2 {
			c.add(CallSplitSep, Opcode(scope), opcodeInt(index), Opcode(sepsScope), opcodeInt(seps))
		} else {
			c.add(CallSplit, Opcode(scope), opcodeInt(index))
		}
	case lexer.F_PATSPLIT:
		c.expr(e.Args[0])
		c.expr(e.Args[2])
		seps, sepsScope := -1, resolver.Global
		if len(e.Args) > 3 {
			sepsScope, seps = c.second(e.Args[3])
		}
		scope, index := c.ref(e.Args[1])
		c.add(CallArrays, Opcode(ArraysPatsplit), Opcode(scope), opcodeInt(index), Opcode(sepsScope), opcodeInt(seps))
	case lexer.F_MATCH:
		if len(e.Args) < 3 {
			return false
		}
		c.expr(e.Args[0])
		c.expr(e.Args[1])
		scope, index := c.ref(e.Args[2])
		c.add(CallArrays, Opcode(ArraysMatch), Opcode(scope), opcodeInt(index), Opcode(scope), opcodeInt(index))
	case lexer.F_ASORT, lexer.F_ASORTI:
		how := ArraysSort
		if e.Func == lexer.F_ASORTI {
			how = ArraysSortIndex
		}
		if len(e.Args) > 2 {
			c.expr(e.Args[2])
		} else {
			c.expr(&ast.StrExpr{})
		}
		scope2, index2 := resolver.Scope(0), 0
		if len(e.Args) > 1 {
			scope2, index2 = c.second(e.Args[1])
		}
		scope, index := c.ref(e.Args[0])
		if scope2 == 0 {
			scope2, index2 = scope, index
		}
		c.add(CallArrays, Opcode(how), Opcode(scope), opcodeInt(index), Opcode(scope2), opcodeInt(index2))
	case lexer.F_LENGTH:
		if len(e.Args) == 0 {
			return false
		}
		c.loose(e.Args[0])
		c.add(CallBuiltin, Opcode(BuiltinLengthArg))
	case lexer.F_TYPEOF, lexer.F_ISARRAY:
		c.loose(e.Args[0])
		op := BuiltinTypeof
		if e.Func == lexer.F_ISARRAY {
			op = BuiltinIsarray
		}
		c.add(CallBuiltin, Opcode(op))
	default:
		return false
	}
	return true
}

// loose compiles an argument that may be an array, or an element that is one.
func (c *compiler) loose(arg ast.Expr) {
	switch a := arg.(type) {
	case *ast.VarExpr:
		if scope, info, _ := c.resolved.LookupVar(c.funcName, a.Name); info.Type == resolver.Array {
			c.add(PushArray, Opcode(scope), opcodeInt(info.Index))
			return
		}
	case *ast.IndexExpr:
		c.index(a.Index)
		scope, index := c.arrayRef(a.Array, a.Path)
		c.add(ArrayRaw, Opcode(scope), opcodeInt(index))
		return
	case *ast.StrExpr:
		if a.Regex {
			c.add(Typed, opcodeInt(c.strIndex(a.Value)))
			return
		}
	}
	c.expr(arg)
}

// indirect compiles the call of the function that a variable names.
func (c *compiler) indirect(e *ast.IndirectExpr) {
	for _, arg := range e.Args {
		c.loose(arg)
	}
	c.expr(&ast.VarExpr{Name: e.Name, Pos: e.Pos})
	c.add(CallIndirect, opcodeInt(len(e.Args)))
}

// switchStmt compiles a switch: the tests in order, then the bodies, each of which goes on with the next one's. Behind a
// test that succeeds the value is dropped, where no body before it gets to.
func (c *compiler) switchStmt(s *ast.SwitchStmt) {
	c.expr(s.Value)
	marks := make([]int, len(s.Cases))
	other := -1
	for i, k := range s.Cases {
		if k.Value == nil {
			other = i
			continue
		}
		c.add(Dupe)
		c.expr(k.Value)
		if re, ok := k.Value.(*ast.StrExpr); ok && re.Regex {
			c.add(Match)
			marks[i] = c.jumpForward(JumpTrue)
		} else {
			marks[i] = c.jumpForward(JumpEquals)
		}
	}
	last := c.jumpForward(Jump)
	if other >= 0 {
		marks[other] = last
	}
	c.breaks = append(c.breaks, []int{})
	fall := 0
	for i, k := range s.Cases {
		if i > 0 {
			fall = c.jumpForward(Jump)
		}
		c.patchForward(marks[i])
		c.add(Drop)
		if i > 0 {
			c.patchForward(fall)
		}
		c.stmts(k.Body)
	}
	if other < 0 {
		fall = c.jumpForward(Jump)
		c.patchForward(last)
		c.add(Drop)
		c.patchForward(fall)
	}
	c.patchBreaks()
}

// separator compiles what split splits at: a regex, even of one blank, is no string.
func (c *compiler) separator(e ast.Expr) {
	if re, ok := e.(*ast.StrExpr); ok && re.Regex {
		c.add(Typed, opcodeInt(c.strIndex(re.Value)))
		return
	}
	c.expr(e)
}
