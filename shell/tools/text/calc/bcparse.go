package calc

import (
	"errors"
)

// node is a part of a bc program.
type node struct {
	op    string // its kind: num, str, var, array, call, = and the operators, statements
	name  string
	kids  []*node
	void  bool // its value isn't printed
	array bool // an argument or parameter that is an array
}

// function is a function of bc.
type function struct {
	name   string
	params []*node
	autos  []*node
	body   *node
	void   bool
}

// bcParser reads statements.
type bcParser struct {
	lex   *bcLexer
	tok   bcToken
	depth int
	err   error
	funcs map[string]*function
}

var errSyntax = errors.New("syntax error")

const maxNesting = 200

func (p *bcParser) advance() { p.tok = p.lex.next() }

func (p *bcParser) fail() *node {
	if p.err == nil {
		p.err = errSyntax
		if p.tok.kind == '?' {
			p.err = errors.New(p.tok.text)
		}
	}
	return &node{op: "num", name: "0"}
}

func (p *bcParser) is(op string) bool { return p.tok.kind == 'o' && p.tok.text == op }
func (p *bcParser) word(w string) bool {
	return p.tok.kind == 'a' && p.tok.text == w
}

func (p *bcParser) eat(op string) bool {
	if p.is(op) {
		p.advance()
		return true
	}
	return false
}

func (p *bcParser) want(op string) {
	if !p.eat(op) {
		p.fail()
	}
}

func (p *bcParser) newlines() {
	for p.tok.kind == '\n' {
		p.advance()
	}
}

// line reads the statements up to the end of a line. It returns nil at the end of the program.
func (p *bcParser) line() *node {
	block := &node{op: "block"}
	for p.err == nil {
		switch {
		case p.tok.kind == 0:
			if len(block.kids) == 0 {
				return nil
			}
			return block
		case p.tok.kind == '\n': // the start of the next line reads it
			return block
		case p.is(";"):
			p.advance()
		case p.word("define"):
			p.define()
		default:
			block.kids = append(block.kids, p.statement())
			if p.err == nil && p.tok.kind != '\n' && p.tok.kind != 0 && !p.is(";") {
				p.fail()
			}
		}
	}
	return block
}

func (p *bcParser) define() {
	p.advance()
	f := &function{}
	if p.word("void") {
		f.void = true
		p.advance()
	}
	if p.tok.kind != 'a' {
		p.fail()
		return
	}
	f.name = p.tok.text
	p.advance()
	p.want("(")
	f.params = p.names(")")
	p.want(")")
	p.newlines()
	p.want("{")
	p.newlines()
	if p.word("auto") {
		p.advance()
		f.autos = p.names("")
		if p.tok.kind == '\n' || p.is(";") {
			p.advance()
		}
	}
	f.body = p.block()
	if p.err == nil {
		p.funcs[f.name] = f
	}
}

// names reads parameters or auto variables.
func (p *bcParser) names(end string) (out []*node) {
	for p.err == nil && !(end != "" && p.is(end)) {
		n := &node{op: "var"}
		if p.eat("*") || p.eat("&") {
			n.array = true
		}
		if p.tok.kind != 'a' {
			p.fail()
			return out
		}
		n.name = p.tok.text
		p.advance()
		if p.eat("[") {
			p.want("]")
			n.array = true
		}
		if out = append(out, n); !p.eat(",") {
			break
		}
	}
	return out
}

// block reads statements up to a closing brace.
func (p *bcParser) block() *node {
	b := &node{op: "block"}
	for p.err == nil {
		for p.tok.kind == '\n' || p.is(";") {
			p.advance()
		}
		if p.eat("}") {
			return b
		}
		if p.tok.kind == 0 {
			p.fail()
			return b
		}
		b.kids = append(b.kids, p.statement())
		if p.err == nil && p.tok.kind != '\n' && !p.is(";") && !p.is("}") {
			p.fail()
		}
	}
	return b
}

func (p *bcParser) statement() *node {
	if p.depth++; p.depth > maxNesting {
		return p.fail()
	}
	defer func() { p.depth-- }()
	switch {
	case p.eat("{"):
		return p.block()
	case p.tok.kind == '"':
		n := &node{op: "string", name: p.tok.text}
		p.advance()
		return n
	case p.tok.kind != 'a':
		return &node{op: "expr", kids: []*node{p.expression()}}
	}
	switch w := p.tok.text; w {
	case "if":
		p.advance()
		p.want("(")
		n := &node{op: "if", kids: []*node{p.expression()}}
		p.want(")")
		p.newlines()
		n.kids = append(n.kids, p.statement())
		if p.word("else") {
			p.advance()
			p.newlines()
			n.kids = append(n.kids, p.statement())
		}
		return n
	case "while":
		p.advance()
		p.want("(")
		n := &node{op: "while", kids: []*node{p.expression()}}
		p.want(")")
		p.newlines()
		n.kids = append(n.kids, p.statement())
		return n
	case "for":
		p.advance()
		p.want("(")
		n := &node{op: "for"}
		for i, end := range []string{";", ";", ")"} {
			var e *node
			if !p.is(end) {
				e = p.expression()
			}
			n.kids = append(n.kids, e)
			_ = i
			p.want(end)
		}
		p.newlines()
		n.kids = append(n.kids, p.statement())
		return n
	case "break", "continue", "quit", "halt", "limits", "warranty":
		p.advance()
		return &node{op: w}
	case "return":
		p.advance()
		n := &node{op: "return"}
		if p.tok.kind != '\n' && !p.is(";") && !p.is("}") && p.tok.kind != 0 {
			n.kids = []*node{p.expression()}
		}
		return n
	case "print":
		p.advance()
		n := &node{op: "print"}
		for p.err == nil {
			if p.tok.kind == '"' {
				n.kids = append(n.kids, &node{op: "string", name: p.tok.text})
				p.advance()
			} else {
				n.kids = append(n.kids, p.expression())
			}
			if !p.eat(",") {
				break
			}
		}
		return n
	case "auto":
		return p.fail()
	}
	return &node{op: "expr", kids: []*node{p.expression()}}
}

