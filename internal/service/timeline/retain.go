package timeline

import (
	"slices"
	"time"

	"github.com/carrel-dev/carrel"
)

// defaultLast is how many snapshots a rule keeps that says no number.
const defaultLast = 20

// IsAuto reports whether the service may remove a snapshot by itself.
func IsAuto(sn carrel.Snapshot) bool {
	return !sn.Kept && len(sn.Names) == 0 && sn.Label == ""
}

// isPause reports whether a snapshot was taken to pause its sandbox.
func isPause(sn carrel.Snapshot) bool {
	return sn.Cause == carrel.CausePause || sn.Cause == carrel.CauseTimeout || sn.Cause == carrel.CauseIdle
}

// children counts the snapshots that came right after one.
func (x *Index) children(of carrel.SnapshotID) int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.after[of])
}

// Excess lists what a retention rule does not keep of a sandbox's snapshots. isHead says
// of a snapshot whether it is the present moment of a living sandbox, and stays.
//
// The rule governs snapshots that nobody asked for: not Kept, named or labelled. Of
// those the Last newest stay, and all younger than For. Whatever the rule says, the
// present moment (the head) of any living sandbox stays, which is what it can be rolled
// back to at once. What a paused sandbox needs, or an operation uses, is not known here:
// who drops snapshots leaves those.
//
// Pauses are not counted among the Last. The moment of one matters until the sandbox
// runs on, and its next pause keeps a newer one; a sandbox that is paused whenever
// it is idle would otherwise push every checkpoint out. So of the snapshots that
// pauses took (on request, at a timeout, on idleness) the newest stays, and an older
// one only where the timeline branches: where more hangs on it than what came next.
func (x *Index) Excess(id carrel.ID, rule carrel.Retention, now time.Time, isHead func(carrel.SnapshotID) bool) []carrel.SnapshotID {
	last := rule.Last
	if last == 0 {
		last = defaultLast
	}
	governed := x.List(id, IsAuto)
	slices.SortFunc(governed, func(a, b carrel.Snapshot) int { return PlaceOf(b).Compare(PlaceOf(a)) })
	var pauses, over []carrel.Snapshot // newest first
	rest := 0
	for _, sn := range governed {
		young := rule.For > 0 && now.Sub(sn.Created) < rule.For
		if isPause(sn) {
			if len(pauses) > 0 && !young {
				over = append(over, sn)
			}
			pauses = append(pauses, sn)
			continue
		}
		if rest++; rest > last && !young {
			over = append(over, sn)
		}
	}
	var ids []carrel.SnapshotID
	for _, sn := range over {
		if !isHead(sn.ID) && (!isPause(sn) || x.children(sn.ID) <= 1) {
			ids = append(ids, sn.ID)
		}
	}
	return ids
}
