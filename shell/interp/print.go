package interp

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// listing prints commands in bash's layout, for declare -f, type, jobs and BASH_COMMAND.
type listing struct {
	b      strings.Builder
	indent int
	inFunc bool
	docs   []*syntax.Redirect // here-documents whose text follows at the end of the line
	depth  int
}

// functionText prints a function's definition.
func (r *runner) functionText(name string) string {
	f := r.funcs[name]
	if f == nil {
		return ""
	}
	p := &listing{}
	p.function(name, f.body)
	return p.b.String()
}

// sourceText prints a statement, without its &.
func sourceText(s *syntax.Stmt) string {
	p := &listing{}
	p.stmt(s)
	p.flushDocs()
	return strings.TrimSuffix(p.b.String(), ";")
}

func (p *listing) add(s string) { p.b.WriteString(s) }

func (p *listing) line() {
	p.flushDocs()
	p.add("\n" + strings.Repeat(" ", 4*p.indent))
}

// semicolon ends a command, unless the command has its own end.
func (p *listing) semicolon() {
	s := p.b.String()
	if strings.HasSuffix(s, "&") || strings.HasSuffix(s, "\n") {
		return
	}
	if len(p.docs) > 0 {
		p.flushDocs()
		return
	}
	p.add(";")
}

// flushDocs writes the texts of the pending here-documents.
func (p *listing) flushDocs() {
	docs := p.docs
	p.docs = nil
	for _, rd := range docs {
		p.add("\n")
		if rd.Hdoc != nil {
			p.add(docText(rd))
		}
		p.add(docEnd(rd.Word) + "\n")
	}
}

func docText(rd *syntax.Redirect) string {
	var b strings.Builder
	for _, part := range rd.Hdoc.Parts {
		if lit, ok := part.(*syntax.Lit); ok {
			b.WriteString(lit.Value)
			continue
		}
		b.WriteString(nodeText(&syntax.Word{Parts: []syntax.WordPart{part}}))
	}
	if rd.Op == syntax.DashHdoc {
		return stripTabs(b.String(), true)
	}
	return b.String()
}

