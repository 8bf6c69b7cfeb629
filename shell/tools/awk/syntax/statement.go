package syntax

// block reads statements in braces.
func (p *parser) block() []Stmt {
	defer p.enter()()
	p.want(tokLBrace)
	body := []Stmt{}
	for p.ends(); !p.at(tokRBrace); p.ends() {
		if p.at(tokEOF) {
			p.unexpected()
		}
		body = append(body, p.statement())
	}
	p.next()
	return body
}

// body reads the body of a loop or an if: one statement, which may be empty or a block.
func (p *parser) body() []Stmt {
	p.newlines()
	if p.eat(tokSemicolon) {
		return nil
	}
	if p.at(tokLBrace) {
		return p.block()
	}
	return []Stmt{p.statement()}
}

// loop reads the body of a loop.
func (p *parser) loop() []Stmt {
	p.loops++
	p.jumps++
	body := p.body()
	p.loops--
	p.jumps--
	return body
}

// statement reads one statement with its end.
func (p *parser) statement() Stmt {
	defer p.enter()()
	pos := p.pos()
	switch p.tok.kind {
	case tokLBrace:
		return &Block{Body: p.block()}
	case tokIf:
		return p.ifStmt()
	case tokWhile:
		p.next()
		w := &While{Pos: pos, Cond: p.condition()}
		if p.eat(tokSemicolon) {
			return w
		}
		w.Body = p.loop()
		return w
	case tokDo:
		return p.doStmt()
	case tokFor:
		return p.forStmt()
	case tokSwitch:
		return p.switchStmt()
	}
	s := p.simple()
	p.end()
	return s
}

// end reads the end of a simple statement.
func (p *parser) end() {
	if p.lists != 0 {
		p.unexpected()
	}
	switch p.tok.kind {
	case tokSemicolon, tokNewline:
		p.next()
	case tokRBrace:
	default:
		p.unexpected()
	}
}

// condition reads an expression in parentheses.
func (p *parser) condition() Expr {
	p.want(tokLParen)
	x := p.inParens()
	p.want(tokRParen)
	return x
}

func (p *parser) ifStmt() Stmt {
	s := &If{Pos: p.pos()}
	p.next()
	s.Cond = p.condition()
	s.Then = p.body()
	// A semicolon and line ends may stand before else. Without an else they have no meaning.
	m := p.mark()
	p.ends()
	if p.eat(tokElse) {
		s.Else = p.body()
		if s.Else == nil {
			s.Else = []Stmt{}
		}
	} else if len(p.lex.stack) == m.depth {
		p.reset(m)
	}
	return s
}

func (p *parser) doStmt() Stmt {
	s := &While{Pos: p.pos(), Do: true}
	p.next()
	s.Body = p.loop()
	p.ends()
	p.want(tokWhile)
	s.Cond = p.condition()
	p.end()
	return s
}

func (p *parser) forStmt() Stmt {
	pos := p.pos()
	p.next()
	p.want(tokLParen)
	if s := p.forIn(pos); s != nil {
		return s
	}
	s := &For{Pos: pos}
	part := func(end token) (st Stmt) {
		if p.newlines(); !p.at(end) {
			st = p.simple()
			p.newlines()
		}
		p.want(end)
		return st
	}
	s.Init = part(tokSemicolon)
	if p.newlines(); !p.at(tokSemicolon) {
		s.Cond = p.inParens()
		p.newlines()
	}
	p.want(tokSemicolon)
	s.Post = part(tokRParen)
	if p.eat(tokSemicolon) {
		return s
	}
	s.Body = p.loop()
	return s
}

// forIn reads "name in array) body". It reads nothing if the text is different.
func (p *parser) forIn(pos Pos) Stmt {
	if !p.at(tokName) {
		return nil
	}
	m := p.mark()
	name := p.name()
	if !p.eat(tokIn) || !p.at(tokName) {
		p.reset(m)
		return nil
	}
	s := &ForIn{Var: name, Array: p.array(), Pos: pos}
	if !p.eat(tokRParen) {
		p.reset(m)
		return nil
	}
	if p.eat(tokSemicolon) {
		return s
	}
	s.Body = p.loop()
	return s
}

