package chaos

import (
	"fmt"
	"testing"

	"github.com/carrel-dev/carrel/internal/testenv"
)

// withoutFix are fixes that fail points can take out, each with the trial that must find it.
var withoutFix = []struct {
	mutant string
	trial  func(*trial)
	short  bool
}{
	{"unrecorded-snapshots", lostTrial, false},
	{"unrecorded-sandboxes", lostTrial, false},
	{"tombstones", returnedTrial, false},
	{"ledger", recordsTrial, false},
	{"content", textTrial, false},
	{"sync-content", powerTrial, false},
	{"sync-records", answerTrial, false},
	{"adopt", stopTrial, true},
	{"identity", copyTrial, false},
	{"heal", hotTrial, false},
	{"distrust", packsTrial, false},
}

// TestMutants takes fixes out of a daemon, one at a time. A trial must find each. A mutant that
// survives some seeds is not found.
func TestMutants(t *testing.T) {
	together(t)
	if !*mutants {
		testenv.Inapplicable(t, "-mutants=false")
	}
	const tries = 3
	for _, m := range withoutFix {
		t.Run(m.mutant, func(t *testing.T) {
			if testing.Short() && !m.short {
				testenv.Long(t, "each mutant takes a whole trial")
			}
			for i := range uint64(tries) {
				r := runTrial(t, kind{"mutant " + m.mutant, false, m.trial}, *seedFlag+i,
					"mutant."+m.mutant+"=error")
				switch {
				case r.skipped != "":
					testenv.Need(t, "root", fmt.Errorf("%s", r.skipped))
				case len(r.violations) > 0:
					t.Logf("found with seed %d: %s", *seedFlag+i, r.violations[0])
					return
				case r.own != "":
					t.Fatalf("the trial itself: %s", r.own)
				}
			}
			t.Errorf("%d trials without the fix %q found no violation", tries, m.mutant)
		})
	}
}
