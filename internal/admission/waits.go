package admission

import "time"

// reason says why a request was refused.
type reason int

const (
	tooLate    reason = iota // it would wait too long
	queueFull                // too many wait
	waitedLong               // its turn did not come in time
	noRoom                   // the machine has no room
	reasons
)

// reasonNames are the names of the reasons, for counts.
var reasonNames = [reasons]string{"too late", "queue full", "waited too long", "no room"}

// WaitBounds are the upper bounds of the buckets of [Waits].
var WaitBounds = [...]time.Duration{time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond,
	10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond,
	250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2500 * time.Millisecond,
	5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute}

// Waits counts how long requests waited that were let in.
type Waits struct {
	Sum time.Duration
	// Buckets has the number of those up to each of WaitBounds alone. The last one is for longer
	// waits.
	Buckets [len(WaitBounds) + 1]uint64
}

func (w *Waits) add(d time.Duration) {
	i := 0
	for i < len(WaitBounds) && d > WaitBounds[i] {
		i++
	}
	w.Sum += d
	w.Buckets[i]++
}
