package files

import "slices"

const (
	// columnGap is the number of spaces between the columns of ls.
	columnGap = 2
	// leastColumn is the least width of a column, including the gap.
	leastColumn = 3
	// tabStop is the distance between the tab stops of a terminal.
	tabStop = 8
)

// grid is an arrangement of cells in columns.
type grid struct {
	cells, rows int
	across      bool  // the second cell is next to the first, not below it
	widths      []int // of each column, without the gap
}

// at returns the cell at a place, or -1 for none.
func (g *grid) at(row, col int) int {
	i := col*g.rows + row
	if g.across {
		i = row*len(g.widths) + col
	}
	if i >= g.cells {
		return -1
	}
	return i
}

// newGrid arranges cells of these widths in cols columns. It uses fewer columns if the last ones
// would be empty.
func newGrid(cells []int, cols int, across bool) grid {
	rows := (len(cells) + cols - 1) / cols
	if !across {
		cols = (len(cells) + rows - 1) / rows
	}
	g := grid{cells: len(cells), rows: rows, across: across, widths: make([]int, cols)}
	for col := range cols {
		for row := range rows {
			if i := g.at(row, col); i >= 0 {
				g.widths[col] = max(g.widths[col], cells[i])
			}
		}
	}
	return g
}

// fits reports whether the rows of a grid end before the last place of a line. Each column counts
// as at least leastColumn, including the last one. If no column is wider than that, it is enough
// that the last column begins in the line.
func (g *grid) fits(line int) bool {
	length, narrow := 0, true
	for col, w := range g.widths {
		if col < len(g.widths)-1 {
			w += columnGap
		}
		narrow = narrow && w <= leastColumn
		length += max(w, leastColumn)
	}
	return length < line || len(g.widths) == 1 || narrow && (len(g.widths)-1)*leastColumn < line
}

// fitGrid finds the grid with the most columns, and so the fewest rows, that fits into a line. One
// column always fits. It calls pay before each attempt with the number of cells. ok is false when
// pay returns false.
func fitGrid(cells []int, line int, across bool, pay func(int) bool) (g grid, ok bool) {
	// A grid can't have more columns than the number of the narrowest cells that fill one row.
	narrow := slices.Sorted(slices.Values(cells))
	most, length := 0, 0
	for most < len(narrow) && length+narrow[most] <= line {
		length += narrow[most] + columnGap
		most++
	}
	for cols := max(most, 1); ; cols = len(g.widths) - 1 {
		if !pay(len(cells)) {
			return g, false
		}
		if g = newGrid(cells, cols, across); g.fits(line) {
			return g, true
		}
	}
}

// columns prints items in columns.
func (l *lister) columns(items []item) {
	if len(items) == 0 {
		return
	}
	before := l.prefixes(items)
	cells := make([]int, len(items))
	for i, it := range items {
		cells[i] = len(before(it)) + l.shownWidth(it)
	}
	g, ok := fitGrid(cells, l.width, l.format == 'x', func(n int) bool { return l.Step(1 + n/8) })
	if !ok {
		return
	}
	for row := range g.rows {
		begin, end := 0, 0 // of the column, and of the printed text
		for col, w := range g.widths {
			i := g.at(row, col)
			if i < 0 {
				break
			}
			l.advance(end, begin)
			l.w.WriteString(before(items[i]) + l.shown(items[i]))
			end = begin + cells[i]
			begin += w + columnGap
		}
		l.w.WriteByte('\n')
	}
}

// advance moves from one terminal column to another. It uses tabs up to the last stop on the way,
// and then spaces. It uses no tab if that stop is the next column.
func (l *lister) advance(from, to int) {
	if stop := to - to%tabStop; from+1 < stop {
		for range stop/tabStop - from/tabStop {
			l.w.WriteByte('\t')
		}
		from = stop
	}
	for range to - from {
		l.w.WriteByte(' ')
	}
}
