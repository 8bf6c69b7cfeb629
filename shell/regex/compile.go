package regex

import "unicode/utf8"

// icode is the operation of an instruction.
type icode uint8

const (
	iMatch  icode = iota
	iByte         // a byte of lo to hi, then out
	iRanges       // a byte in a range of tables[arg], which has the next instruction
	iFail
	iSplit  // out, or else arg
	iSave   // the place into slot arg
	iAssert // conditions arg
	iMark   // the place into register arg
	iLoop   // at the end of a loop's round: repeat (out) or leave (arg); only leave if nothing was matched since the mark of register reg
	iBack   // what submatch arg has
	iLook   // sub-program arg
	iAtomic // sub-program arg
	iKeep
)

type inst struct {
	code   icode
	lo, hi byte
	lazy   bool // iLoop: leave first; iBack: ignore case
	neg    bool
	back   bool
	reg    uint32
	out    uint32
	arg    uint32
	min    int32 // iLook behind: how far
	max    int32
}

// brange is a range of bytes with the next instruction.
type brange struct {
	lo, hi byte
	out    uint32
}

// maxProg is the most instructions of a program.
const maxProg = 200000

// prog is a compiled pattern.
type prog struct {
	insts  []inst
	tables [][]brange
	start  uint32
	regs   int
	caps   int // slots of submatches
	conds  int // all that are asked for
	size   int // of insts and tables
}

// compiler makes a program from the end to the beginning. So every instruction knows the next one.
type compiler struct {
	p      prog
	work   int
	budget func(int) bool
	shapes map[*rune]shape // by the beginning of the set
}

// shape records the instructions of a set that was compiled once. They are copied for the next use
// of the set.
type shape struct {
	from, to           uint32 // instructions
	tableFrom, tableTo int
	next, start        uint32
}

// refusal is the value with which the compiler panics. Its entry function recovers it.
type refusal struct{ err error }

func compile(n *node, groups int, budget func(int) bool) (p *prog, err error) {
	c := &compiler{p: prog{caps: 2 * (groups + 1), conds: n.conds()}, budget: budget, shapes: map[*rune]shape{}}
	defer func() {
		if r := recover(); r != nil {
			refused, ok := r.(refusal)
			if !ok {
				panic(r)
			}
			p, err = nil, refused.err
		}
	}()
	c.p.start = c.node(n, c.emit(inst{code: iMatch}))
	return &c.p, nil
}

func (c *compiler) emit(i inst) uint32 {
	if c.p.size++; c.p.size > maxProg {
		panic(refusal{errTooBig})
	}
	if n := len(c.p.insts); n&255 == 255 && c.budget != nil && !c.budget(256) {
		panic(refusal{ErrStopped})
	}
	c.p.insts = append(c.p.insts, i)
	return uint32(len(c.p.insts) - 1)
}

// node compiles n in front of next and returns its first instruction.
func (c *compiler) node(n *node, next uint32) uint32 {
	if c.work++; c.work > 4*maxProg {
		panic(refusal{errTooBig})
	}
	if c.work&255 == 255 && c.budget != nil && !c.budget(64) {
		panic(refusal{ErrStopped})
	}
	switch n.op {
	case opSet:
		return c.set(n.set, next)
	case opRaw:
		return c.emit(inst{code: iByte, lo: n.raw, hi: n.raw, out: next})
	case opCat:
		for i := len(n.subs) - 1; i >= 0; i-- {
			next = c.node(n.subs[i], next)
		}
		return next
	case opAlt:
		at := c.node(n.subs[len(n.subs)-1], next)
		for i := len(n.subs) - 2; i >= 0; i-- {
			at = c.emit(inst{code: iSplit, out: c.node(n.subs[i], next), arg: at})
		}
		return at
	case opRepeat:
		return c.repeat(n, next)
	case opGroup:
		end := c.emit(inst{code: iSave, arg: uint32(2*n.n + 1), out: next})
		return c.emit(inst{code: iSave, arg: uint32(2 * n.n), out: c.node(n.subs[0], end)})
	case opAssert:
		return c.emit(inst{code: iAssert, arg: uint32(n.n), out: next})
	case opBack:
		return c.emit(inst{code: iBack, arg: uint32(n.n), lazy: n.fold, out: next})
	case opKeep:
		return c.emit(inst{code: iKeep, out: next})
	case opLook, opAtomic:
		sub := c.node(n.subs[0], c.emit(inst{code: iMatch}))
		i := inst{code: iAtomic, arg: sub, out: next}
		if n.op == opLook {
			lo, hi := n.subs[0].width()
			i.code, i.neg, i.back, i.min, i.max = iLook, n.neg, n.back, int32(lo), int32(hi)
		}
		return c.emit(i)
	}
	return next // opEmpty
}

func (c *compiler) split(first, second uint32, lazy bool) inst {
	if lazy {
		first, second = second, first
	}
	return inst{code: iSplit, out: first, arg: second}
}

