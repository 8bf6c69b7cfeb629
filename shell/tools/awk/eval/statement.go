package eval

import (
	"github.com/carrel-dev/carrel/shell/tools/awk/syntax"
)

// block compiles a sequence of statements.
func (c *compiler) block(list []syntax.Stmt) action {
	actions := make([]action, len(list))
	for i, s := range list {
		actions[i] = c.stmt(s)
	}
	switch len(actions) {
	case 0:
		return func(*machine) flow { return flowOn }
	case 1:
		return actions[0]
	case 2:
		a, b := actions[0], actions[1]
		return func(m *machine) flow {
			if f := a(m); f != flowOn {
				return f
			}
			return b(m)
		}
	}
	return func(m *machine) flow {
		for _, a := range actions {
			if f := a(m); f != flowOn {
				return f
			}
		}
		return flowOn
	}
}

// stmt compiles a statement.
func (c *compiler) stmt(s syntax.Stmt) action {
	defer c.enter()()
	switch s := s.(type) {
	case *syntax.ExprStmt:
		return c.exprStmt(s)
	case *syntax.Print:
		return c.print(s)
	case *syntax.If:
		return c.ifStmt(s)
	case *syntax.While:
		return c.while(s)
	case *syntax.For:
		return c.forStmt(s)
	case *syntax.ForIn:
		return c.forIn(s)
	case *syntax.Block:
		return c.block(s.Body)
	case *syntax.Switch:
		return c.switchStmt(s)
	case *syntax.Delete:
		return c.deleteStmt(s)
	case *syntax.Exit:
		return c.exit(s)
	case *syntax.Return:
		return c.returnStmt(s)
	case *syntax.Jump:
		return jump(s)
	}
	panic("awk: a statement that the compiler does not know")
}

// exprStmt compiles an expression whose value is not used.
func (c *compiler) exprStmt(s *syntax.ExprStmt) action {
	pos := s.Pos
	x := c.expr(s.X)
	if inc, ok := s.X.(*syntax.IncDec); ok {
		// ++ before and after the operand have the same effect here.
		p, delta := c.place(inc.L), inc.Delta
		x.num = func(m *machine) float64 { return p.add(m, delta) }
	}
	if x.isNum {
		num := x.num
		return func(m *machine) flow {
			m.at = pos
			num(m)
			return flowOn
		}
	}
	val := x.val
	if x.isStr {
		str := x.str
		val = func(m *machine) value { str(m); return value{} }
	}
	return func(m *machine) flow {
		m.at = pos
		val(m)
		return flowOn
	}
}

func (c *compiler) ifStmt(s *syntax.If) action {
	pos := s.Pos
	cond := c.expr(s.Cond).cond
	then := c.block(s.Then)
	if s.Else == nil {
		return func(m *machine) flow {
			m.at = pos
			if cond(m) {
				return then(m)
			}
			return flowOn
		}
	}
	other := c.block(s.Else)
	return func(m *machine) flow {
		m.at = pos
		if cond(m) {
			return then(m)
		}
		return other(m)
	}
}

// round is called at the start of each round of a loop.
func (m *machine) round() {
	m.step(2)
	if m.scratch > m.scratchBase {
		m.relax()
	}
}

func (c *compiler) while(s *syntax.While) action {
	pos, do := s.Pos, s.Do
	cond := c.expr(s.Cond).cond
	body := c.block(s.Body)
	return func(m *machine) flow {
		for first := do; ; first = false {
			m.round()
			if !first {
				if m.at = pos; !cond(m) {
					return flowOn
				}
			}
			switch f := body(m); f {
			case flowOn, flowContinue:
			case flowBreak:
				return flowOn
			default:
				return f
			}
		}
	}
}

