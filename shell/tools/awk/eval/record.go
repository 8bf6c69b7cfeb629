package eval

// record is $0 with its fields. Fields are found when they are needed.
type record struct {
	text   string
	known  bool // text is valid; otherwise it must be made from the fields
	v      value
	fields []value
	sep    separator
	pos    int   // start of the next field, -1 when all were found
	paid   int   // the capacity of fields that was paid for
	held   int64 // memory charged for texts stored in fields
}

// setRecord makes v the record.
func (m *machine) setRecord(v value) {
	r := &m.record
	r.v, r.text, r.known = v, v.s, true
	if v.k == kindNumber {
		r.text = m.str(v)
		r.v = value{s: r.text, k: kindInput}
	}
	r.fields = r.fields[:0]
	if r.held > 0 {
		m.owe(-r.held)
		r.held = 0
	}
	r.pos = 0
	if r.text == "" {
		r.pos = -1
	}
	if m.separator == nil {
		m.separator = m.fieldSeparator()
	}
	r.sep = m.separator
}

// field returns a field, or the record.
func (m *machine) field(i int) value {
	r := &m.record
	if i > len(r.fields) && r.pos >= 0 {
		m.splitTo(i)
	}
	switch {
	case i == 0:
		if !r.known {
			m.rebuild()
		}
		return r.v
	case i < 0:
		m.fatal("attempt to access field %d", i)
	case i <= len(r.fields):
		return r.fields[i-1]
	}
	return value{k: kindNoField}
}

// fieldIndex converts a number to a field's index.
func (m *machine) fieldIndex(n float64) int {
	if !(n < maxFields) {
		m.fatal("field number %g is too large", n)
	}
	if n < 0 {
		m.fatal("attempt to access field %d", int64(max(n, -maxExact)))
	}
	return int(n)
}

// splitTo finds the fields up to number n.
func (m *machine) splitTo(n int) {
	r := &m.record
	switch sep := r.sep.(type) {
	case blanks:
		m.splitBlanks(n)
		return
	case oneByte:
		m.splitByte(n, sep)
		return
	}
	for len(r.fields) < n && r.pos >= 0 {
		start, end, after, ok := r.sep.next(m, r.text, r.pos)
		r.pos = after
		if !ok {
			r.pos = -1
			return
		}
		v := input(r.text[start:end])
		if m.csv {
			v.s = unquote(v.s)
		}
		m.addField(v)
	}
}

// splitBlanks and splitByte are splitTo for the usual separators.
func (m *machine) splitBlanks(n int) {
	r := &m.record
	s, pos := r.text, r.pos
	for len(r.fields) < n {
		for pos < len(s) && (s[pos] == ' ' || s[pos] == '\t' || s[pos] == '\n') {
			pos++
		}
		if pos == len(s) {
			r.pos = -1
			return
		}
		start := pos
		for pos < len(s) && s[pos] != ' ' && s[pos] != '\t' && s[pos] != '\n' {
			pos++
		}
		m.addField(input(s[start:pos]))
	}
	r.pos = pos
}

func (m *machine) splitByte(n int, sep oneByte) {
	r := &m.record
	for len(r.fields) < n && r.pos >= 0 {
		start, end, after, _ := sep.next(m, r.text, r.pos)
		r.pos = after
		m.addField(input(r.text[start:end]))
	}
}

// addField appends a field and pays for its memory.
func (m *machine) addField(v value) {
	r := &m.record
	r.fields = append(r.fields, v)
	if c := cap(r.fields); c != r.paid {
		m.payFields(c)
	}
}

func (m *machine) payFields(c int) {
	const fieldSize = 40
	if len(m.record.fields) > maxFields {
		m.fatal("record has too many fields")
	}
	m.owe(int64(c-m.record.paid) * fieldSize)
	m.step((c - m.record.paid) >> 3)
	m.record.paid = c
}

// splitAll finds all fields and returns their number.
func (m *machine) splitAll() int {
	if m.record.pos >= 0 {
		m.splitTo(maxFields + 1)
	}
	return len(m.record.fields)
}

// setField stores a field, or the record.
func (m *machine) setField(i int, v value) {
	if i == 0 {
		m.setRecord(m.keep(v))
		m.chargeRecord(len(m.record.text))
		return
	}
	r := &m.record
	if i > m.splitAll() {
		m.grow(i)
	}
	if v.k != kindNumber {
		v = v.settled()
	}
	if n := int64(len(v.s)); n > 0 {
		r.held += n
		m.owe(n)
	}
	r.fields[i-1] = v
	r.known = false
}

// grow adds empty fields up to number n.
func (m *machine) grow(n int) {
	r := &m.record
	if more := n - cap(r.fields); more > 0 {
		// Pay before the memory is allocated.
		const fieldSize = 40
		m.owe(int64(more) * fieldSize)
		m.settle()
		m.step(more >> 3)
		r.paid += more
	}
	for len(r.fields) < n {
		m.addField(value{k: kindNoField})
	}
}

// setNF removes fields or adds empty ones.
func (m *machine) setNF(n float64) {
	if n < 0 {
		m.fatal("NF set to negative value")
	}
	i := m.fieldIndex(n)
	if i > m.splitAll() {
		m.grow(i)
	} else {
		m.record.fields = m.record.fields[:i]
	}
	m.record.known = false
}

// rebuild makes the record from its fields.
func (m *machine) rebuild() {
	r := &m.record
	var b []byte
	total := 0
	for i, v := range r.fields {
		if i > 0 {
			b = append(b, m.ofs...)
		}
		b = m.appendText(b, v)
		if len(b)-total > oweBatch {
			m.room(len(b) - total)
			if total = len(b); total > maxText {
				m.fatal("record is too long: %d bytes", total)
			}
		}
	}
	r.text, r.known = stringOf(b), true
	r.v = value{s: r.text, k: kindString, part: true} // it does not come from outside
	if m.scratch > m.scratchBase {
		m.relax()
	}
	m.chargeRecord(len(r.text))
}

// chargeRecord pays for a record that the program made.
func (m *machine) chargeRecord(n int) {
	if n < bigText {
		n = 0
	}
	if n != m.recordPaid {
		m.owe(int64(n - m.recordPaid))
		m.recordPaid = n
	}
}
