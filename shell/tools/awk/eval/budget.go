package eval

// limits on programs.
const (
	maxText   = 64 << 20 // length of a string or a record
	maxFields = 16 << 20
	// maxStack is the approximate limit on the goroutine's stack for calls, in bytes.
	maxStack = 192 << 20
	// stepBatch is the number of steps that are paid for at once.
	stepBatch = 128
	// oweBatch is the number of bytes that are paid for at once.
	oweBatch = 32 << 10
	// bigText is the length from which a text is paid for by its length, and charged while a
	// variable holds it. The number of variables limits shorter texts.
	bigText = 512
)

// step pays for n units of work. A unit is about 100 ns.
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

// owe pays for n bytes of memory. A negative n gives bytes back.
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

// room is called before a text of n bytes is made. Long texts are paid for until the current
// statement, or the loop around it, continues: see relax.
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

// relax gives back the memory charged for intermediate texts, except those of the callers.
func (m *machine) relax() {
	if m.scratch > m.scratchBase {
		m.owe(m.scratchBase - m.scratch)
		m.scratch = m.scratchBase
	}
}

// charge returns the memory charged for a text in a variable.
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
