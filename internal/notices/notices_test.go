package notices

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/carrel-dev/carrel/internal/testenv"
)

// TestAll passes for a build with notices and for one without.
func TestAll(t *testing.T) {
	all, err := All()
	if errors.Is(err, ErrMissing) {
		testenv.Need(t, "notices", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if !slices.IsSortedFunc(all, func(a, b Notice) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("not sorted by name")
	}
	for _, n := range all {
		if n.Name == "" || n.Version == "" || len(n.Licenses) == 0 || len(n.Texts) == 0 {
			t.Errorf("%s %s: licenses %v, %d texts", n.Name, n.Version, n.Licenses, len(n.Texts))
		}
		for _, text := range n.Texts {
			if text.File == "" || text.Text == "" {
				t.Errorf("%s: the text %q is empty", n.Name, text.File)
			}
		}
	}
}
