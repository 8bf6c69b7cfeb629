package cli

import (
	"cmp"
	"slices"
	"time"

	"github.com/carrel-dev/carrel"
)

// moment is a snapshot's place in the tree of a timeline.
type moment struct {
	carrel.Snapshot
	forks []carrel.ID
	// after are the moments after this one, oldest first, without next. The straight line continues
	// with next.
	after  []*moment
	next   *moment
	head   bool      // the present comes after it
	past   bool      // the present comes after it, directly or not
	orphan bool      // its parent is not there
	newest time.Time // of it and all that came after
}

// growTree makes trees from a timeline, oldest first; the last one contains the present. A timeline
// from a daemon may not be a tree: parents may be missing or form circles.
func growTree(tl carrel.Timeline) []*moment {
	moments, order := index(tl)
	parents := uproot(moments, order)
	var roots []*moment
	children := map[*moment][]*moment{}
	for _, m := range order { // by time, so children are, too
		if p := parents[m]; p != nil {
			children[p] = append(children[p], m)
		} else {
			m.orphan = m.Parent != ""
			roots = append(roots, m)
		}
	}
	for at := moments[tl.Head]; at != nil; at = parents[at] {
		at.past = true
	}
	// Go down the tree, then backwards up again, so that children are finished before their
	// parents.
	down := slices.Clone(roots)
	for i := 0; i < len(down); i++ {
		down = append(down, children[down[i]]...)
	}
	for _, m := range slices.Backward(down) {
		m.straighten(children[m])
	}
	slices.SortStableFunc(roots, func(a, b *moment) int {
		switch {
		case a.past == b.past:
			return 0
		case a.past:
			return 1
		}
		return -1
	})
	return roots
}

// index makes a moment of each snapshot and returns them by ID and in order of time.
func index(tl carrel.Timeline) (map[carrel.SnapshotID]*moment, []*moment) {
	moments := make(map[carrel.SnapshotID]*moment, len(tl.Snapshots))
	order := make([]*moment, 0, len(tl.Snapshots))
	for _, s := range tl.Snapshots {
		if moments[s.ID] != nil {
			continue
		}
		m := &moment{Snapshot: s, newest: s.Created, head: s.ID == tl.Head}
		for _, fork := range tl.Forks[s.ID] {
			if fork != tl.Sandbox {
				m.forks = append(m.forks, fork)
			}
		}
		moments[s.ID] = m
		order = append(order, m)
	}
	slices.SortStableFunc(order, func(a, b *moment) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	})
	return moments, order
}

// uproot returns each moment's parent. It leaves out parents that would close a circle.
func uproot(moments map[carrel.SnapshotID]*moment, order []*moment) map[*moment]*moment {
	parents := make(map[*moment]*moment, len(order))
	walk := make(map[*moment]int, len(order)) // the walk in which a moment was seen first
	for n, start := range order {
		for m := start; m != nil && walk[m] == 0; m = parents[m] {
			walk[m] = n + 1
			p := moments[m.Parent]
			if p == nil || walk[p] == n+1 {
				break
			}
			parents[m] = p
		}
	}
	return parents
}

// straighten picks the child that continues m's line: the one that leads to the present, else the
// one with the newest moment. After the head only the present continues the line.
func (m *moment) straighten(children []*moment) {
	for _, c := range children {
		if c.newest.After(m.newest) {
			m.newest = c.newest
		}
	}
	for _, c := range children {
		better := m.next == nil || c.past || (!m.next.past && !c.newest.Before(m.next.newest))
		if !m.head && better {
			m.next = c
		}
	}
	for _, c := range children {
		if c != m.next {
			m.after = append(m.after, c)
		}
	}
}

// glyphs are the characters of a drawn tree.
type glyphs struct{ moment, head, here, side, tee, corner, gap, fork, back, dash, more string }

var (
	unicodeGlyphs = glyphs{moment: "○", head: "●", here: "◎", side: "│ ", tee: "├─", corner: "╰─", gap: "┆", fork: "▷", back: "←", dash: "–", more: "…"}
	asciiGlyphs   = glyphs{moment: "o", head: "*", here: "@", side: "| ", tee: "|-", corner: "`-", gap: ":", fork: ">", back: "<-", dash: "-", more: "..."}
)

// row is one line of a drawn tree.
type row struct {
	graph string
	at    *moment // nil for what is no snapshot
	note  string
	here  bool
}

// artist draws a tree, row by row.
type artist struct {
	glyphs
	mostForks int    // that are shown of one moment
	present   string // description of the sandbox's present state
	rows      []row
}

// line draws a moment and everything after it. first is the prefix of its first row, rest that of
// the others. Both are empty except in a branch.
func (d *artist) line(m *moment, first, rest string) {
	for ; m != nil; m = m.next {
		if m.orphan {
			d.rows = append(d.rows, row{graph: first + d.gap, note: "what came before is gone"})
		}
		mark := d.moment
		if m.head {
			mark = d.head
		}
		d.rows = append(d.rows, row{graph: first + mark, at: m})
		first = rest
		d.forksOf(m, rest)
		for _, branch := range m.after {
			d.line(branch, rest+d.tee, rest+d.side)
		}
		if m.head {
			d.rows = append(d.rows, row{graph: rest + d.here, note: d.present, here: true})
		}
	}
}

// forksOf draws a moment's forks.
func (d *artist) forksOf(m *moment, rest string) {
	ends := m.next == nil && !m.head
	for i, fork := range m.forks {
		note, last := "fork "+string(fork), i == len(m.forks)-1
		if left := len(m.forks) - i; i == d.mostForks && left > 1 {
			note, last = "and "+plural(left, "more fork")+"; --all shows them", true
		}
		edge := d.tee
		if last && ends {
			edge = d.corner
		}
		d.rows = append(d.rows, row{graph: rest + edge + d.fork, note: note})
		if last {
			return
		}
	}
}

// draw draws a whole timeline.
func (d *artist) draw(tl carrel.Timeline) []row {
	roots := growTree(tl)
	for i, root := range roots {
		if i > 0 {
			d.rows = append(d.rows, row{})
		}
		d.line(root, "", "")
	}
	if !slices.ContainsFunc(d.rows, func(r row) bool { return r.here }) {
		if len(roots) > 0 {
			d.rows = append(d.rows, row{})
		}
		if tl.Head != "" {
			d.rows = append(d.rows, row{graph: d.gap, note: "what came before is gone"})
		}
		d.rows = append(d.rows, row{graph: d.here, note: d.present, here: true})
	}
	return d.rows
}