func (c *compiler) forStmt(s *syntax.For) action {
	pos := s.Pos
	var init, post action
	if s.Init != nil {
		init = c.stmt(s.Init)
	}
	cond := func(*machine) bool { return true }
	if s.Cond != nil {
		cond = c.expr(s.Cond).cond
	}
	if s.Post != nil {
		post = c.stmt(s.Post)
	}
	body := c.block(s.Body)
	return func(m *machine) flow {
		if init != nil {
			init(m)
		}
		for {
			m.round()
			if m.at = pos; !cond(m) {
				return flowOn
			}
			switch f := body(m); f {
			case flowOn, flowContinue:
			case flowBreak:
				return flowOn
			default:
				return f
			}
			if post != nil {
				post(m)
			}
		}
	}
}

func (c *compiler) forIn(s *syntax.ForIn) action {
	pos := s.Pos
	set := c.place(s.Var).set
	arr := c.arrayRef(s.Array)
	body := c.block(s.Body)
	return func(m *machine) flow {
		m.at = pos
		keys := m.keys(arr(m))
		const keyCost = 16
		m.owe(int64(len(keys)) * keyCost)
		f := m.each(keys, func(k string) flow {
			set(m, value{s: k, k: kindInput})
			return body(m)
		})
		m.owe(-int64(len(keys)) * keyCost)
		return f
	}
}

// each runs the body of a loop for each key.
func (m *machine) each(keys []string, body func(k string) flow) flow {
	for _, k := range keys {
		m.round()
		switch f := body(k); f {
		case flowOn, flowContinue:
		case flowBreak:
			return flowOn
		default:
			return f
		}
	}
	return flowOn
}

// compiledCase is a case of a switch.
type compiledCase struct {
	test func(m *machine, v value) bool // nil: the default
	body action
}

func (c *compiler) switchStmt(s *syntax.Switch) action {
	pos := s.Pos
	x := c.expr(s.X).val
	cases := make([]compiledCase, len(s.Cases))
	other := len(cases)
	for i, sc := range s.Cases {
		cases[i].body = c.block(sc.Body)
		switch cx := sc.X.(type) {
		case nil:
			other = i
		case *syntax.Regex:
			p := c.constantPattern(cx)
			cases[i].test = func(m *machine, v value) bool { return m.matches(p.get(m), m.str(v)) }
		case *syntax.Num:
			cases[i].test = sameAs(number(cx.Value))
		case *syntax.Str:
			cases[i].test = sameAs(text(cx.Value))
		}
	}
	return func(m *machine) flow {
		m.at = pos
		v := x(m).settled()
		at := other
		for i := range cases {
			if cases[i].test != nil && cases[i].test(m, v) {
				at = i
				break
			}
		}
		for ; at < len(cases); at++ {
			if f := cases[at].body(m); f == flowBreak {
				return flowOn
			} else if f != flowOn {
				return f
			}
		}
		return flowOn
	}
}

// sameAs returns a test for the cases of a switch. It gives the same result as ==.
func sameAs(want value) func(m *machine, v value) bool {
	return func(m *machine, v value) bool { return m.order(v, want) == 0 }
}

func (c *compiler) deleteStmt(s *syntax.Delete) action {
	pos := s.Pos
	arr := c.arrayRef(s.Array)
	if s.Subs == nil {
		return func(m *machine) flow {
			m.at = pos
			m.clearArray(arr(m))
			return flowOn
		}
	}
	key := c.key(s.Subs)
	return func(m *machine) flow {
		m.at = pos
		a := arr(m)
		m.remove(a, key(m).s)
		return flowOn
	}
}

func (c *compiler) exit(s *syntax.Exit) action {
	pos := s.Pos
	var status func(m *machine) float64
	if s.X != nil {
		status = c.expr(s.X).num
	}
	return func(m *machine) flow {
		m.at = pos
		if status != nil {
			m.status = int(int64(max(min(status(m), maxExact), -maxExact)))
		}
		return flowExit
	}
}

func (c *compiler) returnStmt(s *syntax.Return) action {
	pos := s.Pos
	if s.X == nil {
		return func(*machine) flow { return flowReturn }
	}
	x := c.expr(s.X).val
	return func(m *machine) flow {
		m.at = pos
		m.result = x(m).settled()
		return flowReturn
	}
}

