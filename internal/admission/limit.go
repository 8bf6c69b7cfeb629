package admission

import (
	"math"
	"time"
)

// limiter finds how many starts the machine sustains, from how much longer one takes while others
// are inside. It follows TCP Vegas (Brakmo and Peterson, 1995). If the limit is n, and a start
// takes r times as long as it would take alone, then n·(1−1/r) of them only delay each other. Less
// than one for each processor means that there is room for more. More than two means that there are
// too many. Work that gave up because of its deadline makes the limit fall at once.
//
// The time that a start takes alone is the shortest time of its class, lately, with no more inside
// than there are processors. Starts under load may lower it but never raise it. So a machine that
// is overloaded for an hour does not take that for normal.
type limiter struct {
	processors  int
	least, most int
	fixed       bool

	limit   float64
	classes map[string]*class
	ratio   float64 // smoothed; 0 before the first sample
	since   int     // samples since the last change
	mean    float64 // seconds for one, smoothed over all classes; 0 before the first
}

// class holds the measurements of one kind of work.
type class struct {
	alone, before time.Duration // the shortest of this window and of the last one
	ends          time.Time     // of this window
	usual         time.Duration // smoothed
}

// verdict says what the end of a start shows about the machine.
type verdict int

const (
	nothing verdict = iota // it failed for its own reasons
	fine
	overloaded
)

type sample struct {
	class   string
	took    time.Duration
	others  int // inside when it began, with it
	verdict verdict
	now     time.Time
}

const (
	window     = 2 * time.Minute // of the shortest time
	smoothing  = 0.15            // weight of a new sample
	backOff    = 0.7             // the limit's factor after an overload
	maxClasses = 256
)

func newLimiter(o Options) limiter {
	l := limiter{processors: o.Processors, most: o.MaxStarting, fixed: o.Fixed, classes: map[string]*class{}}
	l.least = min(max(2, o.Processors), l.most)
	l.limit = float64(min(2*max(2, o.Processors), l.most))
	if o.Fixed {
		l.limit = float64(o.MaxStarting)
	}
	return l
}

// now is the limit.
func (l *limiter) now() int { return int(l.limit) }

// usual is the time that work of a class takes lately; 0 when that is not known.
func (l *limiter) usual(name string) time.Duration {
	if c := l.classes[name]; c != nil {
		return c.usual
	}
	return 0
}

// learn adds the sample of one more end.
func (l *limiter) learn(s sample) {
	switch s.verdict {
	case overloaded:
		if l.since++; !l.fixed && l.since >= l.now() { // once for all that were inside together
			l.set(l.limit * backOff)
		}
		return
	case nothing:
		return
	}
	l.mean = smooth(l.mean, s.took.Seconds())
	c := l.classes[s.class]
	if c == nil {
		if len(l.classes) >= maxClasses {
			clear(l.classes)
		}
		c = &class{ends: s.now.Add(window)}
		l.classes[s.class] = c
	}
	c.usual = time.Duration(smooth(c.usual.Seconds(), s.took.Seconds()) * float64(time.Second))
	c.shortest(s, s.others <= l.processors)
	if l.fixed || s.others*2 < l.now() {
		return // with so few inside, the limit had no effect
	}
	l.ratio = smooth(l.ratio, float64(max(s.took, 1))/float64(max(c.base(), 1)))
	if l.since++; l.since < l.now() {
		return
	}
	waiting := l.limit * (1 - 1/math.Max(1, l.ratio))
	switch {
	case waiting < float64(l.processors):
		l.set(l.limit + 1)
	case waiting > 2*float64(l.processors):
		l.set(l.limit - 1)
	default:
		l.since = 0
	}
}

func (l *limiter) set(v float64) {
	l.limit = math.Min(math.Max(v, float64(l.least)), float64(l.most))
	l.since = 0
}

// shortest updates the shortest time. quiet says that the start did not share a processor.
func (c *class) shortest(s sample, quiet bool) {
	if s.now.After(c.ends) && quiet {
		c.before, c.alone, c.ends = c.alone, 0, s.now.Add(window)
	}
	if c.alone == 0 || s.took < c.alone {
		c.alone = s.took
	}
}

// base is what one takes alone.
func (c *class) base() time.Duration {
	if c.before > 0 {
		return min(c.alone, c.before)
	}
	return c.alone
}

func smooth(old, v float64) float64 {
	if old == 0 {
		return v
	}
	return old + smoothing*(v-old)
}
