package seccomp

import "golang.org/x/sys/unix"

// The offsets of struct seccomp_data.
const (
	offNumber = 0
	offArch   = 4
	offArgs   = 16
)

// label is a place in a program, counted from its end.
type label int

// program is a filter that is written from its end. Every jump goes forward, so its target is
// already known.
type program struct {
	reversed []unix.SockFilter
	returns  map[uint32]label
}

func (p *program) emit(code uint16, jt, jf uint8, k uint32) label {
	p.reversed = append(p.reversed, unix.SockFilter{Code: code, Jt: jt, Jf: jf, K: k})
	return label(len(p.reversed))
}

// distance is the offset of a jump to l from the next emitted instruction.
func (p *program) distance(l label) int { return len(p.reversed) - int(l) }

// ret returns a verdict. It reuses an existing instruction if a jump can reach it.
func (p *program) ret(k uint32) label {
	if l, ok := p.returns[k]; ok && p.distance(l) < 200 {
		return l
	}
	l := p.emit(unix.BPF_RET|unix.BPF_K, 0, 0, k)
	p.returns[k] = l
	return l
}

// near returns l. If a conditional jump can't reach l, it returns a long jump to l.
func (p *program) near(l label) label {
	if p.distance(l) < 250 { // a second long jump may follow
		return l
	}
	return p.emit(unix.BPF_JMP|unix.BPF_JA, 0, 0, uint32(p.distance(l)))
}

// jump compares the accumulator with k. op is BPF_JEQ, BPF_JGE or BPF_JSET.
func (p *program) jump(op uint16, k uint32, yes, no label) label {
	yes, no = p.near(yes), p.near(no)
	return p.emit(unix.BPF_JMP|unix.BPF_K|op, uint8(p.distance(yes)), uint8(p.distance(no)), k)
}

// load puts a word of the call into the accumulator and continues at next.
func (p *program) load(offset uint32, next label) label {
	p.follow(next)
	return p.emit(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, 0, 0, offset)
}

// arg loads the low half of an argument. Both architectures are little-endian.
func (p *program) arg(n uint32, next label) label { return p.load(offArgs+8*n, next) }

// and masks the accumulator and continues at next.
func (p *program) and(mask uint32, next label) label {
	p.follow(next)
	return p.emit(unix.BPF_ALU|unix.BPF_AND|unix.BPF_K, 0, 0, mask)
}

// follow makes the next emitted instruction continue at next.
func (p *program) follow(next label) {
	if p.distance(next) != 0 {
		p.emit(unix.BPF_JMP|unix.BPF_JA, 0, 0, uint32(p.distance(next)))
	}
}

// oneOf continues at yes if the accumulator is one of ks, else at no.
func (p *program) oneOf(ks []uint32, yes, no label) label {
	for i := len(ks) - 1; i >= 0; i-- {
		no = p.jump(unix.BPF_JEQ, ks[i], yes, no)
	}
	return no
}

// instructions returns the program in execution order.
func (p *program) instructions() []unix.SockFilter {
	out := make([]unix.SockFilter, len(p.reversed))
	for i, in := range p.reversed {
		out[len(out)-1-i] = in
	}
	return out
}
