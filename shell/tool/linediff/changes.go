// Package linediff finds the differences between two texts.
//
// It uses the algorithm of E. W. Myers, "An O(ND) Difference Algorithm and Its Variations" (1986),
// in linear space. Searches from both corners of an area meet in its middle. The two areas before
// and after this point are then searched in the same way. The result is a shortest script, except
// for large and very different texts, where a search is cut short.
package linediff

// Change is one difference: Del lines of the first text from line A on are replaced with Ins lines
// of the second text from line B on.
type Change struct{ A, Del, B, Ins int }

// Options are how to compare.
type Options struct {
	// Step is called before work is done, with the amount of work. When it returns false, the
	// comparison ends.
	Step func(n int) bool
	// Minimal always finds a shortest script, however long that takes.
	Minimal bool
	// Rest chooses the place of a change that can stand in several places: up to up lines further
	// up, or up to down lines further down. It returns how many lines the change moves down. With
	// nil, the change moves as far down as possible.
	Rest func(ch Change, up, down int) int
}

// Changes compares two texts. Each line is given as a number below classes, and equal lines have
// equal numbers. ok is false when Step ended the comparison.
//
// Equal lines around a change may allow several places for it. If two changes can be moved so that
// they touch, they become one. Otherwise o.Rest chooses the place.
func Changes(a, b []int32, classes int, o Options) (all []Change, ok bool) {
	removed, added, ok := unmatched(o.Step, a, b, classes, o.Minimal)
	if !ok {
		return nil, false
	}
	return slide(gather(removed, added), a, b, o.Rest), true
}

// slide chooses the place of changes that can stand in several places.
func slide(all []Change, a, b []int32, rest func(ch Change, up, down int) int) (done []Change) {
	for i := 0; i < len(all); i++ {
		ch := all[i]
		for {
			down := slideDown(a, b, ch, next(all, i+1, len(a)))
			if i+1 < len(all) && ch.A+down+ch.Del == all[i+1].A {
				ch = join(ch.Moved(down), all[i+1])
				i++
				continue
			}
			var before Change
			if n := len(done) - 1; n >= 0 {
				before = done[n]
			}
			up := slideUp(a, b, ch, before)
			if n := len(done) - 1; n >= 0 && ch.A-up == before.A+before.Del {
				ch, done = join(before, ch.Moved(-up)), done[:n]
				continue
			}
			if rest != nil && up+down > 0 {
				down = rest(ch, up, down)
			}
			done = append(done, ch.Moved(down))
			break
		}
	}
	return done
}

// gather makes a change from each group of unmatched lines.
func gather(removed, added []bool) (all []Change) {
	for i, j := 0, 0; i < len(removed) || j < len(added); {
		ch := Change{A: i, B: j}
		for ; i < len(removed) && removed[i]; i++ {
			ch.Del++
		}
		for ; j < len(added) && added[j]; j++ {
			ch.Ins++
		}
		if ch.Del+ch.Ins > 0 {
			all = append(all, ch)
			continue
		}
		i, j = i+1, j+1
	}
	return all
}

// next returns the start of the i-th change in the first file, or the end of that file.
func next(all []Change, i, end int) int {
	if i < len(all) {
		return all[i].A
	}
	return end
}

// Moved returns the change moved down by this many lines.
func (ch Change) Moved(by int) Change {
	ch.A, ch.B = ch.A+by, ch.B+by
	return ch
}

// join makes one change from two that touch.
func join(first, second Change) Change {
	first.Del += second.Del
	first.Ins += second.Ins
	return first
}

// slideDown returns how far a change can move down before the line limit of the first file. Only a
// change that just removes or just adds lines can move. Its first line must equal the line below
// it.
func slideDown(a, b []int32, ch Change, limit int) (n int) {
	for most := limit - ch.A - ch.Del; n < most; n++ {
		if !slides(a[ch.A+n:], ch.Del, b[ch.B+n:], ch.Ins) {
			break
		}
	}
	return n
}

// slideUp returns how far a change can move up before it touches the previous one.
func slideUp(a, b []int32, ch, before Change) (n int) {
	for most := ch.A - before.A - before.Del; n < most; n++ {
		if !slides(a[ch.A-n-1:], ch.Del, b[ch.B-n-1:], ch.Ins) {
			break
		}
	}
	return n
}

// slides reports whether a change that begins with the first line of a and b could begin with the
// second one instead.
func slides(a []int32, del int, b []int32, ins int) bool {
	switch {
	case del == 0 && ins > 0:
		return b[0] == b[ins]
	case ins == 0 && del > 0:
		return a[0] == a[del]
	}
	return false
}