// docEnd is a delimiter without its quotes.
func docEnd(w *syntax.Word) string {
	return strings.NewReplacer(`'`, "", `"`, "", `\`, "").Replace(nodeText(w))
}

func (p *listing) function(name string, body *syntax.Stmt) {
	p.add(name + " () ")
	inFunc := p.inFunc
	p.inFunc = true
	p.line()
	p.add("{ ")
	p.indent++
	p.line()
	if block, ok := body.Cmd.(*syntax.Block); ok {
		p.list(block.Stmts)
	} else {
		bare := *body
		bare.Redirs = nil
		p.stmt(&bare)
	}
	p.indent--
	p.flushDocs()
	p.add("\n" + strings.Repeat(" ", 4*p.indent) + "}")
	p.redirects(body.Redirs)
	p.inFunc = inFunc
}

// list writes statements. Inside of functions each has its own line.
func (p *listing) list(stmts []*syntax.Stmt) {
	for i, s := range stmts {
		if i > 0 {
			background := stmts[i-1].Background
			doc := len(p.docs) > 0
			if !background && !doc {
				p.add(";")
			}
			switch {
			case p.inFunc && !background:
				p.line()
			case doc:
				p.flushDocs()
			default:
				p.add(" ")
			}
		}
		p.stmt(s)
	}
}

// body writes a list between do and done, or then and fi.
func (p *listing) body(stmts []*syntax.Stmt) {
	p.indent++
	p.line()
	p.list(stmts)
	p.semicolon()
	p.indent--
	if strings.HasSuffix(p.b.String(), "\n") {
		p.add(strings.Repeat(" ", 4*p.indent))
		return
	}
	p.line()
}

func (p *listing) stmt(s *syntax.Stmt) {
	const most = 1000
	if p.depth++; p.depth > most {
		p.add("…")
		return
	}
	defer func() { p.depth-- }()
	if s.Negated {
		p.add("! ")
	}
	if s.Cmd != nil {
		p.command(s.Cmd)
	}
	p.redirects(s.Redirs)
	if s.Background {
		p.add(" &")
	}
}

func (p *listing) words(words []*syntax.Word) {
	for i, w := range words {
		if i > 0 {
			p.add(" ")
		}
		p.add(nodeText(w))
	}
}

func (p *listing) command(c syntax.Command) {
	switch c := c.(type) {
	case *syntax.CallExpr:
		for i, a := range c.Assigns {
			if i > 0 {
				p.add(" ")
			}
			p.add(nodeText(a))
		}
		if len(c.Assigns) > 0 && len(c.Args) > 0 {
			p.add(" ")
		}
		p.words(c.Args)
	case *syntax.Block:
		p.add("{ ")
		if p.inFunc {
			p.indent++
			p.line()
			p.list(c.Stmts)
			p.indent--
			p.line()
		} else {
			p.list(c.Stmts)
			p.semicolon()
			p.add(" ")
		}
		p.add("}")
	case *syntax.Subshell:
		p.add("( ")
		p.list(c.Stmts)
		p.flushDocs()
		p.add(" )")
	case *syntax.BinaryCmd:
		p.binary(c)
	case *syntax.IfClause:
		p.ifClause(c)
	case *syntax.WhileClause:
		p.add(map[bool]string{true: "until ", false: "while "}[c.Until])
		p.inline(c.Cond)
		p.semicolon()
		p.add(" do")
		p.body(c.Do)
		p.add("done")
	case *syntax.ForClause:
		p.forClause(c)
	case *syntax.CaseClause:
		p.caseClause(c)
	case *syntax.FuncDecl:
		p.add("function ")
		p.function(c.Name.Value, c.Body)
	case *syntax.ArithmCmd:
		p.add("((" + arithSource(c.X) + "))")
	case *syntax.TestClause:
		p.add("[[ " + testSource(c.X) + " ]]")
	case *syntax.TimeClause:
		p.add("time ")
		if c.PosixFormat {
			p.add("-p ")
		}
		if c.Stmt != nil {
			p.stmt(c.Stmt)
		}
	case *syntax.CoprocClause:
		p.add("coproc ")
		if c.Name != nil {
			p.add(nodeText(c.Name) + " ")
		}
		p.stmt(c.Stmt)
	default:
		p.add(nodeText(c))
	}
}

// inline writes a list on one line. Outside of functions conditions are written so.
func (p *listing) inline(stmts []*syntax.Stmt) { p.list(stmts) }

func (p *listing) binary(c *syntax.BinaryCmd) {
	type link struct {
		op syntax.BinCmdOperator
		y  *syntax.Stmt
	}
	var chain []link
	first := &syntax.Stmt{Cmd: c}
	for {
		b, ok := first.Cmd.(*syntax.BinaryCmd)
		if !ok || first.Negated && len(chain) > 0 || len(first.Redirs) > 0 {
			break
		}
		chain = append(chain, link{b.Op, b.Y})
		first = b.X
	}
	p.stmt(first)
	for i := len(chain) - 1; i >= 0; i-- {
		op := chain[i].op.String()
		if chain[i].op == syntax.PipeAll {
			op = "2>&1 |"
		}
		p.add(" " + op + " ")
		if len(p.docs) > 0 {
			s := strings.TrimSuffix(p.b.String(), " ")
			p.b.Reset()
			p.add(s)
			p.flushDocs()
		}
		p.stmt(chain[i].y)
	}
}

func (p *listing) ifClause(c *syntax.IfClause) {
	p.add("if ")
	p.inline(c.Cond)
	p.semicolon()
	p.add(" then")
	p.body(c.Then)
	if c.Else != nil {
		p.add("else")
		if len(c.Else.Cond) > 0 {
			p.indent++
			p.line()
			p.ifClause(c.Else)
			p.semicolon()
			p.indent--
			p.line()
		} else {
			p.body(c.Else.Then)
		}
	}
	p.add("fi")
}

func (p *listing) forClause(c *syntax.ForClause) {
	switch l := c.Loop.(type) {
	case *syntax.WordIter:
		p.add(map[bool]string{true: "select ", false: "for "}[c.Select] + l.Name.Value)
		if l.InPos.IsValid() {
			p.add(" in ")
			p.words(l.Items)
		} else {
			p.add(` in "$@"`)
		}
		p.add(";")
	case *syntax.CStyleLoop:
		p.add("for ((" + orOne(l.Init) + "; " + orOne(l.Cond) + "; " + orOne(l.Post) + "))")
	}
	p.line()
	p.add("do")
	p.body(c.Do)
	p.add("done")
}

func orOne(x syntax.ArithmExpr) string {
	if x == nil {
		return "1"
	}
	return arithSource(x)
}

// arithSource writes an arithmetic expression with the blanks of its source.
func arithSource(x syntax.ArithmExpr) string { return arithLevel(x, 0) }

func arithLevel(x syntax.ArithmExpr, depth int) string {
	const most = 200
	if depth > most {
		return "…"
	}
	gap := func(from, to syntax.Pos) string {
		if to.Offset() > from.Offset() {
			return " "
		}
		return ""
	}
	switch x := x.(type) {
	case *syntax.Word:
		return nodeText(x)
	case *syntax.ParenArithm:
		return "(" + arithLevel(x.X, depth+1) + ")"
	case *syntax.UnaryArithm:
		if x.Post {
			return arithLevel(x.X, depth+1) + x.Op.String()
		}
		return x.Op.String() + arithLevel(x.X, depth+1)
	case *syntax.BinaryArithm:
		op := x.Op.String()
		after := gap(posPlus(x.OpPos, len(op)), x.Y.Pos())
		return arithLevel(x.X, depth+1) + gap(x.X.End(), x.OpPos) + op + after + arithLevel(x.Y, depth+1)
	}
	return ""
}

// posPlus returns the position n bytes later on the same line.
func posPlus(p syntax.Pos, n int) syntax.Pos {
	return syntax.NewPos(p.Offset()+uint(n), p.Line(), p.Col()+uint(n))
}

func (p *listing) caseClause(c *syntax.CaseClause) {
	p.add("case " + nodeText(c.Word) + " in ")
	p.indent++
	for _, item := range c.Items {
		p.line()
		for i, w := range item.Patterns {
			if i > 0 {
				p.add(" | ")
			}
			p.add(nodeText(w))
		}
		p.add(")")
		p.indent++
		if len(item.Stmts) > 0 {
			p.line()
			p.list(item.Stmts)
		}
		p.indent--
		p.line()
		p.add(item.Op.String())
	}
	p.indent--
	p.line()
	p.add("esac")
}

// testSource writes an expression of [[ ]].
func testSource(x syntax.TestExpr) string {
	switch x := x.(type) {
	case *syntax.Word:
		return "-n " + nodeText(x)
	case *syntax.ParenTest:
		return "( " + testSource(x.X) + " )"
	case *syntax.UnaryTest:
		if x.Op == syntax.TsNot {
			return "! " + testSource(x.X)
		}
		return x.Op.String() + " " + operandSource(x.X)
	case *syntax.BinaryTest:
		if x.Op == syntax.AndTest || x.Op == syntax.OrTest {
			return testSource(x.X) + " " + x.Op.String() + " " + testSource(x.Y)
		}
		return operandSource(x.X) + " " + x.Op.String() + " " + operandSource(x.Y)
	}
	return ""
}

func operandSource(x syntax.TestExpr) string {
	if w, ok := x.(*syntax.Word); ok {
		return nodeText(w)
	}
	return testSource(x)
}

func (p *listing) redirects(redirs []*syntax.Redirect) {
	for _, rd := range redirs {
		p.add(" ")
		n := ""
		if rd.N != nil {
			n = rd.N.Value
		}
		word := nodeText(rd.Word)
		op := rd.Op.String()
		switch rd.Op {
		case syntax.Hdoc, syntax.DashHdoc:
			p.add(n + op + word)
			p.docs = append(p.docs, rd)
		case syntax.DplIn, syntax.DplOut:
			if n == "" {
				n = map[bool]string{true: "0", false: "1"}[rd.Op == syntax.DplIn]
				if strings.Trim(word, "0123456789-") != "" && rd.Op == syntax.DplOut {
					n = ""
					op, word = "&>", " "+word
				}
			}
			p.add(n + op + word)
		default:
			p.add(n + op + " " + word)
		}
	}
}
