package ledger

import (
	"time"

	"github.com/carrel-dev/carrel/internal/state"
)

// figures lists all sums of a piece.
func figures(u *state.Usage) []*int64 {
	return []*int64{&u.AliveMS, &u.CPUAlive, &u.MemAlive, &u.BytesAlive, &u.CPUMicros, &u.MemUsed, &u.DiskUsed,
		&u.BytesOut, &u.BytesIn}
}

// clip returns the part of a piece between two times. The figures are spread evenly over the piece.
// The parts of a piece that is cut at any times add up to the piece exactly. A piece without length
// lies at its start.
func clip(u state.Usage, from, to time.Time) (part state.Usage, ok bool) {
	length := u.End.Sub(u.Start)
	if length <= 0 {
		return u, !u.Start.Before(from) && u.Start.Before(to)
	}
	if u.Start.Before(from) {
		part.Start = from
	} else {
		part.Start = u.Start
	}
	end := u.End
	if end.After(to) {
		end = to
	}
	if !end.After(part.Start) {
		return u, false
	}
	first, last := part.Start.Sub(u.Start), end.Sub(u.Start)
	out := u
	out.Start, out.End = part.Start, end
	for _, f := range figures(&out) {
		*f = mulDiv(*f, int64(last), int64(length)) - mulDiv(*f, int64(first), int64(length))
	}
	return out, true
}

// eachDay calls fn with the parts of a piece in each UTC day.
func eachDay(u state.Usage, fn func(day time.Time, part state.Usage)) {
	for d := day(u.Start); ; d = d.AddDate(0, 0, 1) {
		next := d.AddDate(0, 0, 1)
		if part, ok := clip(u, d, next); ok {
			fn(d, part)
		}
		if !u.End.After(next) {
			return
		}
	}
}

// accumulate adds the figures of one piece to another's.
func accumulate(sum *state.Usage, u state.Usage) {
	from := figures(&u)
	for i, f := range figures(sum) {
		*f = add(*f, *from[i])
	}
}
