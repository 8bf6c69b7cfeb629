// Package resolve finds the meaning of the names in an awk program. Each variable gets the number
// of a slot, and each call its function. Whether a variable is a scalar or an array is decided only
// at run time.
package resolve

import (
	"fmt"

	"github.com/carrel-dev/carrel/shell/tools/awk/syntax"
)

// Special is a special variable of the language. Its number is the variable's slot.
type Special int

// The special variables of the language.
const (
	NF Special = iota
	NR
	FNR
	FS
	OFS
	ORS
	RS
	RT
	FPAT
	FIELDWIDTHS
	IGNORECASE
	CONVFMT
	OFMT
	SUBSEP
	FILENAME
	RSTART
	RLENGTH
	ENVIRON
	PROCINFO
	ARGC
	ARGV
	ARGIND
	ERRNO
	BINMODE
	LINT
	TEXTDOMAIN
	SYMTAB
	FUNCTAB
	NumSpecials
)

// Specials are the names of the special variables.
var Specials = [NumSpecials]string{"NF", "NR", "FNR", "FS", "OFS", "ORS", "RS", "RT", "FPAT",
	"FIELDWIDTHS", "IGNORECASE", "CONVFMT", "OFMT", "SUBSEP", "FILENAME", "RSTART", "RLENGTH",
	"ENVIRON", "PROCINFO", "ARGC", "ARGV", "ARGIND", "ERRNO", "BINMODE", "LINT", "TEXTDOMAIN",
	"SYMTAB", "FUNCTAB"}

// Program is a program whose names are resolved.
type Program struct {
	*syntax.Program
	Globals []string       // names by slot
	Slots   map[string]int // and back
	Funcs   map[string]int // index into Program.Program.Funcs
	// Uses are the names of the global variables in the program's text.
	Uses map[string]bool
}

// resolver walks a program.
type resolver struct {
	prog   *Program
	fn     *syntax.Func
	params map[string]int
	warn   func(unit string, line int, msg string)
	refs   map[string]syntax.Pos // first positions of variables' names
}

// Resolve resolves all names. The error is a *syntax.Error.
func Resolve(p *syntax.Program, warn func(unit string, line int, msg string)) (
	prog *Program, err error) {
	r := &resolver{warn: warn, refs: map[string]syntax.Pos{}, prog: &Program{Program: p,
		Slots: map[string]int{}, Funcs: map[string]int{}, Uses: map[string]bool{}}}
	for slot, name := range Specials {
		r.prog.Slots[name] = slot
		r.prog.Globals = append(r.prog.Globals, name)
	}
	defer func() {
		// An error unwinds the walk: see fail.
		if x := recover(); x != nil {
			e, ok := x.(*syntax.Error)
			if !ok {
				panic(x)
			}
			prog, err = nil, e
		}
	}()
	for i, f := range p.Funcs {
		r.declare(i, f)
	}
	for _, f := range p.Funcs {
		r.function(f)
	}
	for _, rule := range p.Rules {
		r.expr(rule.Pattern)
		r.expr(rule.Until)
		r.stmts(rule.Body)
	}
	for name := range r.prog.Funcs {
		if pos, used := r.refs[name]; used {
			r.fail(pos, false, "function `%s' called with space between name and `(',\n"+
				"or used as a variable or an array", name)
		}
	}
	return r.prog, nil
}

// fail unwinds the walk with an error.
func (r *resolver) fail(pos syntax.Pos, fatal bool, format string, args ...any) {
	kind := "error: "
	if fatal {
		kind = "fatal: "
	}
	panic(&syntax.Error{Unit: r.prog.Units[pos.Unit], Line: pos.Line, Fatal: fatal,
		Msg: kind + fmt.Sprintf(format, args...)})
}

// declare records a function and checks its parameters.
func (r *resolver) declare(i int, f *syntax.Func) {
	_, twice := r.prog.Funcs[f.Name]
	if slot, ok := r.prog.Slots[f.Name]; twice || ok && slot < int(NumSpecials) {
		r.fail(f.Pos, false, "function name `%s' previously defined", f.Name)
	}
	r.prog.Funcs[f.Name] = i
	seen := map[string]int{}
	for n, name := range f.Params {
		if name == f.Name {
			r.fail(f.Pos, false, "function `%s': cannot use function name as parameter name", name)
		}
		if slot, ok := r.prog.Slots[name]; ok && slot < int(NumSpecials) {
			r.fail(f.Pos, false,
				"function `%s': cannot use special variable `%s' as a function parameter",
				f.Name, name)
		}
		if first, twice := seen[name]; twice {
			r.fail(f.Pos, false, "function `%s': parameter #%d, `%s', duplicates parameter #%d",
				f.Name, n+1, name, first)
		}
		seen[name] = n + 1
	}
}

