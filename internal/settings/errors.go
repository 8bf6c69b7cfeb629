package settings

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/carrel-dev/carrel"
)

// invalid returns the error for a field of a layer: "run.yaml: read.allow[2]".
func invalid(field, hint, format string, args ...any) error {
	return &carrel.Error{Op: "read settings", Kind: carrel.Invalid, Field: field, Err: fmt.Errorf(format, args...), Hint: hint}
}

// within adds a field in front of an inner error.
func within(field string, err error) error {
	var e *carrel.Error
	if !errors.As(err, &e) {
		return invalid(field, "", "%w", err)
	}
	return &carrel.Error{Op: "read settings", Kind: carrel.Invalid, Field: field, Err: e.Err, Hint: e.Hint}
}

// show makes a name from a hostile place safe for a terminal: it quotes a name with unusual
// characters.
func show(s string) string {
	const longest = 200
	cut := s
	if len(cut) > longest {
		cut = cut[:longest] + "…"
	}
	if q := strconv.Quote(cut); q[1:len(q)-1] != cut || cut == "" {
		return q
	}
	return cut
}

// near returns the word of known that is most similar to s, "" if none is similar.
func near(s string, known []string) string {
	best, most := "", max(1, min(len(s), 12)/3)+1
	for _, k := range known {
		if d := distance(strings.ToLower(s), strings.ToLower(k), most); d < most {
			best, most = k, d
		}
	}
	return best
}

// distance counts the letters to add, remove, change or swap with a neighbour, up to most.
func distance(a, b string, most int) int {
	if len(a) > 64 || len(b) > 64 || max(len(a)-len(b), len(b)-len(a)) >= most {
		return most
	}
	before, row := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		older := before
		before, row = row, make([]int, len(b)+1)
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(before[j+1]+1, row[j]+1, before[j]+cost)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], older[j-1]+1)
			}
		}
	}
	return row[len(b)]
}

func sortedKeys(m fields) []string { return slices.Sorted(maps.Keys(m)) }
