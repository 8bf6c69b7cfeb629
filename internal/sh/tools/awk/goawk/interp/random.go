package interp

// random is BSD's additive feedback generator with gawk's shuffled output, so that programs get the numbers that they get
// from gawk.
type random struct {
	state   [63]uint32
	front   int
	rear    int
	shuffle [512]uint32
	last    uint32
}

func newRandom() *random {
	r := &random{}
	r.seed(1)
	return r
}

// seed is srandom.
func (r *random) seed(x uint32) {
	r.state[0] = x
	for i := 1; i < len(r.state); i++ {
		r.state[i] = goodRandom(int32(r.state[i-1]))
	}
	r.front, r.rear = 1, 0
	for i := range r.shuffle {
		r.shuffle[i] = r.next()
	}
	r.last = r.next()
	for range 10 * len(r.state) {
		r.draw()
	}
}

// goodRandom is Park's and Miller's generator.
func goodRandom(x int32) uint32 {
	if x == 0 {
		x = 123459876
	}
	hi, lo := x/127773, x%127773
	if x = 16807*lo - 2836*hi; x < 0 {
		x += 0x7fffffff
	}
	return uint32(x)
}

func (r *random) next() uint32 {
	r.state[r.front] += r.state[r.rear]
	out := r.state[r.front] >> 1
	r.front = (r.front + 1) % len(r.state)
	r.rear = (r.rear + 1) % len(r.state)
	return out
}

func (r *random) draw() uint32 {
	n := r.next()
	k := r.last & 511
	r.last = r.shuffle[k]
	r.shuffle[k] = n
	return r.last
}

// float64 is rand.
func (r *random) float64() float64 {
	for {
		a, b := float64(r.draw()), float64(r.draw())
		f := 0.5 + (a/(1<<31)+b)/(1<<31)
		if f -= 0.5; f != 1 {
			return f
		}
	}
}
