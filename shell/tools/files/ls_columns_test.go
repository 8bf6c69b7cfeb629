package files

import (
	"bufio"
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestFitGrid checks grids of random cells. Every cell must have one place, in order. Rows must end
// in the line. No grid with more columns may fit.
func TestFitGrid(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		cells := make([]int, 1+r.IntN(80))
		longest := 1 + r.IntN(20)
		for i := range cells {
			cells[i] = 1 + r.IntN(longest)
		}
		line, across := 1+r.IntN(130), r.IntN(2) == 0
		g, ok := fitGrid(cells, line, across, func(int) bool { return true })
		if !ok {
			t.Fatal("it was not stopped, and says that it was")
		}
		checkGrid(t, g, cells, line)
		for cols := len(g.widths) + 1; cols <= len(cells); cols++ {
			if more := newGrid(cells, cols, across); len(more.widths) > len(g.widths) && more.fits(line) {
				t.Fatalf("%v in %d, across %v: %d columns, and %d fit", cells, line, across, len(g.widths), len(more.widths))
			}
		}
	}
}

// checkGrid checks each place of a grid.
func checkGrid(t *testing.T, g grid, cells []int, line int) {
	t.Helper()
	var order []int
	major, minor := len(g.widths), g.rows
	if g.across {
		major, minor = minor, major
	}
	for a := range major {
		for b := range minor {
			row, col := b, a
			if g.across {
				row, col = a, b
			}
			if i := g.at(row, col); i >= 0 {
				order = append(order, i)
				if cells[i] > g.widths[col] {
					t.Fatalf("cell %d of %d is in a column of %d", i, cells[i], g.widths[col])
				}
			}
		}
	}
	if len(order) != len(cells) || !slices.IsSorted(order) {
		t.Fatalf("%d cells have the places %v", len(cells), order)
	}
	for row := range g.rows {
		end, begin := 0, 0
		for col, w := range g.widths {
			if i := g.at(row, col); i >= 0 {
				end = begin + cells[i]
			}
			begin += w + columnGap
		}
		if end > line && len(g.widths) > 1 {
			t.Fatalf("%v: row %d ends at %d, the line at %d", cells, row, end, line)
		}
	}
}

// TestFitGridLikeLs compares with the output of ls of coreutils 9.1 for some names.
func TestFitGridLikeLs(t *testing.T) {
	letters := slices.Repeat([]int{1}, 28)
	mixed := []int{1, 2, 1, 1, 1, 2, 1, 2, 1, 2, 1, 2, 1} // a bx c d e fx …
	for _, c := range []struct {
		name         string
		cells        []int
		line         int
		across       bool
		columns, row int
	}{
		{"letters to the end of the line", letters[:27], 79, false, 27, 1},
		{"one place too few", letters[:27], 78, false, 14, 2},
		{"the same across", letters[:27], 78, true, 26, 2},
		{"28 across", letters, 81, true, 27, 2},
		{"the last column has three places", mixed, 43, false, 7, 2},
		{"and then it fits", mixed, 45, false, 13, 1},
		{"one that is too long", []int{9, 1}, 5, false, 1, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, _ := fitGrid(c.cells, c.line, c.across, func(int) bool { return true })
			if len(g.widths) != c.columns || g.rows != c.row {
				t.Errorf("%d columns and %d rows, want %d and %d", len(g.widths), g.rows, c.columns, c.row)
			}
		})
	}
}

// TestFitGridStops checks that fitGrid pays for its work, and stops when it can't.
func TestFitGridStops(t *testing.T) {
	paid := 0
	if _, ok := fitGrid([]int{5, 1, 1, 1}, 9, false, func(n int) bool { paid += n; return false }); ok || paid != 4 {
		t.Errorf("it goes on, or paid for %d cells", paid)
	}
}

// TestAdvance interprets the output as a terminal does, where tabs go to the next stop.
func TestAdvance(t *testing.T) {
	for from := range 40 {
		for to := from; to < 60; to++ {
			var b bytes.Buffer
			l := &lister{w: bufio.NewWriter(&b)}
			l.advance(from, to)
			_ = l.w.Flush()
			at, spaces := from, 0
			for _, c := range b.Bytes() {
				if c == '\t' {
					at += tabStop - at%tabStop
				} else {
					at, spaces = at+1, spaces+1
				}
			}
			if at != to || spaces > tabStop || bytes.Contains(b.Bytes(), []byte(" \t")) {
				t.Errorf("from %d to %d with %q: at %d", from, to, b.String(), at)
			}
		}
	}
}
