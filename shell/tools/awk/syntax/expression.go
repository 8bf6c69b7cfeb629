package syntax

// single reads an expression that may not be a List.
func (p *parser) single() Expr {
	lists := p.lists
	x := p.expr()
	if p.lists != lists {
		p.unexpected()
	}
	return x
}

// inParens reads an expression inside parentheses, where all operators are allowed again.
func (p *parser) inParens() Expr {
	old := p.noGreater
	p.noGreater = false
	x := p.single()
	p.noGreater = old
	return x
}

// expr reads an expression: a conditional, or an operator of higher precedence. Assignments are
// parsed at their left side, because the right side extends as far as possible.
func (p *parser) expr() Expr {
	defer p.enter()()
	x := p.or()
	if !p.at(tokQuestion) {
		return x
	}
	p.next()
	p.newlines()
	then := p.expr()
	p.newlines()
	p.want(tokColon)
	p.newlines()
	return &Cond{If: x, Then: then, Else: p.expr()}
}

// chain counts the operators of one level, and refuses too many.
func (p *parser) chain(n *int) {
	if *n++; *n > MaxChain {
		p.fail("expression is too long")
	}
}

func (p *parser) or() Expr {
	x := p.and()
	for n := 0; p.at(tokOr); {
		p.chain(&n)
		pos := p.pos()
		p.next()
		p.newlines()
		x = &Binary{Op: OpOr, L: x, R: p.and(), Pos: pos}
	}
	return x
}

func (p *parser) and() Expr {
	x := p.membership()
	for n := 0; p.at(tokAnd); {
		p.chain(&n)
		pos := p.pos()
		p.next()
		p.newlines()
		x = &Binary{Op: OpAnd, L: x, R: p.membership(), Pos: pos}
	}
	return x
}

// membership reads "x in array".
func (p *parser) membership() Expr {
	x := p.match()
	for n := 0; p.at(tokIn); {
		p.chain(&n)
		pos := p.pos()
		p.next()
		x = &In{Subs: []Expr{x}, Array: p.arrayName(), Pos: pos}
	}
	return x
}

func (p *parser) match() Expr {
	x := p.comparison()
	for n := 0; p.at(tokMatch, tokNoMatch); {
		p.chain(&n)
		op, pos := OpMatch, p.pos()
		if p.tok.kind == tokNoMatch {
			op = OpNoMatch
		}
		p.next()
		x = &Binary{Op: op, L: x, R: p.comparison(), Pos: pos}
	}
	return x
}

// comparisons are the comparison operators. They can't be chained.
var comparisons = map[token]BinaryOp{tokLess: OpLess, tokLessEqual: OpLessEqual,
	tokEqual: OpEqual, tokNotEqual: OpNotEqual, tokGreater: OpGreater,
	tokGreaterEqual: OpGreaterEqual}

func (p *parser) comparison() Expr {
	x := p.piped()
	op, ok := comparisons[p.tok.kind]
	if !ok || op == OpGreater && p.noGreater {
		return x
	}
	pos := p.pos()
	p.next()
	return &Binary{Op: op, L: x, R: p.piped(), Pos: pos}
}

// piped reads a concatenation with "| getline" after it.
func (p *parser) piped() Expr {
	x := p.concat()
	for n := 0; p.at(tokPipe, tokPipeBoth) && p.peek() == tokGetline; {
		p.chain(&n)
		g := &Getline{From: FromCommand, Source: x, Pos: p.pos()}
		if p.tok.kind == tokPipeBoth {
			g.From = FromBoth
		}
		p.next()
		p.next()
		g.Target = p.target()
		x = p.concatAfter(p.sumAfter(p.productAfter(g)))
	}
	return x
}

func (p *parser) concat() Expr { return p.concatAfter(p.sum()) }

// concatAfter reads the strings that follow x.
func (p *parser) concatAfter(x Expr) Expr {
	if !p.operand() {
		return x
	}
	c := &Concat{Parts: []Expr{x}}
	for n := 0; p.operand(); {
		p.chain(&n)
		c.Parts = append(c.Parts, p.sum())
	}
	return c
}

// operand reports whether the next operand of a concatenation begins here. A sign would be an
// operator, and a slash a division.
func (p *parser) operand() bool {
	switch p.tok.kind {
	case tokNumber, tokString, tokStrong, tokName, tokFuncName, tokBuiltin, tokDollar, tokNot,
		tokLParen, tokIncr, tokDecr, tokAt, tokMinus, tokPlus, tokGetline:
		return true
	}
	return false
}

