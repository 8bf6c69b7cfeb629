// Package pool decides how many sandboxes of which kind to keep ready, and when the machine has no
// memory for them. It knows no sandboxes: package service makes them.
//
// # The rule
//
// Of every key (a kind of sandbox), the pool keeps as many ready as were requested within the time
// that making new ones takes. A burst like the last one would use this many before the first
// replacement is there. The number is the largest lately. It halves every HalfLife, so that keys
// without requests soon cost nothing. Floors are always kept. Caps are never exceeded, neither by
// one key nor by all together. The number of keys is bounded too, and the least wanted keys go
// first. So nobody can fill the memory by asking for a thousand sizes.
package pool

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"
)

// Key is a kind of sandbox. Sandboxes of one key can replace each other.
type Key string

// Config bounds a Sizer. Zero fields mean the defaults.
type Config struct {
	// Cap is how many sandboxes of all keys together may be ready; 0 is none.
	Cap int
	// Keys is how many keys are remembered; 0 is 32.
	Keys int
	// HalfLife is how fast demand is forgotten; 0 is two minutes.
	HalfLife time.Duration
}

// Defaults and bounds of a Sizer's measurements.
const (
	defaultKeys     = 32
	defaultHalfLife = 2 * time.Minute
	// windowFactor gives the time window in which requests count as one burst: this many times the
	// time to make one, within these bounds.
	windowFactor = 8
	leastWindow  = time.Second
	mostWindow   = 10 * time.Second
	// refillWeight is the weight of the newest measurement in the average.
	refillWeight = 0.2
	// wanted is the demand below which a key is no longer wanted.
	wanted = 0.5
)

// Sizer computes targets from requests. It is not safe for concurrent use.
type Sizer struct {
	cfg    Config
	refill time.Duration // average time to make one; 0 if not known yet
	keys   map[Key]*demand
}

// demand holds the requests for one key.
type demand struct {
	recent []time.Time // the newest requests, at most Cap
	peak   float64     // the most in one window, at the time at
	at     time.Time
}

// New returns a Sizer without any requests.
func New(cfg Config) *Sizer {
	cfg.Cap = max(cfg.Cap, 0)
	cfg.Keys = cmp.Or(max(cfg.Keys, 0), defaultKeys)
	cfg.HalfLife = cmp.Or(max(cfg.HalfLife, 0), defaultHalfLife)
	return &Sizer{cfg: cfg, keys: map[Key]*demand{}}
}

// window is the longest time of a burst.
func (z *Sizer) window() time.Duration {
	return min(max(windowFactor*z.refill, leastWindow), mostWindow)
}

// Asked counts a request for a sandbox of a key.
func (z *Sizer) Asked(k Key, now time.Time) {
	if z.cfg.Cap == 0 {
		return
	}
	d := z.keys[k]
	if d == nil {
		if len(z.keys) >= z.cfg.Keys {
			z.evict(now)
		}
		d = &demand{at: now}
		z.keys[k] = d
	}
	from := now.Add(-z.window())
	d.recent = slices.DeleteFunc(d.recent, func(t time.Time) bool { return t.Before(from) })
	d.recent = append(d.recent, now)
	if over := len(d.recent) - z.cfg.Cap; over > 0 {
		d.recent = slices.Delete(d.recent, 0, over)
	}
	d.peak = max(d.left(now, z.cfg.HalfLife), float64(len(d.recent)))
	d.at = now
}

// left is the peak, reduced by the time since then.
func (d *demand) left(now time.Time, halfLife time.Duration) float64 {
	age := now.Sub(d.at)
	if age <= 0 { // the clock went back
		return d.peak
	}
	return d.peak * math.Exp2(-float64(age)/float64(halfLife))
}

// evict forgets the least wanted key.
func (z *Sizer) evict(now time.Time) {
	var least Key
	lowest := math.Inf(1)
	for k, d := range z.keys {
		left := d.left(now, z.cfg.HalfLife)
		if left < lowest || left == lowest && (d.at.Before(z.keys[least].at) || d.at.Equal(z.keys[least].at) && k < least) {
			least, lowest = k, left
		}
	}
	delete(z.keys, least)
}

// Refilled notes the time that making one took.
func (z *Sizer) Refilled(took time.Duration) {
	switch {
	case took <= 0:
	case z.refill == 0:
		z.refill = took
	default:
		z.refill += time.Duration(refillWeight * float64(took-z.refill))
	}
}

// Forget drops a key's data, because its template has changed.
func (z *Sizer) Forget(k Key) { delete(z.keys, k) }

// Targets returns how many sandboxes of each key to keep ready. A key that is not in the map has
// none. floors are the numbers to keep without demand, cut where they exceed the cap. Targets
// forgets keys that nobody wants any more.
func (z *Sizer) Targets(now time.Time, floors map[Key]int) map[Key]int {
	out := map[Key]int{}
	left := z.cfg.Cap
	for _, k := range slices.Sorted(maps.Keys(floors)) {
		if n := min(max(floors[k], 0), left); n > 0 {
			out[k] = n
			left -= n
		}
	}
	want := map[Key]int{}
	total := 0
	for k, d := range z.keys {
		p := d.left(now, z.cfg.HalfLife)
		if p < wanted {
			delete(z.keys, k)
			continue
		}
		if n := min(int(math.Ceil(p-wanted)), z.cfg.Cap) - out[k]; n > 0 {
			want[k] = n
			total += n
		}
	}
	for k, n := range share(want, total, left) {
		out[k] += n
	}
	return out
}

// share divides left among the keys, in proportion to their wants. The remainder of the division
// goes to the keys that want most.
func share(want map[Key]int, total, left int) map[Key]int {
	if total <= left {
		return want
	}
	keys := slices.SortedFunc(maps.Keys(want), func(a, b Key) int {
		return cmp.Or(cmp.Compare(want[b], want[a]), cmp.Compare(a, b))
	})
	out := map[Key]int{}
	rest := left
	for _, k := range keys {
		if n := want[k] * left / total; n > 0 {
			out[k] = n
			rest -= n
		}
	}
	for _, k := range keys {
		if rest == 0 {
			break
		}
		if out[k] < want[k] {
			out[k]++
			rest--
		}
	}
	return out
}
