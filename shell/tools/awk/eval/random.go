package eval

import "math"

// random is a generator of random numbers. Programs that seed it must get the numbers that gawk
// gives, so it is of gawk's kind, as seen from outside: an additive feedback generator of degree 63
// seeded by Park and Miller's minimal standard, whose numbers are shuffled in a table as Bays and
// Durham proposed.
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

// seed makes the generator begin anew, when it is asked for a number.
func (r *random) seed(n uint32) { r.want, r.seeded = n, false }

// begin fills the state and the table.
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

// minimalStandard is Park and Miller's generator, x·16807 modulo 2³¹-1. It takes the seed for a
// signed number, and another one for 0, which would never change.
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

// raw adds to the oldest number the one before the newest.
func (r *random) raw() uint32 {
	before := (r.at + degree - 1) % degree
	r.state[r.at] += r.state[before]
	n := r.state[r.at] >> 1
	r.at = (r.at + 1) % degree
	return n
}

// next takes a number from the table at the place that the last one says, and puts a new one there.
func (r *random) next() uint32 {
	i := r.last % uint32(len(r.table))
	r.last = r.table[i]
	r.table[i] = r.raw()
	return r.last
}

// float returns a number from 0 up to 1.
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

// srand seeds the generator and returns the seed before.
func (m *machine) srand(n float64) float64 {
	old := m.seed
	m.seed = math.Trunc(n)
	if math.IsNaN(n) || math.Abs(n) > maxExact {
		n = 0
	}
	m.random.seed(uint32(int64(n)))
	return old
}
