package scaling

import (
	"math"
	"math/rand/v2"
)

// Load is what users do.
type Load struct {
	// Rate is the mean number of sessions that begin in a second. Wave is the part of it that comes
	// and goes within Period seconds.
	Rate, Wave, Period float64
	// Burst is how many sessions of one template come at once when more than one comes, as for an
	// evaluation or a training run. BurstShare is the part of all sessions that come in bursts.
	Burst      int
	BurstShare float64
	// Templates is the number of templates. The i-th is wanted in proportion to 1/i^Skew.
	Templates int
	Skew      float64
	// Active is the mean time, in seconds, for which a session works before it ends or is paused.
	// Pauses is the probability that it is paused then. Away is the mean time, in seconds, until it
	// is needed again.
	Active, Pauses, Away float64
	// WorkMB is the median memory of a working session beyond an idle sandbox's. WorkCPU is its
	// part of a processor.
	WorkMB, WorkCPU float64
}

// session is one sandbox's life.
type session struct {
	template int
	memory   float64 // MiB, all of it
	cpu      float64
	node     int
	began    float64 // when it was requested, or needed again
	home     int     // the node with its snapshot; −1 without one
	life     int     // of the node, when it began there
	number   int     // of its start
}

// source makes sessions.
type source struct {
	load Load
	rng  *rand.Rand
	cdf  []float64 // of the templates
}

func newSource(l Load, rng *rand.Rand) *source {
	s := &source{load: l, rng: rng, cdf: make([]float64, l.Templates)}
	sum := 0.0
	for i := range s.cdf {
		sum += 1 / math.Pow(float64(i+1), l.Skew)
		s.cdf[i] = sum
	}
	for i := range s.cdf {
		s.cdf[i] /= sum
	}
	return s
}

// next returns the time until the next sessions begin, their number and their template. Arrivals
// are a Poisson process whose rate follows the wave.
func (s *source) next(now float64) (after float64, n, template int) {
	l := s.load
	mean := 1 - l.BurstShare
	if l.Burst > 1 {
		mean += l.BurstShare / float64(l.Burst)
	} else {
		mean = 1
	}
	rate := l.Rate * mean
	if l.Period > 0 {
		rate *= 1 + l.Wave*math.Sin(2*math.Pi*now/l.Period)
	}
	n = 1
	if l.Burst > 1 && s.rng.Float64() < l.BurstShare/float64(l.Burst)/mean {
		n = l.Burst
	}
	return s.exp(1 / rate), n, s.template()
}

func (s *source) template() int {
	u := s.rng.Float64()
	lo, hi := 0, len(s.cdf)-1
	for lo < hi {
		if mid := (lo + hi) / 2; s.cdf[mid] < u {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// session makes a session. Its memory is log-normal: many small ones, a few large ones.
func (s *source) session(now float64, template int, c Costs) *session {
	work := s.load.WorkMB * math.Exp(0.8*s.rng.NormFloat64())
	return &session{template: template, memory: c.IdleMB + c.DaemonMB + work, cpu: c.IdleCPU + s.load.WorkCPU*s.rng.ExpFloat64(),
		began: now, home: -1, node: -1}
}

func (s *source) exp(mean float64) float64 { return mean * s.rng.ExpFloat64() }
