package linediff

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/shell/tool/linediff/linedifftest"
)

// shortest returns the length of a shortest script, computed with the table of all pairs of
// prefixes.
func shortest(a, b []int32) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for _, x := range a {
		corner := row[0]
		row[0]++
		for j, y := range b {
			best := min(row[j], row[j+1]) + 1
			if x == y {
				best = corner
			}
			corner, row[j+1] = row[j+1], best
		}
	}
	return row[len(b)]
}

// within returns a step function with a budget. left may be nil.
func within(budget int, left *int) func(int) bool {
	if left == nil {
		left = new(int)
	}
	*left = budget
	return func(n int) bool {
		*left -= n
		return *left > 0
	}
}

// length checks that changes lead from a to b, and returns how many lines they remove and add.
func length(t *testing.T, a, b []int32, changes []Change) (n int) {
	t.Helper()
	var got []int32
	at := 0
	for i, ch := range changes {
		if ch.A < at || ch.A == at && i > 0 || ch.Del+ch.Ins == 0 {
			t.Fatalf("change %d of %v touches the one before or is empty", i, changes)
		}
		got = append(got, a[at:ch.A]...)
		if len(got) != ch.B {
			t.Fatalf("change %d of %v is at another line of the second text", i, changes)
		}
		got = append(got, b[ch.B:ch.B+ch.Ins]...)
		at = ch.A + ch.Del
		n += ch.Del + ch.Ins
	}
	if got = append(got, a[at:]...); !slices.Equal(got, b) {
		t.Fatalf("%v -> %v: %v does not lead there", a, b, changes)
	}
	return n
}

// TestShortest compares the length of scripts with the shortest possible length, for each choice of
// places.
func TestShortest(t *testing.T) {
	r := rand.New(rand.NewPCG(15, 3))
	anywhere := func(_ Change, up, down int) int { return r.IntN(up+down+1) - up }
	for range 5000 {
		kinds := 1 + r.IntN(9)
		a := linedifftest.RandomLines(r, 40, kinds)
		b := linedifftest.RandomLines(r, 40, kinds)
		if r.IntN(2) == 0 {
			b = linedifftest.Edited(r, a, 1+r.IntN(4), kinds)
		}
		o := Options{Step: within(1<<30, nil)}
		if r.IntN(2) == 0 {
			o.Rest = anywhere
		}
		changes, ok := Changes(a, b, kinds, o)
		if !ok {
			t.Fatal("stopped")
		}
		if got, want := length(t, a, b, changes), shortest(a, b); got != want {
			t.Fatalf("%v -> %v: %d lines changed, want %d", a, b, got, want)
		}
	}
}

// TestPlaces checks the places of changes that could stand elsewhere.
func TestPlaces(t *testing.T) {
	top := func(_ Change, up, _ int) int { return -up }
	for _, c := range []struct {
		name string
		a, b []int32
		rest func(Change, int, int) int
		want []Change
	}{
		{"as far down", []int32{1, 2, 2, 3}, []int32{1, 2, 2, 2, 3}, nil, []Change{{3, 0, 3, 1}}},
		{"as far up", []int32{1, 2, 2, 3}, []int32{1, 2, 2, 2, 3}, top, []Change{{1, 0, 1, 1}}},
		{"a block", []int32{0, 1, 2, 9}, []int32{0, 1, 2, 1, 2, 9}, nil, []Change{{3, 0, 3, 2}}},
		{"together", []int32{1, 2, 2, 3}, []int32{1, 2, 4}, nil, []Change{{2, 2, 2, 1}}},
		{"nothing", []int32{1, 2}, []int32{1, 2}, nil, nil},
		{"all", nil, []int32{1, 2}, nil, []Change{{0, 0, 0, 2}}},
	} {
		got, ok := Changes(c.a, c.b, 10, Options{Step: within(1000, nil), Rest: c.rest})
		if !ok || !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}

// TestHopeless compares large texts that have almost nothing in common. It must end soon with a
// correct script.
func TestHopeless(t *testing.T) {
	testenv.Long(t, "compares 40,000 lines that have little in common")
	const lines, kinds, budget = 40_000, 15_000, 3 * workForAll
	r := rand.New(rand.NewPCG(15, 4))
	a, b := make([]int32, lines), make([]int32, lines)
	for i := range a {
		a[i], b[i] = int32(r.IntN(kinds)), int32(r.IntN(kinds))
	}
	var left int
	changes, ok := Changes(a, b, kinds, Options{Step: within(budget, &left)})
	if !ok {
		t.Fatalf("takes more than %d steps", budget)
	}
	kept := (2*lines - length(t, a, b, changes)) / 2
	if kept < lines/200 {
		t.Errorf("only %d of %d lines are kept", kept, lines)
	}
	t.Logf("%d of %d lines are kept, %d steps", kept, lines, budget-left)
}

// TestStops checks that a comparison ends when its budget is used up.
func TestStops(t *testing.T) {
	r := rand.New(rand.NewPCG(15, 5))
	a, b := linedifftest.RandomLines(r, 90_000, 1000), linedifftest.RandomLines(r, 90_000, 1000)
	if _, ok := Changes(a, b, 1000, Options{Step: within(1<<20, nil), Minimal: true}); ok {
		t.Error("ends with more work than it may do")
	}
}
