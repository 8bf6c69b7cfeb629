// Package pool decides how many sandboxes to keep ready of what kind, and when the
// machine has no memory for them. It knows no sandboxes: package service makes them.
//
// # The rule
//
// Of every key (a kind of sandbox) as many are kept ready as were asked for within the
// time that making new ones takes: that many a burst like the last one would take
// before the first replacement is there. The largest such number of late counts, and
// halves every HalfLife, so that what nobody asks for any more costs nothing soon.
// Floors are kept whatever happens, caps are never exceeded: neither by one key nor by
// all together, and there is a bounded number of keys, of which the least wanted go
// first, so that nobody fills the memory by asking for a thousand sizes.
package pool

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"
)

// Key is a kind of sandbox: those of one key can stand in for each other.
type Key string

// Config bounds a Sizer. Zero fields take the defaults.
type Config struct {
	// Cap is how many may be ready of all keys together; 0 is none at all.
	Cap int
	// Keys is how many keys are remembered; 0 is 32.
	Keys int
	// HalfLife is how fast demand is forgotten; 0 is two minutes.
	HalfLife time.Duration
}

// Defaults and bounds of what a Sizer measures.
const (
	defaultKeys     = 32
	defaultHalfLife = 2 * time.Minute
	// The window in which requests count as one burst is so many times as long as one
	// takes to make, within these bounds.
	windowFactor = 8
	leastWindow  = time.Second
	mostWindow   = 10 * time.Second
	// refillWeight is what the newest measurement counts in the average.
	refillWeight = 0.2
	// wanted is the demand below which a key is wanted no more.
	wanted = 0.5
)

// Sizer computes targets from requests. It is not safe for concurrent use.
type Sizer struct {
	cfg    Config
	refill time.Duration // what making one takes, on average; 0 is not known yet
	keys   map[Key]*demand
}

// demand is what was asked of one key.
type demand struct {
	recent []time.Time // the newest requests, at most Cap
	peak   float64     // the most in one window, as of at
	at     time.Time
}

// New returns a Sizer that has seen nothing.
func New(cfg Config) *Sizer {
	cfg.Cap = max(cfg.Cap, 0)
	cfg.Keys = cmp.Or(max(cfg.Keys, 0), defaultKeys)
	cfg.HalfLife = cmp.Or(max(cfg.HalfLife, 0), defaultHalfLife)
	return &Sizer{cfg: cfg, keys: map[Key]*demand{}}
}

// window is how long a burst is.
func (z *Sizer) window() time.Duration {
	return min(max(windowFactor*z.refill, leastWindow), mostWindow)
}

// Asked notes that a sandbox of a key was asked for.
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

// left is what is left of the peak.
func (d *demand) left(now time.Time, halfLife time.Duration) float64 {
	age := now.Sub(d.at)
	if age <= 0 { // the clock went back
		return d.peak
	}
	return d.peak * math.Exp2(-float64(age)/float64(halfLife))
}

// evict forgets the key that is wanted least.
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

// Refilled notes how long it took to make one.
func (z *Sizer) Refilled(took time.Duration) {
	switch {
	case took <= 0:
	case z.refill == 0:
		z.refill = took
	default:
		z.refill += time.Duration(refillWeight * float64(took-z.refill))
	}
}

// Forget drops what is known of a key: its template has changed.
func (z *Sizer) Forget(k Key) { delete(z.keys, k) }

// Targets returns how many to keep ready of each key; keys that are not in it have
// none. floors are those that stay whatever is asked for, cut where they exceed the
// cap. Keys that nobody wants any more are forgotten.
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

// share divides what is left by what is wanted; what the division leaves over goes to
// those that want most.
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