// function walks the body of a function.
func (r *resolver) function(f *syntax.Func) {
	r.fn, r.params = f, map[string]int{}
	for slot, name := range f.Params {
		r.params[name] = slot
	}
	r.stmts(f.Body)
	r.fn, r.params = nil, nil
}

// name gives a variable its slot.
func (r *resolver) name(n *syntax.Name) {
	if slot, ok := r.params[n.Ident]; ok {
		n.Scope, n.Slot = syntax.Local, slot
		return
	}
	slot, ok := r.prog.Slots[n.Ident]
	if !ok {
		slot = len(r.prog.Globals)
		r.prog.Slots[n.Ident] = slot
		r.prog.Globals = append(r.prog.Globals, n.Ident)
	}
	if _, ok := r.refs[n.Ident]; !ok {
		r.refs[n.Ident] = n.Pos
	}
	r.prog.Uses[n.Ident] = true
	n.Scope, n.Slot = syntax.Global, slot
}

// call finds the function of a call.
func (r *resolver) call(c *syntax.Call) {
	i, ok := r.prog.Funcs[c.Name]
	if !ok {
		r.fail(c.Pos, true, "function `%s' not defined", c.Name)
	}
	c.Func = i
	if len(c.Args) > len(r.prog.Program.Funcs[i].Params) && r.warn != nil {
		r.warn(r.prog.Units[c.Pos.Unit], c.Pos.Line,
			fmt.Sprintf("function `%s' called with more arguments than declared", c.Name))
	}
	r.exprs(c.Args)
}

func (r *resolver) exprs(list []syntax.Expr) {
	for _, x := range list {
		r.expr(x)
	}
}

// expr walks an expression, which may be nil.
func (r *resolver) expr(x syntax.Expr) {
	switch x := x.(type) {
	case *syntax.Name:
		r.name(x)
	case *syntax.Index:
		r.expr(x.Array)
		r.exprs(x.Subs)
	case *syntax.Field:
		r.expr(x.X)
	case *syntax.Group:
		r.expr(x.X)
	case *syntax.List:
		r.exprs(x.Items)
	case *syntax.Unary:
		r.expr(x.X)
	case *syntax.Binary:
		r.expr(x.L)
		r.expr(x.R)
	case *syntax.Concat:
		r.exprs(x.Parts)
	case *syntax.Cond:
		r.expr(x.If)
		r.expr(x.Then)
		r.expr(x.Else)
	case *syntax.In:
		r.exprs(x.Subs)
		r.expr(x.Array)
	case *syntax.Assign:
		r.expr(x.L)
		r.expr(x.R)
	case *syntax.IncDec:
		r.expr(x.L)
	case *syntax.Call:
		r.call(x)
	case *syntax.CallBuiltin:
		r.exprs(x.Args)
	case *syntax.Indirect:
		r.name(x.Fn)
		r.exprs(x.Args)
	case *syntax.Getline:
		r.expr(x.Source)
		r.expr(x.Target)
	}
}

func (r *resolver) stmts(list []syntax.Stmt) {
	for _, s := range list {
		r.stmt(s)
	}
}

// stmt walks a statement, which may be nil.
func (r *resolver) stmt(s syntax.Stmt) {
	switch s := s.(type) {
	case *syntax.ExprStmt:
		r.expr(s.X)
	case *syntax.Print:
		r.exprs(s.Args)
		r.expr(s.Dest)
	case *syntax.If:
		r.expr(s.Cond)
		r.stmts(s.Then)
		r.stmts(s.Else)
	case *syntax.While:
		r.expr(s.Cond)
		r.stmts(s.Body)
	case *syntax.For:
		r.stmt(s.Init)
		r.expr(s.Cond)
		r.stmt(s.Post)
		r.stmts(s.Body)
	case *syntax.ForIn:
		r.name(s.Var)
		r.expr(s.Array)
		r.stmts(s.Body)
	case *syntax.Block:
		r.stmts(s.Body)
	case *syntax.Switch:
		r.expr(s.X)
		for _, c := range s.Cases {
			r.expr(c.X)
			r.stmts(c.Body)
		}
	case *syntax.Delete:
		r.expr(s.Array)
		r.exprs(s.Subs)
	case *syntax.Exit:
		r.expr(s.X)
	case *syntax.Return:
		r.expr(s.X)
	}
}
