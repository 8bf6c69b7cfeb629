package jq

import (
	"errors"
	"fmt"

	"github.com/carrel-dev/carrel/shell/regex"
	"github.com/itchyny/gojq"
)

// path is the origin of a value, innermost step first. nil means that the path is not needed.
type path struct {
	up  *path
	key any
}

var (
	rootPath = &path{}
	noPath   = &path{} // for a value without a path
)

// then returns the path of a part of the value.
func (p *path) then(key any) *path {
	if p == nil {
		return nil
	}
	return &path{p, key}
}

// lost returns the path of a newly computed value.
func (p *path) lost() *path {
	if p == nil {
		return nil
	}
	return noPath
}

// list returns the steps in order.
func (p *path) list() []any {
	n := 0
	for q := p; q.up != nil; q = q.up {
		n++
	}
	out := make([]any, n)
	for q := p; q.up != nil; q = q.up {
		n--
		out[n] = q.key
	}
	return out
}

// out takes one result.
type out func(p *path, v any) error

// fn is a compiled expression. It calls out with each result.
type fn func(e *env, p *path, v any, out out) error

// env is a chain of bindings. A binding is a variable, a function's argument, or the place of a
// definition.
type env struct {
	up  *env
	val any
	run fn // of an argument
	at  *env
}

// scope is env at compile time.
type scope struct {
	up    *scope
	name  string // with $ for variables, * for labels
	arity int    // -1 for a variable or label, 0 for an argument
	def   *def   // of a definition
}

// def is a function written in jq.
type def struct {
	src  *gojq.FuncDef
	body fn
	in   *scope // the scope of its body, which is that of the definition itself
}

const maxSource = 512 << 10 // bytes of a program
const maxNesting = 2000     // of its syntax

// compiler turns syntax into functions.
type compiler struct {
	m       *vm
	globals map[string]any
	defs    map[string]*def // builtins written in jq, by name/arity
	depth   int
	mod     *module            // what is being compiled
	loaded  map[string]*module // by file
}

// vm is one run of a program.
type vm struct {
	*purse
	opts    Options
	regexes map[string]*regex.Regexp
	natives map[string]native // of all; for builtins
}

// Options describe a program's environment.
type Options struct {
	Budget   Budget
	Vars     map[string]any      // without $
	Input    func() (any, error) // io.EOF at the end
	Debug    func(v any) error   // shows a message
	Stderr   func(text string) error
	Environ  func() []string
	Now      func() float64
	FileName func() any
	Line     func() int
	Load     func(file string) (string, error) // loads modules; nil where there are none
	Paths    []string                          // where modules are looked for
	Home     string                            // replaces ~ at the start of paths
}

// Program is a compiled program.
type Program struct {
	run fn
	m   *vm
}

// CompileError is the error of a program that can't be run.
type CompileError struct{ Text string }

// Error implements error.
func (e *CompileError) Error() string { return e.Text }

func compileErrorf(format string, args ...any) error {
	return &CompileError{fmt.Sprintf(format, args...)}
}

// Compile compiles the source of a program.
func Compile(src string, o Options) (p *Program, err error) {
	if len(src) > maxSource {
		return nil, &CompileError{"program too long"}
	}
	q, err := gojq.Parse(src)
	if err != nil {
		return nil, syntaxError(src, err)
	}
	m := &vm{purse: newPurse(o.Budget), opts: o, natives: natives()}
	c := &compiler{m: m, globals: o.Vars, defs: map[string]*def{}, mod: newModule("."), loaded: map[string]*module{}}
	if err := c.home(); err != nil {
		return nil, err
	}
	if err := c.imports(c.mod, q.Imports); err != nil {
		return nil, err
	}
	run, err := c.query(nil, q)
	if err != nil {
		return nil, err
	}
	return &Program{run, m}, nil
}

// Run calls fn with each result for one input. An error of the program itself is a *ValueError, a
// *Halt or ErrStop.
func (p *Program) Run(v any, fn func(v any) error) error {
	p.m.depth = 0
	err := p.run(nil, nil, v, func(_ *path, v any) error {
		if err := fn(v); err != nil {
			return &outside{err}
		}
		return nil
	})
	var o *outside
	var b *breaking
	switch {
	case errors.As(err, &o):
		return o.err
	case errors.As(err, &b):
		return &ValueError{Value: "break"}
	case errors.Is(err, errDepth):
		return &ValueError{Value: err.Error()}
	}
	return err
}

// outside is an error of the function that receives the results.
type outside struct{ err error }

func (o *outside) Error() string { return o.err.Error() }

// breaking leaves a label.
type breaking struct{ label *env }

func (*breaking) Error() string { return "break" }

