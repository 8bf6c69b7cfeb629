package eval

// bounds of what programs may do.
const (
	maxText   = 64 << 20 // length of a string or a record
	maxFields = 16 << 20
	// maxStack is about how many bytes of the goroutine's stack calls may take.
	maxStack = 192 << 20
	// stepBatch is how many steps are paid for at a time.
	stepBatch = 128
	// oweBatch is how many bytes are paid for at a time.
	oweBatch = 32 << 10
	// bigText is the length from which texts are paid for by length, and those in variables are
	// charged: shorter ones are bounded by the number of variables.
	bigText = 512
)

// step pays for work: n is about 100 ns each.
func (m *machine) step(n int) {
	if m.steps += n; m.steps >= stepBatch {
		m.payStep()
	}
}

func (m *machine) payStep() {
	n := m.steps
	m.steps = 0
	if !m.call.Step(n) {
		panic(stopped{})
	}
}

// owe pays for memory that is kept; a negative n gives back.
func (m *machine) owe(n int64) {
	if m.debt += n; m.debt > oweBatch || m.debt < -oweBatch {
		m.settle()
	}
}

func (m *machine) settle() {
	n := m.debt
	m.debt = 0
	if n != 0 && m.call.Pay(n) != nil {
		panic(stopped{})
	}
}

// room is asked before a text of n bytes is made. Long ones are paid for until the statement or the
// loop around it goes on: see relax.
func (m *machine) room(n int) {
	if n < bigText {
		return
	}
	if n > maxText {
		m.fatal("string is too long: %d bytes", n)
	}
	m.step(n >> 10)
	if n >= oweBatch {
		m.scratch += int64(n)
		m.owe(int64(n))
	}
}

// relax gives back what texts in between were paid for, those of the callers apart.
func (m *machine) relax() {
	if m.scratch > m.scratchBase {
		m.owe(m.scratchBase - m.scratch)
		m.scratch = m.scratchBase
	}
}

// charge is what a text in a variable is paid for.
func charge(s string) int64 {
	if len(s) < bigText {
		return 0
	}
	return int64(len(s))
}

// assign stores a value in a variable.
func (m *machine) assign(g *variable, v value) {
	if v.k != kindNumber {
		v = m.keep(v)
	}
	if len(v.s) >= bigText || len(g.v.s) >= bigText {
		m.owe(charge(v.s) - charge(g.v.s))
	}
	g.v = v
}
