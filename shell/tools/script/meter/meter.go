// Package meter makes WebAssembly pay for its loops. Every round of a loop takes one unit from a
// counter. When a batch is used up, the code calls a function of the host, which may end the
// program.
//
// wazero has its own way to stop a program at its deadline. It checks on a slow path in every
// round, which makes an interpreter seven times slower. A counter in a global costs a tenth of the
// speed, and also tells how much was used.
//
// Other work is not counted: straight code is limited by its length, calls by the stack, and
// operations on ranges of memory by the memory's size.
package meter

import (
	"errors"
	"slices"
)

// Module and Name are the added import: a function without parameters and results.
const (
	Module = "carrel_meter"
	Name   = "tick"
)

// errFormat is the error of a binary that the package does not understand.
var errFormat = errors.New("meter: not a module that can be metered")

// section ids.
const (
	secCustom, secType, secImport, secFunc, secTable, secMemory = 0, 1, 2, 3, 4, 5
	secGlobal, secExport, secStart, secElem, secCode            = 6, 7, 8, 9, 10
)

// Instrument returns a module with the meter in it. A round of a loop is one unit, and the host is
// called every batch units. The binary is part of this program, so it is trusted to be valid. A
// broken one gives an error or does not compile.
func Instrument(wasm []byte, batch int32) (out []byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			out, err = nil, errFormat // a read past the end
		}
	}()
	if len(wasm) < 8 || string(wasm[:4]) != "\x00asm" {
		return nil, errFormat
	}
	m := &module{batch: batch}
	if err := m.scan(wasm[8:]); err != nil {
		return nil, err
	}
	out = slices.Clone(wasm[:8])
	done := map[byte]bool{}
	// emit writes the additions for sections that the module does not have.
	emit := func(before byte) {
		for _, id := range []byte{secType, secImport, secGlobal} {
			if !done[id] && (before == 0 || id < before) {
				done[id] = true
				out = appendSection(out, id, m.section(id, []byte{0}))
			}
		}
	}
	for _, s := range m.sections {
		if s.id == secCustom {
			continue // names of functions, whose numbers have changed
		}
		if s.id != 12 { // the data count section is not in numeric order
			emit(s.id)
		} else {
			emit(secElem)
		}
		done[s.id] = true
		out = appendSection(out, s.id, m.section(s.id, s.body))
	}
	return out, m.err
}

// module is the information about the binary.
type module struct {
	sections []section
	batch    int32
	types    uint32 // how many
	imports  uint32 // imported functions
	globals  uint32 // imported and own
	err      error
}

type section struct {
	id   byte
	body []byte
}

// scan splits the binary into sections and counts their entries.
func (m *module) scan(b []byte) error {
	r := &reader{b: b}
	for r.at < len(r.b) {
		id := r.byte()
		s := section{id, r.bytes(int(r.u32()))}
		m.sections = append(m.sections, s)
		in := &reader{b: s.body}
		switch id {
		case secType:
			m.types = in.u32()
		case secGlobal:
			m.globals += in.u32()
		case secImport:
			for range in.u32() {
				in.bytes(int(in.u32()))
				in.bytes(int(in.u32()))
				switch in.byte() {
				case 0:
					in.u32()
					m.imports++
				case 1:
					in.byte()
					in.limits()
				case 2:
					in.limits()
				case 3:
					in.bytes(2)
					m.globals++
				default:
					return errFormat
				}
			}
		}
	}
	return nil
}

// fuel returns the number of the counter's global.
func (m *module) fuel() uint32 { return m.globals }

// function returns the new number of a function.
func (m *module) function(n uint32) uint32 {
	if n >= m.imports {
		return n + 1
	}
	return n
}

// section rewrites one section.
func (m *module) section(id byte, body []byte) []byte {
	r := &reader{b: body}
	switch id {
	case secType:
		return m.oneMore(r, []byte{0x60, 0, 0})
	case secImport:
		add := appendName(nil, Module)
		add = appendName(add, Name)
		add = append(add, 0)
		return m.oneMore(r, appendU32(add, m.types))
	case secGlobal:
		n := r.u32()
		out := appendU32(nil, n+1)
		for range n {
			out = append(out, r.bytes(2)...)
			out = m.code(out, r, false)
		}
		return append(out, 0x7f, 1, 0x41, 0, 0x0b)
	case secExport:
		n := r.u32()
		out := appendU32(nil, n)
		for range n {
			out = appendName(out, string(r.bytes(int(r.u32()))))
			kind := r.byte()
			index := r.u32()
			if kind == 0 {
				index = m.function(index)
			}
			out = appendU32(append(out, kind), index)
		}
		return out
	case secStart:
		return appendU32(nil, m.function(r.u32()))
	case secElem:
		return m.elements(r)
	case secCode:
		n := r.u32()
		out := appendU32(nil, n)
		for range n {
			f := &reader{b: r.bytes(int(r.u32()))}
			from := f.at
			for range f.u32() {
				f.u32()
				f.byte()
			}
			text := m.code(slices.Clone(f.b[from:f.at]), f, true)
			out = append(appendU32(out, uint32(len(text))), text...)
		}
		return out
	}
	return body
}

// oneMore adds an entry to a counted list.
func (m *module) oneMore(r *reader, entry []byte) []byte {
	n := r.u32()
	out := appendU32(nil, n+1)
	out = append(out, r.b[r.at:]...)
	return append(out, entry...)
}

// elements renumbers the functions in tables.
func (m *module) elements(r *reader) []byte {
	n := r.u32()
	out := appendU32(nil, n)
	for range n {
		flags := r.u32()
		out = appendU32(out, flags)
		if flags&1 == 0 { // active
			if flags&2 != 0 {
				out = appendU32(out, r.u32())
			}
			out = m.code(out, r, false)
		}
		if flags&3 != 0 {
			out = append(out, r.byte()) // its kind
		}
		count := r.u32()
		out = appendU32(out, count)
		for range count {
			if flags&4 == 0 {
				out = appendU32(out, m.function(r.u32()))
			} else {
				out = m.code(out, r, false)
			}
		}
	}
	return out
}

// tick appends the code for the start of each loop.
func (m *module) tick(out []byte) []byte {
	out = appendU32(append(out, 0x23), m.fuel())       // global.get
	out = append(out, 0x45, 0x04, 0x40)                // i32.eqz, if
	out = appendS32(append(out, 0x41), m.batch)        // i32.const
	out = appendU32(append(out, 0x24), m.fuel())       // global.set
	out = appendU32(append(out, 0x10), m.imports)      // call
	out = appendU32(append(out, 0x0b, 0x23), m.fuel()) // end, global.get
	out = append(out, 0x41, 1, 0x6b)                   // i32.const 1, i32.sub
	return appendU32(append(out, 0x24), m.fuel())      // global.set
}
