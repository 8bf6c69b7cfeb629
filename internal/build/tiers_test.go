package build

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carrel-dev/carrel"
)

// TestTiersAreFoundOnce counts how often the engine looks for the tiers that work.
func TestTiersAreFoundOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks, works := 0, []carrel.Tier{carrel.GVisor}
		find := func(context.Context) []carrel.Tier { looks++; return works }
		var known tiers
		want := func(asked carrel.Tier, tiers []carrel.Tier, after int) {
			t.Helper()
			if got := known.get(t.Context(), asked, find); !slices.Equal(got, tiers) || looks != after {
				t.Errorf("tier %q: %v after %d looks; want %v after %d", asked, got, looks, tiers, after)
			}
		}
		want("", works, 1)
		want("", works, 1)
		want(carrel.GVisor, works, 1)
		want(carrel.NS, works, 2) // perhaps it works meanwhile
		works = []carrel.Tier{carrel.GVisor, carrel.NS}
		want(carrel.NS, works, 3)
		want(carrel.NS, works, 3)
		time.Sleep(tiersKnown + time.Second)
		want("", works, 4)
		works = nil
		time.Sleep(tiersKnown + time.Second)
		want("", nil, 5)
		want("", nil, 6) // none: look each time
		ended, end := context.WithCancel(t.Context())
		end()
		works = []carrel.Tier{carrel.NS}
		known.get(ended, "", find)
		want("", works, 8) // that look counted for nothing
	})
}