func (p *parser) sum() Expr { return p.sumAfter(p.product()) }

// sumAfter reads what is added to x.
func (p *parser) sumAfter(x Expr) Expr {
	for n := 0; p.at(tokPlus, tokMinus); {
		p.chain(&n)
		op, pos := OpAdd, p.pos()
		if p.tok.kind == tokMinus {
			op = OpSub
		}
		p.next()
		x = &Binary{Op: op, L: x, R: p.product(), Pos: pos}
	}
	return x
}

var products = map[token]BinaryOp{tokStar: OpMul, tokSlash: OpDiv, tokPercent: OpMod}

func (p *parser) product() Expr { return p.productAfter(p.unary()) }

// productAfter reads what x is multiplied or divided by.
func (p *parser) productAfter(x Expr) Expr {
	for n := 0; p.at(tokStar, tokSlash, tokPercent); {
		p.chain(&n)
		op, pos := products[p.tok.kind], p.pos()
		p.next()
		x = &Binary{Op: op, L: x, R: p.unary(), Pos: pos}
	}
	return x
}

var unaries = map[token]UnaryOp{tokNot: OpNot, tokMinus: OpNegate, tokPlus: OpPlus}

func (p *parser) unary() Expr {
	op, ok := unaries[p.tok.kind]
	if !ok {
		return p.power()
	}
	defer p.enter()()
	p.next()
	return &Unary{Op: op, X: p.unary()}
}

// power reads x ^ y, which is right-associative. y may have signs.
func (p *parser) power() Expr {
	x := p.postfix()
	if !p.at(tokCaret) {
		return x
	}
	defer p.enter()()
	pos := p.pos()
	p.next()
	return &Binary{Op: OpPow, L: x, R: p.exponent(), Pos: pos}
}

func (p *parser) exponent() Expr {
	op, ok := unaries[p.tok.kind]
	if !ok {
		return p.power()
	}
	defer p.enter()()
	p.next()
	return &Unary{Op: op, X: p.exponent()}
}

// assigns are the assignments, with their operators.
var assigns = map[token]BinaryOp{tokAssign: OpNone, tokAddAssign: OpAdd, tokSubAssign: OpSub,
	tokMulAssign: OpMul, tokDivAssign: OpDiv, tokModAssign: OpMod, tokPowAssign: OpPow}

// postfix reads an operand with ++ or -- after it, or an assignment to it.
func (p *parser) postfix() Expr {
	x := p.primary()
	if !isLvalue(x) {
		return x
	}
	pos := p.pos()
	switch p.tok.kind {
	case tokIncr:
		p.next()
		return &IncDec{L: x, Delta: 1, Post: true, Pos: pos}
	case tokDecr:
		p.next()
		return &IncDec{L: x, Delta: -1, Post: true, Pos: pos}
	}
	op, ok := assigns[p.tok.kind]
	if !ok {
		return x
	}
	p.next()
	p.newlines()
	return &Assign{Op: op, L: x, R: p.expr(), Pos: pos}
}

func isLvalue(x Expr) bool {
	switch x.(type) {
	case *Name, *Index, *Field:
		return true
	}
	return false
}

// primary reads an operand without postfix operators.
func (p *parser) primary() Expr {
	x, pos := p.tok, p.pos()
	switch x.kind {
	case tokNumber:
		p.next()
		return &Num{Value: x.num}
	case tokString:
		p.next()
		return &Str{Value: x.text}
	case tokSlash, tokDivAssign:
		p.regex()
		text := p.tok.text
		p.next()
		return &Regex{Source: text, Pos: pos}
	case tokStrong:
		p.next()
		return &Regex{Source: x.text, Strong: true, Pos: pos}
	case tokDollar:
		return p.field()
	case tokIncr, tokDecr:
		return p.preIncrement()
	case tokLParen:
		return p.grouping()
	case tokName:
		return p.array()
	case tokFuncName:
		p.next()
		return &Call{Name: p.ident(x.text), Args: p.arguments(), Pos: pos}
	case tokBuiltin:
		return p.builtin()
	case tokAt:
		p.next()
		if !p.at(tokFuncName) {
			p.unexpected()
		}
		fn := &Name{Ident: p.ident(p.tok.text), Pos: pos}
		p.next()
		return &Indirect{Fn: fn, Args: p.arguments(), Pos: pos}
	case tokGetline:
		return p.getline()
	case tokNot, tokMinus, tokPlus:
		return p.unary()
	}
	p.unexpected()
	return nil
}