// repeat compiles a repetition.
func (c *compiler) repeat(n *node, next uint32) uint32 {
	sub := n.subs[0]
	lo, _ := sub.width()
	at := next
	least := n.min
	switch {
	case n.max >= 0:
		for i := n.min; i < n.max; i++ {
			at = c.emit(c.split(c.node(sub, at), next, n.lazy))
		}
	case lo > 0:
		loop := c.emit(inst{})
		body := c.node(sub, loop)
		c.p.insts[loop] = c.split(body, next, n.lazy)
		at = loop
		if least > 0 {
			least--
			at = body
		}
	default: // a loop whose body can match nothing must end
		reg := uint32(c.p.regs)
		c.p.regs++
		loop := c.emit(inst{code: iLoop, reg: reg, arg: next, lazy: n.lazy})
		mark := c.emit(inst{code: iMark, reg: reg})
		c.p.insts[mark].out = c.node(sub, loop)
		c.p.insts[loop].out = mark
		at = mark
		if least > 0 {
			least--
		} else {
			at = c.emit(c.split(mark, next, n.lazy))
		}
	}
	for range least {
		at = c.node(sub, at)
	}
	return at
}

// set compiles one character of a set.
func (c *compiler) set(s set, next uint32) uint32 {
	if len(s) > 2 {
		if known, ok := c.shapes[&s[0]]; ok {
			return c.again(known, next)
		}
	}
	var seqs [][]brange
	for i := 0; i < len(s); i += 2 {
		seqs = sequences(seqs, s[i], s[i+1])
	}
	if len(seqs) == 0 {
		return c.emit(inst{code: iFail})
	}
	if c.budget != nil && !c.budget(4*len(seqs)) {
		panic(refusal{ErrStopped})
	}
	sh := shape{from: uint32(len(c.p.insts)), tableFrom: len(c.p.tables), next: next}
	sh.start = c.trie(seqs, next, map[string]uint32{})
	if sh.to, sh.tableTo = uint32(len(c.p.insts)), len(c.p.tables); len(s) > 2 {
		c.shapes[&s[0]] = sh
	}
	return sh.start
}

// again compiles a set by copying the instructions of an earlier one.
func (c *compiler) again(sh shape, next uint32) uint32 {
	by := uint32(len(c.p.insts)) - sh.from
	tables := uint32(len(c.p.tables) - sh.tableFrom)
	move := func(out uint32) uint32 {
		if out == sh.next {
			return next
		}
		return out + by
	}
	for _, t := range c.p.tables[sh.tableFrom:sh.tableTo] {
		c.p.size += len(t) / 4
		moved := make([]brange, len(t))
		for i, r := range t {
			moved[i] = brange{r.lo, r.hi, move(r.out)}
		}
		c.p.tables = append(c.p.tables, moved)
	}
	for at := sh.from; at < sh.to; at++ {
		i := c.p.insts[at]
		if i.code == iRanges {
			i.arg += tables
		} else {
			i.out = move(i.out)
		}
		c.emit(i)
	}
	return sh.start + by
}

// trie compiles sequences of byte ranges. They are sorted. Ranges at the same position are either
// equal or disjoint.
func (c *compiler) trie(seqs [][]brange, next uint32, known map[string]uint32) uint32 {
	var table []brange
	for i := 0; i < len(seqs); {
		first := seqs[i][0]
		j := i
		var tails [][]brange
		for ; j < len(seqs) && seqs[j][0] == first; j++ {
			if len(seqs[j]) > 1 {
				tails = append(tails, seqs[j][1:])
			}
		}
		first.out = next
		if tails != nil {
			key := keyOf(tails)
			out, ok := known[key]
			if !ok {
				out = c.trie(tails, next, known)
				known[key] = out
			}
			first.out = out
		}
		table = append(table, first)
		i = j
	}
	if len(table) == 1 {
		return c.emit(inst{code: iByte, lo: table[0].lo, hi: table[0].hi, out: table[0].out})
	}
	c.p.size += len(table) / 4
	c.p.tables = append(c.p.tables, table)
	return c.emit(inst{code: iRanges, arg: uint32(len(c.p.tables) - 1)})
}

// keyOf makes a key, so that equal sequences are found.
func keyOf(seqs [][]brange) string {
	b := make([]byte, 0, 8*len(seqs))
	for _, s := range seqs {
		b = append(b, byte(len(s)))
		for _, r := range s {
			b = append(b, r.lo, r.hi)
		}
	}
	return string(b)
}

// sequences appends the byte sequences of the characters lo to hi.
func sequences(out [][]brange, lo, hi rune) [][]brange {
	if lo < 0xe000 && hi > 0xd7ff { // surrogates have no encoding
		if lo < 0xd800 {
			out = sequences(out, lo, 0xd7ff)
		}
		if hi > 0xdfff {
			out = sequences(out, 0xe000, hi)
		}
		return out
	}
	if lo > hi {
		return out
	}
	for _, top := range []rune{0x7f, 0x7ff, 0xffff} {
		if lo <= top && hi > top {
			return sequences(sequences(out, lo, top), top+1, hi)
		}
	}
	if hi < utf8.RuneSelf {
		return append(out, []brange{{lo: byte(lo), hi: byte(hi)}})
	}
	for i := 1; i < utf8.UTFMax; i++ {
		m := rune(1)<<(6*i) - 1
		if lo&^m == hi&^m {
			continue
		}
		if lo&m != 0 {
			return sequences(sequences(out, lo, lo|m), (lo|m)+1, hi)
		}
		if hi&m != m {
			return sequences(sequences(out, lo, hi&^m-1), hi&^m, hi)
		}
	}
	a, b := utf8.AppendRune(nil, lo), utf8.AppendRune(nil, hi)
	seq := make([]brange, len(a))
	for i := range a {
		seq[i] = brange{lo: a[i], hi: b[i]}
	}
	return append(out, seq)
}