// expression reads a complete expression. In order of rising precedence: || then &&, !,
// comparisons, assignment, and the rest.
func (p *bcParser) expression() *node { return p.binary(0) }

var bcLevels = [][]string{{"||"}, {"&&"}, nil, {"==", "<=", ">=", "!=", "<", ">"}, nil, {"+", "-"}, {"*", "/", "%"}}

func (p *bcParser) binary(level int) *node {
	if p.depth++; p.depth > maxNesting {
		return p.fail()
	}
	defer func() { p.depth-- }()
	switch level {
	case 2:
		if p.eat("!") {
			return &node{op: "!", kids: []*node{p.binary(2)}}
		}
		return p.binary(3)
	case 4:
		return p.assignment()
	case len(bcLevels):
		return p.power()
	}
	l := p.binary(level + 1)
	for p.err == nil {
		op := ""
		for _, o := range bcLevels[level] {
			if p.is(o) {
				op = o
			}
		}
		if op == "" {
			break
		}
		p.advance()
		l = &node{op: op, kids: []*node{l, p.binary(level + 1)}}
	}
	return l
}

// assignment reads a sum. If the sum is a variable or element, it also reads an assignment to it.
func (p *bcParser) assignment() *node {
	l := p.binary(5)
	if l.op == "var" || l.op == "array" {
		for _, op := range []string{"=", "+=", "-=", "*=", "/=", "%=", "^="} {
			if p.is(op) {
				p.advance()
				return &node{op: "assign", name: op[:len(op)-1], void: true, kids: []*node{l, p.binary(4)}}
			}
		}
	}
	return l
}

func (p *bcParser) power() *node {
	if p.depth++; p.depth > maxNesting {
		return p.fail()
	}
	defer func() { p.depth-- }()
	if p.eat("-") { // it binds tighter than ^
		inner := p.unary()
		l := &node{op: "neg", kids: []*node{inner}}
		if p.eat("^") {
			return &node{op: "^", kids: []*node{l, p.power()}}
		}
		return l
	}
	l := p.unary()
	if p.eat("^") {
		return &node{op: "^", kids: []*node{l, p.power()}}
	}
	return l
}

func (p *bcParser) unary() *node {
	if p.depth++; p.depth > maxNesting {
		return p.fail()
	}
	defer func() { p.depth-- }()
	for _, op := range []string{"++", "--"} {
		if p.eat(op) {
			n := p.primary()
			if n.op != "var" && n.op != "array" {
				return p.fail()
			}
			return &node{op: "pre" + op, kids: []*node{n}}
		}
	}
	if p.eat("-") {
		return &node{op: "neg", kids: []*node{p.unary()}}
	}
	n := p.primary()
	for _, op := range []string{"++", "--"} {
		if (n.op == "var" || n.op == "array") && p.eat(op) {
			return &node{op: "post" + op, kids: []*node{n}}
		}
	}
	return n
}

func (p *bcParser) primary() *node {
	t := p.tok
	switch {
	case t.kind == '0':
		p.advance()
		return &node{op: "num", name: t.text}
	case p.is("."):
		p.advance()
		return &node{op: "var", name: "last"}
	case p.eat("("):
		n := p.expression()
		p.want(")")
		// An expression in parentheses is printed, even an assignment.
		return &node{op: "paren", kids: []*node{n}}
	case t.kind != 'a':
		return p.fail()
	}
	p.advance()
	switch {
	case t.text == "define" || t.text == "auto" || t.text == "if" || t.text == "else" || t.text == "while" || t.text == "for":
		return p.fail()
	case p.eat("("):
		n := &node{op: "call", name: t.text}
		for p.err == nil && !p.is(")") {
			a := p.expression()
			n.kids = append(n.kids, a)
			if !p.eat(",") {
				break
			}
		}
		p.want(")")
		return n
	case p.eat("["):
		if p.eat("]") {
			return &node{op: "var", name: t.text, array: true}
		}
		n := &node{op: "array", name: t.text, kids: []*node{p.expression()}}
		p.want("]")
		return n
	}
	return &node{op: "var", name: t.text}
}
