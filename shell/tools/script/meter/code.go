package meter

// code copies instructions up to their end and renumbers functions. With ticks, as for a function's
// body, it adds a tick to every loop.
func (m *module) code(out []byte, r *reader, ticks bool) []byte {
	for depth := 1; depth > 0; {
		from := r.at
		op := r.byte()
		switch {
		case op == 0x02 || op == 0x03 || op == 0x04: // block, loop, if
			depth++
			r.leb()
			out = append(out, r.b[from:r.at]...)
			if op == 0x03 && ticks {
				out = m.tick(out)
			}
			continue
		case op == 0x0b: // end
			depth--
		case op == 0x10 || op == 0x12 || op == 0xd2: // call, return_call, ref.func
			out = appendU32(append(out, op), m.function(r.u32()))
			continue
		default:
			if !r.immediates(op) {
				m.err = errFormat
				return out
			}
		}
		out = append(out, r.b[from:r.at]...)
	}
	return out
}

// immediates skips the operands of an instruction.
func (r *reader) immediates(op byte) bool {
	switch {
	case op <= 0x01, op == 0x05, op == 0x0f, op == 0x1a, op == 0x1b, op == 0xd1, op >= 0x45 && op <= 0xc4:
	case op == 0x0c, op == 0x0d, op >= 0x20 && op <= 0x26, op == 0x41, op == 0x42, op == 0xd0, op == 0x3f, op == 0x40:
		r.leb()
	case op == 0x0e: // br_table
		for range r.u32() {
			r.leb()
		}
		r.leb()
	case op == 0x11, op == 0x13, op >= 0x28 && op <= 0x3e: // call_indirect, loads and stores
		r.leb()
		r.leb()
	case op == 0x1c: // select with types
		r.bytes(int(r.u32()))
	case op == 0x43:
		r.bytes(4)
	case op == 0x44:
		r.bytes(8)
	case op == 0xfc:
		switch sub := r.u32(); {
		case sub <= 7:
		case sub == 9, sub == 11, sub == 13, sub >= 15 && sub <= 17:
			r.leb()
		case sub <= 14:
			r.leb()
			r.leb()
		default:
			return false
		}
	case op == 0xfd: // vectors
		switch sub := r.u32(); {
		case sub <= 11, sub == 92, sub == 93:
			r.leb()
			r.leb()
		case sub == 12, sub == 13:
			r.bytes(16)
		case sub >= 21 && sub <= 34:
			r.byte()
		case sub >= 84 && sub <= 91:
			r.leb()
			r.leb()
			r.byte()
		}
	default:
		return false
	}
	return true
}

// reader reads a binary. It panics past the end, and Instrument converts the panic to an error.
type reader struct {
	b  []byte
	at int
}

func (r *reader) byte() byte {
	r.at++
	return r.b[r.at-1]
}

func (r *reader) bytes(n int) []byte {
	r.at += n
	return r.b[r.at-n : r.at]
}

// leb passes over a number.
func (r *reader) leb() {
	for r.byte()&0x80 != 0 {
	}
}

func (r *reader) u32() uint32 {
	var n uint32
	for shift := 0; ; shift += 7 {
		c := r.byte()
		n |= uint32(c&0x7f) << shift
		if c&0x80 == 0 {
			return n
		}
	}
}

func (r *reader) limits() {
	flags := r.byte()
	r.leb()
	if flags&1 != 0 {
		r.leb()
	}
}

func appendU32(out []byte, n uint32) []byte {
	for n >= 0x80 {
		out = append(out, byte(n)|0x80)
		n >>= 7
	}
	return append(out, byte(n))
}

func appendS32(out []byte, n int32) []byte {
	for n >= 64 || n < -64 {
		out = append(out, byte(n)|0x80)
		n >>= 7
	}
	return append(out, byte(n)&0x7f)
}

func appendName(out []byte, s string) []byte {
	return append(appendU32(out, uint32(len(s))), s...)
}

func appendSection(out []byte, id byte, body []byte) []byte {
	return append(appendU32(append(out, id), uint32(len(body))), body...)
}
