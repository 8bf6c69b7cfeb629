package files

import (
	"io/fs"
	"strconv"
	"strings"
)

// modeChange is a parsed mode of chmod, mkdir -m and the like.
type modeChange struct {
	octal   bool
	bits    uint32 // of an octal mode
	exact   bool   // five or more digits: also clears the set-id bits of directories
	clauses []modeClause
}

// modeClause is one operation of a symbolic mode.
type modeClause struct {
	who  uint32 // mask of the affected bits; 0: all bits that the umask allows
	op   byte   // + - =
	perm uint32 // for ugo at once
	bigX bool
	copy byte // u, g or o: take over its bits
	s, t bool
	raw  bool // an octal number after the operator
}

// parseMode reads a mode in chmod's format: octal, or clauses as in u+rwX,g=u,o-w.
func parseMode(s string) (m modeChange, ok bool) {
	if s != "" && s[0] >= '0' && s[0] <= '7' {
		n, err := strconv.ParseUint(s, 8, 32)
		return modeChange{octal: true, bits: uint32(n), exact: len(s) > 4}, err == nil && n <= 0o7777
	}
	for clause := range strings.SplitSeq(s, ",") {
		who, i := uint32(0), 0
		for ; i < len(clause); i++ {
			switch clause[i] {
			case 'u':
				who |= 0o4700
				continue
			case 'g':
				who |= 0o2070
				continue
			case 'o':
				who |= 0o1007
				continue
			case 'a':
				who |= 0o7777
				continue
			}
			break
		}
		if i == len(clause) {
			return m, false
		}
		for i < len(clause) {
			c := modeClause{who: who, op: clause[i]}
			if strings.IndexByte("+-=", c.op) < 0 {
				return m, false
			}
			i++
			if i, ok = c.read(clause, i); !ok {
				return m, false
			}
			m.clauses = append(m.clauses, c)
			if len(m.clauses) > 1000 {
				return m, false
			}
		}
	}
	return m, true
}

// read reads the permissions after an operator.
func (c *modeClause) read(clause string, i int) (int, bool) {
	if i < len(clause) && clause[i] >= '0' && clause[i] <= '7' {
		end := i
		for end < len(clause) && clause[end] >= '0' && clause[end] <= '7' {
			end++
		}
		n, err := strconv.ParseUint(clause[i:end], 8, 32)
		c.perm, c.raw = uint32(n), true
		return end, err == nil && n <= 0o7777 && end == len(clause) && c.who == 0
	}
	if i < len(clause) && strings.IndexByte("ugo", clause[i]) >= 0 {
		c.copy = clause[i]
		return i + 1, true
	}
	for ; i < len(clause); i++ {
		switch clause[i] {
		case 'r':
			c.perm |= 0o444
		case 'w':
			c.perm |= 0o222
		case 'x':
			c.perm |= 0o111
		case 'X':
			c.bigX = true
		case 's':
			c.s = true
		case 't':
			c.t = true
		case '+', '-', '=':
			return i, true
		default:
			return i, false
		}
	}
	return i, true
}

// apply changes a mode. For a clause without ugoa, the bits of umask do not change.
func (m modeChange) apply(old fs.FileMode, umask fs.FileMode, dir bool) fs.FileMode {
	bits := permBits(old)
	if m.octal {
		if dir && !m.exact {
			return fileMode(m.bits | bits&0o6000)
		}
		return fileMode(m.bits)
	}
	for _, c := range m.clauses {
		value := c.perm
		switch c.copy {
		case 'u':
			value = spread(bits >> 6)
		case 'g':
			value = spread(bits >> 3)
		case 'o':
			value = spread(bits)
		}
		if c.bigX && (dir || bits&0o111 != 0) {
			value |= 0o111
		}
		if c.s {
			value |= 0o6000
		}
		if c.t {
			value |= 0o1000
		}
		mask := c.who
		switch {
		case c.raw:
			mask = 0o7777
		case mask == 0:
			mask = 0o7777 &^ uint32(umask.Perm())
		}
		value &= mask
		switch c.op {
		case '+':
			bits |= value
		case '-':
			bits &^= value
		case '=':
			keep := uint32(0)
			if dir && !c.raw && !c.s {
				keep = bits & 0o6000
			}
			if c.who == 0 || c.raw {
				bits = keep | value
			} else {
				bits = bits&^mask | keep | value
			}
		}
	}
	return fileMode(bits)
}

// spread copies the bits of one class to all three.
func spread(b uint32) uint32 { b &= 7; return b | b<<3 | b<<6 }