// regex reads the slash at this position as the start of a regular expression.
func (p *parser) regex() {
	x, err := p.lex.regex(p.tok)
	if err != nil {
		panic(parseError{err})
	}
	p.tok = x
}

// field reads $x. Only operators before x belong to it.
func (p *parser) field() Expr {
	defer p.enter()()
	f := &Field{Pos: p.pos()}
	p.next()
	switch p.tok.kind {
	case tokIncr, tokDecr:
		f.X = p.preIncrement()
	case tokMinus, tokPlus, tokNot:
		op := unaries[p.tok.kind]
		p.next()
		f.X = &Unary{Op: op, X: p.primary()}
	default:
		f.X = p.primary()
	}
	return f
}

func (p *parser) preIncrement() Expr {
	defer p.enter()()
	s := &IncDec{Delta: 1, Pos: p.pos()}
	if p.tok.kind == tokDecr {
		s.Delta = -1
	}
	p.next()
	if s.L = p.primary(); !isLvalue(s.L) {
		p.unexpected()
	}
	return s
}

// grouping reads one or more expressions in parentheses.
func (p *parser) grouping() Expr {
	defer p.enter()()
	p.next()
	first := p.inParens()
	if p.eat(tokRParen) {
		return &Group{X: first}
	}
	items := []Expr{first}
	for p.eat(tokComma) {
		p.newlines()
		items = append(items, p.inParens())
	}
	p.newlines()
	p.want(tokRParen)
	if len(items) > 1 && p.at(tokIn) {
		pos := p.pos()
		p.next()
		return &In{Subs: items, Array: p.arrayName(), Pos: pos}
	}
	p.lists++
	return &List{Items: items}
}

// name reads a variable.
func (p *parser) name() *Name {
	n := &Name{Ident: p.ident(p.tok.text), Pos: p.pos()}
	p.want(tokName)
	return n
}

// arrayName reads the array after in.
func (p *parser) arrayName() Expr {
	if !p.at(tokName) {
		p.unexpected()
	}
	return p.array()
}

// array reads a name and any number of subscripts.
func (p *parser) array() Expr {
	var x Expr = p.name()
	for n := 0; p.at(tokLBracket); {
		if p.chain(&n); n > MaxDepth {
			p.fail("program is nested too deeply")
		}
		index := &Index{Array: x, Pos: p.pos()}
		p.next()
		index.Subs = p.list(tokRBracket)
		if len(index.Subs) == 0 {
			p.unexpected()
		}
		p.next()
		x = index
	}
	return x
}

// list reads expressions up to a closing lexeme. It does not consume that lexeme.
func (p *parser) list(end token) []Expr {
	var out []Expr
	for p.newlines(); !p.at(end); p.newlines() {
		out = append(out, p.inParens())
		p.newlines()
		if !p.eat(tokComma) {
			break
		}
		if p.newlines(); p.at(end) {
			p.unexpected()
		}
	}
	if !p.at(end) {
		p.unexpected()
	}
	return out
}

func (p *parser) arguments() []Expr {
	defer p.enter()()
	p.want(tokLParen)
	args := p.list(tokRParen)
	p.next()
	return args
}

// builtin reads a call of a built-in function.
func (p *parser) builtin() Expr {
	c := &CallBuiltin{Builtin: builtins[p.tok.text], Pos: p.pos()}
	p.next()
	if !p.at(tokLParen) {
		if !c.Builtin.Bare {
			p.unexpected()
		}
		return c
	}
	defer p.enter()()
	p.next()
	c.Args = p.list(tokRParen)
	n := len(c.Args)
	if n < c.Builtin.Min || c.Builtin.Max != unbounded && n > c.Builtin.Max {
		p.fail("%d is invalid as number of arguments for %s", n, c.Builtin.Name)
	}
	if c.Builtin.Name == "index" {
		if _, ok := c.Args[1].(*Regex); ok {
			p.refuse(c.Pos, "index: regexp constant as second argument is not allowed")
		}
	}
	p.next()
	return c
}

// target reads the variable of a getline, if there is one.
func (p *parser) target() Expr {
	switch p.tok.kind {
	case tokName:
		return p.array()
	case tokDollar:
		return p.field()
	}
	return nil
}

func (p *parser) getline() Expr {
	defer p.enter()()
	g := &Getline{Pos: p.pos()}
	p.next()
	g.Target = p.target()
	if p.at(tokLess) {
		p.next()
		g.From = FromFile
		g.Source = p.primary()
	}
	return g
}
