package eval

import "math"

// random is a generator of random numbers. A program that seeds it must get the same numbers as
// from gawk. So it is of the same kind as gawk's, as can be seen from gawk's output: an additive
// feedback generator of degree 63. Park and Miller's minimal standard seeds it. A table shuffles
// its numbers, as Bays and Durham proposed.
type random struct {
	state  [degree]uint32
	at     int
	table  [512]uint32
	last   uint32
	seeded bool
	want   uint32 // the seed
}

const (
	degree = 63
	warmUp = 10 * degree // numbers that are thrown away
	top    = 1 << 31
)

// seed sets the seed. The generator starts again at the next number.
func (r *random) seed(n uint32) { r.want, r.seeded = n, false }

// begin fills the state and the table from the seed.
func (r *random) begin() {
	r.seeded = true
	r.state[0] = r.want
	for i := 1; i < degree; i++ {
		r.state[i] = minimalStandard(r.state[i-1])
	}
	r.at = 1
	for i := range r.table {
		r.table[i] = r.raw()
	}
	r.last = r.raw()
	for range warmUp {
		r.next()
	}
}

// minimalStandard is Park and Miller's generator, x·16807 modulo 2³¹-1. It treats the seed as a
// signed number. It replaces the seed 0, which would never change.
func minimalStandard(x uint32) uint32 {
	const m = 1<<31 - 1
	n := int64(int32(x))
	if n == 0 {
		n = 123459876
	}
	n = n * 16807 % m
	if n < 0 {
		n += m
	}
	return uint32(n)
}

// raw adds the oldest number and the last but one.
func (r *random) raw() uint32 {
	before := (r.at + degree - 1) % degree
	r.state[r.at] += r.state[before]
	n := r.state[r.at] >> 1
	r.at = (r.at + 1) % degree
	return n
}

// next returns a number from the table and puts a new one in its place. The previous result chooses
// the place.
func (r *random) next() uint32 {
	i := r.last % uint32(len(r.table))
	r.last = r.table[i]
	r.table[i] = r.raw()
	return r.last
}

// float returns a number that is at least 0 and less than 1.
func (r *random) float() float64 {
	if !r.seeded {
		r.begin()
	}
	for {
		low := float64(r.next())
		high := float64(r.next())
		if x := 0.5 + (low/top+high)/top - 0.5; x < 1 {
			return x
		}
	}
}

// srand seeds the generator, and returns the previous seed.
func (m *machine) srand(n float64) float64 {
	old := m.seed
	m.seed = math.Trunc(n)
	if math.IsNaN(n) || math.Abs(n) > maxExact {
		n = 0
	}
	m.random.seed(uint32(int64(n)))
	return old
}
