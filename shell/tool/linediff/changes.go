// Package linediff finds the differences of two texts.
//
// The comparison is that of E. W. Myers, "An O(ND) Difference Algorithm and Its Variations" (1986), in
// linear space: a search from both corners of an area meets in its middle, and the two areas that this
// leaves are searched in the same way. The script is a shortest one, unless the texts are so large and
// so different that a search is cut short.
package linediff

// Change is one difference: Del lines of the first text from line A on became Ins lines of the second
// from line B on.
type Change struct{ A, Del, B, Ins int }

// Options are how to compare.
type Options struct {
	// Step is asked before work is done, and told how much. After false the comparison ends.
	Step func(n int) bool
	// Minimal looks for a shortest script however long it takes.
	Minimal bool
	// Rest chooses where a change stays that can as well be up to up lines further up or down lines
	// further down. It returns how many lines the change moves down. Nil is as far down as it can.
	Rest func(ch Change, up, down int) int
}

// Changes compares two texts, of which each line is given as a number below classes. Equal lines have
// equal numbers. ok is false when the comparison was ended.
//
// Where the equal lines around a change allow more than one place for it, it is put where it reads
// best: two Changes that can touch become one, and another one stays where o.Rest says.
func Changes(a, b []int32, classes int, o Options) (all []Change, ok bool) {
	removed, added, ok := unmatched(o.Step, a, b, classes, o.Minimal)
	if !ok {
		return nil, false
	}
	return slide(gather(removed, added), a, b, o.Rest), true
}

// slide moves Changes that can stand in more than one place.
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

// gather makes a change of each group of unmatched lines.
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

// next is where the i-th change begins in the first file, or that file's end.
func next(all []Change, i, end int) int {
	if i < len(all) {
		return all[i].A
	}
	return end
}

// Moved returns the change so many lines further down.
func (ch Change) Moved(by int) Change {
	ch.A, ch.B = ch.A+by, ch.B+by
	return ch
}

// join makes one change of two that touch.
func join(first, second Change) Change {
	first.Del += second.Del
	first.Ins += second.Ins
	return first
}

// slideDown returns how far a change can move down before the line limit of the first file. One that
// only removes or only adds lines can move if its first line equals the line below it.
func slideDown(a, b []int32, ch Change, limit int) (n int) {
	for most := limit - ch.A - ch.Del; n < most; n++ {
		if !slides(a[ch.A+n:], ch.Del, b[ch.B+n:], ch.Ins) {
			break
		}
	}
	return n
}

// slideUp returns how far a change can move up until it touches the one before it.
func slideUp(a, b []int32, ch, before Change) (n int) {
	for most := ch.A - before.A - before.Del; n < most; n++ {
		if !slides(a[ch.A-n-1:], ch.Del, b[ch.B-n-1:], ch.Ins) {
			break
		}
	}
	return n
}

// slides reports whether a change that begins with the first line of a and b can as well begin with
// the second.
func slides(a []int32, del int, b []int32, ins int) bool {
	switch {
	case del == 0 && ins > 0:
		return b[0] == b[ins]
	case ins == 0 && del > 0:
		return a[0] == a[del]
	}
	return false
}
