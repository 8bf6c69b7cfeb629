package syntax

import (
	"fmt"
	"strings"
)

// Options say how a program is parsed.
type Options struct {
	// Include returns the unit that an @include names. ok is false when the unit was read before
	// and must be skipped.
	Include func(name string) (u Unit, ok bool, err error)
	// Warn gets warnings about doubtful code. It may be nil.
	Warn func(unit string, line int, msg string)
	// Step pays for n lexemes. When it returns false, parsing ends.
	Step func(n int) bool
	// Eager are names of units to include before the first.
	Eager []string
}

// parser reads a program by recursive descent.
type parser struct {
	lex   *lexer
	tok   lexeme
	prog  *Program
	opt   Options
	depth int
	steps int

	noGreater bool // > is a redirection
	lists     int  // Lists that no construct has used yet

	fn    *Func // being read
	rule  RuleKind
	loops int // around the statement
	jumps int // loops and switches around it
	space string
}

// Parse parses a program. The error is an *[Error], or the error of Options.Include.
func Parse(units []Unit, opt Options) (prog *Program, err error) {
	p := &parser{lex: &lexer{}, prog: &Program{}, opt: opt}
	if opt.Warn != nil {
		p.lex.warn = func(at Pos, msg string) { opt.Warn(p.prog.Units[at.Unit], at.Line, msg) }
	}
	var all []Unit
	for _, name := range opt.Eager {
		u, ok, err := opt.Include(name)
		if err != nil {
			return nil, err
		}
		if ok {
			all = append(all, u)
		}
	}
	for _, u := range append(all, units...) {
		p.lex.queued = append(p.lex.queued, p.unit(u))
	}
	if len(p.lex.queued) > 0 {
		p.lex.enter(p.lex.queued[0])
		p.lex.queued = p.lex.queued[1:]
	}
	defer func() {
		// An error unwinds the descent: see fail.
		if r := recover(); r != nil {
			e, ok := r.(parseError)
			if !ok {
				panic(r)
			}
			prog, err = nil, e.error
		}
	}()
	p.next()
	p.program()
	return p.prog, nil
}

// parseError carries an error out of the descent.
type parseError struct{ error }

// unit adds a unit to the program and returns its number.
func (p *parser) unit(u Unit) int {
	p.lex.units = append(p.lex.units, u)
	p.prog.Units = append(p.prog.Units, u.Name)
	return len(p.lex.units) - 1
}

// fail ends parsing with an error at the current lexeme.
func (p *parser) fail(format string, args ...any) {
	x := p.tok
	if x.kind == tokEOF {
		x.unit = len(p.lex.units) - 1
		x.start = len(p.lex.units[x.unit].Text)
		text := strings.TrimRight(p.lex.units[x.unit].Text, "\n")
		x.line = 1 + strings.Count(text, "\n")
		x.start = len(text)
	}
	panic(parseError{p.lex.fail(x.unit, x.line, x.start, fmt.Sprintf(format, args...))})
}

// failAt ends parsing with an error at another position.
func (p *parser) failAt(pos Pos, format string, args ...any) {
	panic(parseError{&Error{Unit: p.prog.Units[pos.Unit], Line: pos.Line,
		Msg: "error: " + fmt.Sprintf(format, args...)}})
}

// refuse ends parsing of a program that is well-formed but can't be run.
func (p *parser) refuse(pos Pos, msg string) {
	panic(parseError{&Error{Unit: p.prog.Units[pos.Unit], Line: pos.Line, Msg: "fatal: " + msg, Fatal: true}})
}

// unexpected ends parsing because the current lexeme is not allowed here.
func (p *parser) unexpected() {
	if p.tok.kind == tokNewline || p.tok.kind == tokEOF {
		p.fail("unexpected newline or end of string")
	}
	p.fail("syntax error")
}

// stepBatch is the number of lexemes that are paid for at once.
const stepBatch = 64

// next reads the next lexeme.
func (p *parser) next() {
	if p.steps++; p.steps%stepBatch == 0 && p.opt.Step != nil && !p.opt.Step(stepBatch) {
		p.fail("stopped")
	}
	x, err := p.lex.next()
	if err != nil {
		panic(parseError{err})
	}
	p.tok = x
}

// mark is a position to return to. It is valid only within one unit.
type mark struct {
	tok   lexeme
	pos   int
	line  int
	depth int
}

func (p *parser) mark() mark {
	m := mark{tok: p.tok, depth: len(p.lex.stack)}
	if s := p.lex.top(); s != nil {
		m.pos, m.line = s.pos, s.line
	}
	return m
}

// reset returns to a mark. It does nothing if the unit has ended since.
func (p *parser) reset(m mark) {
	if len(p.lex.stack) != m.depth {
		p.unexpected()
	}
	p.tok = m.tok
	if s := p.lex.top(); s != nil {
		s.pos, s.line = m.pos, m.line
	}
}

// peek returns the kind of the lexeme after the current one.
func (p *parser) peek() token {
	m := p.mark()
	p.next()
	kind := p.tok.kind
	if len(p.lex.stack) != m.depth {
		p.unexpected()
	}
	p.reset(m)
	return kind
}

