package store

import (
	"cmp"
	"slices"
)

// packUse holds the used chunks of a pack, by offset.
type packUse map[uint32]*chunkUse

// chunkUse says which parts of a chunk are in use.
type chunkUse struct {
	stored, raw uint32
	ranges      []byteRange // in order, without overlap or contact
}

// byteRange is a range that includes from and excludes to.
type byteRange struct{ from, to uint32 }

// add marks a part of a chunk.
func (u packUse) add(c *chunk, from, to uint32) {
	use := u[c.off]
	if use == nil {
		use = &chunkUse{stored: c.stored, raw: c.raw}
		u[c.off] = use
	}
	use.add(byteRange{from, to})
}

// add marks a range as used and joins it with ranges that it touches.
func (u *chunkUse) add(r byteRange) {
	first, _ := slices.BinarySearchFunc(u.ranges, r.from, func(b byteRange, from uint32) int { return cmp.Compare(b.to, from) })
	last := first
	for last < len(u.ranges) && u.ranges[last].from <= r.to {
		r.from, r.to = min(r.from, u.ranges[last].from), max(r.to, u.ranges[last].to)
		last++
	}
	u.ranges = slices.Replace(u.ranges, first, last, r)
}

// has reports whether the piece at off is in use.
func (u *chunkUse) has(off uint32) bool {
	for _, r := range u.ranges {
		if off < r.to {
			return off >= r.from
		}
	}
	return false
}

// live estimates the number of a pack's bytes that are in use.
func (u packUse) live() (n int64) {
	for _, c := range u {
		var raw int64
		for _, r := range c.ranges {
			raw += int64(r.to - r.from)
		}
		n += raw * int64(c.stored) / int64(c.raw)
	}
	return n
}