// query compiles a query. s has the names that it sees.
func (c *compiler) query(s *scope, q *gojq.Query) (fn, error) {
	if c.depth++; c.depth > maxNesting {
		return nil, &CompileError{"program is nested too deeply"}
	}
	defer func() { c.depth-- }()
	if len(q.FuncDefs) > 0 {
		return c.withDefs(s, q)
	}
	if q.Term != nil {
		return c.term(s, q.Term)
	}
	if len(q.Patterns) > 0 {
		return c.bind(s, q)
	}
	if q.Op == 0 || q.Left == nil || q.Right == nil {
		return identity, nil // definitions alone
	}
	left, err := c.query(s, q.Left)
	if err != nil {
		return nil, err
	}
	right, err := c.query(s, q.Right)
	if err != nil {
		return nil, err
	}
	switch q.Op {
	case gojq.OpPipe:
		return func(e *env, p *path, v any, out out) error {
			return left(e, p, v, func(p *path, v any) error { return right(e, p, v, out) })
		}, nil
	case gojq.OpComma:
		return func(e *env, p *path, v any, out out) error {
			if err := left(e, p, v, out); err != nil {
				return err
			}
			return right(e, p, v, out)
		}, nil
	case gojq.OpAlt:
		return alternative(left, right), nil
	case gojq.OpAnd, gojq.OpOr:
		return logic(q.Op == gojq.OpOr, left, right), nil
	case gojq.OpAssign:
		return c.m.assign(left, right), nil
	case gojq.OpModify:
		return c.m.modify(left, right), nil
	case gojq.OpUpdateAlt:
		return c.m.update(left, right, func(a, b any) (any, error) {
			if Truthy(a) {
				return a, nil
			}
			return b, nil
		}), nil
	}
	if op := c.m.operator(q.Op); op != nil {
		return c.binary(left, right, op), nil
	}
	if op := c.m.operator(updated[q.Op]); op != nil {
		return c.m.update(left, right, op), nil
	}
	return nil, compileErrorf("operator %v is not supported", q.Op)
}

// updated maps the assignment operators to their arithmetic operators.
var updated = map[gojq.Operator]gojq.Operator{gojq.OpUpdateAdd: gojq.OpAdd, gojq.OpUpdateSub: gojq.OpSub, gojq.OpUpdateMul: gojq.OpMul,
	gojq.OpUpdateDiv: gojq.OpDiv, gojq.OpUpdateMod: gojq.OpMod}

func identity(_ *env, p *path, v any, out out) error { return out(p, v) }

func constant(v any) fn {
	return func(_ *env, p *path, _ any, out out) error { return out(p.lost(), v) }
}

// binary applies an operator to all pairs. The outer loop is over the right side.
func (c *compiler) binary(left, right fn, op func(a, b any) (any, error)) fn {
	m := c.m
	return func(e *env, p *path, v any, out out) error {
		return right(e, nil, v, func(_ *path, r any) error {
			return left(e, nil, v, func(_ *path, l any) error {
				if err := m.step(1); err != nil {
					return err
				}
				x, err := op(l, r)
				if err != nil {
					return err
				}
				return out(p.lost(), x)
			})
		})
	}
}

func logic(or bool, left, right fn) fn {
	return func(e *env, p *path, v any, out out) error {
		return left(e, nil, v, func(_ *path, l any) error {
			if Truthy(l) == or {
				return out(p.lost(), or)
			}
			return right(e, nil, v, func(_ *path, r any) error { return out(p.lost(), Truthy(r)) })
		})
	}
}

// alternative is a // b.
func alternative(left, right fn) fn {
	return func(e *env, p *path, v any, out out) error {
		some := false
		var down error
		err := left(e, p, v, func(p *path, v any) error {
			if !Truthy(v) {
				return nil
			}
			some = true
			down = out(p, v)
			return down
		})
		if down != nil || fatal(err) {
			return err
		}
		if some {
			return nil
		}
		return right(e, p, v, out)
	}
}

// fatal reports whether try can't catch an error.
func fatal(err error) bool {
	var v *ValueError
	return err != nil && !errors.As(err, &v) && !errors.Is(err, errDepth)
}

// withDefs compiles a query that follows definitions.
func (c *compiler) withDefs(s *scope, q *gojq.Query) (fn, error) {
	n := len(q.FuncDefs)
	for _, d := range q.FuncDefs {
		var err error
		if s, err = c.define(s, d); err != nil {
			return nil, err
		}
	}
	rest := *q
	rest.FuncDefs = nil
	body, err := c.query(s, &rest)
	if err != nil {
		return nil, err
	}
	return func(e *env, p *path, v any, out out) error {
		for range n {
			e = &env{up: e}
		}
		return body(e, p, v, out)
	}, nil
}

// define adds a definition to a scope.
func (c *compiler) define(s *scope, src *gojq.FuncDef) (*scope, error) {
	d := &def{src: src}
	s = &scope{s, src.Name, len(src.Args), d}
	d.in = s
	return s, c.body(d)
}

// body compiles a definition. Its environment is that of the definition, then the arguments in
// order, and after each $argument its value.
func (c *compiler) body(d *def) error {
	inner := d.in
	for _, a := range d.src.Args {
		if a[0] == '$' {
			inner = &scope{inner, a[1:], 0, nil}
		} else {
			inner = &scope{inner, a, 0, nil}
		}
	}
	var values []int // hops, counted from the end of the arguments
	for i, a := range d.src.Args {
		if a[0] == '$' {
			values = append(values, len(d.src.Args)-1-i)
			inner = &scope{inner, a, -1, nil}
		}
	}
	body, err := c.query(inner, d.src.Body)
	if err != nil {
		return err
	}
	for i := len(values) - 1; i >= 0; i-- {
		hops, next := values[i]+i, body
		body = func(e *env, p *path, v any, out out) error {
			a := e
			for range hops {
				a = a.up
			}
			return a.run(a.at, nil, v, func(_ *path, x any) error { return next(&env{up: e, val: x}, p, v, out) })
		}
	}
	d.body = body
	return nil
}