func (p *parser) at(kinds ...token) bool {
	for _, k := range kinds {
		if p.tok.kind == k {
			return true
		}
	}
	return false
}

// eat consumes the current lexeme if it is of a kind.
func (p *parser) eat(kind token) bool {
	if p.tok.kind != kind {
		return false
	}
	p.next()
	return true
}

func (p *parser) want(kind token) {
	if !p.eat(kind) {
		p.unexpected()
	}
}

// newlines skips line ends.
func (p *parser) newlines() {
	for p.tok.kind == tokNewline {
		p.next()
	}
}

// ends skips line ends and semicolons.
func (p *parser) ends() {
	for p.at(tokNewline, tokSemicolon) {
		p.next()
	}
}

func (p *parser) pos() Pos { return Pos{min(p.tok.unit, len(p.prog.Units)-1), p.tok.line} }

// enter goes one level down. The returned function goes up again.
func (p *parser) enter() func() {
	if p.depth++; p.depth > MaxDepth {
		p.fail("program is nested too deeply")
	}
	return func() { p.depth-- }
}

// program reads rules, functions and directives.
func (p *parser) program() {
	for p.ends(); p.tok.kind != tokEOF; p.ends() {
		switch p.tok.kind {
		case tokAt:
			p.directive()
		case tokFunction:
			p.function()
		default:
			p.readRule()
		}
	}
}

// directive reads @include "file", @namespace "name" or @load "library".
func (p *parser) directive() {
	p.next()
	what := p.tok.text
	if p.tok.kind != tokName {
		p.unexpected()
	}
	p.next()
	if p.tok.kind != tokString {
		p.unexpected()
	}
	arg := p.tok.text
	switch what {
	case "include":
		u, ok, err := p.opt.include(arg)
		if err != nil {
			panic(parseError{err})
		}
		if ok {
			p.lex.enter(p.unit(u))
		}
		p.next()
	case "namespace":
		p.space = arg
		p.next()
	default:
		p.failAt(p.pos(), "@%s is not supported", what)
	}
}

// include calls Include, which may be nil.
func (o *Options) include(name string) (Unit, bool, error) {
	if o.Include == nil {
		return Unit{}, false, &Error{Msg: "@include is not supported"}
	}
	return o.Include(name)
}

// ident adds the namespace to a name. Names in capitals are global.
func (p *parser) ident(name string) string {
	if short, ok := strings.CutPrefix(name, "awk::"); ok {
		return short
	}
	if p.space == "" || p.space == "awk" || strings.Contains(name, "::") ||
		name == strings.ToUpper(name) {
		return name
	}
	return p.space + "::" + name
}

// function reads a function.
func (p *parser) function() {
	p.next()
	pos := p.pos()
	switch p.tok.kind {
	case tokName, tokFuncName:
	case tokBuiltin:
		p.fail("`%s' is a built-in function, it cannot be redefined", p.tok.text)
	default:
		p.unexpected()
	}
	f := &Func{Name: p.ident(p.tok.text), Pos: pos}
	p.next()
	p.want(tokLParen)
	for p.newlines(); !p.at(tokRParen); p.newlines() {
		if !p.at(tokName) {
			p.unexpected()
		}
		f.Params = append(f.Params, p.ident(p.tok.text))
		p.next()
		p.newlines()
		if !p.eat(tokComma) {
			break
		}
		if p.newlines(); p.at(tokRParen) {
			p.unexpected()
		}
	}
	p.want(tokRParen)
	p.newlines()
	p.fn = f
	f.Body = p.block()
	p.fn = nil
	p.prog.Funcs = append(p.prog.Funcs, f)
}

// ruleKinds are the words that replace a pattern.
var ruleKinds = map[token]RuleKind{tokBegin: RuleBegin, tokEnd: RuleEnd,
	tokBeginFile: RuleBeginFile, tokEndFile: RuleEndFile}

var ruleNames = map[RuleKind]string{RuleBegin: "BEGIN", RuleEnd: "END",
	RuleBeginFile: "BEGINFILE", RuleEndFile: "ENDFILE"}

// readRule reads a pattern with its action.
func (p *parser) readRule() {
	r := &Rule{Pos: p.pos()}
	if kind, ok := ruleKinds[p.tok.kind]; ok {
		r.Kind = kind
		p.next()
		if !p.at(tokLBrace) {
			e := p.lex.fail(r.Pos.Unit, r.Pos.Line, 0, ruleNames[kind]+
				" blocks must have an action part")
			e.Source = ""
			panic(parseError{e})
		}
	} else if !p.at(tokLBrace) {
		r.Pattern = p.single()
		if p.eat(tokComma) {
			p.newlines()
			r.Until = p.single()
		}
	}
	p.rule = r.Kind
	if r.Print = !p.at(tokLBrace); !r.Print {
		r.Body = p.block()
	} else if !p.at(tokNewline, tokSemicolon, tokEOF) {
		p.unexpected()
	}
	p.prog.Rules = append(p.prog.Rules, r)
}
