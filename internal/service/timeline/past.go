package timeline

import "github.com/carrel-dev/carrel"

// Past collects a sandbox's own snapshots and all ancestors of these and of its head.
func (x *Index) Past(of carrel.ID, head carrel.SnapshotID) map[carrel.SnapshotID]carrel.Snapshot {
	x.mu.Lock()
	defer x.mu.Unlock()
	out := map[carrel.SnapshotID]carrel.Snapshot{}
	follow := func(id carrel.SnapshotID) {
		for {
			sr, ok := x.byID[id]
			if _, seen := out[id]; seen || !ok {
				return
			}
			out[id] = sr.Snapshot
			id = sr.Snapshot.Parent
		}
	}
	follow(head)
	for id := range x.of[of] {
		follow(id)
	}
	return out
}

// CutLoose removes parents that are not in the set, and one parent of each circle.
func CutLoose(set map[carrel.SnapshotID]carrel.Snapshot) {
	const (
		open = 1 // on the way that is walked
		done = 2 // leads to a root
	)
	mark := make(map[carrel.SnapshotID]int, len(set))
	for id := range set {
		var way []carrel.SnapshotID
		for at := id; mark[at] != done; {
			sn := set[at]
			mark[at] = open
			way = append(way, at)
			_, there := set[sn.Parent]
			if !there || mark[sn.Parent] == open {
				sn.Parent = ""
				set[at] = sn
				break
			}
			at = sn.Parent
		}
		for _, at := range way {
			mark[at] = done
		}
	}
}
