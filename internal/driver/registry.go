package driver

import (
	"fmt"
	"sort"

	"github.com/carrel-dev/carrel"
)

// Registry holds the drivers of one service, by tier. The wiring fills it once; it does not change
// afterwards.
type Registry struct{ byTier map[carrel.Tier]Driver }

// NewRegistry returns a registry of the given drivers. It panics for two drivers of one tier: that
// is a mistake in the wiring.
func NewRegistry(drivers ...Driver) *Registry {
	r := &Registry{byTier: make(map[carrel.Tier]Driver, len(drivers))}
	for _, d := range drivers {
		t := d.Info().Tier
		if _, dup := r.byTier[t]; dup {
			panic("driver: two drivers for tier " + string(t))
		}
		r.byTier[t] = d
	}
	return r
}

// Get returns the driver of a tier. Error: Invalid, naming the existing tiers.
func (r *Registry) Get(t carrel.Tier) (Driver, error) {
	if d, ok := r.byTier[t]; ok {
		return d, nil
	}
	return nil, &carrel.Error{Op: "find driver", Kind: carrel.Invalid, Field: "tier",
		Err:  fmt.Errorf("no driver for tier %q", t),
		Hint: fmt.Sprintf("this build has: %v", r.Tiers())}
}

// Tiers lists the tiers of all drivers, sorted.
func (r *Registry) Tiers() []carrel.Tier {
	ts := make([]carrel.Tier, 0, len(r.byTier))
	for t := range r.byTier {
		ts = append(ts, t)
	}
	sort.Slice(ts, func(i, j int) bool { return ts[i] < ts[j] })
	return ts
}

// All returns the drivers in the order of Tiers.
func (r *Registry) All() []Driver {
	ds := make([]Driver, 0, len(r.byTier))
	for _, t := range r.Tiers() {
		ds = append(ds, r.byTier[t])
	}
	return ds
}

// Close closes every driver and returns the first error.
func (r *Registry) Close() error {
	var first error
	for _, d := range r.All() {
		if err := d.Close(); err != nil && first == nil {
			first = err
		}
	}
	return first
}