// jumps are the targets of break and the other jumps.
var jumps = map[syntax.JumpKind]flow{syntax.Break: flowBreak, syntax.Continue: flowContinue,
	syntax.Next: flowNext, syntax.NextFile: flowNextFile}

func jump(s *syntax.Jump) action {
	f, pos := jumps[s.Kind], s.Pos
	if f == flowBreak || f == flowContinue {
		return func(*machine) flow { return f }
	}
	return func(m *machine) flow {
		m.at = pos
		m.checkJump(f)
		return f
	}
}

// checkJump refuses next and nextfile in a function that was not called from a record rule. A
// BEGINFILE rule may use nextfile.
func (m *machine) checkJump(f flow) {
	if m.rule != "" && !(f == flowNextFile && m.rule == "BEGINFILE") {
		m.fatal("`%s' cannot be called from a `%s' rule",
			map[flow]string{flowNext: "next", flowNextFile: "nextfile"}[f], m.rule)
	}
	if f == flowNextFile {
		m.input.skip = m.rule == ""
	}
}

// printRecord returns the action of a rule without an action.
func (c *compiler) printRecord(pos syntax.Pos) action {
	return func(m *machine) flow {
		m.at = pos
		v := m.field(0)
		m.writeOut(v.s, m.ors)
		return flowOn
	}
}

// writeOut writes to standard output.
func (m *machine) writeOut(s, end string) {
	w := m.streams.stdout.w
	if len(s)+len(end) > w.Available() {
		m.step(len(s) >> 8)
	}
	_, _ = w.WriteString(s) // the writer keeps errors until the last write
	if _, err := w.WriteString(end); err != nil {
		m.writeFailed(m.streams.stdout, err)
	}
}

// print compiles print and printf.
func (c *compiler) print(s *syntax.Print) action {
	if len(s.Args) <= 1 && !s.Format && s.To == syntax.ToOutput {
		return c.printOne(s)
	}
	args := c.exprs(s.Args)
	if len(args) == 0 {
		args = []code{ofVal(func(m *machine) value { return m.field(0) })}
	}
	var dest func(m *machine) string
	if s.Dest != nil {
		dest = c.expr(s.Dest).str
	}
	pos, to, format := s.Pos, s.To, s.Format
	return func(m *machine) flow {
		m.at = pos
		from := len(m.values)
		for i := range args {
			v := args[i].val(m)
			m.values = append(m.values, v)
		}
		o := m.streams.stdout
		if dest != nil {
			o = m.outputTo(to, dest(m))
		}
		list := m.values[from:]
		m.values = m.values[:from]
		b := m.outRoom[:0]
		m.outRoom = nil // a format may print
		if format {
			b = m.appendf(b, m.str(list[0]), list[1:])
		} else {
			b = m.appendLine(b, list)
		}
		m.write(o, b)
		if m.outRoom = b; cap(b) > chunkSize {
			m.outRoom = nil
		}
		return flowOn
	}
}

// appendLine appends values in the form that print writes.
func (m *machine) appendLine(b []byte, list []value) []byte {
	for i, v := range list {
		if i > 0 {
			b = append(b, m.ofs...)
		}
		if len(v.s) >= bigText {
			m.room(len(b) + len(v.s))
		}
		b = m.appendOutput(b, v)
	}
	return append(b, m.ors...)
}

// printOne compiles the usual case.
func (c *compiler) printOne(s *syntax.Print) action {
	if len(s.Args) == 0 {
		return c.printRecord(s.Pos)
	}
	val, pos := c.expr(s.Args[0]).val, s.Pos
	return func(m *machine) flow {
		m.at = pos
		v := val(m)
		if v.k != kindNumber {
			m.writeOut(v.s, m.ors)
			return flowOn
		}
		m.keyRoom = m.appendNumber(m.keyRoom[:0], v.n, m.ofmt)
		m.writeOut(stringOf(m.keyRoom), m.ors)
		return flowOn
	}
}
