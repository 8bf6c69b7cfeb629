package git

import "bytes"

// Where a run of changed lines can stand in more than one place, git's manual says no more than that
// the indent heuristic "shifts diff hunk boundaries to make patches easier to read". What we do: a
// reader sees a run best as a whole paragraph or block. So both of its boundaries, the one above its
// first line and the one below its last, should be where the text itself has a boundary: between
// blank lines, and left of deeper indentation. The scores are our own; real git decides otherwise in
// some cases.

// Costs of a boundary, in columns of indentation.
const (
	maxPlaces    = 400 // the places looked at, counted from the lowest; all others are alike
	maxIndent    = 200 // deeper lines count as this deep
	intoBlock    = 3   // the line below is deeper than the one above: a head is parted from its body
	outOfBlock   = 1   // the line below is less deep: the block above may end with it
	noBlankAbove = 4   // no blank line is above: nothing parts the paragraphs
	blankBelow   = 3   // a blank line is below: it belongs to what is above
)

// bestPlace returns how far to move the run of count lines at from: by -up to down lines. Among equal
// places the lowest wins.
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

// boundaryCost says how bad the boundary above line i is to read. The text's ends are good ones.
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

// depth returns the indentation of the first line that is not blank, or of the last if step is -1.
// blank is whether there is a blank line before that.
func depth(lines [][]byte, step int) (columns int, blank bool) {
	const maxBlanks = 20 // so many blank lines part anything
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

// indentOf is the column of a line's first character that is no blank.
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