func (p *parser) switchStmt() Stmt {
	s := &Switch{Pos: p.pos()}
	p.next()
	s.X = p.condition()
	p.newlines()
	p.want(tokLBrace)
	p.jumps++
	defaults := false
	for p.ends(); !p.at(tokRBrace); p.ends() {
		c := &Case{}
		pos := p.pos()
		switch {
		case p.eat(tokCase):
			c.X = p.caseValue()
		case p.eat(tokDefault):
			if defaults {
				p.failAt(pos, "duplicate `default' detected in switch body")
			}
			defaults = true
		default:
			p.unexpected()
		}
		p.want(tokColon)
		for p.ends(); !p.at(tokCase, tokDefault, tokRBrace, tokEOF); p.ends() {
			c.Body = append(c.Body, p.statement())
		}
		s.Cases = append(s.Cases, c)
	}
	p.jumps--
	p.next()
	return s
}

// caseValue reads a number, a string or an expression.
func (p *parser) caseValue() Expr {
	sign := 1.0
	if p.at(tokMinus, tokPlus) {
		if p.tok.kind == tokMinus {
			sign = -1
		}
		p.next()
		if !p.at(tokNumber) {
			p.unexpected()
		}
	}
	var x Expr
	switch p.tok.kind {
	case tokNumber:
		x = &Num{Value: sign * p.tok.num}
	case tokString:
		x = &Str{Value: p.tok.text}
	case tokSlash, tokDivAssign:
		p.regex()
		x = &Regex{Source: p.tok.text, Pos: p.pos()}
	case tokStrong:
		x = &Regex{Source: p.tok.text, Strong: true, Pos: p.pos()}
	default:
		p.unexpected()
	}
	p.next()
	return x
}

// simple reads a statement without a body.
func (p *parser) simple() Stmt {
	pos := p.pos()
	switch p.tok.kind {
	case tokPrint, tokPrintf:
		return p.printStmt()
	case tokDelete:
		return p.deleteStmt()
	case tokBreak, tokContinue, tokNext, tokNextFile:
		return p.jump()
	case tokExit:
		p.next()
		return &Exit{X: p.optional(), Pos: pos}
	case tokReturn:
		if p.fn == nil {
			p.fail("`return' used outside function context")
		}
		p.next()
		return &Return{X: p.optional(), Pos: pos}
	}
	return &ExprStmt{X: p.single(), Pos: pos}
}

// optional reads an expression if there is one here.
func (p *parser) optional() Expr {
	if p.at(tokSemicolon, tokNewline, tokRBrace) {
		return nil
	}
	return p.single()
}

func (p *parser) jump() Stmt {
	kind, pos := p.tok.kind, p.pos()
	switch {
	case kind == tokBreak && p.jumps == 0:
		p.failAt(pos, "`break' is not allowed outside a loop or switch")
	case kind == tokContinue && p.loops == 0:
		p.failAt(pos, "`continue' is not allowed outside a loop")
	case kind == tokNext && p.fn == nil && p.rule != RuleMain:
		p.failAt(pos, "`next' used in %s action", ruleNames[p.rule])
	case kind == tokNextFile && p.fn == nil && p.rule != RuleMain && p.rule != RuleBeginFile:
		p.failAt(pos, "`nextfile' used in %s action", ruleNames[p.rule])
	}
	p.next()
	return &Jump{Kind: map[token]JumpKind{tokBreak: Break, tokContinue: Continue, tokNext: Next,
		tokNextFile: NextFile}[kind], Pos: pos}
}

func (p *parser) deleteStmt() Stmt {
	s := &Delete{Pos: p.pos()}
	p.next()
	if !p.at(tokName) {
		p.unexpected()
	}
	s.Array = p.array()
	if x, ok := s.Array.(*Index); ok {
		s.Array, s.Subs = x.Array, x.Subs
	}
	return s
}

// redirects are the lexemes of redirections for print.
var redirects = map[token]Redirect{tokGreater: ToFile, tokAppend: ToAppend, tokPipe: ToCommand,
	tokPipeBoth: ToBoth}

func (p *parser) printStmt() Stmt {
	s := &Print{Pos: p.pos(), Format: p.tok.kind == tokPrintf}
	p.next()
	old := p.noGreater
	p.noGreater = true
	if !p.at(tokSemicolon, tokNewline, tokRBrace, tokGreater, tokAppend, tokPipe, tokPipeBoth) {
		s.Args = append(s.Args, p.expr())
		for p.eat(tokComma) {
			p.newlines()
			s.Args = append(s.Args, p.expr())
		}
	}
	if len(s.Args) == 1 {
		if list, ok := s.Args[0].(*List); ok {
			s.Args = list.Items
			p.lists--
		}
	}
	if to, ok := redirects[p.tok.kind]; ok {
		p.next()
		s.To, s.Dest = to, p.concat()
	}
	p.noGreater = old
	if s.Format && len(s.Args) == 0 {
		p.refuse(s.Pos, "printf: no arguments")
	}
	return s
}
