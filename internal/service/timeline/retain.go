package timeline

import (
	"slices"
	"time"

	"github.com/carrel-dev/carrel"
)

// defaultLast is how many snapshots a rule without a number keeps.
const defaultLast = 20

// IsAuto reports whether the service may remove a snapshot without a request.
func IsAuto(sn carrel.Snapshot) bool {
	return !sn.Kept && len(sn.Names) == 0 && sn.Label == ""
}

// isPause reports whether a snapshot was taken to pause its sandbox.
func isPause(sn carrel.Snapshot) bool {
	return sn.Cause == carrel.CausePause || sn.Cause == carrel.CauseTimeout || sn.Cause == carrel.CauseIdle ||
		sn.Cause == carrel.CauseBudget
}

// children counts the snapshots whose parent is this one.
func (x *Index) children(of carrel.SnapshotID) int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.after[of])
}

// Excess lists the snapshots of a sandbox that a retention rule does not keep. isHead reports
// whether a snapshot is the head of a living sandbox.
//
// The rule governs only snapshots that nobody asked for: not Kept, named or labelled. Of those, the
// Last newest stay, and all younger than For. The head of any living sandbox, which is the nearest
// target of a rollback, always stays. Excess does not know which snapshots a paused sandbox needs
// or an operation uses. The code that removes snapshots must spare those.
//
// Snapshots of pauses do not count among the Last. Such a snapshot matters until the sandbox runs
// on, and the next pause takes a newer one. If they counted, a sandbox that is often paused when
// idle would lose all its checkpoints. So of the snapshots that pauses took (on request, at a
// timeout, on idleness), the newest stays. An older one stays only where the timeline branches,
// that is, where it has more than one child.
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
