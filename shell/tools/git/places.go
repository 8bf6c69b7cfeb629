package git

import "bytes"

// A run of changed lines can sometimes stand in several places. git's manual says only that the
// indent heuristic "shifts diff hunk boundaries to make patches easier to read". This file uses its
// own rule: a run is easiest to read if it is a whole paragraph or block. So its upper and its
// lower boundary should be at boundaries of the text: between blank lines, and left of deeper
// indentation. The costs are our own. Real git decides differently in some cases.

// Costs of a boundary, in columns of indentation.
const (
	maxPlaces    = 400 // the places checked, from the lowest up; the others are similar
	maxIndent    = 200 // deeper lines count as this deep
	intoBlock    = 3   // the line below is deeper: the boundary separates a head from its body
	outOfBlock   = 1   // the line below is less deep: the block above may end with it
	noBlankAbove = 4   // no blank line above: nothing separates the paragraphs
	blankBelow   = 3   // a blank line below: it belongs to the text above
)

// bestPlace returns how far to move the run of count lines at from, between -up and down lines.
// Among places with the same cost, the lowest wins.
func bestPlace(lines [][]byte, from, count, up, down int) (move int) {
	best := 0
	for try, seen := down, 0; try >= -up && seen < maxPlaces; try, seen = try-1, seen+1 {
		cost := boundaryCost(lines, from+try) + boundaryCost(lines, from+try+count)
		if seen == 0 || cost < best {
			best, move = cost, try
		}
	}
	return move
}

// boundaryCost returns the cost of a boundary above line i. The start and the end of the text are
// good boundaries.
func boundaryCost(lines [][]byte, i int) (cost int) {
	if i == 0 || i == len(lines) {
		return 0
	}
	below, isBlank := depth(lines[i:], 1)
	above, hasBlank := depth(lines[:i], -1)
	cost = below
	switch {
	case below > above:
		cost += intoBlock
	case below < above:
		cost += outOfBlock
	}
	if !hasBlank {
		cost += noBlankAbove
	}
	if isBlank {
		cost += blankBelow
	}
	return cost
}

// depth returns the indentation of the first line that is not blank, or of the last one if step is
// -1. blank says whether a blank line comes before it.
func depth(lines [][]byte, step int) (columns int, blank bool) {
	const maxBlanks = 20 // this many blank lines separate any two lines
	for n := range min(len(lines), maxBlanks) {
		i := n
		if step < 0 {
			i = len(lines) - 1 - n
		}
		if len(bytes.TrimSpace(lines[i])) > 0 {
			return indentOf(lines[i]), n > 0
		}
	}
	return 0, true
}

// indentOf returns the column of a line's first character that is not a blank.
func indentOf(line []byte) (column int) {
	for _, c := range line {
		switch c {
		case ' ':
			column++
		case '\t':
			column += 8 - column%8
		default:
			return min(column, maxIndent)
		}
	}
	return min(column, maxIndent)
}
