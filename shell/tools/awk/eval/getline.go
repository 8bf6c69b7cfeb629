package eval

import (
	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/tools/awk/syntax"
)

// getline compiles getline in all its forms. Its value is 1, 0 at the end of input, or -1 for an
// error.
func (c *compiler) getline(x *syntax.Getline) code {
	set, visit := func(m *machine, v value) { m.setRecord(v) }, func(*machine) {}
	if x.Target != nil {
		to := c.place(x.Target)
		set, visit = to.set, func(m *machine) { to.update(m, unchanged) }
	}
	// The target is evaluated once, whether or not there is a record for it.
	whole := func(m *machine, result float64) float64 {
		if result <= 0 {
			visit(m)
		}
		return result
	}
	if x.From == syntax.FromInput {
		return ofNum(func(m *machine) float64 { return whole(m, m.getlineInput(set)) })
	}
	source := c.expr(x.Source).str
	var open func(m *machine, name string) *reader
	switch x.From {
	case syntax.FromFile:
		open = (*machine).getlineFile
	case syntax.FromCommand:
		open = (*machine).command
	default:
		open = func(m *machine, name string) *reader {
			b := m.bothWays(name)
			if b.out != nil {
				_ = b.out.w.Flush() // if the reader has gone, reading its answer shows that
			}
			if b.in == nil {
				m.fatal("getline: attempt to read from closed read end of two-way pipe")
			}
			return b.in
		}
	}
	return ofNum(func(m *machine) float64 { return whole(m, m.getlineFrom(open(m, source(m)), set)) })
}

// unchanged is a changer that leaves a value as it is.
func unchanged(_ *machine, old value) (value, bool) { return old, false }

// getlineInput reads the next record of the main input.
func (m *machine) getlineInput(set func(m *machine, v value)) float64 {
	if m.rule == "BEGINFILE" || m.rule == "ENDFILE" {
		m.fatal("non-redirected `getline' invalid inside `%s' rule", m.rule)
	}
	s, term, ok := m.nextRecord()
	if !ok {
		return 0
	}
	m.setRT(term)
	m.step(1 + len(s)>>7)
	set(m, input(s))
	return 1
}

// getlineFile returns the reader of a file, which it opens the first time. It returns nil when the
// file can't be opened.
func (m *machine) getlineFile(name string) *reader {
	if rd := m.streams.in[name]; rd != nil {
		return rd
	}
	if len(m.streams.in) >= maxStreams {
		m.setErrno("Too many open files")
		return nil
	}
	rd, err := m.open(name)
	if err != nil {
		if m.call.Stopped(err) {
			panic(stopped{})
		}
		m.setErrno(tool.ErrText(err))
		return nil
	}
	m.streams.in[name] = rd
	return rd
}

// getlineFrom reads a record from a reader other than the main input.
func (m *machine) getlineFrom(rd *reader, set func(m *machine, v value)) float64 {
	if rd == nil {
		return -1
	}
	if rd == m.streams.stdin {
		m.streams.flushOutput()
	}
	s, term, ok := rd.read(m)
	m.step(1 + len(s)>>7)
	if !ok {
		if rd.err != nil {
			if m.call.Stopped(rd.err) {
				panic(stopped{})
			}
			m.setErrno(tool.ErrText(rd.err))
			return -1
		}
		return 0
	}
	m.setRT(term)
	set(m, input(s))
	return 1
}
